//! Parses devices, volumes, config maps and disruption budgets of a scenario.

use super::groups::{NAMESPACE, key};
use super::syntax::{Entry, pair, scaled};
use anyhow::{Context, Result, bail};
use kai_engine::Delta;
use kai_engine::input::{
    BudgetInput, CapacityInput, ClaimAllocation, ClaimDevice, ClaimInput, ClaimPhase, ClaimRequest, Device,
    DeviceClassInput, DeviceId, Key, LabelSelector, NodeTerm, RequestAlternative, RequestMode, Requirement,
    RequirementOp, SelectorOp, SliceInput, SliceNodes, StorageClassInput, VolumeClaimInput, VolumeInput,
};

/// Bytes in the unit of `size=`.
const GIGA: i64 = 1_000_000_000;

/// `NAME [node=n1] driver=D devices=4`; the pool has the name of the slice.
pub(super) fn slice(entry: &Entry) -> Result<Delta> {
    let mut slice = SliceInput {
        name: entry.words[0].clone(),
        pool: entry.words[0].clone(),
        slice_count: 1,
        ..SliceInput::default()
    };
    for word in &entry.words[1..] {
        match pair(word) {
            ("node", node) => slice.nodes = SliceNodes::Node(node.to_owned()),
            ("driver", driver) => driver.clone_into(&mut slice.driver),
            ("devices", count) => {
                let count: u32 = count.parse()?;
                let device = |n: u32| Device { name: n.to_string(), ..Device::default() };
                slice.devices = (0..count).map(device).collect();
            }
            _ => bail!("line {}: a slice has no `{word}`", entry.line),
        }
    }
    Ok(Delta::Slice(slice))
}

/// `NAME [backs=RESOURCE]`
pub(super) fn device_class(entry: &Entry) -> Delta {
    let backs = entry.words[1..].iter().find_map(|w| w.strip_prefix("backs=")).map(str::to_owned);
    Delta::DeviceClass(DeviceClassInput {
        name: entry.words[0].clone(),
        extended_resource: backs,
        accepts: Vec::new(),
        accepts_all: true,
    })
}

/// `NAME class=C [count=2|all] [queue=Q] [holds=DRIVER/POOL/DEVICE] [for=POD] [releasing]`
pub(super) fn claim(entry: &Entry) -> Result<Delta> {
    let mut claim = ClaimInput { key: key(&entry.words[0]), ..ClaimInput::default() };
    claim.uid = format!("claim-{}", claim.key.name);
    let mut alternative = RequestAlternative::default();
    for word in &entry.words[1..] {
        match pair(word) {
            ("class", class) => class.clone_into(&mut alternative.class),
            ("count", "all") => alternative.mode = RequestMode::All,
            ("count", count) => alternative.mode = RequestMode::Exactly(count.parse()?),
            ("queue", queue) => claim.queue_label = Some(queue.to_owned()),
            ("for", pod) => claim.reserved_for.push(pod.to_owned()),
            ("owner", pod) => claim.owner_pod = Some(pod.to_owned()),
            ("releasing", _) => claim.releasing = true,
            ("holds", device) => {
                let mut parts = device.rsplitn(3, '/').map(str::to_owned);
                let mut next = || parts.next().with_context(|| format!("`{device}` is not a device"));
                let (device, pool, driver) = (next()?, next()?, next()?);
                let given = ClaimDevice {
                    request: "main".to_owned(),
                    device: DeviceId { driver, pool, device },
                    admin_access: false,
                };
                claim.allocation.get_or_insert_with(ClaimAllocation::default).devices.push(given);
            }
            _ => bail!("line {}: a claim has no `{word}`", entry.line),
        }
    }
    claim.requests = vec![ClaimRequest { name: "main".to_owned(), alternatives: vec![alternative] }];
    Ok(Delta::Claim(Box::new(claim)))
}

/// `NAME [wait] [provisioner=P] [tracks] [static]`
pub(super) fn storage_class(entry: &Entry) -> Result<Delta> {
    let mut class = StorageClassInput { name: entry.words[0].clone(), ..StorageClassInput::default() };
    for word in &entry.words[1..] {
        match pair(word) {
            ("wait", _) => class.wait_for_consumer = true,
            ("provisioner", name) => name.clone_into(&mut class.provisioner),
            ("tracks", _) => class.tracks_capacity = true,
            ("static", _) => class.no_provisioner = true,
            _ => bail!("line {}: a storage class has no `{word}`", entry.line),
        }
    }
    Ok(Delta::StorageClass(class))
}

/// `NAME class=C size=10 [KEY:VALUE] [claim=NAME] [driver=D]`
pub(super) fn volume(entry: &Entry) -> Result<Delta> {
    let mut volume = VolumeInput { name: entry.words[0].clone(), available: true, ..VolumeInput::default() };
    for word in &entry.words[1..] {
        match pair(word) {
            ("class", class) => class.clone_into(&mut volume.class),
            ("size", size) => volume.bytes = scaled(size, GIGA)?,
            ("claim", claim) => (volume.claim, volume.available) = (Some(key(claim)), false),
            ("driver", driver) => volume.driver = Some(driver.to_owned()),
            ("on", label) => volume.node_terms.push(label_term(label)?),
            ("zone", label) => {
                let (label, value) = colon(label)?;
                volume.zones.push((label.to_owned(), vec![value.to_owned()]));
            }
            _ => bail!("line {}: a volume has no `{word}`", entry.line),
        }
    }
    Ok(Delta::Volume(volume))
}

/// `NAME class=C size=10 [bound=VOLUME]`
pub(super) fn volume_claim(entry: &Entry) -> Result<Delta> {
    let mut claim = VolumeClaimInput { key: key(&entry.words[0]), ..VolumeClaimInput::default() };
    for word in &entry.words[1..] {
        match pair(word) {
            ("class", class) => class.clone_into(&mut claim.class),
            ("size", size) => claim.bytes = scaled(size, GIGA)?,
            ("bound", volume) => (claim.volume, claim.phase) = (Some(volume.to_owned()), ClaimPhase::Bound),
            ("lost", _) => claim.phase = ClaimPhase::Lost,
            _ => bail!("line {}: a volume claim has no `{word}`", entry.line),
        }
    }
    Ok(Delta::VolumeClaim(claim))
}

/// `NAME class=C size=10 [on=KEY:VALUE]`
pub(super) fn capacity(entry: &Entry) -> Result<Delta> {
    let mut capacity = CapacityInput { key: key(&entry.words[0]), ..CapacityInput::default() };
    for word in &entry.words[1..] {
        match pair(word) {
            ("class", class) => class.clone_into(&mut capacity.class),
            ("size", size) => capacity.bytes = scaled(size, GIGA)?,
            ("on", label) => {
                let (label, value) = colon(label)?;
                let requirement = (label.to_owned(), SelectorOp::In(vec![value.to_owned()]));
                capacity.nodes = Some(LabelSelector { requirements: vec![requirement] });
            }
            _ => bail!("line {}: a capacity has no `{word}`", entry.line),
        }
    }
    Ok(Delta::Capacity(capacity))
}

/// A config map's name.
pub(super) fn config_map(name: &str) -> Delta {
    Delta::ConfigMap(Key::new(NAMESPACE, name))
}

/// `NAME covers=LABEL:VALUE allows=1`
pub(super) fn budget(entry: &Entry) -> Result<Delta> {
    let mut budget = BudgetInput { key: key(&entry.words[0]), ..BudgetInput::default() };
    for word in &entry.words[1..] {
        match pair(word) {
            ("covers", label) => {
                let (label, value) = colon(label)?;
                let requirement = (label.to_owned(), SelectorOp::In(vec![value.to_owned()]));
                budget.selector.requirements.push(requirement);
            }
            ("allows", count) => budget.disruptions_allowed = count.parse()?,
            _ => bail!("line {}: a disruption budget has no `{word}`", entry.line),
        }
    }
    Ok(Delta::Budget(budget))
}

fn label_term(text: &str) -> Result<NodeTerm> {
    let (key, value) = colon(text)?;
    let op = RequirementOp::In(vec![value.to_owned()]);
    Ok(NodeTerm { labels: vec![Requirement { key: key.to_owned(), op }], names: Vec::new() })
}

fn colon(text: &str) -> Result<(&str, &str)> {
    text.split_once(':').with_context(|| format!("`{text}` is not `LABEL:VALUE`"))
}

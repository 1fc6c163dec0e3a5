//! No node, GPU or device is overcommitted.

use super::after::{After, PlacedPod, Presence};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::ids::NodeIdx;
use crate::input::{DeviceId, Key};
use crate::outcome::{Decision, Outcome};
use crate::resource::{self, Amounts, WHOLE_GPU};
use std::collections::{BTreeMap, BTreeSet};

/// When the usage of a node is computed.
#[derive(Clone, Copy)]
enum Moment {
    /// Immediately: released pods are still there, pipelined pods are not.
    Now,
    /// After released pods are gone and pipelined pods run.
    Later,
}

impl Moment {
    fn includes(self, presence: Presence) -> bool {
        match self {
            Self::Now => presence != Presence::Pipelined,
            Self::Later => presence != Presence::Released,
        }
    }
    fn adds(self, presence: Presence) -> bool {
        match self {
            Self::Now => presence == Presence::Bound,
            Self::Later => presence == Presence::Pipelined,
        }
    }
    fn verb(self) -> &'static str {
        match self {
            Self::Now => "holds",
            Self::Later => "will hold",
        }
    }
}

pub(super) fn check(before: &Cluster, after: &After, findings: &mut Findings) {
    let touched: BTreeSet<NodeIdx> = after.placed(before).map(|h| h.node).collect();
    for node in touched {
        for moment in [Moment::Now, Moment::Later] {
            let seen = || after.held.iter().filter(move |h| h.node == node && moment.includes(h.presence));
            let added = || seen().filter(|h| moment.adds(h.presence));
            if added().next().is_some() {
                amounts(before, node, moment, seen(), added(), findings);
                gpus(before, node, moment, seen(), added(), findings);
            }
        }
    }
}

/// Every resource but GPUs.
fn amounts<'a>(
    before: &Cluster,
    node: NodeIdx,
    moment: Moment,
    seen: impl Iterator<Item = &'a PlacedPod>,
    added: impl Iterator<Item = &'a PlacedPod>,
    findings: &mut Findings,
) {
    let n = &before.nodes[node];
    let sum = |held: &mut dyn Iterator<Item = &'a PlacedPod>| {
        let mut sum = Amounts::zero();
        held.for_each(|h| sum += &before.shape(h.pod).request);
        sum
    };
    let (all, new) = (sum(&mut { seen }), sum(&mut { added }));
    for (dim, _) in new.iter().filter(|(dim, _)| *dim != resource::GPU) {
        let has = n.allocatable.get(dim);
        let name = before.dims.name(dim);
        if all.get(dim) > has && !(has == 0 && before.is_device_backed(name)) {
            let (node, name, verb) = (before.text(n.name), before.text(name), moment.verb());
            let what = format!("node `{node}` {verb} {} {name} of {has}", all.get(dim));
            findings.add(Invariant::NodeCapacity, what);
        }
    }
}

/// Whole GPUs, and the memory of shared ones.
fn gpus<'a>(
    before: &Cluster,
    node: NodeIdx,
    moment: Moment,
    seen: impl Iterator<Item = &'a PlacedPod>,
    added: impl Iterator<Item = &'a PlacedPod>,
    findings: &mut Findings,
) {
    let n = &before.nodes[node];
    let name = before.text(n.name);
    let (mut whole, mut memory): (i64, BTreeMap<&str, i64>) = (0, BTreeMap::new());
    let mut old: BTreeSet<&str> = BTreeSet::new();
    let mut drained: BTreeSet<&str> = BTreeSet::new();
    for held in seen {
        if !moment.adds(held.presence) {
            old.extend(held.gpu_groups.iter().map(String::as_str));
            let lost = before.pods[held.pod].extra.iter().flat_map(|extra| &extra.drained_gpus);
            drained.extend(lost.map(|group| before.text(*group)));
        }
        let (pod, shape) = (&before.pods[held.pod], before.shape(held.pod));
        if shape.is_shared() {
            for group in &held.gpu_groups {
                *memory.entry(group).or_default() += shape.memory_on(n.gpu_memory.mib);
            }
        } else if !pod.is_covered_reservation() {
            whole += shape.request.get(resource::GPU);
        }
    }
    let mut takes_more = false;
    for held in added {
        let shape = before.shape(held.pod);
        takes_more |= if shape.is_shared() {
            held.gpu_groups.iter().any(|group| !old.contains(group.as_str()))
        } else {
            shape.request.get(resource::GPU) > 0
        };
        if shape.is_shared() && held.gpu_groups.len() != shape.devices() as usize {
            let pod = before.pod_key(held.pod);
            let what = format!("pod `{pod}` gets {} of {} GPUs", held.gpu_groups.len(), shape.devices());
            findings.add(Invariant::GpuMemory, what);
        }
        for group in held.gpu_groups.iter().filter(|g| drained.contains(g.as_str())) {
            let pod = before.pod_key(held.pod);
            let what =
                format!("pod `{pod}` shares GPU `{group}` of node `{name}`, which has lost its reservation");
            findings.add(Invariant::GpuMemory, what);
        }
        for group in held.gpu_groups.iter().filter(|g| memory[g.as_str()] > n.gpu_memory.mib) {
            let used = memory[group.as_str()];
            let what = format!(
                "GPU `{group}` of node `{name}` {} {used} MiB of {}",
                moment.verb(),
                n.gpu_memory.mib
            );
            findings.add(Invariant::GpuMemory, what);
        }
    }
    let used = whole + memory.len() as i64 * WHOLE_GPU;
    if takes_more && used > gpus_of(n) {
        let what = format!("node `{name}` {} {used} millionths of GPUs of {}", moment.verb(), gpus_of(n));
        findings.add(Invariant::NodeCapacity, what);
    }
}

/// GPUs of a node; its label may count GPUs that the device plugin does not report because they are reserved.
fn gpus_of(node: &Node) -> i64 {
    let labelled = i64::from(node.gpu_count.unwrap_or(0)) * WHOLE_GPU;
    node.allocatable.get(resource::GPU).max(labelled)
}

/// No device is allocated to two claims by the outcome.
pub(super) fn check_devices(before: &Cluster, outcome: &Outcome, findings: &mut Findings) {
    let mut owners: BTreeMap<&DeviceId, (Key, &str)> = BTreeMap::new();
    for decision in &outcome.decisions {
        let Decision::Bind(bind) = decision else { continue };
        let Some(pod) = before.pod(&bind.pod) else { continue };
        let extra = before.pods[pod].extra.as_ref();
        for (name, devices) in &bind.claims {
            let object = extra
                .and_then(|e| e.claims.iter().find(|c| c.name == *name))
                .and_then(|c| c.claim.as_deref());
            let owner = Key::new(&bind.pod.namespace, object.unwrap_or(name));
            for given in devices.iter().filter(|d| !d.admin_access) {
                let (first, node) =
                    owners.entry(&given.device).or_insert_with(|| (owner.clone(), &bind.node));
                if *first != owner {
                    let DeviceId { driver, pool, device } = &given.device;
                    let what = format!(
                        "device `{driver}/{pool}/{device}` is allocated to `{first}` (on `{node}`) and `{owner}`"
                    );
                    findings.add(Invariant::Devices, what);
                }
            }
        }
    }
}

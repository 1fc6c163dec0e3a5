//! Translates resource slices, device classes and claims; CEL selectors become lists of devices.

use super::amount::read_amount;
use super::selector;
use crate::cel::{Accepted, Selectors, qualified};
use crate::finding::Report;
use crate::object::device as raw;
use crate::object::selector::NodeSelector;
use crate::object::value::Pairs;
use crate::object::{DeviceClass, ResourceClaim, ResourceSlice, key_of};
use crate::settings::Settings;
use kai_api::well_known::{annotation, label_value};
use kai_engine::input::{
    ClaimAllocation, ClaimConstraint, ClaimDevice, ClaimInput, ClaimRequest, CounterSet, Device,
    DeviceClassInput, DeviceId, DeviceTaint, Key, Labels, RequestAlternative, RequestMode, SliceInput,
    SliceNodes,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Slices = BTreeMap<Key, Arc<ResourceSlice>>;

pub fn slice(slice: &ResourceSlice, report: &mut Report<'_>) -> SliceInput {
    let spec = &slice.spec;
    let nodes = if spec.per_device_node_selection {
        SliceNodes::PerDevice
    } else {
        place(&spec.node_name, spec.node_selector.as_ref(), spec.all_nodes, report).unwrap_or_else(|| {
            report.warn(
                "spec",
                "the slice has no node, so its devices cannot be used",
                "set nodeName, nodeSelector or allNodes",
            );
            SliceNodes::Selector(vec![selector::never()])
        })
    };
    SliceInput {
        name: slice.metadata.name.to_string(),
        driver: spec.driver.to_string(),
        pool: spec.pool.name.to_string(),
        generation: spec.pool.generation,
        slice_count: spec.pool.resource_slice_count,
        nodes,
        counters: spec.shared_counters.iter().map(|set| counter_set(&set.name, set, report)).collect(),
        devices: spec.devices.iter().map(|device| self::device(device, &spec.driver, report)).collect(),
    }
}

fn place(
    node: &str,
    chosen: Option<&NodeSelector>,
    everywhere: bool,
    report: &mut Report<'_>,
) -> Option<SliceNodes> {
    if !node.is_empty() {
        Some(SliceNodes::Node(node.to_owned()))
    } else if let Some(chosen) = chosen {
        Some(SliceNodes::Selector(selector::node_terms(chosen, "nodeSelector", report)))
    } else {
        everywhere.then_some(SliceNodes::All)
    }
}

fn device(device: &raw::Device, driver: &str, report: &mut Report<'_>) -> Device {
    let mut attributes: Labels = device
        .attributes
        .iter()
        .map(|(name, value)| {
            let (domain, name) = qualified(name, driver);
            (format!("{domain}/{name}"), attribute_text(value))
        })
        .collect();
    attributes.sort();
    Device {
        name: device.name.to_string(),
        attributes,
        nodes: place(&device.node_name, device.node_selector.as_ref(), device.all_nodes, report),
        consumes: device
            .consumes_counters
            .iter()
            .map(|set| counter_set(&set.counter_set, set, report))
            .collect(),
        taints: device
            .taints
            .iter()
            .map(|taint| DeviceTaint {
                key: taint.key.to_string(),
                value: taint.value.to_string(),
                effect: selector::taint_effect(&taint.effect),
            })
            .collect(),
        allow_multiple: device.allow_multiple_allocations,
        capacity: amounts(&device.capacity, "spec.devices.capacity", report),
    }
}

fn attribute_text(value: &raw::AttributeValue) -> String {
    let text = value.string.as_ref().or(value.version.as_ref()).map(ToString::to_string);
    let number = || value.integer.map(|n| n.to_string());
    let truth = || value.boolean.map(|t| t.to_string());
    text.or_else(number).or_else(truth).unwrap_or_default()
}

fn counter_set(name: &str, set: &raw::CounterSet, report: &mut Report<'_>) -> CounterSet {
    CounterSet { name: name.to_owned(), counters: amounts(&set.counters, "counters", report) }
}

/// Counters and capacities in thousandths.
fn amounts(counters: &Pairs<raw::Counter>, field: &str, report: &mut Report<'_>) -> Vec<(String, i64)> {
    let read = |(name, counter): (&str, &raw::Counter), report: &mut Report<'_>| {
        // Extended resources (names with a slash) are counted in thousandths.
        let amount = read_amount("/", &counter.value, &format!("{field}[{name}]"), report).unwrap_or(0);
        (name.to_owned(), amount)
    };
    counters.iter().map(|pair| read(pair, report)).collect()
}

pub fn class(
    class: &DeviceClass,
    slices: &Slices,
    selectors: &mut Selectors,
    report: &mut Report<'_>,
) -> DeviceClassInput {
    let accepted = selectors.accepted(&class.spec.selectors, slices);
    report_problems(&accepted, "spec.selectors", report);
    DeviceClassInput {
        name: class.metadata.name.to_string(),
        extended_resource: class.spec.extended_resource_name.some().map(str::to_owned),
        accepts_all: accepted.devices.is_none(),
        accepts: accepted.devices.unwrap_or_default(),
    }
}

pub fn claim(
    claim: &ResourceClaim,
    slices: &Slices,
    selectors: &mut Selectors,
    settings: &Settings,
    report: &mut Report<'_>,
) -> ClaimInput {
    let meta = &claim.metadata;
    let pods = pod_consumers(claim);
    ClaimInput {
        key: key_of(meta),
        uid: meta.uid.to_string(),
        queue_label: meta.label(&settings.queue_label_key).map(str::to_owned),
        owner_pod: meta.owner_references.iter().find(|o| o.kind == "Pod").map(|o| o.uid.to_string()),
        synthetic: meta.annotation(annotation::EXTENDED_RESOURCE_CLAIM) == Some(label_value::TRUE),
        requests: claim.spec.devices.requests.iter().map(|r| request(r, slices, selectors, report)).collect(),
        constraints: claim.spec.devices.constraints.iter().filter_map(|c| constraint(c, report)).collect(),
        allocation: claim.status.allocation.as_ref().map(|given| allocation(given, report)),
        other_consumers: (claim.status.reserved_for.len() - pod_consumers(claim).count()) as u32,
        reserved_for: pods.map(|consumer| consumer.uid.to_string()).collect(),
        releasing: false,
    }
}

/// The pods that a claim is reserved for.
pub fn pod_consumers(claim: &ResourceClaim) -> impl Iterator<Item = &raw::Consumer> {
    claim.status.reserved_for.iter().filter(|other| other.resource == "pods" && other.api_group.is_empty())
}

/// Keys of the pods that a claim is reserved for.
pub fn consumers(claim: &ResourceClaim) -> impl Iterator<Item = Key> {
    pod_consumers(claim).map(|pod| Key::new(&*claim.metadata.namespace, &*pod.name))
}

/// Whether a selector of the claim depends on the published devices.
pub fn reads_devices(claim: &ResourceClaim) -> bool {
    claim.spec.devices.requests.iter().any(|r| {
        let exactly = r.exactly.iter().any(|e| !e.selectors.is_empty());
        exactly || r.first_available.iter().any(|s| !s.selectors.is_empty())
    })
}

fn request(
    request: &raw::DeviceRequest,
    slices: &Slices,
    selectors: &mut Selectors,
    report: &mut Report<'_>,
) -> ClaimRequest {
    let field = format!("spec.devices.requests[{}]", request.name);
    let ways = request.exactly.iter().chain(&request.first_available);
    let alternatives: Vec<RequestAlternative> = ways
        .map(|way| {
            let accepted = selectors.accepted(&way.selectors, slices);
            report_problems(&accepted, &format!("{field}.selectors"), report);
            RequestAlternative {
                name: way.name.to_string(),
                class: way.device_class_name.to_string(),
                mode: mode(way, &field, report),
                accepts: accepted.devices,
                admin_access: way.admin_access,
                tolerations: selector::tolerations(&way.tolerations, &format!("{field}.tolerations"), report),
            }
        })
        .collect();
    if alternatives.is_empty() {
        report.warn(
            field,
            "the request has neither `exactly` nor `firstAvailable`, so it is ignored",
            "set exactly or firstAvailable",
        );
    }
    ClaimRequest { name: request.name.to_string(), alternatives }
}

fn mode(way: &raw::DeviceSubRequest, field: &str, report: &mut Report<'_>) -> RequestMode {
    match &*way.allocation_mode {
        "" | "ExactCount" => {
            RequestMode::Exactly(way.count.and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1))
        }
        "All" => RequestMode::All,
        other => {
            report.warn(
                format!("{field}.allocationMode"),
                format!("mode `{other}` is unknown, so the claim cannot be satisfied"),
                "use ExactCount or All",
            );
            RequestMode::Unknown
        }
    }
}

fn constraint(given: &raw::DeviceConstraint, report: &mut Report<'_>) -> Option<ClaimConstraint> {
    let requests = given.requests.iter().map(ToString::to_string).collect();
    if let Some(attribute) = given.match_attribute.some() {
        return Some(ClaimConstraint::Match { requests, attribute: attribute.to_owned() });
    }
    if let Some(attribute) = given.distinct_attribute.some() {
        return Some(ClaimConstraint::Distinct { requests, attribute: attribute.to_owned() });
    }
    report.warn(
        "spec.devices.constraints",
        "an unsupported constraint has no effect",
        "use matchAttribute or distinctAttribute",
    );
    None
}

fn allocation(given: &raw::AllocationResult, report: &mut Report<'_>) -> ClaimAllocation {
    let mut devices: Vec<ClaimDevice> = given
        .devices
        .results
        .iter()
        .map(|result| ClaimDevice {
            request: result.request.to_string(),
            device: DeviceId {
                driver: result.driver.to_string(),
                pool: result.pool.to_string(),
                device: result.device.to_string(),
            },
            admin_access: result.admin_access,
        })
        .collect();
    devices.sort();
    let chosen = given.node_selector.as_ref();
    ClaimAllocation {
        devices,
        node_terms: chosen
            .map(|s| selector::node_terms(s, "status.allocation.nodeSelector", report))
            .unwrap_or_default(),
    }
}

fn report_problems(accepted: &Accepted, field: &str, report: &mut Report<'_>) {
    for problem in &accepted.problems {
        report.warn(
            field,
            format!("{problem}, so no device is accepted"),
            "see the Kubernetes documentation on device selectors",
        );
    }
}

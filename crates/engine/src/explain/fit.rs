//! Condition messages of pods: why no node fits, and why a pod is unschedulable.

use super::ReasonCode;
use super::amount::{is_storage, number, unit_of};
use super::capacity;
use crate::input::{self, AmountList, Key, NodeCondition};
use crate::resource::is_mig;
use crate::verdict::{
    CapacityRule, ClaimRejection, GpuKindMismatch, NodeFit, NodeRejection, PodRejection, PoolGap,
    VolumeClaimProblem, VolumeRejection,
};
use kai_units::Quantity;
use std::collections::BTreeMap;

pub(super) const NO_NODES: &str = "no nodes with enough resources were found";

/// Why no node fits a pod; the counts of several searches are summed.
pub(super) fn no_node<'a>(fits: impl Iterator<Item = &'a NodeFit>) -> String {
    let fits: Vec<&NodeFit> = fits.collect();
    if fits.iter().all(|fit| fit.nodes == 0) {
        return super::UNABLE_TO_SCHEDULE_POD.to_owned();
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut rejections: Vec<&(NodeRejection, u32)> = fits.iter().flat_map(|fit| &fit.reasons).collect();
    // Insufficient memory on shared GPUs is reported only if it is the only reason.
    if rejections.iter().any(|(rejection, _)| *rejection != NodeRejection::GpuMemoryFree) {
        rejections.retain(|(rejection, _)| *rejection != NodeRejection::GpuMemoryFree);
    }
    for (rejection, nodes) in rejections {
        if let Some(text) = node_rejection(rejection) {
            *counts.entry(text).or_default() += u64::from(*nodes);
        }
    }
    let mut lines: Vec<String> = counts.into_iter().map(|(text, nodes)| format!("{nodes} {text}")).collect();
    lines.sort_unstable();
    if lines.is_empty() { NO_NODES.to_owned() } else { format!("{NO_NODES}: {}.", lines.join(". \n")) }
}

/// Why a node rejects a pod; `None` for nodes outside a topology domain, which are not reported.
pub(super) fn node_rejection(rejection: &NodeRejection) -> Option<String> {
    let lacking = |what: &str| format!("node(s) didn't have enough resources: {what}");
    Some(match rejection {
        NodeRejection::Gpus => lacking("GPUs"),
        NodeRejection::GpuMemory | NodeRejection::GpuMemoryFree => lacking("GPU memory"),
        NodeRejection::Cpu => lacking("CPU cores"),
        NodeRejection::Memory => lacking("memory"),
        NodeRejection::Resource(name) => lacking(name),
        NodeRejection::Mig(name) => format!("node(s) didn't have enough of mig profile: {name}"),
        NodeRejection::Overhead(inner, overhead) => format!(
            "{}. Not enough resources due to pod overhead resources. The overhead resources are {}",
            node_rejection(inner)?,
            overhead_list(overhead)
        ),
        NodeRejection::PodSlots => lacking("pods"),
        NodeRejection::ReservationSlot => "node(s) pod number exceeded".to_owned(),
        NodeRejection::Cordoned => "node is unschedulable".to_owned(),
        NodeRejection::Condition(condition) => format!("node has {} condition", condition_name(*condition)),
        NodeRejection::Taint(key, value) => format!("node(s) had untolerated taint {{{key}: {value}}}"),
        NodeRejection::NodeAffinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
        NodeRejection::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
        NodeRejection::PodAffinity => "node(s) didn't match pod affinity rules".to_owned(),
        NodeRejection::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules".to_owned(),
        NodeRejection::ExistingAntiAffinity => {
            "node(s) didn't satisfy existing pods anti-affinity rules".to_owned()
        }
        NodeRejection::Spread => "node(s) didn't match pod topology spread constraints".to_owned(),
        NodeRejection::Volume(rejection) => volume_rejection(*rejection).to_owned(),
        NodeRejection::StorageCapacity(class) => {
            format!("node(s) did not have enough free storage for storageclass {class}")
        }
        NodeRejection::StorageUnreachable(class) => {
            format!("no allocatable storage from storageclass {class} found")
        }
        NodeRejection::GpuKind(rejection) => gpu_kind(*rejection).to_owned(),
        NodeRejection::Role => "node(s) didn't have the worker role that the pod needs".to_owned(),
        NodeRejection::OverCapacity(excess, rule) => {
            let (code, details) = (over_capacity_code(*rule).text(), capacity::message(excess, *rule));
            format!("node does not have enough capacity. Reason: {code}, Details: {details}")
        }
        NodeRejection::Claims(ClaimRejection::ElsewhereAllocated) => {
            "claim node selector does not match node(s)".to_owned()
        }
        NodeRejection::Claims(ClaimRejection::NoDevices) => {
            "cannot allocate all DRA claims on node(s)".to_owned()
        }
        NodeRejection::Numa => {
            "node cannot NUMA-align the pod's resources under its Topology Manager policy".to_owned()
        }
        NodeRejection::OutsideDomain => return None,
        NodeRejection::Plugin(text) => text.clone(),
    })
}

pub(super) fn over_capacity_code(rule: CapacityRule) -> ReasonCode {
    match rule {
        CapacityRule::Limit => ReasonCode::OverLimit,
        CapacityRule::NonPreemptibleQuota => ReasonCode::NonPreemptibleOverQuota,
    }
}

fn overhead_list(overhead: &AmountList) -> String {
    let quantity = |name: &str, amount: i64| match name {
        input::MEMORY | input::PODS => Quantity::from_units(amount),
        _ if is_storage(name) => Quantity::from_units(amount),
        _ => Quantity::from_milli(amount),
    };
    let entry = |(name, amount): &(String, i64)| format!(" {name}: {}", quantity(name, *amount));
    overhead.iter().map(entry).collect::<Vec<_>>().concat()
}

fn condition_name(condition: NodeCondition) -> &'static str {
    match condition {
        NodeCondition::NotReady => "NotReady",
        NodeCondition::MemoryPressure => "MemoryPressure",
        NodeCondition::DiskPressure => "DiskPressure",
        NodeCondition::PidPressure => "PIDPressure",
        NodeCondition::NetworkUnavailable => "NetworkUnavailable",
    }
}

fn volume_rejection(rejection: VolumeRejection) -> &'static str {
    match rejection {
        VolumeRejection::NodeConflict => "node(s) didn't match PersistentVolume's node affinity",
        VolumeRejection::Zone => "node(s) had no available volume zone",
        VolumeRejection::Unbound => "node(s) didn't find available persistent volumes to bind",
        VolumeRejection::Capacity => "node(s) did not have enough free storage",
        VolumeRejection::AttachLimit => "node(s) exceed max volume count",
    }
}

fn gpu_kind(rejection: GpuKindMismatch) -> &'static str {
    match rejection {
        GpuKindMismatch::LegacyMig => "Legacy MIG jobs cannot be scheduled on node(s)",
        GpuKindMismatch::NodeHasLegacyMig => "MIG job cannot be scheduled on node with legacy MIG jobs",
        GpuKindMismatch::NoMig => "MIG job cannot be scheduled on non-MIG node",
        GpuKindMismatch::MigSingle => "only whole gpu jobs can run on a node with MigStrategy='single'",
        GpuKindMismatch::MigMixed => "non MIG jobs cant run on a node with MigStrategy='mixed'",
        GpuKindMismatch::SharedOnDra => "fractional/shared GPU pods are not yet supported on DRA-only nodes",
        GpuKindMismatch::MemoryUnknown => {
            "node is not a gpu node or the gpu memory count on the node was not synced yet"
        }
    }
}

/// Why a pod is unschedulable on any node.
pub(super) fn unschedulable(pod: &Key, reason: &PodRejection, group: &Key, queue: &str) -> String {
    let unmet = |check: &str, text: &str| {
        format!("Scheduling conditions were not met for pod {pod}:\n{check}: {text}.\n")
    };
    let namespace = &pod.namespace;
    match reason {
        PodRejection::UnknownSubGroup(name) => {
            format!("Pod references subgroup \"{name}\", which does not exist in PodGroup {group}")
        }
        PodRejection::ConfigMaps(names) => {
            unmet("ConfigMap", &format!("Missing required configmaps: [{}]", names.join(" ")))
        }
        PodRejection::VolumeClaim(name, problem) => {
            let problem = match problem {
                VolumeClaimProblem::Missing => "not found".to_owned(),
                VolumeClaimProblem::Lost(volume) => {
                    format!("bound to non-existent persistentvolume \"{volume}\"")
                }
                VolumeClaimProblem::Deleting => "is being deleted".to_owned(),
            };
            unmet("VolumeBinding", &format!("persistentvolumeclaim \"{name}\" {problem}"))
        }
        PodRejection::UnboundImmediate(_) => {
            unmet("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims")
        }
        PodRejection::PoolTooSmall(gap) => unmet("MaxNodePoolResources", &pool_too_small(pod, gap)),
        PodRejection::ClaimsUnavailable(claims) => format!(
            "pod {pod} cannot be scheduled, it references resource claims <{}> while dynamic resource allocation is \
             not available in the cluster",
            claims.join(", ")
        ),
        PodRejection::ClaimMissing(name) | PodRejection::ClaimUnmade(name) => {
            format!(
                "failed to get resource claim {namespace}/{name}: could not find ResourceClaim \"{namespace}/{name}\""
            )
        }
        PodRejection::ClaimFull(name) => format!(
            "resource claim {namespace}/{name} has reached its maximum number of consumers ({})",
            crate::dra::CONSUMERS_MAX
        ),
        PodRejection::ClaimQueueLabel(name, None) => format!(
            "pod {pod} cannot be scheduled: DRA claim {name} is a shared GPU claim but does not have a queue label \
             (kai.scheduler/queue)"
        ),
        PodRejection::ClaimQueueLabel(name, Some(label)) => format!(
            "pod {pod} cannot be scheduled: DRA claim {name} is a shared GPU claim with wrong queue label (expected \
             queue: {queue}, claim queue label: {label})"
        ),
        PodRejection::DeviceClassMissing { class, claim, request } => {
            format!("device class {class} does not exist for claim {namespace}/{claim} request {request}")
        }
        PodRejection::Plugin(text) => text.clone(),
    }
}

/// The request of a pod, and the resource that no node of its pool has enough of.
fn pool_too_small(pod: &Key, gap: &PoolGap) -> String {
    let (name, measure) = match gap.resource.as_str() {
        input::GPU => ("GPU", ""),
        input::CPU => ("CPU", " cores"),
        input::MEMORY => ("memory", " GB"),
        other if is_storage(other) => (other, " GB"),
        other => (other, ""),
    };
    // Amounts are reported only for GPU, CPU, memory and storage.
    let has_amount =
        matches!(gap.resource.as_str(), input::GPU | input::CPU | input::MEMORY) || is_storage(name);
    let requested = request(gap);
    if has_amount && gap.largest > 0 {
        let most = number(gap.largest, unit_of(&gap.resource));
        format!(
            "The pod {pod} requires {requested}. Max {name} resources available in a single node in the {} node-pool is \
             topped at {most}{measure}",
            gap.pool
        )
    } else {
        format!(
            "The pod {pod} requires {requested}. No node in the {} node-pool has {name} resources",
            gap.pool
        )
    }
}

fn request(gap: &PoolGap) -> String {
    let amount = |name: &str| gap.request.iter().find(|(n, _)| n == name).map_or(0, |(_, amount)| *amount);
    let mut parts = vec![format!(
        "GPU: {}, CPU: {} (cores), memory: {} (GB)",
        number(gap.gpus, unit_of(input::GPU)),
        number(amount(input::CPU), unit_of(input::CPU)),
        number(amount(input::MEMORY), unit_of(input::MEMORY))
    )];
    let named = |name: &str| matches!(name, input::CPU | input::MEMORY | input::GPU);
    let (mig, others): (Vec<_>, Vec<_>) =
        gap.request.iter().filter(|(name, _)| !named(name)).partition(|(name, _)| is_mig(name));
    for (prefix, list) in [("", others), ("mig ", mig)] {
        for (name, amount) in list {
            let measure = if is_storage(name) { " (GB)" } else { "" };
            parts.push(format!("{prefix}{name}: {}{measure}", number(*amount, unit_of(name))));
        }
    }
    parts.join(", ")
}

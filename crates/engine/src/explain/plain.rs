//! A verdict as a plain sentence with its numbers, and the next step where there is a simple one.

use super::amount::{number, unit, unit_of};
use crate::cluster::group::DEFAULT_POD_SET;
use crate::input::{self, NodeCondition};
use crate::verdict::{
    CapacityRule, ClaimRejection, GpuKindMismatch, Measured, NodeFit, NodeRejection, PodRejection,
    QueueExcess, QueueResource, TopologyReason, TopologyRejection, Verdict, VolumeRejection,
};
use kai_units::Timestamp;
use std::fmt;

/// The next step where room is lacking.
pub(super) const MORE_ROOM: &str = "wait for pods to finish, or add a node";

/// A sentence, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// What stands in the way.
    pub text: String,
    /// What would help, where something simple would.
    pub hint: Option<String>,
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; hint: {hint}"))
    }
}

/// A verdict for people; `queue` is the queue of the group.
pub fn plain(verdict: &Verdict, queue: &str) -> Sentence {
    let (text, hint) = match verdict {
        Verdict::Placed => ("every pod has a place".to_owned(), None),
        Verdict::NotAttempted => (
            "no action of this cycle looked at it".to_owned(),
            Some("wait for the next cycle, or check which actions are configured".to_owned()),
        ),
        Verdict::QueueMissing => (
            format!("queue `{queue}` does not exist, or one of its parents does not"),
            Some("create the queue, or correct its name in the label `kai.scheduler/queue`".to_owned()),
        ),
        Verdict::QueueNotLeaf => (
            format!("queue `{queue}` has child queues, and only leaf queues run groups"),
            Some("name one of its child queues".to_owned()),
        ),
        Verdict::InvalidGroup(why) => (format!("the group is malformed: {why}"), None),
        Verdict::NotReady { sub_group, ready, needed } => (
            format!("{ready} of {needed} needed pods are there and not held back{}", in_sub_group(sub_group)),
            Some(format!(
                "create or release the missing {}, or lower the minimum",
                needed.saturating_sub(*ready)
            )),
        ),
        Verdict::OverLimit(excess) => (beyond(excess, "limit"), Some(limit_hint(excess))),
        Verdict::NonPreemptibleOverQuota(excess) => (
            format!("{} for pods that cannot be preempted", beyond(excess, "quota")),
            Some(format!("use a preemptible priority class, or raise the quota of `{}`", excess.queue)),
        ),
        Verdict::BeyondQueueDepth { depth } => (
            format!("{depth} groups of queue `{queue}` come first, and a cycle looks at no more"),
            Some("wait for them, or raise the queue depth".to_owned()),
        ),
        Verdict::GangNotSatisfied { sub_group, found, needed, fit } => (
            format!(
                "{found} of {needed} needed pods found a node{}; {}",
                in_sub_group(sub_group),
                no_node(fit)
            ),
            fit_hint(fit),
        ),
        Verdict::NoNode(fit) => (no_node(fit), fit_hint(fit)),
        Verdict::Topology(miss) => (topology(miss), Some(topology_hint(&miss.reason).to_owned())),
        Verdict::PodUnschedulable { pod, reason, .. } => (
            format!("pod `{pod}` cannot be placed as it is: {}", pod_miss(reason)),
            pod_hint(reason).map(str::to_owned),
        ),
        Verdict::PreemptionDelay { until, .. } => {
            (format!("it may not cause evictions before {}", Timestamp(*until)), None)
        }
        Verdict::NoVictims(miss) => return super::evictions::no_victims(miss, queue),
        Verdict::WaitingForVictims { waiting } => {
            (format!("{} for room that is being freed", pods_wait(*waiting)), None)
        }
        Verdict::InBackoff { why, failures, until } => {
            (format!("{why} ({failures} times in a row); it is left out until {}", Timestamp(*until)), None)
        }
        Verdict::Quarantined(why) => (
            format!("planning it failed inside the scheduler, so it is set aside: {why}"),
            Some("please report this".to_owned()),
        ),
    };
    Sentence { text, hint }
}

fn pods_wait(count: u32) -> String {
    if count == 1 { "1 pod waits".to_owned() } else { format!("{count} pods wait") }
}

fn in_sub_group(name: &str) -> String {
    // A group without sub-groups has one all the same; its users never gave it a name.
    if name.is_empty() || name == DEFAULT_POD_SET {
        return String::new();
    }
    format!(" in sub-group `{name}`")
}

/// An amount with its measure: `4 GPUs`, `1 GPU`, `0.5 GPUs`, `16 GB of memory`.
pub(super) fn amount(resource: QueueResource, value: i64) -> String {
    let text = number(value, unit(resource));
    match resource {
        QueueResource::Cpu if text == "1" => "1 CPU core".to_owned(),
        QueueResource::Cpu => format!("{text} CPU cores"),
        QueueResource::Memory => format!("{text} GB of memory"),
        QueueResource::Gpu if text == "1" => "1 GPU".to_owned(),
        QueueResource::Gpu => format!("{text} GPUs"),
    }
}

/// A bound, and how far a queue would go.
pub(super) fn beyond(excess: &QueueExcess, bound: &str) -> String {
    let after = number(excess.used + excess.requested, unit(excess.resource));
    format!(
        "queue `{}` would go to {after} of its {bound} of {}",
        excess.queue,
        amount(excess.resource, excess.bound)
    )
}

fn limit_hint(excess: &QueueExcess) -> String {
    if excess.requested > excess.bound {
        return format!("it can never fit: ask for less, or raise the limit of `{}`", excess.queue);
    }
    let over = amount(excess.resource, excess.used + excess.requested - excess.bound);
    format!("raise the limit of `{}`, or wait for {over} to be freed", excess.queue)
}

fn no_node(fit: &NodeFit) -> String {
    if fit.nodes == 0 {
        return format!("there is no node that pod `{}` could be tried on", fit.pod);
    }
    let counted = |(miss, nodes): &(NodeRejection, u32)| format!("{nodes} × {}", node_miss(miss));
    let reasons: Vec<String> = fit.reasons.iter().map(counted).collect();
    if fit.nodes == 1 {
        return format!("the only node does not take pod `{}`: {}", fit.pod, reasons.join(", "));
    }
    format!("none of {} nodes takes pod `{}`: {}", fit.nodes, fit.pod, reasons.join(", "))
}

/// What would help against the reason of the most nodes that something simple helps against.
fn fit_hint(fit: &NodeFit) -> Option<String> {
    let mut reasons: Vec<&(NodeRejection, u32)> = fit.reasons.iter().collect();
    reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    reasons.into_iter().find_map(|(miss, _)| miss_hint(miss))
}

fn miss_hint(miss: &NodeRejection) -> Option<String> {
    if let NodeRejection::Taint(key, _) = miss {
        return Some(format!("tolerate the taint `{key}`, or remove it from a node"));
    }
    if let NodeRejection::OverCapacity(excess, _) = miss {
        return Some(format!("raise the bound of queue `{}`", excess.queue));
    }
    if let NodeRejection::Resource(_) | NodeRejection::Mig(_) = miss {
        return Some(MORE_ROOM.to_owned());
    }
    let help = [
        (NodeRejection::Gpus, MORE_ROOM),
        (NodeRejection::GpuMemory, "ask for less memory of each GPU, or add a node with larger GPUs"),
        (NodeRejection::GpuMemoryFree, MORE_ROOM),
        (NodeRejection::Cpu, MORE_ROOM),
        (NodeRejection::Memory, MORE_ROOM),
        (NodeRejection::PodSlots, MORE_ROOM),
        (NodeRejection::NodeAffinity, "label a node as the pod asks for, or correct its node selector"),
        (NodeRejection::Cordoned, "uncordon a node"),
    ];
    help.into_iter().find(|(of, _)| of == miss).map(|(_, hint)| hint.to_owned())
}

/// Why one node does not take a pod.
fn node_miss(miss: &NodeRejection) -> String {
    let words = match miss {
        NodeRejection::Gpus => "not enough GPUs",
        NodeRejection::GpuMemory => "GPUs with too little memory",
        NodeRejection::GpuMemoryFree => "not enough GPU memory left",
        NodeRejection::Cpu => "not enough CPU",
        NodeRejection::Memory => "not enough memory",
        NodeRejection::Resource(name) | NodeRejection::Mig(name) => return format!("not enough `{name}`"),
        NodeRejection::Overhead(miss, _) => {
            return format!("{} (it would fit without its overhead)", node_miss(miss));
        }
        NodeRejection::PodSlots => "no pod slot",
        NodeRejection::ReservationSlot => "no pod slot for the pod that reserves its GPU",
        NodeRejection::Cordoned => "cordoned",
        NodeRejection::Condition(condition) => node_condition(*condition),
        NodeRejection::Taint(key, value) if value.is_empty() => return format!("taint `{key}`"),
        NodeRejection::Taint(key, value) => return format!("taint `{key}={value}`"),
        NodeRejection::NodeAffinity => "node selector or affinity does not match",
        NodeRejection::Ports => "host port taken",
        NodeRejection::PodAffinity => "pod affinity does not match",
        NodeRejection::PodAntiAffinity => "anti-affinity to a pod that is there",
        NodeRejection::ExistingAntiAffinity => "anti-affinity of a pod that is there",
        NodeRejection::Spread => "topology spread",
        NodeRejection::Volume(volume) => volume_miss(*volume),
        NodeRejection::GpuKind(kind) => gpu_kind(*kind),
        NodeRejection::Role => "no worker role for such pods",
        NodeRejection::OverCapacity(excess, CapacityRule::Limit) => return beyond(excess, "limit"),
        NodeRejection::OverCapacity(excess, CapacityRule::NonPreemptibleQuota) => {
            return format!("{} for pods that cannot be preempted", beyond(excess, "quota"));
        }
        NodeRejection::Claims(ClaimRejection::ElsewhereAllocated) => {
            "its device claim is allocated elsewhere"
        }
        NodeRejection::Claims(ClaimRejection::NoDevices) => "no free devices for its claims",
        NodeRejection::Numa => "NUMA zones cannot be aligned",
        NodeRejection::OutsideDomain => "outside the topology domain",
        NodeRejection::Plugin(why) => return why.clone(),
    };
    words.to_owned()
}

fn node_condition(condition: NodeCondition) -> &'static str {
    match condition {
        NodeCondition::NotReady => "not ready",
        NodeCondition::MemoryPressure => "memory pressure",
        NodeCondition::DiskPressure => "disk pressure",
        NodeCondition::PidPressure => "process id pressure",
        NodeCondition::NetworkUnavailable => "network unavailable",
    }
}

fn volume_miss(miss: VolumeRejection) -> &'static str {
    match miss {
        VolumeRejection::NodeConflict => "a volume cannot be used from there",
        VolumeRejection::Zone => "a volume is in another zone",
        VolumeRejection::Unbound => "no volume can be found or made",
        VolumeRejection::Capacity => "not enough free storage",
        VolumeRejection::AttachLimit => "too many volumes attached",
    }
}

fn gpu_kind(miss: GpuKindMismatch) -> &'static str {
    match miss {
        GpuKindMismatch::LegacyMig => "MIG requests by annotation are not placed",
        GpuKindMismatch::NodeHasLegacyMig => "runs pods with MIG requests by annotation",
        GpuKindMismatch::NoMig => "no MIG",
        GpuKindMismatch::MigSingle => "MIG strategy `single` takes whole devices only",
        GpuKindMismatch::MigMixed => "MIG strategy `mixed` takes MIG requests only",
        GpuKindMismatch::SharedOnDra => "GPUs of a DRA driver cannot be shared",
        GpuKindMismatch::MemoryUnknown => "its GPU memory is not known",
    }
}

/// Why a pod cannot be placed as it is.
pub(super) fn pod_miss(miss: &PodRejection) -> String {
    match miss {
        PodRejection::UnknownSubGroup(name) => format!("its sub-group `{name}` does not exist"),
        PodRejection::ConfigMap(name) => format!("config map `{name}` is missing"),
        PodRejection::VolumeClaim(name) => format!("volume claim `{name}` is missing, lost or being deleted"),
        PodRejection::UnboundImmediate(name) => format!("volume claim `{name}` must be bound first"),
        PodRejection::PoolTooSmall(gap) => {
            let amount = |value| match gap.resource.as_str() {
                input::CPU => amount(QueueResource::Cpu, value),
                input::MEMORY => amount(QueueResource::Memory, value),
                input::GPU => amount(QueueResource::Gpu, value),
                other => format!("{} of `{other}`", number(value, unit_of(other))),
            };
            format!(
                "it asks for {}, and the largest node of pool `{}` has {}",
                amount(gap.wanted),
                gap.pool,
                amount(gap.largest)
            )
        }
        PodRejection::ClaimsUnavailable => "the cluster does not serve device claims".to_owned(),
        PodRejection::ClaimMissing(name) => format!("device claim `{name}` is missing"),
        PodRejection::ClaimFull(name) => format!("device claim `{name}` has as many users as it may have"),
        PodRejection::ClaimQueueLabel(name, None) => {
            format!("shared device claim `{name}` lacks the label of its queue")
        }
        PodRejection::ClaimQueueLabel(name, Some(label)) => {
            format!("shared device claim `{name}` has the label of another queue, `{label}`")
        }
        PodRejection::DeviceClassMissing(name) => format!("device class `{name}` is missing"),
        PodRejection::Plugin(why) => why.clone(),
    }
}

/// What would help such a pod.
pub(super) fn pod_hint(miss: &PodRejection) -> Option<&'static str> {
    match miss {
        PodRejection::UnknownSubGroup(_) => Some("correct the pod's label, or add the sub-group"),
        PodRejection::ConfigMap(_) => Some("create the config map"),
        PodRejection::VolumeClaim(_) => Some("create the volume claim"),
        PodRejection::PoolTooSmall(_) => Some("ask for less, or add a larger node"),
        PodRejection::ClaimMissing(_) => Some("create the device claim"),
        PodRejection::ClaimQueueLabel(..) => Some("label the claim with the group's queue"),
        PodRejection::DeviceClassMissing(_) => Some("create the device class, or correct its name"),
        PodRejection::UnboundImmediate(_)
        | PodRejection::ClaimsUnavailable
        | PodRejection::ClaimFull(_)
        | PodRejection::Plugin(_) => None,
    }
}

fn topology(miss: &TopologyRejection) -> String {
    let of = in_sub_group(&miss.sub_group);
    let TopologyRejection { topology, level, .. } = miss;
    match &miss.reason {
        TopologyReason::Unknown => format!("topology `{topology}` does not exist{of}"),
        TopologyReason::BadLevel => format!("topology `{topology}` has no level `{level}`{of}"),
        TopologyReason::TooSmall { measured: Measured::Whole(domain), wanted, .. } if domain.is_empty() => {
            format!("all nodes of topology `{topology}` together do not hold {wanted} pods{of}")
        }
        TopologyReason::TooSmall { measured: Measured::Whole(domain), wanted, .. } => {
            format!("`{domain}` of topology `{topology}` does not hold {wanted} pods{of}")
        }
        TopologyReason::TooSmall { domain, pods, wanted, measured: Measured::Each(_) } => {
            let held = pods.map_or_else(String::new, |pods| format!(", which holds {pods}"));
            format!(
                "no `{level}` of topology `{topology}` holds {wanted} pods{of}; the best is `{domain}`{held}"
            )
        }
    }
}

fn topology_hint(reason: &TopologyReason) -> &'static str {
    match reason {
        TopologyReason::Unknown => "create the topology, or correct its name",
        TopologyReason::BadLevel => "name a level of the topology",
        TopologyReason::TooSmall { measured: Measured::Whole(_), .. } => {
            "wait for pods to finish, or ask for fewer pods"
        }
        TopologyReason::TooSmall { measured: Measured::Each(_), .. } => {
            "ask for a wider level, or for fewer pods"
        }
    }
}

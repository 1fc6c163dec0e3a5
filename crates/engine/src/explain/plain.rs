//! Renders a verdict as a sentence with its numbers, and a hint where there is a simple remedy.

use super::amount::{number, unit, unit_of};
use crate::cluster::group::DEFAULT_POD_SET;
use crate::input::{self, NodeCondition};
use crate::verdict::{
    CapacityRule, ClaimRejection, GpuKindMismatch, Measured, NodeFit, NodeRejection, PodRejection,
    QueueExcess, QueueResource, TopologyReason, TopologyRejection, Verdict, VolumeClaimProblem,
    VolumeRejection,
};
use kai_units::Timestamp;
use std::fmt;

/// The hint where capacity is insufficient.
pub(super) const MORE_CAPACITY: &str = "wait for pods to finish, or add a node";

/// A message with an optional hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The message.
    pub text: String,
    /// A remedy, where there is a simple one.
    pub hint: Option<String>,
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; hint: {hint}"))
    }
}

/// The message of a verdict; `queue` is the queue of the group.
pub fn plain(verdict: &Verdict, queue: &str) -> Sentence {
    let (text, hint) = match verdict {
        Verdict::Placed => ("all pods are placed".to_owned(), None),
        Verdict::NotAttempted => (
            "no action of this cycle attempted the group".to_owned(),
            Some("wait for the next cycle, or check which actions are configured".to_owned()),
        ),
        Verdict::QueueMissing => (
            format!("queue `{queue}` or one of its parents does not exist"),
            Some("create the queue, or correct its name in the label `kai.scheduler/queue`".to_owned()),
        ),
        Verdict::QueueNotLeaf => (
            format!("queue `{queue}` has child queues; only leaf queues run pod groups"),
            Some("use one of its child queues".to_owned()),
        ),
        Verdict::InvalidGroup(why) => (format!("invalid pod group: {why}"), None),
        Verdict::NotReady { sub_group, ready, needed } => (
            format!("{ready} of {needed} required pods exist and are not gated{}", in_sub_group(sub_group)),
            Some(format!("create or ungate {} more, or lower the minimum", needed.saturating_sub(*ready))),
        ),
        Verdict::OverLimit(excess) => (beyond(excess, "limit"), Some(limit_hint(excess))),
        Verdict::NonPreemptibleOverQuota(excess) => (
            format!("{} for non-preemptible pods", beyond(excess, "quota")),
            Some(format!("use a preemptible priority class, or raise the quota of `{}`", excess.queue)),
        ),
        Verdict::BeyondQueueDepth { depth } => (
            format!("{depth} groups of queue `{queue}` come first, and the queue depth is {depth}"),
            Some("wait for them, or raise the queue depth".to_owned()),
        ),
        Verdict::GangNotSatisfied { sub_group, found, needed, fit } => (
            format!("{found} of {needed} required pods fit{}; {}", in_sub_group(sub_group), no_node(fit)),
            fit_hint(fit),
        ),
        Verdict::NoNode(fit) => (no_node(fit), fit_hint(fit)),
        Verdict::Topology(rejection) => {
            (topology(rejection), Some(topology_hint(&rejection.reason).to_owned()))
        }
        Verdict::PodUnschedulable { pod, reason, .. } => (
            format!("pod `{pod}` is unschedulable: {}", pod_rejection(reason)),
            pod_hint(reason).map(str::to_owned),
        ),
        Verdict::PreemptionDelay { until, .. } => {
            (format!("the preemption delay has not elapsed; no evictions before {}", Timestamp(*until)), None)
        }
        Verdict::NoVictims(failure) => return super::evictions::no_victims(failure, queue),
        Verdict::WaitingForVictims { waiting } => {
            (format!("{} for releasing pods to terminate", pods_wait(*waiting)), None)
        }
        Verdict::InBackoff { cause, failures, until } => {
            let (times, until) = (times(*failures), Timestamp(*until));
            (format!("in backoff until {until}, after decisions for it failed {times}: {cause}"), None)
        }
        Verdict::EvictionBackoff { cause, failures, until } => {
            let (times, until) = (times(*failures), Timestamp(*until));
            (
                format!(
                    "no evictions for it before {until}, after they were refused {times}: {cause}; it is placed when \
                     enough capacity is free"
                ),
                None,
            )
        }
        Verdict::TimeLimitReached { ended } => return time_limit_reached(Timestamp(*ended)),
        Verdict::Quarantined(why) => (
            format!("internal error while planning the group, which is skipped: {why}"),
            Some("report a bug".to_owned()),
        ),
    };
    Sentence { text, hint }
}

/// Whether the hint of a verdict says how to correct an object. Other hints say what may help, which only a plan can prove.
pub fn is_correction(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::QueueMissing
        | Verdict::QueueNotLeaf
        | Verdict::InvalidGroup(_)
        | Verdict::NotReady { .. }
        | Verdict::TimeLimitReached { .. }
        | Verdict::Quarantined(_) => true,
        Verdict::PodUnschedulable { reason, .. } => !matches!(reason, PodRejection::PoolTooSmall(_)),
        Verdict::Topology(rejection) => match &rejection.reason {
            TopologyReason::Unknown | TopologyReason::BadLevel => true,
            TopologyReason::TooSmall { measured, .. } => matches!(measured, Measured::Unlabelled(_)),
        },
        // A pod that makes evictions useless has a verdict of its own.
        Verdict::NoVictims(_)
        | Verdict::Placed
        | Verdict::NotAttempted
        | Verdict::OverLimit(_)
        | Verdict::NonPreemptibleOverQuota(_)
        | Verdict::BeyondQueueDepth { .. }
        | Verdict::GangNotSatisfied { .. }
        | Verdict::NoNode(_)
        | Verdict::PreemptionDelay { .. }
        | Verdict::EvictionBackoff { .. }
        | Verdict::WaitingForVictims { .. }
        | Verdict::InBackoff { .. } => false,
    }
}

fn time_limit_reached(ended: Timestamp) -> Sentence {
    Sentence {
        text: format!("it ended at {ended}, after its maximum run time, and is not started again"),
        hint: Some(
            "submit it again, with a longer limit if it needs one, or let it start once more by removing the \
             annotation `kai.scheduler/max-runtime-ended-timestamp` of its PodGroup"
                .to_owned(),
        ),
    }
}

fn times(failures: u32) -> String {
    if failures == 1 { "once".to_owned() } else { format!("{failures} times in a row") }
}

fn pods_wait(count: u32) -> String {
    if count == 1 { "1 pod is waiting".to_owned() } else { format!("{count} pods are waiting") }
}

fn in_sub_group(name: &str) -> String {
    // The default sub-group of a group without sub-groups has no user-visible name.
    if name.is_empty() || name == DEFAULT_POD_SET {
        return String::new();
    }
    format!(" in sub-group `{name}`")
}

/// An amount with its unit: `4 GPUs`, `1 GPU`, `0.5 GPUs`, `16 GB of memory`.
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

/// The usage of a queue with the request, and the bound that it would exceed.
pub(super) fn beyond(excess: &QueueExcess, bound: &str) -> String {
    let after = number(excess.used + excess.requested, unit(excess.resource));
    format!(
        "queue `{}` would use {after} of its {bound} of {}",
        excess.queue,
        amount(excess.resource, excess.bound)
    )
}

fn limit_hint(excess: &QueueExcess) -> String {
    if excess.bound == 0 {
        let resource = match excess.resource {
            QueueResource::Cpu => "cpu",
            QueueResource::Memory => "memory",
            QueueResource::Gpu => "gpu",
        };
        return format!(
            "set `spec.resources.{resource}.limit` of queue `{}`; -1 is unlimited, and an absent limit is 0",
            excess.queue
        );
    }
    if excess.requested > excess.bound {
        return format!("request less, or raise the limit of `{}`", excess.queue);
    }
    let over = amount(excess.resource, excess.used + excess.requested - excess.bound);
    format!("raise the limit of `{}`, or wait for {over} to be released", excess.queue)
}

fn no_node(fit: &NodeFit) -> String {
    if fit.nodes == 0 {
        return format!("no candidate nodes for pod `{}`", fit.pod);
    }
    let counted =
        |(rejection, nodes): &(NodeRejection, u32)| format!("{nodes} {}", node_rejection(rejection));
    let reasons: Vec<String> = fit.reasons.iter().map(counted).collect();
    format!("0/{} nodes are available for pod `{}`: {}", fit.nodes, fit.pod, reasons.join(", "))
}

/// The hint for the most frequent rejection that has one.
fn fit_hint(fit: &NodeFit) -> Option<String> {
    let mut reasons: Vec<&(NodeRejection, u32)> = fit.reasons.iter().collect();
    reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    reasons.into_iter().find_map(|(rejection, _)| rejection_hint(rejection))
}

fn rejection_hint(rejection: &NodeRejection) -> Option<String> {
    if let NodeRejection::Taint(key, _) = rejection {
        return Some(format!("tolerate the taint `{key}`, or remove it from a node"));
    }
    if let NodeRejection::OverCapacity(excess, _) = rejection {
        return Some(format!("raise the bound of queue `{}`", excess.queue));
    }
    if let NodeRejection::Resource(_) | NodeRejection::Mig(_) = rejection {
        return Some(MORE_CAPACITY.to_owned());
    }
    let help = [
        (NodeRejection::Gpus, MORE_CAPACITY),
        (NodeRejection::GpuMemory, "request less GPU memory, or add a node with larger GPUs"),
        (NodeRejection::GpuMemoryFree, MORE_CAPACITY),
        (NodeRejection::Cpu, MORE_CAPACITY),
        (NodeRejection::Memory, MORE_CAPACITY),
        (NodeRejection::PodSlots, MORE_CAPACITY),
        (NodeRejection::NodeAffinity, "label a node accordingly, or correct the node selector"),
        (NodeRejection::Cordoned, "uncordon a node"),
    ];
    help.into_iter().find(|(of, _)| of == rejection).map(|(_, hint)| hint.to_owned())
}

/// Why a node rejects a pod.
fn node_rejection(rejection: &NodeRejection) -> String {
    let text = match rejection {
        NodeRejection::Gpus => "insufficient GPUs",
        NodeRejection::GpuMemory => "insufficient memory per GPU",
        NodeRejection::GpuMemoryFree => "insufficient free GPU memory",
        NodeRejection::Cpu => "insufficient CPU",
        NodeRejection::Memory => "insufficient memory",
        NodeRejection::Resource(name) | NodeRejection::Mig(name) => return format!("insufficient `{name}`"),
        NodeRejection::Overhead(inner, _) => {
            return format!("{} (fits without the pod overhead)", node_rejection(inner));
        }
        NodeRejection::PodSlots => "too many pods",
        NodeRejection::ReservationSlot => "too many pods for the GPU reservation pod",
        NodeRejection::Cordoned => "cordoned",
        NodeRejection::Condition(condition) => node_condition(*condition),
        NodeRejection::Taint(key, value) if value.is_empty() => return format!("untolerated taint `{key}`"),
        NodeRejection::Taint(key, value) => return format!("untolerated taint `{key}={value}`"),
        NodeRejection::NodeAffinity => "node affinity or selector mismatch",
        NodeRejection::Ports => "host port conflict",
        NodeRejection::PodAffinity => "pod affinity mismatch",
        NodeRejection::PodAntiAffinity => "pod anti-affinity mismatch",
        NodeRejection::ExistingAntiAffinity => "existing pod anti-affinity mismatch",
        NodeRejection::Spread => "pod topology spread mismatch",
        NodeRejection::Volume(volume) => volume_rejection(*volume),
        NodeRejection::StorageCapacity(class) => {
            return format!("insufficient free storage of class `{class}`");
        }
        NodeRejection::StorageUnreachable(class) => return format!("no storage of class `{class}`"),
        NodeRejection::GpuKind(kind) => gpu_kind(*kind),
        NodeRejection::Role => "missing worker role",
        NodeRejection::OverCapacity(excess, CapacityRule::Limit) => return beyond(excess, "limit"),
        NodeRejection::OverCapacity(excess, CapacityRule::NonPreemptibleQuota) => {
            return format!("{} for non-preemptible pods", beyond(excess, "quota"));
        }
        NodeRejection::Claims(ClaimRejection::ElsewhereAllocated) => "device claim allocated on another node",
        NodeRejection::Claims(ClaimRejection::NoDevices) => "insufficient devices for the claims",
        NodeRejection::Numa => "no NUMA alignment",
        NodeRejection::OutsideDomain => "outside the topology domain",
        NodeRejection::Plugin(why) => return why.clone(),
    };
    text.to_owned()
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

fn volume_rejection(rejection: VolumeRejection) -> &'static str {
    match rejection {
        VolumeRejection::NodeConflict => "volume node affinity conflict",
        VolumeRejection::Zone => "volume in another zone",
        VolumeRejection::Unbound => "no matching or provisionable volume",
        VolumeRejection::Capacity => "insufficient free storage",
        VolumeRejection::AttachLimit => "volume attach limit exceeded",
    }
}

fn gpu_kind(mismatch: GpuKindMismatch) -> &'static str {
    match mismatch {
        GpuKindMismatch::LegacyMig => "MIG requests by annotation are not supported",
        GpuKindMismatch::NodeHasLegacyMig => "MIG pods by annotation on the node",
        GpuKindMismatch::NoMig => "MIG disabled",
        GpuKindMismatch::MigSingle => "MIG strategy `single` supports whole devices only",
        GpuKindMismatch::MigMixed => "MIG strategy `mixed` supports MIG requests only",
        GpuKindMismatch::SharedOnDra => "GPUs of a DRA driver cannot be shared",
        GpuKindMismatch::MemoryUnknown => "unknown GPU memory",
    }
}

/// Why a pod is unschedulable.
pub(super) fn pod_rejection(rejection: &PodRejection) -> String {
    match rejection {
        PodRejection::UnknownSubGroup(name) => format!("sub-group `{name}` does not exist"),
        PodRejection::ConfigMaps(names) if names.len() == 1 => {
            format!("config map `{}` is missing", names.concat())
        }
        PodRejection::ConfigMaps(names) => format!("config maps `{}` are missing", names.join("`, `")),
        PodRejection::VolumeClaim(name, VolumeClaimProblem::Missing) => {
            format!("volume claim `{name}` is missing")
        }
        PodRejection::VolumeClaim(name, VolumeClaimProblem::Lost(volume)) => {
            format!("volume claim `{name}` has lost its volume `{volume}`")
        }
        PodRejection::VolumeClaim(name, VolumeClaimProblem::Deleting) => {
            format!("volume claim `{name}` is being deleted")
        }
        PodRejection::UnboundImmediate(name) => format!("volume claim `{name}` must be bound first"),
        PodRejection::PoolTooSmall(gap) => {
            let amount = |value| match gap.resource.as_str() {
                input::CPU => amount(QueueResource::Cpu, value),
                input::MEMORY => amount(QueueResource::Memory, value),
                input::GPU => amount(QueueResource::Gpu, value),
                other => format!("{} of `{other}`", number(value, unit_of(other))),
            };
            format!(
                "it requests {}, and the largest node of pool `{}` has {}",
                amount(gap.wanted),
                gap.pool,
                amount(gap.largest)
            )
        }
        PodRejection::ClaimsUnavailable(claims) => format!(
            "it references resource claims ({}), and dynamic resource allocation is not available in the cluster",
            claims.join(", ")
        ),
        PodRejection::ClaimMissing(name) => format!("device claim `{name}` is missing"),
        PodRejection::ClaimUnmade(name) => {
            format!("device claim `{name}` has not been made from its template")
        }
        PodRejection::ClaimFull(name) => {
            format!("device claim `{name}` has reached its maximum number of consumers")
        }
        PodRejection::ClaimQueueLabel(name, None) => {
            format!("shared device claim `{name}` lacks the label of its queue")
        }
        PodRejection::ClaimQueueLabel(name, Some(label)) => {
            format!("shared device claim `{name}` has the label of another queue, `{label}`")
        }
        PodRejection::DeviceClassMissing { class, claim, .. } => {
            format!("device class `{class}` of claim `{claim}` is missing")
        }
        PodRejection::Plugin(why) => why.clone(),
    }
}

/// The hint for an unschedulable pod.
pub(super) fn pod_hint(rejection: &PodRejection) -> Option<&'static str> {
    match rejection {
        PodRejection::UnknownSubGroup(_) => Some("correct the pod's label, or add the sub-group"),
        PodRejection::ConfigMaps(_) => Some("create the config map"),
        PodRejection::VolumeClaim(..) => Some("create the volume claim"),
        PodRejection::PoolTooSmall(_) => Some("request less, or add a larger node"),
        PodRejection::ClaimsUnavailable(_) => {
            Some("use a cluster that serves `resource.k8s.io`, or remove the claims from the pod")
        }
        PodRejection::ClaimMissing(_) => Some("create the device claim"),
        PodRejection::ClaimUnmade(_) => {
            Some("create the ResourceClaimTemplate that the pod names in `spec.resourceClaims`")
        }
        PodRejection::ClaimQueueLabel(..) => Some("label the claim with the group's queue"),
        PodRejection::DeviceClassMissing { .. } => Some("create the device class, or correct its name"),
        PodRejection::UnboundImmediate(_) | PodRejection::ClaimFull(_) | PodRejection::Plugin(_) => None,
    }
}

fn topology(rejection: &TopologyRejection) -> String {
    let of = in_sub_group(&rejection.sub_group);
    let TopologyRejection { topology, level, .. } = rejection;
    match &rejection.reason {
        TopologyReason::Unknown => format!("topology `{topology}` does not exist{of}"),
        TopologyReason::BadLevel => format!("topology `{topology}` has no level `{level}`{of}"),
        TopologyReason::TooSmall { measured: Measured::Whole(domain), wanted, .. } if domain.is_empty() => {
            format!("all nodes of topology `{topology}` together do not fit {wanted} pods{of}")
        }
        TopologyReason::TooSmall { measured: Measured::Whole(domain), wanted, .. } => {
            format!("`{domain}` of topology `{topology}` does not fit {wanted} pods{of}")
        }
        TopologyReason::TooSmall { measured: Measured::Unlabelled(label), .. } if label.is_empty() => {
            format!("no node has the labels of all levels of topology `{topology}`{of}")
        }
        TopologyReason::TooSmall { measured: Measured::Unlabelled(label), .. } => {
            format!("no node has the label `{label}`, a level of topology `{topology}`{of}")
        }
        TopologyReason::TooSmall { domain, pods, wanted, measured: Measured::Each(_) } => {
            let held = pods.map_or_else(String::new, |pods| format!(", which fits {pods}"));
            format!(
                "no `{level}` of topology `{topology}` fits {wanted} pods{of}; the best is `{domain}`{held}"
            )
        }
    }
}

fn topology_hint(reason: &TopologyReason) -> &'static str {
    match reason {
        TopologyReason::Unknown => "create the topology, or correct its name",
        TopologyReason::BadLevel => "use a level of the topology",
        TopologyReason::TooSmall { measured: Measured::Whole(_), .. } => {
            "wait for pods to finish, or request fewer pods"
        }
        TopologyReason::TooSmall { measured: Measured::Unlabelled(_), .. } => {
            "label the nodes, or remove the level from the topology: a node needs the labels of all levels"
        }
        TopologyReason::TooSmall { measured: Measured::Each(_), .. } => {
            "require a wider level, or request fewer pods"
        }
    }
}

//! A verdict in words: what stands in the way, with its numbers, and what would help.

use super::amount;
use kai_engine::input::NodeCondition;
use kai_engine::verdict::{
    CapacityRule, ClaimMiss, GpuKindMiss, NodeFit, NodeMiss, PodMiss, PoolGap, QueueExcess, QueueResource,
    TopologyMiss, TopologyReason, Verdict, VolumeMiss,
};
use kai_units::Timestamp;

/// What stands in the way.
pub(super) fn text(verdict: &Verdict, queue: &str) -> String {
    match verdict {
        Verdict::Placed => "every pod has a place".to_owned(),
        Verdict::NotTried => "no action of this cycle looked at it".to_owned(),
        Verdict::QueueMissing => format!("queue `{queue}` does not exist"),
        Verdict::QueueNotLeaf => format!("queue `{queue}` has child queues, and only leaf queues run groups"),
        Verdict::Broken(why) => format!("the group is malformed: {why}"),
        Verdict::NotReady { sub_group, ready, needed } => {
            format!("{ready} of {needed} needed pods are ready{}", in_sub_group(sub_group))
        }
        Verdict::OverLimit(excess) => {
            format!(
                "queue `{}` would pass its {} limit: {}",
                excess.queue,
                amount::name(excess.resource),
                sum(excess)
            )
        }
        Verdict::NonPreemptibleOverQuota(excess) => format!(
            "queue `{}` would pass its {} quota with non-preemptible pods: {}",
            excess.queue,
            amount::name(excess.resource),
            sum(excess)
        ),
        Verdict::BeyondQueueDepth { depth } => {
            format!("{depth} groups of queue `{queue}` come first, and a cycle looks at no more")
        }
        Verdict::GangShort { sub_group, found, needed, fit } => {
            format!(
                "{found} of {needed} needed pods found a node{}; {}",
                in_sub_group(sub_group),
                node_fit(fit)
            )
        }
        Verdict::NoNode(fit) => node_fit(fit),
        Verdict::Topology(miss) => topology(miss),
        Verdict::PodImpossible { pod, reason, .. } => {
            format!("pod `{pod}` can never be placed: {}", pod_miss(reason))
        }
        Verdict::PreemptionDelay { until, .. } => {
            format!("it may not cause evictions before {}", Timestamp(*until))
        }
        Verdict::WaitingForVictims { waiting } => format!("{waiting} pods wait for room that is being freed"),
        Verdict::Quarantined(why) => format!("planning it failed, so it is set aside: {why}"),
    }
}

/// What would help, where something simple would.
pub(super) fn hint(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::QueueMissing => {
            Some("create the queue, or correct the label `kai.scheduler/queue`".to_owned())
        }
        Verdict::QueueNotLeaf => Some("name one of its child queues".to_owned()),
        Verdict::OverLimit(excess) if excess.requested > excess.bound => {
            Some(format!("it can never fit: ask for less, or raise the limit of `{}`", excess.queue))
        }
        Verdict::OverLimit(excess) => Some(format!(
            "wait for {} {} to be given back, or raise the limit of `{}`",
            amount::text(excess.resource, excess.used + excess.requested - excess.bound),
            amount::name(excess.resource),
            excess.queue
        )),
        Verdict::NonPreemptibleOverQuota(excess) => {
            Some(format!("use a preemptible priority class, or raise the quota of `{}`", excess.queue))
        }
        Verdict::GangShort { fit, .. } | Verdict::NoNode(fit) => fit_hint(fit),
        Verdict::Topology(miss) => match &miss.reason {
            TopologyReason::Unknown => Some("create the topology, or correct its name".to_owned()),
            TopologyReason::BadLevel => Some("name a level of the topology".to_owned()),
            TopologyReason::TooSmall { .. } => Some("ask for a wider level, or for fewer pods".to_owned()),
        },
        Verdict::Placed
        | Verdict::NotTried
        | Verdict::Broken(_)
        | Verdict::NotReady { .. }
        | Verdict::BeyondQueueDepth { .. }
        | Verdict::PodImpossible { .. }
        | Verdict::PreemptionDelay { .. }
        | Verdict::WaitingForVictims { .. }
        | Verdict::Quarantined(_) => None,
    }
}

fn in_sub_group(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" in sub-group `{name}`") }
}

/// `6 used + 4 requested > 8`.
fn sum(excess: &QueueExcess) -> String {
    let amount = |value| amount::text(excess.resource, value);
    format!(
        "{} used + {} requested > {}",
        amount(excess.used),
        amount(excess.requested),
        amount(excess.bound)
    )
}

fn node_fit(fit: &NodeFit) -> String {
    if fit.nodes == 0 {
        return format!("no node could be asked to take pod `{}`", fit.pod);
    }
    let reasons: Vec<String> =
        fit.reasons.iter().map(|(miss, count)| format!("{count} × {}", node_miss(miss))).collect();
    format!("no node of {} takes pod `{}`: {}", fit.nodes, fit.pod, reasons.join(", "))
}

/// A hint when one reason holds for all nodes.
fn fit_hint(fit: &NodeFit) -> Option<String> {
    let [(miss, _)] = fit.reasons.as_slice() else { return None };
    if *miss == NodeMiss::NodeAffinity {
        return Some("no node has the labels that the pod asks for".to_owned());
    }
    if *miss == NodeMiss::Cordoned {
        return Some("uncordon a node".to_owned());
    }
    if let NodeMiss::Taint(key, _) = miss {
        return Some(format!("tolerate the taint `{key}`, or remove it from a node"));
    }
    if let NodeMiss::OverCapacity(excess, _) = miss {
        return Some(format!("raise the bound of queue `{}`", excess.queue));
    }
    None
}

/// Why one node does not take a pod.
fn node_miss(miss: &NodeMiss) -> String {
    let words = match miss {
        NodeMiss::Gpus => "not enough GPUs",
        NodeMiss::GpuMemory => "not enough GPU memory",
        NodeMiss::Cpu => "not enough CPU",
        NodeMiss::Memory => "not enough memory",
        NodeMiss::Resource(name) | NodeMiss::Mig(name) => return format!("not enough `{name}`"),
        NodeMiss::Overhead(miss, _) => {
            return format!("{} (it would fit without its overhead)", node_miss(miss));
        }
        NodeMiss::PodSlots => "no pod slot",
        NodeMiss::Cordoned => "cordoned",
        NodeMiss::Condition(condition) => match condition {
            NodeCondition::NotReady => "not ready",
            NodeCondition::MemoryPressure => "memory pressure",
            NodeCondition::DiskPressure => "disk pressure",
            NodeCondition::PidPressure => "process id pressure",
            NodeCondition::NetworkUnavailable => "network unavailable",
        },
        NodeMiss::Taint(key, value) if value.is_empty() => return format!("taint `{key}`"),
        NodeMiss::Taint(key, value) => return format!("taint `{key}={value}`"),
        NodeMiss::NodeAffinity => "node selector or affinity does not match",
        NodeMiss::Ports => "host port taken",
        NodeMiss::PodAffinity => "pod affinity does not match",
        NodeMiss::PodAntiAffinity => "pod anti-affinity",
        NodeMiss::ExistingAntiAffinity => "anti-affinity of a pod that runs there",
        NodeMiss::Spread => "topology spread",
        NodeMiss::Volume(volume) => volume_miss(*volume),
        NodeMiss::GpuKind(kind) => gpu_kind(*kind),
        NodeMiss::Role => "no worker role for such pods",
        NodeMiss::OverCapacity(excess, rule) => {
            let rule = match rule {
                CapacityRule::Limit => "limit",
                CapacityRule::NonPreemptibleQuota => "quota for non-preemptible pods",
            };
            let (queue, resource) = (&excess.queue, amount::name(excess.resource));
            return format!("{resource} {rule} of queue `{queue}` ({})", sum(excess));
        }
        NodeMiss::Claims(ClaimMiss::ElsewhereAllocated) => "device claim is allocated elsewhere",
        NodeMiss::Claims(ClaimMiss::NoDevices) => "no free devices for the claims",
        NodeMiss::Numa => "NUMA zones cannot be aligned",
        NodeMiss::OutsideDomain => "outside the topology domain",
        NodeMiss::Plugin(why) => return why.clone(),
    };
    words.to_owned()
}

fn volume_miss(miss: VolumeMiss) -> &'static str {
    match miss {
        VolumeMiss::NodeConflict => "volume cannot be used from there",
        VolumeMiss::Zone => "volume is in another zone",
        VolumeMiss::Unbound => "no volume can be found or made",
        VolumeMiss::Capacity => "not enough free storage",
        VolumeMiss::AttachLimit => "too many volumes attached",
    }
}

fn gpu_kind(miss: GpuKindMiss) -> &'static str {
    match miss {
        GpuKindMiss::LegacyMig => "MIG requests by annotation are not placed",
        GpuKindMiss::NodeHasLegacyMig => "runs pods with MIG requests by annotation",
        GpuKindMiss::NoMig => "no MIG",
        GpuKindMiss::MigSingle => "MIG strategy `single` takes whole devices only",
        GpuKindMiss::MigMixed => "MIG strategy `mixed` takes MIG requests only",
        GpuKindMiss::SharedOnDra => "GPUs of a DRA driver cannot be shared",
        GpuKindMiss::MemoryUnknown => "GPU memory is not known",
    }
}

fn pod_miss(miss: &PodMiss) -> String {
    match miss {
        PodMiss::UnknownSubGroup(name) => format!("its sub-group `{name}` does not exist"),
        PodMiss::ConfigMap(name) => format!("config map `{name}` is missing"),
        PodMiss::VolumeClaim(name) => format!("volume claim `{name}` is missing, lost or being deleted"),
        PodMiss::UnboundImmediate(name) => format!("volume claim `{name}` must be bound first"),
        PodMiss::PoolTooSmall(gap) => {
            let PoolGap { resource, wanted, largest, .. } = &**gap;
            let amount = |value: &i64| amount_of(resource, *value);
            format!(
                "it asks for {} of `{resource}`, the largest node has {}",
                amount(wanted),
                amount(largest)
            )
        }
        PodMiss::ClaimsUnavailable => "the cluster does not serve device claims".to_owned(),
        PodMiss::ClaimMissing(name) => format!("device claim `{name}` is missing"),
        PodMiss::ClaimFull(name) => format!("device claim `{name}` has as many users as it may have"),
        PodMiss::ClaimQueueLabel(name, _) => {
            format!("shared device claim `{name}` lacks the label of its queue")
        }
        PodMiss::DeviceClassMissing(name) => format!("device class `{name}` is missing"),
        PodMiss::Plugin(why) => why.clone(),
    }
}

/// An amount of a resource by name; like CPU, what queues do not know is counted in thousandths.
fn amount_of(resource: &str, value: i64) -> String {
    match resource {
        kai_engine::input::GPU => amount::text(QueueResource::Gpu, value),
        kai_engine::input::MEMORY => amount::text(QueueResource::Memory, value),
        _ => amount::text(QueueResource::Cpu, value),
    }
}

fn topology(miss: &TopologyMiss) -> String {
    let of = in_sub_group(&miss.sub_group);
    match &miss.reason {
        TopologyReason::Unknown => format!("topology `{}` does not exist{of}", miss.topology),
        TopologyReason::BadLevel => format!("topology `{}` has no level `{}`{of}", miss.topology, miss.level),
        TopologyReason::TooSmall { domain, pods, wanted, .. } => {
            let held = pods.map_or_else(String::new, |pods| format!(", which holds {pods}"));
            format!(
                "no `{}` of topology `{}` holds {wanted} pods{of}; the best is `{domain}`{held}",
                miss.level, miss.topology
            )
        }
    }
}

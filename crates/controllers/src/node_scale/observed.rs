//! What the adjuster knows of the cluster: pending pods, scaling pods, pod groups, bind requests and device claims, each
//! reduced to the fields that [`plan`](super::plan) reads.

use crate::podgroup::claim;
use kai_api::pod_group::UnschedulableExplanation;
use kai_api::share::{Portion, share};
use kai_api::well_known::{annotation, label, resource};
use kai_api::{BindRequest, BindRequestStatus, Pod, PodGroup};
use kai_object as object;
use kai_runtime::Key;
use kai_units::{Quantity, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reasons of a pending group that no new node removes.
const BLOCKING: [&str; 3] = [
    UnschedulableExplanation::OVER_LIMIT,
    UnschedulableExplanation::NON_PREEMPTIBLE_OVER_QUOTA,
    UnschedulableExplanation::QUEUE_DOES_NOT_EXIST,
];

/// The objects that the adjuster watches.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Pods of the scheduler without a node.
    pub pods: BTreeMap<Key, PendingPod>,
    /// Pods that the adjuster has created.
    pub scaling: BTreeMap<Key, ScalingPod>,
    /// None where the role does not grant `list` on them.
    pub groups: Option<BTreeMap<Key, Group>>,
    /// The pods that are being bound, by BindRequest; none for a request that has failed. Empty where the role does not grant
    /// `list` on them.
    pub binding: BTreeMap<Key, Option<Key>>,
    /// GPU devices by claim.
    pub claims: BTreeMap<Key, u32>,
}

/// A pod without a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingPod {
    pub uid: String,
    pub created: Timestamp,
    /// The pod group: named by the pod, or implied.
    pub group: Option<Key>,
    /// Whether the pod names its group. One that is only implied may never be made: such a pod is scheduled alone.
    pub names_group: bool,
    pub state: PendingState,
    pub demand: Demand,
    /// Requests of the whole pod, in thousandths of a core and in bytes.
    pub cpu_milli: i64,
    pub memory: i64,
    /// Node selector, affinity and tolerations: pods that differ in them need not fit on one node.
    pub placement: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingState {
    /// The scheduler has reported that no node fits.
    Unschedulable,
    /// The scheduler has not reported on the pod.
    Unreported,
    /// It is not scheduled now: it has scheduling gates, is terminating, has ended, or waits for victims on a node.
    Inactive,
    /// The scheduler reported another reason.
    Other,
}

/// What a pod requests that autoscalers do not see.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Nothing: what it requests is in its containers.
    Visible,
    /// A part of each of some GPUs.
    Share { portion: Portion, devices: u32 },
    /// Devices by claims, named here; none where a claim of a template is not created yet.
    Claims(Option<Vec<Key>>),
    /// An invalid request.
    Unknown,
}

/// A pod that stands for pending ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalingPod {
    pub uid: String,
    /// The pod that it was created for, with its uid where it is recorded.
    pub source: Option<Key>,
    pub source_uid: Option<String>,
    pub gpus: u32,
    pub cpu_milli: i64,
    pub memory: i64,
    /// Succeeded or failed.
    pub is_terminal: bool,
    pub is_deleting: bool,
    /// Whether a scheduler, or the adjuster, has written its condition `PodScheduled`.
    pub has_condition: bool,
}

/// A pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub min_member: usize,
    /// Whether some of its pods have resources: it has reached its minimum before.
    pub is_allocated: bool,
    /// Why no new node would help: the limit or quota of its queue.
    pub blocked: Option<String>,
}

impl PendingPod {
    pub fn of(pod: &Pod) -> Self {
        let namespace = &*pod.metadata.namespace;
        let group = pod.group_name();
        let (cpu_milli, memory) = requests(pod);
        let spec = &pod.spec;
        let placement = serde_json::to_string(&(&spec.node_selector, &spec.affinity, &spec.tolerations));
        Self {
            uid: pod.metadata.uid.to_text(),
            created: pod.metadata.creation_timestamp.map(|stamp| stamp.0).unwrap_or_default(),
            group: group.map(|name| Key::new(namespace, name)),
            names_group: pod.named_group().is_some(),
            state: state(pod),
            demand: demand(pod),
            cpu_milli,
            memory,
            placement: placement.unwrap_or_default(),
        }
    }
}

impl ScalingPod {
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let (cpu_milli, memory) = requests(pod);
        let gpus = kai_api::request::request(pod).total.get(resource::NVIDIA_GPU).map_or(0, Quantity::units);
        Self {
            uid: meta.uid.to_text(),
            source: source(pod),
            source_uid: meta.annotation(annotation::SCALING_FOR_UID).map(str::to_owned),
            gpus: u32::try_from(gpus).unwrap_or(0),
            cpu_milli,
            memory,
            is_terminal: object::is_terminal_phase(&pod.status.phase),
            is_deleting: meta.deletion_timestamp.is_some(),
            has_condition: scheduled_reason(pod).is_some(),
        }
    }
}

impl Group {
    pub fn of(group: &PodGroup) -> Self {
        let spec = &group.spec;
        let status = group.status.as_ref();
        let conditions = status.map(|status| status.scheduling_conditions.as_slice()).unwrap_or_default();
        let blocking = conditions.iter().map(|condition| {
            let mut reasons = condition.reasons.iter().map(|reason| reason.reason.as_str());
            reasons.find(|reason| BLOCKING.contains(reason))
        });
        // A group that several node pools refuse is helped by a node in any of them.
        let blocked = blocking.collect::<Option<Vec<&str>>>().and_then(|all| all.first().copied());
        let resources = status.and_then(|status| status.resources_status.as_ref());
        let mut allocated = resources.into_iter().flat_map(|resources| resources.allocated.values());
        // Subgroups have their own minima, which the scheduler reports; one pod at least has to exist.
        let minimum = if spec.sub_groups.is_empty() { spec.min_member.unwrap_or(1) } else { 1 };
        Self {
            min_member: usize::try_from(minimum).unwrap_or(0),
            is_allocated: allocated.any(|amount| amount.0 != "0"),
            blocked: blocked.map(str::to_owned),
        }
    }
}

/// The pod of a BindRequest. One that has failed binds nothing any more: its pod may need a node again.
pub fn pod_being_bound(request: &BindRequest) -> Option<Key> {
    let spec = &request.spec;
    let status = request.status.clone().unwrap_or_default();
    let failures = status.failed_attempts.unwrap_or(0);
    let has_failed =
        status.phase == BindRequestStatus::FAILED && spec.backoff_limit.is_none_or(|limit| failures >= limit);
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    (!has_failed && request.metadata.deletion_timestamp.is_none())
        .then(|| Key::new(namespace, &*spec.pod_name))
}

/// The GPU devices that a claim requests.
pub fn claimed_devices(claim: &Value) -> u32 {
    let total: i64 = claim::devices(claim).iter().map(|(_, count)| *count).fold(0, i64::saturating_add);
    u32::try_from(total).unwrap_or(u32::MAX)
}

fn state(pod: &Pod) -> PendingState {
    let is_inactive = pod.metadata.deletion_timestamp.is_some()
        || object::is_terminal_phase(&pod.status.phase)
        || !pod.spec.scheduling_gates.is_empty()
        || !pod.status.nominated_node_name.is_empty();
    match scheduled_reason(pod) {
        _ if is_inactive => PendingState::Inactive,
        Some("Unschedulable") => PendingState::Unschedulable,
        Some(_) => PendingState::Other,
        None => PendingState::Unreported,
    }
}

/// The reason of the condition `PodScheduled`. One with the reason `Unschedulable` has the status `False`.
fn scheduled_reason(pod: &Pod) -> Option<&str> {
    let condition = pod.status.conditions.iter().find(|condition| condition.kind == "PodScheduled")?;
    Some(&condition.reason)
}

fn demand(pod: &Pod) -> Demand {
    let mut is_invalid = false;
    let found = share(pod, |_| is_invalid = true);
    if is_invalid {
        return Demand::Unknown;
    }
    if let Some(share) = found {
        return Demand::Share { portion: share.portion, devices: share.devices };
    }
    if pod.spec.resource_claims.is_empty() {
        return Demand::Visible;
    }
    let names: Vec<Key> = claim::names(pod).map(|name| Key::new(&*pod.metadata.namespace, name)).collect();
    Demand::Claims((names.len() == pod.spec.resource_claims.len()).then_some(names))
}

/// Requests of a pod: thousandths of a core, and bytes.
fn requests(pod: &Pod) -> (i64, i64) {
    let request = kai_api::request::request(pod);
    let amount = |name: &str| request.total.get(name).unwrap_or_default();
    (amount(resource::CPU).milli(), amount(resource::MEMORY).units())
}

/// The pod that a scaling pod stands for. KAI's have only the labels, whose values are limited in length.
fn source(pod: &Pod) -> Option<Key> {
    let meta = &pod.metadata;
    if let Some((namespace, name)) =
        meta.annotation(annotation::SCALING_FOR).and_then(|both| both.split_once('/'))
    {
        return Some(Key::new(namespace, name));
    }
    Some(Key::new(meta.label(label::SCALING_FOR_NAMESPACE)?, meta.label(label::SCALING_FOR_NAME)?))
}

//! Renders verdicts: KAI's condition and event messages with their reason codes, and plain sentences.
//!
//! [`reasons`], [`condition_message`], [`detailed`], [`pod_message`] and [`detailed_pod_message`] use the texts of KAI, which existing tools
//! parse. [`plain()`] uses texts of this project.

mod amount;
pub mod capacity;
mod eviction_event;
mod evictions;
mod fit;
mod group_event;
mod node_details;
mod plain;
#[cfg(test)]
mod tests;
mod topology;

pub use capacity::QueueDetails;
pub use eviction_event::eviction_message;
pub use evictions::{FailedActions, failed_actions, rule};
pub use group_event::{not_ready_message, stale_message};
pub use plain::{Sentence, is_correction, plain};

use crate::cluster::Cluster;
use crate::input::Key;
use crate::policy::Policy;
use crate::verdict::{
    CapacityRule, GangGap, GroupVerdict, NodeFit, PodRejection, QueueExcess, QueueNumbers, Verdict,
};
use kai_units::{Span, Timestamp, duration};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The message when nothing else is known about a pod.
pub const UNABLE_TO_SCHEDULE_POD: &str = "Unable to schedule pod";

/// Reason code of an unschedulable group (KAI: `UnschedulableExplanation.reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// A non-preemptible group would exceed a queue's quota.
    NonPreemptibleOverQuota,
    /// A group would exceed a queue's limit.
    OverLimit,
    /// The preemption delay has not elapsed.
    PreemptionDelayNotElapsed,
    /// The queue is missing.
    QueueDoesNotExist,
    /// Pods fit on no node.
    PodSchedulingErrors,
    /// A topology domain is too small.
    NotEnoughResources,
    /// Any other reason.
    Unschedulable,
}

impl ReasonCode {
    /// The code in status fields.
    pub fn text(self) -> &'static str {
        match self {
            Self::NonPreemptibleOverQuota => "NonPreemptibleOverQuota",
            Self::OverLimit => "OverLimit",
            Self::PreemptionDelayNotElapsed => "PreemptionDelayNotElapsed",
            Self::QueueDoesNotExist => "QueueDoesNotExist",
            Self::PodSchedulingErrors => "PodSchedulingErrors",
            Self::NotEnoughResources => "Not enough resources for the workload",
            Self::Unschedulable => "Unable to schedule podgroup",
        }
    }
}

/// One entry of a group's unschedulable condition.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The reason code.
    pub reason: ReasonCode,
    /// The message.
    pub message: String,
    /// The numbers of the queue, for queue bounds.
    pub detail: Option<QueueDetails>,
}

/// One reason with the inputs of all its texts.
struct FitError<'a> {
    reason: ReasonCode,
    messages: Vec<String>,
    detailed: String,
    numbers: Option<&'a QueueNumbers>,
}

impl FitError<'_> {
    fn new(reason: ReasonCode, message: String) -> Self {
        Self { reason, detailed: message.clone(), messages: vec![message], numbers: None }
    }
}

/// The reasons of a group, in the order of its verdicts.
pub fn reasons(group: &GroupVerdict) -> Vec<Explanation> {
    let explanation = |error: FitError<'_>| Explanation {
        reason: error.reason,
        message: error.messages.join(", "),
        detail: error.numbers.map(QueueDetails::of),
    };
    fit_errors(group).into_iter().map(explanation).collect()
}

/// The message of a group's condition: the reason, then each distinct message with its count.
pub fn condition_message(group: &GroupVerdict) -> String {
    let errors = fit_errors(group);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for message in errors.iter().flat_map(|error| &error.messages) {
        *counts.entry(message).or_default() += 1;
    }
    let line = |(message, count): (&str, u32)| {
        if count > 1 { format!("{count} {message}") } else { message.to_owned() }
    };
    let mut lines: Vec<String> = counts.into_iter().map(line).collect();
    lines.sort_unstable();
    let reason = headline(&errors).text();
    if lines.is_empty() { reason.to_owned() } else { format!("{reason}: {}.", lines.join(". \n")) }
}

/// The detailed message of a group: the reason, then one line per explanation.
pub fn detailed(group: &GroupVerdict) -> String {
    let errors = fit_errors(group);
    let mut lines: Vec<String> = errors.iter().map(|error| format!("\n{}.", error.detailed)).collect();
    lines.sort_unstable();
    format!("\n{}.{}", headline(&errors).text(), lines.concat())
}

/// The common reason code: that of a single error, else `Unschedulable`.
fn headline(errors: &[FitError<'_>]) -> ReasonCode {
    match errors {
        [only] => only.reason,
        _ => ReasonCode::Unschedulable,
    }
}

/// The message of a pending pod's condition: its own errors, else those of its group.
pub fn pod_message(group: &GroupVerdict, pod: &Key) -> String {
    let verdicts = || std::iter::once(&group.leading).chain(&group.further);
    for verdict in verdicts() {
        if let Verdict::PodUnschedulable { pod: of, reason, .. } = verdict
            && of == pod
        {
            return fit::unschedulable(pod, reason, &group.group, &group.queue);
        }
    }
    let own = |fit: &&NodeFit| fit.pod == *pod && fit.nodes > 0;
    let fits: Vec<&NodeFit> = verdicts().filter_map(node_fit).filter(own).collect();
    if !fits.is_empty() {
        return fit::no_node(fits.into_iter());
    }
    if fit_errors(group).is_empty() { UNABLE_TO_SCHEDULE_POD.to_owned() } else { condition_message(group) }
}

/// Longest message of a pod with a line per node; Kubernetes allows so much in a condition of its own types.
const DETAILS_MAX: usize = 32 * 1024;

/// The message of a pending pod's condition with `detailed-fit-errors`: a line for each node that rejects it.
pub fn detailed_pod_message(cluster: &Cluster, policy: &Policy, group: &GroupVerdict, pod: &Key) -> String {
    let verdicts = || std::iter::once(&group.leading).chain(&group.further);
    let is_own =
        |verdict: &Verdict| matches!(verdict, Verdict::PodUnschedulable { pod: of, .. } if of == pod);
    if verdicts().any(is_own) {
        return format!("\n{}.", pod_message(group, pod));
    }
    let fits_nowhere = verdicts().filter_map(node_fit).any(|fit| fit.pod == *pod && fit.nodes > 0);
    let details = match cluster.pod(pod) {
        Some(index) if fits_nowhere => node_details::node_details(cluster, policy, index),
        _ => Vec::new(),
    };
    if details.is_empty() {
        return pod_message(group, pod);
    }
    let mut text = String::new();
    for (at, (node, reasons)) in details.iter().enumerate() {
        let line = format!("\n<{node}>: {reasons}.");
        if text.len() + line.len() > DETAILS_MAX {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{} more nodes.", details.len() - at);
            break;
        }
        text += &line;
    }
    // KAI sorts the lines, and the sentence comes after those of the nodes.
    text + &format!("\n{}.", fit::NO_NODES)
}

/// A message with its node pool, for groups that are attempted in several pools.
pub fn in_node_pool(pool: &str, message: &str) -> String {
    format!("Node-Pool '{pool}': {message}")
}

fn node_fit(verdict: &Verdict) -> Option<&NodeFit> {
    match verdict {
        Verdict::GangNotSatisfied { fit, .. } | Verdict::NoNode(fit) => Some(fit),
        Verdict::Placed
        | Verdict::NotAttempted
        | Verdict::QueueMissing
        | Verdict::QueueNotLeaf
        | Verdict::InvalidGroup(_)
        | Verdict::NotReady { .. }
        | Verdict::OverLimit(_)
        | Verdict::NonPreemptibleOverQuota(_)
        | Verdict::BeyondQueueDepth { .. }
        | Verdict::Topology(_)
        | Verdict::PodUnschedulable { .. }
        | Verdict::PreemptionDelay { .. }
        | Verdict::EvictionBackoff { .. }
        | Verdict::NoVictims(_)
        | Verdict::WaitingForVictims { .. }
        | Verdict::InBackoff { .. }
        | Verdict::TimeLimitReached { .. }
        | Verdict::Quarantined(_) => None,
    }
}

fn fit_errors(group: &GroupVerdict) -> Vec<FitError<'_>> {
    std::iter::once(&group.leading)
        .chain(&group.further)
        .flat_map(|verdict| explain(group, verdict))
        .collect()
}

/// The errors of one verdict. Waiting for pods or for releasing capacity is no error.
fn explain<'a>(group: &'a GroupVerdict, verdict: &'a Verdict) -> Vec<FitError<'a>> {
    let pods = |message| vec![FitError::new(ReasonCode::PodSchedulingErrors, message)];
    match verdict {
        Verdict::Placed
        | Verdict::NotAttempted
        | Verdict::NotReady { .. }
        | Verdict::NoVictims(_)
        | Verdict::WaitingForVictims { .. }
        | Verdict::PodUnschedulable { reason: PodRejection::UnknownSubGroup(_), .. } => Vec::new(),
        Verdict::QueueMissing => {
            let message = format!("Queue '{}' does not exist", group.queue);
            vec![FitError::new(ReasonCode::QueueDoesNotExist, message)]
        }
        Verdict::QueueNotLeaf
        | Verdict::InvalidGroup(_)
        | Verdict::BeyondQueueDepth { .. }
        | Verdict::InBackoff { .. }
        | Verdict::TimeLimitReached { .. }
        | Verdict::EvictionBackoff { .. }
        | Verdict::Quarantined(_) => {
            vec![FitError::new(ReasonCode::Unschedulable, plain(verdict, &group.queue).text)]
        }
        Verdict::OverLimit(excess) => vec![over_capacity(excess, CapacityRule::Limit)],
        Verdict::NonPreemptibleOverQuota(excess) => {
            vec![over_capacity(excess, CapacityRule::NonPreemptibleQuota)]
        }
        Verdict::GangNotSatisfied { sub_group, found, needed, fit } => {
            let gang = GangGap { sub_group: sub_group.clone(), found: *found, needed: *needed };
            pods(gang_not_satisfied(&gang, &fit::no_node(std::iter::once(fit))))
        }
        Verdict::NoNode(fit) => pods(no_resources(&fit.pod, &fit::no_node(std::iter::once(fit)))),
        Verdict::Topology(rejection) => topology::explain(rejection, &group.group),
        Verdict::PodUnschedulable { pod, reason, gang } => {
            let why = fit::unschedulable(pod, reason, &group.group, &group.queue);
            pods(gang.as_ref().map_or_else(|| no_resources(pod, &why), |gang| gang_not_satisfied(gang, &why)))
        }
        Verdict::PreemptionDelay { delay, until } => {
            vec![FitError::new(ReasonCode::PreemptionDelayNotElapsed, delayed(*delay, *until))]
        }
    }
}

fn over_capacity(excess: &QueueExcess, rule: CapacityRule) -> FitError<'_> {
    let numbers = excess.numbers.as_deref();
    FitError { numbers, ..FitError::new(fit::over_capacity_code(rule), capacity::message(excess, rule)) }
}

fn no_resources(pod: &Key, why: &str) -> String {
    format!("Resources were not found for pod {pod} due to: {why}")
}

fn gang_not_satisfied(gang: &GangGap, why: &str) -> String {
    let GangGap { sub_group, found, needed } = gang;
    if sub_group.is_empty() {
        format!(
            "Resources were found for {found} pods while {needed} are required for gang scheduling. Additional pods \
             cannot be scheduled due to: {why}"
        )
    } else {
        format!(
            "Resources were found for {found} pods from all sub-groups while sub-group {sub_group} requires {needed} \
             pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to: {why}"
        )
    }
}

fn delayed(delay: i64, until: i64) -> String {
    let second = Span::from_secs(1).0;
    format!(
        "Workload is within its preemption delay window ({}) and may not trigger evictions before {}",
        duration::format_go(Span(delay)),
        Timestamp(until.div_euclid(second) * second)
    )
}

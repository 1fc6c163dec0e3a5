//! Why groups are pending: verdicts and failed evictions with their values, and as sentences.

use crate::amounts::{key, named, unit};
use crate::groups;
use crate::missing_queue;
use kai_cache::store::Store;
use kai_engine::explain::{FailedActions, Sentence, failed_actions, is_correction, plain};
use kai_engine::verdict::{EvictionFailureReason, GroupVerdict, QueueResource, ScenarioRejection, Verdict};
use kai_engine::{Cluster, Outcome};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Why a group is pending.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct VerdictView {
    pub group: String,
    pub queue: String,
    /// Number of pending pods.
    pub pods: u32,
    #[serde(flatten)]
    pub leading: ReasonView,
    pub further: Vec<ReasonView>,
    /// Why no eviction helped.
    pub no_victims: Vec<EvictionFailureView>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ReasonView {
    /// The verdict as an identifier.
    pub verdict: &'static str,
    /// The verdict as a sentence.
    pub why: String,
    pub hint: Option<String>,
}

/// Why actions evicted no victims for a group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EvictionFailureView {
    #[serde(rename = "by")]
    pub actions: Vec<&'static str>,
    /// The reason as an identifier.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub why: String,
    pub hint: Option<String>,
    /// The values that the reason is about.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

/// Something that prevents the placement of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// It was found in addition to the leading one.
    pub is_further: bool,
    pub sentence: Sentence,
    /// The hint says how to correct an object; others say what may help, which only a plan can prove.
    pub is_correction: bool,
}

/// The verdicts on all groups that are not completely placed.
pub fn pending(outcome: &Outcome, store: &Store, cluster: &Cluster) -> Vec<VerdictView> {
    let pending = outcome.verdicts.iter().filter(|verdict| verdict.leading != Verdict::Placed);
    let explained = pending.map(|verdict| {
        let mut view = view(verdict);
        let is_failure = matches!(verdict.leading, Verdict::NoVictims(_));
        let first = groups::explained(store, cluster, verdict).into_iter().next();
        if let Some(Obstacle { sentence, .. }) = first.filter(|_| !is_failure) {
            (view.leading.why, view.leading.hint) = (sentence.text, sentence.hint);
        }
        view
    });
    explained.collect()
}

/// A verdict with the hints that say how to correct an object. What else would help is found by planning.
pub fn view(verdict: &GroupVerdict) -> VerdictView {
    let has_hint = is_correction;
    let reason = |of: &Verdict| {
        let Sentence { text, hint } = plain(of, &verdict.queue);
        ReasonView { verdict: name(of), why: text, hint: hint.filter(|_| has_hint(of)) }
    };
    let failure = |failed: &FailedActions<'_>| {
        let failure = eviction_failure(failed);
        let of_verdict = |of: &&Verdict| matches!(of, Verdict::NoVictims(of) if of.reason == *failed.reason);
        let verdict = std::iter::once(&verdict.leading).chain(&verdict.further).find(of_verdict);
        EvictionFailureView { hint: failure.hint.filter(|_| verdict.is_some_and(has_hint)), ..failure }
    };
    let further = verdict.further.iter().filter(|further| !matches!(further, Verdict::NoVictims(_)));
    VerdictView {
        group: verdict.group.to_string(),
        queue: verdict.queue.clone(),
        pods: verdict.pending,
        leading: reason(&verdict.leading),
        further: further.map(reason).collect(),
        no_victims: failed_actions(verdict).iter().map(failure).collect(),
    }
}

fn eviction_failure(failed: &FailedActions<'_>) -> EvictionFailureView {
    let (name, details) = details(failed.reason);
    EvictionFailureView {
        actions: failed.causes.iter().map(|cause| cause.action()).collect(),
        reason: name,
        why: failed.sentence.text.clone(),
        hint: failed.sentence.hint.clone(),
        details,
    }
}

/// The leading reason, further ones, and why no eviction helped, without repetitions, with the hints that say how to correct
/// an object. With the objects, a missing queue is explained.
pub fn obstacles(verdict: &GroupVerdict, store: Option<&Store>) -> Vec<Obstacle> {
    let is_failure = |of: &Verdict| matches!(of, Verdict::NoVictims(_));
    let sentence = |of: &Verdict| {
        let store = store.filter(|_| *of == Verdict::QueueMissing);
        let explained = store.and_then(|store| missing_queue::explain(store, &verdict.queue));
        explained.unwrap_or_else(|| plain(of, &verdict.queue))
    };
    let obstacle = |of: &Verdict, is_further| {
        let (Sentence { text, hint }, is_correction) = (sentence(of), is_correction(of));
        let sentence = Sentence { text, hint: hint.filter(|_| is_correction) };
        Obstacle { is_further, sentence, is_correction }
    };
    let leading = Some(&verdict.leading).filter(|leading| !is_failure(leading));
    let further = verdict.further.iter().filter(|further| !is_failure(further));
    let failed = failed_actions(verdict).into_iter().filter(|failed| !is_reported(verdict, failed.reason));
    let all = leading.into_iter().map(|of| obstacle(of, false));
    let all = all.chain(further.map(|of| obstacle(of, true)));
    let all = all.chain(failed.map(|failed| Obstacle {
        is_further: false,
        sentence: Sentence { text: failed.sentence.text, hint: None },
        is_correction: false,
    }));
    let mut seen = BTreeSet::new();
    all.filter(|obstacle| seen.insert(obstacle.sentence.text.clone())).collect()
}

/// Whether the verdict already names what makes evictions useless: a pod that fits no node.
fn is_reported(verdict: &GroupVerdict, reason: &EvictionFailureReason) -> bool {
    let EvictionFailureReason::Unschedulable(misfit) = reason else { return false };
    let same = |of: &Verdict| matches!(of, Verdict::PodUnschedulable { reason, .. } if reason == misfit);
    same(&verdict.leading) || verdict.further.iter().any(same)
}

/// A failure reason as an identifier, and its values.
fn details(reason: &EvictionFailureReason) -> (&'static str, Map<String, Value>) {
    let (name, values) = match reason {
        EvictionFailureReason::BeyondFairShare { queue, resource: r, fair_share, used, requested } => (
            "beyond_fair_share",
            json!({
                "of_queue": queue, "resource": key(*r), "fair_share": unit(*r, *fair_share), "used": unit(*r, *used),
                "requested": unit(*r, *requested),
            }),
        ),
        EvictionFailureReason::BeyondQuota(excess) => {
            let r = excess.resource;
            (
                "beyond_quota",
                json!({
                    "of_queue": excess.queue, "resource": key(r), "quota": unit(r, excess.bound),
                    "used": unit(r, excess.used), "requested": unit(r, excess.requested),
                }),
            )
        }
        EvictionFailureReason::NoCandidates => ("no_candidates", json!({})),
        EvictionFailureReason::InsufficientEvictable { resource: r, requested, free, evictable, queues } => (
            "insufficient_evictable",
            json!({
                "resource": key(*r), "requested": unit(*r, *requested), "free": unit(*r, *free),
                "evictable": unit(*r, *evictable), "in_queues": queues,
            }),
        ),
        EvictionFailureReason::NodesTooSmall { pods, fitting, gpus } => (
            "nodes_too_small",
            json!({ "of_pods": pods, "fitting": fitting, "least_gpus": unit(QueueResource::Gpu, *gpus) }),
        ),
        EvictionFailureReason::InsufficientEvictableOther { resource, requested, free, evictable } => (
            "insufficient_evictable_other",
            json!({
                "resource": resource, "requested": named(resource, *requested), "free": named(resource, *free),
                "evictable": named(resource, *evictable),
            }),
        ),
        EvictionFailureReason::DomainTooSmall { level, domain, resource, requested, most } => (
            "domain_too_small",
            json!({
                "level": level, "domain": domain, "resource": resource, "requested": named(resource, *requested),
                "most": named(resource, *most),
            }),
        ),
        EvictionFailureReason::InsufficientFree { resource: r, requested, free } => (
            "insufficient_free",
            json!({ "resource": key(*r), "requested": unit(*r, *requested), "free": unit(*r, *free) }),
        ),
        EvictionFailureReason::EquivalentGroupFailed(group) => {
            ("equivalent_group_failed", json!({ "like": group.to_string() }))
        }
        EvictionFailureReason::RepeatedEviction(group) => {
            ("repeated_eviction", json!({ "group": group.to_string() }))
        }
        EvictionFailureReason::NoValidScenario { tried, all, refused } => (
            "no_valid_scenario",
            json!({ "tried": tried, "all": all, "refused": refused.as_ref().map(rejection) }),
        ),
        EvictionFailureReason::BudgetExhausted { tried, steps } => {
            ("budget_exhausted", json!({ "tried": tried, "steps": steps }))
        }
        EvictionFailureReason::Unschedulable(_) => ("unschedulable", json!({})),
    };
    (name, fields(values))
}

fn rejection(rejection: &ScenarioRejection) -> Value {
    match rejection {
        ScenarioRejection::Unfair => json!({ "rule": "unfair" }),
        ScenarioRejection::MinRuntime(group) => json!({ "rule": "min_runtime", "of": group.to_string() }),
        ScenarioRejection::NotMoved => json!({ "rule": "not_moved" }),
        ScenarioRejection::PlacedThisCycle => json!({ "rule": "placed_this_cycle" }),
        ScenarioRejection::TooManyMoved => json!({ "rule": "too_many_moved" }),
        ScenarioRejection::DisruptionBudget(budget) => {
            json!({ "rule": "disruption_budget", "of": budget.to_string() })
        }
        ScenarioRejection::Plugin(message) => json!({ "rule": "plugin", "of": message }),
    }
}

/// The fields of a JSON object.
pub(crate) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// A verdict as an identifier.
pub fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Placed => "placed",
        Verdict::NotAttempted => "not_attempted",
        Verdict::QueueMissing => "queue_missing",
        Verdict::QueueNotLeaf => "queue_not_leaf",
        Verdict::InvalidGroup(_) => "invalid_group",
        Verdict::NotReady { .. } => "not_ready",
        Verdict::OverLimit(_) => "over_limit",
        Verdict::NonPreemptibleOverQuota(_) => "non_preemptible_over_quota",
        Verdict::BeyondQueueDepth { .. } => "beyond_queue_depth",
        Verdict::GangNotSatisfied { .. } => "gang_not_satisfied",
        Verdict::NoNode(_) => "no_node",
        Verdict::Topology(_) => "topology",
        Verdict::PodUnschedulable { .. } => "pod_unschedulable",
        Verdict::PreemptionDelay { .. } => "preemption_delay",
        Verdict::EvictionBackoff { .. } => "eviction_backoff",
        Verdict::NoVictims(_) => "no_victims",
        Verdict::WaitingForVictims { .. } => "waiting_for_victims",
        Verdict::InBackoff { .. } => "in_backoff",
        Verdict::TimeLimitReached { .. } => "time_limit_reached",
        Verdict::Quarantined(_) => "quarantined",
    }
}

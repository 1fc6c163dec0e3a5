//! The evictions of a cycle, grouped by preemptor and action, then by victim group and rule.

use crate::amounts::{Amount, ByResource};
use kai_engine::Outcome;
use kai_engine::explain::rule;
use kai_engine::input::Key;
use kai_engine::outcome::{Decision, EvictionReason, QueueChange};
use kai_units::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Everything that one action evicted for one preemptor.
#[derive(Clone, Debug)]
pub struct ActionEvictions<'a> {
    /// `None` where the victim is a stale gang.
    pub preemptor: Option<&'a Key>,
    pub action: &'static str,
    /// In the order of the decisions.
    pub victims: Vec<Victims<'a>>,
}

/// Pods of one group that are evicted by the same rule.
#[derive(Clone, Debug)]
pub struct Victims<'a> {
    pub group: Option<&'a Key>,
    /// In the order of the decisions.
    pub pods: Vec<&'a Key>,
    pub why: &'a EvictionReason,
}

/// The side of an eviction that a queue is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRole {
    Reclaimer,
    Victim,
}

impl QueueRole {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reclaimer => "reclaimer",
            Self::Victim => "victim",
        }
    }
}

impl<'a> ActionEvictions<'a> {
    /// The queues of reclaimers and victims; each change once.
    pub fn queue_changes(&self) -> Vec<(&'a QueueChange, QueueRole)> {
        let mut changes: Vec<(&QueueChange, QueueRole)> = Vec::new();
        for (reclaimer, victim) in self.victims.iter().filter_map(|victims| queues(victims.why)) {
            for change in [(reclaimer, QueueRole::Reclaimer), (victim, QueueRole::Victim)] {
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
        changes
    }
}

/// The queues of the reclaimer and the victim, where the rule compares queues.
fn queues(why: &EvictionReason) -> Option<(&QueueChange, &QueueChange)> {
    match why {
        EvictionReason::AboveShare { reclaimer, victim }
        | EvictionReason::AboveQuota { reclaimer, victim } => Some((reclaimer, victim)),
        EvictionReason::Moved { .. }
        | EvictionReason::Priority { .. }
        | EvictionReason::Stale { .. }
        | EvictionReason::TimeLimit { .. }
        | EvictionReason::Custom { .. } => None,
    }
}

/// All evictions of a cycle, in the order of the first decision of each entry.
pub fn by_preemptor(outcome: &Outcome) -> Vec<ActionEvictions<'_>> {
    let mut all: Vec<ActionEvictions<'_>> = Vec::new();
    let mut known: BTreeMap<(Option<&Key>, &str), usize> = BTreeMap::new();
    // Indexed by entry and group: an entry may have thousands of victim groups.
    let mut of_group: BTreeMap<(usize, &Key), Vec<usize>> = BTreeMap::new();
    for decision in &outcome.decisions {
        let Decision::Evict { pod, group, preemptor, action, why, .. } = decision else { continue };
        let (group, preemptor) = (group.as_ref(), preemptor.as_ref());
        let entry = *known.entry((preemptor, action)).or_insert_with(|| {
            all.push(ActionEvictions { preemptor, action, victims: Vec::new() });
            all.len() - 1
        });
        let victims = &mut all[entry].victims;
        // Pods without a group are listed one by one.
        let siblings = group.map(|group| of_group.entry((entry, group)).or_default());
        let same =
            siblings.iter().flat_map(|at| at.iter()).find(|at| victims[**at].why == why.as_ref()).copied();
        if let Some(at) = same {
            victims[at].pods.push(pod);
            continue;
        }
        if let Some(siblings) = siblings {
            siblings.push(victims.len());
        }
        victims.push(Victims { group, pods: vec![pod], why });
    }
    all
}

/// [`ActionEvictions`] for JSON.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EvictionsView {
    #[serde(rename = "for")]
    pub preemptor: Option<String>,
    #[serde(rename = "by")]
    pub action: &'static str,
    pub queues: Vec<QueueChangeView>,
    pub victims: Vec<VictimsView>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueChangeView {
    pub queue: String,
    pub role: &'static str,
    pub resources: ByResource<ResourceChange>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ResourceChange {
    pub quota: Option<Amount>,
    pub fair_share: Amount,
    pub before: Amount,
    pub after: Amount,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct VictimsView {
    pub group: Option<String>,
    pub pods: Vec<String>,
    /// The rule as an identifier.
    pub rule: &'static str,
    /// The rule as a sentence.
    pub why: String,
    /// The values that the rule compared.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

pub fn view(outcome: &Outcome) -> Vec<EvictionsView> {
    let of_action = |evictions: &ActionEvictions<'_>| EvictionsView {
        preemptor: evictions.preemptor.map(ToString::to_string),
        action: evictions.action,
        queues: evictions.queue_changes().into_iter().map(queue_change).collect(),
        victims: evictions.victims.iter().map(victims).collect(),
    };
    by_preemptor(outcome).iter().map(of_action).collect()
}

fn queue_change((change, role): (&QueueChange, QueueRole)) -> QueueChangeView {
    let resources = ByResource::from_fn(|resource| {
        let amount = |value| Amount { resource, value };
        ResourceChange {
            quota: change.quota[resource].map(amount),
            fair_share: amount(change.fair_share[resource]),
            before: amount(change.before[resource]),
            after: amount(change.after[resource]),
        }
    });
    QueueChangeView { queue: change.queue.clone(), role: role.name(), resources }
}

fn victims(victims: &Victims<'_>) -> VictimsView {
    let (name, details) = match victims.why {
        EvictionReason::Moved { node } => ("moved", json!({ "moved_to": node })),
        EvictionReason::AboveShare { reclaimer, victim } => {
            ("above_share", json!({ "reclaimer": reclaimer.queue, "victim": victim.queue }))
        }
        EvictionReason::AboveQuota { reclaimer, victim } => {
            ("above_quota", json!({ "reclaimer": reclaimer.queue, "victim": victim.queue }))
        }
        EvictionReason::Priority { preemptor, victim } => {
            ("priority", json!({ "priority": preemptor, "victim_priority": victim }))
        }
        EvictionReason::Stale { since } => ("stale", json!({ "since": Timestamp(*since).to_string() })),
        EvictionReason::TimeLimit { ended } => {
            ("time_limit", json!({ "ended": Timestamp(*ended).to_string() }))
        }
        EvictionReason::Custom { message } => ("custom", json!({ "message": message })),
    };
    VictimsView {
        group: victims.group.map(ToString::to_string),
        pods: victims.pods.iter().map(ToString::to_string).collect(),
        rule: name,
        why: rule(victims.why),
        details: crate::verdicts::fields(details),
    }
}

//! Hints for a pending group, as sentences and for JSON.

use crate::amounts::{key, unit};
use kai_engine::explain::plain;
use kai_engine::verdict::QueueResource;
pub use kai_whatif::sentence;
use kai_whatif::{Bound, Change, Hint, Hints, Never};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// Changes with which a plan places a group, those that change least first.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct HintsView {
    /// Why waiting does not help.
    pub never: Option<String>,
    pub hints: Vec<HintView>,
    /// The search ended early.
    pub incomplete: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct HintView {
    /// The changes as a sentence.
    pub what: String,
    pub changes: Vec<Value>,
    /// The group starts when evicted or terminating pods have ended, or others were moved; not only those that it waits for.
    pub after_terminations: bool,
    pub evicts: Vec<AffectedGroup>,
    /// Groups that a plan without the changes would place, and a plan with them does not.
    pub displaces: Vec<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AffectedGroup {
    pub group: String,
    pub pods: u32,
}

impl HintsView {
    pub fn new(hints: &Hints) -> Self {
        Self {
            never: hints.never.as_ref().map(never),
            hints: hints.hints.iter().map(hint).collect(),
            incomplete: hints.is_incomplete,
        }
    }
}

fn never(never: &Never) -> String {
    match never {
        Never::TooLarge { resource, needed, total } => format!(
            "it can never fit: it needs {}, and the pool has {}",
            amount(*resource, *needed),
            amount(*resource, *total)
        ),
        Never::Alone(verdict) => {
            let reason = plain(&verdict.leading, &verdict.queue).text;
            format!("it would not run even without other pod groups: {reason}")
        }
    }
}

fn hint(hint: &Hint) -> HintView {
    let sentences: Vec<String> = hint.changes.iter().map(sentence).collect();
    let evicts =
        hint.evicted.iter().map(|(group, pods)| AffectedGroup { group: group.to_string(), pods: *pods });
    HintView {
        what: sentences.join(", and "),
        changes: hint.changes.iter().map(object).collect(),
        after_terminations: hint.is_pipelined
            && !hint.changes.iter().any(|of| matches!(of, Change::Finish { .. })),
        evicts: evicts.collect(),
        displaces: hint.displaced.iter().map(ToString::to_string).collect(),
    }
}

fn object(change: &Change) -> Value {
    match change {
        Change::QueueBound { queue, bound, resource, from, to } => {
            let value = |amount: &Option<i64>| amount.map(|amount| unit(*resource, amount));
            json!({
                "change": bound_name(*bound), "queue": queue, "resource": key(*resource), "from": value(from), "to": value(to),
            })
        }
        Change::MinMember { sub_group, from, to, .. } => {
            json!({"change": "min_member", "sub_group": sub_group, "from": from, "to": to})
        }
        Change::TopologyLevel { sub_group, from, to, .. } => {
            json!({"change": "topology_level", "sub_group": sub_group, "from": from, "to": to})
        }
        Change::PriorityClass { from, to, .. } => json!({"change": "priority_class", "from": from, "to": to}),
        Change::AddNodesLike { node, count } => json!({"change": "add_nodes", "like": node, "count": count}),
        Change::AddNodes { gpus, count } => json!({"change": "add_nodes", "gpus": gpus, "count": count}),
        Change::Finish { groups } => {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            json!({"change": "wait", "for": groups})
        }
        Change::Drain { node } => json!({"change": "drain", "node": node}),
        Change::Put(object) => {
            json!({"change": "apply", "kind": object.kind().name(), "name": object.key().to_string()})
        }
    }
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Quota => "quota",
        Bound::Limit => "limit",
    }
}

/// An amount without the name of its resource.
fn number(resource: QueueResource, amount: i64) -> String {
    match resource {
        QueueResource::Gpu | QueueResource::Cpu => unit(resource, amount).to_string(),
        QueueResource::Memory => format!("{} MB", amount / 1_000_000),
    }
}

fn amount(resource: QueueResource, amount: i64) -> String {
    let number = number(resource, amount);
    match resource {
        QueueResource::Gpu if number == "1" => "1 GPU".to_owned(),
        QueueResource::Gpu => format!("{number} GPUs"),
        QueueResource::Cpu => format!("{number} cores"),
        QueueResource::Memory => format!("{number} of memory"),
    }
}

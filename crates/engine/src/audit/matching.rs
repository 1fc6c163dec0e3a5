//! Matches selectors, tolerations and ports by their text.

use crate::input::{
    HostPort, LabelSelector, NodeTerm, Requirement, RequirementOp, SelectorOp, TaintEffect, Toleration,
    TolerationOp,
};

pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// Whether any of the terms matches; a term without requirements matches no node.
pub(super) fn any_term(terms: &[NodeTerm], name: &str, labels: Lookup<'_>) -> bool {
    let by_name = |key: &str| (key == "metadata.name").then_some(name);
    terms.iter().any(|term| {
        !(term.labels.is_empty() && term.names.is_empty())
            && term.labels.iter().all(|r| requirement(r, labels(&r.key)))
            && term.names.iter().all(|r| requirement(r, by_name("metadata.name")))
    })
}

fn requirement(requirement: &Requirement, value: Option<&str>) -> bool {
    let number = || value.and_then(|v| v.parse::<i64>().ok());
    match &requirement.op {
        RequirementOp::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
        RequirementOp::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
        RequirementOp::Exists => value.is_some(),
        RequirementOp::DoesNotExist => value.is_none(),
        RequirementOp::Gt(bound) => number().is_some_and(|n| n > *bound),
        RequirementOp::Lt(bound) => number().is_some_and(|n| n < *bound),
        RequirementOp::Never => false,
    }
}

/// Whether a selector matches pod labels.
pub(super) fn selects(selector: &LabelSelector, labels: &[(&str, &str)]) -> bool {
    let value = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    selector.requirements.iter().all(|(key, op)| match op {
        SelectorOp::In(values) => value(key).is_some_and(|v| values.iter().any(|w| w == v)),
        SelectorOp::NotIn(values) => value(key).is_none_or(|v| values.iter().all(|w| w != v)),
        SelectorOp::Exists => value(key).is_some(),
        SelectorOp::DoesNotExist => value(key).is_none(),
    })
}

/// Whether a toleration covers a taint.
pub(super) fn tolerates(tolerations: &[Toleration], key: &str, value: &str, effect: TaintEffect) -> bool {
    tolerations.iter().any(|t| {
        let same_key = t.key == key || (t.key.is_empty() && t.op == TolerationOp::Exists);
        let same_value = match &t.op {
            TolerationOp::Exists => true,
            TolerationOp::Equal(wanted) => wanted == value,
            TolerationOp::Gt(bound) => value.parse::<i64>().is_ok_and(|v| v > *bound),
            TolerationOp::Lt(bound) => value.parse::<i64>().is_ok_and(|v| v < *bound),
        };
        same_key && same_value && t.effect.is_none_or(|e| e == effect)
    })
}

/// Whether two host ports conflict.
pub(super) fn clash(a: &HostPort, b: &HostPort) -> bool {
    let everywhere = |port: &HostPort| port.ip.is_empty() || port.ip == "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || everywhere(a) || everywhere(b))
}

//! Translates label selectors, node selector terms, taints and tolerations.
//!
//! As in Kubernetes, a malformed requirement selects nothing; it is reported.

use crate::finding::Report;
use crate::object::selector as raw;
use crate::object::value::Labels;
use kai_engine::input::{
    self, LabelSelector, NodeTerm, Requirement, RequirementOp, SelectorOp, TaintEffect, TolerationOp,
};

pub fn labels(labels: &Labels) -> input::Labels {
    labels.iter().map(|(key, value)| (key.to_owned(), value.to_text())).collect()
}

/// An absent selector selects nothing.
pub fn label_selector(
    selector: Option<&raw::LabelSelector>,
    field: &str,
    report: &mut Report<'_>,
) -> LabelSelector {
    let Some(selector) = selector else {
        return nothing();
    };
    let mut requirements: Vec<(String, SelectorOp)> = selector
        .match_labels
        .iter()
        .map(|(key, value)| (key.to_owned(), SelectorOp::In(vec![value.to_string()])))
        .collect();
    for test in &selector.match_expressions {
        let values = || test.values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let op = match &*test.operator {
            "In" => SelectorOp::In(values()),
            "NotIn" => SelectorOp::NotIn(values()),
            "Exists" => SelectorOp::Exists,
            "DoesNotExist" => SelectorOp::DoesNotExist,
            other => {
                report.warn(
                    format!("{field}.matchExpressions"),
                    format!("operator `{other}` is unknown, so nothing is selected"),
                    "use In, NotIn, Exists or DoesNotExist",
                );
                SelectorOp::In(vec![])
            }
        };
        requirements.push((test.key.to_string(), op));
    }
    LabelSelector { requirements }
}

pub fn nothing() -> LabelSelector {
    LabelSelector { requirements: vec![(String::new(), SelectorOp::In(vec![]))] }
}

pub fn selects(selector: &LabelSelector, label: impl Fn(&str) -> Option<String>) -> bool {
    selector.requirements.iter().all(|(key, op)| match op {
        SelectorOp::In(values) => label(key).is_some_and(|v| values.contains(&v)),
        SelectorOp::NotIn(values) => label(key).is_none_or(|v| !values.contains(&v)),
        SelectorOp::Exists => label(key).is_some(),
        SelectorOp::DoesNotExist => label(key).is_none(),
    })
}

/// The terms of a node selector. A selector without terms selects nothing.
pub fn node_terms(selector: &raw::NodeSelector, field: &str, report: &mut Report<'_>) -> Vec<NodeTerm> {
    if selector.node_selector_terms.is_empty() {
        return vec![never()];
    }
    selector.node_selector_terms.iter().map(|term| node_term(term, field, report)).collect()
}

/// A term without requirements selects nothing.
pub fn node_term(term: &raw::NodeSelectorTerm, field: &str, report: &mut Report<'_>) -> NodeTerm {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return never();
    }
    let labels = term.match_expressions.iter().map(|e| requirement(e, field, report)).collect();
    let names = term
        .match_fields
        .iter()
        .map(|test| {
            let op = match &*test.operator {
                "In" if test.key == "metadata.name" => RequirementOp::In(strings(&test.values)),
                "NotIn" if test.key == "metadata.name" => RequirementOp::NotIn(strings(&test.values)),
                _ => {
                    report.warn(
                        format!("{field}.matchFields"),
                        format!(
                            "`{} {}` is not supported, so the term selects nothing",
                            test.key, test.operator
                        ),
                        "use `metadata.name` with In or NotIn",
                    );
                    RequirementOp::Never
                }
            };
            Requirement { key: test.key.to_string(), op }
        })
        .collect();
    NodeTerm { labels, names }
}

pub fn never() -> NodeTerm {
    NodeTerm { labels: vec![Requirement { key: String::new(), op: RequirementOp::Never }], names: vec![] }
}

fn requirement(test: &raw::Expression, field: &str, report: &mut Report<'_>) -> Requirement {
    let number = || match &*test.values {
        [only] => only.parse::<i64>().ok(),
        _ => None,
    };
    let op = match &*test.operator {
        "In" if !test.values.is_empty() => Some(RequirementOp::In(strings(&test.values))),
        "NotIn" if !test.values.is_empty() => Some(RequirementOp::NotIn(strings(&test.values))),
        "Exists" => Some(RequirementOp::Exists),
        "DoesNotExist" => Some(RequirementOp::DoesNotExist),
        "Gt" => number().map(RequirementOp::Gt),
        "Lt" => number().map(RequirementOp::Lt),
        _ => None,
    };
    let op = op.unwrap_or_else(|| {
        report.warn(
            format!("{field}.matchExpressions"),
            format!(
                "the test `{} {}` with {} value(s) is malformed, so the term selects nothing",
                test.key,
                test.operator,
                test.values.len()
            ),
            "In and NotIn need values, Gt and Lt need one integer",
        );
        RequirementOp::Never
    });
    Requirement { key: test.key.to_string(), op }
}

fn strings(values: &[crate::object::value::Text]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// Returns `None` for unknown effects.
pub fn taint_effect(name: &str) -> Option<TaintEffect> {
    match name {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// Malformed tolerations have no effect and are reported.
pub fn tolerations(list: &[raw::Toleration], field: &str, report: &mut Report<'_>) -> Vec<input::Toleration> {
    let mut read = Vec::with_capacity(list.len());
    for toleration in list {
        let op = match &*toleration.operator {
            "Exists" => Some(TolerationOp::Exists),
            "" | "Equal" => Some(TolerationOp::Equal(toleration.value.to_string())),
            "Gt" => toleration.value.parse().ok().map(TolerationOp::Gt),
            "Lt" => toleration.value.parse().ok().map(TolerationOp::Lt),
            _ => None,
        };
        let effect = match &*toleration.effect {
            "" => Some(None),
            name => taint_effect(name).map(Some),
        };
        if let (Some(op), Some(effect)) = (op, effect) {
            read.push(input::Toleration { key: toleration.key.to_string(), op, effect });
        } else {
            report.warn(
                field,
                format!(
                    "the toleration of `{}` (operator `{}`, effect `{}`) is malformed and has no effect",
                    toleration.key, toleration.operator, toleration.effect
                ),
                "use Exists or Equal, and NoSchedule, PreferNoSchedule or NoExecute",
            );
        }
    }
    read
}

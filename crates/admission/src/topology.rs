//! Validation of topologies: aliases of levels are unique, and differ from all node labels.
//!
//! The definition itself (CEL) checks the node labels.

use crate::review::{self, Operation, Request, Verdict};
use axum::Router;
use kai_api::Topology;
use kai_api::topology::TopologyLevel;
use serde_json::Value;
use std::collections::BTreeSet;

/// The path of KAI's webhook.
pub const PATH: &str = "/validate-kai-scheduler-v1alpha1-topology";

pub fn router() -> Router {
    review::route(PATH, |request| std::future::ready(validate(&request)))
}

/// Answers a request of the validating webhook.
pub fn validate(request: &Request) -> Verdict {
    match request.operation {
        Operation::Create | Operation::Update => review_new(&request.object),
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

/// The verdict on a new topology.
pub fn review_new(object: &Value) -> Verdict {
    let mut object = review::with_default(object, "/spec/levels", "nodeLabel");
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("levels").is_none_or(Value::is_null)
    {
        spec.insert("levels".to_owned(), Value::Array(Vec::new()));
    }
    review::decode::<Topology>("topology", &object)
        .map_or_else(|verdict| verdict, |topology| check(&topology))
}

/// The rules for a topology; every violation is listed.
pub fn check(topology: &Topology) -> Verdict {
    let name = topology.metadata.name.as_deref().unwrap_or_default();
    let levels = &topology.spec.levels;
    let node_labels: BTreeSet<&str> = levels.iter().map(|level| level.node_label.as_str()).collect();
    let mut seen = BTreeSet::new();
    let mut duplicated = BTreeSet::new();
    let mut conflicting = BTreeSet::new();
    for TopologyLevel { alias, .. } in levels.iter().filter(|level| !level.alias.is_empty()) {
        if !seen.insert(alias.as_str()) {
            duplicated.insert(alias.as_str());
        }
        if node_labels.contains(alias.as_str()) {
            conflicting.insert(alias.as_str());
        }
    }
    let mut verdict = Verdict::default();
    let mut add = |aliases: BTreeSet<&str>, problem: &str| {
        if !aliases.is_empty() {
            let aliases: Vec<&str> = aliases.into_iter().collect();
            verdict.errors.push(format!("topology `{name}`: `{}` {problem}", aliases.join("`, `")));
        }
    };
    add(duplicated, "is the alias of several levels; hint: give each level its own alias, or none");
    add(
        conflicting,
        "is an alias and a node label; hint: use another alias, or refer to the level by its node label",
    );
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(levels: &[(&str, &str)]) -> usize {
        let levels: Vec<_> =
            levels.iter().map(|(label, alias)| json!({"nodeLabel": label, "alias": alias})).collect();
        let topology = json!({"metadata": {"name": "t"}, "spec": {"levels": levels}});
        check(&serde_json::from_value(topology).unwrap()).errors.len()
    }

    #[test]
    fn topology_without_levels_is_left_to_its_definition() {
        for spec in [json!({}), json!({"levels": null}), json!({"levels": [{"alias": "a"}]})] {
            assert!(review_new(&json!({"metadata": {"name": "t"}, "spec": spec})).is_allowed(), "{spec}");
        }
        assert_eq!(review_new(&json!({"spec": {"levels": "x"}})).cause.code(), 400);
    }

    #[test]
    fn aliases_are_unique_and_differ_from_node_labels() {
        assert_eq!(errors(&[("zone", "z"), ("rack", "r")]), 0);
        assert_eq!(errors(&[("zone", ""), ("rack", "")]), 0);
        assert_eq!(errors(&[("zone", "X"), ("rack", "x")]), 0);
        assert_eq!(errors(&[("zone", "x"), ("rack", "x")]), 1);
        assert_eq!(errors(&[("zone", "zone")]), 1);
        assert_eq!(errors(&[("zone", "rack"), ("rack", "rack")]), 2);
    }
}

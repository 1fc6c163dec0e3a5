//! Compares the embedded server's table of merge rules with the `OpenAPI` document of a real server.

use kai_apiserver::schema::merge_rules;
use kai_apiserver::schema::{ListType, Merge, Strategy, builtin};
use kai_kubetest::suite::openapi::{Facts, MergeFacts};

/// Says where the table and the facts disagree, for every type that the embedded server knows.
pub(super) fn complaints(facts: &Facts) -> Vec<String> {
    let mut complaints = Vec::new();
    for (definition, fields) in facts {
        if !builtin::definitions().any(|known| known.name() == definition) {
            continue;
        }
        for (field, facts) in fields {
            let (wanted, found) = if field.is_empty() {
                let atomic_map = merge_rules::is_atomic_type(definition);
                (wanted(facts), Merge { atomic_map, ..Merge::default() })
            } else {
                let found = merge_rules::of_field(definition, field).cloned().unwrap_or_default();
                (wanted(facts), found)
            };
            if wanted != found {
                complaints.push(format!(
                    "{definition} {field}: the real server has {wanted:?}, the table {found:?}"
                ));
            }
        }
    }
    complaints.extend(unfounded(facts));
    complaints
}

/// Entries about types of the real server for which it says nothing.
fn unfounded(facts: &Facts) -> Vec<String> {
    let said = |at: &str| {
        facts.iter().any(|(definition, fields)| {
            let name = merge_rules::short_name(definition).unwrap_or_default();
            fields.keys().any(|field| {
                if field.is_empty() {
                    at == name
                } else {
                    at.strip_prefix(&name) == Some(&format!(".{field}"))
                }
            })
        })
    };
    let known = |at: &str| {
        let mut names = facts.keys().filter_map(|definition| merge_rules::short_name(definition));
        names.any(|name| at.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    merge_rules::entries()
        .into_iter()
        .filter(|entry| known(entry.at) && !said(entry.at))
        .map(|entry| format!("{}: the table has an entry, the real server none", entry.at))
        .collect()
}

fn wanted(facts: &MergeFacts) -> Merge {
    let list = match facts.list_type.as_deref() {
        Some("map") => ListType::Map(facts.map_keys.clone()),
        Some("set") => ListType::Set,
        _ => ListType::Atomic,
    };
    let strategy = match facts.strategy.as_deref() {
        Some(strategy) if strategy.starts_with("merge") => Strategy::Merge,
        Some("replace") => Strategy::Replace,
        _ => Strategy::Plain,
    };
    let atomic_map = facts.map_type.as_deref() == Some("atomic");
    Merge { list, atomic_map, strategy, patch_key: facts.merge_key.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn wrong_and_unfounded_rules_are_reported() {
        let wrong = MergeFacts { list_type: Some("set".to_owned()), ..MergeFacts::default() };
        let fields = BTreeMap::from([("containers".to_owned(), wrong)]);
        let found = complaints(&Facts::from([("io.k8s.api.core.v1.PodSpec".to_owned(), fields)]));
        assert!(
            found[0].starts_with("io.k8s.api.core.v1.PodSpec containers: the real server has"),
            "{found:?}"
        );
        assert!(
            found.contains(&"core.PodSpec.volumes: the table has an entry, the real server none".to_owned())
        );
    }
}

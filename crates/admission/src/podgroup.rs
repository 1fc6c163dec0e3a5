//! Validation of pod groups.
//!
//! The first structural problem of the subgroup tree is an error of its own. Minima that contradict the tree are all
//! listed; some are only warnings, since stored objects may have them.

use crate::review::{self, Operation, Verdict};
use axum::Router;
use kai_api::PodGroup;
use kai_api::pod_group::{PodGroupSpec, SubGroup};
use std::collections::{BTreeMap, BTreeSet};

/// The path of KAI's webhook.
pub const PATH: &str = "/validate-scheduling-run-ai-v2alpha2-podgroup";

pub fn router() -> Router {
    review::route(PATH, |request| std::future::ready(validate(&request)))
}

/// Answers a request of the validating webhook.
pub fn validate(request: &review::Request) -> Verdict {
    match request.operation {
        Operation::Create | Operation::Update => match decode(&request.object) {
            Ok(group) => check(&group.spec, request.operation),
            Err(verdict) => verdict,
        },
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

/// The verdict on a new pod group.
pub fn review_new(object: &serde_json::Value) -> Verdict {
    decode(object).map_or_else(|verdict| verdict, |group| check(&group.spec, Operation::Create))
}

/// A pod group whose durations can be parsed; its definition accepts any text for them.
pub fn decode(object: &serde_json::Value) -> Result<PodGroup, Verdict> {
    let group: PodGroup =
        review::decode("pod group", &review::with_default(object, "/spec/subGroups", "name"))?;
    let durations = [
        ("preemptionDelay", &group.spec.preemption_delay),
        ("stalenessGracePeriod", &group.spec.staleness_grace_period),
    ];
    review::check_durations(durations)?;
    Ok(group)
}

/// Validates the spec of a pod group for a create or update.
pub fn check(spec: &PodGroupSpec, operation: Operation) -> Verdict {
    if let Some(problem) = structure(spec) {
        return Verdict::denied(problem);
    }
    let mut verdict = Verdict::default();
    let mut by_name: Vec<&SubGroup> = spec.sub_groups.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name));
    let mut children: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for group in &spec.sub_groups {
        *children.entry(group.parent.as_deref()).or_default() += 1;
    }
    let children = |of: Option<&str>| children.get(&of).copied().unwrap_or_default();
    for group in by_name {
        minima(group, children(Some(&group.name)), operation, &mut verdict);
    }
    let roots = children(None);
    if let Some(min) = spec.min_sub_group.filter(|min| usize::try_from(*min).is_ok_and(|min| min > roots)) {
        verdict.warnings.push(format!(
            "minSubGroup ({min}) exceeds the number of direct child SubGroups ({roots}), so the group can never start; hint: \
             lower it, or add subgroups"
        ));
    }
    verdict
}

/// The first structural problem of the subgroup tree.
fn structure(spec: &PodGroupSpec) -> Option<String> {
    if spec.min_member.is_some() && spec.min_sub_group.is_some() {
        return Some("minMember and minSubGroup exclude each other; hint: keep one of them".to_owned());
    }
    let mut parents = BTreeMap::new();
    for group in &spec.sub_groups {
        if parents.insert(group.name.as_str(), group.parent.as_deref()).is_some() {
            return Some(format!("there are two subgroups `{}`; hint: give each its own name", group.name));
        }
    }
    for group in &spec.sub_groups {
        if let Some(parent) = group.parent.as_deref().filter(|parent| !parents.contains_key(parent)) {
            return Some(format!(
                "subgroup `{}` has the parent `{parent}`, which does not exist; hint: add a subgroup `{parent}`, or remove \
                 the parent",
                group.name
            ));
        }
    }
    if let Some(name) = below_itself(spec, &parents) {
        return Some(format!(
            "subgroup `{name}` is part of itself, through its parents; hint: remove one parent of the cycle"
        ));
    }
    let with_both =
        spec.sub_groups.iter().filter(|group| group.min_member.is_some() && group.min_sub_group.is_some());
    let name = with_both.map(|group| &group.name).min()?;
    Some(format!("subgroup `{name}` has both minMember and minSubGroup; hint: keep one of them"))
}

/// The first subgroup whose parents lead into a cycle. Every subgroup is visited once, however deep the tree is.
fn below_itself<'a>(spec: &'a PodGroupSpec, parents: &BTreeMap<&str, Option<&'a str>>) -> Option<&'a str> {
    let mut reaches_root: BTreeSet<&str> = BTreeSet::new();
    for group in &spec.sub_groups {
        let mut path = BTreeSet::new();
        let mut at = Some(group.name.as_str());
        while let Some(name) = at.filter(|name| !reaches_root.contains(name)) {
            if !path.insert(name) {
                return Some(&group.name);
            }
            at = parents.get(name).copied().flatten();
        }
        reaches_root.append(&mut path);
    }
    None
}

fn minima(group: &SubGroup, children: usize, operation: Operation, verdict: &mut Verdict) {
    let name = &group.name;
    if children == 0 {
        if group.min_sub_group.is_some() {
            verdict.errors.push(format!(
                "subgroup `{name}` has minSubGroup, but no subgroups are part of it; hint: set minMember instead"
            ));
        } else if group.min_member.is_none() {
            verdict.errors.push(format!(
                "subgroup `{name}` has no minMember; hint: set it, or add subgroups with the parent `{name}`"
            ));
        }
        return;
    }
    if group.min_member.is_some() {
        let problem = format!(
            "subgroup `{name}` has minMember, but consists of subgroups; hint: set minSubGroup instead"
        );
        match operation {
            Operation::Update => verdict.warnings.push(problem),
            Operation::Create | Operation::Delete | Operation::Connect => verdict.errors.push(problem),
        }
    }
    if let Some(min) = group.min_sub_group.filter(|min| usize::try_from(*min).is_ok_and(|min| min > children))
    {
        verdict.warnings.push(format!(
            "subgroup `{name}`: minSubGroup ({min}) exceeds the number of direct child SubGroups ({children}), so it can never \
             start; hint: lower it, or add subgroups"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn outcome(spec: Value, operation: Operation) -> (bool, usize) {
        let verdict = check(&serde_json::from_value(spec).unwrap(), operation);
        let all = || verdict.errors.iter().chain(&verdict.warnings);
        assert!(all().all(|problem| problem.contains("; hint: ")), "{verdict:?}");
        (verdict.is_allowed(), verdict.warnings.len())
    }

    #[test]
    fn minimum_above_the_subgroups_is_one_warning_with_both_numbers() {
        let leaf = |name: &str, parent: Value| json!({"name": name, "minMember": 8, "parent": parent});
        let leaves: Vec<Value> = (0..4).map(|number| leaf(&format!("p{number}"), Value::Null)).collect();
        let of = |spec: Value| check(&serde_json::from_value(spec).unwrap(), Operation::Create);
        let verdict = of(json!({"minSubGroup": 5, "subGroups": leaves}));
        let text = "minSubGroup (5) exceeds the number of direct child SubGroups (4)";
        assert!(verdict.is_allowed(), "{verdict:?}");
        assert!(matches!(verdict.warnings.as_slice(), [only] if only.contains(text)), "{verdict:?}");
        let inner = json!({"subGroups": [{"name": "inner", "minSubGroup": 2}, leaf("a", json!("inner"))]});
        let text = "subgroup `inner`: minSubGroup (2) exceeds the number of direct child SubGroups (1)";
        assert!(matches!(of(inner).warnings.as_slice(), [only] if only.contains(text)));
    }

    #[test]
    fn null_and_missing_fields_are_empty_values() {
        let group = |spec: Value| json!({"metadata": {"name": "g", "labels": null}, "spec": spec});
        assert!(review_new(&group(Value::Null)).is_allowed());
        assert!(review_new(&group(json!({"subGroups": [{"minMember": 1, "parent": null}]}))).is_allowed());
        assert_eq!(review_new(&group(json!({"subGroups": [{"name": 1}]}))).cause.code(), 400);
    }

    #[test]
    fn subgroup_with_both_minima_ends_the_evaluation() {
        let spec = json!({"minSubGroup": 9, "subGroups": [
            {"name": "z", "minMember": 1, "minSubGroup": 1}, {"name": "b", "minMember": 1, "minSubGroup": 1},
            {"name": "a"}, {"name": "p", "minSubGroup": 5}, {"name": "c", "parent": "p", "minMember": 1},
        ]});
        for operation in [Operation::Create, Operation::Update] {
            let verdict = check(&serde_json::from_value(spec.clone()).unwrap(), operation);
            assert_eq!(
                verdict.errors,
                ["subgroup `b` has both minMember and minSubGroup; hint: keep one of them"]
            );
            assert!(verdict.warnings.is_empty(), "{verdict:?}");
        }
    }

    #[test]
    fn tree_of_any_size_is_validated_in_linear_time() {
        let chain = |end: &str| -> Vec<SubGroup> {
            let below = |number: usize| match number {
                0 => json!({"name": "g0", "parent": end}),
                _ => json!({"name": format!("g{number}"), "parent": format!("g{}", number - 1)}),
            };
            let mut groups: Vec<Value> = (0..50_000).map(below).collect();
            groups.push(json!({"name": "root"}));
            groups.reverse();
            serde_json::from_value(Value::from(groups)).unwrap()
        };
        let spec = |end: &str| PodGroupSpec { sub_groups: chain(end), ..PodGroupSpec::default() };
        assert_eq!(structure(&spec("root")), None);
        let cycle = structure(&spec("g49999")).unwrap();
        assert!(cycle.starts_with("subgroup `g49999` is part of itself, through its parents;"), "{cycle}");
        let errors = check(&spec("root"), Operation::Create).errors;
        assert!(
            matches!(errors.as_slice(), [only] if only.starts_with("subgroup `g49999` has no minMember;")),
            "{errors:?}"
        );
    }

    #[test]
    fn pod_groups_are_validated() {
        let inner_with_member = json!({"subGroups": [{"name": "p", "minMember": 1}, {"name": "c", "parent": "p", "minMember": 1}]});
        let cases = [
            (json!({"minMember": 3, "queue": "q"}), (true, 0), (true, 0)),
            (json!({}), (true, 0), (true, 0)),
            (json!({"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}]}), (true, 0), (true, 0)),
            (json!({"minSubGroup": 2}), (true, 1), (true, 1)),
            (json!({"minMember": 1, "minSubGroup": 1}), (false, 0), (false, 0)),
            (json!({"minMember": 0, "minSubGroup": 0}), (false, 0), (false, 0)),
            (json!({"subGroups": [{"name": "a"}]}), (false, 0), (false, 0)),
            (json!({"subGroups": [{"name": "a", "minSubGroup": 0}]}), (false, 0), (false, 0)),
            (json!({"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]}), (false, 0), (false, 0)),
            (
                json!({"subGroups": [{"name": "p", "minSubGroup": 1}, {"name": "c", "parent": "p", "minMember": 1}]}),
                (true, 0),
                (true, 0),
            ),
            (
                json!({"subGroups": [{"name": "p", "minSubGroup": 2}, {"name": "c", "parent": "p", "minMember": 1}]}),
                (true, 1),
                (true, 1),
            ),
            (inner_with_member, (false, 0), (true, 1)),
            (
                json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}),
                (false, 0),
                (false, 0),
            ),
            (json!({"subGroups": [{"name": "a", "parent": "b", "minMember": 1}]}), (false, 0), (false, 0)),
            (json!({"subGroups": [{"name": "a", "parent": "a", "minSubGroup": 1}]}), (false, 0), (false, 0)),
            (
                json!({"subGroups": [{"name": "a", "parent": "b", "minSubGroup": 1}, {"name": "b", "parent": "a"}]}),
                (false, 0),
                (false, 0),
            ),
        ];
        for (spec, on_create, on_update) in cases {
            assert_eq!(outcome(spec.clone(), Operation::Create), on_create, "create {spec}");
            assert_eq!(outcome(spec.clone(), Operation::Update), on_update, "update {spec}");
        }
    }
}

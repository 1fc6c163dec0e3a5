//! Whether the running pods of a group satisfy its gang minimum, including its sub-group tree.

use kai_engine::input::GroupInput;
use std::collections::BTreeMap;

/// Sub-group of pods that name none.
pub(crate) const DEFAULT: &str = "default";

/// Running and completed pods, by sub-group.
pub(crate) type PodCounts = BTreeMap<String, u32>;

/// Whether the group has at least one pod and its minimum is satisfied.
pub(crate) fn is_complete(group: &GroupInput, counts: &PodCounts) -> bool {
    if counts.values().all(|count| *count == 0) {
        return false;
    }
    let count_in = |name: &str| counts.get(name).copied().unwrap_or(0);
    if group.sub_groups.is_empty() {
        return count_in(DEFAULT) >= group.min_member.unwrap_or(1);
    }
    let index: BTreeMap<&str, usize> =
        group.sub_groups.iter().enumerate().map(|(at, sub)| (sub.name.as_str(), at)).collect();
    let parents: Vec<Option<usize>> = group
        .sub_groups
        .iter()
        .map(|sub| sub.parent.as_deref().and_then(|parent| index.get(parent).copied()))
        .collect();
    // Members and satisfied members of each sub-group, and of the group itself at the end.
    let root = parents.len();
    let mut members = vec![0_u32; root + 1];
    let mut satisfied = vec![0_u32; root + 1];
    for parent in &parents {
        members[parent.unwrap_or(root)] += 1;
    }
    for at in deepest_first(&parents) {
        let sub = &group.sub_groups[at];
        let is_satisfied = if members[at] == 0 {
            count_in(&sub.name) >= sub.min_member.unwrap_or(0)
        } else {
            satisfied[at] >= sub.min_sub_group.unwrap_or(members[at])
        };
        satisfied[parents[at].unwrap_or(root)] += u32::from(is_satisfied);
    }
    satisfied[root] >= group.min_sub_group.unwrap_or(members[root])
}

/// All indices, children before their parents.
fn deepest_first(parents: &[Option<usize>]) -> Vec<usize> {
    let depth = |at: usize| {
        let path = std::iter::successors(Some(at), |at| parents[*at]);
        // The bound stops at cycles, which a valid tree does not have.
        path.take(parents.len()).count()
    };
    let mut order: Vec<(usize, usize)> = (0..parents.len()).map(|at| (depth(at), at)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::input::SubGroupInput;

    fn counts(counts: &[(&str, u32)]) -> PodCounts {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn leaf(name: &str, parent: Option<&str>, min: u32) -> SubGroupInput {
        SubGroupInput {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            min_member: Some(min),
            ..SubGroupInput::default()
        }
    }

    #[test]
    fn group_without_sub_groups_needs_its_minimum() {
        let group = GroupInput { min_member: Some(2), ..GroupInput::default() };
        assert!(!is_complete(&group, &counts(&[(DEFAULT, 1)])));
        assert!(is_complete(&group, &counts(&[(DEFAULT, 2)])));
        let none = GroupInput { min_member: Some(0), ..GroupInput::default() };
        assert!(!is_complete(&none, &counts(&[])));
    }

    #[test]
    fn tree_needs_its_minimum_of_sub_groups() {
        let mut group = GroupInput {
            sub_groups: vec![leaf("a", Some("top"), 2), leaf("b", Some("top"), 1), leaf("top", None, 0)],
            ..GroupInput::default()
        };
        assert!(!is_complete(&group, &counts(&[("a", 2)])));
        assert!(is_complete(&group, &counts(&[("a", 2), ("b", 1)])));
        group.sub_groups[2].min_sub_group = Some(1);
        assert!(is_complete(&group, &counts(&[("b", 1)])));
        assert!(!is_complete(&group, &counts(&[("a", 1)])));
    }
}

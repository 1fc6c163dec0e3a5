//! Tests of eviction batches on small trees, and of preemption delays.

use super::*;
use crate::input::{PodPhase, SubGroupInput};
use crate::test_cluster::{TestCluster, sub_group};

/// A group of running pods in a tree; pods are named after their pod set: `a-0`, `a-1` …
fn running(min: Option<u32>, tree: &[SubGroupInput], pods: &[(&str, usize)]) -> TestCluster {
    let mut fixture = TestCluster::default();
    fixture.group("train", |group| {
        group.min_sub_group = min;
        group.sub_groups = tree.to_vec();
    });
    for &(set, count) in pods {
        for i in 0..count {
            fixture.pod(&format!("{set}-{i}"), "train", |pod| {
                pod.sub_group = Some(set.to_owned());
                pod.phase = PodPhase::Running;
            });
        }
    }
    fixture.refresh();
    fixture
}

fn batches(fixture: &TestCluster) -> Vec<Vec<&str>> {
    let mut held = EvictablePods::of(&fixture.cluster, fixture.find("train"));
    let mut batches = Vec::new();
    while !held.is_empty() {
        let batch = held.next_batch(&fixture.cluster, &fixture.policy.registry);
        assert!(!batch.is_empty(), "a non-empty group has a next batch");
        batches.push(fixture.names(&batch));
    }
    batches
}

#[test]
fn pods_beyond_the_minimum_are_evicted_one_by_one_and_the_gang_last() {
    let fixture = running(None, &[sub_group("a", 2)], &[("a", 4)]);
    assert_eq!(batches(&fixture), [vec!["a-3"], vec!["a-2"], vec!["a-1", "a-0"]]);
}

#[test]
fn pod_set_with_the_largest_surplus_shrinks_first() {
    let fixture = running(None, &[sub_group("a", 1), sub_group("b", 1)], &[("a", 3), ("b", 2)]);
    assert_eq!(batches(&fixture), [vec!["a-2"], vec!["b-1"], vec!["a-1"], vec!["b-0", "a-0"]]);
}

#[test]
fn members_beyond_the_required_number_are_evicted_as_a_whole() {
    let tree = [sub_group("a", 2), sub_group("b", 2), sub_group("c", 2)];
    let fixture = running(Some(2), &tree, &[("a", 2), ("b", 2), ("c", 3)]);
    assert_eq!(batches(&fixture), [vec!["c-2"], vec!["c-1", "c-0"], vec!["b-1", "b-0", "a-1", "a-0"]]);
}

#[test]
fn surplus_deep_in_the_tree_is_evicted_before_members_near_the_root() {
    let tree =
        [sub_group("x", 1), sub_group("x/a", 1), sub_group("x/b", 1), sub_group("y", 1), sub_group("y/c", 1)];
    let fixture = running(Some(1), &tree, &[("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(batches(&fixture), [["b-0"], ["c-0"], ["a-0"]]);
}

#[test]
fn group_without_a_satisfied_member_is_evicted_at_once() {
    let fixture = running(Some(1), &[sub_group("a", 2), sub_group("b", 3)], &[("a", 1), ("b", 2)]);
    assert_eq!(batches(&fixture), [["b-1", "b-0", "a-0"]]);
}

#[test]
fn pod_set_without_a_minimum_shrinks_to_zero() {
    let fixture = running(None, &[sub_group("a", 0), sub_group("b", 1)], &[("a", 2), ("b", 1)]);
    assert_eq!(batches(&fixture), [["a-1"], ["a-0"], ["b-0"]]);
}

#[test]
fn taken_or_unplaced_pods_are_not_evictable() {
    let mut fixture = running(None, &[sub_group("a", 1)], &[("a", 3)]);
    fixture.pod("a-3", "train", |pod| pod.sub_group = Some("a".to_owned()));
    fixture.refresh();
    let registry = &fixture.policy.registry;
    let last =
        EvictablePods::of(&fixture.cluster, fixture.find("train")).next_batch(&fixture.cluster, registry);
    assert_eq!(fixture.names(&last), ["a-2"]);
    let mut held = EvictablePods::without(&fixture.cluster, fixture.find("train"), |pod| last.contains(&pod));
    assert_eq!(held.len(), 2);
    let next = held.next_batch(&fixture.cluster, registry);
    assert_eq!(fixture.names(&next), ["a-1"]);
    held.remove(|_| true);
    assert!(held.is_empty());
    assert!(held.next_batch(&fixture.cluster, registry).is_empty());
}

#[test]
fn preemption_delay_counts_from_creation_or_a_later_eviction() {
    let at = |second: i64| Timestamp(second * 1_000_000);
    let end = |evicted: Option<i64>, delay: Option<i64>| {
        let mut fixture = TestCluster::default();
        fixture.group("train", |group| {
            group.created = at(100);
            group.last_eviction = evicted.map(at);
            group.preemption_delay = delay.map(Span::from_secs);
        });
        fixture.refresh();
        fixture.cluster.groups[fixture.find("train")].clone()
    };
    assert_eq!(preemption_delay_end(&end(None, Some(10))), Some(at(110)));
    assert_eq!(preemption_delay_end(&end(Some(200), Some(10))), Some(at(210)));
    assert_eq!(preemption_delay_end(&end(Some(50), Some(10))), Some(at(110)));
    assert_eq!(preemption_delay_end(&end(Some(200), Some(0))), None);
    assert_eq!(preemption_delay_end(&end(None, None)), None);
    let group = end(None, Some(10));
    let verdict = Verdict::PreemptionDelay { delay: 10_000_000, until: 110_000_000 };
    assert_eq!(preemption_delay(&group, at(109)), Some(verdict));
    assert_eq!(preemption_delay(&group, at(110)), None);
}

//! The job order: compares groups of a queue.

use crate::cluster::Cluster;
use crate::cluster::group::{ElasticState, Group};
use crate::ids::GroupIdx;
use crate::plugin::{GroupOrder, Registry};
use std::cmp::Ordering;

/// Compares two groups; `Less` comes first.
pub fn compare(cluster: &Cluster, registry: &Registry, left: GroupIdx, right: GroupIdx) -> Ordering {
    let state = |group: GroupIdx| move || cluster.groups[group].elastic_state();
    compare_as(cluster, registry, (left, state(left)), (right, state(right)))
}

/// Sorts groups by [`compare`].
pub fn sort(cluster: &Cluster, registry: &Registry, groups: &mut [GroupIdx]) {
    let mut keyed: Vec<(GroupIdx, ElasticState)> =
        groups.iter().map(|group| (*group, cluster.groups[*group].elastic_state())).collect();
    keyed.sort_by(|a, b| compare_as(cluster, registry, (a.0, || a.1), (b.0, || b.1)));
    for (slot, (group, _)) in groups.iter_mut().zip(keyed) {
        *slot = group;
    }
}

/// Compares two groups with given elastic states, for groups of which not all pods count.
pub fn compare_as(
    cluster: &Cluster,
    registry: &Registry,
    (left, left_state): (GroupIdx, impl Fn() -> ElasticState),
    (right, right_state): (GroupIdx, impl Fn() -> ElasticState),
) -> Ordering {
    let (l, r) = (&cluster.groups[left], &cluster.groups[right]);
    for entry in &registry.group_order {
        let ordering = match entry {
            GroupOrder::Priority => r.priority.cmp(&l.priority),
            GroupOrder::Elastic => left_state().cmp(&right_state()),
            GroupOrder::Custom(order) => order.compare(cluster, left, right),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    l.created.cmp(&r.created).then_with(|| {
        let key = |g: &Group| (cluster.text(g.namespace), cluster.text(g.name));
        key(l).cmp(&key(r))
    })
}

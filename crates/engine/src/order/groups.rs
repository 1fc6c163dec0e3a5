//! The order of groups inside a queue.

use crate::cluster::Cluster;
use crate::ids::GroupIdx;
use crate::plugin::{GroupOrder, Registry};
use std::cmp::Ordering;

/// Compares two groups: `Less` goes first.
pub fn compare(cluster: &Cluster, registry: &Registry, left: GroupIdx, right: GroupIdx) -> Ordering {
    let (l, r) = (&cluster.groups[left], &cluster.groups[right]);
    for entry in &registry.group_order {
        let ordering = match entry {
            GroupOrder::Priority => r.priority.cmp(&l.priority),
            GroupOrder::Elastic => l.elastic_state().cmp(&r.elastic_state()),
            GroupOrder::Custom(order) => order.compare(cluster, left, right),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    l.created.cmp(&r.created).then_with(|| {
        let key = |g: &crate::cluster::group::Group| (cluster.text(g.namespace), cluster.text(g.name));
        key(l).cmp(&key(r))
    })
}

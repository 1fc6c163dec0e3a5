//! Lists the pending groups in the order in which *allocate* attempts them if none is placed, and what queues hold.

use super::tree_walk::{Purpose, TreeWalk};
use crate::cluster::Cluster;
use crate::ids::GroupIdx;
use crate::input::Key;
use crate::policy::Policy;
use crate::resource::PerResource;
use crate::share::division;
use crate::state::ClusterState;
use kai_units::Timestamp;
use std::collections::BTreeMap;

/// Groups with their priority.
pub type Entries = Vec<(Key, i32)>;

/// Pending groups in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Of all queues.
    pub all: Entries,
    /// By queue.
    pub queues: BTreeMap<String, Entries>,
}

/// Applies pending changes to derived values, such as the ledgers of queues.
pub fn refresh(state: &mut ClusterState, policy: &Policy, now: Timestamp) {
    state.refresh(policy, now);
}

/// What each queue and its descendants hold, by the name of the queue, after [`refresh`].
pub fn allocated(cluster: &Cluster) -> impl Iterator<Item = (&str, PerResource<i64>)> {
    cluster.queues_by_rank.iter().map(|queue| {
        let queue = &cluster.queues[*queue];
        (cluster.text(queue.name), queue.ledger.allocated)
    })
}

/// Lists the pending groups in the order of *allocate*.
pub fn pending(state: &mut ClusterState, policy: &Policy, now: Timestamp) -> Listing {
    state.refresh(policy, now);
    let cluster = &mut state.cluster;
    let total = cluster.total(policy.params.restrict_nodes);
    if let Some(proportion) = policy.registry.builtin.proportion {
        let queues = cluster.queues_by_rank.clone();
        division::divide_tree(cluster, &queues, &total, proportion.k_value);
    }
    let ready = cluster.pending_groups().filter(|(_, group)| group.pending() > 0 && group.is_ready());
    let ready: Vec<GroupIdx> =
        ready.filter(|(_, group)| group.invalid_reason.is_none()).map(|(index, _)| index).collect();
    let depth = policy.queue_depth.get("allocate").copied();
    let mut walk = TreeWalk::new(cluster, &policy.registry, Purpose::Place, total, ready, depth);
    let mut listing = Listing::default();
    while let Some(group) = walk.pop(cluster) {
        let of = &cluster.groups[group];
        let entry = (cluster.group_key(group), of.priority);
        listing.queues.entry(cluster.text(of.queue_name).to_owned()).or_default().push(entry.clone());
        listing.all.push(entry);
    }
    listing
}

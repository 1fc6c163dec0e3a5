//! Messages of the events on a group that waits for pods, or that runs below its minimum.

use crate::cluster::Cluster;
use crate::cluster::group::{DEFAULT_POD_SET, PodSet};
use crate::cluster::pod::Status;
use crate::input::Key;
use std::fmt::Write as _;

/// The message of the event `NotReady` in KAI's format: the pod sets with fewer ungated pods than their minimum.
pub fn not_ready_message(cluster: &Cluster, group: &Key) -> String {
    let mut text = "Job is not ready for scheduling.".to_owned();
    for (name, pods) in pod_sets(cluster, group).into_iter().filter(|(_, pods)| !pods.is_ready()) {
        let (min, exist, gated) = (pods.min, pods.alive(), pods.count(Status::Gated));
        // Writing to a string cannot fail.
        let _ = if name == DEFAULT_POD_SET {
            write!(text, " Waiting for {min} pods, currently {exist} exist, {gated} are gated")
        } else {
            write!(
                text,
                " Waiting for {min} pods for SubGroup {name}, currently {exist} exist, {gated} are gated."
            )
        };
    }
    text
}

/// The message of the event `StaleJob` in KAI's format.
pub fn stale_message(cluster: &Cluster, group: &Key) -> String {
    let sets = pod_sets(cluster, group);
    let (active, min) =
        sets.iter().fold((0, 0), |(active, min), (_, pods)| (active + pods.active_used(), min + pods.min));
    let mut text = format!("Job is stale. {active} pods are active, minMember is {min}");
    for (name, pods) in sets {
        let active = pods.active_used();
        if active < pods.min && name != DEFAULT_POD_SET {
            let _ = write!(text, ", subGroup {name} minMember is {} and {active} pods are active", pods.min);
        }
    }
    text
}

/// The pod sets of a group, by name.
fn pod_sets<'a>(cluster: &'a Cluster, group: &Key) -> Vec<(&'a str, &'a PodSet)> {
    let Some(group) = cluster.group(group).map(|group| &cluster.groups[group]) else { return Vec::new() };
    let mut sets: Vec<_> =
        group.pod_sets().map(|(member, pods)| (cluster.text(group.members[member].name), pods)).collect();
    sets.sort_unstable_by_key(|(name, _)| *name);
    sets
}

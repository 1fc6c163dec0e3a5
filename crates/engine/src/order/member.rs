//! Orders the members of a set, and selects the pods of a group's next scheduling step.

use crate::cluster::Cluster;
use crate::cluster::group::{Group, MemberKind};
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, MemberIdx, PodIdx};
use crate::plugin::{MemberOrder, Registry};
use std::cmp::Ordering;

/// Which pods a scheduling step may place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Pending pods only.
    Real,
    /// Pending pods, and pods evicted by the simulation.
    Simulated,
}

impl Selection {
    /// Whether a pod may be placed.
    pub fn selects(self, cluster: &Cluster, pod: PodIdx) -> bool {
        let state = &cluster.pods[pod].state;
        match state.status {
            Status::Pending => true,
            Status::Releasing => self == Self::Simulated && state.is_virtual,
            Status::Gated
            | Status::Allocated
            | Status::Pipelined
            | Status::Binding
            | Status::Bound
            | Status::Running
            | Status::Stuck
            | Status::Succeeded
            | Status::Failed
            | Status::Unknown
            | Status::InBackoff => false,
        }
    }
}

/// The children of a set in order.
pub fn sorted_children(
    cluster: &Cluster,
    registry: &Registry,
    group: GroupIdx,
    set: MemberIdx,
) -> Vec<MemberIdx> {
    let g = &cluster.groups[group];
    let mut children = g.members[set].children().to_vec();
    if children.len() > 1 {
        children.sort_by(|&l, &r| compare(cluster, registry, group, l, r));
    }
    children
}

/// Compares two children of a set; `Less` comes first.
pub fn compare(
    cluster: &Cluster,
    registry: &Registry,
    group: GroupIdx,
    left: MemberIdx,
    right: MemberIdx,
) -> Ordering {
    let g = &cluster.groups[group];
    for entry in &registry.member_order {
        let ordering = match entry {
            MemberOrder::BySatisfaction => by_satisfaction(g, left, right),
            MemberOrder::Custom(order) => order.compare(cluster, group, left, right),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    let name = |m: MemberIdx| cluster.names.text(g.members[m].name);
    name(left).cmp(name(right))
}

/// Unsatisfied members first; then those with a minimum by their surplus; then those without.
pub fn by_satisfaction(group: &Group, left: MemberIdx, right: MemberIdx) -> Ordering {
    let (l_has, l_min) = (group.satisfied_count(left), group.needed(left));
    let (r_has, r_min) = (group.satisfied_count(right), group.needed(right));
    by_ratio((l_has, l_min), (r_has, r_min))
}

/// [`by_satisfaction`] for pairs of current and required numbers.
pub fn by_ratio((l_has, l_min): (u32, u32), (r_has, r_min): (u32, u32)) -> Ordering {
    match (l_has < l_min, r_has < r_min) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => match (l_min, r_min) {
            (0, 0) => l_has.cmp(&r_has),
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => (u64::from(l_has) * u64::from(r_min)).cmp(&(u64::from(r_has) * u64::from(l_min))),
        },
    }
}

/// The pods of the next scheduling step: the missing minimum of a gang, or one pod beyond it.
pub fn pods_to_place(
    cluster: &Cluster,
    registry: &Registry,
    group: GroupIdx,
    selection: Selection,
) -> Vec<PodIdx> {
    let mut pods = Vec::new();
    collect(cluster, registry, group, Group::root(), selection, &mut pods);
    pods
}

fn collect(
    cluster: &Cluster,
    registry: &Registry,
    group: GroupIdx,
    member: MemberIdx,
    selection: Selection,
    pods: &mut Vec<PodIdx>,
) {
    let g = &cluster.groups[group];
    match &g.members[member].kind {
        MemberKind::Pods(set) => {
            let missing = set.min.saturating_sub(set.active_allocated());
            let most = if missing > 0 { missing } else { 1 };
            let from = match selection {
                Selection::Real => set.first_pending as usize,
                Selection::Simulated => 0,
            };
            let placeable =
                set.pods[from.min(set.pods.len())..].iter().filter(|p| selection.selects(cluster, **p));
            pods.extend(placeable.take(most as usize));
        }
        MemberKind::Set { .. } => {
            let children = sorted_children(cluster, registry, group, member);
            if g.is_satisfied(member) {
                // Beyond the minimum one step adds the pods of the first child that has any to place.
                let before = pods.len();
                for child in children {
                    if !g.is_satisfied(child) && !can_complete(cluster, g, child, selection) {
                        continue;
                    }
                    collect(cluster, registry, group, child, selection, pods);
                    if pods.len() > before {
                        return;
                    }
                }
            } else {
                // As many children as are missing. A child that cannot reach its minimum is skipped, so that no
                // incomplete gang is placed.
                let missing = g.needed(member).saturating_sub(g.satisfied_count(member)) as usize;
                let selected = children
                    .into_iter()
                    .filter(|c| !g.is_satisfied(*c) && can_complete(cluster, g, *c, selection))
                    .take(missing);
                for child in selected {
                    collect(cluster, registry, group, child, selection, pods);
                }
            }
        }
    }
}

/// Whether a member can reach its minimum with the pods that may be placed.
fn can_complete(cluster: &Cluster, group: &Group, member: MemberIdx, selection: Selection) -> bool {
    match &group.members[member].kind {
        MemberKind::Pods(set) => {
            let placeable = match selection {
                Selection::Real => set.count(Status::Pending),
                Selection::Simulated => {
                    set.pods.iter().filter(|p| selection.selects(cluster, **p)).count() as u32
                }
            };
            set.active_allocated() + placeable >= set.min
        }
        MemberKind::Set { children, .. } => {
            let can = children
                .iter()
                .filter(|c| group.is_satisfied(**c) || can_complete(cluster, group, **c, selection))
                .count() as u32;
            can >= group.needed(member)
        }
    }
}

//! The order of members inside a set, and which pods a group wants placed next.

use crate::cluster::Cluster;
use crate::cluster::group::{Group, MemberKind};
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, MemberIdx, PodIdx};
use crate::plugin::{MemberOrder, Registry};
use std::cmp::Ordering;

/// Whether pods evicted in this cycle count as wanting a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Pending pods only.
    Real,
    /// Pending pods, and pods that were evicted in this cycle.
    Simulated,
}

impl Selection {
    /// Whether a pod may be chosen.
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
            | Status::Unknown => false,
        }
    }
}

/// Members of a set in order, best first.
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

/// Compares two members of one set: `Less` goes first.
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

/// Unsatisfied first; among satisfied ones those with a minimum, then the one with least beyond it.
pub fn by_satisfaction(group: &Group, left: MemberIdx, right: MemberIdx) -> Ordering {
    let (l_has, l_min) = (group.satisfied_count(left), group.needed(left));
    let (r_has, r_min) = (group.satisfied_count(right), group.needed(right));
    by_ratio((l_has, l_min), (r_has, r_min))
}

/// The rule of [`by_satisfaction`] on (has, needs) pairs.
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

/// The pods that one placing step of a group is about: a gang's missing minimum, or one pod beyond it.
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
            let wanting =
                set.pods[from.min(set.pods.len())..].iter().filter(|p| selection.selects(cluster, **p));
            pods.extend(wanting.take(most as usize));
        }
        MemberKind::Set { .. } => {
            let children = sorted_children(cluster, registry, group, member);
            if g.is_satisfied(member) {
                // Beyond the minimum: one step is whatever the first member with something to place adds.
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
                // As many ready members as are missing; members that could not reach their minimum are left out,
                // so that nothing is ever placed that cannot become a whole.
                let missing = g.needed(member).saturating_sub(g.satisfied_count(member)) as usize;
                let wanted = children
                    .into_iter()
                    .filter(|c| !g.is_satisfied(*c) && can_complete(cluster, g, *c, selection))
                    .take(missing);
                for child in wanted {
                    collect(cluster, registry, group, child, selection, pods);
                }
            }
        }
    }
}

/// Enough pods want a place for the member to reach its minimum.
fn can_complete(cluster: &Cluster, group: &Group, member: MemberIdx, selection: Selection) -> bool {
    match &group.members[member].kind {
        MemberKind::Pods(set) => {
            let wanting = match selection {
                Selection::Real => set.count(Status::Pending),
                Selection::Simulated => {
                    set.pods.iter().filter(|p| selection.selects(cluster, **p)).count() as u32
                }
            };
            set.active_allocated() + wanting >= set.min
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

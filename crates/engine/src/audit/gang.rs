//! Gangs are placed with at least their minimum, and evictions leave no gang below it.

use super::after::{After, Presence};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::group::{Group, MemberKind};
use crate::ids::{GroupIdx, Idx, IndexVec, MemberIdx, PodIdx};
use std::collections::{BTreeMap, BTreeSet};

/// Pods of one pod set.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Running or bound.
    sure: u32,
    /// Pipelined.
    waiting: u32,
    /// Placed by this cycle.
    new: u32,
}

pub(super) fn check(before: &Cluster, after: &After, findings: &mut Findings) {
    let touched: BTreeSet<GroupIdx> = after.placed(before).filter_map(|h| before.pods[h.pod].group).collect();
    for index in touched {
        let group = &before.groups[index];
        let counts = count(before, after, index, group);
        let key = before.group_key(index);
        let whole = |c: &Count| c.sure + c.waiting;
        if !satisfied(group, Group::root(), &counts, &whole) {
            findings.add(Invariant::Gang, format!("group `{key}` is placed below its minimum"));
        }
        for (member, set) in group.pod_sets() {
            let c = counts[member];
            if c.new > 0 && whole(&c) < set.min {
                let name = before.text(group.members[member].name);
                let what =
                    format!("{} of {} pods of `{name}` in group `{key}` are placed", whole(&c), set.min);
                findings.add(Invariant::Gang, what);
            }
        }
        let binds = after
            .held
            .iter()
            .any(|h| h.presence == Presence::Bound && before.pods[h.pod].group == Some(index));
        if binds && !satisfied(group, Group::root(), &counts, &|c: &Count| c.sure) {
            findings.add(
                Invariant::Gang,
                format!("pods of group `{key}` are bound while its minimum is pipelined"),
            );
        }
    }
}

/// A group that had its minimum still has it, or no pod at all.
pub(super) fn check_losses(before: &Cluster, after: &After, findings: &mut Findings) {
    let victims: BTreeSet<GroupIdx> =
        after.evicted.iter().filter_map(|pod| before.pods[*pod].group).collect();
    for index in victims {
        let group = &before.groups[index];
        let left = count(before, after, index, group);
        let had = tally(before, group, &|pod| before.pods[*pod].state.status.is_active_allocated());
        let whole = |c: &Count| c.sure + c.waiting;
        let key = before.group_key(index);
        let any = group.members.indices().map(|member| whole(&left[member])).sum::<u32>();
        let worked = satisfied(group, Group::root(), &had, &whole);
        if any > 0 && worked && !satisfied(group, Group::root(), &left, &whole) {
            findings.add(
                Invariant::Gang,
                format!("evictions leave {any} pods of group `{key}`, below its minimum"),
            );
        }
        for (member, set) in group.pod_sets() {
            let (had, left) = (whole(&had[member]), whole(&left[member]));
            if left > 0 && had >= set.min && left < set.min {
                let name = before.text(group.members[member].name);
                let what = format!("evictions leave {left} of {} pods of `{name}` in group `{key}`", set.min);
                findings.add(Invariant::Gang, what);
            }
        }
    }
}

/// Whether the pods of a group that pass a test reach its minimum.
pub(super) fn is_satisfied_by(before: &Cluster, group: &Group, test: &dyn Fn(&PodIdx) -> bool) -> bool {
    satisfied(group, Group::root(), &tally(before, group, test), &|count: &Count| count.sure)
}

fn tally(before: &Cluster, group: &Group, test: &dyn Fn(&PodIdx) -> bool) -> IndexVec<MemberIdx, Count> {
    let mut counts = IndexVec::filled(Count::default(), group.members.len());
    for pod in group.pods.iter().filter(|pod| test(pod)) {
        if let Some(member) = before.pods[*pod].member {
            counts[member].sure += 1;
        }
    }
    counts
}

fn count(before: &Cluster, after: &After, index: GroupIdx, group: &Group) -> IndexVec<MemberIdx, Count> {
    let mut counts = IndexVec::filled(Count::default(), group.members.len());
    let mut best: BTreeMap<PodIdx, Presence> = BTreeMap::new();
    for held in after.held.iter().filter(|h| before.pods[h.pod].group == Some(index)) {
        // A moved pod is on two nodes; the new one counts.
        if held.presence != Presence::Released {
            best.insert(held.pod, held.presence);
        }
    }
    for (pod, presence) in best {
        let Some(member) = before.pods[pod].member else { continue };
        // A pod that is stuck or in phase Unknown uses capacity but does not count for the gang.
        if presence == Presence::Stays && !before.pods[pod].state.status.is_active_used() {
            continue;
        }
        let count = &mut counts[member];
        match presence {
            Presence::Stays | Presence::Bound => count.sure += 1,
            Presence::Pipelined => count.waiting += 1,
            Presence::Released => {}
        }
        count.new += u32::from(presence.is_new());
    }
    counts
}

fn satisfied(
    group: &Group,
    member: MemberIdx,
    counts: &IndexVec<MemberIdx, Count>,
    of: &dyn Fn(&Count) -> u32,
) -> bool {
    debug_assert!(member.index() < counts.len(), "one count per member");
    match &group.members[member].kind {
        MemberKind::Pods(set) => of(&counts[member]) >= set.min,
        MemberKind::Set { children, min } => {
            let has = children.iter().filter(|child| satisfied(group, **child, counts, of)).count();
            has >= min.map_or(children.len(), |min| min as usize)
        }
    }
}

//! Reclaim: only queues that are entitled to more take, and only from queues that hold more than they are entitled to.
//!
//! Both queues are judged where their ways from the root part. A queue may lose the part that takes it below what it
//! is entitled to; it may lose nothing after that. The fair shares are those that the outcome reports.

use super::books::{Books, path, side, within};
use super::takings::{Taking, Takings};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::Place;
use crate::ids::{GroupIdx, MemberIdx, PodIdx, QueueIdx};
use crate::policy::Policy;
use crate::resource::{PerResource, QueueResource};
use crate::share::{QueueAmounts, RESOURCES, difference, sum};
use std::collections::BTreeMap;

/// Amounts, and which resources they put at stake.
#[derive(Clone, Copy, Default)]
struct Amount {
    amounts: QueueAmounts,
    at_stake: PerResource<bool>,
}

impl Amount {
    fn add(&mut self, amounts: &QueueAmounts, mig: i64) {
        self.amounts = sum(&self.amounts, amounts);
        // Instances of a GPU alone put no GPUs at stake.
        let mut at_stake = amounts.map(|amount| amount > 0);
        at_stake[QueueResource::Gpu] = amounts[QueueResource::Gpu] > mig;
        self.stake(at_stake);
    }

    fn stake(&mut self, more: PerResource<bool>) {
        for resource in RESOURCES {
            self.at_stake[resource] |= more[resource];
        }
    }
}

pub(super) fn check(
    before: &Cluster,
    policy: &Policy,
    takings: &Takings,
    taking: &Taking,
    findings: &mut Findings,
) {
    let Some(ours) = before.groups[taking.preemptor].queue else { return };
    for &pod in &taking.evicted {
        if before.pods[pod].group.and_then(|g| before.groups[g].queue) == Some(ours) {
            let what = format!("pod `{}` is reclaimed by its own queue", before.pod_key(pod));
            findings.say(Invariant::Reclaim, what);
        }
    }
    let rules = policy.registry.builtin.proportion.filter(|proportion| proportion.rules_reclaim);
    let Some(proportion) = rules else { return };
    if taking.evicted.is_empty() && taking.moved.is_empty() {
        return;
    }
    let asked = asked(before, taking);
    let reclaim = Reclaim { before, taking, ours, asked };
    reclaim.taker(findings);
    let lost = reclaim.lost(takings, policy.params.allow_consolidating_reclaim);
    let by_side = reclaim.victims(&lost, findings);
    reclaim.saturation(&by_side, proportion.saturation_multiplier, findings);
}

fn asked(before: &Cluster, taking: &Taking) -> Amount {
    // Nodes that tell no GPU memory do not count as the smallest.
    let told = before.nodes.iter().filter(|node| node.present && node.gpu_memory.known);
    let least = told.map(|node| node.gpu_memory.mib).filter(|mib| *mib > 100).min();
    let mut asked = Amount::default();
    for &pod in &taking.placed {
        asked.add(&before.asked(pod, least), before.shape(pod).mig_quota);
    }
    asked
}

struct Reclaim<'a> {
    before: &'a Cluster,
    taking: &'a Taking,
    ours: QueueIdx,
    asked: Amount,
}

/// What groups lose for good, in the parts in which it may be lost.
type Lost = BTreeMap<GroupIdx, Vec<Amount>>;

impl Reclaim<'_> {
    fn books(&self) -> &Books {
        &self.taking.books
    }

    fn with_asked(&self, amounts: &QueueAmounts) -> QueueAmounts {
        sum(amounts, &self.asked.amounts)
    }

    /// Whoever takes stays within the fair share, and within the quota with what cannot be evicted.
    fn taker(&self, findings: &mut Findings) {
        let group = self.before.group_key(self.taking.preemptor);
        let wanted = self.with_asked(&self.books().held[self.ours]);
        let share = self.books().share[self.ours];
        if !within(&wanted, &share.map(Some)) {
            findings
                .say(Invariant::Reclaim, format!("group `{group}` reclaims beyond its queue's fair share"));
        }
        if self.before.groups[self.taking.preemptor].preemptible {
            return;
        }
        for queue in path(self.before, self.ours) {
            let fixed = self.with_asked(&self.books().fixed[queue]);
            if !within(&fixed, &self.before.queues[queue].ledger.quota) {
                let name = self.before.text(self.before.queues[queue].name);
                let what = format!(
                    "group `{group}`, which cannot be evicted, reclaims beyond the quota of `{name}`"
                );
                findings.say(Invariant::Reclaim, what);
            }
        }
    }

    /// Pods beyond the minimum of their pod set are lost one by one, the rest of a group together.
    fn lost(&self, takings: &Takings, moving_is_free: bool) -> Lost {
        let mut lost = Lost::new();
        let mut taken: BTreeMap<(GroupIdx, MemberIdx), u32> = BTreeMap::new();
        let mut needed: BTreeMap<GroupIdx, Amount> = BTreeMap::new();
        for &pod in self.taking.evicted.iter().filter(|pod| !(moving_is_free && takings.is_moved(**pod))) {
            let (Some(group), Some(member)) = (self.before.pods[pod].group, self.before.pods[pod].member)
            else {
                continue;
            };
            let minimum = self.before.groups[group].members[member].pod_set().map_or(0, |set| set.min);
            let taken = taken.entry((group, member)).or_default();
            *taken += 1;
            let (amounts, mig) = self.holds(pod);
            if *taken > minimum {
                let mut part = Amount::default();
                part.add(&amounts, mig);
                lost.entry(group).or_default().push(part);
            } else {
                needed.entry(group).or_default().add(&amounts, mig);
            }
        }
        for (group, part) in needed {
            lost.entry(group).or_default().push(part);
        }
        lost
    }

    fn holds(&self, pod: PodIdx) -> (QueueAmounts, i64) {
        let place = self.before.pods[pod].state.place.as_ref();
        let amounts = place.map_or([0; 3], |place| self.before.accepted(pod, &Place::on(place.node)));
        (amounts, self.before.shape(pod).mig_quota)
    }

    /// No queue loses what it is entitled to. Gives back what each side of the tree loses.
    fn victims(&self, lost: &Lost, findings: &mut Findings) -> BTreeMap<QueueIdx, Vec<Amount>> {
        let mut by_side: BTreeMap<QueueIdx, Vec<Amount>> = BTreeMap::new();
        let mut by_queue: BTreeMap<QueueIdx, Vec<Amount>> = BTreeMap::new();
        for (group, parts) in lost {
            let Some(leaf) = self.before.groups[*group].queue else { continue };
            by_side.entry(side(self.before, leaf, self.ours)).or_default().extend(parts);
            for queue in path(self.before, leaf) {
                by_queue.entry(queue).or_default().extend(parts);
            }
        }
        for (&theirs, parts) in &by_side {
            let held = self.books().held[theirs];
            let total = parts.iter().fold([0; 3], |all, part| sum(&all, &part.amounts));
            // In whichever order: one part is the last, and before it there was still too much.
            let last = |part: &Amount| sum(&difference(&held, &total), &part.amounts);
            if !parts.iter().any(|part| self.may_lose(theirs, &last(part))) {
                let name = self.before.text(self.before.queues[theirs].name);
                let group = self.before.group_key(self.taking.preemptor);
                let what = format!("queue `{name}` loses to group `{group}` what it is entitled to");
                findings.say(Invariant::Reclaim, what);
            }
        }
        by_queue
    }

    /// Whether a queue that still holds so much may lose more.
    fn may_lose(&self, theirs: QueueIdx, held: &QueueAmounts) -> bool {
        let ours = side(self.before, self.ours, theirs);
        let queues = &self.before.queues;
        let modest = within(&self.with_asked(&self.books().held[ours]), &queues[ours].ledger.quota);
        !within(held, &self.books().entitled(self.before, theirs))
            || (modest && !within(held, &queues[theirs].ledger.quota))
    }

    /// Nobody ends up further beyond the fair share than a sibling it took from.
    fn saturation(&self, lost: &BTreeMap<QueueIdx, Vec<Amount>>, multiplier: f64, findings: &mut Findings) {
        let mut all = self.asked;
        for part in lost.values().flatten() {
            all.stake(part.at_stake);
        }
        let left = |queue: QueueIdx, r: QueueResource| {
            let gone: i64 =
                lost.get(&queue).map_or(0, |parts| parts.iter().map(|part| part.amounts[r]).sum());
            self.books().held[queue][r] - gone
        };
        for queue in path(self.before, self.ours) {
            let parent = self.before.queues[queue].parent;
            let siblings = lost.keys().filter(|q| **q != queue && self.before.queues[**q].parent == parent);
            for &sibling in siblings {
                for r in RESOURCES.into_iter().filter(|r| all.at_stake[*r]) {
                    let ours = (left(queue, r) + self.asked.amounts[r], self.books().share[queue][r]);
                    let theirs = (left(sibling, r), self.books().share[sibling][r]);
                    if is_worse(ours, theirs, multiplier) {
                        let name = |queue: QueueIdx| self.before.text(self.before.queues[queue].name);
                        let what = format!(
                            "queue `{}` ends further beyond its fair share of {:?} than `{}`, from which it took",
                            name(queue),
                            r,
                            name(sibling)
                        );
                        findings.say(Invariant::Reclaim, what);
                    }
                }
            }
        }
    }
}

/// Whether one is beyond its share and, counted with the multiplier, no less so than the other. Each is what it holds
/// and its share; whoever has no share has nothing to complain about.
fn is_worse(ours: (i64, i64), theirs: (i64, i64), multiplier: f64) -> bool {
    if theirs.1 <= 0 || ours.0 <= ours.1 {
        return false;
    }
    let (one, other) = (i128::from(ours.0) * i128::from(theirs.1), i128::from(theirs.0) * i128::from(ours.1));
    if multiplier > 1.0 { one as f64 * multiplier >= other as f64 } else { one >= other }
}

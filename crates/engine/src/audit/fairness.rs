//! Only queues within their share reclaim, and only from queues above theirs.
//!
//! Both queues are compared at the children of their lowest common ancestor. A queue may lose the portion that takes it
//! below its share, and nothing after that. Fair shares are those that the outcome reports.

use super::eviction_batches::{EvictionBatch, Evictions};
use super::queue_allocation::{QueueAllocation, branch, path, within};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::pod::Place;
use crate::ids::{GroupIdx, MemberIdx, PodIdx, QueueIdx};
use crate::policy::Policy;
use crate::resource::{PerResource, QueueResource};
use crate::share::{QueueAmounts, RESOURCES, difference, sum};
use std::collections::BTreeMap;

/// Amounts with the involved resources.
#[derive(Clone, Copy, Default)]
struct Amount {
    amounts: QueueAmounts,
    involved: PerResource<bool>,
}

impl Amount {
    fn add(&mut self, amounts: &QueueAmounts, mig: i64) {
        self.amounts = sum(&self.amounts, amounts);
        // MIG instances alone do not involve GPUs.
        let mut involved = amounts.map(|amount| amount > 0);
        involved[QueueResource::Gpu] = amounts[QueueResource::Gpu] > mig;
        self.involve(involved);
    }

    fn involve(&mut self, more: PerResource<bool>) {
        for resource in RESOURCES {
            self.involved[resource] |= more[resource];
        }
    }
}

pub(super) fn check(
    before: &Cluster,
    policy: &Policy,
    evictions: &Evictions,
    batch: &EvictionBatch,
    findings: &mut Findings,
) {
    let Some(ours) = before.groups[batch.preemptor].queue else { return };
    for &pod in &batch.evicted {
        if before.pods[pod].group.and_then(|g| before.groups[g].queue) == Some(ours) {
            let what = format!("pod `{}` is reclaimed by its own queue", before.pod_key(pod));
            findings.add(Invariant::Reclaim, what);
        }
    }
    let rules = policy.registry.builtin.proportion.filter(|proportion| proportion.rules_reclaim);
    let Some(proportion) = rules else { return };
    if batch.evicted.is_empty() && batch.moved.is_empty() {
        return;
    }
    let request = requested_amount(before, batch);
    let reclaim = Reclaim { before, batch, ours, request };
    reclaim.reclaimer(findings);
    let lost = reclaim.lost(evictions, policy.params.allow_consolidating_reclaim);
    let by_branch = reclaim.victims(&lost, findings);
    reclaim.saturation(&by_branch, proportion.saturation_multiplier, findings);
}

fn requested_amount(before: &Cluster, batch: &EvictionBatch) -> Amount {
    // Nodes without known GPU memory do not count as the smallest.
    let known = before.nodes.iter().filter(|node| node.present && node.gpu_memory.known);
    let least = known.map(|node| node.gpu_memory.mib).filter(|mib| *mib > 100).min();
    let mut request = Amount::default();
    for &pod in &batch.placed {
        request.add(&before.queue_request(pod, least), before.shape(pod).mig_quota);
    }
    request
}

struct Reclaim<'a> {
    before: &'a Cluster,
    batch: &'a EvictionBatch,
    ours: QueueIdx,
    request: Amount,
}

/// Losses of groups in reclaim portions.
type Losses = BTreeMap<GroupIdx, Vec<Amount>>;

impl Reclaim<'_> {
    fn allocation(&self) -> &QueueAllocation {
        &self.batch.allocation
    }

    fn with_request(&self, amounts: &QueueAmounts) -> QueueAmounts {
        sum(amounts, &self.request.amounts)
    }

    /// The reclaimer stays within its fair share, and within its quota if it is non-preemptible.
    fn reclaimer(&self, findings: &mut Findings) {
        let group = self.before.group_key(self.batch.preemptor);
        let wanted = self.with_request(&self.allocation().held[self.ours]);
        let share = self.allocation().share[self.ours];
        if !within(&wanted, &share.map(Some)) {
            findings
                .add(Invariant::Reclaim, format!("group `{group}` reclaims beyond its queue's fair share"));
        }
        if self.before.groups[self.batch.preemptor].preemptible {
            return;
        }
        for queue in path(self.before, self.ours) {
            let non_preemptible = self.with_request(&self.allocation().non_preemptible[queue]);
            if !within(&non_preemptible, &self.before.queues[queue].ledger.quota) {
                let name = self.before.text(self.before.queues[queue].name);
                let what = format!(
                    "group `{group}`, which is non-preemptible, reclaims beyond the quota of `{name}`"
                );
                findings.add(Invariant::Reclaim, what);
            }
        }
    }

    /// Pods beyond the minimum of their pod set are separate portions; the rest of a group is one portion.
    fn lost(&self, evictions: &Evictions, moves_are_no_loss: bool) -> Losses {
        let mut lost = Losses::new();
        let mut taken: BTreeMap<(GroupIdx, MemberIdx), u32> = BTreeMap::new();
        let mut needed: BTreeMap<GroupIdx, Amount> = BTreeMap::new();
        for &pod in self.batch.evicted.iter().filter(|pod| !(moves_are_no_loss && evictions.is_moved(**pod)))
        {
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

    /// No queue loses what it is entitled to. Returns the losses of each queue.
    fn victims(&self, lost: &Losses, findings: &mut Findings) -> BTreeMap<QueueIdx, Vec<Amount>> {
        let mut by_branch: BTreeMap<QueueIdx, Vec<Amount>> = BTreeMap::new();
        let mut by_queue: BTreeMap<QueueIdx, Vec<Amount>> = BTreeMap::new();
        for (group, parts) in lost {
            let Some(leaf) = self.before.groups[*group].queue else { continue };
            by_branch.entry(branch(self.before, leaf, self.ours)).or_default().extend(parts);
            for queue in path(self.before, leaf) {
                by_queue.entry(queue).or_default().extend(parts);
            }
        }
        for (&theirs, parts) in &by_branch {
            let held = self.allocation().held[theirs];
            let total = parts.iter().fold([0; 3], |all, part| sum(&all, &part.amounts));
            // In any order, one portion is the last, and before it the queue must be above its share.
            let last = |part: &Amount| sum(&difference(&held, &total), &part.amounts);
            if !parts.iter().any(|part| self.may_lose(theirs, &last(part))) {
                let name = self.before.text(self.before.queues[theirs].name);
                let group = self.before.group_key(self.batch.preemptor);
                let what = format!("queue `{name}` loses to group `{group}` what it is entitled to");
                findings.add(Invariant::Reclaim, what);
            }
        }
        by_queue
    }

    /// Whether a queue with this allocation may lose more.
    fn may_lose(&self, theirs: QueueIdx, held: &QueueAmounts) -> bool {
        let ours = branch(self.before, self.ours, theirs);
        let queues = &self.before.queues;
        let within_quota =
            within(&self.with_request(&self.allocation().held[ours]), &queues[ours].ledger.quota);
        !within(held, &self.allocation().entitled(self.before, theirs))
            || (within_quota && !within(held, &queues[theirs].ledger.quota))
    }

    /// No queue ends more saturated than a sibling that lost pods for it.
    fn saturation(&self, lost: &BTreeMap<QueueIdx, Vec<Amount>>, multiplier: f64, findings: &mut Findings) {
        let mut all = self.request;
        for part in lost.values().flatten() {
            all.involve(part.involved);
        }
        let left = |queue: QueueIdx, r: QueueResource| {
            let gone: i64 =
                lost.get(&queue).map_or(0, |parts| parts.iter().map(|part| part.amounts[r]).sum());
            self.allocation().held[queue][r] - gone
        };
        for queue in path(self.before, self.ours) {
            let parent = self.before.queues[queue].parent;
            let siblings = lost.keys().filter(|q| **q != queue && self.before.queues[**q].parent == parent);
            for &sibling in siblings {
                for r in RESOURCES.into_iter().filter(|r| all.involved[*r]) {
                    let ours = (left(queue, r) + self.request.amounts[r], self.allocation().share[queue][r]);
                    let theirs = (left(sibling, r), self.allocation().share[sibling][r]);
                    if is_worse(ours, theirs, multiplier) {
                        let name = |queue: QueueIdx| self.before.text(self.before.queues[queue].name);
                        let what = format!(
                            "queue `{}` ends more saturated in {:?} than `{}`, which lost pods to it",
                            name(queue),
                            r,
                            name(sibling)
                        );
                        findings.add(Invariant::Reclaim, what);
                    }
                }
            }
        }
    }
}

/// Whether a queue is above its share and, with the multiplier, at least as saturated as a sibling that has a share.
/// Both are given as allocation and share.
fn is_worse(ours: (i64, i64), theirs: (i64, i64), multiplier: f64) -> bool {
    if theirs.1 <= 0 || ours.0 <= ours.1 {
        return false;
    }
    let (one, other) = (i128::from(ours.0) * i128::from(theirs.1), i128::from(theirs.0) * i128::from(ours.1));
    if multiplier > 1.0 { one as f64 * multiplier >= other as f64 } else { one >= other }
}

//! Decides which queues may reclaim from which (KAI: `reclaimable`).
//!
//! A queue within its fair share may reclaim from queues above other, compared at the children of their lowest common
//! ancestor. All ledgers are those at the start of the search.
//! Not here: the order of victims, and protection by minimum run time (see [`super::min_runtime`]).

use super::{
    Ledger, Preemptibility, QueueAmounts, QueueTree, RESOURCES, difference, exceeds_somewhere, levelled_pair,
    root_path, sum,
};
use crate::ids::QueueIdx;
use crate::resource::PerResource;
use smallvec::SmallVec;

/// An amount of queue resources with the involved ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimAmount {
    /// The amounts, MIG instances included.
    pub amounts: QueueAmounts,
    /// The resources to compare; MIG instances alone do not involve GPUs.
    pub involved: PerResource<bool>,
}

impl ReclaimAmount {
    /// Amounts of which all resources above 0 are involved.
    pub fn all_involved(amounts: QueueAmounts) -> Self {
        Self { amounts, involved: amounts.map(|amount| amount > 0) }
    }

    fn add(&mut self, other: &ReclaimAmount) {
        self.amounts = sum(&self.amounts, &other.amounts);
        for r in RESOURCES {
            self.involved[r] |= other.involved[r];
        }
    }
}

/// A group that reclaims.
#[derive(Clone, Copy, Debug)]
pub struct Reclaimer {
    /// Its leaf queue.
    pub queue: QueueIdx,
    /// Whether it may be evicted itself.
    pub preemptibility: Preemptibility,
    /// Its request.
    pub request: ReclaimAmount,
}

/// Whether a group may reclaim: with its request the queue stays within its fair share, and within its quota if the
/// group is non-preemptible.
pub fn may_reclaim(ledger: &Ledger, preemptibility: Preemptibility, request: &QueueAmounts) -> bool {
    let within_share =
        RESOURCES.into_iter().all(|r| ledger.allocated[r] + request[r] <= ledger.fair_share[r]);
    within_share
        && match preemptibility {
            Preemptibility::Preemptible => true,
            Preemptibility::NonPreemptible => ledger.np_within_quota(request),
        }
}

/// Whether groups of `victim`'s queue may be victims.
///
/// A queue exactly at its quota is included: its groups may be moved without a loss.
pub fn may_have_victims<T: QueueTree + ?Sized>(tree: &T, reclaimer: &Reclaimer, victim: QueueIdx) -> bool {
    let (reclaimer_queue, victim_queue) = levelled_pair(tree, reclaimer.queue, victim);
    let (reclaimer_queue, victim_queue) = (tree.ledger(reclaimer_queue), tree.ledger(victim_queue));
    let request = &reclaimer.request.amounts;
    if !reclaimer_queue.within_quota(request) {
        return holds_beyond_share(victim_queue, &victim_queue.allocated);
    }
    let (mut above, mut below) = (false, false);
    for r in RESOURCES.into_iter().filter(|&r| request[r] > 0) {
        if let Some(quota) = victim_queue.quota[r] {
            above |= victim_queue.allocated[r] > quota;
            below |= victim_queue.allocated[r] < quota;
        }
    }
    above || !below
}

/// Whether a queue that holds `remaining` is above its allocatable share of some resource.
pub fn holds_beyond_share(victim: &Ledger, remaining: &QueueAmounts) -> bool {
    exceeds_somewhere(remaining, &victim.allocatable_share())
}

/// Whether a queue that holds `remaining` is above its quota of some resource.
pub fn holds_beyond_quota(victim: &Ledger, remaining: &QueueAmounts) -> bool {
    exceeds_somewhere(remaining, &victim.quota)
}

/// Whether a queue that holds `remaining` may lose more to a queue that requests `request`.
///
/// It may when it is above its allocatable share, or above its quota while the reclaimer stays within its own.
pub fn may_lose(
    reclaimer_queue: &Ledger,
    request: &QueueAmounts,
    victim: &Ledger,
    remaining: &QueueAmounts,
) -> bool {
    holds_beyond_share(victim, remaining)
        || (reclaimer_queue.within_quota(request) && holds_beyond_quota(victim, remaining))
}

/// One pod of a victim group.
#[derive(Clone, Copy, Debug)]
pub struct VictimPod {
    /// Index of its pod set in the list of minimums.
    pub pod_set: usize,
    /// Its allocation; `None` if it was moved and is no loss.
    pub holds: Option<ReclaimAmount>,
}

/// The losses of a victim group in portions: each pod beyond the minimum of its pod set alone, then all others
/// together.
pub fn portions(pods: &[VictimPod], minimums: &[u32]) -> SmallVec<[ReclaimAmount; 4]> {
    let mut seen: SmallVec<[u32; 8]> = SmallVec::from_elem(0, minimums.len());
    let mut portions = SmallVec::new();
    let mut core: Option<ReclaimAmount> = None;
    for pod in pods {
        seen[pod.pod_set] += 1;
        let Some(holds) = pod.holds else { continue };
        if seen[pod.pod_set] > minimums[pod.pod_set] {
            portions.push(holds);
        } else {
            core.get_or_insert_default().add(&holds);
        }
    }
    portions.extend(core);
    portions
}

/// Allocation after the losses, for the queues that lost something.
#[derive(Clone, Debug, Default)]
struct Remaining(SmallVec<[(QueueIdx, QueueAmounts); 16]>);

impl Remaining {
    fn get(&self, queue: QueueIdx) -> Option<&QueueAmounts> {
        self.0.iter().find(|(q, _)| *q == queue).map(|(_, amounts)| amounts)
    }

    fn subtract<T: QueueTree + ?Sized>(&mut self, tree: &T, leaf: QueueIdx, amounts: &QueueAmounts) {
        for queue in root_path(tree, leaf) {
            match self.0.iter_mut().find(|(q, _)| *q == queue) {
                Some((_, remaining)) => *remaining = difference(remaining, amounts),
                None => self.0.push((queue, difference(&tree.ledger(queue).allocated, amounts))),
            }
        }
    }
}

/// Whether a reclaimer may cause all `losses`, each a portion of a leaf queue, in this order.
///
/// Every portion must be one that its queue may lose at that point; the last may take it below its share. Afterwards no
/// queue on the reclaimer's path may be more saturated than a sibling that lost something. `multiplier`, at least 1,
/// scales the reclaimer's saturation.
pub fn scenario_is_fair<T: QueueTree + ?Sized>(
    tree: &T,
    reclaimer: &Reclaimer,
    losses: &[(QueueIdx, ReclaimAmount)],
    multiplier: f64,
) -> bool {
    let mut remaining = Remaining::default();
    let mut involved = reclaimer.request.involved;
    for (leaf, portion) in losses {
        let (reclaimer_queue, victim) = levelled_pair(tree, reclaimer.queue, *leaf);
        let ledger = tree.ledger(victim);
        let held = remaining.get(victim).unwrap_or(&ledger.allocated);
        if !may_lose(tree.ledger(reclaimer_queue), &reclaimer.request.amounts, ledger, held) {
            return false;
        }
        remaining.subtract(tree, *leaf, &portion.amounts);
        for (involved, touched) in involved.iter_mut().zip(portion.involved) {
            *involved |= touched;
        }
    }
    stays_less_saturated(tree, reclaimer, &remaining, involved, multiplier)
}

fn stays_less_saturated<T: QueueTree + ?Sized>(
    tree: &T,
    reclaimer: &Reclaimer,
    remaining: &Remaining,
    involved: PerResource<bool>,
    multiplier: f64,
) -> bool {
    let request = &reclaimer.request.amounts;
    root_path(tree, reclaimer.queue).all(|queue| {
        let ledger = tree.ledger(queue);
        let after = sum(remaining.get(queue).unwrap_or(&ledger.allocated), request);
        let parent = tree.parent(queue);
        let mut victims = remaining.0.iter().filter(|(q, _)| *q != queue && tree.parent(*q) == parent);
        let fair = victims.all(|(sibling, left)| {
            let sibling = tree.ledger(*sibling);
            RESOURCES.into_iter().filter(|&r| involved[r]).all(|r| {
                !more_saturated(after[r], ledger.fair_share[r], left[r], sibling.fair_share[r], multiplier)
            })
        });
        let within_quota = match reclaimer.preemptibility {
            Preemptibility::Preemptible => true,
            Preemptibility::NonPreemptible => ledger.np_within_quota(request),
        };
        fair && within_quota
    })
}

/// Whether a queue is above its share and, with the multiplier, at least as saturated as a sibling that has a share.
/// Without a share any allocation is infinitely saturated.
fn more_saturated(allocated: i64, share: i64, left: i64, sibling_share: i64, multiplier: f64) -> bool {
    if sibling_share <= 0 || allocated <= share {
        return false;
    }
    let own = i128::from(allocated) * i128::from(sibling_share);
    let other = i128::from(left) * i128::from(share);
    if multiplier > 1.0 { own as f64 * multiplier >= other as f64 } else { own >= other }
}

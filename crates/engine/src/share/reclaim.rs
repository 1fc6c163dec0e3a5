//! Who may reclaim what from whom.
//!
//! A queue within its fair share may take from queues that hold more than they are entitled to, judged where the
//! ways of both queues from the root part. All numbers are those of the moment the search began.
//! Not here: which victims are tried, and protection by minimum run time (see [`super::min_runtime`]).

use super::{
    Ledger, Preemptibility, QueueAmounts, QueueTree, RESOURCES, difference, exceeds_somewhere, levelled_pair,
    root_path, sum,
};
use crate::ids::QueueIdx;
use crate::resource::PerResource;
use smallvec::SmallVec;

/// An amount of quota together with the resources it touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimAmount {
    /// The amounts as quota counts them, MIG instances included.
    pub amounts: QueueAmounts,
    /// Which resources are at stake; MIG instances alone do not put GPUs at stake.
    pub involved: PerResource<bool>,
}

impl ReclaimAmount {
    /// A claim in which every amount above 0 is at stake.
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

/// A group that wants to reclaim.
#[derive(Clone, Copy, Debug)]
pub struct Reclaimer {
    /// Its leaf queue.
    pub queue: QueueIdx,
    /// Whether it may be evicted itself.
    pub preemptibility: Preemptibility,
    /// What it asks for.
    pub request: ReclaimAmount,
}

/// Whether a group may reclaim at all: with its request its queue stays within its fair share, and within its quota
/// if the group is non-preemptible.
pub fn may_reclaim(ledger: &Ledger, preemptibility: Preemptibility, request: &QueueAmounts) -> bool {
    let within_share =
        RESOURCES.into_iter().all(|r| ledger.allocated[r] + request[r] <= ledger.fair_share[r]);
    within_share
        && match preemptibility {
            Preemptibility::Preemptible => true,
            Preemptibility::NonPreemptible => ledger.np_within_quota(request),
        }
}

/// Whether groups of `victim`'s queue are worth trying as victims.
///
/// A queue exactly at its quota stays: its groups may be moved elsewhere without losing anything.
pub fn may_have_victims<T: QueueTree + ?Sized>(tree: &T, reclaimer: &Reclaimer, victim: QueueIdx) -> bool {
    let (taking, giving) = levelled_pair(tree, reclaimer.queue, victim);
    let (taking, giving) = (tree.ledger(taking), tree.ledger(giving));
    let request = &reclaimer.request.amounts;
    if !taking.within_quota(request) {
        return holds_beyond_share(giving, &giving.allocated);
    }
    let (mut above, mut below) = (false, false);
    for r in RESOURCES.into_iter().filter(|&r| request[r] > 0) {
        if let Some(quota) = giving.quota[r] {
            above |= giving.allocated[r] > quota;
            below |= giving.allocated[r] < quota;
        }
    }
    above || !below
}

/// Whether a queue that still holds `remaining` is beyond its allocatable share of some resource.
pub fn holds_beyond_share(victim: &Ledger, remaining: &QueueAmounts) -> bool {
    exceeds_somewhere(remaining, &victim.allocatable_share())
}

/// Whether a queue that still holds `remaining` is beyond its quota of some resource.
pub fn holds_beyond_quota(victim: &Ledger, remaining: &QueueAmounts) -> bool {
    exceeds_somewhere(remaining, &victim.quota)
}

/// Whether a queue that still holds `remaining` may lose more to a queue that asks for `request`.
///
/// It may when it is beyond its allocatable share, or when it is beyond its quota and the taker stays within its own.
pub fn may_lose(taker: &Ledger, request: &QueueAmounts, victim: &Ledger, remaining: &QueueAmounts) -> bool {
    holds_beyond_share(victim, remaining)
        || (taker.within_quota(request) && holds_beyond_quota(victim, remaining))
}

/// One pod of a victim group.
#[derive(Clone, Copy, Debug)]
pub struct VictimPod {
    /// Its pod set, as a position in the list of minimums.
    pub pod_set: usize,
    /// What it holds; `None` if it got another place and loses nothing.
    pub holds: Option<ReclaimAmount>,
}

/// What a victim group loses, in the portions in which it may lose it: each pod beyond the minimum of its pod set
/// alone, and then all pods that the minimums need together.
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

/// What queues hold after victims were taken from them, for those that lost something.
#[derive(Clone, Debug, Default)]
struct Remaining(SmallVec<[(QueueIdx, QueueAmounts); 16]>);

impl Remaining {
    fn get(&self, queue: QueueIdx) -> Option<&QueueAmounts> {
        self.0.iter().find(|(q, _)| *q == queue).map(|(_, amounts)| amounts)
    }

    fn take<T: QueueTree + ?Sized>(&mut self, tree: &T, leaf: QueueIdx, amounts: &QueueAmounts) {
        for queue in root_path(tree, leaf) {
            match self.0.iter_mut().find(|(q, _)| *q == queue) {
                Some((_, remaining)) => *remaining = difference(remaining, amounts),
                None => self.0.push((queue, difference(&tree.ledger(queue).allocated, amounts))),
            }
        }
    }
}

/// Whether a reclaimer may have all `losses`, each a portion of some leaf queue, in this order.
///
/// Every portion must be one that its queue may lose at that point, though the last may push it below its share.
/// Afterwards no level of the reclaimer's path may be more saturated than a sibling it took from: `multiplier`, at
/// least 1, makes the reclaimer's saturation count for more.
pub fn scenario_is_fair<T: QueueTree + ?Sized>(
    tree: &T,
    reclaimer: &Reclaimer,
    losses: &[(QueueIdx, ReclaimAmount)],
    multiplier: f64,
) -> bool {
    let mut remaining = Remaining::default();
    let mut involved = reclaimer.request.involved;
    for (leaf, portion) in losses {
        let (taker, victim) = levelled_pair(tree, reclaimer.queue, *leaf);
        let ledger = tree.ledger(victim);
        let held = remaining.get(victim).unwrap_or(&ledger.allocated);
        if !may_lose(tree.ledger(taker), &reclaimer.request.amounts, ledger, held) {
            return false;
        }
        remaining.take(tree, *leaf, &portion.amounts);
        for (involved, touched) in involved.iter_mut().zip(portion.involved) {
            *involved |= touched;
        }
    }
    stays_in_bounds(tree, reclaimer, &remaining, involved, multiplier)
}

fn stays_in_bounds<T: QueueTree + ?Sized>(
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
        let mut robbed = remaining.0.iter().filter(|(q, _)| *q != queue && tree.parent(*q) == parent);
        let fair = robbed.all(|(sibling, left)| {
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

/// Whether a queue would be beyond its share and, counted with the multiplier, at least as saturated as a sibling
/// that has a share. Without a share, holding anything is infinite saturation.
fn more_saturated(taken: i64, share: i64, left: i64, sibling_share: i64, multiplier: f64) -> bool {
    if sibling_share <= 0 || taken <= share {
        return false;
    }
    let ours = i128::from(taken) * i128::from(sibling_share);
    let theirs = i128::from(left) * i128::from(share);
    if multiplier > 1.0 { ours as f64 * multiplier >= theirs as f64 } else { ours >= theirs }
}

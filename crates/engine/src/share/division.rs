//! Divides a parent queue's resources among its children.
//!
//! Input: the queues' quotas, limits, weights, usage and requests. Output: one fair share per queue and resource.
//! Every queue gets its quota as far as it requests it, even where that overcommits the parent. The surplus goes to the
//! highest priority in proportion to the weights, in whole units; the rounding remainders are distributed unit by unit,
//! largest first, before a lower priority gets anything.
//! Invariant: no share exceeds the request or the limit of its queue; the result does not depend on the order of the
//! queues.

use super::{Ledger, QueueAmounts, QueueTreeMut, RESOURCES, UNITS};
use crate::ids::QueueIdx;
use crate::resource::QueueResource;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Weights are counted in millionths, so that decimal weights keep their exact proportion.
const WEIGHT_SCALE: f64 = 1e6;
/// Larger weights are capped, so that products with amounts fit into 128 bits.
const WEIGHT_MAX: f64 = 1e12;
/// The largest weight after the correction by usage.
const USAGE_SCALE: f64 = 1e15;

/// One resource of a queue in a division (KAI: `ResourceShare`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceShare {
    /// Guaranteed amount; `None` is unlimited.
    pub quota: Option<i64>,
    /// The request, capped at the limit.
    pub requestable: i64,
    /// Over-quota weight.
    pub weight: f64,
    /// Historical usage as a fraction of the cluster.
    pub usage: f64,
    /// A higher priority comes first.
    pub priority: i32,
    /// Position by (creation, name).
    pub rank: u32,
    /// The share assigned so far.
    pub share: i64,
}

impl ResourceShare {
    /// One resource of a queue, without a share.
    pub fn new(ledger: &Ledger, resource: QueueResource) -> Self {
        Self {
            quota: ledger.quota[resource],
            requestable: ledger.requestable(resource),
            weight: ledger.weight[resource],
            usage: ledger.usage[resource],
            priority: ledger.priority,
            rank: ledger.rank,
            share: 0,
        }
    }

    fn open(&self) -> i64 {
        self.requestable - self.share
    }
}

/// Sets the fair shares of a queue tree, top level first.
///
/// `queues` lists all queues, including each one's parent. A child level divides its parent's share.
pub fn divide_tree<T: QueueTreeMut + ?Sized>(
    tree: &mut T,
    queues: &[QueueIdx],
    total: &QueueAmounts,
    k_value: f64,
) {
    let mut by_parent: Vec<(Option<QueueIdx>, QueueIdx)> =
        queues.iter().map(|&queue| (tree.parent(queue), queue)).collect();
    by_parent.sort_unstable();
    let mut levels: Vec<Option<QueueIdx>> = vec![None];
    let mut shares: Vec<ResourceShare> = Vec::new();
    while let Some(parent) = levels.pop() {
        let from = by_parent.partition_point(|&(p, _)| p < parent);
        let to = by_parent.partition_point(|&(p, _)| p <= parent);
        let members = &by_parent[from..to];
        let amounts = parent.map_or(*total, |queue| tree.ledger(queue).fair_share);
        for resource in RESOURCES {
            shares.clear();
            shares.extend(members.iter().map(|&(_, queue)| ResourceShare::new(tree.ledger(queue), resource)));
            divide(UNITS[resource], amounts[resource], k_value, &mut shares);
            for (&(_, queue), share) in members.iter().zip(&shares) {
                tree.ledger_mut(queue).fair_share[resource] = share.share;
            }
        }
        levels.extend(members.iter().map(|&(_, queue)| Some(queue)));
    }
}

/// Divides `total` of one resource among siblings and returns the unused rest.
pub fn divide(unit: i64, total: i64, k_value: f64, shares: &mut [ResourceShare]) -> i64 {
    let mut left = total;
    for share in &mut *shares {
        let guaranteed = share.quota.unwrap_or(total).min(share.requestable);
        share.share += guaranteed;
        left -= guaranteed;
    }
    if left <= 0 { 0 } else { divide_surplus(unit, left, k_value, shares) }
}

/// Divides the surplus after the quotas by priority and returns the unused rest.
pub fn divide_surplus(unit: i64, surplus: i64, k_value: f64, shares: &mut [ResourceShare]) -> i64 {
    let mut order: SmallVec<[usize; 16]> = (0..shares.len()).collect();
    order.sort_unstable_by_key(|&i| (Reverse(shares[i].priority), shares[i].rank));
    let mut left = surplus;
    let mut from = 0;
    while left > 0 && from < order.len() {
        let priority = shares[order[from]].priority;
        let to = from + order[from..].iter().take_while(|&&i| shares[i].priority == priority).count();
        left = serve_priority(unit, left, k_value, shares, &order[from..to]);
        from = to;
    }
    left
}

/// Divides `left` among the queues of one priority, sorted by rank, and returns the unused rest.
fn serve_priority(
    unit: i64,
    mut left: i64,
    k_value: f64,
    shares: &mut [ResourceShare],
    group: &[usize],
) -> i64 {
    let mut remainders: SmallVec<[f64; 16]> = SmallVec::from_elem(0.0, group.len());
    loop {
        while left > 0 && round(unit, &mut left, k_value, shares, group, &mut remainders) {}
        if left == 0 || !give_remainders(unit, &mut left, shares, group, &mut remainders) {
            return left;
        }
    }
}

/// One round of proportional division; returns whether another one is needed because a queue used less than its
/// proportion.
fn round(
    unit: i64,
    left: &mut i64,
    k_value: f64,
    shares: &mut [ResourceShare],
    group: &[usize],
    remainders: &mut [f64],
) -> bool {
    let weights = effective_weights(k_value, shares, group);
    let weight_sum: i128 = weights.iter().sum();
    if weight_sum == 0 {
        return false;
    }
    let available = i128::from(*left);
    let mut again = false;
    for ((&i, &weight), remainder) in group.iter().zip(&weights).zip(remainders) {
        let share = &mut shares[i];
        let open = share.open();
        if open <= 0 || weight == 0 {
            continue;
        }
        // The queue's proportion is the fraction `proportion / weight_sum`.
        let proportion = available * weight;
        let wanted = i128::from(open) * weight_sum;
        let given = if wanted <= proportion {
            again |= wanted < proportion;
            *remainder = 0.0;
            open
        } else {
            let whole_units = proportion / (weight_sum * i128::from(unit));
            let given = whole_units as i64 * unit;
            let rest = proportion - i128::from(given) * weight_sum;
            if rest > 0 {
                *remainder = rest as f64 / (weight_sum as f64 * unit as f64);
            }
            given
        };
        share.share += given;
        *left -= given;
    }
    again
}

/// Distributes the rounding rest, one unit each, largest remainder first, older queues first among equals.
///
/// Returns whether a queue could not use its whole unit, so that the division must continue.
fn give_remainders(
    unit: i64,
    left: &mut i64,
    shares: &mut [ResourceShare],
    group: &[usize],
    remainders: &mut [f64],
) -> bool {
    let mut order: SmallVec<[usize; 16]> = (0..group.len()).filter(|&at| remainders[at] > 0.0).collect();
    order.sort_by(|&a, &b| remainders[b].total_cmp(&remainders[a]));
    let mut cut = false;
    for at in order {
        if *left <= 0 {
            break;
        }
        let share = &mut shares[group[at]];
        let offered = unit.min(*left);
        let given = offered.min(share.open().max(0));
        cut |= given < offered;
        share.share += given;
        *left -= given;
    }
    remainders.fill(0.0);
    cut
}

/// The weights of this round; 0 for queues whose request is satisfied.
///
/// With usage, the normalised weight n becomes n + k·(n − usage), at least 0; without usage, proportions are exact.
fn effective_weights(k_value: f64, shares: &[ResourceShare], group: &[usize]) -> SmallVec<[i128; 16]> {
    let mut weights: SmallVec<[i128; 16]> =
        group.iter().map(|&i| if shares[i].open() > 0 { fixed(shares[i].weight) } else { 0 }).collect();
    let sum: i128 = weights.iter().sum();
    // Weights are normalised by their sum: a negative sum inverts every sign, and a sum of 0 divides nothing.
    for weight in &mut weights {
        *weight *= sum.signum();
    }
    let sum = sum.abs();
    let used = |&i: &usize| shares[i].usage > 0.0 && shares[i].open() > 0;
    if k_value > 0.0 && group.iter().any(used) {
        correct_by_usage(k_value, sum, shares, group, &mut weights);
    }
    for weight in &mut weights {
        *weight = (*weight).max(0);
    }
    weights
}

fn correct_by_usage(
    k_value: f64,
    sum: i128,
    shares: &[ResourceShare],
    group: &[usize],
    weights: &mut [i128],
) {
    let corrected: SmallVec<[f64; 16]> = group
        .iter()
        .zip(&*weights)
        .map(|(&i, &weight)| {
            let weight = weight as f64;
            if weight == 0.0 { 0.0 } else { weight + k_value * (weight - shares[i].usage * sum as f64) }
        })
        .collect();
    let largest = corrected.iter().copied().fold(0.0, f64::max);
    for (weight, corrected) in weights.iter_mut().zip(corrected) {
        *weight =
            if largest > 0.0 { (corrected.max(0.0) / largest * USAGE_SCALE).round() as i128 } else { 0 };
    }
}

/// The only place where a configured weight is rounded.
fn fixed(weight: f64) -> i128 {
    (weight.clamp(-WEIGHT_MAX, WEIGHT_MAX) * WEIGHT_SCALE).round() as i128
}

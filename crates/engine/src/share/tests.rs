//! Tests of the queue arithmetic.

use super::division::{ResourceShare, divide, divide_tree};
use super::order::{QueueOrderKey, TieBreak, compare, dominant_share};
use super::reclaim::{
    ReclaimAmount, Reclaimer, VictimPod, may_have_victims, may_reclaim, portions, scenario_is_fair,
};
use super::*;
use crate::ids::IndexVec;
use crate::verdict::CapacityRule;
use kai_units::{Span, Timestamp};
use proptest::prelude::*;
use std::cmp::Ordering;

const G: i64 = WHOLE_GPU;

#[derive(Default)]
struct Tree {
    parents: IndexVec<QueueIdx, Option<QueueIdx>>,
    ledgers: IndexVec<QueueIdx, Ledger>,
    preempt: IndexVec<QueueIdx, Option<Span>>,
    reclaim: IndexVec<QueueIdx, Option<Span>>,
}

impl Tree {
    fn add(&mut self, parent: Option<QueueIdx>, ledger: Ledger) -> QueueIdx {
        self.parents.push(parent);
        self.preempt.push(None);
        self.reclaim.push(None);
        self.ledgers.push(ledger)
    }
}

impl QueueTree for Tree {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.parents[queue]
    }
    fn ledger(&self, queue: QueueIdx) -> &Ledger {
        &self.ledgers[queue]
    }
}
impl QueueTreeMut for Tree {
    fn ledger_mut(&mut self, queue: QueueIdx) -> &mut Ledger {
        &mut self.ledgers[queue]
    }
}
impl min_runtime::MinRuntimes for Tree {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.parents[queue]
    }
    fn before_preempt(&self, queue: QueueIdx) -> Option<Span> {
        self.preempt[queue]
    }
    fn before_reclaim(&self, queue: QueueIdx) -> Option<Span> {
        self.reclaim[queue]
    }
}

/// A ledger with GPU numbers only, in devices.
fn gpus(quota: i64, fair: i64, allocated: i64) -> Ledger {
    Ledger {
        quota: [Some(0), Some(0), Some(quota * G)],
        fair_share: [0, 0, fair * G],
        allocated: [0, 0, allocated * G],
        ..Ledger::default()
    }
}

fn resource_share(rank: u32, quota: i64, request: i64, weight: f64) -> ResourceShare {
    ResourceShare {
        quota: Some(quota * G),
        requestable: request * G,
        weight,
        usage: 0.0,
        priority: 100,
        rank,
        share: 0,
    }
}

fn shares(total: i64, mut all: Vec<ResourceShare>) -> Vec<f64> {
    divide(G, total * G, 1.0, &mut all);
    all.iter().map(|s| s.share as f64 / G as f64).collect()
}

#[test]
fn surplus_follows_weights_and_rounds_to_whole_gpus() {
    assert_eq!(shares(8, vec![resource_share(0, 2, 6, 1.0), resource_share(1, 2, 6, 3.0)]), [3.0, 5.0]);
    assert_eq!(shares(11, vec![resource_share(0, 2, 10, 1.0), resource_share(1, 2, 10, 4.0)]), [3.0, 8.0]);
    assert_eq!(shares(11, vec![resource_share(1, 2, 6, 1.0), resource_share(0, 2, 6, 1.0)]), [5.0, 6.0]);
    assert_eq!(
        shares(
            10,
            vec![resource_share(0, 0, 1, 1.0), resource_share(1, 0, 9, 1.0), resource_share(2, 0, 9, 2.0)]
        ),
        [1.0, 3.0, 6.0]
    );
}

#[test]
fn quotas_are_granted_even_beyond_the_total() {
    assert_eq!(shares(4, vec![resource_share(0, 4, 99, 1.0), resource_share(1, 4, 99, 1.0)]), [4.0, 4.0]);
    let unlimited = ResourceShare { quota: None, ..resource_share(0, 0, 99, 1.0) };
    assert_eq!(shares(4, vec![unlimited, resource_share(1, 2, 99, 1.0)]), [4.0, 2.0]);
}

#[test]
fn rounding_remainders_are_capped_at_the_request() {
    let small = ResourceShare { requestable: 3 * G / 2, ..resource_share(0, 0, 0, 1.0) };
    assert_eq!(
        shares(4, vec![small, resource_share(1, 0, 9, 1.0), resource_share(2, 0, 9, 1.0)]),
        [1.5, 1.5, 1.0]
    );
}

#[test]
fn rounding_remainders_stay_within_their_priority() {
    let low = ResourceShare { priority: 50, ..resource_share(2, 0, 9, 1.0) };
    assert_eq!(
        shares(3, vec![resource_share(0, 0, 9, 1.0), resource_share(1, 0, 9, 1.0), low]),
        [2.0, 1.0, 0.0]
    );
    assert_eq!(shares(3, vec![resource_share(0, 0, 9, 0.0), low]), [0.0, 3.0]);
}

#[test]
fn usage_reduces_the_weight_down_to_zero() {
    let with_usage = |rank, usage| ResourceShare { usage, ..resource_share(rank, 0, 99, 1.0) };
    assert_eq!(shares(9, vec![with_usage(0, 0.5), with_usage(1, 0.0)]), [3.0, 6.0]);
    assert_eq!(shares(9, vec![with_usage(0, 1.0), with_usage(1, 1.0)]), [0.0, 0.0]);
}

#[test]
fn negative_sum_of_weights_divides_like_a_positive_one() {
    assert_eq!(shares(6, vec![resource_share(0, 0, 9, -1.0), resource_share(1, 0, 9, -2.0)]), [2.0, 4.0]);
}

#[test]
fn children_divide_their_parents_share() {
    let mut tree = Tree::default();
    let ledger =
        |quota, rank| Ledger { request: [0, 0, 100 * G], weight: [1.0; 3], rank, ..gpus(quota, 0, 0) };
    let d1 = tree.add(None, ledger(3, 0));
    let d2 = tree.add(None, ledger(1, 1));
    let q1 = tree.add(Some(d1), ledger(2, 2));
    let q2 = tree.add(Some(d1), ledger(2, 3));
    let q3 = tree.add(Some(d2), ledger(2, 4));
    divide_tree(&mut tree, &[q3, d2, q1, d1, q2], &[0, 0, 12 * G], 0.0);
    let share = |q| tree.ledger(q).fair_share[2] / G;
    assert_eq!([d1, d2, q1, q2, q3].map(share), [7, 5, 4, 3, 5]);
}

prop_compose! {
    fn any_share()(
        quota in prop::option::weighted(0.9, 0..6_000_000i64),
        requestable in 0..20_000_000i64,
        weight in prop::sample::select(vec![0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 7.0]),
        usage in prop::sample::select(vec![0.0, 0.0, 0.2, 0.9]),
        priority in 0..3i32,
    ) -> ResourceShare {
        ResourceShare { quota, requestable, weight, usage, priority, rank: 0, share: 0 }
    }
}

fn any_shares() -> impl Strategy<Value = Vec<ResourceShare>> {
    prop::collection::vec(any_share(), 1..7).prop_map(|mut all| {
        for (rank, share) in all.iter_mut().enumerate() {
            share.rank = rank as u32;
        }
        all
    })
}

proptest! {
    #[test]
    fn division_conserves_the_total_and_never_exceeds_requests(
        all in any_shares(), total in 0..40_000_000i64, gpu in any::<bool>(), k in 0..3u8,
    ) {
        let unit = if gpu { G } else { 1 };
        let mut divided = all.clone();
        let left = divide(unit, total, f64::from(k), &mut divided);
        let guaranteed: i64 = all.iter().map(|s| s.quota.unwrap_or(total).min(s.requestable)).sum();
        let given: i64 = divided.iter().map(|s| s.share).sum();
        prop_assert_eq!(given + left, total.max(guaranteed));
        for share in &divided {
            prop_assert!(share.share >= 0 && share.share <= share.requestable);
        }
        let unsatisfied = divided.iter().any(|s| s.share < s.requestable && s.weight > 0.0 && s.usage == 0.0);
        prop_assert!(left == 0 || !unsatisfied, "{left} left over although a queue requests it");
    }

    #[test]
    fn lower_priority_gets_surplus_only_after_higher_is_satisfied(
        all in any_shares(), total in 0..40_000_000i64,
    ) {
        let mut divided = all;
        divide(G, total, 0.0, &mut divided);
        for high in divided.iter().filter(|s| s.weight > 0.0 && s.share < s.requestable) {
            for low in divided.iter().filter(|s| s.priority < high.priority) {
                prop_assert_eq!(low.share, low.quota.unwrap_or(total).min(low.requestable));
            }
        }
    }

    #[test]
    fn division_ignores_the_order_of_queues(
        all in any_shares(), total in 0..40_000_000i64, rotation in 0..7usize,
    ) {
        let mut divided = all.clone();
        divide(G, total, 1.0, &mut divided);
        let mut rotated = all;
        rotated.reverse();
        let by = rotation % rotated.len();
        rotated.rotate_left(by);
        divide(G, total, 1.0, &mut rotated);
        rotated.sort_by_key(|s| s.rank);
        prop_assert_eq!(divided, rotated);
    }

    #[test]
    fn larger_weight_never_loses_more_than_a_unit(
        all in any_shares(), total in 0..40_000_000i64, at in 0..7usize,
    ) {
        let at = at % all.len();
        let (mut before, mut after) = (all.clone(), all);
        after[at].weight *= 2.0;
        divide(G, total, 0.0, &mut before);
        divide(G, total, 0.0, &mut after);
        prop_assert!(after[at].share + G >= before[at].share);
    }

    #[test]
    fn equal_queues_differ_by_at_most_a_unit(first in any_share(), count in 1..6u32, total in 0..40_000_000i64) {
        let mut all: Vec<_> = (0..count).map(|rank| ResourceShare { rank, usage: 0.0, ..first }).collect();
        divide(G, total, 1.0, &mut all);
        let shares = || all.iter().map(|s| s.share);
        prop_assert!(shares().max().unwrap() - shares().min().unwrap() <= G);
    }

    #[test]
    fn queue_order_is_antisymmetric(
        numbers in prop::collection::vec((0..5i64, 0..5i64, 0..5i64, 0..5i64, 0..2i32), 2),
    ) {
        let ledgers: Vec<_> = numbers.iter().enumerate().map(|(rank, &(quota, fair, allocated, _, priority))| {
            Ledger { priority, rank: rank as u32, ..gpus(quota, fair, allocated) }
        }).collect();
        let side = |i: usize| QueueOrderKey { ledger: &ledgers[i], request: [0, 0, numbers[i].3 * G], victims: [0; 3], tie_break: TieBreak::by_rank(&ledgers[i]) };
        let total = [0, 0, 9 * G];
        prop_assert_eq!(compare(&side(0), &side(1), &total), compare(&side(1), &side(0), &total).reverse());
        prop_assert_ne!(compare(&side(0), &side(1), &total), Ordering::Equal);
    }
}

#[test]
fn limits_are_checked_on_the_whole_path_before_quotas() {
    let leaf = Ledger { limit: [None, None, Some(3 * G)], ..gpus(1, 0, 2) };
    let root = Ledger { limit: [None, None, Some(2 * G)], ..gpus(5, 0, 2) };
    let path = [leaf, root];
    let check =
        |request: QueueAmounts, preemptibility| capacity_policy::check(path.iter(), &request, preemptibility);
    let found = check([0, 0, G], Preemptibility::NonPreemptible).unwrap();
    assert_eq!((found.level, found.rule, found.bound), (1, CapacityRule::Limit, 2 * G));
    assert_eq!(found.named("root").queue, "root");
    assert_eq!(check([0, 0, 0], Preemptibility::NonPreemptible), None);
    assert_eq!(check([7, 0, 0], Preemptibility::Preemptible), None);
    let found = check([7, 0, 0], Preemptibility::NonPreemptible).unwrap();
    assert_eq!((found.level, found.rule, found.bound), (0, CapacityRule::NonPreemptibleQuota, 0));
}

#[test]
fn queue_with_the_smaller_dominant_share_after_its_request_comes_first() {
    let (q0, q1) = (gpus(3, 0, 0), Ledger { rank: 1, ..gpus(2, 0, 0) });
    let left =
        QueueOrderKey { ledger: &q0, request: [0, 0, G], victims: [0; 3], tie_break: TieBreak::by_rank(&q0) };
    let right =
        QueueOrderKey { ledger: &q1, request: [0, 0, G], victims: [0; 3], tie_break: TieBreak::by_rank(&q1) };
    assert_eq!(compare(&left, &right, &[0, 0, 4 * G]), Ordering::Less);
    assert_eq!(compare(&right, &left, &[0, 0, 4 * G]), Ordering::Greater);
}

#[test]
fn allocation_without_a_share_counts_a_thousandfold() {
    let total = [4000, 8, 4 * G];
    let share = |amounts: QueueAmounts, shares: Bounds| dominant_share(&amounts, &shares, &total).value();
    assert!((share([500, 0, 0], [Some(0), None, None]) - 500_000.0).abs() < 1e-9);
    assert!((share([0, 0, G / 2], [Some(0), None, Some(0)]) - 500.0).abs() < 1e-9);
    assert!((share([1000, 4, G], [Some(2000), None, None]) - 0.5).abs() < 1e-9);
}

#[test]
fn levelled_pair_is_below_the_lowest_common_ancestor() {
    let mut tree = Tree::default();
    let top = tree.add(None, Ledger::default());
    let left = tree.add(Some(top), Ledger::default());
    let right = tree.add(Some(top), Ledger::default());
    let leaf = tree.add(Some(left), Ledger::default());
    let other = tree.add(None, Ledger::default());
    assert_eq!(levelled_pair(&tree, leaf, right), (left, right));
    assert_eq!(levelled_pair(&tree, other, leaf), (other, top));
    assert_eq!(levelled_pair(&tree, leaf, leaf), (leaf, leaf));
    assert_eq!(levelled_pair(&tree, leaf, left), (left, left));
}

fn reclaimer(queue: QueueIdx, devices: i64) -> Reclaimer {
    Reclaimer {
        queue,
        preemptibility: Preemptibility::Preemptible,
        request: ReclaimAmount::all_involved([0, 0, devices * G]),
    }
}

#[test]
fn reclaimer_must_stay_less_saturated_than_its_victims() {
    let mut tree = Tree::default();
    let d1 = tree.add(None, gpus(4, 4, 4));
    let d2 = tree.add(None, gpus(3, 3, 7));
    let p1 = tree.add(Some(d1), gpus(3, 1, 0));
    let p2 = tree.add(Some(d2), gpus(3, 3, 7));
    let losses = [(p2, ReclaimAmount::all_involved([0, 0, G]))];
    assert!(scenario_is_fair(&tree, &reclaimer(p1, 1), &losses, 1.0));
    assert!(!scenario_is_fair(&tree, &reclaimer(p1, 1), &losses, 2.0));
}

#[test]
fn only_the_last_portion_may_take_a_victim_below_its_share() {
    let mut tree = Tree::default();
    let own = tree.add(None, gpus(1, 1, 0));
    let victim = tree.add(None, gpus(1, 1, 2));
    let portion = (victim, ReclaimAmount::all_involved([0, 0, 2 * G]));
    assert!(scenario_is_fair(&tree, &reclaimer(own, 1), &[portion], 1.0));
    assert!(!scenario_is_fair(&tree, &reclaimer(own, 1), &[portion, portion], 1.0));
}

#[test]
fn queue_exactly_at_its_quota_may_have_victims() {
    let mut tree = Tree::default();
    let own = tree.add(None, gpus(4, 4, 0));
    let at_quota = tree.add(None, gpus(2, 4, 2));
    let below = tree.add(None, gpus(4, 4, 2));
    assert!(may_have_victims(&tree, &reclaimer(own, 2), at_quota));
    assert!(!may_have_victims(&tree, &reclaimer(own, 2), below));
    assert!(!may_have_victims(&tree, &reclaimer(own, 5), at_quota));
}

#[test]
fn only_a_queue_within_its_fair_share_may_reclaim() {
    assert!(may_reclaim(&gpus(1, 3, 2), Preemptibility::Preemptible, &[0, 0, G]));
    assert!(!may_reclaim(&gpus(1, 3, 3), Preemptibility::Preemptible, &[0, 0, G]));
    let np = Ledger { allocated_np: [0, 0, G], ..gpus(1, 3, 2) };
    assert!(!may_reclaim(&np, Preemptibility::NonPreemptible, &[0, 0, G]));
}

#[test]
fn pods_beyond_the_minimum_are_separate_portions() {
    let pod = |pod_set, cpu: Option<i64>| VictimPod {
        pod_set,
        holds: cpu.map(|cpu| ReclaimAmount::all_involved([cpu, 0, 0])),
    };
    let pods = [pod(0, Some(1)), pod(0, Some(2)), pod(0, Some(4)), pod(1, Some(8)), pod(0, None)];
    let cpu: Vec<_> = portions(&pods, &[1, 1]).iter().map(|p| p.amounts[0]).collect();
    assert_eq!(cpu, [2, 4, 9]);
    assert!(portions(&[pod(0, None)], &[1]).is_empty());
}

#[test]
fn reclaim_min_runtime_is_resolved_at_the_lowest_common_ancestor() {
    use min_runtime::ReclaimResolution::{LowestCommonAncestor, VictimQueue};
    let mut tree = Tree::default();
    let top = tree.add(None, Ledger::default());
    let left = tree.add(Some(top), Ledger::default());
    let right = tree.add(Some(top), Ledger::default());
    let leaf = tree.add(Some(right), Ledger::default());
    let other = tree.add(None, Ledger::default());
    tree.reclaim[top] = Some(Span::from_secs(1));
    tree.reclaim[leaf] = Some(Span::from_secs(9));
    let span = |how, from, default| {
        min_runtime::before_reclaim(&tree, how, from, leaf, Span::from_secs(default)).0 / 1_000_000
    };
    assert_eq!(span(VictimQueue, left, 5), 9);
    assert_eq!(span(LowestCommonAncestor, left, 5), 1);
    assert_eq!(span(LowestCommonAncestor, other, 5), 1);
    assert_eq!(min_runtime::before_preempt(&tree, leaf, Span::from_secs(5)), Span::from_secs(5));
}

#[test]
fn protection_ends_with_the_span_and_needs_a_start() {
    let now = Timestamp(10_000_000);
    let started = |secs: i64| Some(Timestamp(secs * 1_000_000));
    assert!(min_runtime::is_protected(started(6), Span::from_secs(5), now));
    assert!(!min_runtime::is_protected(started(5), Span::from_secs(5), now));
    assert!(!min_runtime::is_protected(None, Span::from_secs(5), now));
    assert!(min_runtime::breaks_minimum([(3, 1, 2), (3, 2, 2)]));
    assert!(!min_runtime::breaks_minimum([(3, 1, 2)]));
}

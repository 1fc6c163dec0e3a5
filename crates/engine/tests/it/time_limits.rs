//! Maximum run times on random clusters: groups end once, as a whole, and nothing else changes for groups within limits.

use crate::random_clusters::random_cluster;
use kai_engine::audit::audit;
use kai_engine::input::{LimitAction, TimeLimit};
use kai_engine::outcome::{EvictionReason, TIME_LIMIT};
use kai_engine::{Cycle, Decision, Delta, plan};
use kai_testkit::scenario::Scenario;
use kai_units::{Span, Timestamp};
use proptest::prelude::*;
use std::collections::BTreeSet;

const NOW: Timestamp = Timestamp(1_000_000_000_000_000);
const HOUR: i64 = 3_600;

fn ago(hours: i64) -> Timestamp {
    NOW + Span::from_secs(-hours * HOUR)
}

/// Gives groups limits by the bits of a number: within or beyond, preemptible or end.
fn with_limits(scenario: &mut Scenario, bits: u64) {
    let groups = scenario.cluster.deltas.iter_mut();
    let groups = groups.filter_map(|delta| if let Delta::Group(group) = delta { Some(group) } else { None });
    for (at, group) in groups.enumerate() {
        let bits = bits.rotate_right(3 * (at as u32 % 20));
        group.last_start = Some(ago(2));
        let limit = Span::from_secs(if bits & 1 == 0 { HOUR } else { 3 * HOUR });
        let action = if bits & 2 == 0 { LimitAction::End } else { LimitAction::Preemptible };
        group.time_limit = (bits & 4 == 0).then_some(TimeLimit { limit, action, ..TimeLimit::default() });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// No group ends twice, no pod of an ended group is placed again, and the audit accepts every cycle.
    #[test]
    fn groups_end_once_and_are_not_placed_again(text in random_cluster(), bits in any::<u64>()) {
        let mut scenario = Scenario::parse(&text).unwrap();
        with_limits(&mut scenario, bits);
        let (mut objects, policy) = (scenario.cluster.clone(), &scenario.policy);
        let mut cluster = objects.build();
        let (mut ended, mut evicted) = (BTreeSet::new(), BTreeSet::new());
        for seed in 1..6 {
            let outcome = plan(&mut cluster, policy, Cycle { now: NOW, seed });
            let violations = audit(&cluster, policy, &outcome);
            prop_assert!(violations.is_empty(), "{violations:?}\n{text}");
            for notice in &outcome.time_limits.end {
                prop_assert!(ended.insert(notice.group.clone()), "`{}` ends twice\n{text}", notice.group);
            }
            for decision in &outcome.decisions {
                if let Decision::Evict { pod, group, action, why, .. } = decision {
                    let at_limit = *action == TIME_LIMIT;
                    prop_assert_eq!(at_limit, matches!(**why, EvictionReason::TimeLimit { .. }));
                    let is_ended = group.as_ref().is_some_and(|group| ended.contains(group));
                    prop_assert!(!at_limit || is_ended, "`{pod}` is evicted before it was reported\n{text}");
                    prop_assert!(!at_limit || evicted.insert(pod.clone()), "`{pod}` ends twice\n{text}");
                }
            }
            cluster.carry_over(outcome.carry_over.clone());
            for name in objects.apply_decisions(&outcome.decisions) {
                if let Some(pod) = objects.pod_mut(&name) {
                    cluster.apply(Delta::Pod(Box::new(pod.clone())));
                }
            }
            for delta in objects.deltas.iter().filter(|delta| matches!(delta, Delta::Claim(_))) {
                cluster.apply(delta.clone());
            }
            for delta in objects.apply_notices(&outcome.time_limits, NOW) {
                cluster.apply(delta);
            }
        }
    }

    /// A limit that is not reached changes no decision.
    #[test]
    fn limit_that_is_not_reached_changes_nothing(text in random_cluster()) {
        let mut scenario = Scenario::parse(&text).unwrap();
        let before = plan(&mut scenario.cluster.build(), &scenario.policy, Cycle { now: NOW, seed: 1 });
        for delta in &mut scenario.cluster.deltas {
            if let Delta::Group(group) = delta && group.last_start.is_some() {
                group.time_limit = Some(TimeLimit {
                    limit: Span::from_secs(1_000_000 * HOUR),
                    action: LimitAction::End,
                    ..TimeLimit::default()
                });
            }
        }
        let after = plan(&mut scenario.cluster.build(), &scenario.policy, Cycle { now: NOW, seed: 1 });
        prop_assert_eq!(before.hash, after.hash, "{}", text);
    }
}

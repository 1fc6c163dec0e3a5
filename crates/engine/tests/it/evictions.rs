//! Properties of evictions, on random clusters that are nearly full.

use crate::random_clusters::full::{full_cluster, full_cluster_without_time};
use crate::random_clusters::shuffle;
use kai_engine::audit::audit;
use kai_engine::input::Key;
use kai_engine::policy::{Policy, SearchDepth};
use kai_engine::{ClusterState, Cycle, Decision, Delta, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::{Span, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::BTreeSet;

pub(crate) const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };

/// Number of cases with a fixed seed, and again with a random one; overridden by `PROPTEST_CASES`.
const CASES: u32 = 200;

/// Checks a property on random clusters.
pub(crate) fn check_property<S: Strategy<Value = String>>(
    clusters: impl Fn() -> S,
    property: impl Fn(&str) -> Result<(), String>,
) {
    let configured = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = configured.unwrap_or(CASES);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for mut runner in [TestRunner::new_with_rng(config.clone(), same), TestRunner::new(config)] {
        let done = runner.run(&clusters(), |text| property(&text).map_err(TestCaseError::fail));
        if let Err(TestError::Fail(why, text)) = done {
            panic!("{why}\n{text}");
        }
    }
}

/// The audit accepts every cycle; planning twice and planning on a rebuilt cluster give the same decisions.
#[test]
fn every_eviction_is_valid_and_deterministic() {
    check_property(full_cluster, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        scenario.run_cycles(4).map_err(|error| format!("{error:#}"))
    });
}

/// The order of deltas has no influence.
#[test]
fn evictions_do_not_depend_on_the_order_of_deltas() {
    check_property(full_cluster, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let outcome = plan(&mut scenario.cluster.build(), &scenario.policy, CYCLE);
        for seed in 0..4 {
            let mut deltas = scenario.cluster.deltas.clone();
            shuffle(&mut deltas, seed);
            let mut cluster = ClusterState::new();
            for delta in deltas {
                cluster.apply(delta);
            }
            let found = plan(&mut cluster, &scenario.policy, CYCLE);
            if found != outcome {
                return differ(&found, &outcome);
            }
        }
        Ok(())
    });
}

fn differ(found: &Outcome, wanted: &Outcome) -> Result<(), String> {
    Err(format!("{}\nis not\n{}", describe(found), describe(wanted)))
}

/// Without new requests, planning converges: after five cycles plus three per pod, no pod is bound or evicted any more.
/// Until then no pod is evicted twice for the same group.
#[test]
fn planning_converges() {
    check_property(full_cluster_without_time, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let mut test_cluster = scenario.cluster.clone();
        let mut cluster = test_cluster.build();
        let most = 5 + 3 * test_cluster.pods().count();
        let (mut log, mut evicted_before) = (Vec::new(), BTreeSet::new());
        for tick in 0..most {
            let cycle = Cycle { now: CYCLE.now + Span::from_secs(tick as i64), seed: tick as u64 + 1 };
            let outcome = plan(&mut cluster, &scenario.policy, cycle);
            cluster.carry_over(outcome.carry_over.clone());
            for name in test_cluster.apply_decisions(&outcome.decisions) {
                if let Some(pod) = test_cluster.pod_mut(&name) {
                    cluster.apply(Delta::Pod(Box::new(pod.clone())));
                }
            }
            log.push(format!("{tick}: {}", describe(&outcome)));
            for (preemptor, pod) in final_evictions(&outcome) {
                if !evicted_before.insert((preemptor.clone(), pod.clone())) {
                    return Err(format!(
                        "pod `{pod}` is evicted twice for `{preemptor}`:\n{}",
                        log.join("\n")
                    ));
                }
            }
            let is_pipeline = |decision: &Decision| matches!(decision, Decision::Pipeline { .. });
            if outcome.decisions.iter().all(is_pipeline) {
                return Ok(());
            }
        }
        let last = log[log.len().saturating_sub(8)..].join("\n");
        Err(format!("no convergence after {most} cycles:\n{last}"))
    });
}

/// Preemptor and pod of each eviction without a move.
fn final_evictions(outcome: &Outcome) -> Vec<(&Key, &Key)> {
    let moved = |pod: &Key| {
        let has = |d: &Decision| matches!(d, Decision::Pipeline { pod: other, .. } if other == pod);
        outcome.decisions.iter().any(has)
    };
    let mut evictions = Vec::new();
    for decision in &outcome.decisions {
        match decision {
            Decision::Evict { pod, preemptor: Some(preemptor), .. } if !moved(pod) => {
                evictions.push((preemptor, pod));
            }
            Decision::Evict { .. } | Decision::Bind(_) | Decision::Pipeline { .. } => {}
        }
    }
    evictions
}

/// Ranked lists, bounds and signatures give the same evictions as exhaustive evaluation.
#[test]
fn indices_do_not_change_evictions() {
    check_property(full_cluster, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let literal = Policy { literal: true, ..scenario.policy.clone() };
        let literal = plan(&mut scenario.cluster.build(), &literal, CYCLE);
        let outcome = plan(&mut scenario.cluster.build(), &scenario.policy, CYCLE);
        if outcome.decisions == literal.decisions { Ok(()) } else { differ(&outcome, &literal) }
    });
}

/// Every evicted group is needed: restoring its pods with all other decisions unchanged violates an invariant.
#[test]
fn every_victim_is_necessary() {
    check_property(full_cluster, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        if scenario.policy.search == SearchDepth::Kai {
            return Ok(());
        }
        let mut cluster = scenario.cluster.build();
        let outcome = plan(&mut cluster, &scenario.policy, CYCLE);
        for group in victims(&outcome) {
            let mut without = outcome.clone();
            let pods: BTreeSet<Key> = evicted(&outcome, &group);
            without.decisions.retain(|decision| !pods.contains(pod_of(decision)));
            if audit(&cluster, &scenario.policy, &without).is_empty() {
                return Err(format!("group `{group}` is evicted unnecessarily: {}", describe(&outcome)));
            }
        }
        Ok(())
    });
}

/// Groups with pods that are evicted for others.
fn victims(outcome: &Outcome) -> BTreeSet<Key> {
    let group = |decision: &Decision| match decision {
        Decision::Evict { group, preemptor: Some(_), .. } => group.clone(),
        Decision::Evict { .. } | Decision::Bind(_) | Decision::Pipeline { .. } => None,
    };
    outcome.decisions.iter().filter_map(group).collect()
}

fn evicted(outcome: &Outcome, of: &Key) -> BTreeSet<Key> {
    let pod = |decision: &Decision| match decision {
        Decision::Evict { pod, group, .. } if group.as_ref() == Some(of) => Some(pod.clone()),
        Decision::Evict { .. } | Decision::Bind(_) | Decision::Pipeline { .. } => None,
    };
    outcome.decisions.iter().filter_map(pod).collect()
}

fn pod_of(decision: &Decision) -> &Key {
    match decision {
        Decision::Bind(bind) => &bind.pod,
        Decision::Pipeline { pod, .. } | Decision::Evict { pod, .. } => pod,
    }
}

pub(crate) fn describe(outcome: &Outcome) -> String {
    outcome.decisions.iter().map(describe_decision).collect::<Vec<_>>().join(", ")
}

fn describe_decision(decision: &Decision) -> String {
    match decision {
        Decision::Bind(bind) => {
            format!("bind {} to {} {}", bind.pod.name, bind.node, bind.gpu_groups.join("+"))
        }
        Decision::Pipeline { pod, node, action, gpu_groups, moved } => {
            let how = if *moved { "moved" } else { "pipelined" };
            format!("{action}: {} {how} to {node} {}", pod.name, gpu_groups.join("+"))
        }
        Decision::Evict { pod, action, preemptor, .. } => {
            let preemptor = preemptor.as_ref().map_or("none", |group| &group.name);
            format!("{action}: evict {} for {preemptor}", pod.name)
        }
    }
}

/// The generated clusters are useful: every action evicts pods in some of them.
#[test]
fn full_clusters_cause_evictions_of_every_action() {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let counts = std::cell::RefCell::new(std::collections::BTreeMap::<&str, u32>::new());
    runner
        .run(&full_cluster(), |text| {
            let scenario = Scenario::parse(&text).expect("generated scenarios are valid");
            let outcome = plan(&mut scenario.cluster.build(), &scenario.policy, CYCLE);
            let actions: BTreeSet<&str> = outcome
                .decisions
                .iter()
                .filter_map(|d| if let Decision::Evict { action, .. } = d { Some(*action) } else { None })
                .collect();
            for action in actions {
                *counts.borrow_mut().entry(action).or_default() += 1;
            }
            Ok(())
        })
        .expect("single clusters have no assertions");
    let counts = counts.into_inner();
    for action in ["consolidation", "reclaim", "preempt"] {
        assert!(counts.get(action).is_some_and(|count| *count >= 4), "{counts:?}");
    }
}

/// A generator whose first round ends continues after the search of the smallest set failed: one that is cut off after its
/// first scenario places the same groups as one that is not.
#[test]
fn end_of_a_first_round_prevents_no_placement() {
    check_property(full_cluster, |text| {
        // With a single group that has pending pods, no decision for another one makes a difference.
        let is_alone = |line: &&str| {
            let runs = line.matches("pods=").count() == line.matches("running@").count();
            !line.starts_with("groups") || line.starts_with("groups   w0") || runs
        };
        let text = text.lines().filter(is_alone).collect::<Vec<_>>().join("\n");
        let scenario = Scenario::parse(&text).map_err(|error| format!("{error:#}"))?;
        let placed = |first_round_steps: u64| {
            let policy = Policy { first_round_steps, ..scenario.policy.clone() };
            let mut cluster = scenario.cluster.build();
            let outcome = plan(&mut cluster, &policy, CYCLE);
            let invalid = audit(&cluster, &policy, &outcome);
            let is_new = |decision: &&Decision| {
                !matches!(decision, Decision::Evict { .. } | Decision::Pipeline { moved: true, .. })
                    && pod_of(decision).name.starts_with("w0")
            };
            (outcome.decisions.iter().any(|decision| is_new(&decision)), invalid)
        };
        let ((cut, invalid), (whole, _)) = (placed(0), placed(u64::MAX));
        if !invalid.is_empty() {
            return Err(format!("{invalid:?}"));
        }
        if cut == whole {
            Ok(())
        } else {
            Err(format!("placed: {cut}, and {whole} without a first round\n{text}"))
        }
    });
}

//! Laws of evictions, on clusters that are full.

use crate::worlds::crowded::{crowded, timeless};
use crate::worlds::shuffle;
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

/// Cases with the same seed every time, and as many with a fresh one; `PROPTEST_CASES` asks for another number.
const CASES: u32 = 200;

/// Holds a law on random worlds.
pub(crate) fn hold<S: Strategy<Value = String>>(
    worlds: impl Fn() -> S,
    law: impl Fn(&str) -> Result<(), String>,
) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(CASES);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for mut runner in [TestRunner::new_with_rng(config.clone(), same), TestRunner::new(config)] {
        let done = runner.run(&worlds(), |text| law(&text).map_err(TestCaseError::fail));
        if let Err(TestError::Fail(why, text)) = done {
            panic!("{why}\n{text}");
        }
    }
}

/// The audit finds nothing, planning twice and planning on a rebuilt cluster decide the same, cycle after cycle.
#[test]
fn every_eviction_is_lawful_and_repeatable() {
    hold(crowded, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        scenario.run_cycles(4).map_err(|error| format!("{error:#}"))
    });
}

/// The order in which objects arrive does not matter.
#[test]
fn any_order_of_deltas_evicts_the_same() {
    hold(crowded, |text| {
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
    Err(format!("{}\nis not\n{}", words(found), words(wanted)))
}

/// Where nothing new is asked for, the cluster comes to rest: after five cycles and three for every pod, nobody is
/// bound or evicted any more. Until then nobody loses a pod twice to the same group.
#[test]
fn the_cluster_comes_to_rest() {
    hold(timeless, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let mut world = scenario.cluster.clone();
        let mut cluster = world.build();
        let most = 5 + 3 * world.pods().count();
        let (mut told, mut taken) = (Vec::new(), BTreeSet::new());
        for tick in 0..most {
            let cycle = Cycle { now: CYCLE.now + Span::from_secs(tick as i64), seed: tick as u64 + 1 };
            let outcome = plan(&mut cluster, &scenario.policy, cycle);
            cluster.carry_over(outcome.carry_over.clone());
            for name in world.apply_decisions(&outcome.decisions) {
                if let Some(pod) = world.pod_mut(&name) {
                    cluster.apply(Delta::Pod(Box::new(pod.clone())));
                }
            }
            told.push(format!("{tick}: {}", words(&outcome)));
            for (taker, pod) in takings(&outcome) {
                if !taken.insert((taker.clone(), pod.clone())) {
                    return Err(format!("pod `{pod}` is evicted twice for `{taker}`:\n{}", told.join("\n")));
                }
            }
            let waits = |decision: &Decision| matches!(decision, Decision::Pipeline { .. });
            if outcome.decisions.iter().all(waits) {
                return Ok(());
            }
        }
        let last = told[told.len().saturating_sub(8)..].join("\n");
        Err(format!("after {most} cycles it still goes on:\n{last}"))
    });
}

/// Who lost which pod for good.
fn takings(outcome: &Outcome) -> Vec<(&Key, &Key)> {
    let moved = |pod: &Key| {
        let has = |d: &Decision| matches!(d, Decision::Pipeline { pod: other, .. } if other == pod);
        outcome.decisions.iter().any(has)
    };
    let mut takings = Vec::new();
    for decision in &outcome.decisions {
        match decision {
            Decision::Evict { pod, preemptor: Some(taker), .. } if !moved(pod) => takings.push((taker, pod)),
            Decision::Evict { .. } | Decision::Bind(_) | Decision::Pipeline { .. } => {}
        }
    }
    takings
}

/// Ranked lists, bounds and remembered failures evict whom trying everything evicts.
#[test]
fn indices_change_no_eviction() {
    hold(crowded, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let literal = Policy { literal: true, ..scenario.policy.clone() };
        let literal = plan(&mut scenario.cluster.build(), &literal, CYCLE);
        let outcome = plan(&mut scenario.cluster.build(), &scenario.policy, CYCLE);
        if outcome.decisions == literal.decisions { Ok(()) } else { differ(&outcome, &literal) }
    });
}

/// A group that gives way does so for a reason: with its pods where they were and everything else as decided, there
/// is no room, or some rule is broken.
#[test]
fn every_victim_is_necessary() {
    hold(crowded, |text| {
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
                return Err(format!("group `{group}` need not give way: {}", words(&outcome)));
            }
        }
        Ok(())
    });
}

/// Groups that lose pods to others.
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

pub(crate) fn words(outcome: &Outcome) -> String {
    outcome.decisions.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A decision in short.
fn word(decision: &Decision) -> String {
    match decision {
        Decision::Bind(bind) => {
            format!("bind {} to {} {}", bind.pod.name, bind.node, bind.gpu_groups.join("+"))
        }
        Decision::Pipeline { pod, node, action, gpu_groups, moved } => {
            let how = if *moved { "moves" } else { "waits" };
            format!("{action}: {} {how} to {node} {}", pod.name, gpu_groups.join("+"))
        }
        Decision::Evict { pod, action, preemptor, .. } => {
            let preemptor = preemptor.as_ref().map_or("nobody", |group| &group.name);
            format!("{action}: evict {} for {preemptor}", pod.name)
        }
    }
}

/// The worlds are what they are meant to be: every action makes somebody give way in some of them.
#[test]
fn crowded_worlds_evict() {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let counts = std::cell::RefCell::new(std::collections::BTreeMap::<&str, u32>::new());
    runner
        .run(&crowded(), |text| {
            let scenario = Scenario::parse(&text).expect("worlds are well-formed");
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
        .expect("nothing is asserted of single worlds");
    let counts = counts.into_inner();
    for action in ["consolidation", "reclaim", "preempt"] {
        assert!(counts.get(action).is_some_and(|count| *count >= 4), "{counts:?}");
    }
}

//! Custom victim filters, validators and scenario generators.

use kai_engine::cluster::Cluster;
use kai_engine::ids::{GroupIdx, PodIdx};
use kai_engine::outcome::Cause;
use kai_engine::plugin::{Generator, ScenarioGenerator, Validator, VictimBatch, VictimFilter};
use kai_engine::policy::{Policy, SearchDepth};
use kai_engine::verdict::{EvictionFailureReason, ScenarioRejection, Verdict};
use kai_engine::{Cycle, Decision, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;
use std::sync::Arc;

const CLUSTER: &str = "nodes n1 gpu=1 | n2 gpu=1\nqueues q quota=none\n\
    groups old queue=q pods=1x{gpu=1} running@n1\n young queue=q pods=1x{gpu=1} running@n2\n \
    want queue=q priority=75 pods=1x{gpu=1}";

struct ExcludeGroup(&'static str);

impl VictimFilter for ExcludeGroup {
    fn may_be_victim(&self, cluster: &Cluster, _: Cause, _: GroupIdx, victim: GroupIdx) -> bool {
        cluster.group_key(victim).name != self.0
    }
}

struct RejectAll;

impl Validator for RejectAll {
    fn accepts(&self, _: &Cluster, _: Cause, _: GroupIdx, _: &[PodIdx]) -> Result<(), String> {
        Err("not today".to_owned())
    }
}

/// Proposes an index out of range, then the last batch.
struct LastFirst;

impl ScenarioGenerator for LastFirst {
    fn name(&self) -> &'static str {
        "LastFirst"
    }
    fn propose(&self, _: &Cluster, _: GroupIdx, _: &[PodIdx], batches: &[VictimBatch]) -> Vec<Vec<usize>> {
        vec![vec![batches.len()], vec![batches.len() - 1]]
    }
}

fn planned(edit: impl FnOnce(&mut Policy)) -> Outcome {
    let scenario = Scenario::parse(CLUSTER).expect("the scenario is valid");
    let mut policy = scenario.policy.clone();
    edit(&mut policy);
    plan(&mut scenario.cluster.build(), &policy, Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 })
}

fn evicted(outcome: &Outcome) -> Vec<&str> {
    let pod = |decision: &'_ Decision| matches!(decision, Decision::Evict { .. });
    let evictions = outcome.decisions.iter().filter(|decision| pod(decision));
    evictions.map(|d| if let Decision::Evict { pod, .. } = d { pod.name.as_str() } else { "" }).collect()
}

#[test]
fn victim_filter_excludes_a_group() {
    assert_eq!(evicted(&planned(|_| {})), ["young-0"]);
    let filtered = planned(|policy| policy.registry.victim_filters.push(Arc::new(ExcludeGroup("young"))));
    assert_eq!(evicted(&filtered), ["old-0"]);
}

#[test]
fn validator_rejects_with_its_own_message() {
    let outcome = planned(|policy| policy.registry.validators.push(Arc::new(RejectAll)));
    assert!(evicted(&outcome).is_empty());
    let message = outcome.verdicts.iter().flat_map(|verdict| &verdict.further).find_map(|verdict| {
        let Verdict::NoVictims(failure) = verdict else { return None };
        let EvictionFailureReason::NoValidScenario { refused: Some(refused), .. } = &failure.reason else {
            return None;
        };
        if let ScenarioRejection::Plugin(message) = refused { Some(message.clone()) } else { None }
    });
    assert_eq!(message.as_deref(), Some("not today"));
}

#[test]
fn generator_selects_the_victims() {
    let outcome = planned(|policy| {
        policy.registry.generators = vec![Generator::Custom(Arc::new(LastFirst))];
        policy.search = SearchDepth::Kai;
    });
    assert_eq!(evicted(&outcome), ["old-0"]);
}

#[test]
fn without_generators_no_pod_is_evicted() {
    let outcome = planned(|policy| {
        policy.registry.generators.clear();
        policy.search = SearchDepth::Kai;
    });
    assert!(evicted(&outcome).is_empty());
}

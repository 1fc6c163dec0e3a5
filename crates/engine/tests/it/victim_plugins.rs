//! What a user's plugin can say about evictions.

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

const WORLD: &str = "nodes n1 gpu=1 | n2 gpu=1\nqueues q quota=none\n\
    groups old queue=q pods=1x{gpu=1} running@n1\n young queue=q pods=1x{gpu=1} running@n2\n \
    want queue=q priority=75 pods=1x{gpu=1}";

struct Spare(&'static str);

impl VictimFilter for Spare {
    fn may_be_victim(&self, cluster: &Cluster, _: Cause, _: GroupIdx, victim: GroupIdx) -> bool {
        cluster.group_key(victim).name != self.0
    }
}

struct NotToday;

impl Validator for NotToday {
    fn accepts(&self, _: &Cluster, _: Cause, _: GroupIdx, _: &[PodIdx]) -> Result<(), String> {
        Err("not today".to_owned())
    }
}

/// Proposes the last batch, and one that does not exist.
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
    let scenario = Scenario::parse(WORLD).expect("the world reads");
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
fn a_filter_spares_a_group() {
    assert_eq!(evicted(&planned(|_| {})), ["young-0"]);
    let spared = planned(|policy| policy.registry.victim_filters.push(Arc::new(Spare("young"))));
    assert_eq!(evicted(&spared), ["old-0"]);
}

#[test]
fn a_validator_forbids_with_its_own_words() {
    let outcome = planned(|policy| policy.registry.validators.push(Arc::new(NotToday)));
    assert!(evicted(&outcome).is_empty());
    let words = outcome.verdicts.iter().flat_map(|verdict| &verdict.further).find_map(|verdict| {
        let Verdict::NoVictims(miss) = verdict else { return None };
        let EvictionFailureReason::NoValidScenario { refused: Some(refused), .. } = &miss.reason else {
            return None;
        };
        if let ScenarioRejection::Plugin(words) = refused { Some(words.clone()) } else { None }
    });
    assert_eq!(words.as_deref(), Some("not today"));
}

#[test]
fn a_generator_chooses_the_victims() {
    let outcome = planned(|policy| {
        policy.registry.generators = vec![Generator::Custom(Arc::new(LastFirst))];
        policy.search = SearchDepth::Kai;
    });
    assert_eq!(evicted(&outcome), ["old-0"]);
}

#[test]
fn without_generators_nobody_is_evicted() {
    let outcome = planned(|policy| {
        policy.registry.generators.clear();
        policy.search = SearchDepth::Kai;
    });
    assert!(evicted(&outcome).is_empty());
}

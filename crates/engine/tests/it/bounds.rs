//! Bounds that fail a search early, from the sums of free and evictable resources.

use crate::evictions::check_property;
use crate::random_clusters::full::full_cluster;
use kai_engine::explain::failed_actions;
use kai_engine::observer::{Attempt, Observer};
use kai_engine::policy::Policy;
use kai_engine::{Cycle, Decision, Outcome, plan, plan_observed};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };

/// The outcomes with and without bounds.
fn outcomes(text: &str) -> [Outcome; 2] {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    [false, true].map(|literal| {
        let policy = Policy { literal, ..scenario.policy.clone() };
        plan(&mut scenario.cluster.build(), &policy, CYCLE)
    })
}

/// Why no pod is evicted for the group `want`; the decisions without bounds are the same.
fn failures(text: &str) -> Vec<String> {
    let [outcome, literal] = outcomes(text);
    assert_eq!(outcome.decisions, literal.decisions);
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group.name == "want");
    let verdict = verdict.expect("the group is pending");
    failed_actions(verdict).into_iter().map(|failed| failed.sentence.text).collect()
}

#[test]
fn domain_is_too_small_with_all_candidates_evicted() {
    let text = "policy actions=allocate+reclaim\n\
                topologies dc rack\n\
                nodes n1..n2 gpu=4 rack=a | n3 gpu=4 rack=b\n\
                queues full quota=0 | poor quota=12\n\
                groups held queue=full pods=2x{gpu=4} running@{n1,n3}\n \
                       fixed queue=full preemptible=no pods=1x{gpu=2} running@n2\n \
                       want queue=poor topology=dc:required=rack min=2 pods=2x{gpu=4}";
    assert_eq!(
        failures(text),
        [
            "no reclaim: its pods require one `rack`; with all candidates evicted, `a` would have 6 of the 8 GPUs \
             that they request, and no other domain more"
        ]
    );
}

#[test]
fn domain_with_insufficient_cpu_is_too_small() {
    let text = "policy actions=allocate+preempt\n\
                topologies dc rack\n\
                nodes n1..n2 gpu=4 cpu=8 rack=a\n\
                queues team quota=8\n\
                groups held queue=team priority=50 pods=2x{gpu=2,cpu=4} running@{n1,n2}\n \
                       want queue=team priority=75 topology=dc:required=rack min=3 pods=3x{gpu=1,cpu=6}";
    // The cluster has 16 cores in total, so that the bound of the whole cluster applies first.
    assert_eq!(
        failures(text),
        ["no preemption: 10 CPU cores would have to be freed in queue `team`; only 8 are preemptible"]
    );
    let wider = text.replace("rack=a\n", "rack=a | n3 gpu=4 cpu=8 rack=b\n");
    assert_eq!(
        failures(&wider),
        [
            "no preemption: its pods require one `rack`; with all candidates evicted, `a` would have 16 of the 18 CPU cores \
             that they request, and no other domain more"
        ]
    );
}

#[test]
fn only_the_domain_of_the_running_gang_counts() {
    let text = "policy actions=allocate+reclaim\n\
                topologies dc rack\n\
                nodes n1 gpu=4 rack=a | n2 gpu=8 rack=b\n\
                queues full quota=0 | poor quota=12\n\
                groups held queue=full pods=2x{gpu=4} running@n2\n \
                       want queue=poor topology=dc:required=rack min=1 pods=1x{gpu=3} running@n1 pods=1x{gpu=3}";
    assert_eq!(
        failures(text),
        [
            "no reclaim: its pods require one `rack`; with all candidates evicted, `a` would have 1 of the 3 GPUs \
             that they request, and no other domain more"
        ]
    );
}

#[test]
fn insufficient_memory_is_reported_with_amounts() {
    let text = "policy actions=allocate+reclaim\n\
                nodes n1..n2 cpu=8 mem=8\n\
                queues full quota=0 mem.quota=0 | poor quota=0 mem.quota=none\n\
                groups held queue=full pods=1x{cpu=1,mem=4} running@n1\n \
                       fixed queue=full preemptible=no pods=1x{cpu=1,mem=6} running@n2\n \
                       want queue=poor min=2 pods=2x{cpu=1,mem=6}";
    let found = failures(text);
    assert!(found[0].starts_with("no reclaim: "), "{found:?}");
    assert!(
        found[0].contains(
            "GB of memory would have to be freed in queues above their fair share; only 4.294 are reclaimable"
        ),
        "{found:?}"
    );
}

#[test]
fn consolidation_needs_free_cpu() {
    let text = "policy actions=allocate+consolidation\n\
                nodes n1..n2 gpu=2 cpu=8\n\
                queues team quota=4\n\
                groups held queue=team pods=2x{gpu=1,cpu=6} running@{n1,n2}\n \
                       want queue=team pods=1x{gpu=2,cpu=5}";
    assert_eq!(failures(text), ["no consolidation: 5 CPU cores requested, and only 4 are free in total"]);
}

#[test]
fn extended_resources_are_bounds() {
    let text = "policy actions=allocate+preempt\n\
                nodes n1..n2 gpu=2 res:example.com/nic=2\n\
                queues team quota=4\n\
                groups held queue=team priority=50 pods=1x{gpu=1,res:example.com/nic=1} running@n1\n \
                       fixed queue=team priority=100 preemptible=no pods=1x{gpu=1,res:example.com/nic=2} running@n2\n \
                       want queue=team priority=75 min=2 pods=2x{gpu=1,res:example.com/nic=2}";
    assert_eq!(
        failures(text),
        ["no preemption: 3 of `example.com/nic` would have to be freed; only 1 is evictable"]
    );
}

/// Counts the scenarios that a cycle simulates.
#[derive(Default)]
struct Simulated(u32);

impl Observer for Simulated {
    fn generator_ended(&mut self, attempt: &Attempt<'_>) {
        self.0 += attempt.scenarios.simulated;
    }
}

fn simulated(text: &str) -> u32 {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let mut simulated = Simulated::default();
    plan_observed(&mut scenario.cluster.build(), &scenario.policy, CYCLE, &mut simulated);
    simulated.0
}

/// Twenty nodes that the pending pod may not use come first in victim order, then the one that it may use.
fn behind_a_node_selector(preemptible: &str) -> String {
    let held: Vec<String> =
        (0..20).map(|at| format!("held{at} queue=full pods=1x{{gpu=1}} running@n{at}")).collect();
    format!(
        "policy actions=allocate+reclaim\n\
         nodes n0..n19 gpu=1 pool=many | n20 gpu=1 pool=few\n\
         queues full quota=0 | poor quota=1\n\
         groups fixed queue=full preemptible={preemptible} pods=1x{{gpu=1}} running@n20\n {}\n \
                want queue=poor pods=1x{{gpu=1,select:pool=few}}",
        held.join("\n ")
    )
}

#[test]
fn gpus_on_nodes_that_the_pod_may_not_use_are_no_help() {
    let text = behind_a_node_selector("no");
    assert_eq!(
        failures(&text),
        ["no reclaim: with all candidates evicted, no node that its pod may use would have 1 GPU for it"]
    );
    assert_eq!(simulated(&text), 0);
}

#[test]
fn victims_on_nodes_that_the_pod_may_not_use_are_not_simulated() {
    let text = behind_a_node_selector("yes");
    let [outcome, literal] = outcomes(&text);
    assert_eq!(outcome.decisions, literal.decisions);
    let evicted =
        |decision: &Decision| matches!(decision, Decision::Evict { pod, .. } if pod.name == "fixed-0");
    assert!(outcome.decisions.iter().any(evicted), "{:?}", outcome.decisions);
    assert!(simulated(&text) <= 2, "the node that the pod may use, once for each probe");
}

/// `w0` gets two GPUs, and half a GPU moves to a releasing one. The remainder of that GPU is not idle for `w1`, but its
/// eviction frees the whole GPU.
#[test]
fn evicting_a_pipelined_fraction_frees_the_whole_gpu() {
    let text = "nodes n0 gpu=2 gpumem=40000 | n1 gpu=4 gpumem=40000 | n2 gpu=1 gpumem=40000\n\
                queues d0 quota=2 | d1 quota=0 | d0/q0 quota=0 weight=0 | d1/q1 quota=0 weight=0 | d0/q2 quota=3 weight=0\n\
                budgets calm covers=app:calm allows=0\n\
                groups h0 queue=d1/q1 priority=50 min=2 started=10s pods=2x{gpu=0.5} running@{n0#0,n1#0}\n \
                       h1 queue=d0/q0 priority=50 started=10s pods=1x{gpu=1} running@n0\n \
                       h2 queue=d1/q1 priority=50 started=10s pods=1x{gpu=2,label:app=calm} running@n1\n \
                       h3 queue=d0/q0 priority=50 min=2 started=10s pods=2x{gpu=1} running@{n1,n2}\n \
                       h4 queue=d0/q0 priority=50 started=10s pods=1x{gpu=0.5,label:app=calm} running@n0#0\n \
                       w0 queue=d0/q2 priority=50 pods=1x{gpu=2}\n \
                       w1 queue=d1/q1 priority=75 pods=1x{gpu=1}";
    let [outcome, literal] = outcomes(text);
    assert_eq!(outcome.decisions, literal.decisions);
    let is_placed =
        |decision: &Decision| matches!(decision, Decision::Pipeline { pod, .. } if pod.name == "w1-0");
    assert!(outcome.decisions.iter().any(is_placed), "{:?}", outcome.decisions);
}

/// A search finds no victims where a bound fails, on random clusters with many evictions.
#[test]
fn bounds_do_not_change_decisions() {
    check_property(full_cluster, |text| {
        let [bounded, literal] = outcomes(text).map(|outcome| outcome.decisions);
        if bounded == literal { Ok(()) } else { Err(format!("{bounded:?}\nwithout bounds {literal:?}")) }
    });
}

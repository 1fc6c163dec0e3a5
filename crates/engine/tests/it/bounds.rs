//! Refusals before any search: sums of what is free and what may be evicted, with their numbers.

use crate::evictions::hold;
use crate::worlds::crowded::crowded;
use kai_engine::explain::failed_actions;
use kai_engine::policy::Policy;
use kai_engine::{Cycle, Decision, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };

/// What is decided with bounds, and without.
fn decided(text: &str) -> [Outcome; 2] {
    let scenario = Scenario::parse(text).expect("the world reads");
    [false, true].map(|literal| {
        let policy = Policy { literal, ..scenario.policy.clone() };
        plan(&mut scenario.cluster.build(), &policy, CYCLE)
    })
}

/// Why nobody is evicted for the group `want`; without bounds nobody is, either.
fn refused(text: &str) -> Vec<String> {
    let [outcome, literal] = decided(text);
    assert_eq!(outcome.decisions, literal.decisions);
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group.name == "want");
    let verdict = verdict.expect("the group waits");
    failed_actions(verdict).into_iter().map(|refusal| refusal.sentence.text).collect()
}

#[test]
fn a_domain_is_too_small_for_a_gang_whoever_leaves() {
    let text = "policy actions=allocate+reclaim\n\
                topologies dc rack\n\
                nodes n1..n2 gpu=4 rack=a | n3 gpu=4 rack=b\n\
                queues full quota=0 | poor quota=12\n\
                groups held queue=full pods=2x{gpu=4} running@{n1,n3}\n \
                       fixed queue=full preemptible=no pods=1x{gpu=2} running@n2\n \
                       want queue=poor topology=dc:required=rack min=2 pods=2x{gpu=4}";
    assert_eq!(
        refused(text),
        [
            "no reclaim: its pods belong in one `rack`; even with everybody gone who may be evicted, `a` would have 6 of \
          the 8 GPUs that they need, and no other one more"
        ]
    );
}

#[test]
fn a_domain_with_too_little_cpu_is_too_small_as_well() {
    let text = "policy actions=allocate+preempt\n\
                topologies dc rack\n\
                nodes n1..n2 gpu=4 cpu=8 rack=a\n\
                queues team quota=8\n\
                groups held queue=team priority=50 pods=2x{gpu=2,cpu=4} running@{n1,n2}\n \
                       want queue=team priority=75 topology=dc:required=rack min=3 pods=3x{gpu=1,cpu=6}";
    // All together have 16 cores, so that the bound of the whole cluster speaks first.
    assert_eq!(
        refused(text),
        ["no preemption: it would need 10 CPU cores from its own queue `team`; only 8 are preemptible"]
    );
    let wider = text.replace("rack=a\n", "rack=a | n3 gpu=4 cpu=8 rack=b\n");
    assert_eq!(
        refused(&wider),
        [
            "no preemption: its pods belong in one `rack`; even with everybody gone who may be evicted, `a` would have 16 of \
          the 18 CPU cores that they need, and no other one more"
        ]
    );
}

#[test]
fn a_domain_that_the_gang_runs_in_already_is_the_only_one() {
    let text = "policy actions=allocate+reclaim\n\
                topologies dc rack\n\
                nodes n1 gpu=4 rack=a | n2 gpu=8 rack=b\n\
                queues full quota=0 | poor quota=12\n\
                groups held queue=full pods=2x{gpu=4} running@n2\n \
                       want queue=poor topology=dc:required=rack min=1 pods=1x{gpu=3} running@n1 pods=1x{gpu=3}";
    assert_eq!(
        refused(text),
        [
            "no reclaim: its pods belong in one `rack`; even with everybody gone who may be evicted, `a` would have 1 of \
          the 3 GPUs that they need, and no other one more"
        ]
    );
}

#[test]
fn too_little_memory_is_told_with_numbers() {
    let text = "policy actions=allocate+reclaim\n\
                nodes n1..n2 cpu=8 mem=8\n\
                queues full quota=0 mem.quota=0 | poor quota=0 mem.quota=none\n\
                groups held queue=full pods=1x{cpu=1,mem=4} running@n1\n \
                       fixed queue=full preemptible=no pods=1x{cpu=1,mem=6} running@n2\n \
                       want queue=poor min=2 pods=2x{cpu=1,mem=6}";
    let told = refused(text);
    assert!(told[0].starts_with("no reclaim: "), "{told:?}");
    assert!(
        told[0].contains("GB of memory from queues above their share; only 4.294 are reclaimable"),
        "{told:?}"
    );
}

#[test]
fn a_consolidation_needs_cpu_that_is_free() {
    let text = "policy actions=allocate+consolidation\n\
                nodes n1..n2 gpu=2 cpu=8\n\
                queues team quota=4\n\
                groups held queue=team pods=2x{gpu=1,cpu=6} running@{n1,n2}\n \
                       want queue=team pods=1x{gpu=2,cpu=5}";
    assert_eq!(refused(text), ["no consolidation: it needs 5 CPU cores, and only 4 are free in all"]);
}

#[test]
fn resources_that_queues_do_not_know_are_bounds_too() {
    let text = "policy actions=allocate+preempt\n\
                nodes n1..n2 gpu=2 res:example.com/nic=2\n\
                queues team quota=4\n\
                groups held queue=team priority=50 pods=1x{gpu=1,res:example.com/nic=1} running@n1\n \
                       fixed queue=team priority=100 preemptible=no pods=1x{gpu=1,res:example.com/nic=2} running@n2\n \
                       want queue=team priority=75 min=2 pods=2x{gpu=1,res:example.com/nic=2}";
    assert_eq!(
        refused(text),
        ["no preemption: it would need 3 of `example.com/nic` from others; only 1 is evictable"]
    );
}

/// `w0` gets two GPUs, and half a GPU moves to one that is being freed. What is left on that one is not free for `w1`,
/// but comes with it.
#[test]
fn a_gpu_that_is_opened_for_those_who_wait_comes_back_whole() {
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
    let [outcome, literal] = decided(text);
    assert_eq!(outcome.decisions, literal.decisions);
    let is_placed =
        |decision: &Decision| matches!(decision, Decision::Pipeline { pod, .. } if pod.name == "w1-0");
    assert!(outcome.decisions.iter().any(is_placed), "{:?}", outcome.decisions);
}

/// What a bound refuses is found by no search, on clusters where much must be evicted.
#[test]
fn bounds_change_no_decision() {
    hold(crowded, |text| {
        let [bounded, literal] = decided(text).map(|outcome| outcome.decisions);
        if bounded == literal { Ok(()) } else { Err(format!("{bounded:?}\nwithout bounds {literal:?}")) }
    });
}

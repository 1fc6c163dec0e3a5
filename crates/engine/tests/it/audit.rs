//! The audit detects invalid outcomes.

use kai_engine::audit::{Invariant, audit};
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Decision, EvictionReason};
use kai_engine::policy::{DisruptionBudgets, Policy};
use kai_engine::{Cycle, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

/// Plans a scenario, changes the outcome with `tamper` and returns the violated invariants.
fn violated(text: &str, tamper: impl FnOnce(&mut Outcome)) -> Vec<Invariant> {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let mut cluster = scenario.cluster.build();
    let mut outcome = plan(&mut cluster, &scenario.policy, CYCLE);
    assert_eq!(audit(&cluster, &scenario.policy, &outcome), [], "a planned outcome is valid");
    tamper(&mut outcome);
    let mut invariants: Vec<Invariant> =
        audit(&cluster, &scenario.policy, &outcome).iter().map(|v| v.invariant).collect();
    invariants.dedup();
    invariants
}

/// The violations of given decisions, on a cluster where no action runs.
fn violations(text: &str, decisions: Vec<Decision>) -> Vec<String> {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let mut cluster = scenario.cluster.build();
    let idle = Policy { actions: Vec::new(), ..scenario.policy.clone() };
    let mut outcome = plan(&mut cluster, &idle, CYCLE);
    outcome.decisions = decisions;
    audit(&cluster, &scenario.policy, &outcome).iter().map(ToString::to_string).collect()
}

const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };

fn bind(pod: &str, node: &str, groups: &[&str]) -> Decision {
    Decision::Bind(Box::new(Bind {
        pod: Key::new("default", pod),
        uid: pod.to_owned(),
        node: node.to_owned(),
        action: "allocate",
        gpu_groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        ..Bind::default()
    }))
}

fn evict(pod: &str) -> Decision {
    Decision::Evict {
        pod: Key::new("default", pod),
        uid: pod.to_owned(),
        group: None,
        gang_size: 1,
        preemptor: None,
        action: "preempt",
        why: Box::new(EvictionReason::Priority { preemptor: 75, victim: 50 }),
    }
}

/// An eviction for a group.
fn evict_for(pod: &str, action: &'static str, preemptor: &str) -> Decision {
    let (key, group) = (Key::new("default", pod), pod.rsplit_once('-').expect("pods are numbered").0);
    Decision::Evict {
        pod: key,
        uid: pod.to_owned(),
        group: Some(Key::new("default", group)),
        gang_size: 1,
        preemptor: (!preemptor.is_empty()).then(|| Key::new("default", preemptor)),
        action,
        why: Box::new(EvictionReason::Priority { preemptor: 75, victim: 50 }),
    }
}

fn pipeline(pod: &str, node: &str, action: &'static str) -> Decision {
    pipeline_decision(pod, node, action, false)
}

fn moved(pod: &str, node: &str, action: &'static str) -> Decision {
    pipeline_decision(pod, node, action, true)
}

fn pipeline_decision(pod: &str, node: &str, action: &'static str, moved: bool) -> Decision {
    let (pod, node) = (Key::new("default", pod), node.to_owned());
    Decision::Pipeline { pod, node, gpu_groups: Vec::new(), action, moved }
}

#[test]
fn overcommitted_node_is_detected() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(violated(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Invariant::NodeCapacity]);
}

#[test]
fn overcommitted_cpu_and_pod_slots_are_detected() {
    let text = "nodes n1 cpu=1 pods=1\nqueues q\ngroups a queue=q pods=1x{cpu=1} running@n1\n b queue=q pods=1x{cpu=1}";
    assert_eq!(violated(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Invariant::NodeCapacity]);
}

#[test]
fn overcommitted_shared_gpu_is_detected() {
    let text = "nodes n1 gpu=1 gpumem=1000\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=0.6} running@n1#0\n b queue=q pods=1x{gpu=0.6}";
    assert_eq!(violated(text, |o| o.decisions.push(bind("b-0", "n1", &["0"]))), [Invariant::GpuMemory]);
}

#[test]
fn exceeded_limits_and_quotas_are_detected() {
    let text = "nodes n1 gpu=4\nqueues q quota=1 limit=2\ngroups a queue=q pods=1x{gpu=3}\n b queue=q priority=100 pods=1x{gpu=2}";
    assert_eq!(violated(text, |o| o.decisions.push(bind("a-0", "n1", &[]))), [Invariant::QueueLimit]);
    assert_eq!(
        violated(text, |o| o.decisions.push(bind("b-0", "n1", &[]))),
        [Invariant::NonPreemptibleQuota]
    );
}

#[test]
fn incomplete_gang_is_detected() {
    let text = "nodes n1 gpu=4\nqueues q quota=none\ngroups a queue=q min=2 pods=2x{gpu=1}";
    assert_eq!(violated(text, |o| drop(o.decisions.pop())), [Invariant::Gang, Invariant::Verdicts]);
}

#[test]
fn infeasible_node_is_detected() {
    let text = "nodes n1 gpu=1 | n2 gpu=1 cordon | n3 gpu=1 taint=t:NoSchedule | n4 gpu=1 kind=x\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1,select:kind=x}";
    for node in ["n1", "n2", "n3"] {
        assert_eq!(
            violated(text, |o| o.decisions = vec![bind("a-0", node, &[])]),
            [Invariant::Placement],
            "{node}"
        );
    }
}

#[test]
fn pod_constraint_violation_is_detected() {
    let text = "nodes n1 host=n1 | n2 host=n2\nqueues q\ngroups a queue=q pods=1x{port=80,label:app=x} running@n1\n b queue=q pods=1x{port=80}\n c queue=q pods=1x{apart=app:x@host}";
    for pod in ["b-0", "c-0"] {
        let to_n1 = |o: &mut Outcome| {
            o.decisions.retain(|d| !matches!(d, Decision::Bind(b) if b.pod.name == pod));
            o.decisions.push(bind(pod, "n1", &[]));
        };
        assert_eq!(violated(text, to_n1), [Invariant::Placement], "{pod}");
    }
}

#[test]
fn topology_violation_is_detected() {
    let text = "topologies dc rack\nnodes n1 gpu=2 rack=a | n2 gpu=2 rack=b\nqueues q quota=none\ngroups a queue=q min=2 topology=dc:required=rack pods=2x{gpu=1}";
    let apart = |o: &mut Outcome| o.decisions = vec![bind("a-0", "n1", &[]), bind("a-1", "n2", &[])];
    assert_eq!(violated(text, apart), [Invariant::Topology]);
}

#[test]
fn invalid_eviction_is_detected() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q priority=100 pods=1x{gpu=1} running@n1";
    assert_eq!(violated(text, |o| o.decisions.push(evict("a-0"))), [Invariant::Eviction]);
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1";
    assert_eq!(violated(text, |o| o.decisions.extend([evict("a-0"), evict("a-0")])), [Invariant::Eviction]);
}

#[test]
fn decision_for_a_missing_object_is_detected() {
    let text = "nodes n1 gpu=2\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(violated(text, |o| o.decisions.push(bind("zzz", "n1", &[]))), [Invariant::Consistency]);
    assert_eq!(violated(text, |o| o.decisions.push(bind("b-0", "zzz", &[]))), [Invariant::Consistency]);
}

#[test]
fn missing_verdict_is_detected() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=2}";
    assert_eq!(violated(text, |o| o.verdicts.clear()), [Invariant::Verdicts]);
}

/// A running group, to be completed with a preemptor in the same or another queue.
const PAIR: &str =
    "nodes n1 gpu=1\nqueues q quota=none | r quota=0\ngroups a queue=q pods=1x{gpu=1} running@n1";

#[test]
fn preemption_is_limited_to_lower_priority_in_its_queue() {
    let fair = format!("{PAIR}\n b queue=q priority=75 pods=1x{{gpu=1}}");
    let decisions = || vec![evict_for("a-0", "preempt", "b"), pipeline("b-0", "n1", "preempt")];
    assert_eq!(violations(&fair, decisions()), [""; 0]);
    let equal = format!("{PAIR}\n b queue=q priority=50 pods=1x{{gpu=1}}");
    assert_eq!(
        violations(&equal, decisions()),
        ["Eviction: pod `default/a-0` is preempted by group `default/b`, which has no higher priority"]
    );
    let elsewhere = format!("{PAIR}\n b queue=r priority=75 pods=1x{{gpu=1}}");
    assert_eq!(
        violations(&elsewhere, decisions()),
        ["Eviction: pod `default/a-0` is preempted by group `default/b` of another queue"]
    );
}

#[test]
fn eviction_without_a_placed_preemptor_is_detected() {
    let text = format!("{PAIR}\n b queue=q priority=75 pods=1x{{gpu=1}}");
    assert_eq!(
        violations(&text, vec![evict_for("a-0", "preempt", "b")]),
        ["Eviction: pods are evicted for group `default/b`, which is not placed (preempt)"]
    );
    assert_eq!(
        violations(&text, vec![evict_for("a-0", "preempt", "")]),
        ["Eviction: pod `default/a-0` is evicted without a preemptor"]
    );
    assert_eq!(
        violations(&text, vec![evict_for("a-0", "allocate", "b"), pipeline("b-0", "n1", "preempt")]),
        ["Consistency: pod `default/a-0` is evicted by an unknown action"]
    );
}

#[test]
fn eviction_of_a_pod_placed_in_the_same_cycle_is_detected() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1}\n b queue=q priority=75 pods=1x{gpu=1}";
    let decisions =
        vec![bind("a-0", "n1", &[]), evict_for("a-0", "preempt", "b"), pipeline("b-0", "n1", "preempt")];
    assert!(
        violations(text, decisions)
            .contains(&"Eviction: pod `default/a-0` is evicted without being in use".to_owned())
    );
}

#[test]
fn eviction_within_the_preemption_delay_is_detected() {
    let text = format!("{PAIR}\n b queue=q priority=75 age=1m delay=2m pods=1x{{gpu=1}}");
    assert_eq!(
        violations(&text, vec![evict_for("a-0", "preempt", "b"), pipeline("b-0", "n1", "preempt")]),
        ["Eviction: group `default/b` causes evictions within its preemption delay"]
    );
}

#[test]
fn reclaim_from_a_queue_within_its_share_is_detected() {
    let decisions = || vec![evict_for("a-0", "reclaim", "b"), pipeline("b-0", "n1", "reclaim")];
    let cluster_with = |queues: &str| {
        format!(
            "nodes n1 gpu=2\nqueues {queues}\ngroups a queue=q pods=1x{{gpu=2}} running@n1\n b queue=r pods=1x{{gpu=1}}"
        )
    };
    assert_eq!(violations(&cluster_with("q quota=1 | r quota=1"), decisions()), [""; 0]);
    assert_eq!(
        violations(&cluster_with("q quota=2 | r quota=1"), decisions()),
        ["Reclaim: queue `q` loses to group `default/b` what it is entitled to"]
    );
    assert_eq!(
        violations(&cluster_with("q quota=1 | r quota=0 weight=0"), decisions()),
        [
            "Reclaim: group `default/b` reclaims beyond its queue's fair share",
            "Reclaim: queue `q` loses to group `default/b` what it is entitled to",
            "Reclaim: queue `r` ends more saturated in Gpu than `q`, which lost pods to it",
        ]
    );
    let own = "nodes n1 gpu=2\nqueues r quota=2\ngroups a queue=r pods=1x{gpu=2} running@n1\n b queue=r pods=1x{gpu=1}";
    assert!(
        violations(own, decisions())
            .contains(&"Reclaim: pod `default/a-0` is reclaimed by its own queue".to_owned())
    );
}

#[test]
fn reclaim_is_checked_below_the_lowest_common_ancestor() {
    // The leaf queue is above its quota, but its department is not.
    let text = "nodes n1 gpu=2\nqueues d1 quota=2 | d2 quota=1 | d1/q quota=0 | d2/r quota=1\ngroups a queue=d1/q pods=1x{gpu=2} running@n1\n b queue=d2/r pods=1x{gpu=1}";
    assert_eq!(
        violations(text, vec![evict_for("a-0", "reclaim", "b"), pipeline("b-0", "n1", "reclaim")]),
        ["Reclaim: queue `d1` loses to group `default/b` what it is entitled to"]
    );
}

#[test]
fn surplus_pods_are_separate_reclaim_portions() {
    let text = "nodes n1 gpu=4\nqueues q quota=2 | r quota=2\ngroups a queue=q min=1 pods=4x{gpu=1} running@n1\n b queue=r min=2 pods=2x{gpu=1}\n c queue=r pods=1x{gpu=1}";
    let two = || {
        vec![
            evict_for("a-3", "reclaim", "b"),
            evict_for("a-2", "reclaim", "b"),
            pipeline("b-0", "n1", "reclaim"),
            pipeline("b-1", "n1", "reclaim"),
        ]
    };
    assert_eq!(violations(text, two()), [""; 0]);
    let mut three = two();
    three.extend([evict_for("a-1", "reclaim", "c"), pipeline("c-0", "n1", "reclaim")]);
    assert_eq!(
        violations(text, three),
        [
            "Reclaim: group `default/c` reclaims beyond its queue's fair share",
            "Reclaim: queue `q` loses to group `default/c` what it is entitled to",
            "Reclaim: queue `r` ends more saturated in Gpu than `q`, which lost pods to it",
        ]
    );
}

#[test]
fn consolidation_without_a_move_is_detected() {
    let text = "policy movable=1\nnodes n1..n3 gpu=2\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1} running@n2\n c queue=q pods=1x{gpu=1} running@n3\n big queue=q pods=1x{gpu=2}\n huge queue=q min=2 pods=2x{gpu=2}\n firm queue=q priority=100 pods=1x{gpu=2}";
    let for_big = |rest: Vec<Decision>| {
        let mut decisions =
            vec![evict_for("a-0", "consolidation", "big"), pipeline("big-0", "n1", "consolidation")];
        decisions.extend(rest);
        decisions
    };
    assert_eq!(violations(text, for_big(vec![moved("a-0", "n2", "consolidation")])), [""; 0]);
    assert_eq!(
        violations(text, for_big(vec![])),
        ["Consolidation: pod `default/a-0` is moved but not placed again"]
    );
    let two = vec![
        evict_for("a-0", "consolidation", "huge"),
        evict_for("b-0", "consolidation", "huge"),
        pipeline("huge-0", "n1", "consolidation"),
        pipeline("huge-1", "n2", "consolidation"),
        moved("a-0", "n3", "consolidation"),
    ];
    assert!(
        violations(text, two)
            .contains(&"Consolidation: pods of 2 groups are moved for group `default/huge`".to_owned())
    );
    let firm = vec![
        evict_for("a-0", "consolidation", "firm"),
        pipeline("firm-0", "n1", "consolidation"),
        moved("a-0", "n2", "consolidation"),
    ];
    assert_eq!(
        violations(text, firm),
        ["Consolidation: pods are moved for group `default/firm`, which is non-preemptible"]
    );
}

#[test]
fn unmarked_move_is_detected() {
    let text = "nodes n1..n2 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q priority=75 pods=1x{gpu=1}";
    let decisions = vec![
        evict_for("a-0", "preempt", "b"),
        pipeline("b-0", "n1", "preempt"),
        pipeline("a-0", "n2", "preempt"),
    ];
    assert_eq!(
        violations(text, decisions),
        ["Consistency: pod `default/a-0` is evicted but not marked as moved"]
    );
}

#[test]
fn eviction_within_the_min_runtime_is_detected() {
    let cluster_with = |min: u32, started: &str| {
        format!(
            "nodes n1 gpu=2\nqueues q quota=none preemptmin=5m\ngroups a queue=q min={min} started={started} pods=2x{{gpu=1}} running@n1\n b queue=q priority=75 pods=1x{{gpu=1}}\n c queue=q priority=75 pods=1x{{gpu=1}}"
        )
    };
    let one = || vec![evict_for("a-1", "preempt", "b"), pipeline("b-0", "n1", "preempt")];
    let both = || [one(), vec![evict_for("a-0", "preempt", "c"), pipeline("c-0", "n1", "preempt")]].concat();
    assert_eq!(violations(&cluster_with(1, "1m"), one()), [""; 0]);
    assert_eq!(violations(&cluster_with(1, "6m"), both()), [""; 0]);
    assert_eq!(
        violations(&cluster_with(1, "1m"), both()),
        ["MinRuntime: group `default/a` falls below its minimum before its minimum run time"]
    );
    assert_eq!(
        violations(&cluster_with(2, "1m"), both()),
        ["MinRuntime: group `default/a` is evicted before its minimum run time"]
    );
}

#[test]
fn reclaim_min_runtime_is_resolved_on_the_victims_branch() {
    let cluster_with = |queues: &str| {
        format!(
            "nodes n1 gpu=2\nqueues {queues} d1/q quota=1 reclaimmin=5m | d2/r quota=1\ngroups a queue=d1/q started=1m pods=1x{{gpu=2}} running@n1\n b queue=d2/r pods=1x{{gpu=1}}"
        )
    };
    let decisions = || vec![evict_for("a-0", "reclaim", "b"), pipeline("b-0", "n1", "reclaim")];
    assert_eq!(violations(&cluster_with("d1 quota=1 | d2 quota=1 |"), decisions()), [""; 0]);
    assert_eq!(
        violations(&cluster_with("d1 quota=1 reclaimmin=2m | d2 quota=1 |"), decisions()),
        ["MinRuntime: group `default/a` is evicted before its minimum run time"]
    );
}

#[test]
fn disruption_budget_is_checked_over_the_whole_cycle() {
    let text = "nodes n1 gpu=2\nqueues q quota=none\nbudgets x covers=app:x allows=1\ngroups a queue=q min=1 pods=2x{gpu=1,label:app=x} running@n1\n b queue=q priority=75 pods=1x{gpu=1}\n c queue=q priority=75 pods=1x{gpu=1}";
    let decisions = vec![
        evict_for("a-1", "preempt", "b"),
        pipeline("b-0", "n1", "preempt"),
        evict_for("a-0", "preempt", "c"),
        pipeline("c-0", "n1", "preempt"),
    ];
    assert_eq!(violations(text, decisions[..2].to_vec()), [""; 0]);
    assert_eq!(
        violations(text, decisions),
        ["DisruptionBudget: 2 pods of disruption budget `default/x` are evicted, of 1"]
    );
}

#[test]
fn disruption_budgets_can_be_ignored() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\nbudgets x covers=app:x allows=0\ngroups a queue=q pods=1x{gpu=1,label:app=x} running@n1\n b queue=q priority=75 pods=1x{gpu=1}";
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let policy = Policy { disruption_budgets: DisruptionBudgets::Ignore, ..scenario.policy.clone() };
    let mut cluster = scenario.cluster.build();
    let outcome = plan(&mut cluster, &policy, CYCLE);
    assert!(outcome.decisions.iter().any(|decision| matches!(decision, Decision::Evict { .. })));
    assert_eq!(audit(&cluster, &policy, &outcome), []);
    assert_eq!(audit(&cluster, &scenario.policy, &outcome).len(), 1);
}

#[test]
fn eviction_that_leaves_an_incomplete_gang_is_detected() {
    let text = "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=2 pods=3x{gpu=1} running@n1\n b queue=q priority=75 pods=1x{gpu=1}\n c queue=q priority=75 min=2 pods=2x{gpu=1}";
    let one = vec![evict_for("a-2", "preempt", "b"), pipeline("b-0", "n1", "preempt")];
    assert_eq!(violations(text, one), [""; 0]);
    let two = vec![
        evict_for("a-2", "preempt", "c"),
        evict_for("a-1", "preempt", "c"),
        pipeline("c-0", "n1", "preempt"),
        pipeline("c-1", "n1", "preempt"),
    ];
    assert_eq!(
        violations(text, two),
        [
            "Gang: evictions leave 1 of 2 pods of `default` in group `default/a`",
            "Gang: evictions leave 1 pods of group `default/a`, below its minimum",
        ]
    );
}

#[test]
fn invalid_stale_gang_eviction_is_detected() {
    let cluster_with = |words: &str, running: u32| {
        format!(
            "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=2 {words} pods={running}x{{gpu=1}} running@n1"
        )
    };
    let all = |pods: u32| (0..pods).map(|n| evict_for(&format!("a-{n}"), "stalegangeviction", "")).collect();
    assert_eq!(violations(&cluster_with("stale=2m grace=1m", 1), all(1)), [""; 0]);
    assert_eq!(
        violations(&cluster_with("stale=2m grace=1m", 2), all(2)),
        ["Eviction: group `default/a` is evicted as stale but is not stale"]
    );
    assert_eq!(
        violations(&cluster_with("stale=30s grace=1m", 1), all(1)),
        ["Eviction: group `default/a` is evicted as stale within its grace period"]
    );
    let part =
        "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=3 stale=2m pods=2x{gpu=1} running@n1";
    assert_eq!(violations(part, all(1)), ["Eviction: group `default/a` is only partly evicted as stale"]);
}

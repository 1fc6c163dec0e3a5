//! The audit finds what it is there to find: outcomes that were tampered with.

use kai_engine::audit::{Invariant, audit};
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Decision, EvictionReason};
use kai_engine::policy::{DisruptionBudgets, Policy};
use kai_engine::{Cycle, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

/// Plans a scenario, lets `tamper` change the outcome, and tells which laws are broken then.
fn broken(text: &str, tamper: impl FnOnce(&mut Outcome)) -> Vec<Invariant> {
    let scenario = Scenario::parse(text).expect("the scenario is well-formed");
    let mut cluster = scenario.cluster.build();
    let mut outcome = plan(&mut cluster, &scenario.policy, CYCLE);
    assert_eq!(audit(&cluster, &scenario.policy, &outcome), [], "an honest outcome is lawful");
    tamper(&mut outcome);
    let mut laws: Vec<Invariant> =
        audit(&cluster, &scenario.policy, &outcome).iter().map(|v| v.invariant).collect();
    laws.dedup();
    laws
}

/// What the audit says about decisions that nobody planned, on a cluster where no action runs.
fn objections(text: &str, decisions: Vec<Decision>) -> Vec<String> {
    let scenario = Scenario::parse(text).expect("the scenario is well-formed");
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
fn take(pod: &str, action: &'static str, preemptor: &str) -> Decision {
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

fn wait(pod: &str, node: &str, action: &'static str) -> Decision {
    waits(pod, node, action, false)
}

fn moved(pod: &str, node: &str, action: &'static str) -> Decision {
    waits(pod, node, action, true)
}

fn waits(pod: &str, node: &str, action: &'static str, moved: bool) -> Decision {
    let (pod, node) = (Key::new("default", pod), node.to_owned());
    Decision::Pipeline { pod, node, gpu_groups: Vec::new(), action, moved }
}

#[test]
fn a_full_node_takes_no_more() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Invariant::NodeCapacity]);
}

#[test]
fn cpu_and_pod_slots_count_too() {
    let text = "nodes n1 cpu=1 pods=1\nqueues q\ngroups a queue=q pods=1x{cpu=1} running@n1\n b queue=q pods=1x{cpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Invariant::NodeCapacity]);
}

#[test]
fn a_shared_gpu_is_not_filled_twice() {
    let text = "nodes n1 gpu=1 gpumem=1000\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=0.6} running@n1#0\n b queue=q pods=1x{gpu=0.6}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &["0"]))), [Invariant::GpuMemory]);
}

#[test]
fn limits_and_quotas_hold() {
    let text = "nodes n1 gpu=4\nqueues q quota=1 limit=2\ngroups a queue=q pods=1x{gpu=3}\n b queue=q priority=100 pods=1x{gpu=2}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("a-0", "n1", &[]))), [Invariant::QueueLimit]);
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Invariant::NonPreemptibleQuota]);
}

#[test]
fn half_a_gang_is_found() {
    let text = "nodes n1 gpu=4\nqueues q quota=none\ngroups a queue=q min=2 pods=2x{gpu=1}";
    assert_eq!(broken(text, |o| drop(o.decisions.pop())), [Invariant::Gang, Invariant::Verdicts]);
}

#[test]
fn nodes_that_refuse_are_respected() {
    let text = "nodes n1 gpu=1 | n2 gpu=1 cordon | n3 gpu=1 taint=t:NoSchedule | n4 gpu=1 kind=x\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1,select:kind=x}";
    for node in ["n1", "n2", "n3"] {
        assert_eq!(
            broken(text, |o| o.decisions = vec![bind("a-0", node, &[])]),
            [Invariant::Placement],
            "{node}"
        );
    }
}

#[test]
fn neighbours_are_respected() {
    let text = "nodes n1 host=n1 | n2 host=n2\nqueues q\ngroups a queue=q pods=1x{port=80,label:app=x} running@n1\n b queue=q pods=1x{port=80}\n c queue=q pods=1x{apart=app:x@host}";
    for pod in ["b-0", "c-0"] {
        let to_n1 = |o: &mut Outcome| {
            o.decisions.retain(|d| !matches!(d, Decision::Bind(b) if b.pod.name == pod));
            o.decisions.push(bind(pod, "n1", &[]));
        };
        assert_eq!(broken(text, to_n1), [Invariant::Placement], "{pod}");
    }
}

#[test]
fn required_domains_are_respected() {
    let text = "topologies dc rack\nnodes n1 gpu=2 rack=a | n2 gpu=2 rack=b\nqueues q quota=none\ngroups a queue=q min=2 topology=dc:required=rack pods=2x{gpu=1}";
    let apart = |o: &mut Outcome| o.decisions = vec![bind("a-0", "n1", &[]), bind("a-1", "n2", &[])];
    assert_eq!(broken(text, apart), [Invariant::Topology]);
}

#[test]
fn only_what_may_be_evicted_is() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q priority=100 pods=1x{gpu=1} running@n1";
    assert_eq!(broken(text, |o| o.decisions.push(evict("a-0"))), [Invariant::Eviction]);
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1";
    assert_eq!(broken(text, |o| o.decisions.extend([evict("a-0"), evict("a-0")])), [Invariant::Eviction]);
}

#[test]
fn decisions_make_sense() {
    let text = "nodes n1 gpu=2\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("zzz", "n1", &[]))), [Invariant::Consistency]);
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "zzz", &[]))), [Invariant::Consistency]);
}

#[test]
fn a_silent_pending_group_is_found() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=2}";
    assert_eq!(broken(text, |o| o.verdicts.clear()), [Invariant::Verdicts]);
}

/// A victim and a group that wants its place, in queues of their own or in one.
const PAIR: &str =
    "nodes n1 gpu=1\nqueues q quota=none | r quota=0\ngroups a queue=q pods=1x{gpu=1} running@n1";

#[test]
fn preemption_stays_in_its_queue_and_goes_down() {
    let fair = format!("{PAIR}\n b queue=q priority=75 pods=1x{{gpu=1}}");
    let decisions = || vec![take("a-0", "preempt", "b"), wait("b-0", "n1", "preempt")];
    assert_eq!(objections(&fair, decisions()), [""; 0]);
    let equal = format!("{PAIR}\n b queue=q priority=50 pods=1x{{gpu=1}}");
    assert_eq!(
        objections(&equal, decisions()),
        ["Eviction: pod `default/a-0` is preempted by group `default/b`, which is not more important"]
    );
    let elsewhere = format!("{PAIR}\n b queue=r priority=75 pods=1x{{gpu=1}}");
    assert_eq!(
        objections(&elsewhere, decisions()),
        ["Eviction: pod `default/a-0` is preempted by group `default/b` of another queue"]
    );
}

#[test]
fn nobody_is_evicted_in_vain() {
    let text = format!("{PAIR}\n b queue=q priority=75 pods=1x{{gpu=1}}");
    assert_eq!(
        objections(&text, vec![take("a-0", "preempt", "b")]),
        ["Eviction: pods are evicted for group `default/b`, which places none (preempt)"]
    );
    assert_eq!(
        objections(&text, vec![take("a-0", "preempt", "")]),
        ["Eviction: pod `default/a-0` is evicted without a preemptor"]
    );
    assert_eq!(
        objections(&text, vec![take("a-0", "allocate", "b"), wait("b-0", "n1", "preempt")]),
        ["Sense: pod `default/a-0` is evicted by an action that evicts nothing"]
    );
}

#[test]
fn what_was_placed_in_a_cycle_is_not_evicted_in_it() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1}\n b queue=q priority=75 pods=1x{gpu=1}";
    let decisions = vec![bind("a-0", "n1", &[]), take("a-0", "preempt", "b"), wait("b-0", "n1", "preempt")];
    assert!(
        objections(text, decisions)
            .contains(&"Eviction: pod `default/a-0` is evicted without being in use".to_owned())
    );
}

#[test]
fn a_delay_is_waited_for() {
    let text = format!("{PAIR}\n b queue=q priority=75 age=1m delay=2m pods=1x{{gpu=1}}");
    assert_eq!(
        objections(&text, vec![take("a-0", "preempt", "b"), wait("b-0", "n1", "preempt")]),
        ["Eviction: group `default/b` evicts others within its preemption delay"]
    );
}

#[test]
fn queues_within_their_entitlement_lose_nothing() {
    let decisions = || vec![take("a-0", "reclaim", "b"), wait("b-0", "n1", "reclaim")];
    let world = |queues: &str| {
        format!(
            "nodes n1 gpu=2\nqueues {queues}\ngroups a queue=q pods=1x{{gpu=2}} running@n1\n b queue=r pods=1x{{gpu=1}}"
        )
    };
    assert_eq!(objections(&world("q quota=1 | r quota=1"), decisions()), [""; 0]);
    assert_eq!(
        objections(&world("q quota=2 | r quota=1"), decisions()),
        ["Reclaim: queue `q` loses to group `default/b` what it is entitled to"]
    );
    assert_eq!(
        objections(&world("q quota=1 | r quota=0 weight=0"), decisions()),
        [
            "Reclaim: group `default/b` reclaims beyond its queue's fair share",
            "Reclaim: queue `q` loses to group `default/b` what it is entitled to",
            "Reclaim: queue `r` ends further beyond its fair share of Gpu than `q`, from which it took",
        ]
    );
    let own = "nodes n1 gpu=2\nqueues r quota=2\ngroups a queue=r pods=1x{gpu=2} running@n1\n b queue=r pods=1x{gpu=1}";
    assert!(
        objections(own, decisions())
            .contains(&"Reclaim: pod `default/a-0` is reclaimed by its own queue".to_owned())
    );
}

#[test]
fn queues_are_judged_where_they_part() {
    // The leaf is beyond its quota, but its department is not.
    let text = "nodes n1 gpu=2\nqueues d1 quota=2 | d2 quota=1 | d1/q quota=0 | d2/r quota=1\ngroups a queue=d1/q pods=1x{gpu=2} running@n1\n b queue=d2/r pods=1x{gpu=1}";
    assert_eq!(
        objections(text, vec![take("a-0", "reclaim", "b"), wait("b-0", "n1", "reclaim")]),
        ["Reclaim: queue `d1` loses to group `default/b` what it is entitled to"]
    );
}

#[test]
fn surplus_pods_are_lost_one_by_one() {
    let text = "nodes n1 gpu=4\nqueues q quota=2 | r quota=2\ngroups a queue=q min=1 pods=4x{gpu=1} running@n1\n b queue=r min=2 pods=2x{gpu=1}\n c queue=r pods=1x{gpu=1}";
    let two = || {
        vec![
            take("a-3", "reclaim", "b"),
            take("a-2", "reclaim", "b"),
            wait("b-0", "n1", "reclaim"),
            wait("b-1", "n1", "reclaim"),
        ]
    };
    assert_eq!(objections(text, two()), [""; 0]);
    let mut three = two();
    three.extend([take("a-1", "reclaim", "c"), wait("c-0", "n1", "reclaim")]);
    assert_eq!(
        objections(text, three),
        [
            "Reclaim: group `default/c` reclaims beyond its queue's fair share",
            "Reclaim: queue `q` loses to group `default/c` what it is entitled to",
            "Reclaim: queue `r` ends further beyond its fair share of Gpu than `q`, from which it took",
        ]
    );
}

#[test]
fn consolidation_takes_nothing_from_anybody() {
    let text = "policy movable=1\nnodes n1..n3 gpu=2\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1} running@n2\n c queue=q pods=1x{gpu=1} running@n3\n big queue=q pods=1x{gpu=2}\n huge queue=q min=2 pods=2x{gpu=2}\n firm queue=q priority=100 pods=1x{gpu=2}";
    let for_big = |rest: Vec<Decision>| {
        let mut decisions = vec![take("a-0", "consolidation", "big"), wait("big-0", "n1", "consolidation")];
        decisions.extend(rest);
        decisions
    };
    assert_eq!(objections(text, for_big(vec![moved("a-0", "n2", "consolidation")])), [""; 0]);
    assert_eq!(
        objections(text, for_big(vec![])),
        ["Move: pod `default/a-0` is to be moved and has no new place"]
    );
    let two = vec![
        take("a-0", "consolidation", "huge"),
        take("b-0", "consolidation", "huge"),
        wait("huge-0", "n1", "consolidation"),
        wait("huge-1", "n2", "consolidation"),
        moved("a-0", "n3", "consolidation"),
    ];
    assert!(
        objections(text, two)
            .contains(&"Move: pods of 2 groups are moved for group `default/huge`".to_owned())
    );
    let firm = vec![
        take("a-0", "consolidation", "firm"),
        wait("firm-0", "n1", "consolidation"),
        moved("a-0", "n2", "consolidation"),
    ];
    assert_eq!(
        objections(text, firm),
        ["Move: pods are moved for group `default/firm`, which cannot be evicted itself"]
    );
}

#[test]
fn moves_are_called_so() {
    let text = "nodes n1..n2 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q priority=75 pods=1x{gpu=1}";
    let decisions =
        vec![take("a-0", "preempt", "b"), wait("b-0", "n1", "preempt"), wait("a-0", "n2", "preempt")];
    assert_eq!(objections(text, decisions), ["Sense: pod `default/a-0` is evicted, and yet not moved"]);
}

#[test]
fn minimum_run_times_are_waited_for() {
    let world = |min: u32, started: &str| {
        format!(
            "nodes n1 gpu=2\nqueues q quota=none preemptmin=5m\ngroups a queue=q min={min} started={started} pods=2x{{gpu=1}} running@n1\n b queue=q priority=75 pods=1x{{gpu=1}}\n c queue=q priority=75 pods=1x{{gpu=1}}"
        )
    };
    let one = || vec![take("a-1", "preempt", "b"), wait("b-0", "n1", "preempt")];
    let both = || [one(), vec![take("a-0", "preempt", "c"), wait("c-0", "n1", "preempt")]].concat();
    assert_eq!(objections(&world(1, "1m"), one()), [""; 0]);
    assert_eq!(objections(&world(1, "6m"), both()), [""; 0]);
    assert_eq!(
        objections(&world(1, "1m"), both()),
        ["MinRuntime: group `default/a` falls below its minimum before its minimum run time"]
    );
    assert_eq!(
        objections(&world(2, "1m"), both()),
        ["MinRuntime: group `default/a` is evicted before its minimum run time"]
    );
}

#[test]
fn run_times_before_reclaim_are_those_of_the_side_of_the_victim() {
    let world = |queues: &str| {
        format!(
            "nodes n1 gpu=2\nqueues {queues} d1/q quota=1 reclaimmin=5m | d2/r quota=1\ngroups a queue=d1/q started=1m pods=1x{{gpu=2}} running@n1\n b queue=d2/r pods=1x{{gpu=1}}"
        )
    };
    let decisions = || vec![take("a-0", "reclaim", "b"), wait("b-0", "n1", "reclaim")];
    assert_eq!(objections(&world("d1 quota=1 | d2 quota=1 |"), decisions()), [""; 0]);
    assert_eq!(
        objections(&world("d1 quota=1 reclaimmin=2m | d2 quota=1 |"), decisions()),
        ["MinRuntime: group `default/a` is evicted before its minimum run time"]
    );
}

#[test]
fn budgets_are_kept_over_a_whole_cycle() {
    let text = "nodes n1 gpu=2\nqueues q quota=none\nbudgets x covers=app:x allows=1\ngroups a queue=q min=1 pods=2x{gpu=1,label:app=x} running@n1\n b queue=q priority=75 pods=1x{gpu=1}\n c queue=q priority=75 pods=1x{gpu=1}";
    let decisions = vec![
        take("a-1", "preempt", "b"),
        wait("b-0", "n1", "preempt"),
        take("a-0", "preempt", "c"),
        wait("c-0", "n1", "preempt"),
    ];
    assert_eq!(objections(text, decisions[..2].to_vec()), [""; 0]);
    assert_eq!(
        objections(text, decisions),
        ["Budget: 2 pods of disruption budget `default/x` are evicted, of 1"]
    );
}

#[test]
fn budgets_may_be_left_out_of_account() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\nbudgets x covers=app:x allows=0\ngroups a queue=q pods=1x{gpu=1,label:app=x} running@n1\n b queue=q priority=75 pods=1x{gpu=1}";
    let scenario = Scenario::parse(text).expect("the scenario is well-formed");
    let policy = Policy { disruption_budgets: DisruptionBudgets::Ignore, ..scenario.policy.clone() };
    let mut cluster = scenario.cluster.build();
    let outcome = plan(&mut cluster, &policy, CYCLE);
    assert!(outcome.decisions.iter().any(|decision| matches!(decision, Decision::Evict { .. })));
    assert_eq!(audit(&cluster, &policy, &outcome), []);
    assert_eq!(audit(&cluster, &scenario.policy, &outcome).len(), 1);
}

#[test]
fn no_eviction_leaves_part_of_a_gang() {
    let text = "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=2 pods=3x{gpu=1} running@n1\n b queue=q priority=75 pods=1x{gpu=1}\n c queue=q priority=75 min=2 pods=2x{gpu=1}";
    let one = vec![take("a-2", "preempt", "b"), wait("b-0", "n1", "preempt")];
    assert_eq!(objections(text, one), [""; 0]);
    let two = vec![
        take("a-2", "preempt", "c"),
        take("a-1", "preempt", "c"),
        wait("c-0", "n1", "preempt"),
        wait("c-1", "n1", "preempt"),
    ];
    assert_eq!(
        objections(text, two),
        [
            "Gang: evictions leave 1 of 2 pods of `default` in group `default/a`",
            "Gang: evictions leave 1 pods of group `default/a`, below its minimum",
        ]
    );
}

#[test]
fn only_gangs_that_cannot_work_are_cleared_away() {
    let world = |words: &str, running: u32| {
        format!(
            "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=2 {words} pods={running}x{{gpu=1}} running@n1"
        )
    };
    let all = |pods: u32| (0..pods).map(|n| take(&format!("a-{n}"), "stalegangeviction", "")).collect();
    assert_eq!(objections(&world("stale=2m grace=1m", 1), all(1)), [""; 0]);
    assert_eq!(
        objections(&world("stale=2m grace=1m", 2), all(2)),
        ["Eviction: group `default/a` is evicted as stale and is not"]
    );
    assert_eq!(
        objections(&world("stale=30s grace=1m", 1), all(1)),
        ["Eviction: group `default/a` is evicted as stale within its grace period"]
    );
    let part =
        "nodes n1 gpu=3\nqueues q quota=none\ngroups a queue=q min=3 stale=2m pods=2x{gpu=1} running@n1";
    assert_eq!(objections(part, all(1)), ["Eviction: group `default/a` is evicted as stale in part"]);
}

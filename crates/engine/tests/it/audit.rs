//! The audit finds what it is there to find: outcomes that were tampered with.

use kai_engine::audit::{Law, audit};
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Decision, EvictionWhy};
use kai_engine::{Cycle, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

/// Plans a scenario, lets `tamper` change the outcome, and tells which laws are broken then.
fn broken(text: &str, tamper: impl FnOnce(&mut Outcome)) -> Vec<Law> {
    let scenario = Scenario::parse(text).expect("the scenario is well-formed");
    let mut cluster = scenario.world.cluster();
    let cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };
    let mut outcome = plan(&mut cluster, &scenario.policy, cycle);
    assert_eq!(audit(&cluster, &scenario.policy, &outcome), [], "an honest outcome is lawful");
    tamper(&mut outcome);
    let mut laws: Vec<Law> = audit(&cluster, &scenario.policy, &outcome).iter().map(|v| v.law).collect();
    laws.dedup();
    laws
}

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
        why: Box::new(EvictionWhy::Priority { preemptor: 75, victim: 50 }),
    }
}

#[test]
fn a_full_node_takes_no_more() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Law::NodeCapacity]);
}

#[test]
fn cpu_and_pod_slots_count_too() {
    let text = "nodes n1 cpu=1 pods=1\nqueues q\ngroups a queue=q pods=1x{cpu=1} running@n1\n b queue=q pods=1x{cpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Law::NodeCapacity]);
}

#[test]
fn a_shared_gpu_is_not_filled_twice() {
    let text = "nodes n1 gpu=1 gpumem=1000\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=0.6} running@n1#0\n b queue=q pods=1x{gpu=0.6}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &["0"]))), [Law::GpuMemory]);
}

#[test]
fn limits_and_quotas_hold() {
    let text = "nodes n1 gpu=4\nqueues q quota=1 limit=2\ngroups a queue=q pods=1x{gpu=3}\n b queue=q priority=100 pods=1x{gpu=2}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("a-0", "n1", &[]))), [Law::QueueLimit]);
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "n1", &[]))), [Law::NonPreemptibleQuota]);
}

#[test]
fn half_a_gang_is_found() {
    let text = "nodes n1 gpu=4\nqueues q quota=none\ngroups a queue=q min=2 pods=2x{gpu=1}";
    assert_eq!(broken(text, |o| drop(o.decisions.pop())), [Law::Gang, Law::Verdicts]);
}

#[test]
fn nodes_that_refuse_are_respected() {
    let text = "nodes n1 gpu=1 | n2 gpu=1 cordon | n3 gpu=1 taint=t:NoSchedule | n4 gpu=1 kind=x\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1,select:kind=x}";
    for node in ["n1", "n2", "n3"] {
        assert_eq!(broken(text, |o| o.decisions = vec![bind("a-0", node, &[])]), [Law::Placement], "{node}");
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
        assert_eq!(broken(text, to_n1), [Law::Placement], "{pod}");
    }
}

#[test]
fn required_domains_are_respected() {
    let text = "topologies dc rack\nnodes n1 gpu=2 rack=a | n2 gpu=2 rack=b\nqueues q quota=none\ngroups a queue=q min=2 topology=dc:required=rack pods=2x{gpu=1}";
    let apart = |o: &mut Outcome| o.decisions = vec![bind("a-0", "n1", &[]), bind("a-1", "n2", &[])];
    assert_eq!(broken(text, apart), [Law::Topology]);
}

#[test]
fn only_what_may_be_evicted_is() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q priority=100 pods=1x{gpu=1} running@n1";
    assert_eq!(broken(text, |o| o.decisions.push(evict("a-0"))), [Law::Eviction]);
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1";
    assert_eq!(broken(text, |o| o.decisions.extend([evict("a-0"), evict("a-0")])), [Law::Eviction]);
}

#[test]
fn decisions_make_sense() {
    let text = "nodes n1 gpu=2\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=1} running@n1\n b queue=q pods=1x{gpu=1}";
    assert_eq!(broken(text, |o| o.decisions.push(bind("zzz", "n1", &[]))), [Law::Sense]);
    assert_eq!(broken(text, |o| o.decisions.push(bind("b-0", "zzz", &[]))), [Law::Sense]);
}

#[test]
fn a_silent_pending_group_is_found() {
    let text = "nodes n1 gpu=1\nqueues q quota=none\ngroups a queue=q pods=1x{gpu=2}";
    assert_eq!(broken(text, |o| o.verdicts.clear()), [Law::Verdicts]);
}

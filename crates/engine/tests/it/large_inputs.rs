//! Trees, chains and lists as large as a request to an API server can be: planning needs little stack, and ends soon.

use kai_engine::input::{GroupInput, Key, PodInput, PodPhase, QueueInput, SubGroupInput};
use kai_engine::{Cycle, Delta, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };
/// What a thread of a component has.
const STACK_BYTES: usize = 2 << 20;

/// Plans a cluster of one node, one queue and one pending pod, with these changes.
fn planned(deltas: Vec<Delta>) -> Outcome {
    let work = move || {
        let text = "nodes n1 gpu=8\nqueues team quota=8\ngroups small queue=team pods=1x{gpu=1}";
        let scenario = Scenario::parse(text).expect("the scenario is valid");
        let mut cluster = scenario.cluster.build();
        for delta in deltas {
            cluster.apply(delta);
        }
        plan(&mut cluster, &scenario.policy, CYCLE)
    };
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(work)
        .expect("a thread starts")
        .join()
        .expect("the work does not panic")
}

fn group(name: &str, queue: &str, sub_groups: Vec<SubGroupInput>) -> Delta {
    Delta::Group(Box::new(GroupInput {
        key: Key::new("x", name),
        queue: queue.to_owned(),
        sub_groups,
        ..GroupInput::default()
    }))
}

fn pod(group: &str, sub_group: &str) -> Delta {
    let name = format!("{group}-pod");
    Delta::Pod(Box::new(PodInput {
        key: Key::new("x", &name),
        uid: name,
        group: Some(group.to_owned()),
        sub_group: Some(sub_group.to_owned()),
        phase: PodPhase::Pending,
        ours: true,
        ..PodInput::default()
    }))
}

fn sub_group(number: usize, parent: Option<usize>) -> SubGroupInput {
    SubGroupInput {
        name: format!("s{number}"),
        parent: parent.map(|parent| format!("s{parent}")),
        min_member: Some(0),
        ..SubGroupInput::default()
    }
}

#[test]
fn deep_tree_of_sub_groups_is_a_verdict_of_its_group_only() {
    let levels = 30_000;
    let tree = (0..levels).map(|number| sub_group(number, number.checked_sub(1))).collect();
    let outcome = planned(vec![group("deep", "team", tree), pod("deep", &format!("s{}", levels - 1))]);
    assert_eq!(outcome.decisions.len(), 1, "{:?}", outcome.decisions);
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group.name == "deep").unwrap();
    assert!(format!("{verdict:?}").contains("on a level below the 64th"), "{verdict:?}");
}

#[test]
fn wide_tree_of_sub_groups_is_planned() {
    let tree = (0..20_000).map(|number| sub_group(number, None)).collect();
    let outcome = planned(vec![group("wide", "team", tree), pod("wide", "s7")]);
    assert_eq!(outcome.decisions.len(), 2, "{:?}", outcome.verdicts);
}

#[test]
fn long_chain_of_queues_is_planned() {
    let queue = |number: usize| {
        let parent = number.checked_sub(1).map(|parent| format!("q{parent}"));
        Delta::Queue(Box::new(QueueInput { name: format!("q{number}"), parent, ..QueueInput::default() }))
    };
    let mut deltas: Vec<Delta> = (0..20_000).map(queue).collect();
    deltas.extend([group("low", "q19999", Vec::new()), pod("low", "default")]);
    let outcome = planned(deltas);
    assert_eq!(outcome.decisions.len(), 2, "{:?}", outcome.verdicts);
}

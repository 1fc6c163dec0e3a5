//! Messages of eviction events for the decisions of a cycle.

use kai_engine::explain::eviction_message;
use kai_engine::{Cycle, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

fn messages(text: &str) -> Vec<String> {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let mut cluster = scenario.cluster.build();
    let cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };
    let outcome = plan(&mut cluster, &scenario.policy, cycle);
    outcome.decisions.iter().filter_map(|decision| eviction_message(&cluster, decision)).collect()
}

#[test]
fn reclaim_event_reports_usage_of_both_queues() {
    let text = "nodes n1 gpu=2\nqueues a quota=1 | b quota=1 priority=300\ngroups x queue=a pods=1x{gpu=1} running@n1\n y queue=a pods=1x{gpu=1} running@n1\n z queue=b pods=1x{gpu=1}";
    let messages = messages(text);
    assert_eq!(messages.len(), 1, "{messages:?}");
    let lines: Vec<&str> = messages[0].lines().collect();
    assert_eq!(lines[0], "Pod default/y-0 was preempted by workload default/z.");
    assert!(lines[1].starts_with("a uses <GPU: 2, "), "{}", lines[1]);
    assert!(lines[1].contains(" with a quota of <GPU: 1, "), "{}", lines[1]);
    assert!(lines[2].starts_with("b uses <GPU: 0, "), "{}", lines[2]);
    assert!(lines[2].ends_with(" and queue priority of <300>."), "{}", lines[2]);
}

#[test]
fn preemption_event_names_the_preemptor() {
    let text = "nodes n1 gpu=1\nqueues a quota=1\ngroups x queue=a priority=50 pods=1x{gpu=1} running@n1\n y queue=a priority=75 pods=1x{gpu=1}";
    assert_eq!(messages(text), ["Pod default/x-0 was preempted by higher priority workload default/y"]);
}

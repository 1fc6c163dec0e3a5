//! Messages that need the cluster: of groups that wait for pods or run below their minimum, and of pods per node.

use kai_engine::explain::{detailed_pod_message, eviction_message, not_ready_message, stale_message};
use kai_engine::input::Key;
use kai_engine::{ClusterState, Cycle, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;

const SUB_GROUPS: &str = "nodes n1 gpu=8\nqueues a quota=8\ngroups x queue=a grace=1m stale=2m sub={heads,min=1} sub={workers,min=3} pods=1x{gpu=1,sub=heads} running@n1 pods=1x{gpu=1,sub=workers} running@n1 pods=1x{gpu=1,sub=workers} gated";
const ONE_SET: &str =
    "nodes n1 gpu=8\nqueues a quota=8\ngroups x queue=a min=4 pods=2x{gpu=1} pods=1x{gpu=1} gated";

fn group() -> Key {
    Key::new("default", "x")
}

/// The cluster and the outcome of its first cycle.
fn planned(text: &str) -> (ClusterState, Outcome) {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let mut state = scenario.cluster.build();
    let outcome =
        plan(&mut state, &scenario.policy, Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 });
    (state, outcome)
}

#[test]
fn not_ready_event_counts_existing_and_gated_pods_of_each_pod_set() {
    let message = |text| not_ready_message(&planned(text).0, &group());
    assert_eq!(
        message(ONE_SET),
        "Job is not ready for scheduling. Waiting for 4 pods, currently 3 exist, 1 are gated"
    );
    assert_eq!(
        message(SUB_GROUPS),
        "Job is not ready for scheduling. Waiting for 3 pods for SubGroup workers, currently 2 exist, 1 are gated."
    );
}

#[test]
fn stale_event_names_the_sub_groups_below_their_minimum() {
    assert_eq!(
        stale_message(&planned(SUB_GROUPS).0, &group()),
        "Job is stale. 2 pods are active, minMember is 4, subGroup workers minMember is 3 and 1 pods are active"
    );
}

#[test]
fn eviction_of_a_stale_gang_names_the_minimum_of_the_sub_group() {
    let (state, outcome) = planned(SUB_GROUPS);
    let mut messages: Vec<String> =
        outcome.decisions.iter().filter_map(|decision| eviction_message(&state, decision)).collect();
    messages.sort();
    assert_eq!(
        messages,
        [
            "Workload doesn't meet the minimum required number of pods (1) in sub-group heads, evicting remaining pod: default/x-0",
            "Workload doesn't meet the minimum required number of pods (3) in sub-group workers, evicting remaining pod: default/x-1",
        ]
    );
}

#[test]
fn detailed_message_of_a_pod_has_a_line_for_each_node() {
    let scenario = Scenario::parse(
        "nodes n1 gpu=2 cpu=4 | n2 gpu=1 cpu=64 cordon | n3 gpu=4 cpu=64 taint=team:b:NoSchedule\nqueues a quota=8\ngroups x queue=a pods=1x{gpu=2,cpu=6}\n y queue=a pods=1x{gpu=1,cpu=3} running@n1",
    )
    .expect("the scenario is valid");
    let mut state = scenario.cluster.build();
    let outcome =
        plan(&mut state, &scenario.policy, Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 });
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group == group()).expect("x is pending");
    assert_eq!(
        detailed_pod_message(&state, &scenario.policy, verdict, &Key::new("default", "x-0")),
        "\n<n1>: Node didn't have enough resources: GPUs, requested: 2, used: 1, capacity: 2, Node didn't have enough resources: CPU cores, requested: 6, used: 3, capacity: 4.\n<n2>: Node didn't have enough resources: GPUs, requested: 2, used: 0, capacity: 1.\n<n3>: node(s) had untolerated taint {team: b}.\nno nodes with enough resources were found."
    );
}

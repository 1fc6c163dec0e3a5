//! Messages of events on groups that wait for pods, or that run below their minimum.

use kai_engine::explain::{eviction_message, not_ready_message, stale_message};
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

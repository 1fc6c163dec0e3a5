//! The pod group controller: status of pod groups.

use crate::{Component, TestCluster, builder, counts, k, pod};
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::kind::Key;
use kai_sim::FaultRates;
use serde_json::{Value, json};
use std::time::Duration;

fn group(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "q", "priorityClassName": class}})
}

fn member(name: &str, group: &str) -> Value {
    pod(name, &json!({}), &json!({"pod-group-name": group}))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_bound_soon_costs_one_status_write() {
    let test = TestCluster::new(&[Component::PodGroup]).await;
    test.create(&k::POD_GROUP, group("g", "train")).await;
    test.create(
        &k::POD,
        pod("a", &json!({}), &json!({"pod-group-name": "g", "sim.kai.scheduler/run-for": "60s"})),
    )
    .await;
    test.sleep(1.5).await;
    assert!(test.writes(Component::PodGroup).is_empty());
    test.bind("a", "node-1").await;
    test.sleep(0.3).await;
    assert_eq!(test.writes(Component::PodGroup).len(), 1, "at once");
    test.until(&k::POD, "a", |pod| object::str_at(pod, "/status/phase") == "Running").await;
    test.sleep(10.0).await;
    let g = test.find(&k::POD_GROUP, "g").await.unwrap();
    assert_eq!(counts(&g, "nvidia.com/gpu"), ["1", "1", ""]);
    assert_eq!(counts(&g, "cpu"), ["500m", "500m", ""]);
    assert_eq!(test.writes(Component::PodGroup).len(), 1);
    let over = test.until(&k::POD_GROUP, "g", |g| counts(g, "cpu") == ["", "", ""]).await;
    assert_eq!(over["status"]["resourcesStatus"], json!({}));
    test.sleep(60.0).await;
    assert_eq!(test.writes(Component::PodGroup).len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pending_group_reports_requested_resources() {
    let test = TestCluster::new(&[Component::PodGroup]).await;
    test.create(&k::POD_GROUP, group("g", "inference")).await;
    for name in ["a", "b", "c"] {
        test.create(&k::POD, member(name, "g")).await;
    }
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["3", "", ""]).await;
    test.sleep(10.0).await;
    assert_eq!(test.writes(Component::PodGroup).len(), 1);
    for name in ["a", "b", "c"] {
        test.bind(name, "node-2").await;
    }
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["3", "3", "3"]).await;
    assert_eq!(test.writes(Component::PodGroup).len(), 2, "a gang costs one write");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn non_preemptible_allocation_follows_group_and_priority_class() {
    let test = TestCluster::new(&[Component::PodGroup]).await;
    test.create(&k::POD_GROUP, group("g", "inference")).await;
    test.create(&k::POD, member("a", "g")).await;
    test.bind("a", "node-1").await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", "1"]).await;
    test.patch(&k::POD_GROUP, "g", json!({"spec": {"preemptibility": "preemptible"}})).await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", ""]).await;
    test.patch(&k::POD_GROUP, "g", json!({"spec": {"preemptibility": null, "priorityClassName": "late"}}))
        .await;
    let class = json!({"metadata": {"name": "late"}, "value": 200});
    test.create(&k::PRIORITY_CLASS, class).await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", "1"]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gpu_fractions_and_claims_are_counted() {
    let test = TestCluster::new(&[Component::PodGroup]).await;
    test.patch(
        &kai_runtime::kind::NODE,
        "node-1",
        json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "4000"}}}),
    )
    .await;
    test.create(&k::POD_GROUP, group("g", "train")).await;
    let annotations = json!({"pod-group-name": "g", "gpu-memory": "1000", "gpu-fraction-num-devices": "2", "received-resource-type": "Fraction"});
    let mut shared = pod("a", &json!({}), &annotations);
    shared["spec"]["containers"][0]["resources"] = json!({});
    shared["spec"]["resourceClaims"] = json!([{"name": "x", "resourceClaimName": "late"}]);
    test.create(&k::POD, shared).await;
    test.bind("a", "node-1").await;
    let memory = |g: &Value| counts(g, "run.ai/gpu.memory")[0].to_owned();
    let g = test.until(&k::POD_GROUP, "g", |g| memory(g) == "2k").await;
    assert_eq!(counts(&g, "nvidia.com/gpu"), ["", "500m", ""]);
    let claim = json!({"metadata": {"name": "late"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 3}},
    ]}}});
    test.create(&kai_runtime::kind::RESOURCE_CLAIM, claim).await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "gpu.example.com") == ["3", "3", ""]).await;
    test.patch(
        &kai_runtime::kind::NODE,
        "node-1",
        json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "8000"}}}),
    )
    .await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["", "250m", ""]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_other_groups_and_schedulers_are_not_counted() {
    let test = TestCluster::new(&[Component::PodGroup]).await;
    test.create(&k::POD_GROUP, group("g", "train")).await;
    test.create(&k::POD, member("a", "g")).await;
    test.create(&k::POD, member("b", "other")).await;
    let mut foreign = member("c", "g");
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    test.create(&k::POD, foreign).await;
    test.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "", ""]).await;
    test.sleep(30.0).await;
    assert_eq!(test.writes(Component::PodGroup).len(), 1);
}

/// The controller patches only its own fields, and corrects what a former leader writes late.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn status_of_a_group_has_what_each_writer_wrote_last() {
    for seed in 0..6 {
        let test = TestCluster::of(builder().seed(seed), &[Component::PodGroup]).await;
        let late = FaultRates {
            response_late: 300_000,
            event_late: 300_000,
            delay_max: Duration::from_secs(8),
            ..FaultRates::default()
        };
        test.cluster.faults().set_client_rates(Component::PodGroup.client(), late);
        test.create(&k::POD_GROUP, group("g", "train")).await;
        let key = Key::new("default", "g");
        for index in 0..5 {
            test.create(&k::POD, member(&format!("p-{index}"), "g")).await;
            test.bind(&format!("p-{index}"), "node-1").await;
            let conditions = json!([{"type": "UnschedulableOnNodePool", "message": index.to_string()}]);
            let former_leader = json!({"requested": {"cpu": "9", "example.com/old": "1"}});
            for status in
                [json!({"schedulingConditions": conditions}), json!({"resourcesStatus": former_leader})]
            {
                let patch = json!({"status": status});
                test.cluster.api().patch_dynamic(&k::POD_GROUP, &key, Part::Status, &patch).await.unwrap();
                test.sleep(1.0).await;
            }
        }
        let expected = json!({"cpu": "2500m", "nvidia.com/gpu": "5"});
        let done = |g: &Value| {
            let totals = &g["status"]["resourcesStatus"];
            totals["requested"] == expected && totals["allocated"] == expected
        };
        let g = test.until(&k::POD_GROUP, "g", done).await;
        assert_eq!(g["status"]["schedulingConditions"][0]["message"], "4", "seed {seed}");
        test.sleep(60.0).await;
        assert!(done(&test.find(&k::POD_GROUP, "g").await.unwrap()), "seed {seed}");
    }
}

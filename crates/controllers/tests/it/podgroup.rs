//! The pod group controller: status of pod groups.

use crate::{Component, TestCluster, counts, k, pod};
use kai_object as object;
use serde_json::{Value, json};

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

//! The status of pod groups follows their pods.

use crate::{Component, World, counts, k, pod};
use kai_object as object;
use serde_json::{Value, json};

fn group(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "q", "priorityClassName": class}})
}

fn member(name: &str, group: &str) -> Value {
    pod(name, &json!({}), &json!({"pod-group-name": group}))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_is_bound_soon_costs_one_write_until_it_ends() {
    let world = World::new(&[Component::PodGroup]).await;
    world.create(&k::POD_GROUP, group("g", "train")).await;
    world
        .create(
            &k::POD,
            pod("a", &json!({}), &json!({"pod-group-name": "g", "sim.kai.scheduler/run-for": "60s"})),
        )
        .await;
    world.sleep(1.5).await;
    assert!(world.writes(Component::PodGroup).is_empty());
    world.bind("a", "node-1").await;
    world.sleep(0.3).await;
    assert_eq!(world.writes(Component::PodGroup).len(), 1, "at once");
    world.until(&k::POD, "a", |pod| object::str_at(pod, "/status/phase") == "Running").await;
    world.sleep(10.0).await;
    let g = world.find(&k::POD_GROUP, "g").await.unwrap();
    assert_eq!(counts(&g, "nvidia.com/gpu"), ["1", "1", ""]);
    assert_eq!(counts(&g, "cpu"), ["500m", "500m", ""]);
    assert_eq!(world.writes(Component::PodGroup).len(), 1);
    let over = world.until(&k::POD_GROUP, "g", |g| counts(g, "cpu") == ["", "", ""]).await;
    assert_eq!(over["status"]["resourcesStatus"], json!({}));
    world.sleep(60.0).await;
    assert_eq!(world.writes(Component::PodGroup).len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_group_that_waits_says_what_it_requests() {
    let world = World::new(&[Component::PodGroup]).await;
    world.create(&k::POD_GROUP, group("g", "inference")).await;
    for name in ["a", "b", "c"] {
        world.create(&k::POD, member(name, "g")).await;
    }
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["3", "", ""]).await;
    world.sleep(10.0).await;
    assert_eq!(world.writes(Component::PodGroup).len(), 1);
    for name in ["a", "b", "c"] {
        world.bind(name, "node-2").await;
    }
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["3", "3", "3"]).await;
    assert_eq!(world.writes(Component::PodGroup).len(), 2, "a gang costs one write");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_cannot_be_preempted_follows_group_and_class() {
    let world = World::new(&[Component::PodGroup]).await;
    world.create(&k::POD_GROUP, group("g", "inference")).await;
    world.create(&k::POD, member("a", "g")).await;
    world.bind("a", "node-1").await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", "1"]).await;
    world.patch(&k::POD_GROUP, "g", json!({"spec": {"preemptibility": "preemptible"}})).await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", ""]).await;
    world
        .patch(&k::POD_GROUP, "g", json!({"spec": {"preemptibility": null, "priorityClassName": "late"}}))
        .await;
    let class = json!({"metadata": {"name": "late"}, "value": 200});
    world.create(&k::PRIORITY_CLASS, class).await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "1", "1"]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn shares_and_claims_count() {
    let world = World::new(&[Component::PodGroup]).await;
    world
        .patch(
            &kai_runtime::kind::NODE,
            "node-1",
            json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "4000"}}}),
        )
        .await;
    world.create(&k::POD_GROUP, group("g", "train")).await;
    let annotations = json!({"pod-group-name": "g", "gpu-memory": "1000", "gpu-fraction-num-devices": "2", "received-resource-type": "Fraction"});
    let mut shared = pod("a", &json!({}), &annotations);
    shared["spec"]["containers"][0]["resources"] = json!({});
    shared["spec"]["resourceClaims"] = json!([{"name": "x", "resourceClaimName": "late"}]);
    world.create(&k::POD, shared).await;
    world.bind("a", "node-1").await;
    let memory = |g: &Value| counts(g, "run.ai/gpu.memory")[0].to_owned();
    let g = world.until(&k::POD_GROUP, "g", |g| memory(g) == "2k").await;
    assert_eq!(counts(&g, "nvidia.com/gpu"), ["", "500m", ""]);
    let claim = json!({"metadata": {"name": "late"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 3}},
    ]}}});
    world.create(&kai_runtime::kind::RESOURCE_CLAIM, claim).await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "gpu.example.com") == ["3", "3", ""]).await;
    world
        .patch(
            &kai_runtime::kind::NODE,
            "node-1",
            json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "8000"}}}),
        )
        .await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["", "250m", ""]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_other_groups_and_schedulers_do_not_count() {
    let world = World::new(&[Component::PodGroup]).await;
    world.create(&k::POD_GROUP, group("g", "train")).await;
    world.create(&k::POD, member("a", "g")).await;
    world.create(&k::POD, member("b", "other")).await;
    let mut foreign = member("c", "g");
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    world.create(&k::POD, foreign).await;
    world.until(&k::POD_GROUP, "g", |g| counts(g, "nvidia.com/gpu") == ["1", "", ""]).await;
    world.sleep(30.0).await;
    assert_eq!(world.writes(Component::PodGroup).len(), 1);
}

//! Pods without shared GPUs: what binding costs, what failure looks like, and how it is tried again.

use crate::{Reporter, World, annotation, builder, condition, phase, pod};
use kai_binder::{BIND_REQUEST, Options};
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::json;

fn nodes() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(2, 8)]).keep_lines()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_plain_pod_costs_two_writes_and_no_reads() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    let made = world.create(&kind::POD, pod("a", &json!({}))).await;
    let zones = json!([{"zone": "node-0", "amount": {"cpu": "2"}}]);
    let reads = world.asked("GET").len();
    world.request(&made, "node-2", &json!({"predictedNUMAZones": zones})).await;
    let request = world.until_phase("a", "Succeeded").await;
    assert_eq!(request["status"], json!({"phase": "Succeeded"}));
    let bound = world.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(bound["spec"]["nodeName"], "node-2");
    assert_eq!(annotation(&bound, "received-resource-type"), "Regular");
    let zones_written = serde_json::from_str::<serde_json::Value>(annotation(
        &bound,
        "kai.scheduler/numa-placement-predicted",
    ));
    assert_eq!(zones_written.unwrap(), zones);
    assert!(condition(&bound, "PodBound").is_none());
    assert_eq!(
        world.writes(),
        [
            "/api/v1/namespaces/default/pods/a/binding",
            "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests/a/status",
        ]
    );
    assert_eq!(world.asked("GET").len(), reads, "everything was known");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_condition_and_the_event_of_kai_come_on_demand() {
    let options = Options { kai_events: true, ..Options::default() };
    let world = World::with(nodes(), options, Reporter::Runs).await;
    let made = world.create(&kind::POD, pod("a", &json!({}))).await;
    world.request(&made, "node-1", &json!({})).await;
    world.until_phase("a", "Succeeded").await;
    world.sleep(5).await;
    let bound = world.get(&kind::POD, "a").await;
    let condition = condition(&bound, "PodBound").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Bound")));
    assert_eq!(condition["message"], "Pod bound successfully to node node-1");
    let events = world.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let event = events.iter().find(|event| event["reason"] == "Bound").unwrap();
    assert_eq!((&event["type"], &event["source"]["component"]), (&json!("Normal"), &json!("binder")));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_is_bound_counts_as_done_wherever_it_is() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    let mut wanted = pod("a", &json!({}));
    wanted["spec"]["nodeName"] = json!("node-1");
    let made = world.create(&kind::POD, wanted).await;
    world.request(&made, "node-2", &json!({})).await;
    world.until_phase("a", "Succeeded").await;
    assert_eq!(world.writes().len(), 1, "{:?}", world.writes());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_failure_is_told_and_final_without_a_limit() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    let made = world.create(&kind::POD, pod("a", &json!({}))).await;
    world.request(&made, "nowhere", &json!({})).await;
    let request = world.until_phase("a", "Failed").await;
    assert_eq!(request["status"], json!({"phase": "Failed", "reason": "node `nowhere` not found"}));
    world.sleep(120).await;
    assert_eq!(world.get(&BIND_REQUEST, "a").await["status"], request["status"], "it is not tried again");
    let failed = world.get(&kind::POD, "a").await;
    let condition = condition(&failed, "PodBound").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("BindingError")));
    let message = "Failed to bind pod default/a to node nowhere: node `nowhere` not found";
    assert_eq!(condition["message"], message);
    let events = world.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let event = events.iter().find(|event| event["reason"] == "BindingError").unwrap();
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(message)));
    let binder_writes = world.writes().into_iter().filter(|path| path.contains("/binding")).count();
    assert_eq!(binder_writes, 0);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failures_are_counted_until_the_limit_and_success_keeps_the_count() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    for name in ["a", "b"] {
        let made = world.create(&kind::POD, pod(name, &json!({}))).await;
        world.request(&made, "later-1", &json!({"backoffLimit": 4})).await;
    }
    let twice = |request: &serde_json::Value| request["status"]["failedAttempts"] == 2;
    world.until(&BIND_REQUEST, "a", twice).await;
    // The next attempt comes four seconds after the third failure.
    world.until(&BIND_REQUEST, "a", |request| request["status"]["failedAttempts"] == 3).await;
    world.delete(&BIND_REQUEST, "b").await;
    let node = NodeGroup { name: "later".to_owned(), ..NodeGroup::gpu_nodes(1, 8) };
    world.cluster.add_nodes(&[node]).await.unwrap();
    let request = world.until_phase("a", "Succeeded").await;
    assert_eq!(request["status"], json!({"phase": "Succeeded", "failedAttempts": 3}));
    let told = |pod: &serde_json::Value| {
        condition(pod, "PodBound").is_some_and(|condition| condition["status"] == "True")
    };
    let bound = world.until(&kind::POD, "a", told).await;
    assert_eq!(bound["spec"]["nodeName"], "later-1", "the failure that was told is taken back");

    let made = world.create(&kind::POD, pod("c", &json!({}))).await;
    world.request(&made, "never", &json!({"backoffLimit": 3})).await;
    world.until(&BIND_REQUEST, "c", |request| request["status"]["failedAttempts"] == 3).await;
    world.sleep(300).await;
    let status = world.get(&BIND_REQUEST, "c").await["status"].clone();
    assert_eq!((&status["phase"], &status["failedAttempts"]), (&json!("Failed"), &json!(3)));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_request_for_an_earlier_pod_of_the_name_binds_nothing() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    let mut old = world.create(&kind::POD, pod("a", &json!({}))).await;
    old["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    world.request(&old, "node-1", &json!({})).await;
    // Whoever collects garbage may be faster; either way the pod stays unbound.
    world.sleep(60).await;
    if let Some(request) = world.find(&BIND_REQUEST, "a").await {
        assert_eq!(phase(&request), "Failed");
    }
    assert!(world.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn many_requests_are_worked_on_side_by_side() {
    let world = World::with(nodes(), Options::default(), Reporter::Runs).await;
    for index in 0..60 {
        let made = world.create(&kind::POD, pod(&format!("p-{index}"), &json!({}))).await;
        world.request(&made, "node-1", &json!({})).await;
    }
    for index in 0..60 {
        world.until_phase(&format!("p-{index}"), "Succeeded").await;
    }
    assert_eq!(world.writes().len(), 120);
}

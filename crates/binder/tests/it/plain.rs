//! Pods without shared GPUs: the API requests of a bind, reports of failures, and retries.

use crate::{BIND_REQUEST, Reporter, TestCluster, annotation, builder, condition, phase, pod};
use kai_binder::Options;
use kai_runtime::api::Part;
use kai_runtime::kind::{self, Key};
use kai_sim::NodeGroup;
use serde_json::json;

fn nodes() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(2, 8)]).keep_lines()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plain_bind_takes_two_writes_and_no_reads() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    let zones = json!([{"zone": "node-0", "amount": {"cpu": "2"}}]);
    let reads = test.requests("GET").len();
    test.request(&made, "node-2", &json!({"predictedNUMAZones": zones})).await;
    let request = test.until_phase("a", "Succeeded").await;
    assert_eq!(request["status"], json!({"phase": "Succeeded"}));
    let bound = test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(bound["spec"]["nodeName"], "node-2");
    assert_eq!(annotation(&bound, "received-resource-type"), "Regular");
    let zones_written = serde_json::from_str::<serde_json::Value>(annotation(
        &bound,
        "kai.scheduler/numa-placement-predicted",
    ));
    assert_eq!(zones_written.unwrap(), zones);
    assert!(condition(&bound, "PodBound").is_none());
    assert_eq!(
        test.writes(),
        [
            "/api/v1/namespaces/default/pods/a/binding",
            "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests/a/status",
        ]
    );
    assert_eq!(test.requests("GET").len(), reads, "the informers have everything");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn condition_and_event_of_success_are_optional() {
    let options = Options { kai_events: true, ..Options::default() };
    let test = TestCluster::with(nodes(), options, Reporter::Runs).await;
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    test.request(&made, "node-1", &json!({})).await;
    test.until_phase("a", "Succeeded").await;
    test.sleep(5).await;
    let bound = test.get(&kind::POD, "a").await;
    let condition = condition(&bound, "PodBound").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Bound")));
    assert_eq!(condition["message"], "Pod bound successfully to node node-1");
    let events = test.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let event = events.iter().find(|event| event["reason"] == "Bound").unwrap();
    assert_eq!((&event["type"], &event["source"]["component"]), (&json!("Normal"), &json!("binder")));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn request_of_a_bound_pod_succeeds_on_any_node() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    let mut wanted = pod("a", &json!({}));
    wanted["spec"]["nodeName"] = json!("node-1");
    let made = test.create(&kind::POD, wanted).await;
    test.request(&made, "node-2", &json!({})).await;
    test.until_phase("a", "Succeeded").await;
    assert_eq!(test.writes().len(), 1, "{:?}", test.writes());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_of_a_request_that_claims_success_is_bound() {
    let test = TestCluster::without_binder(nodes(), Reporter::Runs).await;
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    test.request(&made, "node-2", &json!({})).await;
    let status = json!({"status": {"phase": "Succeeded", "failedAttempts": -1}});
    let key = Key::new("default", "a");
    test.cluster.api().patch_dynamic(&BIND_REQUEST, &key, Part::Status, &status).await.unwrap();
    let mut test = test;
    test.start_binder(Options::default());
    test.sleep(15).await;
    assert_eq!(test.get(&kind::POD, "a").await["spec"]["nodeName"], "node-2");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failure_is_reported_and_final_without_a_backoff_limit() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    test.request(&made, "nowhere", &json!({})).await;
    let request = test.until_phase("a", "Failed").await;
    assert_eq!(request["status"], json!({"phase": "Failed", "reason": "node `nowhere` not found"}));
    test.sleep(120).await;
    assert_eq!(test.get(&BIND_REQUEST, "a").await["status"], request["status"], "there is no retry");
    let failed = test.get(&kind::POD, "a").await;
    let condition = condition(&failed, "PodBound").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("BindingError")));
    let message = "Failed to bind pod default/a to node nowhere: node `nowhere` not found";
    assert_eq!(condition["message"], message);
    let events = test.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let event = events.iter().find(|event| event["reason"] == "BindingError").unwrap();
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(message)));
    let binder_writes = test.writes().into_iter().filter(|path| path.contains("/binding")).count();
    assert_eq!(binder_writes, 0);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failures_are_counted_up_to_the_limit_and_success_keeps_the_count() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    for name in ["a", "b"] {
        let made = test.create(&kind::POD, pod(name, &json!({}))).await;
        test.request(&made, "later-1", &json!({"backoffLimit": 4})).await;
    }
    let twice = |request: &serde_json::Value| request["status"]["failedAttempts"] == 2;
    test.until(&BIND_REQUEST, "a", twice).await;
    // The next attempt comes four seconds after the third failure.
    test.until(&BIND_REQUEST, "a", |request| request["status"]["failedAttempts"] == 3).await;
    test.delete(&BIND_REQUEST, "b").await;
    let node = NodeGroup { name: "later".to_owned(), ..NodeGroup::gpu_nodes(1, 8) };
    test.cluster.add_nodes(&[node]).await.unwrap();
    let request = test.until_phase("a", "Succeeded").await;
    assert_eq!(request["status"], json!({"phase": "Succeeded", "failedAttempts": 3}));
    let reported = |pod: &serde_json::Value| {
        condition(pod, "PodBound").is_some_and(|condition| condition["status"] == "True")
    };
    let bound = test.until(&kind::POD, "a", reported).await;
    assert_eq!(bound["spec"]["nodeName"], "later-1", "the reported failure is replaced");

    let made = test.create(&kind::POD, pod("c", &json!({}))).await;
    test.request(&made, "never", &json!({"backoffLimit": 3})).await;
    test.until(&BIND_REQUEST, "c", |request| request["status"]["failedAttempts"] == 3).await;
    test.sleep(300).await;
    let status = test.get(&BIND_REQUEST, "c").await["status"].clone();
    assert_eq!((&status["phase"], &status["failedAttempts"]), (&json!("Failed"), &json!(3)));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn request_for_a_recreated_pod_binds_nothing() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    let mut old = test.create(&kind::POD, pod("a", &json!({}))).await;
    old["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    test.request(&old, "node-1", &json!({})).await;
    // The garbage collector may delete the request first; the pod stays unbound either way.
    test.sleep(60).await;
    if let Some(request) = test.find(&BIND_REQUEST, "a").await {
        assert_eq!(phase(&request), "Failed");
    }
    assert!(test.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn many_requests_are_bound_concurrently() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    for index in 0..60 {
        let made = test.create(&kind::POD, pod(&format!("p-{index}"), &json!({}))).await;
        test.request(&made, "node-1", &json!({})).await;
    }
    for index in 0..60 {
        test.until_phase(&format!("p-{index}"), "Succeeded").await;
    }
    assert_eq!(test.writes().len(), 120);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_request_fails_with_a_status_and_an_event() {
    let test = TestCluster::with(nodes(), Options::default(), Reporter::Runs).await;
    accept_any_bind_request(&test).await;
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    test.request(&made, "node-1", &json!({"backoffLimit": "three"})).await;
    let request = test.until_phase("a", "Failed").await;
    let reason = request["status"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("invalid bind request: ") && reason.contains("three"), "{reason}");
    test.sleep(60).await;
    assert!(test.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
    let events = test.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let events: Vec<_> = events.iter().filter(|event| event["reason"] == "InvalidInput").collect();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["involvedObject"]["kind"], "BindRequest");
    assert_eq!((&events[0]["type"], &events[0]["message"]), (&json!("Warning"), &json!(reason)));
    let written = test.writes().into_iter().filter(|path| path.contains("bindrequests")).count();
    assert_eq!(written, 1, "the status is written once");

    // Other requests are not affected.
    let made = test.create(&kind::POD, pod("b", &json!({}))).await;
    test.request(&made, "node-1", &json!({})).await;
    test.until_phase("b", "Succeeded").await;
}

/// Removes the schema of BindRequests, so that the server stores invalid ones.
async fn accept_any_bind_request(test: &TestCluster) {
    let crd = kai_api::crds().into_iter().find(|crd| crd.spec.names.kind == "BindRequest").unwrap();
    let name = crd.metadata.name.clone().unwrap();
    let mut versions = serde_json::to_value(&crd.spec.versions).unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    versions[0]["schema"]["openAPIV3Schema"] = schema;
    let patch = json!({"spec": {"versions": versions}});
    let key = kai_runtime::Key::new("", &name);
    let definitions = &kind::CUSTOM_RESOURCE_DEFINITION;
    let api = test.cluster.api();
    api.patch_dynamic(definitions, &key, kai_runtime::api::Part::Main, &patch).await.unwrap();
    test.sleep(10).await;
}

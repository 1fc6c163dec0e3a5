//! The subresources scale, binding, eviction, log and token.

use crate::{delete, get, merge, pod, post, put, server};
use kai_apiserver::ApiServer;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let server = server();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    assert_eq!(post(&server, sets, &set).await.0, 201);
    let path = format!("{sets}/web/scale");
    let (_, mut scale) = get(&server, &path).await;
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("a=b")));
    scale["spec"]["replicas"] = json!(5);
    let (status, _) = put(&server, &path, &scale).await;
    assert_eq!(status, 200);
    let (status, _) = put(&server, &path, &scale).await;
    assert_eq!(status, 409, "the version of the scale is that of the object");
    let (_, body) = merge(&server, &path, &json!({"spec": {"replicas": 7}})).await;
    assert_eq!(body["spec"]["replicas"], 7);
    let (_, set) = get(&server, &format!("{sets}/web")).await;
    assert_eq!((&set["spec"]["replicas"], &set["metadata"]["generation"]), (&json!(7), &json!(3)));
    let (status, _) = merge(&server, &path, &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(status, 422);
}

fn binding(node: &str) -> Value {
    json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p", "annotations": {"x": "y"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
}

#[tokio::test]
async fn binding_binds_a_pod_once() {
    let server = server();
    post(&server, PODS, &pod("p")).await;
    let path = format!("{PODS}/p/binding");
    let (status, body) = post(&server, &path, &binding("n1")).await;
    assert_eq!((status.as_u16(), body["status"].as_str()), (201, Some("Success")));
    let (_, bound) = get(&server, &format!("{PODS}/p")).await;
    assert_eq!(
        (&bound["spec"]["nodeName"], &bound["metadata"]["annotations"]["x"]),
        (&json!("n1"), &json!("y"))
    );
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let (status, body) = post(&server, &path, &binding("n2")).await;
    assert_eq!(status, 409);
    assert_eq!(
        body["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
    let (status, body) = post(&server, &path, &binding("")).await;
    assert_eq!((status.as_u16(), body["message"].as_str()), (500, Some("target.name: Required value")));
}

async fn running(server: &ApiServer, name: &str) {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("n1");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    post(server, PODS, &pod).await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(merge(server, &format!("{PODS}/{name}/status"), &status).await.0, 200);
}

async fn budget(server: &ApiServer, allowed: i64) {
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    post(server, BUDGETS, &budget).await;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    assert_eq!(merge(server, &format!("{BUDGETS}/web/status"), &status).await.0, 200);
}

#[tokio::test]
async fn eviction_consumes_the_disruption_budget() {
    let server = server();
    running(&server, "a").await;
    running(&server, "b").await;
    budget(&server, 1).await;
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "a"}});
    let (status, body) = post(&server, &format!("{PODS}/a/eviction"), &eviction).await;
    assert_eq!((status.as_u16(), body["status"].as_str()), (201, Some("Success")), "{body}");
    assert_eq!(get(&server, &format!("{PODS}/a")).await.0, 404);
    let (_, budget) = get(&server, &format!("{BUDGETS}/web")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string());
    let (status, body) =
        post(&server, &format!("{PODS}/b/eviction"), &json!({"metadata": {"name": "b"}})).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (429, Some("TooManyRequests")));
    assert_eq!(body["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        body["details"]["causes"][0]["message"],
        "The disruption budget web needs 1 healthy pods and has 2 currently"
    );
}

#[tokio::test]
async fn pending_pod_is_evicted_regardless_of_budgets() {
    let server = server();
    post(&server, PODS, &pod("a")).await;
    budget(&server, 0).await;
    let (status, _) = post(&server, &format!("{PODS}/a/eviction"), &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn log_reports_the_container_state_or_the_annotation() {
    let server = server();
    post(&server, PODS, &pod("p")).await;
    let path = format!("{PODS}/p/log");
    let (status, _) = get(&server, &path).await;
    assert_eq!(status, 204, "the pod is on no node");
    post(&server, &format!("{PODS}/p/binding"), &binding("n1")).await;
    let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [
        {"name": "main", "state": state, "image": "busybox", "imageID": "", "ready": true, "restartCount": 0},
    ]}});
    merge(&server, &format!("{PODS}/p/status"), &status).await;
    let (status, body) = get(&server, &path).await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        "2026-01-01T00:00:00Z container main started on simulated node n1, which runs no containers\n"
    );
    assert_eq!(get(&server, &format!("{path}?container=other")).await.0, 400);
}

#[tokio::test]
async fn issued_token_authenticates() {
    let server = server();
    let (status, body) = post(
        &server,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &json!({"spec": {"expirationSeconds": 700}}),
    )
    .await;
    assert_eq!(status, 201);
    let token = body["status"]["token"].as_str().unwrap();
    let review = json!({"spec": {"token": token}});
    let (_, body) = post(&server, "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(body["status"]["user"]["username"], "system:serviceaccount:default:default");
    let (status, _) = post(
        &server,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &json!({"spec": {"expirationSeconds": 7}}),
    )
    .await;
    assert_eq!(status, 422);
    let (_, body) =
        post(&server, "/apis/authentication.k8s.io/v1/tokenreviews", &json!({"spec": {"token": "x"}})).await;
    assert_ne!(body["status"]["authenticated"], true);
    delete(&server, PODS, "").await;
}

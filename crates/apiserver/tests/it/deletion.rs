//! Deletion: preconditions, finalizers, grace periods, propagation policies, collections and namespaces.

use crate::{config_map, delete, get, merge, pod, post, put, server};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn delete_returns_a_status_or_the_object() {
    let server = server();
    let (_, map) = post(&server, MAPS, &config_map("a")).await;
    let (status, body) = delete(&server, &format!("{MAPS}/a"), "").await;
    assert_eq!(status, 200);
    assert_eq!((&body["kind"], &body["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(body["details"], json!({"name": "a", "kind": "configmaps", "uid": map["metadata"]["uid"]}));
    post(&server, PODS, &pod("p")).await;
    let (_, body) = delete(&server, &format!("{PODS}/p"), "").await;
    assert_eq!(body["kind"], "Pod");
    assert_eq!(delete(&server, &format!("{PODS}/p"), "").await.0, 404);
}

#[tokio::test]
async fn delete_preconditions_are_checked() {
    let server = server();
    let (_, map) = post(&server, MAPS, &config_map("a")).await;
    let path = format!("{MAPS}/a");
    let (status, body) =
        delete(&server, &path, &json!({"preconditions": {"uid": "other"}}).to_string()).await;
    assert_eq!(status, 409);
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("the UID in the precondition (other) does not match the UID in record"),
        "{message}"
    );
    let (status, _) =
        delete(&server, &path, &json!({"preconditions": {"resourceVersion": "1"}}).to_string()).await;
    assert_eq!(status, 409);
    let right = json!({"preconditions": {"uid": map["metadata"]["uid"], "resourceVersion": map["metadata"]["resourceVersion"]}});
    assert_eq!(delete(&server, &path, &right.to_string()).await.0, 200);
}

#[tokio::test]
async fn object_is_removed_with_its_last_finalizer() {
    let server = server();
    let mut map = config_map("a");
    map["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    post(&server, MAPS, &map).await;
    let path = format!("{MAPS}/a");
    let (status, body) = delete(&server, &path, "").await;
    assert_eq!(status, 200);
    assert_eq!(body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(body["metadata"]["deletionGracePeriodSeconds"], 0);
    let (status, body) =
        merge(&server, &path, &json!({"metadata": {"finalizers": ["example.com/new"]}})).await;
    assert_eq!(status, 422, "{body}");
    merge(&server, &path, &json!({"metadata": {"finalizers": ["example.com/two"]}})).await;
    assert_eq!(get(&server, &path).await.0, 200);
    let (status, _) = merge(&server, &path, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(status, 200);
    assert_eq!(get(&server, &path).await.0, 404);
}

#[tokio::test]
async fn running_pod_is_deleted_gracefully() {
    let server = server();
    let mut running = pod("p");
    running["spec"]["nodeName"] = json!("n1");
    running["spec"]["terminationGracePeriodSeconds"] = json!(20);
    post(&server, PODS, &running).await;
    let path = format!("{PODS}/p");
    let (status, body) = delete(&server, &path, "").await;
    assert_eq!(status, 200);
    assert_eq!(body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:20Z");
    assert_eq!(body["metadata"]["deletionGracePeriodSeconds"], 20);
    let (_, body) = delete(&server, &path, &json!({"gracePeriodSeconds": 5}).to_string()).await;
    assert_eq!(body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
    let (_, body) = delete(&server, &path, &json!({"gracePeriodSeconds": 60}).to_string()).await;
    assert_eq!(body["metadata"]["deletionGracePeriodSeconds"], 5);
    delete(&server, &path, &json!({"gracePeriodSeconds": 0}).to_string()).await;
    assert_eq!(get(&server, &path).await.0, 404);
}

#[tokio::test]
async fn propagation_policies_set_their_finalizers() {
    let server = server();
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        post(&server, MAPS, &config_map("a")).await;
        let path = format!("{MAPS}/a");
        let (_, body) = delete(&server, &path, &json!({"propagationPolicy": policy}).to_string()).await;
        assert_eq!(body["metadata"]["finalizers"], json!([finalizer]));
        assert!(body["metadata"]["deletionTimestamp"].is_string());
        merge(&server, &path, &json!({"metadata": {"finalizers": []}})).await;
        assert_eq!(get(&server, &path).await.0, 404);
    }
    post(&server, MAPS, &config_map("a")).await;
    let (status, _) = delete(&server, &format!("{MAPS}/a?propagationPolicy=Sideways"), "").await;
    assert_eq!(status, 422);
    let (status, _) = delete(&server, &format!("{MAPS}/a?propagationPolicy=Background"), "").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn delete_collection_honours_selectors() {
    let server = server();
    for (name, color) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"color": color});
        post(&server, MAPS, &map).await;
    }
    let (status, body) = delete(&server, &format!("{MAPS}?labelSelector=color%3Dred"), "").await;
    assert_eq!((status.as_u16(), body["kind"].as_str()), (200, Some("ConfigMapList")));
    assert_eq!(body["items"].as_array().unwrap().len(), 2);
    assert_eq!(get(&server, MAPS).await.1["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn terminating_namespace_rejects_creates_until_finalized() {
    let server = server();
    let (_, made) = post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");
    let (_, going) = delete(&server, "/api/v1/namespaces/team", "").await;
    assert_eq!(going["status"]["phase"], "Terminating");
    let (status, body) = post(&server, "/api/v1/namespaces/team/configmaps", &config_map("a")).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        body["message"],
        "configmaps \"a\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    assert_eq!(body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(delete(&server, "/api/v1/namespaces/team", "").await.1["status"]["phase"], "Terminating");
    let (_, mut now) = get(&server, "/api/v1/namespaces/team").await;
    now["spec"]["finalizers"] = json!([]);
    let (status, _) = put(&server, "/api/v1/namespaces/team/finalize", &now).await;
    assert_eq!(status, 200);
    assert_eq!(get(&server, "/api/v1/namespaces/team").await.0, 404);
    assert_eq!(delete(&server, "/api/v1/namespaces/default", "").await.0, 403);
}

//! Server-side apply and managed fields.

use crate::{config_map, merge, post, send, server};
use http::{Method, StatusCode};
use kai_apiserver::ApiServer;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn apply(server: &ApiServer, path: &str, manager: &str, body: &Value) -> (StatusCode, Value) {
    let joint =
        if manager.contains('&') { manager.to_owned() } else { format!("{manager}&fieldValidation=Warn") };
    let path = format!("{path}?fieldManager={joint}");
    send(server, Method::PATCH, &path, "application/apply-patch+yaml", &body.to_string()).await
}

fn map(data: &Value) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": data})
}

fn managers(object: &Value) -> Vec<(&str, &str)> {
    let fields = object["metadata"]["managedFields"].as_array().unwrap();
    fields
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn apply_creates_changes_and_removes_fields() {
    let server = server();
    let path = format!("{MAPS}/a");
    let (status, made) = apply(&server, &path, "me", &map(&json!({"x": "1", "y": "2"}))).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(managers(&made), [("me", "Apply")]);
    let (status, again) = apply(&server, &path, "me", &map(&json!({"x": "1", "y": "2"}))).await;
    assert_eq!((status.as_u16(), &again), (200, &made), "applying the same again changes nothing");
    let (_, less) = apply(&server, &path, "me", &map(&json!({"x": "3"}))).await;
    assert_eq!(less["data"], json!({"x": "3"}));
}

#[tokio::test]
async fn conflicting_apply_is_rejected_unless_forced() {
    let server = server();
    let path = format!("{MAPS}/a");
    apply(&server, &path, "one", &map(&json!({"x": "1"}))).await;
    let (status, body) = apply(&server, &path, "two", &map(&json!({"x": "2"}))).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(body["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    assert_eq!(body["details"]["causes"][0]["reason"], "FieldManagerConflict");
    assert_eq!(body["details"]["causes"][0]["field"], ".data.x");
    let (status, body) = apply(&server, &path, "two&force=true", &map(&json!({"x": "2"}))).await;
    assert_eq!(status, 200);
    assert_eq!(managers(&body), [("two", "Apply")]);
}

#[tokio::test]
async fn creates_and_patches_are_recorded_in_managed_fields() {
    let server = server();
    let (_, made) = post(&server, &format!("{MAPS}?fieldManager=maker"), &config_map("a")).await;
    assert_eq!(managers(&made), [("maker", "Update")]);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
    assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("v1"), &json!("FieldsV1")));
    let (_, patched) = merge(&server, &format!("{MAPS}/a"), &json!({"data": {"b": "c"}})).await;
    assert_eq!(
        managers(&patched),
        [("maker", "Update"), ("test", "Update")],
        "the agent's name stands in for a manager"
    );
}

#[tokio::test]
async fn status_subresource_has_its_own_managers() {
    let server = server();
    let path = format!("{DEPLOYMENTS}/web");
    let deployment = json!({
        "kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let (status, body) = apply(&server, &path, "me", &deployment).await;
    assert_eq!(status, 201, "{body}");
    merge(&server, &format!("{path}/status"), &json!({"status": {"replicas": 1, "observedGeneration": 1}}))
        .await;
    let (_, body) = apply(&server, &path, "me", &deployment).await;
    let entries = body["metadata"]["managedFields"].as_array().unwrap();
    let status = entries.iter().find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!(status["fieldsV1"]["f:status"]["f:replicas"], json!({}));
}

#[tokio::test]
async fn apply_options_are_validated() {
    let server = server();
    let apply = "application/apply-patch+yaml";
    let body = map(&json!({})).to_string();
    let (status, answer) = send(&server, Method::PATCH, &format!("{MAPS}/a"), apply, &body).await;
    assert_eq!(status, 422);
    assert_eq!(
        answer["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let (status, _) = merge(&server, &format!("{MAPS}/a?force=true"), &json!({})).await;
    assert_eq!(status, 422);
}

//! Create, get, update and their conflicts.

use crate::{client, config_map, get, merge, pod, post, put, send, server};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn kube_client_creates_reads_replaces_and_deletes() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map: ConfigMap = serde_json::from_value(config_map("a")).unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(created.metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    let mut read = maps.get("a").await.unwrap();
    read.data = Some([("a".to_owned(), "c".to_owned())].into());
    let replaced = maps.replace("a", &PostParams::default(), &read).await.unwrap();
    assert_ne!(replaced.metadata.resource_version, created.metadata.resource_version);
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
    maps.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn bootstrap_namespaces_exist() {
    let server = server();
    let namespaces: Api<Namespace> = Api::all(client(&server));
    let names: Vec<String> = namespaces
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|ns| ns.metadata.name)
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test]
async fn server_managed_metadata_is_ignored_on_create() {
    let server = server();
    let mut map = config_map("a");
    map["metadata"]["uid"] = json!("mine");
    map["metadata"]["creationTimestamp"] = json!("2000-01-01T00:00:00Z");
    map["metadata"]["deletionTimestamp"] = json!("2000-01-01T00:00:00Z");
    let (status, body) = post(&server, MAPS, &map).await;
    assert_eq!(status, 201);
    assert_ne!(body["metadata"]["uid"], "mine");
    assert_eq!(body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(body["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn generate_name_yields_unique_names() {
    let server = server();
    let map = json!({"metadata": {"generateName": "job-"}});
    let (_, one) = post(&server, MAPS, &map).await;
    let (_, two) = post(&server, MAPS, &map).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert_eq!(one["kind"], "ConfigMap");
}

#[tokio::test]
async fn error_statuses_equal_kubernetes() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    let (status, body) = post(&server, MAPS, &config_map("a")).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(body["message"], "configmaps \"a\" already exists");

    let (status, body) = get(&server, "/apis/apps/v1/namespaces/default/deployments/x").await;
    assert_eq!(status, 404);
    assert_eq!(body["message"], "deployments.apps \"x\" not found");
    assert_eq!(body["details"], json!({"name": "x", "group": "apps", "kind": "deployments"}));

    let (status, body) = post(&server, MAPS, &config_map("Big_Name")).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (422, Some("Invalid")));
    let message = body["message"].as_str().unwrap();
    assert!(message.starts_with("ConfigMap \"Big_Name\" is invalid: metadata.name: Invalid value: \"Big_Name\": a lowercase RFC 1123 subdomain"), "{message}");
    assert_eq!(body["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(body["details"]["causes"][0]["reason"], "FieldValueInvalid");

    let (status, body) = post(&server, "/api/v1/namespaces/nowhere/configmaps", &config_map("a")).await;
    assert_eq!((status.as_u16(), body["message"].as_str()), (404, Some("namespaces \"nowhere\" not found")));

    let mut elsewhere = config_map("b");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let (status, body) = post(&server, MAPS, &elsewhere).await;
    assert_eq!(status, 400);
    assert_eq!(
        body["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test]
async fn stale_update_conflicts() {
    let server = server();
    let (_, first) = post(&server, MAPS, &config_map("a")).await;
    let path = format!("{MAPS}/a");
    let mut changed = first.clone();
    changed["data"]["a"] = json!("1");
    let (status, _) = put(&server, &path, &changed).await;
    assert_eq!(status, 200);
    changed["data"]["a"] = json!("2");
    let (status, body) = put(&server, &path, &changed).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(
        body["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (status, _) = put(&server, &path, &changed).await;
    assert_eq!(status, 200);
    let stale =
        json!({"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"z": "z"}});
    let (status, _) = merge(&server, &path, &stale).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn no_op_update_keeps_the_resource_version() {
    let server = server();
    let (_, first) = post(&server, MAPS, &config_map("a")).await;
    let (_, second) = put(&server, &format!("{MAPS}/a"), &first).await;
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn immutable_metadata_is_kept() {
    let server = server();
    let (_, first) = post(&server, MAPS, &config_map("a")).await;
    let mut other = first.clone();
    other["metadata"]["uid"] = json!("other");
    let (status, body) = put(&server, &format!("{MAPS}/a"), &other).await;
    assert_eq!(status, 409, "{body}");
    let mut other = first.clone();
    other["metadata"]["name"] = json!("b");
    let (status, body) = put(&server, &format!("{MAPS}/a"), &other).await;
    assert_eq!(status, 400);
    assert_eq!(body["message"], "the name of the object (b) does not match the name on the URL (a)");
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let server = server();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "web"}, "status": {"replicas": 7},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let (status, body) = post(&server, deployments, &deployment).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(body["metadata"]["generation"], 1);
    assert_eq!(body["status"].get("replicas"), None);

    let path = format!("{deployments}/web/status");
    let change = json!({"status": {"replicas": 3}, "spec": {"replicas": 9}});
    let (_, body) = merge(&server, &path, &change).await;
    assert_eq!(body["status"]["replicas"], 3);
    assert_ne!(body["spec"]["replicas"], 9);
    assert_eq!(body["metadata"]["generation"], 1);

    let (_, body) = merge(&server, &format!("{deployments}/web"), &change_of(8)).await;
    assert_eq!((&body["spec"]["replicas"], &body["status"]["replicas"]), (&json!(8), &json!(3)));
    assert_eq!(body["metadata"]["generation"], 2);
}

fn change_of(replicas: i64) -> Value {
    json!({"status": {"replicas": 99}, "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let server = server();
    let (status, body) = post(&server, &format!("{MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(status, 201);
    assert!(body["metadata"]["uid"].is_string());
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.0, 404);
    let (status, _) = post(&server, &format!("{MAPS}?dryRun=Some"), &config_map("a")).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn update_creates_only_kinds_that_allow_it() {
    let server = server();
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let (status, _) = put(&server, "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease).await;
    assert_eq!(status, 201);
    let (status, _) = put(&server, &format!("{MAPS}/none"), &config_map("none")).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn field_validation_ignores_warns_or_rejects() {
    let server = server();
    let mut unknown = pod("unknown");
    unknown["spec"]["colour"] = json!("red");
    let (status, body) = post(&server, &format!("{PODS}?fieldValidation=Strict"), &unknown).await;
    assert_eq!(status, 400);
    assert_eq!(
        body["message"],
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.colour\""
    );
    let (status, body) = post(&server, PODS, &unknown).await;
    assert_eq!((status.as_u16(), body["spec"].get("colour")), (201, None));
}

#[tokio::test]
async fn pod_decodes_as_a_typed_object() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let made: Pod = serde_json::from_value(pod("p")).unwrap();
    let made = pods.create(&PostParams::default(), &made).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(made.metadata.generation, Some(1));
}

#[tokio::test]
async fn yaml_is_accepted_and_returned() {
    let server = server();
    let yaml = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: m\ndata:\n  k: v\n";
    let (status, body) = send(&server, Method::POST, MAPS, "application/yaml", yaml).await;
    assert_eq!((status.as_u16(), body["data"]["k"].as_str()), (201, Some("v")));
}

//! Lists: selectors, pagination and resourceVersions.

use crate::{config_map, delete, get, merge, pod, post, server};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn with_maps(server: &ApiServer, count: usize) {
    for index in 0..count {
        let mut map = config_map(&format!("m{index:02}"));
        map["metadata"]["labels"] = json!({"parity": if index % 2 == 0 { "even" } else { "uneven" }});
        assert_eq!(post(server, MAPS, &map).await.0, 201);
    }
}

#[tokio::test]
async fn builtin_list_items_omit_type_meta() {
    let server = server();
    with_maps(&server, 2).await;
    let (_, list) = get(&server, MAPS).await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(list["items"][0].get("kind"), None);
    assert_eq!(list["items"][0]["data"]["a"], "b");
    let (_, empty) = get(&server, "/api/v1/namespaces/kube-system/configmaps").await;
    assert_eq!(empty["items"], json!([]));
}

#[tokio::test]
async fn lists_honour_selectors() {
    let server = server();
    with_maps(&server, 6).await;
    let (_, list) = get(&server, &format!("{MAPS}?labelSelector=parity%3Duneven")).await;
    assert_eq!(names(&list), ["m01", "m03", "m05"]);
    let (_, list) = get(&server, &format!("{MAPS}?labelSelector=parity+in+(even),parity")).await;
    assert_eq!(names(&list), ["m00", "m02", "m04"]);
    let (_, list) = get(&server, "/api/v1/configmaps?fieldSelector=metadata.name%3Dm03").await;
    assert_eq!(names(&list), ["m03"]);
    let (_, list) =
        get(&server, &format!("{MAPS}?fieldSelector=metadata.name!%3Dm03,metadata.namespace%3Ddefault"))
            .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn pods_are_listed_by_node_and_phase() {
    let server = server();
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "")] {
        let mut pod = pod(name);
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        post(&server, PODS, &pod).await;
    }
    merge(&server, &format!("{PODS}/b/status"), &json!({"status": {"phase": "Running"}})).await;
    let found = async |selector: &str| {
        let (_, list) = get(&server, &format!("/api/v1/pods?fieldSelector={selector}")).await;
        names(&list).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("spec.nodeName%3Dn1").await, ["a"]);
    assert_eq!(found("spec.nodeName%3D").await, ["c"]);
    assert_eq!(found("status.phase%3DRunning").await, ["b"]);
    assert_eq!(found("status.phase!%3DRunning,spec.nodeName!%3D").await, ["a"]);
}

#[tokio::test]
async fn pages_are_consistent() {
    let server = server();
    with_maps(&server, 5).await;
    let (_, first) = get(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["m00", "m01"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    delete(&server, &format!("{MAPS}/m02"), "").await;
    post(&server, MAPS, &config_map("m015")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["m02", "m03"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&third), ["m04"]);
    assert_eq!(third["metadata"].get("continue"), None);
}

#[tokio::test]
async fn expired_continue_token_allows_an_inconsistent_continuation() {
    let mut options = Options::new(1, Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
    options.log_bytes_max = 4_000;
    let server = ApiServer::new(&options);
    with_maps(&server, 4).await;
    let (_, first) = get(&server, &format!("{MAPS}?limit=2")).await;
    for index in 0..40 {
        post(&server, MAPS, &config_map(&format!("n{index}"))).await;
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (status, expired) = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((status.as_u16(), expired["reason"].as_str()), (410, Some("Expired")));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (status, rest) = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((status.as_u16(), names(&rest)), (200, vec!["m02", "m03"]));
}

#[tokio::test]
async fn resource_version_match_is_honoured() {
    let server = server();
    with_maps(&server, 3).await;
    let (_, before) = get(&server, MAPS).await;
    let revision = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    post(&server, MAPS, &config_map("z")).await;
    let (_, exact) =
        get(&server, &format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")).await;
    assert_eq!((names(&exact).len(), exact["metadata"]["resourceVersion"].as_str()), (3, Some(&*revision)));
    let (_, later) =
        get(&server, &format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(names(&later).len(), 4);
    let (status, body) = get(&server, &format!("{MAPS}?resourceVersion=99999")).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (504, Some("Timeout")));
    let (status, body) = get(&server, &format!("{MAPS}?resourceVersionMatch=Exact")).await;
    assert_eq!(status, 422);
    assert_eq!(
        body["message"],
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    );
}

#[tokio::test]
async fn both_event_groups_list_the_same_events() {
    let server = server();
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started", "message": "it began", "type": "Normal", "count": 2,
    });
    assert_eq!(post(&server, "/api/v1/namespaces/default/events", &event).await.0, 201);
    let (_, list) =
        get(&server, "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dp")
            .await;
    assert_eq!(list["items"][0]["note"], "it began");
    assert_eq!(list["items"][0]["regarding"]["name"], "p");
    assert_eq!(list["items"][0]["deprecatedCount"], 2);
}

//! Saving and loading the server state.

use crate::{config_map, get, merge, post, server};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::json;

#[tokio::test]
async fn saved_state_keeps_uids_revisions_and_definitions() {
    let first = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    post(&first, maps, &config_map("a")).await;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    post(&first, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let widget = json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}});
    assert_eq!(post(&first, "/apis/example.com/v1/widgets", &widget).await.0, 201);
    let mut saved = Vec::new();
    first.save(&mut saved).unwrap();

    let options = Options::new(2, Clock::starting_at("2026-02-01T00:00:00Z".parse().unwrap()));
    let second = ApiServer::load(&options, saved.as_slice()).unwrap();
    for path in [maps, "/api/v1/namespaces", "/apis/example.com/v1/widgets"] {
        let (one, two) = (get(&first, path).await.1, get(&second, path).await.1);
        assert_eq!(one["items"], two["items"], "{path}");
    }
    let (status, changed) = merge(&second, &format!("{maps}/a"), &json!({"data": {"a": "c"}})).await;
    assert_eq!(status, 200);
    let revision: u64 = changed["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(revision > first.core().store.revision());
    let mut again = Vec::new();
    second.save(&mut again).unwrap();
    assert!(ApiServer::load(&options, again.as_slice()).is_ok());
    assert!(ApiServer::load(&options, &b"nonsense"[..]).is_err());
}

//! The webhook of `kai up` that sets the default schedulerName, beside those of an installation, which prepare pods that
//! share GPUs, and validate pods, queues, pod groups and topologies.

use crate::embedded::admission;
use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kai_api::well_known::name;
use kai_runtime::kind::MUTATING_WEBHOOK_CONFIGURATION;
use kai_sim::Cluster;
use serde_json::{Value, json};

const DEFAULT_SCHEDULER_PATH: &str = "/default-scheduler";

pub(super) async fn install(cluster: &Cluster) -> Result<()> {
    let default_scheduler =
        Router::new().route(DEFAULT_SCHEDULER_PATH, post(|body: Bytes| async move { respond(&body) }));
    admission::install_with(cluster, admission::pod_options(), default_scheduler).await?;
    admission::ensure(cluster.api(), &MUTATING_WEBHOOK_CONFIGURATION, &default_scheduler_webhook()).await
}

/// Mutating webhooks are called in the order of the names of their configurations: this one comes first.
fn default_scheduler_webhook() -> Value {
    let webhook = json!({
        "name": "pods.kai-up.kai.scheduler", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": {"url": admission::url(DEFAULT_SCHEDULER_PATH)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    });
    let kind = &MUTATING_WEBHOOK_CONFIGURATION;
    json!({
        "apiVersion": kind.api_version(), "kind": &*kind.kind,
        "metadata": {"name": "kai-up-pods"}, "webhooks": [webhook],
    })
}

fn respond(body: &[u8]) -> Response {
    match serde_json::from_slice::<Value>(body) {
        Ok(review) => {
            ([(header::CONTENT_TYPE, "application/json")], self::review(&review).to_string()).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Sets the schedulerName of pods that have the default one, as the cluster has no other scheduler. Pods with a nodeName,
/// such as GPU reservation pods, are left unchanged.
fn review(review: &Value) -> Value {
    let uid = &review["request"]["uid"];
    let mut response = json!({"uid": uid, "allowed": true});
    let spec = &review["request"]["object"]["spec"];
    if spec["schedulerName"] == "default-scheduler" && spec["nodeName"].is_null() {
        let patch = json!([{"op": "replace", "path": "/spec/schedulerName", "value": name::SCHEDULER}]);
        response["patchType"] = Value::from("JSONPatch");
        response["patch"] = Value::from(base64(&patch.to_string()));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded;
    use kai_components::{ComponentOptions, install};
    use kai_engine::plugin::PluginSet;
    use kai_runtime::{Key, kind};
    use kai_sim::NodeGroup;
    use std::time::Duration;

    async fn cluster() -> Cluster {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let builder = Cluster::builder().seed(1).starting_at(epoch).nodes([NodeGroup::gpu_nodes(1, 1)]);
        let mut cluster = builder.start().await.unwrap();
        install::install(cluster.api()).await.unwrap();
        super::install(&cluster).await.unwrap();
        embedded::join(&mut cluster, &ComponentOptions::default(), &PluginSet::builtin());
        cluster
    }

    fn half(name: &str, fraction: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {"gpu-fraction": fraction}},
            // Without a listening API server there is no config map with its authority.
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "busybox"}]},
        })
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn halves_of_a_gpu_run_through_our_own_admission() {
        let cluster = cluster().await;
        let api = cluster.api();
        for name in ["a", "b"] {
            api.create_dynamic(&kind::POD, "default", &half(name, "0.5")).await.unwrap();
        }
        for name in ["a", "b"] {
            let key = Key::new("default", name);
            let mut pod = Value::Null;
            for _ in 0..600 {
                pod = api.get_dynamic(&kind::POD, &key).await.unwrap();
                if pod["status"]["phase"] == "Running" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            assert_eq!(pod["status"]["phase"], "Running", "{pod}");
            let map = pod.pointer("/spec/containers/0/env/0/valueFrom/configMapKeyRef/name").unwrap();
            let map = Key::new("default", map.as_str().unwrap());
            let data = api.get_dynamic(&kind::CONFIG_MAP, &map).await.unwrap()["data"].clone();
            assert_eq!(data["GPU_PORTION"], "0.50");
            assert!(
                data["NVIDIA_VISIBLE_DEVICES"].as_str().is_some_and(|devices| !devices.is_empty()),
                "{data}"
            );
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn invalid_fraction_is_refused_with_a_hint() {
        let cluster = cluster().await;
        let refused = cluster.api().create_dynamic(&kind::POD, "default", &half("a", "2")).await.unwrap_err();
        assert_eq!(refused.code(), 403);
        assert!(refused.message().contains("annotation `gpu-fraction` is `2`"), "{}", refused.message());
        assert!(refused.message().contains("hint:"));
    }
}

//! Admission webhooks of the embedded cluster, served in this process: they set the default schedulerName, prepare pods that
//! share GPUs, and validate pods, queues, pod groups and topologies.

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kai_admission::queue::QuotaValidation;
use kai_admission::registration::{self, Endpoint, PodScope};
use kai_admission::{pod, podgroup, queue, topology};
use kai_api::well_known::name;
use kai_runtime::ResourceKind;
use kai_runtime::api::Api;
use kai_runtime::kind::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use kai_sim::Cluster;
use serde_json::{Value, json};

/// Host of the webhooks, resolved inside the embedded API server.
const HOST: &str = "kai-up.kai-scheduler.svc";

pub(super) async fn install(cluster: &Cluster) -> Result<()> {
    // Simulated nodes have no runtime classes.
    let pods = pod::Options { gpu_sharing: true, runtime_class: String::new(), ..pod::Options::default() };
    let router = Router::new()
        .route("/default-scheduler", post(|body: Bytes| async move { respond(&body) }))
        .merge(pod::router(pods))
        .merge(topology::router())
        .merge(podgroup::router())
        .merge(queue::router(cluster.api().clone(), QuotaValidation::Disabled));
    cluster.server().core().webhooks.serve(HOST, router);
    let api = cluster.api();
    // Mutating webhooks are called in the order of their configurations: the name of the scheduler comes first.
    let default_scheduler = default_scheduler_webhook();
    register(api, &MUTATING_WEBHOOK_CONFIGURATION, "kai-up-pods", vec![default_scheduler]).await?;
    let (endpoint, scope) = (Endpoint::Url { authority: HOST.to_owned() }, PodScope::default());
    ensure(api, &MUTATING_WEBHOOK_CONFIGURATION, &registration::mutating(&endpoint, "", &scope)).await?;
    for configuration in [
        registration::validating(&endpoint, "", &scope),
        registration::queues(&endpoint, ""),
        registration::pod_groups(&endpoint, ""),
    ] {
        ensure(api, &VALIDATING_WEBHOOK_CONFIGURATION, &configuration).await?;
    }
    Ok(())
}

fn default_scheduler_webhook() -> Value {
    json!({
        "name": "pods.kai-up.kai.scheduler", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": {"url": format!("https://{HOST}/default-scheduler")},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    })
}

async fn register(api: &Api, kind: &ResourceKind, name: &str, webhooks: Vec<Value>) -> Result<()> {
    let configuration = json!({
        "apiVersion": kind.api_version(), "kind": &*kind.kind,
        "metadata": {"name": name}, "webhooks": webhooks,
    });
    ensure(api, kind, &configuration).await
}

async fn ensure(api: &Api, kind: &ResourceKind, configuration: &Value) -> Result<()> {
    api.ensure_dynamic(kind, "", configuration)
        .await
        .with_context(|| format!("cannot register webhooks `{}`", kai_object::name(configuration)))
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

//! Admission webhooks of the embedded cluster, served in this process: they set the default schedulerName and validate
//! queues and pod groups.

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kai_admission::queue::QuotaValidation;
use kai_api::well_known::name;
use kai_runtime::ResourceKind;
use kai_runtime::api::Api;
use kai_runtime::kind::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use kai_sim::Cluster;
use serde_json::{Value, json};

/// Host of the webhooks, resolved inside the embedded API server.
const HOST: &str = "kai-up.kai-scheduler.svc";

pub(super) async fn install(cluster: &Cluster) -> Result<()> {
    let router = Router::new()
        .route("/default-scheduler", post(|body: Bytes| async move { respond(&body) }))
        .merge(kai_admission::podgroup::router())
        .merge(kai_admission::queue::router(cluster.api().clone(), QuotaValidation::Disabled));
    cluster.server().core().webhooks.serve(HOST, router);
    let api = cluster.api();
    let pods = webhook("pods.kai-up.kai.scheduler", "/default-scheduler", "", "v1", "pods", &["CREATE"]);
    register(api, &MUTATING_WEBHOOK_CONFIGURATION, "kai-up-pods", vec![pods]).await?;
    let queues = webhook(
        "queues.kai-up.kai.scheduler",
        "/validate-scheduling-run-ai-v2-queue",
        "scheduling.run.ai",
        "v2",
        "queues",
        &["CREATE", "UPDATE", "DELETE"],
    );
    let groups = webhook(
        "podgroups.kai-up.kai.scheduler",
        "/validate-scheduling-run-ai-v2alpha2-podgroup",
        "scheduling.run.ai",
        "v2alpha2",
        "podgroups",
        &["CREATE", "UPDATE"],
    );
    register(api, &VALIDATING_WEBHOOK_CONFIGURATION, "kai-up-objects", vec![queues, groups]).await
}

fn webhook(name: &str, path: &str, group: &str, version: &str, resource: &str, operations: &[&str]) -> Value {
    json!({
        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"url": format!("https://{HOST}{path}")},
        "rules": [{
            "apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations,
        }],
    })
}

async fn register(api: &Api, kind: &ResourceKind, name: &str, webhooks: Vec<Value>) -> Result<()> {
    let configuration = json!({
        "apiVersion": kind.api_version(), "kind": &*kind.kind,
        "metadata": {"name": name}, "webhooks": webhooks,
    });
    api.ensure_dynamic(kind, "", &configuration)
        .await
        .with_context(|| format!("cannot register webhooks `{name}`"))
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

//! Simulated clusters in virtual time: controllers, nodes and fault injection.

#![expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]

mod binder;
mod daemon_sets;
mod deployments;
mod determinism;
mod events;
mod fault_injection;
mod garbage_collection;
mod jobs;
mod kubectl;
mod nodes;
mod stateful_sets;
mod storage;

use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_sim::{Builder, Cluster, NodeGroup};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a test waits for an expected state, in virtual time.
const TIMEOUT: Duration = Duration::from_mins(30);

/// A simulated cluster with a client that binds pods.
struct TestCluster {
    inner: Cluster,
}

fn builder() -> Builder {
    Cluster::builder().seed(1).starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

impl TestCluster {
    /// Four nodes with eight GPUs each.
    async fn new() -> Self {
        Self::from_builder(builder().nodes([NodeGroup::gpu_nodes(4, 8)])).await
    }

    async fn from_builder(builder: Builder) -> Self {
        let mut cluster = builder.start().await.unwrap();
        let clock = cluster.clock();
        cluster.run("binder", move |client| binder::run(client, clock));
        Self { inner: cluster }
    }

    async fn create(&self, kind: &ResourceKind, mut object: Value) -> Value {
        let namespace = if kind.namespaced { "default" } else { "" };
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        self.inner.api().create_dynamic(kind, namespace, &object).await.unwrap()
    }

    async fn find(&self, kind: &ResourceKind, name: &str) -> Option<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.inner.api().get_dynamic(kind, &Key::new(namespace, name)).await.ok()
    }

    async fn get(&self, kind: &ResourceKind, name: &str) -> Value {
        self.find(kind, name).await.unwrap_or_else(|| panic!("there is no {} {name}", kind.kind))
    }

    async fn list(&self, kind: &ResourceKind) -> Vec<Value> {
        self.inner.api().list_dynamic(kind, "").await.unwrap().items
    }

    async fn patch(&self, kind: &ResourceKind, name: &str, patch: Value) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.inner.api().patch_dynamic(kind, &Key::new(namespace, name), Part::Main, &patch).await.unwrap();
    }

    async fn delete(&self, kind: &ResourceKind, name: &str, how: DeleteOptions) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.inner.api().delete_dynamic(kind, &Key::new(namespace, name), &how).await.unwrap();
    }

    /// Waits until an object meets a condition, and returns it.
    async fn wait_for(&self, kind: &ResourceKind, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.find(kind, name).await;
            if let Some(found) = &found
                && condition(found)
            {
                return found.clone();
            }
            let waited = begin.elapsed();
            assert!(
                waited < TIMEOUT,
                "timed out waiting for {} {name}: {:#}",
                kind.kind,
                found.unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until the objects of a kind meet a condition, and returns them.
    async fn wait_for_all(&self, kind: &ResourceKind, condition: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.list(kind).await;
            if condition(&found) {
                return found;
            }
            let names: Vec<&str> = found.iter().map(object::name).collect();
            assert!(begin.elapsed() < TIMEOUT, "timed out waiting for {}: {names:?}", kind.plural);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn wait_for_deletion(&self, kind: &ResourceKind, name: &str) {
        let begin = tokio::time::Instant::now();
        while let Some(found) = self.find(kind, name).await {
            assert!(
                begin.elapsed() < TIMEOUT,
                "timed out waiting for the deletion of {} {name}: {found:#}",
                kind.kind
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Whether the status of a condition is `True`.
fn has_condition(object: &Value, condition: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|known| known["type"] == condition && known["status"] == "True")
}

fn count(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}

fn phase(object: &Value) -> &str {
    object::str_at(object, "/status/phase")
}

/// A pod template with these annotations and this restart policy.
fn template(annotations: &Value, restart: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": annotations},
        "spec": {
            "restartPolicy": restart, "containers": [{"name": "main", "image": "busybox"}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
    })
}

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut job = json!({"metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = template(annotations, "Never");
    job
}

fn gpu_pod(name: &str, gpus: u32, annotations: &Value) -> Value {
    let mut pod = template(annotations, "Never");
    pod["metadata"]["name"] = Value::from(name);
    let amount = gpus.to_string();
    pod["spec"]["containers"][0]["resources"] =
        json!({"limits": {"nvidia.com/gpu": amount}, "requests": {"nvidia.com/gpu": amount}});
    pod
}

fn deployment(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(&json!({}), "Always"),
    }})
}

mod kinds {
    pub(crate) use kai_runtime::kind::*;
}
use kinds as k;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn namespace_gets_a_default_service_account() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::NAMESPACE, json!({"metadata": {"name": "team"}})).await;
    let account = Key::new("team", "default");
    for _ in 0..20 {
        cluster.sleep(1).await;
        if cluster.inner.api().get_dynamic(&kind::SERVICE_ACCOUNT, &account).await.is_ok() {
            return;
        }
    }
    panic!("timed out waiting for the service account");
}

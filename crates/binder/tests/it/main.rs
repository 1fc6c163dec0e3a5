//! The binder in the simulated cluster, in virtual time. The tests create BindRequests as a scheduler does.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod claims;
mod crashes;
mod fractions;
mod plain;
mod plugins;
mod real_control_plane;
mod renewals;
mod volumes;

use kai_api::BindRequest;
use kai_binder::Options;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::process::Process;
use kai_sim::cluster::Builder;
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// User agent of the binder.
const BINDER: &str = "binder";
/// Namespace of reservation pods.
const RESERVED: &str = "kai-resource-reservation";
/// Annotation of a reservation pod with its GPU.
const DEVICE: &str = "run.ai/reserve_for_gpu_index";
/// Time limit of all waits, in virtual time.
const TIMEOUT: Duration = Duration::from_mins(30);

static BIND_REQUEST: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<BindRequest>);

/// Whether the GPUs of reservation pods are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reporter {
    Runs,
    Absent,
}

/// Runs `scenario` repeatedly, each time with a binder that crashes one API request later, until it no longer crashes.
/// The scenario receives the number of requests before the crash and must clean up. `least` is the least number of
/// requests that it takes.
async fn crash_everywhere(test: &TestCluster, least: u64, scenario: impl AsyncFn(u64)) {
    for requests in 0.. {
        let before = test.cluster.faults().counts(BINDER).crashes;
        test.cluster.faults().crash_after(BINDER, requests);
        scenario(requests).await;
        // A crash that has not happened by now is replaced by the next one.
        test.sleep(10).await;
        if test.cluster.faults().counts(BINDER).crashes == before {
            assert!(requests > least, "{requests} requests are too few");
            return;
        }
    }
}

/// A simulated cluster with a binder.
struct TestCluster {
    cluster: Cluster,
}

fn builder() -> Builder {
    Cluster::builder().seed(1).starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

impl TestCluster {
    /// One node with eight GPUs.
    async fn new() -> Self {
        Self::with(builder().nodes([NodeGroup::gpu_nodes(1, 8)]), Options::default(), Reporter::Runs).await
    }

    async fn with(builder: Builder, options: Options, reporter: Reporter) -> Self {
        let mut test = Self::without_binder(builder, reporter).await;
        test.start_binder(options);
        test.sleep(2).await;
        test
    }

    async fn without_binder(builder: Builder, reporter: Reporter) -> Self {
        let mut cluster = builder.start().await.unwrap();
        let requests = kai_api::crds().into_iter().find(|crd| crd.spec.names.kind == "BindRequest").unwrap();
        let requests = serde_json::to_value(&requests).unwrap();
        cluster.api().create_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &requests).await.unwrap();
        for name in [RESERVED, "kai-scale-adjust"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.api().create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
            cluster.api().create_dynamic(&kind::SERVICE_ACCOUNT, name, &account).await.unwrap();
        }
        let clock = cluster.clock();
        if reporter == Reporter::Runs {
            cluster.run("reservations", move |client| {
                let process = Process::start(Api::new(client, "reservations"), clock, "reservations");
                kai_reservation::simulated::run(process, kai_reservation::simulated::Options::default())
            });
        }
        Self { cluster }
    }

    fn start_binder(&mut self, options: Options) {
        let clock = self.cluster.clock();
        self.cluster.run(BINDER, move |client| {
            kai_binder::run(Process::start(Api::new(client, BINDER), clock, BINDER), options.clone())
        });
    }

    async fn create_in(&self, kind: &ResourceKind, namespace: &str, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        self.cluster.api().create_dynamic(kind, namespace, &object).await.unwrap()
    }

    async fn create(&self, kind: &ResourceKind, object: Value) -> Value {
        self.create_in(kind, if kind.namespaced { "default" } else { "" }, object).await
    }

    async fn find(&self, kind: &ResourceKind, name: &str) -> Option<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().get_dynamic(kind, &Key::new(namespace, name)).await.ok()
    }

    async fn get(&self, kind: &ResourceKind, name: &str) -> Value {
        self.find(kind, name).await.unwrap_or_else(|| panic!("there is no {} {name}", kind.kind))
    }

    async fn delete(&self, kind: &ResourceKind, name: &str) {
        let namespace = if kind.namespaced { "default" } else { "" };
        let key = Key::new(namespace, name);
        self.cluster.api().delete_dynamic(kind, &key, &DeleteOptions::default().immediately()).await.unwrap();
    }

    async fn reservations(&self) -> Vec<Value> {
        self.cluster.api().list_dynamic(&kind::POD, RESERVED).await.unwrap().items
    }

    /// Creates a BindRequest for a pod and a node.
    async fn request(&self, pod: &Value, node: &str, more: &Value) -> Value {
        self.create(&BIND_REQUEST, bind_request(pod, node, more)).await
    }

    /// Waits until the object satisfies a condition, and returns it.
    async fn until(&self, kind: &ResourceKind, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.find(kind, name).await;
            if let Some(found) = &found
                && condition(found)
            {
                return found.clone();
            }
            let waited = begin.elapsed();
            assert!(waited < TIMEOUT, "{} {name} stays {:#}", kind.kind, found.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn gone(&self, kind: &ResourceKind, name: &str) {
        let begin = tokio::time::Instant::now();
        while let Some(found) = self.find(kind, name).await {
            assert!(begin.elapsed() < TIMEOUT, "{} {name} stays: {found:#}", kind.kind);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn until_reservations(&self, count: usize) -> Vec<Value> {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.reservations().await;
            if found.len() == count {
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT, "there are not {count} reservations: {found:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn until_phase(&self, name: &str, expected: &str) -> Value {
        self.until(&BIND_REQUEST, name, |request| phase(request) == expected).await
    }

    async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Paths of the binder's requests with a method since the start, without watches.
    fn requests(&self, method: &str) -> Vec<String> {
        let lines = self.cluster.journal().lines();
        let own = lines.iter().filter_map(|line| line.split_once(" binder request ")).map(|(_, what)| what);
        own.filter(|what| what.starts_with(method))
            .filter_map(|what| what.split(' ').nth(1))
            .filter(|path| !path.contains("watch=") && !path.contains("resourceVersion"))
            .map(str::to_owned)
            .collect()
    }

    fn writes(&self) -> Vec<String> {
        ["POST", "PUT", "PATCH", "DELETE"].iter().flat_map(|method| self.requests(method)).collect()
    }
}

/// A BindRequest as a scheduler creates it.
fn bind_request(pod: &Value, node: &str, more: &Value) -> Value {
    let mut request = json!({
        "metadata": {
            "name": object::name(pod), "labels": {"selected-node": node},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": object::name(pod), "uid": object::uid(pod)}],
        },
        "spec": {
            "podName": object::name(pod), "selectedNode": node, "receivedResourceType": "Regular",
            "receivedGPU": {"count": 0, "portion": "1.00"},
        },
    });
    for (field, value) in more.as_object().unwrap() {
        request["spec"][field] = value.clone();
    }
    request
}

fn phase(object: &Value) -> &str {
    object::str_at(object, "/status/phase")
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// A pod that kube-scheduler ignores.
fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox"}],
        },
    })
}

/// A pod with a GPU fraction, as mutated by the admission webhook.
fn shared_pod(name: &str) -> Value {
    let prefix = format!("{name}-abcdefg-shared-gpu");
    let mut pod = pod(name, &json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": prefix}));
    let source = json!({"configMapKeyRef": {"name": format!("{prefix}-0"), "key": "NVIDIA_VISIBLE_DEVICES"}});
    pod["spec"]["containers"][0]["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}]);
    pod
}

fn fraction(groups: &[&str]) -> Value {
    json!({
        "receivedResourceType": "Fraction", "selectedGPUGroups": groups,
        "receivedGPU": {"count": groups.len(), "portion": "0.50"},
    })
}

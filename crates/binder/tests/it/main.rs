//! The binder on the embedded cluster, in virtual time; the tests play the scheduler by writing bind requests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod claims;
mod crashes;
mod fractions;
mod plain;
mod real_control_plane;
mod volumes;

use kai_binder::{BIND_REQUEST, Options};
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::process::Process;
use kai_sim::cluster::Builder;
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Duration;

/// What the binder is called by the server.
const BINDER: &str = "binder";
/// Where reservation pods are.
const RESERVED: &str = "kai-resource-reservation";
/// Where a reservation pod says which GPU it holds.
const DEVICE: &str = "run.ai/reserve_for_gpu_index";
/// How long a test waits for what must happen, in the cluster's time.
const PATIENCE: Duration = Duration::from_mins(30);

/// Config maps.
const CONFIG_MAP: ResourceKind = ResourceKind {
    group: Cow::Borrowed(""),
    version: Cow::Borrowed("v1"),
    kind: Cow::Borrowed("ConfigMap"),
    plural: Cow::Borrowed("configmaps"),
    namespaced: true,
};

/// Who speaks for reservation pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reporter {
    Runs,
    Silent,
}

/// Runs `scene` again and again, each time with a binder that crashes one request later, until it no longer does. The
/// scene is told how many requests the binder has; it must leave nothing behind. `least` requests are taken at least.
async fn crash_everywhere(world: &World, least: u64, scene: impl AsyncFn(u64)) {
    for requests in 0.. {
        let before = world.cluster.faults().counts(BINDER).crashes;
        world.cluster.faults().crash_after(BINDER, requests);
        scene(requests).await;
        // Whoever has not crashed by then never will: the order is forgotten with the next.
        world.sleep(10).await;
        if world.cluster.faults().counts(BINDER).crashes == before {
            assert!(requests > least, "{requests} requests are too few");
            return;
        }
    }
}

/// A cluster with a binder.
struct World {
    cluster: Cluster,
}

fn builder() -> Builder {
    Cluster::builder().seed(1).starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

impl World {
    /// One node with eight GPUs.
    async fn new() -> Self {
        Self::with(builder().nodes([NodeGroup::gpu_nodes(1, 8)]), Options::default(), Reporter::Runs).await
    }

    async fn with(builder: Builder, options: Options, reporter: Reporter) -> Self {
        let mut world = Self::without_binder(builder, reporter).await;
        world.start_binder(options);
        world.sleep(2).await;
        world
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

    /// Asks the binder to put a pod on a node.
    async fn request(&self, pod: &Value, node: &str, more: &Value) -> Value {
        self.create(&BIND_REQUEST, bind_request(pod, node, more)).await
    }

    /// Waits until the object is as wanted, and returns it.
    async fn until(&self, kind: &ResourceKind, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.find(kind, name).await;
            if let Some(found) = &found
                && wanted(found)
            {
                return found.clone();
            }
            let waited = begin.elapsed();
            assert!(waited < PATIENCE, "{} {name} stays {:#}", kind.kind, found.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn gone(&self, kind: &ResourceKind, name: &str) {
        let begin = tokio::time::Instant::now();
        while let Some(found) = self.find(kind, name).await {
            assert!(begin.elapsed() < PATIENCE, "{} {name} stays: {found:#}", kind.kind);
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
            assert!(begin.elapsed() < PATIENCE, "there are not {count} reservations: {found:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn until_phase(&self, name: &str, wanted: &str) -> Value {
        self.until(&BIND_REQUEST, name, |request| phase(request) == wanted).await
    }

    async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// What the binder asked of the server since the beginning, watches left out: method and path of each.
    fn asked(&self, method: &str) -> Vec<String> {
        let lines = self.cluster.journal().lines();
        let own = lines.iter().filter_map(|line| line.split_once(" binder asks ")).map(|(_, what)| what);
        own.filter(|what| what.starts_with(method))
            .filter_map(|what| what.split(' ').nth(1))
            .filter(|path| !path.contains("watch=") && !path.contains("resourceVersion"))
            .map(str::to_owned)
            .collect()
    }

    fn writes(&self) -> Vec<String> {
        ["POST", "PUT", "PATCH", "DELETE"].iter().flat_map(|method| self.asked(method)).collect()
    }
}

/// The request that a scheduler writes to have a pod put on a node.
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

/// A pod for another scheduler than Kubernetes' own.
fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox"}],
        },
    })
}

/// A pod with a part of a GPU, as the admission webhook leaves it.
fn shared_pod(name: &str) -> Value {
    pod(
        name,
        &json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": format!("{name}-abcdefg-shared-gpu")}),
    )
}

fn fraction(groups: &[&str]) -> Value {
    json!({
        "receivedResourceType": "Fraction", "selectedGPUGroups": groups,
        "receivedGPU": {"count": groups.len(), "portion": "0.50"},
    })
}

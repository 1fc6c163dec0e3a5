//! The binder on a real API server and controller manager, in real time, with simulated nodes.

use crate::{BIND_REQUEST, DEVICE, RESERVED, annotation, condition, fraction, pod, shared_pod};
use kai_binder::Options;
use kai_clock::Clock;
use kai_kubetest::control_plane::{ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::process::Process;
use kai_runtime::{api, connect};
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// Time limit of all waits.
const TIMEOUT: Duration = Duration::from_mins(2);

struct Real {
    api: Api,
    // Dropped in order: clients end before the server.
    _tasks: JoinSet<()>,
    _plane: ControlPlane,
}

impl Real {
    /// A control plane with one node of eight GPUs and a binder.
    async fn start() -> Self {
        let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
        let plane = ControlPlane::start(&programs, Controllers::Run).await.unwrap();
        let config = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
        let client = connect::client(config).unwrap();
        let api = Api::new(client.clone(), "test");
        let clock = Clock::system();
        set_up(&api, clock).await;
        let mut tasks = JoinSet::new();
        let kubelets = kai_sim::kubelet::Options { start_delay: Duration::ZERO, ..Default::default() };
        tasks.spawn(kai_sim::kubelet::run(
            kai_sim::Connection::external(client.clone(), kai_sim::kubelet::CLIENT),
            clock,
            kubelets,
        ));
        let process = |name| Process::start(Api::new(client.clone(), name), clock, name);
        let simulated = kai_reservation::simulated::Options::default();
        tasks.spawn(kai_reservation::simulated::run(process("reservations"), simulated));
        tasks.spawn(kai_binder::run(process("binder"), Options::default()));
        Self { api, _tasks: tasks, _plane: plane }
    }

    async fn create(&self, kind: &ResourceKind, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        let namespace = if kind.namespaced { "default" } else { "" };
        self.api.create_dynamic(kind, namespace, &object).await.unwrap()
    }

    async fn request(&self, pod: &Value, node: &str, more: &Value) {
        self.create(&BIND_REQUEST, crate::bind_request(pod, node, more)).await;
    }

    async fn until(&self, kind: &ResourceKind, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let namespace = if kind.namespaced { "default" } else { "" };
            let found = self.api.get_dynamic(kind, &Key::new(namespace, name)).await.unwrap();
            if wanted(&found) {
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT, "{} {name} stays {:#}", kind.kind, found["status"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn reservations(&self) -> Vec<Value> {
        self.api.list_dynamic(&kind::POD, RESERVED).await.unwrap().items
    }
}

async fn set_up(api: &Api, clock: Clock) {
    let requests = kai_api::crds().into_iter().find(|crd| crd.spec.names.kind == "BindRequest").unwrap();
    api.create_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &serde_json::to_value(&requests).unwrap())
        .await
        .unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESERVED}});
    api.create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RESERVED}});
    api.create_dynamic(&kind::SERVICE_ACCOUNT, RESERVED, &account).await.unwrap();
    let node = kai_sim::node::node(&NodeGroup::gpu_nodes(1, 8), 0, &clock.time());
    api.create_dynamic(&kind::NODE, "", &node).await.unwrap();
    let default = Key::new("default", "default");
    while api
        .get_dynamic(&kind::SERVICE_ACCOUNT, &default)
        .await
        .is_err_and(|error: api::Error| error.is_not_found())
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while api.list_dynamic(&BIND_REQUEST, "").await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
async fn real_api_server_accepts_the_writes_of_the_binder() {
    let real = Real::start().await;
    let phase = |wanted: &'static str| move |object: &Value| object["status"]["phase"] == wanted;

    let made = real.create(&kind::POD, pod("plain", &json!({}))).await;
    let zones = json!([{"zone": "node-0", "amount": {"cpu": "2"}}]);
    real.request(&made, "node-1", &json!({"predictedNUMAZones": zones})).await;
    real.until(&BIND_REQUEST, "plain", phase("Succeeded")).await;
    let bound = real.until(&kind::POD, "plain", phase("Running")).await;
    assert_eq!(annotation(&bound, "received-resource-type"), "Regular", "annotations go with the binding");
    assert!(!annotation(&bound, "kai.scheduler/numa-placement-predicted").is_empty());

    let made = real.create(&kind::POD, pod("lost", &json!({}))).await;
    real.request(&made, "nowhere", &json!({"backoffLimit": 2})).await;
    let counted = |request: &Value| request["status"]["failedAttempts"] == 2;
    real.until(&BIND_REQUEST, "lost", counted).await;
    let failed = real.until(&kind::POD, "lost", |pod| condition(pod, "PodBound").is_some()).await;
    assert_eq!(condition(&failed, "PodBound").unwrap()["status"], "False");

    devices_are_claimed(&real).await;
    volumes_are_bound(&real).await;

    for index in 0..16 {
        let made = real.create(&kind::POD, shared_pod(&format!("half-{index}"))).await;
        real.request(&made, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
    }
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..16 {
        let name = format!("half-{index}");
        real.until(&BIND_REQUEST, &name, phase("Succeeded")).await;
        real.until(&kind::POD, &name, phase("Running")).await;
        let map = Key::new("default", format!("{name}-abcdefg-shared-gpu-0"));
        let map = real.api.get_dynamic(&kind::CONFIG_MAP, &map).await.unwrap();
        *pods.entry(object::str_at(&map, "/data/NVIDIA_VISIBLE_DEVICES").to_owned()).or_insert(0) += 1;
    }
    let held: Vec<String> =
        real.reservations().await.iter().map(|pod| annotation(pod, DEVICE).to_owned()).collect();
    assert_eq!(held.len(), 8);
    assert!(held.iter().all(|device| pods.get(device) == Some(&2)), "{held:?} {pods:?}");

    for index in 0..16 {
        let key = Key::new("default", format!("half-{index}"));
        real.api.delete_dynamic(&kind::POD, &key, &DeleteOptions::default().immediately()).await.unwrap();
    }
    let begin = tokio::time::Instant::now();
    while !real.reservations().await.is_empty() {
        assert!(begin.elapsed() < TIMEOUT, "reservation pods are not deleted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A claim with an earlier allocation, which the API server does not allow to be changed in one step.
async fn devices_are_claimed(real: &Real) {
    let allocation = |device: &str| {
        json!({"devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": device},
        ]}})
    };
    let spec =
        json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}});
    real.create(&kind::RESOURCE_CLAIM, json!({"metadata": {"name": "claim"}, "spec": spec})).await;
    let mut wanted = pod("claiming", &json!({}));
    wanted["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "claim"}]);
    let made = real.create(&kind::POD, wanted).await;
    let user = json!({"resource": "pods", "name": "claiming", "uid": object::uid(&made)});
    let status = json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": [user]}});
    let key = Key::new("default", "claim");
    real.api.patch_dynamic(&kind::RESOURCE_CLAIM, &key, api::Part::Status, &status).await.unwrap();
    let devices = json!({"resourceClaimAllocations": [{"name": "gpu", "allocation": allocation("gpu-3")}]});
    real.request(&made, "node-1", &devices).await;
    real.until(&BIND_REQUEST, "claiming", |request| request["status"]["phase"] == "Succeeded").await;
    let claim = real.api.get_dynamic(&kind::RESOURCE_CLAIM, &key).await.unwrap();
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "gpu-3");
    assert_eq!(claim["status"]["reservedFor"], json!([user]));

    let mut wanted = pod("extended", &json!({}));
    wanted["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    let made = real.create(&kind::POD, wanted).await;
    let extended = json!({
        "allocation": allocation("gpu-1"),
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    });
    real.request(&made, "node-1", &json!({"extendedResourceClaimAllocation": extended})).await;
    real.until(&BIND_REQUEST, "extended", |request| request["status"]["phase"] == "Succeeded").await;
    let bound = real.api.get_dynamic(&kind::POD, &Key::new("default", "extended")).await.unwrap();
    let name = object::str_at(&bound, "/status/extendedResourceClaimStatus/resourceClaimName");
    assert!(name.starts_with("extended-extended-resources-"), "{bound:#}");
    // The GPU is needed below.
    real.api
        .delete_dynamic(&kind::POD, &kai_runtime::key_of(&bound), &DeleteOptions::default().immediately())
        .await
        .unwrap();
}

/// A statically provisioned volume on the node, for a claim with `WaitForFirstConsumer`.
async fn volumes_are_bound(real: &Real) {
    let class = json!({
        "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    real.create(&kind::STORAGE_CLASS, class).await;
    let volume = json!({
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]},
        ]}},
    });
    real.create(&kind::PERSISTENT_VOLUME, json!({"metadata": {"name": "disk"}, "spec": volume})).await;
    real.until(&kind::PERSISTENT_VOLUME, "disk", |volume| volume["status"]["phase"] == "Available").await;
    let claim = json!({
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
    });
    real.create(&kind::PERSISTENT_VOLUME_CLAIM, json!({"metadata": {"name": "data"}, "spec": claim})).await;
    let mut wanted = pod("storing", &json!({}));
    wanted["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let made = real.create(&kind::POD, wanted).await;
    real.request(&made, "node-1", &json!({})).await;
    real.until(&BIND_REQUEST, "storing", |request| request["status"]["phase"] == "Succeeded").await;
    let bound =
        real.until(&kind::PERSISTENT_VOLUME_CLAIM, "data", |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bound["spec"]["volumeName"], "disk");
    real.until(&kind::POD, "storing", |pod| pod["status"]["phase"] == "Running").await;
}

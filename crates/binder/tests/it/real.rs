//! The binder on a real control plane, in real time, with simulated nodes.

use crate::{CONFIG_MAP, DEVICE, RESERVED, annotation, condition, fraction, pod, shared_pod};
use kai_binder::{BIND_REQUEST, Options};
use kai_clock::Clock;
use kai_kubetest::real::{ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_runtime::api::{Api, Deletion};
use kai_runtime::kind::{self, Key, Kind};
use kai_runtime::process::Process;
use kai_runtime::{api, connect};
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// Where the programs of a real control plane are; `cargo xtask kubernetes` puts them there.
const CACHE_VARIABLE: &str = "KAI_KUBERNETES_CACHE";

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(2);

struct Real {
    api: Api,
    // Dropped from the top: clients end before their server.
    _tasks: JoinSet<()>,
    _plane: ControlPlane,
}

impl Real {
    /// A control plane with one node of eight GPUs and a binder; nothing where there are no programs.
    async fn start() -> Option<Self> {
        let Ok(folder) = std::env::var(CACHE_VARIABLE) else {
            eprintln!("skipped: `{CACHE_VARIABLE}` names no folder with kube-apiserver and etcd");
            return None;
        };
        let programs = Programs::in_folder(Path::new(&folder)).unwrap();
        let plane = ControlPlane::start(&programs, Controllers::Run).await.unwrap();
        let config = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
        let client = connect::client(config).unwrap();
        let api = Api::new(client.clone(), "test");
        let clock = Clock::system();
        set_up(&api, clock).await;
        let mut tasks = JoinSet::new();
        let kubelets = kai_sim::kubelet::Options { start_delay: Duration::ZERO, ..Default::default() };
        tasks.spawn(kai_sim::kubelet::run(client.clone(), clock, kubelets));
        let process = |name| Process::start(Api::new(client.clone(), name), clock, name);
        let simulated = kai_reservation::simulated::Options::default();
        tasks.spawn(kai_reservation::simulated::run(process("reservations"), simulated));
        tasks.spawn(kai_binder::run(process("binder"), Options::default()));
        Some(Self { api, _tasks: tasks, _plane: plane })
    }

    async fn create(&self, kind: &Kind, mut object: Value) -> Value {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        self.api.create(kind, "default", &object).await.unwrap()
    }

    async fn request(&self, pod: &Value, node: &str, more: &Value) {
        self.create(&BIND_REQUEST, crate::bind_request(pod, node, more)).await;
    }

    async fn until(&self, kind: &Kind, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = tokio::time::Instant::now();
        loop {
            let found = self.api.get(kind, &Key::new("default", name)).await.unwrap();
            if wanted(&found) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "{} {name} stays {found:#}", kind.kind);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn reservations(&self) -> Vec<Value> {
        self.api.list(&kind::POD, RESERVED).await.unwrap().items
    }
}

async fn set_up(api: &Api, clock: Clock) {
    let requests = kai_api::crds().into_iter().find(|crd| crd.spec.names.kind == "BindRequest").unwrap();
    api.create(&kind::DEFINITION, "", &serde_json::to_value(&requests).unwrap()).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESERVED}});
    api.create(&kind::NAMESPACE, "", &namespace).await.unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RESERVED}});
    api.create(&kind::SERVICE_ACCOUNT, RESERVED, &account).await.unwrap();
    let node = kai_sim::node::node(&NodeGroup::gpu_nodes(1, 8), 0, &clock.time());
    api.create(&kind::NODE, "", &node).await.unwrap();
    let default = Key::new("default", "default");
    while api.get(&kind::SERVICE_ACCOUNT, &default).await.is_err_and(|error: api::Error| error.is_not_found())
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while api.list(&BIND_REQUEST, "").await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_real_server_takes_what_the_binder_writes() {
    let Some(real) = Real::start().await else { return };
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
    let told = real.until(&kind::POD, "lost", |pod| condition(pod, "PodBound").is_some()).await;
    assert_eq!(condition(&told, "PodBound").unwrap()["status"], "False");

    for index in 0..16 {
        let made = real.create(&kind::POD, shared_pod(&format!("half-{index}"))).await;
        real.request(&made, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
    }
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..16 {
        let name = format!("half-{index}");
        real.until(&BIND_REQUEST, &name, phase("Succeeded")).await;
        real.until(&kind::POD, &name, phase("Running")).await;
        let map = Key::new("default", &format!("{name}-abcdefg-shared-gpu-0-evar"));
        let map = real.api.get(&CONFIG_MAP, &map).await.unwrap();
        *pods.entry(object::str_at(&map, "/data/NVIDIA_VISIBLE_DEVICES").to_owned()).or_insert(0) += 1;
    }
    let held: Vec<String> =
        real.reservations().await.iter().map(|pod| annotation(pod, DEVICE).to_owned()).collect();
    assert_eq!(held.len(), 8);
    assert!(held.iter().all(|device| pods.get(device) == Some(&2)), "{held:?} {pods:?}");

    for index in 0..16 {
        let key = Key::new("default", &format!("half-{index}"));
        real.api.delete(&kind::POD, &key, &Deletion::default().now()).await.unwrap();
    }
    let begin = tokio::time::Instant::now();
    while !real.reservations().await.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "reservations stay");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

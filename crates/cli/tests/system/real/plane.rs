//! A real control plane with simulated nodes, and the components as processes under their service accounts.

use super::rights;
use crate::world::World;
use kai_cli::stack;
use kai_clock::Clock;
use kai_kubetest::real::{Audit, ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_reservation::DeviceSource;
use kai_runtime::api::{Api, Deletion};
use kai_runtime::connect;
use kai_runtime::kind::{self, Key, NODE, POD, SERVICE_ACCOUNT};
use kai_scheduler::resources::QUEUE;
use kai_sim::connection::Connection;
use kai_sim::{NodeGroup, kubelet, node};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// Where the components' service accounts are.
pub(super) const NAMESPACE: &str = "kai-scheduler";
/// Where reservation pods are, and their service account.
pub(super) const RESERVATION: &str = "kai-resource-reservation";
/// Components by the names of their service accounts, and the flags that switch off what needs certificates.
const COMPONENTS: [(&str, &[&str]); 5] = [
    ("scheduler", &["--plugin-server-port=0"]),
    ("binder", &[]),
    (
        "pod-grouper",
        &[
            "--namespace-label-selector=scenarios=here",
            "--default-priorities-configmap-name=defaults",
            "--default-priorities-configmap-namespace=kai-scheduler",
        ],
    ),
    ("podgroup-controller", &["--enable-podgroup-webhook=false"]),
    ("queue-controller", &["--enable-webhook=false"]),
];
/// The scenario whose nodes publish their GPUs as devices.
pub(super) const WITH_CLAIMS: &str = "claims";
/// The label of the namespaces of scenarios.
const OURS: (&str, &str) = ("scenarios", "here");
/// Queues that every cluster has.
const LASTING_QUEUES: [&str; 2] = ["default-parent-queue", "default-queue"];

/// The control plane and all that runs beside it; everything ends with it.
pub(crate) struct Plane {
    components: Mutex<Vec<Child>>,
    tasks: Mutex<JoinSet<()>>,
    control: ControlPlane,
    api: Api,
    clock: Clock,
    folder: PathBuf,
}

impl Drop for Plane {
    fn drop(&mut self) {
        for component in self.components.lock().unwrap().iter_mut() {
            // It may have ended already, which is what both calls want.
            let _ = component.kill();
            let _ = component.wait();
        }
    }
}

impl Plane {
    /// Starts the control plane, installs what the chart would, and starts the components.
    pub(super) async fn start(programs: &Programs) -> Self {
        let plane = ControlPlane::start_with(programs, Controllers::Run, Audit::Requests).await.unwrap();
        let api = connect_to(&plane.kubeconfig_file(), "test").await;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real");
        std::fs::create_dir_all(&folder).unwrap();
        // Definitions are served a moment after they are made.
        patiently("the definitions are served", || async { stack::install(&api).await.is_ok() }).await;
        api.ensure(&kind::DEFINITION, "", &node::topology_definition()).await.unwrap();
        rights::install(&api).await;
        let clock = Clock::system();
        let mut tasks = JoinSet::new();
        let options = kubelet::Options {
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_millis(200),
            ..kubelet::Options::default()
        };
        let nodes = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
        let way = Connection::elsewhere(connect::client(nodes).unwrap(), kubelet::CLIENT);
        tasks.spawn(kubelet::run(way, clock, options));
        let this = Self {
            components: Mutex::default(),
            tasks: Mutex::new(tasks),
            control: plane,
            api,
            clock,
            folder,
        };
        this.start_reservations().await;
        for (component, flags) in COMPONENTS {
            let child = this.start_component(component, flags).await;
            this.components.lock().unwrap().push(child);
        }
        this
    }

    /// A kubeconfig with a token of a service account.
    async fn kubeconfig_of(&self, namespace: &str, account: &str) -> PathBuf {
        let path = SERVICE_ACCOUNT.path_of(&Key::new(namespace, account)) + "/token";
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200},
        });
        let answer = self.api.send("POST", &path, Some(("application/json", &request))).await.unwrap();
        let token = object::str_at(&answer, "/status/token");
        let file = self.folder.join(format!("{account}.kubeconfig"));
        std::fs::write(&file, self.control.kubeconfig_of(token)).unwrap();
        file
    }

    async fn start_component(&self, component: &str, flags: &[&str]) -> Child {
        let kubeconfig = self.kubeconfig_of(NAMESPACE, component).await;
        let log = File::create(self.folder.join(format!("{component}.log"))).unwrap();
        Command::new(env!("CARGO_BIN_EXE_kai"))
            .arg(component)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--metrics-bind-address=0", "--leader-elect", "--leader-election-namespace", NAMESPACE])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Lets every reservation pod say its GPU, with the rights of its own service account.
    async fn start_reservations(&self) {
        let inside = connect_to(&self.kubeconfig_of(RESERVATION, RESERVATION).await, "reservation").await;
        let api = self.api.clone();
        self.tasks.lock().unwrap().spawn(async move {
            let mut known = BTreeSet::new();
            let mut pods = JoinSet::new();
            loop {
                let listed = api.list(&POD, RESERVATION).await;
                for pod in listed.map(|list| list.items).unwrap_or_default() {
                    if known.insert(object::uid(&pod).to_owned()) {
                        let options =
                            kai_reservation::Options { pod: Key::of(&pod), source: DeviceSource::Status };
                        let inside = inside.clone();
                        pods.spawn(async move {
                            // A pod that is deleted meanwhile has nothing to say.
                            let _ = kai_reservation::report(&inside, &options).await;
                        });
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }

    /// A namespace of its own with nodes of eight GPUs.
    pub(super) async fn world(self: &Arc<Self>, name: &str, nodes: usize) -> World<Arc<Self>> {
        let dra = name == WITH_CLAIMS;
        let group = NodeGroup { name: name.to_owned(), dra, ..NodeGroup::gpu_nodes(nodes, 8) };
        for at in 0..nodes {
            let made = node::node(&group, at, &self.clock.time());
            let made = self.api.create(&NODE, "", &made).await.unwrap();
            if dra {
                self.api.ensure(&kind::DEVICE_CLASS, "", &node::device_class()).await.unwrap();
                self.api.ensure(&kind::RESOURCE_SLICE, "", &node::slice(&group, &made)).await.unwrap();
            }
        }
        let metadata = json!({"name": name, "labels": {OURS.0: OURS.1}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.api.create(&kind::NAMESPACE, "", &namespace).await.unwrap();
        let account = Key::new(name, "default");
        patiently("the namespace is ready", || async {
            self.api.get(&SERVICE_ACCOUNT, &account).await.is_ok()
        })
        .await;
        patiently("the nodes are ready", || async {
            let nodes = self.api.list(&NODE, "").await.unwrap().items;
            nodes.iter().all(|node| node["spec"]["taints"].is_null())
        })
        .await;
        World::on(Arc::clone(self), self.api.clone(), name).await
    }

    /// Takes away what a scenario left.
    pub(super) async fn clear(&self, name: &str) {
        let gone = self.api.delete(&kind::NAMESPACE, &Key::new("", name), &Deletion::default()).await;
        gone.unwrap();
        patiently("the namespace is gone", || async {
            self.api.get(&kind::NAMESPACE, &Key::new("", name)).await.is_err()
        })
        .await;
        patiently("no GPU is reserved any more", || async {
            self.api.list(&POD, RESERVATION).await.unwrap().items.is_empty()
        })
        .await;
        for kind in [NODE, QUEUE] {
            for item in self.api.list(&kind, "").await.unwrap().items {
                if !LASTING_QUEUES.contains(&object::name(&item)) {
                    self.api.delete(&kind, &Key::of(&item), &Deletion::default()).await.unwrap();
                }
            }
        }
    }

    /// Ends the components; all requests that the server saw.
    pub(super) async fn stop(&self) -> Vec<Value> {
        for component in self.components.lock().unwrap().iter_mut() {
            assert!(
                matches!(component.try_wait(), Ok(None)),
                "a component ended early; see {}",
                self.folder.display()
            );
        }
        let log = tokio::fs::read_to_string(self.control.audit_file()).await.unwrap();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

async fn connect_to(kubeconfig: &Path, name: &'static str) -> Api {
    let config = connect::config(Some(kubeconfig.to_owned()), None).await.unwrap();
    Api::new(connect::client(config).unwrap(), name)
}

/// Waits until something holds.
async fn patiently<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let both = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(3), both).await;
    assert!(waited.is_ok(), "it never came that {what}");
}

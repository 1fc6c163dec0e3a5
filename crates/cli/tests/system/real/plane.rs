//! A real control plane with simulated nodes, and the components as processes under their service accounts.

use super::rights;
use crate::world::{Place, World};
use kai_api::well_known::label;
use kai_cli::stack;
use kai_clock::Clock;
use kai_kubetest::real::{Audit, ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_reservation::DeviceSource;
use kai_runtime::api::{Api, Deletion};
use kai_runtime::connect;
use kai_runtime::kind::{self, Key, Kind, NODE, POD, SERVICE_ACCOUNT};
use kai_scheduler::resources::QUEUE;
use kai_sim::connection::Connection;
use kai_sim::{NodeGroup, kubelet, node};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
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
const COMPONENTS: [(&str, &[&str]); 4] = [
    // Nobody makes the volumes of one scenario, and it need not wait long to see that.
    ("binder", &[r#"--plugins={"volumebinding": {"arguments": {"bindTimeoutSeconds": "4"}}}"#]),
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
/// The component that every pool has its own of.
pub(super) const SCHEDULER: &str = "scheduler";
/// The scenario whose scheduler evicts by deleting.
pub(super) const BY_DELETING: &str = "preemption-by-deleting";
/// How long a scenario waits for what must happen; a lost node takes a minute.
const PATIENCE: Duration = Duration::from_mins(2);
/// The label of the namespaces of scenarios.
const OURS: (&str, &str) = ("scenarios", "here");
/// The control plane and all that runs beside it; everything ends with it.
pub(crate) struct Plane {
    components: Mutex<BTreeMap<String, Child>>,
    tasks: Mutex<JoinSet<()>>,
    control: ControlPlane,
    api: Api,
    clock: Clock,
    folder: PathBuf,
}

impl Drop for Plane {
    fn drop(&mut self) {
        for component in self.components.lock().unwrap().values_mut() {
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
            heartbeat: Duration::from_secs(3),
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
        for component in COMPONENTS.map(|(component, _)| component).into_iter().chain([SCHEDULER]) {
            this.kubeconfig_of(NAMESPACE, component).await;
        }
        for (component, flags) in COMPONENTS {
            this.start_component(component, component, flags);
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
        let file = self.kubeconfig_file(account);
        std::fs::write(&file, self.control.kubeconfig_of(token)).unwrap();
        file
    }

    fn kubeconfig_file(&self, account: &str) -> PathBuf {
        self.folder.join(format!("{account}.kubeconfig"))
    }

    /// The server, for an administrator.
    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    /// The server, for a service account.
    pub(super) async fn api_of(&self, account: &str) -> Api {
        connect_to(&self.kubeconfig_file(account), "test").await
    }

    /// Starts every component anew, with more flags: those of its name.
    pub(super) fn restart_all(&self, more: impl Fn(&str) -> Vec<String>) {
        for (component, flags) in COMPONENTS.into_iter().chain([(SCHEDULER, &["--plugin-server-port=0"][..])])
        {
            self.stop_component(component);
            let more = more(component);
            let flags: Vec<&str> = flags.iter().copied().chain(more.iter().map(String::as_str)).collect();
            self.start_component(component, component, &flags);
        }
    }

    fn stop_component(&self, name: &str) {
        if let Some(mut component) = self.components.lock().unwrap().remove(name) {
            component.kill().unwrap();
            component.wait().unwrap();
        }
    }

    /// What a component has logged.
    pub(super) fn log_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap()
    }

    fn start_component(&self, name: &str, component: &str, flags: &[&str]) {
        let log = File::create(self.folder.join(format!("{name}.log"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .arg(component)
            .arg("--kubeconfig")
            .arg(self.kubeconfig_file(component))
            .args(["--metrics-bind-address=0", "--leader-elect", "--leader-election-namespace", NAMESPACE])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.components.lock().unwrap().insert(name.to_owned(), child);
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

    /// A namespace and a pool of nodes of its own, with its own scheduler.
    pub(super) async fn world(self: &Arc<Self>, name: &str, nodes: NodeGroup) -> World<Arc<Self>> {
        let labels =
            nodes.labels.into_iter().chain([(label::NODE_POOL.to_owned(), name.to_owned())]).collect();
        let group = NodeGroup { name: name.to_owned(), labels, ..nodes };
        self.add_nodes(&group).await;
        let metadata = json!({"name": name, "labels": {OURS.0: OURS.1}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.api.create(&kind::NAMESPACE, "", &namespace).await.unwrap();
        let pool = format!("--partition-label-value={name}");
        let by_deleting = format!("--update-pod-eviction-condition={}", name == BY_DELETING);
        let flags = ["--plugin-server-port=0", &pool, &by_deleting];
        self.start_component(&scheduler_of(name), SCHEDULER, &flags);
        let account = Key::new(name, "default");
        patiently("the namespace is ready", || async {
            self.api.get(&SERVICE_ACCOUNT, &account).await.is_ok()
        })
        .await;
        patiently("the nodes are ready", || async {
            let nodes = self.in_pool(&NODE, name).await;
            nodes.iter().all(|node| node["spec"]["taints"].is_null())
        })
        .await;
        let place = Place {
            namespace: name.to_owned(),
            nodes: name.to_owned(),
            pool: Some(name.to_owned()),
            patience: PATIENCE,
        };
        World::on(Arc::clone(self), self.api.clone(), place).await
    }

    async fn add_nodes(&self, group: &NodeGroup) {
        for at in 0..group.count {
            let made = node::node(group, at, &self.clock.time());
            let made = self.api.create(&NODE, "", &made).await.unwrap();
            if group.dra {
                self.api.ensure(&kind::DEVICE_CLASS, "", &node::device_class()).await.unwrap();
                self.api.ensure(&kind::RESOURCE_SLICE, "", &node::slice(group, &made)).await.unwrap();
            }
        }
    }

    /// Nodes and queues of a pool are labelled with it.
    async fn in_pool(&self, kind: &Kind, pool: &str) -> Vec<Value> {
        let all = self.api.list(kind, "").await.unwrap().items;
        let ours = |item: &Value| item["metadata"]["labels"][label::NODE_POOL] == pool;
        all.into_iter().filter(ours).collect()
    }

    /// Takes away what a scenario left; nothing of it may stay on a node.
    pub(super) async fn clear(&self, world: &World<Arc<Self>>) {
        let name = world.namespace();
        self.stop_scheduler(name);
        let gone = self.api.delete(&kind::NAMESPACE, &Key::new("", name), &Deletion::default()).await;
        gone.unwrap();
        // The namespace goes slowly, and nothing new comes into it; nobody waits for it.
        self.api.delete_all(&POD, name).await.unwrap();
        patiently("the pods are gone", || async { world.list(&POD).await.is_empty() }).await;
        patiently("no GPU is reserved any more", || async { world.reservations().await.is_empty() }).await;
        for kind in [NODE, QUEUE] {
            for item in self.in_pool(&kind, name).await {
                self.api.delete(&kind, &Key::of(&item), &Deletion::default()).await.unwrap();
            }
        }
    }

    fn stop_scheduler(&self, pool: &str) {
        let scheduler = self.components.lock().unwrap().remove(&scheduler_of(pool));
        let mut scheduler = scheduler.expect("it was started with the pool");
        assert!(matches!(scheduler.try_wait(), Ok(None)), "the scheduler of `{pool}` ended early");
        scheduler.kill().unwrap();
        scheduler.wait().unwrap();
    }

    /// All requests that the server saw; all components must be alive.
    pub(super) async fn requests(&self) -> Vec<Value> {
        for component in self.components.lock().unwrap().values_mut() {
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

fn scheduler_of(pool: &str) -> String {
    format!("{SCHEDULER}-{pool}")
}

async fn connect_to(kubeconfig: &Path, name: &'static str) -> Api {
    let config = connect::config(Some(kubeconfig.to_owned()), None).await.unwrap();
    Api::new(connect::client(config).unwrap(), name)
}

/// Waits until something holds.
pub(super) async fn patiently<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let both = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(3), both).await;
    assert!(waited.is_ok(), "it never came that {what}");
}

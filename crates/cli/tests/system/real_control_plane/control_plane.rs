//! A real control plane with simulated nodes, and the components as processes with their own service accounts.

use super::rbac;
use super::webhooks::{self, Webhooks};
use crate::historical_usage;
use crate::kai_suites::{self, Shard};
use crate::test_cluster::{TestCluster, TestScope};
use kai_api::well_known::{annotation, label};
use kai_clock::Clock;
use kai_components::install;
use kai_kubetest::control_plane::{Audit, ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_reservation::DeviceSource;
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::connect;
use kai_runtime::kind::{self, Key, NODE, POD, ResourceKind, SERVICE_ACCOUNT};
use kai_scheduler::resources::QUEUE;
use kai_sim::connection::Connection;
use kai_sim::{NodeGroup, kubelet, node, well_known};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Namespace of the service accounts of the components.
pub(super) const NAMESPACE: &str = "kai-scheduler";
/// Namespace of the reservation pods, and the name of their service account.
pub(super) const RESERVATION: &str = "kai-resource-reservation";
/// Components by service account, with flags besides those of their webhooks.
const COMPONENTS: [(&str, &[&str]); 5] = [
    // One scenario needs a bind that fails because its volume is not provisioned: fail after 4 seconds.
    ("binder", &[r#"--plugins={"volumebinding": {"arguments": {"bindTimeoutSeconds": "4"}}}"#]),
    (
        "pod-grouper",
        &[
            "--namespace-label-selector=scenarios=here",
            "--default-priorities-configmap-name=defaults",
            "--default-priorities-configmap-namespace=kai-scheduler",
            "--assign-at-binding",
            "--implicit-groups=implicit-groups",
        ],
    ),
    ("podgroup-controller", &[]),
    ("queue-controller", &["--implicit-groups=implicit-groups"]),
    (webhooks::ADMISSION, &["--gpu-sharing-enabled"]),
];
/// Each node pool has its own process of this component.
pub(super) const SCHEDULER: &str = "scheduler";
/// The scenario whose scheduler evicts by deletion, with `--update-pod-eviction-condition`.
pub(super) const EVICTION_BY_DELETION: &str = "preemption-by-deleting";
/// The scenario whose scheduler keeps a usage ledger.
pub(super) const USAGE_LEDGER: &str = "usage-ledger";
/// The scenario whose scheduler places pods without a PodGroup; pod grouper and queue controller know its node pool.
pub(super) const IMPLICIT_GROUPS: &str = "implicit-groups";
/// How long a scenario waits for a state; the detection of a failed node takes a minute.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The label that selects the namespaces of scenarios.
const NAMESPACE_LABEL: (&str, &str) = ("scenarios", "here");

/// The control plane, the components and the simulated nodes; dropping it stops them.
pub(crate) struct Plane {
    components: Mutex<BTreeMap<String, Child>>,
    /// Component and flags of every started process.
    launches: Mutex<BTreeMap<String, (String, Vec<String>)>>,
    /// Addresses of the API server for the processes that reach it by another one.
    links: Mutex<BTreeMap<String, SocketAddr>>,
    tasks: Mutex<JoinSet<()>>,
    webhooks: Webhooks,
    control: ControlPlane,
    api: Api,
    clock: Clock,
    folder: PathBuf,
}

impl Drop for Plane {
    fn drop(&mut self) {
        for component in self.components.lock().values_mut() {
            // Errors mean that the process has exited already.
            let _ = component.kill();
            let _ = component.wait();
        }
    }
}

impl Plane {
    /// Starts the control plane, installs definitions and RBAC objects, and starts the components.
    /// Their files go to `folder` below the target directory.
    pub(super) async fn start(programs: &Programs, folder: &str) -> Self {
        // The certificate of the webhooks is replaced again and again while the scenarios run.
        Self::start_with(programs, folder, &["--webhook-certificate-validity=2m"]).await
    }

    /// [`start`](Self::start) with further flags of `kai admission`.
    pub(super) async fn start_with(programs: &Programs, folder: &str, admission_flags: &[&str]) -> Self {
        let plane = ControlPlane::start_with(programs, Controllers::Run, Audit::Requests).await.unwrap();
        let api = connect_to(&plane.kubeconfig_file(), "test").await;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        // Logs of the last run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        // The API server serves a CRD some time after it is created.
        wait_until("the CRDs are served", || async { install::install(&api).await.is_ok() }).await;
        api.ensure_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &node::topology_definition())
            .await
            .unwrap();
        rbac::install(&api).await;
        let clock = Clock::system();
        let mut tasks = JoinSet::new();
        let options = kubelet::Options {
            heartbeat: Duration::from_secs(3),
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_millis(200),
            device_claims: serves_resource_claims(&plane).await,
            ..kubelet::Options::default()
        };
        let nodes = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
        let connection = Connection::external(connect::client(nodes).unwrap(), kubelet::CLIENT);
        tasks.spawn(kubelet::run(connection, clock, options));
        let webhooks = Webhooks::start(&folder, clock).await;
        let this = Self {
            components: Mutex::default(),
            launches: Mutex::default(),
            links: Mutex::default(),
            tasks: Mutex::new(tasks),
            webhooks,
            control: plane,
            api,
            clock,
            folder,
        };
        this.start_reservations().await;
        for component in COMPONENTS.map(|(component, _)| component).into_iter().chain([SCHEDULER]) {
            this.kubeconfig_of(NAMESPACE, component).await;
        }
        webhooks::prepare(&this.api).await;
        for (component, flags) in COMPONENTS {
            if component == webhooks::ADMISSION {
                let flags = [flags, admission_flags].concat();
                this.start_component(webhooks::ADMISSION, component, &flags);
                this.start_component(webhooks::ADMISSION_2, component, &flags);
            } else {
                this.start_component(component, component, flags);
            }
        }
        this.webhooks.register(&this.api).await;
        this
    }

    pub(super) fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    /// Writes a kubeconfig with a token of a service account.
    pub(super) async fn kubeconfig_of(&self, namespace: &str, account: &str) -> PathBuf {
        let path = SERVICE_ACCOUNT.path_of(&Key::new(namespace, account)) + "/token";
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200},
        });
        let response = self.api.send("POST", &path, Some(("application/json", &request))).await.unwrap();
        let token = object::str_at(&response, "/status/token");
        let file = self.kubeconfig_file(account);
        std::fs::write(&file, self.control.kubeconfig_of(token)).unwrap();
        file
    }

    fn kubeconfig_file(&self, account: &str) -> PathBuf {
        self.folder.join(format!("{account}.kubeconfig"))
    }

    /// A client with administrator permissions.
    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    /// A client with the permissions of a service account.
    pub(super) async fn api_of(&self, account: &str) -> Api {
        connect_to(&self.kubeconfig_file(account), "test").await
    }

    /// Restarts every component with additional flags by component.
    pub(super) fn restart_all(&self, extra_flags: impl Fn(&str) -> Vec<String>) {
        self.stop_component(webhooks::ADMISSION_2);
        for (component, flags) in COMPONENTS.into_iter().chain([(SCHEDULER, &["--plugin-server-port=0"][..])])
        {
            self.stop_component(component);
            let extra = extra_flags(component);
            let flags: Vec<&str> = flags.iter().copied().chain(extra.iter().map(String::as_str)).collect();
            self.start_component(component, component, &flags);
        }
    }

    fn stop_component(&self, name: &str) {
        if let Some(mut component) = self.components.lock().remove(name) {
            component.kill().unwrap();
            component.wait().unwrap();
        }
    }

    pub(super) fn log_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_file(name)).unwrap()
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Starts a second replica of every running component that has none.
    pub(super) fn start_second_replicas(&self) {
        let launches = self.launches.lock().clone();
        for (name, (component, flags)) in launches {
            if component == webhooks::ADMISSION {
                continue;
            }
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            self.start_component(&format!("{name}-2"), &component, &flags);
        }
    }

    /// Names of the running processes.
    pub(super) fn component_names(&self) -> Vec<String> {
        self.components.lock().keys().cloned().collect()
    }

    /// Kills a process with SIGKILL. Returns false where it had ended by itself.
    pub(super) fn kill_component(&self, name: &str) -> bool {
        let mut component = self.components.lock().remove(name).expect("the process was started");
        let ran = matches!(component.try_wait(), Ok(None));
        component.kill().unwrap();
        component.wait().unwrap();
        ran
    }

    /// Starts a killed process with the same flags. What it says follows what it said before.
    pub(super) fn start_again(&self, name: &str) {
        self.launch(name, File::options().append(true).open(self.log_file(name)).unwrap());
    }

    /// Restarts a process with further flags.
    pub(super) fn restart_with(&self, name: &str, further: &[&str]) {
        self.kill_component(name);
        let (component, flags) = self.launches.lock()[name].clone();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(further.iter().copied()).collect();
        self.start_component(name, &component, &flags);
    }

    /// Restarts the scheduler of a pool, which then reaches the API server by this address, or by its own.
    pub(super) fn restart_scheduler(&self, pool: &str, through: Option<SocketAddr>) {
        let name = scheduler_of(pool);
        match through {
            Some(address) => self.links.lock().insert(name.clone(), address),
            None => self.links.lock().remove(&name),
        };
        self.kill_component(&name);
        self.start_again(&name);
    }

    /// Restarts the replicas of a pool's scheduler with direct binding, or with a bind request for each pod.
    pub(super) fn switch_binding(&self, pool: &str, binds_directly: bool) {
        for name in [scheduler_of(pool), format!("{}-2", scheduler_of(pool))] {
            self.kill_component(&name);
            if let Some((_, flags)) = self.launches.lock().get_mut(&name) {
                flags.retain(|flag| !flag.starts_with("--direct-binding="));
                flags.push(direct_binding(binds_directly).to_owned());
            }
            self.start_again(&name);
        }
    }

    /// Starts the processes again that have ended, as a kubelet does. A replica that loses its lease ends; one that ends
    /// for another reason fails the test.
    pub(super) fn start_ended_again(&self) -> Vec<String> {
        let mut ended = Vec::new();
        for (name, child) in self.components.lock().iter_mut() {
            if !matches!(child.try_wait(), Ok(None)) {
                ended.push(name.clone());
            }
        }
        for name in &ended {
            let log = self.log_of(name);
            let last = log.lines().rev().take(5).collect::<Vec<_>>();
            let lost_lease = last.iter().any(|line| line.contains("leader election lost"));
            assert!(
                lost_lease,
                "{name} ended, and not for a lost lease; the end of its log, last line first: {last:#?}"
            );
            self.start_again(name);
        }
        ended
    }

    /// Sends a signal such as `STOP` to a process that runs.
    pub(super) fn signal_component(&self, name: &str, signal: &str) {
        let process = self.components.lock().get(name).map(Child::id);
        if let Some(process) = process {
            // It is a command of the shell, which every system has.
            let command = format!("kill -{signal} {process}");
            let status = Command::new("sh").args(["-c", &command]).status().unwrap();
            // A process that has ended gets no signal.
            tracing::debug!(name, signal, %status, "sent a signal");
        }
    }

    /// Names and process ids of the running components.
    pub(super) fn component_processes(&self) -> Vec<(String, u32)> {
        self.components.lock().iter().map(|(name, child)| (name.clone(), child.id())).collect()
    }

    pub(super) fn assert_no_panic(&self) {
        for name in self.component_names() {
            let log = self.log_of(&name);
            let panic = log.lines().find(|line| line.contains("panicked at"));
            assert_eq!(panic, None, "{name}");
        }
    }

    /// The folder of the logs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of kube-apiserver.
    pub(super) async fn version(&self) -> String {
        let response = self.control.get("/version").await.unwrap();
        let version: Value = serde_json::from_slice(&response.body).unwrap();
        object::str_at(&version, "/gitVersion").to_owned()
    }

    /// Whether claims on devices can be written in their stable version.
    pub(super) async fn serves_resource_claims(&self) -> bool {
        serves_resource_claims(&self.control).await
    }

    pub(super) fn control(&self) -> &ControlPlane {
        &self.control
    }

    pub(super) fn start_component(&self, name: &str, component: &str, flags: &[&str]) {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.launches.lock().insert(name.to_owned(), (component.to_owned(), flags));
        self.launch(name, File::create(self.log_file(name)).unwrap());
    }

    /// Starts a process as noted in `launches`.
    fn launch(&self, name: &str, log: File) {
        let (component, flags) = self.launches.lock()[name].clone();
        let mut kubeconfig = self.kubeconfig_file(&component);
        if let Some(address) = self.links.lock().get(name) {
            let text = std::fs::read_to_string(&kubeconfig).unwrap();
            let text = text.replace(&self.control.server().address().to_string(), &address.to_string());
            kubeconfig = self.kubeconfig_file(name);
            std::fs::write(&kubeconfig, text).unwrap();
        }
        let child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .arg(&component)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .args(["--leader-elect", "--leader-election-namespace", NAMESPACE])
            .args(self.webhooks.flags(&component))
            .args(&flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.components.lock().insert(name.to_owned(), child);
    }

    /// Runs the reservation process for every reservation pod, with the permissions of its service account.
    async fn start_reservations(&self) {
        let account_api =
            connect_to(&self.kubeconfig_of(RESERVATION, RESERVATION).await, "reservation").await;
        let api = self.api.clone();
        self.tasks.lock().spawn(async move {
            let mut known = BTreeSet::new();
            let mut pods = JoinSet::new();
            loop {
                let listed = api.list_dynamic(&POD, RESERVATION).await;
                for pod in listed.map(|list| list.items).unwrap_or_default() {
                    report_device_of_annotation(&account_api, &pod).await;
                    if known.insert(object::uid(&pod).to_owned()) {
                        let options = kai_reservation::Options {
                            pod: kai_runtime::key_of(&pod),
                            source: DeviceSource::Status,
                        };
                        let (account_api, api) = (account_api.clone(), api.clone());
                        pods.spawn(async move {
                            // A container that fails is restarted while its pod exists.
                            while kai_reservation::report(&account_api, &options).await.is_err() {
                                tokio::time::sleep(Duration::from_secs(1)).await;
                                let pod = api.get_dynamic(&POD, &options.pod).await;
                                if pod.is_err_and(|error| error.is_not_found()) {
                                    break;
                                }
                            }
                        });
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }

    /// Creates a namespace, a node pool and its scheduler for one scenario.
    pub(super) async fn test_cluster(
        self: &Arc<Self>,
        name: &str,
        nodes: NodeGroup,
    ) -> TestCluster<Arc<Self>> {
        self.add_pool_nodes(name, NodeGroup { name: name.to_owned(), ..nodes }).await;
        self.create_namespace(name).await;
        let pool = format!("--partition-label-value={name}");
        let update_condition = format!("--update-pod-eviction-condition={}", name == EVICTION_BY_DELETION);
        let binding = direct_binding(binds_directly(name));
        let implicit = format!("--implicit-groups={}", name == IMPLICIT_GROUPS);
        let mut flags = vec!["--plugin-server-port=0", &pool, &update_condition, binding, &implicit];
        let config = self.folder.join(format!("{name}.yaml"));
        let config = format!("--scheduler-conf={}", config.display());
        let shard = kai_suites::shard_of(name);
        let of_shard = shard.as_ref().map(Shard::flags).unwrap_or_default();
        flags.extend(of_shard.iter().map(String::as_str));
        let written = match &shard {
            Some(shard) => Some(shard.configuration()),
            None => (name == USAGE_LEDGER).then(|| historical_usage::LEDGER_CONFIG.to_owned()),
        };
        if let Some(written) = written {
            std::fs::write(self.folder.join(format!("{name}.yaml")), written).unwrap();
            flags.push(&config);
        }
        self.start_component(&scheduler_of(name), SCHEDULER, &flags);
        wait_until("the nodes are ready", || async {
            let nodes = self.in_pool(&NODE, name).await;
            nodes.iter().all(|node| node["spec"]["taints"].is_null())
        })
        .await;
        let scope = TestScope {
            namespace: name.to_owned(),
            node_prefix: name.to_owned(),
            pool: Some(name.to_owned()),
            timeout: TIMEOUT,
        };
        TestCluster::attach(Arc::clone(self), self.api.clone(), scope).await
    }

    /// Creates a namespace and nodes of the default node pool, and starts its scheduler.
    pub(super) async fn default_pool_cluster(
        self: &Arc<Self>,
        name: &str,
        nodes: NodeGroup,
    ) -> TestCluster<Arc<Self>> {
        let nodes = NodeGroup { name: name.to_owned(), ..nodes };
        for at in 0..nodes.count {
            let made = node::node(&nodes, at, &self.clock.time());
            self.api.create_dynamic(&NODE, "", &made).await.unwrap();
        }
        self.create_namespace(name).await;
        self.start_component(SCHEDULER, SCHEDULER, &["--plugin-server-port=0"]);
        wait_until("the nodes are ready", || async {
            let all = self.api.list_dynamic(&NODE, "").await.unwrap().items;
            all.iter().all(|node| node["spec"]["taints"].is_null())
        })
        .await;
        let (namespace, node_prefix) = (name.to_owned(), name.to_owned());
        let scope = TestScope { namespace, node_prefix, pool: None, timeout: TIMEOUT };
        TestCluster::attach(Arc::clone(self), self.api.clone(), scope).await
    }

    /// Creates a namespace whose pods are grouped, and waits until pods can be created in it.
    pub(super) async fn create_namespace(&self, name: &str) {
        let metadata = json!({"name": name, "labels": {NAMESPACE_LABEL.0: NAMESPACE_LABEL.1}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.api.create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
        let account = Key::new(name, "default");
        wait_until("the namespace is ready", || async {
            self.api.get_dynamic(&SERVICE_ACCOUNT, &account).await.is_ok()
        })
        .await;
    }

    /// Creates nodes with the label of a pool.
    pub(super) async fn add_pool_nodes(&self, pool: &str, nodes: NodeGroup) {
        let pool = (label::NODE_POOL.to_owned(), pool.to_owned());
        let group = &NodeGroup { labels: nodes.labels.into_iter().chain([pool]).collect(), ..nodes };
        for at in 0..group.count {
            let made = node::node(group, at, &self.clock.time());
            let made = self.api.create_dynamic(&NODE, "", &made).await.unwrap();
            if group.dra {
                self.api.ensure_dynamic(&kind::DEVICE_CLASS, "", &node::device_class()).await.unwrap();
                self.api.ensure_dynamic(&kind::RESOURCE_SLICE, "", &node::slice(group, &made)).await.unwrap();
            }
            if group.numa_zones > 1 {
                let zones = node::topology(group, object::name(&made));
                self.api.ensure_dynamic(&kind::NODE_RESOURCE_TOPOLOGY, "", &zones).await.unwrap();
            }
        }
    }

    /// Objects with the label of a pool.
    async fn in_pool(&self, kind: &ResourceKind, pool: &str) -> Vec<Value> {
        let all = self.api.list_dynamic(kind, "").await.unwrap().items;
        let ours = |item: &Value| item["metadata"]["labels"][label::NODE_POOL] == pool;
        all.into_iter().filter(ours).collect()
    }

    /// Deletes the objects of a scenario; its pods and GPU reservations must terminate.
    pub(super) async fn clean_up(&self, cluster: &TestCluster<Arc<Self>>) {
        let name = cluster.namespace();
        self.stop_scheduler(name);
        let deleted =
            self.api.delete_dynamic(&kind::NAMESPACE, &Key::new("", name), &DeleteOptions::default()).await;
        deleted.unwrap();
        // The deletion of the namespace takes long and is not awaited; no new objects can be created in it.
        self.api.delete_collection_dynamic(&POD, name).await.unwrap();
        wait_until("the pods are gone", || async { cluster.list(&POD).await.is_empty() }).await;
        wait_until("no GPU is reserved", || async { cluster.reservations().await.is_empty() }).await;
        for node in self.in_pool(&NODE, name).await {
            let key = kai_runtime::key_of(&node);
            self.api.delete_dynamic(&NODE, &key, &DeleteOptions::default()).await.unwrap();
        }
        // The webhook refuses to delete a queue while it has queues below it, or pods.
        wait_until("the queues are deleted", || async {
            for queue in self.in_pool(&QUEUE, name).await {
                let key = kai_runtime::key_of(&queue);
                match self.api.delete_dynamic(&QUEUE, &key, &DeleteOptions::default()).await {
                    Err(error) if error.code() == 403 => {}
                    deleted => drop(deleted.unwrap()),
                }
            }
            self.in_pool(&QUEUE, name).await.is_empty()
        })
        .await;
    }

    fn stop_scheduler(&self, pool: &str) {
        let scheduler = self.components.lock().remove(&scheduler_of(pool));
        let mut scheduler = scheduler.expect("the scheduler is started with the pool");
        assert!(matches!(scheduler.try_wait(), Ok(None)), "the scheduler of `{pool}` exited");
        scheduler.kill().unwrap();
        scheduler.wait().unwrap();
    }

    /// The audit log of all requests. Fails where a component has exited.
    pub(super) async fn requests(&self) -> Vec<Value> {
        for component in self.components.lock().values_mut() {
            assert!(
                matches!(component.try_wait(), Ok(None)),
                "a component exited; see {}",
                self.folder.display()
            );
        }
        let log = tokio::fs::read_to_string(self.control.audit_file()).await.unwrap();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Before Kubernetes 1.31 the status of a pod has no devices: the simulated kubelet's annotation has them too. The program
/// would ask the driver there.
async fn report_device_of_annotation(account_api: &Api, pod: &Value) {
    let value = |name: &str| pod["metadata"]["annotations"][name].as_str().unwrap_or_default();
    let device = value(well_known::GPU_DEVICES);
    let in_status = pod.pointer("/status/containerStatuses/0/allocatedResourcesStatus").is_some();
    let runs = object::str_at(pod, "/status/phase") == "Running";
    if runs && !in_status && !device.is_empty() && value(annotation::RESERVED_GPU).is_empty() {
        let reported = json!({"metadata": {"annotations": {annotation::RESERVED_GPU: device}}});
        // A failed write is repeated with the next list.
        let _ = account_api.patch_dynamic(&POD, &kai_runtime::key_of(pod), Part::Main, &reported).await;
    }
}

async fn serves_resource_claims(control: &ControlPlane) -> bool {
    let group = control.get("/apis/resource.k8s.io/v1").await;
    group.is_ok_and(|response| response.status == 200)
}

/// Pools alternate between direct binding and bind requests, by their names: each keeps its way from run to run.
fn binds_directly(pool: &str) -> bool {
    pool.bytes().map(u32::from).sum::<u32>().is_multiple_of(2)
}

fn direct_binding(binds_directly: bool) -> &'static str {
    if binds_directly { "--direct-binding=true" } else { "--direct-binding=false" }
}

fn scheduler_of(pool: &str) -> String {
    format!("{SCHEDULER}-{pool}")
}

async fn connect_to(kubeconfig: &Path, name: &'static str) -> Api {
    let config = connect::config(Some(kubeconfig.to_owned()), None).await.unwrap();
    Api::new(connect::client(config).unwrap(), name)
}

/// A value of `/proc/PID/status` in KiB; 0 where the operating system has none.
pub(super) fn memory_kib(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.trim().split(' ').next());
    value.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Polls until a condition holds; fails after three minutes.
pub(super) async fn wait_until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let poll = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(3), poll).await;
    assert!(waited.is_ok(), "timed out waiting until {what}");
}

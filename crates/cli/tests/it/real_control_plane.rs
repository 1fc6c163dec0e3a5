//! `kai up --for-real` as a process against a real control plane.

use crate::{kai, stderr};
use kai_clock::Clock;
use kai_kubetest::control_plane::{Audit, ControlPlane, Controllers, Programs};
use kai_kubetest::kubectl::Kubectl;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::kind::{
    CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, Key, LEASE, MUTATING_WEBHOOK_CONFIGURATION, NODE, POD,
    PRIORITY_CLASS, SERVICE_ACCOUNT, VALIDATING_WEBHOOK_CONFIGURATION,
};
use kai_runtime::{Process, connect};
use kai_sim::connection::Connection;
use kai_sim::{NodeGroup, kubelet, node};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
const STEP: Duration = Duration::from_millis(200);

/// A real cluster with one simulated node.
struct Cluster {
    runtime: Runtime,
    plane: ControlPlane,
    api: Api,
    _node: JoinSet<()>,
}

impl Cluster {
    fn start(programs: &Programs) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let (plane, api, tasks) = runtime.block_on(async {
            let plane = ControlPlane::start_with(programs, Controllers::Run, Audit::None).await;
            let plane = plane.expect("the control plane starts");
            let connection = || async {
                let config = connect::config(Some(plane.kubeconfig_file()), None).await;
                connect::client(config.expect("the kubeconfig is fine")).expect("the server is there")
            };
            let api = Api::new(connection().await, "test");
            let group = NodeGroup { name: "real".to_owned(), ..NodeGroup::gpu_nodes(1, 8) };
            let clock = Clock::system();
            let made = api.create_dynamic(&NODE, "", &node::node(&group, 0, &clock.time())).await;
            made.expect("a node can be made");
            let way = Connection::external(connection().await, kubelet::CLIENT);
            let mut tasks = JoinSet::new();
            tasks.spawn(kubelet::run(way, clock, kubelet::Options::default()));
            // Stands for the containers of reservation pods.
            let process = Process::start(Api::new(connection().await, "reservation"), clock, "reservation");
            let options = kai_reservation::simulated::Options::default();
            tasks.spawn(kai_reservation::simulated::run(process, options));
            (plane, api, tasks)
        });
        let cluster = Self { runtime, plane, api, _node: tasks };
        let account = Key::new("default", "default");
        eventually("the namespace is ready", || cluster.get(&SERVICE_ACCOUNT, &account).is_some());
        cluster
    }

    fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig_file()
    }

    fn get(&self, kind: &kai_runtime::ResourceKind, key: &Key) -> Option<Value> {
        self.runtime.block_on(self.api.get_dynamic(kind, key)).ok()
    }

    fn create(&self, kind: &kai_runtime::ResourceKind, namespace: &str, object: &Value) {
        self.runtime.block_on(self.api.create_dynamic(kind, namespace, object)).expect("it can be made");
    }

    fn delete(&self, kind: &kai_runtime::ResourceKind, key: &Key) {
        let gone = self.runtime.block_on(self.api.delete_dynamic(kind, key, &DeleteOptions::default()));
        gone.expect("it is there");
    }

    /// Creates a pod of the scheduler and waits until it runs.
    fn run_pod(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": "kai-scheduler", "containers": [
                {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
            ]},
        });
        self.create(&POD, "default", &pod);
        let key = Key::new("default", name);
        eventually("the pod runs", || {
            self.get(&POD, &key).is_some_and(|pod| object::str_at(&pod, "/status/phase") == "Running")
        });
    }

    /// Names of the registered webhook configurations.
    fn webhooks(&self) -> Vec<String> {
        let kinds = [MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION];
        let listed = kinds.map(|kind| self.runtime.block_on(self.api.list_dynamic(&kind, "")));
        let items = listed.into_iter().flat_map(|list| list.expect("it can be listed").items);
        items.map(|item| object::name(&item).to_owned()).collect()
    }

    /// Removes a field of an existing definition.
    fn modify_definition(&self) -> &'static str {
        let name = "queues.scheduling.run.ai";
        let key = Key::new("", name);
        let old = self.get(&CUSTOM_RESOURCE_DEFINITION, &key).expect("the definition is there");
        let mut new = old.clone();
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let properties = new.pointer_mut(properties).and_then(Value::as_object_mut);
        properties.expect("a queue has properties").remove("priority").expect("a queue has a priority");
        let written = self.runtime.block_on(self.api.patch_difference_dynamic(
            &CUSTOM_RESOURCE_DEFINITION,
            Part::Main,
            &old,
            &new,
        ));
        assert!(written.expect("a definition can be changed").is_some());
        name
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if holds() {
            return;
        }
        std::thread::sleep(STEP);
    }
    panic!("timed out waiting until {what}");
}

/// A running trial; it is killed when the test ends.
struct Trial {
    child: Child,
    lines: Receiver<String>,
    printed: String,
}

impl Trial {
    fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(["up", "--for-real"])
            .arg(kubeconfig)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, printed: String::new() }
    }

    /// Reads output until it contains the text.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        while !self.printed.contains(text) {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.printed = format!("{}{line}\n", self.printed),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("timed out waiting for `{text}`: {}", self.printed)
                }
            }
        }
    }

    /// Interrupts it, and returns its status and all output.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.printed = format!("{}{line}\n", self.printed);
        }
        let status = self.child.wait().expect("it is our child");
        (status, std::mem::take(&mut self.printed))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // It has already ended where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn trial_creates_missing_objects_after_confirmation_and_lists_them_at_the_end() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    let cluster = Cluster::start(&programs);
    let kubeconfig = cluster.kubeconfig();
    let train = Key::new("", "train");

    rejected_without_confirmation(&cluster);
    assert!(cluster.get(&PRIORITY_CLASS, &train).is_none(), "nothing was created");

    let mut first = Trial::start(&kubeconfig, &["--yes"]);
    first.wait_for("Press Ctrl-C to stop");
    first.wait_for("webhooks are served at https://127.0.0.1:");
    cluster.run_pod("one");
    pods_are_reviewed(&cluster);
    // The reservation pod of the shared GPU is one of them.
    first.wait_for("pods: 4 running");
    assert!(cluster.get(&PRIORITY_CLASS, &train).is_some());

    let mut second = Trial::start(&kubeconfig, &[]);
    second.wait_for("all required objects exist");
    second.wait_for("kai-scheduler is on standby: ");
    let (status, printed) = second.end();
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(!printed.contains("differ"), "{printed}");

    let (status, printed) = first.end();
    assert_eq!(status.code(), Some(0), "{printed}");
    let lease = cluster.get(&LEASE, &Key::new("kai-scheduler", "kai-scheduler")).expect("it led");
    assert_eq!(lease["spec"]["holderIdentity"], "", "the lease is released");
    assert_eq!(cluster.webhooks(), Vec::<String>::new(), "its webhooks are no longer registered");

    unreachable_webhooks_are_not_registered(&cluster);
    different_objects_are_replaced_only_with_the_flag(&cluster);
    deployed_components_are_left_out(&cluster);
    printed_command_deletes_all_created_objects(&cluster, &programs, &printed);
}

/// Halves of a GPU run, prepared by the webhooks of the trial, and an invalid fraction is refused.
fn pods_are_reviewed(cluster: &Cluster) {
    let half = |name: &str, fraction: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"gpu-fraction": fraction}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
        })
    };
    let create = |pod: &Value| cluster.runtime.block_on(cluster.api.create_dynamic(&POD, "default", pod));
    let refused = create(&half("bad", "1.5")).expect_err("it is refused");
    assert!(refused.message().contains("annotation `gpu-fraction` is `1.5`"), "{refused}");
    for name in ["half-a", "half-b"] {
        let pod = create(&half(name, "0.5")).expect("it can be made");
        let map = object::str_at(&pod, "/spec/containers/0/env/0/valueFrom/configMapKeyRef/name");
        assert!(map.starts_with(name), "{pod:#}");
        assert!(pod["spec"].get("runtimeClassName").is_none(), "the cluster has no such class");
    }
    for name in ["half-a", "half-b"] {
        let key = Key::new("default", name);
        eventually("the pod runs", || {
            cluster.get(&POD, &key).is_some_and(|pod| object::str_at(&pod, "/status/phase") == "Running")
        });
    }
}

/// A trial that the API server cannot reach says so, and leaves no registration.
fn unreachable_webhooks_are_not_registered(cluster: &Cluster) {
    // Reserved for documentation: no machine has it.
    let mut trial = Trial::start(&cluster.kubeconfig(), &["--webhook-address", "192.0.2.7"]);
    trial.wait_for("No webhooks are served: the API server cannot reach this process at https://192.0.2.7:");
    trial.wait_for("hint: --webhook-address HOST[:PORT]");
    assert_eq!(cluster.webhooks(), Vec::<String>::new());
    assert_eq!(trial.end().0.code(), Some(0));
}

/// Without a terminal, it lists the objects and creates none.
fn rejected_without_confirmation(cluster: &Cluster) {
    let kubeconfig = cluster.kubeconfig();
    let refused = kai(&["up", "--for-real", kubeconfig.to_str().expect("the path is plain")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("hint: --yes"), "{}", stderr(&refused));
    let listed = crate::stdout(&refused);
    for name in [
        "CustomResourceDefinition queues.scheduling.run.ai",
        "CustomResourceDefinition bindrequests.scheduling.run.ai",
        "Namespace kai-scheduler",
        "RoleBinding kai-resource-reservation/kai-resource-reservation",
        "PriorityClass train",
        "Queue default-queue",
    ] {
        assert!(listed.contains(&format!("  {name}\n")), "{name} is not listed in: {listed}");
    }
    assert!(cluster.get(&CUSTOM_RESOURCE_DEFINITION, &Key::new("", "queues.scheduling.run.ai")).is_none());
}

fn different_objects_are_replaced_only_with_the_flag(cluster: &Cluster) {
    let modified = cluster.modify_definition();
    let whole = |cluster: &Cluster| {
        let there = cluster.get(&CUSTOM_RESOURCE_DEFINITION, &Key::new("", modified)).expect("it is there");
        there.to_string().contains("\"priority\":{")
    };
    let kubeconfig = cluster.kubeconfig();
    let mut trial = Trial::start(&kubeconfig, &["--yes"]);
    trial.wait_for(&format!("unchanged: CustomResourceDefinition {modified}"));
    trial.wait_for("in spec.versions[0].schema");
    trial.wait_for("Press Ctrl-C to stop");
    assert_eq!(trial.end().0.code(), Some(0));
    assert!(!whole(cluster));

    let mut trial = Trial::start(&kubeconfig, &["--replace"]);
    trial.wait_for(&format!("replaced: CustomResourceDefinition {modified}"));
    cluster.run_pod("two");
    assert_eq!(trial.end().0.code(), Some(0));
    assert!(whole(cluster));
}

/// The trial fails if the cluster runs KAI's scheduler, and leaves out other components that the cluster runs.
fn deployed_components_are_left_out(cluster: &Cluster) {
    let deployment = |name: &str| {
        let pod = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod},
        })
    };
    let kubeconfig = cluster.kubeconfig();
    cluster.create(&DEPLOYMENT, "kai-scheduler", &deployment("kai-scheduler-default"));
    let refused = kai(&["up", "--for-real", kubeconfig.to_str().expect("the path is plain"), "--yes"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = stderr(&refused);
    assert!(
        error.contains("`kai-scheduler/kai-scheduler-default`") && error.contains("--replicas=0"),
        "{error}"
    );
    cluster.delete(&DEPLOYMENT, &Key::new("kai-scheduler", "kai-scheduler-default"));

    cluster.create(&DEPLOYMENT, "kai-scheduler", &deployment("queue-controller"));
    let mut trial = Trial::start(&kubeconfig, &[]);
    trial.wait_for("queue-controller is left out: the cluster runs it");
    cluster.run_pod("three");
    assert_eq!(trial.end().0.code(), Some(0));
}

fn printed_command_deletes_all_created_objects(cluster: &Cluster, programs: &Programs, printed: &str) {
    assert!(printed.contains("it leaves behind:\n  CustomResourceDefinition "), "{printed}");
    let prefix = format!("kubectl --kubeconfig {} delete ", cluster.kubeconfig().display());
    let command = printed.lines().find_map(|line| line.trim_start().strip_prefix(&prefix));
    let command = command.unwrap_or_else(|| panic!("it prints the command {prefix}…: {printed}"));
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("existing-cluster");
    let kubectl = Kubectl::new(&home, &cluster.kubeconfig()).with_program(&programs.path("kubectl"));
    kubectl.run(&format!("delete {command}"), "");
    for kind in [CUSTOM_RESOURCE_DEFINITION, PRIORITY_CLASS, kai_runtime::kind::NAMESPACE] {
        let left =
            cluster.runtime.block_on(cluster.api.list_dynamic(&kind, "")).expect("it can be listed").items;
        let ours = left.iter().find(|item| item["metadata"]["labels"]["kai.scheduler/made-by"] == "kai-up");
        assert_eq!(ours, None);
    }
}

#[test]
fn options_of_the_embedded_cluster_are_rejected_with_for_real() {
    let others: [&[&str]; 8] = [
        &["--nodes", "1x8"],
        &["--racks", "1"],
        &["--nodes-file", "a"],
        &["--port", "0"],
        &["--kubeconfig", "a"],
        &["--no-scheduler"],
        &["--save", "a"],
        &["--load", "a"],
    ];
    for other in others {
        let output = kai(&[&["up", "--for-real", "somewhere"], other].concat());
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("--for-real") && error.contains("cannot be used with") && error.contains(other[0]),
            "{error}"
        );
    }
    for only in ["--yes", "--replace", "--reservation-image=a", "--webhook-address=a"] {
        let output = kai(&["up", only]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--for-real <KUBECONFIG>"), "{}", stderr(&output));
    }
    let output = kai(&["up", "--for-real", "/nowhere/kubeconfig"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`/nowhere/kubeconfig`"), "{}", stderr(&output));
}

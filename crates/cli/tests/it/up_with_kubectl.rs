//! `kai up` as a process, used through `kubectl` and ended by signals.

use crate::{assert_rejected, kai, scratch, stderr};
use kai_kubetest::kubectl::Kubectl;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Maximum steps of a wait, enough for a busy machine.
const STEPS_MAX: u32 = 1_500;
const STEP: Duration = Duration::from_millis(200);

/// A running cluster; it is killed when the test ends.
struct Up {
    child: Child,
    lines: BufReader<ChildStdout>,
    printed: String,
    folder: PathBuf,
    kubectl: PathBuf,
}

impl Up {
    /// Starts a cluster and waits for its first status line.
    fn start(name: &str, args: &[&str]) -> Self {
        let kubectl = Kubectl::required().swap_remove(0);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(["up", "--port", "0"])
            .args(args)
            .env("HOME", &folder)
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut up = Self { child, lines, printed: String::new(), folder, kubectl };
        while !up.printed.contains("\nnodes: ") {
            assert!(up.read_line(), "it ended: {}", up.printed);
        }
        up
    }

    fn read_line(&mut self) -> bool {
        self.lines.read_line(&mut self.printed).expect("the pipe is there") > 0
    }

    fn kubeconfig(&self) -> &Path {
        let line = self.printed.lines().find_map(|line| line.strip_prefix("kubeconfig: "));
        Path::new(line.expect("it says where the file is"))
    }

    fn kubectl(&self, args: &str) -> String {
        self.kubectl_with(args, "")
    }

    /// Runs kubectl with this input; panics with its output when it fails.
    #[track_caller]
    fn kubectl_with(&self, args: &str, input: &str) -> String {
        Kubectl::new(&self.folder, self.kubeconfig()).with_program(&self.kubectl).run(args, input)
    }

    fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("{args} -o json"))).expect("kubectl prints JSON")
    }

    fn phase(&self, pod: &str) -> String {
        self.kubectl(&format!("get pod {pod} -o jsonpath={{.status.phase}}"))
    }

    /// Creates a pod of two GPUs that runs for a second.
    fn create_pod(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"sim.kai.scheduler/run-for": "1s"}},
            "spec": {
                "schedulerName": "kai-scheduler", "restartPolicy": "Never", "priorityClassName": "train",
                "containers": [{"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 2}}}],
            },
        });
        self.kubectl_with("create -f -", &pod.to_string());
    }

    fn bind(&self, pod: &str, node: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let path = format!("create --raw /api/v1/namespaces/default/pods/{pod}/binding -f -");
        self.kubectl_with(&path, &binding.to_string());
    }

    /// Sends a signal, waits for the end, and returns all output.
    fn end(mut self, signal: &str) -> (ExitStatus, String) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        for _ in 0..STEPS_MAX {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                while self.read_line() {}
                return (status, std::mem::take(&mut self.printed));
            }
            std::thread::sleep(STEP);
        }
        panic!("it does not end: {}", self.printed);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has already ended where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..STEPS_MAX {
        if holds() {
            return;
        }
        std::thread::sleep(STEP);
    }
    panic!("timed out waiting until {what}");
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn cluster_has_nodes_queues_and_priority_classes() {
    let up = Up::start("up-default", &[]);
    let path = up.kubeconfig().to_owned();
    assert!(path.ends_with(".local/state/kai/kubeconfig"), "{}", path.display());
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let nodes = up.json("get nodes");
    let nodes = nodes["items"].as_array().expect("a list");
    let rack = |node: &Value| node["metadata"]["labels"]["topology.kubernetes.io/rack"].to_string();
    let racks: std::collections::BTreeSet<String> = nodes.iter().map(rack).collect();
    assert_eq!((nodes.len(), racks.len()), (8, 2));
    assert!(nodes.iter().all(|node| node["status"]["allocatable"]["nvidia.com/gpu"] == "8"));
    let table = up.kubectl("get nodes");
    assert_eq!(table.matches(" Ready ").count(), 8, "{table}");
    let queue = up.json("get queue default-queue");
    assert_eq!(queue["spec"]["parentQueue"], "default-parent-queue");
    assert_eq!(queue["spec"]["resources"]["gpu"], json!({"quota": 0, "limit": -1, "overQuotaWeight": 1}));
    let classes = up.kubectl("get priorityclasses");
    for class in ["train", "build-preemptible", "build", "inference"] {
        assert!(classes.lines().any(|line| line.starts_with(&format!("{class} "))), "{classes}");
    }
    for command in up.printed.clone().lines().filter_map(|line| line.trim_start().strip_prefix("kubectl ")) {
        up.kubectl(command);
    }
    assert_eq!(up.printed.matches("\n  kubectl ").count(), 3, "{}", up.printed);
    for command in up.printed.clone().lines().filter_map(|line| line.trim_start().strip_prefix("kai ")) {
        let output = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(command.split(' '))
            .env("KUBECONFIG", up.kubeconfig())
            .output()
            .expect("the binary runs");
        assert!(output.status.success(), "kai {command}: {}", stderr(&output));
    }
    assert_eq!(up.printed.matches("\n  kai ").count(), 3, "{}", up.printed);
    assert!(up.printed.contains("All components run"), "{}", up.printed);
    let (status, printed) = up.end("INT");
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(printed.ends_with("cluster stopped\n"), "{printed}");
    assert!(!path.exists(), "the kubeconfig of a stopped cluster is removed");
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn saved_state_keeps_pods_across_a_restart() {
    let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("up-state.kai");
    let state = state.to_str().expect("the path is plain");
    let mut up = Up::start("up-pods", &["--no-scheduler", "--nodes", "2x8", "--save", state]);
    up.create_pod("waits");
    up.create_pod("runs");
    up.bind("runs", "node-2");
    eventually("the bound pod has run", || up.phase("runs") == "Succeeded");
    assert_eq!(up.phase("waits"), "Pending");
    let uid = up.kubectl("get pod waits -o jsonpath={.metadata.uid}");
    while !up.printed.ends_with("pods: 1 pending, 1 succeeded\n") {
        assert!(up.read_line(), "it ended: {}", up.printed);
    }
    let (status, printed) = up.end("TERM");
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(printed.contains(&format!("state saved to {state}")), "{printed}");
    let mode = std::fs::metadata(state).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the state contains secrets");

    let up = Up::start("up-pods-again", &["--no-scheduler", "--load", state]);
    assert_eq!(up.json("get nodes")["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(up.kubectl("get pod waits -o jsonpath={.metadata.uid}"), uid);
    assert_eq!((up.phase("waits").as_str(), up.phase("runs").as_str()), ("Pending", "Succeeded"));
    up.bind("waits", "node-1");
    eventually("the other has run too", || up.phase("waits") == "Succeeded");
    let (status, printed) = up.end("TERM");
    assert_eq!(status.code(), Some(0), "{printed}");
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn pod_is_scheduled_and_succeeds() {
    let up = Up::start("up-scheduled", &["--nodes", "2x8"]);
    up.create_pod("hello");
    eventually("the pod has run", || up.phase("hello") == "Succeeded");
    assert_eq!(up.end("TERM").0.code(), Some(0));
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn snapshot_is_imported() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/evictions.yaml");
    let file = example.to_str().expect("the path is plain");
    let up = Up::start("up-snapshot", &["--no-scheduler", "--load", file]);
    assert!(up.printed.starts_with("imported from "), "{}", up.printed);
    assert!(!up.printed.contains("rejected"), "{}", up.printed);
    let queues = up.kubectl("get queues");
    assert!(!queues.contains("default-queue") && queues.lines().count() > 1, "{queues}");
    let pods = up.json("get pods --all-namespaces");
    let pods = pods["items"].as_array().expect("a list");
    let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    assert!(bound > 0, "the example has bound pods");
    eventually("bound pods run on their nodes", || {
        let phases = up.kubectl("get pods --all-namespaces -o jsonpath={.items[*].status.phase}");
        phases.matches("Running").count() == bound
    });
    assert_eq!(up.end("TERM").0.code(), Some(0));
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn nodes_are_read_from_a_file() {
    let mut text = "nodes:\n".to_owned();
    writeln!(text, "- {{name: big, count: 2, gpus: 4, racks: 2, numaZones: 2, labels: {{pool: x}}}}")
        .expect("a string");
    writeln!(text, "- {{name: web, cpu: '8'}}").expect("a string");
    let file = scratch("up-nodes.yaml", text);
    let up = Up::start("up-nodes", &["--nodes-file", &file]);
    let big = up.json("get nodes -l pool=x");
    assert_eq!(big["items"][1]["metadata"]["name"], "big-2");
    assert_eq!(big["items"][1]["status"]["allocatable"]["nvidia.com/gpu"], "4");
    assert_eq!(up.json("get node web-1")["status"]["allocatable"]["cpu"], "8");
    assert_eq!(up.end("TERM").0.code(), Some(0));
}

#[track_caller]
fn assert_up_rejects(args: &[&str], words: &[&str]) {
    let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join("up-refused");
    let mut all = vec!["up", "--kubeconfig", kubeconfig.to_str().expect("the path is plain")];
    all.extend(args);
    let output = kai(&all);
    assert_rejected(&output, words);
}

#[test]
fn invalid_options_are_rejected_with_a_hint() {
    assert_up_rejects(&["--nodes", "many"], &["--nodes", "`many`", "hint: ", "16x8"]);
    assert_up_rejects(&["--nodes", "8x8", "--nodes-file", "x"], &["--nodes-file"]);
    assert_up_rejects(&["--nodes-file", "/nowhere/nodes"], &["`/nowhere/nodes`", "hint: "]);
    let file = scratch("up-bad-nodes.yaml", "nodes: [{name: a, gpu: 8}]");
    assert_up_rejects(&["--nodes-file", &file], &["up-bad-nodes.yaml", "gpu", "hint: "]);
    assert_up_rejects(&["--load", "/nowhere/state"], &["`/nowhere/state`", "hint: "]);
    let file = scratch("up-bad-state.kai", "{\"format\":\"kai-apiserver/v1\",\"revision\":1}\nno\n");
    assert_up_rejects(&["--load", &file, "--port", "0"], &["up-bad-state.kai", "line 2", "hint: "]);
    assert_up_rejects(&["--load", &scratch("up-bad.zip", "PK nothing")], &["up-bad.zip", "hint: "]);
    let file = scratch("up-no-config.yaml", "kind: Job\nspec: {}\n");
    assert_up_rejects(&["--config", &file, "--port", "0"], &["up-no-config.yaml", "it is a `Job`", "hint: "]);
    assert_up_rejects(&["--with", "kubeflo"], &["kubeflo", "kubeflow"]);
    assert_up_rejects(&["--save", "/nowhere/state"], &["`/nowhere/state`", "hint: "]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    assert_up_rejects(
        &["--port", &port],
        &["cannot listen on 127.0.0.1", "another process uses the port", "--port 0"],
    );
}

#[test]
fn kubeconfig_of_another_origin_is_not_overwritten() {
    let text = "apiVersion: v1\nkind: Config\nusers: [{name: me}]\n";
    let file = scratch("up-own-kubeconfig.yaml", text);
    let output = kai(&["up", "--port", "0", "--kubeconfig", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not overwritten; hint: "), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(file).expect("it is there"), text);
}

//! `kai queues`, `kai jobs`, `kai nodes` and `kai why` against an embedded cluster over HTTPS, with all components.

use crate::{assert_rejected, scratch, stderr, stdout};
use kai_cli::embedded;
use kai_components::{ComponentOptions, install};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::kind::{EVENT, JOB, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::{Cluster, NodeGroup};
use kai_testkit::console::matches_example;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Maximum steps of a wait, enough for a busy machine.
const STEPS_MAX: u32 = 3_000;
const STEP: Duration = Duration::from_millis(100);

pub(crate) struct TestCluster {
    pub(crate) cluster: Cluster,
    pub(crate) kubeconfig: String,
}

impl TestCluster {
    /// A cluster with two nodes of four GPUs, without KAI.
    async fn bare(name: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let builder = Cluster::builder().seed(1).nodes([NodeGroup::gpu_nodes(2, 4)]).listen(address);
        let cluster = builder.start().await.expect("the cluster starts");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("view-{name}"));
        cluster.listening().expect("it listens").write_kubeconfig(&path).expect("the folder is there");
        Self { cluster, kubeconfig: path.to_str().expect("the path is plain").to_owned() }
    }

    /// With definitions and default queues, and nothing that writes.
    pub(crate) async fn installed(name: &str) -> Self {
        let test = Self::bare(name).await;
        install::install(test.cluster.api()).await.expect("it is installed");
        test
    }

    /// With definitions, default queues and all components.
    pub(crate) async fn with_components(name: &str) -> Self {
        let mut test = Self::bare(name).await;
        install::install(test.cluster.api()).await.expect("it is installed");
        embedded::join(&mut test.cluster, &ComponentOptions::simulated(), &PluginSet::builtin());
        test
    }

    /// With `examples/inspecting.yaml`: a gang that runs on a whole node, two pods that share a GPU of the other, and a gang
    /// that does not fit.
    pub(crate) async fn with_example(name: &str) -> Self {
        let test = Self::with_components(name).await;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/inspecting.yaml");
        let text = std::fs::read_to_string(example).expect("the example is there");
        let (first, last) =
            text.split_at(text.find("# A gang that does not fit").expect("the gang comes last"));
        test.apply(first).await;
        test.wait_for_running("train", 1).await;
        test.wait_for_running("notebook", 2).await;
        test.apply(last).await;
        let big = kai_runtime::Key::new("default", "big");
        let is_reported = holds_eventually(async || {
            let group = test.cluster.api().get_dynamic(&POD_GROUP, &big).await;
            group.is_ok_and(|group| group["status"]["schedulingConditions"].is_array())
        });
        let is_reported = is_reported.await;
        let why = stdout(&test.kai(&["why", "default/big"]).await);
        assert!(is_reported, "the scheduler reports no condition: {why}");
        test
    }

    async fn apply(&self, text: &str) {
        for object in text.split("\n---\n").filter(|text| !text.trim().is_empty()) {
            self.create(serde_saphyr::from_str(object).expect("it is YAML")).await;
        }
    }

    pub(crate) async fn create(&self, object: Value) {
        let known = [POD, JOB, EVENT, QUEUE.clone(), POD_GROUP.clone()];
        let kind = known.iter().find(|kind| object["kind"] == *kind.kind).expect("the kind is known");
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().create_dynamic(kind, namespace, &object).await.expect("the server takes it");
    }

    /// A group of one pod in the default queue.
    pub(crate) async fn group(&self, name: &str) {
        let spec = json!({"minMember": 1, "queue": "default-queue", "priorityClassName": "train"});
        let api_version = POD_GROUP.api_version();
        self.create(
            json!({"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}),
        )
        .await;
        self.create(pod_of(&format!("{name}-0"), Some(name))).await;
    }

    /// Waits until `count` pods with this prefix run.
    pub(crate) async fn wait_for_running(&self, prefix: &str, count: usize) {
        wait_until(&format!("{count} pods `{prefix}*` run"), async || {
            let pods =
                self.cluster.api().list_dynamic(&POD, "default").await.expect("pods can be listed").items;
            let ours = pods.iter().filter(|pod| object::name(pod).starts_with(prefix));
            ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count() == count
        })
        .await;
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kai"));
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env_remove("COLUMNS").stdin(Stdio::null());
        command
    }

    pub(crate) async fn kai(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let run = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
        run.await.expect("it does not panic")
    }

    /// The output of a successful command, with normalised ages.
    pub(crate) async fn output(&self, args: &[&str]) -> String {
        let output = self.kai(args).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stderr(&output);
        // Progress may be reported on a busy machine.
        let warnings: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("reading the cluster: ")).collect();
        assert_eq!(warnings, [""; 0], "there are no warnings");
        normalise_ages(&stdout(&output))
    }

    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let output = self.kai(args).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("it prints JSON")
    }
}

pub(crate) async fn wait_until(what: &str, holds: impl AsyncFnMut() -> bool) {
    assert!(holds_eventually(holds).await, "timed out waiting until {what}");
}

async fn holds_eventually(mut holds: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..STEPS_MAX {
        if holds().await {
            return true;
        }
        tokio::time::sleep(STEP).await;
    }
    false
}

/// A pod of one GPU.
fn pod_of(name: &str, group: Option<&str>) -> Value {
    let annotations = group.map_or_else(|| json!({}), |group| json!({"pod-group-name": group}));
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "default-queue"}, "annotations": annotations},
        "spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        },
    })
}

/// Replaces ages of less than two minutes by `00s` and keeps columns.
fn normalise_ages(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let is_age = words[at].strip_suffix('s').is_some_and(|n| n.len() < 4 && n.parse::<u32>().is_ok());
            if is_age {
                let is_short = words[at].len() == 2;
                "00s".clone_into(&mut words[at]);
                // In a table, an age of two characters is padded by one more blank.
                if is_short && at > 0 && words[at - 1].is_empty() {
                    words.remove(at - 1);
                }
                break;
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspecting_examples_are_current() {
    let test = TestCluster::with_example("page").await;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inspecting.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let blocks: Vec<&str> =
        page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "the page has its examples");
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command and its output");
        let args: Vec<&str> = command.strip_prefix("$ kai ").expect("a command line").split(' ').collect();
        let output = test.command(&args).env("COLUMNS", "100").output().expect("the binary runs");
        // The order of two equal pods depends on their UIDs.
        let printed = (stdout(&output) + &stderr(&output)).replace("`default/big-1`", "`default/big-0`");
        let printed = normalise_ages(&printed);
        let shown = normalise_ages(shown);
        assert!(
            matches_example(&shown, &printed),
            "{command}\nthe page has:\n{shown}\nthe command prints:\n{printed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_of_a_cluster_plans_as_the_cluster_and_hides_names_on_request() {
    let test = TestCluster::with_example("snapshot").await;
    let path =
        |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name).to_str().unwrap().to_owned();
    let (plain, anonymous) = (path("taken.zip"), path("taken-anonymous.zip"));
    // Progress may be reported on a busy machine.
    assert_eq!(test.kai(&["snapshot", "-o", &plain]).await.status.code(), Some(0));
    assert_eq!(test.kai(&["snapshot", "--anonymise", "-o", &anonymous]).await.status.code(), Some(0));
    let pending = |file: &str| {
        let output = crate::kai(&["plan", file, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(pending(&plain).contains("default/big"), "{}", pending(&plain));
    let hidden = pending(&anonymous);
    for name in ["default/big", "notebook", "vision"] {
        assert!(!hidden.contains(name), "`{name}` is left in {hidden}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_has_the_same_content() {
    let test = TestCluster::with_example("json").await;
    let json = test.json(&["queues", "--json"]).await;
    assert!(json["at"].is_string(), "{json}");
    let vision = named(&json["queues"], "name", "vision");
    assert_eq!(vision["parent"], "teams");
    assert_eq!(
        vision["resources"]["gpu"],
        json!({"quota": 4, "limit": null, "fair_share": 4, "used": 0.5, "used_non_preemptible": 0, "pending": 8})
    );

    let json = test.json(&["jobs", "--json"]).await;
    let (train, big) =
        (named(&json["groups"], "group", "default/train"), named(&json["groups"], "group", "default/big"));
    assert_eq!(
        (&train["state"], &train["running"], &train["min"]),
        (&json!("Running"), &json!(1), &json!(1))
    );
    assert!(train["verdict"].is_null() && train["reason"].is_null(), "{train}");
    assert_eq!((&big["state"], &big["pending"], &big["min"]), (&json!("Pending"), &json!(2), &json!(2)));
    assert_eq!(big["verdict"]["verdict"], "gang_not_satisfied");
    assert_eq!(big["reason"], big["verdict"]["why"]);

    let json = test.json(&["nodes", "--json"]).await;
    let cells = named(&json["nodes"], "name", "node-2")["gpus"]["cells"].clone();
    assert_eq!((&cells[0]["state"], &cells[0]["part"]), (&json!("shared"), &json!(0.5)));
    assert_eq!(cells[0]["pods"], json!(["default/notebook-0", "default/notebook-1"]));
    assert_eq!(cells[1], json!({"state": "free"}));
    let json = test.json(&["nodes", "node-2", "--json"]).await;
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(1), "names select nodes: {json}");

    let json = test.json(&["why", "default/big-1", "--json"]).await;
    let group = &json["groups"][0];
    assert_eq!((&group["group"], &group["verdict"]["pods"]), (&json!("default/big"), &json!(2)));
    assert_eq!(group["record"]["conditions"][0]["node_pool"], "default");
    let events = group["record"]["events"].as_array().expect("a list");
    assert!(events.iter().any(|event| event["about"] == "PodGroup `big`"), "{group}");
    assert_eq!(
        group["hints"]["hints"][1]["changes"][0],
        json!({"change": "add_nodes", "like": "node-1", "count": 2})
    );
}

/// The object of a list whose field has this value.
pub(crate) fn named(list: &Value, field: &str, value: &str) -> Value {
    let found = list.as_array().expect("a list").iter().find(|object| object[field] == value);
    found.unwrap_or_else(|| panic!("{value} is missing in {list}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_accepts_the_name_of_a_workload() {
    let test = TestCluster::with_components("workload").await;
    let mut template = pod_of("x", None);
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 5}});
    let template = json!({"spec": template["spec"]});
    let spec = json!({"parallelism": 2, "completions": 2, "template": template});
    let metadata = json!({"name": "batch", "labels": {"kai.scheduler/queue": "default-queue"}});
    test.create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})).await;
    wait_until("the job has a group of two pods", async || {
        let pods = test.cluster.api().list_dynamic(&POD, "default").await.expect("they can be listed").items;
        let is_in = |pod: &Value| !object::str_at(pod, "/metadata/annotations/pod-group-name").is_empty();
        pods.iter().filter(|pod| is_in(pod)).count() == 2
    })
    .await;
    let text = test.output(&["why", "default/batch"]).await;
    assert!(text.starts_with("Job `default/batch`, pod group `pg-batch-"), "{text}");
    let never = "it would not run even without other pod groups: pod `default/batch-";
    assert!(
        text.contains(never) && text.contains("it requests 5 GPUs") && !text.contains("hint: "),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_explains_pods_without_a_group() {
    let test = TestCluster::bare("lone").await;
    install::install(test.cluster.api()).await.expect("it is installed");
    let mut foreign = pod_of("foreign", None);
    foreign["spec"]["schedulerName"] = Value::from("other");
    test.create(foreign).await;
    test.create(pod_of("ours", None)).await;
    test.create(pod_of("astray", Some("missing"))).await;
    let foreign = test.output(&["why", "foreign"]).await;
    assert!(foreign.contains("is scheduled by `other`, not by `kai-scheduler`\nhint: "), "{foreign}");
    let ours = test.output(&["why", "ours"]).await;
    assert!(ours.contains("has no pod group") && ours.contains("hint: run the pod grouper"), "{ours}");
    test.create(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "ours.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "ours", "namespace": "default"},
        "reason": "PodGrouperWarning", "type": "Warning", "message": "the owner Job `j` does not exist",
    }))
    .await;
    let refused = test.output(&["why", "ours"]).await;
    assert!(refused.contains("has no pod group: the owner Job `j` does not exist"), "{refused}");
    let astray = test.output(&["why", "astray"]).await;
    assert!(astray.contains("names the pod group `default/missing`, which does not exist"), "{astray}");
    assert_eq!(test.output(&["jobs"]).await, "No pod groups found\n");
    assert_eq!(test.output(&["jobs", "-n", "elsewhere"]).await, "No pod groups match the filter\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_name_is_rejected_with_suggestions() {
    let test = TestCluster::with_components("near").await;
    test.group("training").await;
    for (wanted, words) in [
        ("default/trianing", &["`default/trianing`", "hint: did you mean", "`default/training`"][..]),
        ("team/training", &["`team/training`", "`default/training`"]),
        ("default/nothing-like-it", &["hint: `kai jobs -A` lists all pod groups"]),
        ("a/b/c", &["`a/b/c` is not a name; hint: use TYPE/NAME"]),
    ] {
        let output = test.kai(&["why", wanted]).await;
        let text = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{text}");
        for word in words {
            assert!(text.contains(word), "`{word}` is missing in: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_definitions_are_reported_with_the_install_command() {
    let test = TestCluster::bare("bare").await;
    let output = test.kai(&["queues"]).await;
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("KAI's custom resource definitions are not installed; hint: `kai crds | kubectl apply"),
        "{text}"
    );
}

/// A running command; it is killed when the test ends.
struct Watching {
    child: Child,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It has already ended where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watch_prints_changes_until_it_is_interrupted() {
    let test = TestCluster::with_components("watch").await;
    let child = test.command(&["jobs", "--watch", "--json"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut watching = Watching { child };
    let mut lines = BufReader::new(watching.child.stdout.take().expect("it is piped")).lines();
    let (first, mut lines) =
        tokio::task::spawn_blocking(move || (lines.next(), lines)).await.expect("no panic");
    let view = |line: std::io::Result<String>| -> Value {
        serde_json::from_str(&line.expect("the pipe is there")).expect("a line is a view")
    };
    let first = view(first.expect("it prints at once"));
    assert_eq!(first["groups"], json!([]));
    test.group("late").await;
    let seen = tokio::task::spawn_blocking(move || {
        lines.any(|line| {
            let view: Value =
                serde_json::from_str(&line.expect("the pipe is there")).expect("a line is a view");
            view["groups"][0]["group"] == "default/late" && view["groups"][0]["state"] == "Running"
        })
    });
    assert!(seen.await.expect("it does not panic"), "the group is seen running");
    let sent = Command::new("kill").args(["-INT", &watching.child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let status = tokio::task::spawn_blocking(move || watching.child.wait().expect("it is our child"));
    assert_eq!(status.await.expect("it does not panic").code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watch_in_a_pipe_says_since_when_its_text_is_stale() {
    let test = TestCluster::installed("watch-lost").await;
    test.group("waiting").await;
    let mut command = test.command(&["jobs", "--watch"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut watching = Watching { child };
    let mut out = BufReader::new(watching.child.stdout.take().expect("it is piped"));
    let mut errors = BufReader::new(watching.child.stderr.take().expect("it is piped")).lines();
    let first = tokio::task::spawn_blocking(move || {
        let mut first = String::new();
        while !first.contains("PodGroup/waiting") {
            assert!(out.read_line(&mut first).expect("the pipe is there") > 0, "{first}");
        }
        (first, out)
    });
    let (first, out) = first.await.expect("no panic");
    let TestCluster { cluster, .. } = test;
    cluster.stop().await;
    let said = tokio::task::spawn_blocking(move || {
        errors.find_map(|line| {
            let line = line.expect("the pipe is there");
            line.contains("what is shown is stale since ").then_some(line)
        })
    });
    let said = said.await.expect("no panic").expect("it says so");
    assert!(
        said.starts_with("warning: what is shown is stale since 2") && said.contains("not been watched"),
        "{said}"
    );
    // Longer than until the next plan that would be made for the sake of time.
    tokio::time::sleep(Duration::from_secs(7)).await;
    drop(watching);
    let rest = tokio::task::spawn_blocking(move || std::io::read_to_string(out)).await.expect("no panic");
    let printed = first + &rest.expect("it is text");
    assert_eq!(printed.matches("PodGroup/waiting").count(), 1, "nothing is printed again: {printed}");
}

#[track_caller]
fn assert_rejected_without_cluster(args: &[&str], words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(args)
        .env("KUBECONFIG", "/nowhere/config")
        .env("HOME", "/nowhere")
        .output()
        .expect("the binary runs");
    assert_rejected(&output, words);
}

#[test]
fn unreachable_cluster_is_an_error_with_a_hint() {
    assert_rejected_without_cluster(&["queues"], &["`/nowhere/config`", "hint: ", "--kubeconfig", "kai up"]);
    let mut without_files = Command::new(env!("CARGO_BIN_EXE_kai"));
    without_files.arg("queues").env_remove("KUBECONFIG").env("HOME", "/nowhere");
    let output = without_files.output().expect("the binary runs");
    assert_rejected(&output, &["found no cluster", "hint: ", "--kubeconfig", "kai up"]);
    assert_rejected_without_cluster(
        &["jobs", "--kubeconfig", "/nowhere/file"],
        &["`/nowhere/file`", "hint: "],
    );
    let file = scratch(
        "view-unreachable",
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
    );
    assert_rejected_without_cluster(
        &["nodes", "--kubeconfig", &file],
        &["http://127.0.0.1:1 cannot be read", "efused", "hint: check that"],
    );
    assert_rejected_without_cluster(
        &["nodes", "--kubeconfig", &file, "--context", "y"],
        &["context `y` not found", "which has `x`; hint: "],
    );
    assert_rejected_without_cluster(&["queues", "--config", "/nowhere/config"], &["`/nowhere/config`"]);
}

/// A number by seed, below a bound.
fn drawn(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// A Job whose pods start together.
pub(crate) fn gang_job(name: &str, pods: u64, gpus: u64) -> Value {
    let mut template = pod_of("x", None);
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    let labels = json!({"kai.scheduler/queue": "default-queue"});
    let annotations = json!({"kai.scheduler/batch-min-member": pods.to_string()});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"labels": labels}, "spec": template["spec"],
        }},
    })
}

/// Predictions and what happens when the workload is submitted then; `KAI_WHAT_IF_CASES` makes more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_if_predicts_what_happens_when_the_workload_is_submitted() {
    let test = TestCluster::with_components("what-if").await;
    let cases = std::env::var("KAI_WHAT_IF_CASES").map_or(6, |text| text.parse().expect("a number"));
    let (mut seed, mut kept, mut started) = (7, Vec::new(), 0);
    let mut disagreements = Vec::new();
    for case in 0..cases {
        let (pods, gpus) = (1 + drawn(&mut seed, 3), 1 + drawn(&mut seed, 4));
        let name = format!("case{case}");
        let job = gang_job(&name, pods, gpus);
        let file = scratch(&format!("what-if-{case}.yaml"), job.to_string());
        let output = test.kai(&["what-if", "--json", "-f", &file]).await;
        let prediction: Value =
            serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let starts = prediction["submitted"][0]["starts"] != "not";
        assert_eq!(output.status.code(), Some(i32::from(!starts)), "{prediction}");
        test.create(job).await;
        let running = async || {
            let pods =
                test.cluster.api().list_dynamic(&POD, "default").await.expect("they can be listed").items;
            let ours = pods.iter().filter(|pod| object::name(pod).starts_with(&format!("{name}-")));
            ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count() as u64
        };
        let is_refused = async || {
            let groups =
                test.cluster.api().list_dynamic(&POD_GROUP, "default").await.expect("they can be listed");
            let is_ours = |group: &&Value| object::name(group).starts_with(&format!("pg-{name}-"));
            groups
                .items
                .iter()
                .find(is_ours)
                .is_some_and(|group| group["status"]["schedulingConditions"].is_array())
        };
        if starts {
            holds_eventually(async || running().await == pods).await;
        } else {
            wait_until(&format!("`{name}` is refused"), async || is_refused().await).await;
            // Evictions come later than the first refusal.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let runs = running().await == pods;
        if runs != starts {
            disagreements
                .push(format!("{name}: {pods} pods of {gpus} GPUs, runs: {runs}, predicted: {prediction}"));
        }
        started += u64::from(runs);
        kept.push((name, pods));
        let mut ended = if runs { Vec::new() } else { kept.split_off(kept.len() - 1) };
        if !kept.is_empty() && drawn(&mut seed, 2) == 0 {
            // Some capacity is released again.
            ended.push(kept.remove(0));
        }
        for (gone, _) in ended {
            let key = kai_runtime::Key::new("default", &gone);
            let how = kai_runtime::api::DeleteOptions::default().propagate("Background");
            test.cluster.api().delete_dynamic(&JOB, &key, &how).await.expect("it exists");
            wait_until("its pods are gone", async || {
                let pods =
                    test.cluster.api().list_dynamic(&POD, "default").await.expect("they can be listed").items;
                !pods.iter().any(|pod| object::name(pod).starts_with(&format!("{gone}-")))
            })
            .await;
        }
        // Pods that were moved run again.
        let expected: u64 = kept.iter().map(|(_, pods)| *pods).sum();
        test.wait_for_running("case", expected as usize).await;
    }
    eprintln!("{cases} cases, {started} started, {} disagreements", disagreements.len());
    assert!(disagreements.len() * 200 <= cases, "{}", disagreements.join("\n"));
    assert!(
        started > 0 && (cases < 6 || started < cases as u64),
        "both outcomes occur: {started} of {cases}"
    );
}

//! `kai queues`, `kai jobs`, `kai nodes` and `kai why` against a cluster that is served over HTTPS, with all components.

use crate::tour::is_shown;
use crate::{is_refusal, scratch, stderr, stdout};
use kai_cli::embedded;
use kai_components::{ComponentOptions, install};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::kind::{JOB, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long anything may take on a busy machine.
const PATIENCE_STEPS: u32 = 600;
/// From one look to the next.
const STEP: Duration = Duration::from_millis(100);

/// A cluster and the way to it.
struct World {
    cluster: Cluster,
    kubeconfig: String,
}

impl World {
    /// A bare cluster with two nodes of four GPUs.
    async fn bare(name: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let builder = Cluster::builder().seed(1).nodes([NodeGroup::gpu_nodes(2, 4)]).listen(address);
        let cluster = builder.start().await.expect("the cluster starts");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("looking-{name}"));
        cluster.listening().expect("it listens").write_kubeconfig(&path).expect("the folder is there");
        Self { cluster, kubeconfig: path.to_str().expect("the path is plain").to_owned() }
    }

    /// With definitions, default queues and all components.
    async fn whole(name: &str) -> Self {
        let mut world = Self::bare(name).await;
        install::install(world.cluster.api()).await.expect("it is installed");
        embedded::join(&mut world.cluster, &ComponentOptions::simulated(), &PluginSet::builtin());
        world
    }

    /// What `examples/inspecting.yaml` makes: a gang that runs on a whole node, two pods that share a GPU of the other, and
    /// a gang that has no room.
    async fn busy(name: &str) -> Self {
        let world = Self::whole(name).await;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/inspecting.yaml");
        let text = std::fs::read_to_string(example).expect("the example is there");
        let (first, last) =
            text.split_at(text.find("# A gang that has no room").expect("the gang comes last"));
        world.apply(first).await;
        world.runs("train", 1).await;
        world.runs("notebook", 2).await;
        world.apply(last).await;
        let big = kai_runtime::Key::new("default", "big");
        let is_told = is_so_soon(async || {
            let group = world.cluster.api().get_dynamic(&POD_GROUP, &big).await;
            group.is_ok_and(|group| group["status"]["schedulingConditions"].is_array())
        });
        let is_told = is_told.await;
        let why = stdout(&world.kai(&["why", "default/big"]).await);
        assert!(is_told, "the scheduler does not say why: {why}");
        world
    }

    async fn apply(&self, text: &str) {
        for object in text.split("\n---\n").filter(|text| !text.trim().is_empty()) {
            self.create(serde_saphyr::from_str(object).expect("it is YAML")).await;
        }
    }

    async fn create(&self, object: Value) {
        let known = [POD, JOB, QUEUE, POD_GROUP];
        let kind = known.iter().find(|kind| object["kind"] == *kind.kind).expect("the kind is known");
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().create_dynamic(kind, namespace, &object).await.expect("the server takes it");
    }

    /// A group of one pod in the default queue.
    async fn group(&self, name: &str) {
        let spec = json!({"minMember": 1, "queue": "default-queue", "priorityClassName": "train"});
        let api_version = POD_GROUP.api_version();
        self.create(
            json!({"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}),
        )
        .await;
        self.create(pod_of(&format!("{name}-0"), Some(name))).await;
    }

    /// Waits until so many pods whose names begin so run.
    async fn runs(&self, prefix: &str, count: usize) {
        comes_true(&format!("{count} pods `{prefix}*` run"), async || {
            let pods =
                self.cluster.api().list_dynamic(&POD, "default").await.expect("pods can be listed").items;
            let ours = pods.iter().filter(|pod| object::name(pod).starts_with(prefix));
            ours.filter(|pod| object::str_at(pod, "/status/phase") == "Running").count() == count
        })
        .await;
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kai"));
        command.args(args).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// Runs `kai` beside the cluster.
    async fn kai(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let run = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
        run.await.expect("it does not panic")
    }

    /// What it prints when it does well, with ages made equal.
    async fn shown(&self, args: &[&str]) -> String {
        let output = self.kai(args).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "there is nothing to warn of");
        without_ages(&stdout(&output))
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.kai(args).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("it prints JSON")
    }
}

async fn comes_true(what: &str, holds: impl AsyncFnMut() -> bool) {
    assert!(is_so_soon(holds).await, "it never came to be that {what}");
}

async fn is_so_soon(mut holds: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..PATIENCE_STEPS {
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

/// Every age of less than two minutes becomes `00s`, and keeps its column.
fn without_ages(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let is_age = words[at].strip_suffix('s').is_some_and(|n| n.len() < 4 && n.parse::<u32>().is_ok());
            if is_age {
                // A short one is padded by one more blank.
                if words[at].len() == 2 && words.get(at + 1).is_some_and(String::is_empty) {
                    words.remove(at + 1);
                }
                "00s".clone_into(&mut words[at]);
                break;
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_tour_of_looking_prints_what_it_shows() {
    let world = World::busy("tour").await;
    let tour = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inspecting.md");
    let tour = std::fs::read_to_string(tour).expect("the tour is there");
    let blocks: Vec<&str> =
        tour.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "the tour has its examples");
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command and its output");
        let args: Vec<&str> = command.strip_prefix("$ kai ").expect("a command line").split(' ').collect();
        let output = world.kai(&args).await;
        // Which of two equal pods is looked at first is up to their unique ids.
        let printed = (stdout(&output) + &stderr(&output)).replace("`default/big-1`", "`default/big-0`");
        let printed = without_ages(&printed);
        let shown = without_ages(shown);
        assert!(is_shown(&shown, &printed), "{command}\nthe tour shows:\n{shown}\nprinted is:\n{printed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_get_the_same_as_people() {
    let world = World::busy("json").await;
    let json = world.json(&["queues", "--json"]).await;
    assert!(json["at"].is_string(), "{json}");
    let vision = named(&json["queues"], "name", "vision");
    assert_eq!(vision["parent"], "teams");
    assert_eq!(
        vision["resources"]["gpu"],
        json!({"quota": 4, "limit": null, "fair_share": 4, "used": 0.5, "used_non_preemptible": 0, "pending": 8})
    );

    let json = world.json(&["jobs", "--json"]).await;
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

    let json = world.json(&["nodes", "--json"]).await;
    let cells = named(&json["nodes"], "name", "node-2")["gpus"]["cells"].clone();
    assert_eq!((&cells[0]["state"], &cells[0]["part"]), (&json!("shared"), &json!(0.5)));
    assert_eq!(cells[0]["pods"], json!(["default/notebook-0", "default/notebook-1"]));
    assert_eq!(cells[1], json!({"state": "free"}));

    let json = world.json(&["why", "default/big-1", "--json"]).await;
    let group = &json["groups"][0];
    assert_eq!((&group["group"], &group["verdict"]["pods"]), (&json!("default/big"), &json!(2)));
    assert_eq!(group["record"]["conditions"][0]["node_pool"], "default");
    let events = group["record"]["events"].as_array().expect("a list");
    assert!(events.iter().any(|event| event["about"] == "PodGroup `big`"), "{group}");
}

/// The object of a list whose field has this value.
fn named(list: &Value, field: &str, value: &str) -> Value {
    let found = list.as_array().expect("a list").iter().find(|object| object[field] == value);
    found.unwrap_or_else(|| panic!("{value} is missing in {list}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_stands_for_the_group_of_its_pods() {
    let world = World::whole("workload").await;
    let mut template = pod_of("x", None);
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 5}});
    let template = json!({"spec": template["spec"]});
    let spec = json!({"parallelism": 2, "completions": 2, "template": template});
    let metadata = json!({"name": "batch", "labels": {"kai.scheduler/queue": "default-queue"}});
    world.create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})).await;
    comes_true("the job has a group of two pods", async || {
        let pods = world.cluster.api().list_dynamic(&POD, "default").await.expect("they can be listed").items;
        let is_in = |pod: &Value| !object::str_at(pod, "/metadata/annotations/pod-group-name").is_empty();
        pods.iter().filter(|pod| is_in(pod)).count() == 2
    })
    .await;
    let text = world.shown(&["why", "default/batch"]).await;
    assert!(text.starts_with("group `default/pg-batch-"), "{text}");
    assert!(text.contains("hint: "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_in_no_group_are_explained_too() {
    let world = World::bare("lone").await;
    install::install(world.cluster.api()).await.expect("it is installed");
    let mut foreign = pod_of("foreign", None);
    foreign["spec"]["schedulerName"] = Value::from("other");
    world.create(foreign).await;
    world.create(pod_of("ours", None)).await;
    world.create(pod_of("astray", Some("nobody"))).await;
    let foreign = world.shown(&["why", "foreign"]).await;
    assert!(foreign.contains("placed by the scheduler `other`, not by `kai-scheduler`\nhint: "), "{foreign}");
    let ours = world.shown(&["why", "ours"]).await;
    assert!(ours.contains("is in no group") && ours.contains("hint: the pod grouper"), "{ours}");
    let astray = world.shown(&["why", "astray"]).await;
    assert!(astray.contains("in the group `default/nobody`, which does not exist"), "{astray}");
    assert_eq!(world.shown(&["jobs"]).await, "there are no pod groups\n");
    assert_eq!(world.shown(&["jobs", "-n", "elsewhere"]).await, "there are no such pod groups\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_named_with_what_may_have_been_meant() {
    let world = World::whole("near").await;
    world.group("training").await;
    for (wanted, words) in [
        ("default/trianing", &["`default/trianing`", "hint: did you mean", "`default/training`"][..]),
        ("team/training", &["`team/training`", "`default/training`"]),
        ("default/nothing-like-it", &["hint: `kai jobs` lists all groups"]),
        ("a/b/c", &["`a/b/c` names nothing; hint: it is NAMESPACE/NAME"]),
    ] {
        let output = world.kai(&["why", wanted]).await;
        let text = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{text}");
        for word in words {
            assert!(text.contains(word), "`{word}` is missing in: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_definitions_says_how_to_install_them() {
    let world = World::bare("bare").await;
    let output = world.kai(&["queues"]).await;
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("KAI's definitions are not installed there; hint: `kai crds | kubectl apply"),
        "{text}"
    );
}

/// A command that goes on; it ends with the test.
struct Watching {
    child: Child,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It is over already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_prints_what_changes_until_it_is_interrupted() {
    let world = World::whole("watch").await;
    let child =
        world.command(&["jobs", "--watch", "--json"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut watching = Watching { child };
    let mut lines = BufReader::new(watching.child.stdout.take().expect("it is piped")).lines();
    let (first, mut lines) =
        tokio::task::spawn_blocking(move || (lines.next(), lines)).await.expect("no panic");
    let view = |line: std::io::Result<String>| -> Value {
        serde_json::from_str(&line.expect("the pipe is there")).expect("a line is a view")
    };
    let first = view(first.expect("it prints at once"));
    assert_eq!(first["groups"], json!([]));
    world.group("late").await;
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

/// Refused with exit code 2 and an error that contains all the words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(args)
        .env("KUBECONFIG", "/nowhere/config")
        .env("HOME", "/nowhere")
        .output()
        .expect("the binary runs");
    is_refusal(&output, words);
}

#[test]
fn no_cluster_is_an_error_with_a_hint() {
    refused(&["queues"], &["found no cluster", "hint: ", "--kubeconfig", "kai up"]);
    refused(&["jobs", "--kubeconfig", "/nowhere/file"], &["`/nowhere/file`", "hint: "]);
    let file = scratch(
        "looking-nobody",
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
    );
    refused(
        &["nodes", "--kubeconfig", &file],
        &["http://127.0.0.1:1 cannot be read", "efused", "hint: check that"],
    );
    refused(&["nodes", "--kubeconfig", &file, "--context", "y"], &["context: y; hint: "]);
    refused(&["queues", "--config", "/nowhere/config"], &["`/nowhere/config`"]);
}

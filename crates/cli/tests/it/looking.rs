//! `kai queues`, `kai jobs`, `kai nodes` and `kai why` against a cluster that is served over HTTPS, with all components.

use crate::{scratch, stderr, stdout};
use insta::assert_snapshot;
use kai_cli::stack;
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::kind::{JOB, Kind, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
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

    /// With definitions, the queues `teams` / `a`, `b` of four GPUs each, and all components.
    async fn whole(name: &str) -> Self {
        let mut world = Self::bare(name).await;
        stack::install(world.cluster.api()).await.expect("it is installed");
        stack::join(&mut world.cluster, &stack::Options::simulated(), &PluginSet::default());
        let queue = |parent: Option<&str>, name: &str, quota: i64| {
            let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
            let resources = json!({"gpu": gpu, "cpu": free, "memory": free});
            json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}})
        };
        world.create(&QUEUE, queue(None, "teams", 8)).await;
        world.create(&QUEUE, queue(Some("teams"), "a", 4)).await;
        world.create(&QUEUE, queue(Some("teams"), "b", 4)).await;
        world
    }

    /// A gang that runs on a whole node, two pods that share a GPU of the other, and what has no room.
    async fn busy(name: &str) -> Self {
        let world = Self::whole(name).await;
        world.gang("train", "a", 1, 4).await;
        world.runs("train", 1).await;
        for pod in ["half-0", "half-1"] {
            let mut half = pod_of(pod, "b", 0);
            half["metadata"]["annotations"]["gpu-fraction"] = Value::from("0.25");
            world.create(&POD, half).await;
        }
        world.runs("half", 2).await;
        world.gang("big", "b", 2, 4).await;
        world
            .comes_true("the scheduler has said why", async || {
                let group =
                    world.cluster.api().get(&POD_GROUP, &kai_runtime::Key::new("default", "big")).await;
                group.is_ok_and(|group| group["status"]["schedulingConditions"].is_array())
            })
            .await;
        world
    }

    async fn create(&self, kind: &Kind, mut object: Value) {
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        let namespace = if kind.namespaced { "default" } else { "" };
        self.cluster.api().create(kind, namespace, &object).await.expect("the server takes it");
    }

    async fn gang(&self, name: &str, queue: &str, pods: usize, gpus: u32) {
        let spec = json!({"minMember": pods, "queue": queue, "priorityClassName": "train"});
        let labels = json!({"kai.scheduler/queue": queue});
        self.create(&POD_GROUP, json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
        for number in 0..pods {
            let mut pod = pod_of(&format!("{name}-{number}"), queue, gpus);
            pod["metadata"]["annotations"]["pod-group-name"] = Value::from(name);
            self.create(&POD, pod).await;
        }
    }

    async fn comes_true(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        for _ in 0..PATIENCE_STEPS {
            if holds().await {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("it never came to be that {what}");
    }

    /// Waits until so many pods whose names begin so run.
    async fn runs(&self, prefix: &str, count: usize) {
        self.comes_true(&format!("{count} pods `{prefix}*` run"), async || {
            let pods = self.cluster.api().list(&POD, "default").await.expect("pods can be listed").items;
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

fn pod_of(name: &str, queue: &str, gpus: u32) -> Value {
    let mut resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    if gpus > 0 {
        resources["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": {}},
        "spec": {
            "schedulerName": "kai-scheduler",
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
                words[at] = "00s".to_owned();
                break;
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_a_tree_with_quota_share_use_and_demand() {
    let world = World::busy("queues").await;
    assert_snapshot!(world.shown(&["queues"]).await, @"");
    let json = world.json(&["queues", "--json"]).await;
    let b = json["queues"].as_array().expect("a list").iter().find(|queue| queue["name"] == "b");
    let b = b.expect("it is there");
    assert_eq!(b["parent"], "teams");
    assert_eq!(
        b["resources"]["gpu"],
        json!({"quota": 4, "limit": null, "fair_share": 4, "used": 0.5, "used_non_preemptible": 0, "pending": 8})
    );
    assert!(json["at"].is_string(), "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_have_a_state_and_a_reason() {
    let world = World::busy("jobs").await;
    let groups = world.json(&["jobs", "--json"]).await;
    let of = |name: &str| {
        let all = groups["groups"].as_array().expect("a list");
        let found = all.iter().find(|group| group["group"] == format!("default/{name}"));
        found.unwrap_or_else(|| panic!("{name} is missing in {groups}")).clone()
    };
    let (train, big) = (of("train"), of("big"));
    assert_eq!(
        (&train["state"], &train["running"], &train["min"]),
        (&json!("Running"), &json!(1), &json!(1))
    );
    assert!(train["verdict"].is_null() && train["reason"].is_null(), "{train}");
    assert_eq!((&big["state"], &big["pending"], &big["min"]), (&json!("Pending"), &json!(2), &json!(2)));
    assert_eq!(big["verdict"]["verdict"], "gang_short");
    assert_eq!(big["reason"], big["verdict"]["why"]);
    assert_snapshot!(world.shown(&["jobs", "--queue", "a"]).await, @"");
    assert_snapshot!(world.shown(&["jobs", "-n", "elsewhere"]).await, @"there are no such pod groups");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_show_their_gpus_as_cells() {
    let world = World::busy("nodes").await;
    assert_snapshot!(world.shown(&["nodes"]).await, @"");
    let json = world.json(&["nodes", "--json"]).await;
    let shared = json["nodes"].as_array().expect("a list").iter().flat_map(|node| {
        node["gpus"]["cells"].as_array().expect("a list").iter().filter(|cell| cell["state"] == "shared")
    });
    let shared: Vec<&Value> = shared.collect();
    assert_eq!(shared.len(), 1, "{json}");
    assert_eq!(
        (&shared[0]["part"], &shared[0]["pods"]),
        (&json!(0.5), &json!(["default/half-0", "default/half-1"]))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_tells_every_obstacle_and_what_the_scheduler_wrote() {
    let world = World::busy("why").await;
    let by_group = world.shown(&["why", "default/big"]).await;
    for part in [
        "group `default/big` in queue `b`, priority train (50), preemptible\n",
        "Pending since 00s; it needs 2 of its 2 pods: 0 running, 2 waiting\n",
        "\nWhy\n0 of 2 needed pods found a node; ",
        "hint: ",
        "big-0   Pending   –",
        "What the scheduler wrote on the group\n",
        "(node pool `default`)",
        "PodSchedulingErrors: ",
        "Events\n",
    ] {
        assert!(by_group.contains(part), "`{part}` is missing in:\n{by_group}");
    }
    let by_pod = world.shown(&["why", "default/big-1"]).await;
    assert_eq!(by_pod.lines().next(), by_group.lines().next(), "a pod is explained by its group");
    let running = world.shown(&["why", "train"]).await;
    assert!(running.contains("Running since"), "the namespace is that of the context: {running}");
    assert!(running.contains("\nWhy\nall its pods run\n"), "{running}");
    let json = world.json(&["why", "default/big", "--json"]).await;
    let group = &json["groups"][0];
    assert_eq!(group["group"], "default/big");
    assert_eq!(group["verdict"]["pods"], 2);
    assert_eq!(group["record"]["conditions"][0]["node_pool"], "default");
    assert!(group["record"]["events"].as_array().is_some_and(|events| !events.is_empty()), "{group}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_stands_for_the_group_of_its_pods() {
    let world = World::whole("workload").await;
    let template = json!({
        "metadata": {"labels": {"kai.scheduler/queue": "a"}},
        "spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never",
            "containers": pod_of("x", "a", 5)["spec"]["containers"],
        },
    });
    let spec = json!({"parallelism": 2, "completions": 2, "template": template});
    let labels = json!({"kai.scheduler/queue": "a"});
    world.create(&JOB, json!({"metadata": {"name": "batch", "labels": labels}, "spec": spec})).await;
    world
        .comes_true("the job has a group", async || {
            let groups =
                world.cluster.api().list(&POD_GROUP, "default").await.expect("they can be listed").items;
            !groups.is_empty()
        })
        .await;
    let text = world.shown(&["why", "default/batch"]).await;
    assert!(text.starts_with("group `default/pg-batch-"), "{text}");
    assert!(text.contains("hint: "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_in_no_group_are_explained_too() {
    let world = World::bare("lone").await;
    stack::install(world.cluster.api()).await.expect("it is installed");
    let mut foreign = pod_of("foreign", "a", 0);
    foreign["spec"]["schedulerName"] = Value::from("other");
    world.create(&POD, foreign).await;
    world.create(&POD, pod_of("ours", "a", 0)).await;
    let mut astray = pod_of("astray", "a", 0);
    astray["metadata"]["annotations"]["pod-group-name"] = Value::from("nobody");
    world.create(&POD, astray).await;
    let foreign = world.shown(&["why", "foreign"]).await;
    assert!(foreign.contains("placed by the scheduler `other`, not by `kai-scheduler`\nhint: "), "{foreign}");
    let ours = world.shown(&["why", "ours"]).await;
    assert!(ours.contains("is in no group") && ours.contains("hint: the pod grouper"), "{ours}");
    let astray = world.shown(&["why", "astray"]).await;
    assert!(astray.contains("in the group `default/nobody`, which does not exist"), "{astray}");
    assert_snapshot!(world.shown(&["jobs"]).await, @"there are no pod groups");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_named_with_what_may_have_been_meant() {
    let world = World::whole("near").await;
    world.gang("training", "a", 1, 1).await;
    for (wanted, words) in [
        ("default/trianing", &["`default/trianing`", "hint: did you mean `default/training`"][..]),
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
    let mut next = move || {
        let line = lines.next().expect("it goes on").expect("the pipe is there");
        (serde_json::from_str::<Value>(&line).expect("a line is a view"), lines)
    };
    let (first, mut lines) = tokio::task::spawn_blocking(move || next()).await.expect("it does not panic");
    assert_eq!(first["groups"], json!([]));
    world.gang("late", "a", 1, 1).await;
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
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: ") && !text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
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
    refused(&["nodes", "--kubeconfig", &file, "--context", "y"], &["`y`", "hint: "]);
    refused(&["queues", "--config", "/nowhere/config"], &["`/nowhere/config`"]);
}

//! The controllers on a real control plane, in real time.

use crate::{Component, counts, group_name, job, k, pod, queue, queue_counts};
use futures::StreamExt as _;
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{Audit, ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, Key, NODE, ResourceKind};
use kai_runtime::process::Process;
use kai_runtime::{connect, kind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::task::JoinSet;

struct Real {
    plane: ControlPlane,
    api: Api,
    components: JoinSet<()>,
}

impl Real {
    /// A control plane with our definitions and all components.
    async fn start() -> Self {
        let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
        let plane = ControlPlane::start(&programs, Controllers::Run).await.unwrap();
        let mut real = Self { api: api(&plane, "test").await, plane, components: JoinSet::new() };
        let ours =
            kai_api::crds().into_iter().filter(|definition| definition.spec.group == "scheduling.run.ai");
        for definition in ours {
            real.api
                .create_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &serde_json::to_value(definition).unwrap())
                .await
                .unwrap();
        }
        for kind in [&*k::POD_GROUP, &*k::QUEUE] {
            real.until(async |api| api.list_dynamic(kind, "").await.ok(), "definitions").await;
        }
        for component in Component::ALL {
            let api = api(&real.plane, component.client()).await;
            let process = Process::start(api, kai_clock::Clock::system(), component.client());
            real.components.spawn(component.run(process));
        }
        real
    }

    /// The grouper alone, on a control plane without controllers.
    async fn with_grouper(plane: ControlPlane) -> Self {
        let mut real = Self::with_groups(plane).await;
        real.start_grouper().await;
        real
    }

    /// A control plane without controllers and components, with the definition of pod groups.
    async fn with_groups(plane: ControlPlane) -> Self {
        let real = Self { api: api(&plane, "test").await, plane, components: JoinSet::new() };
        let groups = kai_api::crds().into_iter().find(|of| of.spec.names.kind == "PodGroup").unwrap();
        real.create(&CUSTOM_RESOURCE_DEFINITION, serde_json::to_value(groups).unwrap()).await;
        real.until(async |api| api.list_dynamic(&k::POD_GROUP, "").await.ok(), "the definition").await;
        real.create(&kind::SERVICE_ACCOUNT, json!({"metadata": {"name": "default"}})).await;
        real
    }

    async fn start_grouper(&mut self) {
        let grouper = Component::Grouper;
        let client = api(&self.plane, grouper.client()).await;
        let process = Process::start(client, kai_clock::Clock::system(), grouper.client());
        self.components.spawn(grouper.run(process));
    }

    async fn create(&self, kind: &ResourceKind, mut object: Value) -> Value {
        let namespace = if kind.namespaced { "default" } else { "" };
        object["apiVersion"] = Value::from(kind.api_version());
        object["kind"] = Value::from(&*kind.kind);
        // A fresh namespace has no service account for a moment.
        self.until(async |api| api.create_dynamic(kind, namespace, &object).await.ok(), &object.to_string())
            .await
    }

    async fn until<T>(&self, poll: impl AsyncFn(&Api) -> Option<T>, what: &str) -> T {
        for _ in 0..3_000 {
            if let Some(found) = poll(&self.api).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{what} did not come about");
    }

    async fn until_queue(&self, name: &str, expected: [&'static str; 2]) {
        let poll = async |api: &Api| {
            let queue = api.get_dynamic(&k::QUEUE, &Key::new("", name)).await.ok()?;
            (queue_counts(&queue, "nvidia.com/gpu") == expected).then_some(())
        };
        self.until(poll, &format!("queue {name} with {expected:?}")).await;
    }
}

async fn api(plane: &ControlPlane, agent: &'static str) -> Api {
    let config = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
    Api::new(connect::client(config).unwrap(), agent)
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
async fn groups_and_queues_are_counted_on_a_real_control_plane() {
    let real = Real::start().await;
    real.create(&k::PRIORITY_CLASS, json!({"metadata": {"name": "train"}, "value": 50})).await;
    real.create(&NODE, json!({"metadata": {"name": "n1"}})).await;
    real.create(&k::QUEUE, queue("root", "")).await;
    real.create(&k::QUEUE, queue("team", "root")).await;
    let labels = json!({"kai.scheduler/queue": "team"});
    real.create(&k::JOB, job("train", 3, &labels, &json!({"kai.scheduler/batch-min-member": "3"}))).await;
    real.create(&k::POD, pod("single", &labels, &json!({}))).await;
    real.until_queue("root", ["4", ""]).await;
    // No binding of a scheduler assigns them.
    let assigned = async |api: &Api| {
        let pods = api.list_dynamic(&k::POD, "").await.ok()?.items;
        pods.iter().all(|pod| !group_name(pod).is_empty()).then_some(pods)
    };
    let pods = real.until(assigned, "the assignment of all pods").await;
    for pod in &pods {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": object::name(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        });
        let path = kind::POD.path_of(&kai_runtime::key_of(pod)) + "/binding";
        real.api.send("POST", &path, Some(("application/json", &binding))).await.unwrap();
    }
    real.until_queue("root", ["4", "4"]).await;
    real.until_queue("team", ["4", "4"]).await;
    let groups = real.api.list_dynamic(&k::POD_GROUP, "").await.unwrap().items;
    let mut sizes: Vec<[&str; 3]> = groups.iter().map(|group| counts(group, "nvidia.com/gpu")).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [["1", "1", ""], ["3", "3", ""]]);
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
async fn pods_are_grouped_by_a_pod_group_of_kubernetes_on_a_real_control_plane() {
    const ARGUMENTS: [&str; 2] =
        ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"];
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    let plane = ControlPlane::start_with_arguments(&programs, Controllers::None, Audit::None, &ARGUMENTS);
    let real = Real::with_grouper(plane.await.unwrap()).await;
    let of_kubernetes = |kind: &'static str, plural: &'static str| ResourceKind {
        group: "scheduling.k8s.io".into(),
        version: "v1alpha2".into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced: true,
    };
    let policy = json!({"gang": {"minCount": 2}});
    let templates = json!([{"name": "workers", "schedulingPolicy": policy}]);
    let workload = json!({"metadata": {"name": "train"}, "spec": {"podGroupTemplates": templates}});
    real.create(&of_kubernetes("Workload", "workloads"), workload).await;
    let template = json!({"workload": {"workloadName": "train", "podGroupTemplateName": "workers"}});
    let spec = json!({"podGroupTemplateRef": template, "schedulingPolicy": policy});
    let gang = json!({"metadata": {"name": "train-workers"}, "spec": spec});
    let gang = real.create(&of_kubernetes("PodGroup", "podgroups"), gang).await;
    let member = |name: &str, group: &str| {
        let mut pod = pod(name, &json!({"kai.scheduler/queue": "team"}), &json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        pod
    };
    for name in ["a", "b"] {
        real.create(&k::POD, member(name, "train-workers")).await;
    }
    real.create(&k::POD, member("lost", "none")).await;
    let expected = format!("pg-train-workers-{}", object::uid(&gang));
    for name in ["a", "b"] {
        let poll = async |api: &Api| {
            let pod = api.get_dynamic(&k::POD, &Key::new("default", name)).await.ok()?;
            (group_name(&pod) == expected).then_some(())
        };
        real.until(poll, &format!("pod {name} in {expected}")).await;
    }
    let group = real.api.get_dynamic(&k::POD_GROUP, &Key::new("default", &expected)).await.unwrap();
    assert_eq!((&group["spec"]["minMember"], &group["spec"]["queue"]), (&json!(2), &json!("team")));
    let owner = &group["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["apiVersion"], &owner["kind"]),
        (&json!("scheduling.k8s.io/v1alpha2"), &json!("PodGroup"))
    );
    let reported = async |api: &Api| {
        let events = api.list_dynamic(&kind::EVENT, "").await.ok()?.items;
        let is_reason = |event: &Value| {
            object::str_at(event, "/involvedObject/name") == "lost"
                && object::str_at(event, "/message")
                    .contains("`none` of `scheduling.k8s.io`, which does not exist")
        };
        events.iter().any(is_reason).then_some(())
    };
    real.until(reported, "an event on the pod whose group does not exist").await;
    let lost = real.api.get_dynamic(&k::POD, &Key::new("default", "lost")).await.unwrap();
    assert_eq!(group_name(&lost), "", "it is not split from its gang");
}

/// Single-pod Jobs that wait when the grouper starts; `KAI_GROUPED_JOBS` sets another number.
const JOBS: usize = 400;
/// Concurrent requests that create them.
const CREATORS: usize = 32;
/// Length of a uid, with the hyphen before it.
const UID: usize = 37;

/// Prints how many groups a second are made; the figure in `docs/performance.md` is for 4,000 Jobs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
async fn single_pod_jobs_cost_two_writes_and_one_read_each() {
    let jobs = std::env::var("KAI_GROUPED_JOBS").map_or(JOBS, |text| text.parse().unwrap());
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    // Without controllers the pods are ours, and nothing else writes.
    let plane = ControlPlane::start_with(&programs, Controllers::None, Audit::Requests).await.unwrap();
    let mut real = Real::with_groups(plane).await;
    let made = futures::stream::iter(0..jobs).for_each_concurrent(CREATORS, |number| {
        let real = &real;
        async move {
            let name = format!("train-{number}");
            let owner = real.create(&k::JOB, job(&name, 1, &json!({}), &json!({}))).await;
            let mut pod = pod(&name, &json!({}), &json!({}));
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": object::uid(&owner), "controller": true,
            }]);
            real.create(&k::POD, pod).await;
        }
    });
    made.await;
    let watch = Stopwatch::start();
    real.start_grouper().await;
    let all_groups = async |api: &Api| {
        let groups = api.list_dynamic(&k::POD_GROUP, "").await.ok()?.items;
        (groups.len() == jobs).then_some(())
    };
    real.until(all_groups, "the groups of all Jobs").await;
    let seconds = watch.elapsed_ms() / 1e3;
    let assigned = async |api: &Api| {
        let pods = api.list_dynamic(&k::POD, "").await.ok()?.items;
        pods.iter().all(|pod| !group_name(pod).is_empty()).then_some(())
    };
    real.until(assigned, "the assignment of all pods").await;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand jobs")]
    let speed = jobs as f64 / seconds;
    println!("{jobs} single-pod jobs grouped in {seconds:.1} s: {speed:.0} groups/s");
    real.components.abort_all();
    let log = tokio::fs::read_to_string(real.plane.audit_file()).await.unwrap();
    let of_grouper = format!("\"userAgent\":\"{}", Component::Grouper.client());
    let count = |verbs: &[&str], resource: &str| {
        let is_one = |line: &&str| {
            line.contains(&of_grouper)
                && line.contains(&format!("\"resource\":\"{resource}\""))
                && verbs.iter().any(|verb| line.contains(&format!("\"verb\":\"{verb}\"")))
        };
        log.lines().filter(is_one).count()
    };
    assert_eq!(
        (count(&["create", "patch"], "podgroups"), count(&["patch"], "pods")),
        (jobs, jobs),
        "two writes a pod"
    );
    // Later reads follow changes of the owner, and depend on how long everything takes.
    let reads = reads_before_grouping(&log, &of_grouper);
    assert_eq!(reads.len(), jobs);
    assert!(reads.values().all(|reads| *reads == 1), "one read an owner: {reads:?}");
}

/// How often each Job was read until its group was made.
fn reads_before_grouping(log: &str, of_grouper: &str) -> BTreeMap<String, usize> {
    let (mut reads, mut grouped) = (BTreeMap::new(), BTreeSet::new());
    for line in log.lines().filter(|line| line.contains(of_grouper)) {
        let event: Value = serde_json::from_str(line).unwrap();
        let of = |pointer| object::str_at(&event, pointer).to_owned();
        let name = of("/objectRef/name");
        match (of("/objectRef/resource").as_str(), of("/verb").as_str()) {
            ("jobs", "get") if !grouped.contains(&name) => *reads.entry(name).or_default() += 1,
            ("podgroups", "create") => {
                // `pg-NAME-UID`
                let job =
                    name.strip_prefix("pg-").and_then(|rest| rest.get(..rest.len().saturating_sub(UID)));
                grouped.insert(job.expect("the group of a Job").to_owned());
            }
            _ => {}
        }
    }
    reads
}

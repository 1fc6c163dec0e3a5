//! Workloads of every kind: the pod groups that they get, and the pods that run.
//!
//! The workloads are those of `tests/grouper`. Pods of Kubernetes' own kinds are made by their controllers; pods of other
//! kinds are created here as their controllers would, since only a cluster with these has them.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_podgrouper::table::{FURTHER, TABLE};
use kai_runtime::ResourceKind;
use kai_runtime::kind::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CRON_JOB, CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, JOB, NODE, POD,
    REPLICA_SET, STATEFUL_SET,
};
use kai_scheduler::resources::{POD_GROUP, TOPOLOGY};
use kai_testkit::workloads::{self, Case};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn workloads_of_kubernetes_kinds_are_grouped_and_run() {
    kubernetes_kinds(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn kubernetes_kinds<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("vision", 8).await;
    for name in
        ["replicaset/two-replicas", "deployment/three-replicas", "statefulset/two-replicas", "job/gang"]
    {
        let case = case(name);
        let manifest = case.objects().unwrap().remove(0);
        let kind = built_in(&manifest);
        cluster.create(&kind, manifest.clone()).await;
        assert_groups(cluster, &case).await;
        cluster.delete(&kind, object::name(&manifest)).await;
        nothing_is_left(cluster).await;
    }
    cron_job(cluster).await;
    chosen_group(cluster).await;
}

/// Every run of a CronJob is a group of its own. One is fired by the controller, which takes up to a minute; two at the same
/// time are made here.
async fn cron_job<B>(cluster: &TestCluster<B>) {
    let mut fired = case("cronjob/nightly").objects().unwrap().remove(0);
    fired["metadata"]["name"] = json!("fired");
    fired["spec"]["schedule"] = json!("* * * * *");
    cluster.create(&CRON_JOB, fired).await;
    cluster.sleep(Duration::from_mins(1)).await;
    cluster
        .wait_until("a run of the CronJob has its group and runs", async || {
            let jobs: BTreeSet<String> =
                cluster.list(&JOB).await.iter().map(|job| object::name(job).to_owned()).collect();
            let groups = cluster.list(&POD_GROUP).await;
            let owners: BTreeSet<String> = groups
                .iter()
                .map(|group| object::str_at(&group["metadata"]["ownerReferences"][0], "/name").to_owned())
                .collect();
            !jobs.is_empty()
                && owners == jobs
                && groups.len() == jobs.len()
                && cluster.running("fired").await >= 1
        })
        .await;
    cluster.delete(&CRON_JOB, "fired").await;
    nothing_is_left(cluster).await;
    let mut manifest = case("cronjob/nightly").objects().unwrap().remove(0);
    manifest["spec"]["suspend"] = json!(true);
    let owner = cluster.create(&CRON_JOB, manifest.clone()).await;
    let template = &manifest["spec"]["jobTemplate"];
    for run in ["nightly-1", "nightly-2"] {
        let mut job = template.clone();
        job["metadata"]["name"] = json!(run);
        job["metadata"]["ownerReferences"] = json!([reference(&owner)]);
        cluster.create(&JOB, job).await;
    }
    cluster.wait_for_running("nightly", 2).await;
    let groups = cluster.list(&POD_GROUP).await;
    let owners: BTreeSet<(&str, &str)> = groups
        .iter()
        .map(|group| {
            let owner = &group["metadata"]["ownerReferences"][0];
            (object::str_at(owner, "/kind"), object::str_at(owner, "/name"))
        })
        .collect();
    assert_eq!(owners, BTreeSet::from([("Job", "nightly-1"), ("Job", "nightly-2")]), "{groups:#?}");
    cluster.delete(&CRON_JOB, "nightly").await;
    nothing_is_left(cluster).await;
}

/// A Job that asks not to be grouped keeps the group that its pods name.
async fn chosen_group<B>(cluster: &TestCluster<B>) {
    let spec = json!({"queue": "vision", "minMember": 1, "subGroups": [{"name": "workers", "minMember": 1}]});
    let metadata = json!({"name": "chosen", "labels": {label::QUEUE: "vision"}});
    cluster.create(&POD_GROUP, json!({"metadata": metadata, "spec": spec})).await;
    let mut template =
        PodBuilder::new("x", "vision", 1).pod_group("chosen").label(label::SUBGROUP, "workers").template();
    template["spec"]["restartPolicy"] = json!("Never");
    let metadata = json!({"name": "own", "annotations": {annotation::SKIP_GROUPING: "true"}});
    cluster.create(&JOB, json!({"metadata": metadata, "spec": {"template": template}})).await;
    cluster.wait_for_running("own", 1).await;
    let names: Vec<String> =
        cluster.list(&POD_GROUP).await.iter().map(|of| object::name(of).to_owned()).collect();
    assert_eq!(names, ["chosen"]);
    let pods = cluster.list(&POD).await;
    assert_eq!(pods[0]["metadata"]["labels"][label::SUBGROUP], "workers");
    cluster.delete(&JOB, "own").await;
    cluster.delete(&POD_GROUP, "chosen").await;
    nothing_is_left(cluster).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn workloads_of_third_party_kinds_are_grouped_and_run() {
    third_party(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn third_party<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("vision", 8).await;
    let cases: Vec<Case> = workloads::cases(&root()).unwrap().into_iter().filter(is_third_party).collect();
    for name in ["jobset/in-order", "leaderworkerset/two-groups", "trainjob/three-nodes", "knative/min-scale"]
    {
        assert!(cases.iter().any(|case| case.name == name), "`{name}` is left out");
    }
    define_kinds(cluster, &cases).await;
    define_topology(cluster, 1).await;
    for case in &cases {
        let made = create_all(cluster, case).await;
        assert_groups(cluster, case).await;
        delete_all(cluster, &made).await;
    }
    free_replica_names(cluster).await;
    ray_workers(cluster).await;
    spark_executors(cluster).await;
}

/// tf-01: the replica types of a training job have any names.
async fn free_replica_names<B>(cluster: &TestCluster<B>) {
    let (mut objects, pods) = objects_and_pods("tfjob/chief-ps-workers");
    for job in &mut objects {
        let of = |replicas: u32| {
            let mut replica = job["spec"]["tfReplicaSpecs"]["Worker"].clone();
            replica["replicas"] = json!(replicas);
            replica
        };
        let types = json!({"Cheifs": of(2), "Workers": of(3)});
        job["spec"]["tfReplicaSpecs"] = types;
    }
    for (name, count) in [("cheifs", 2), ("workers", 3)] {
        objects.extend((0..count).map(|number| {
            let mut pod = pods[0].clone();
            pod["metadata"]["name"] = json!(format!("mnist-{name}-{number}"));
            pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] = json!(name);
            pod["metadata"]["labels"]["training.kubeflow.org/replica-index"] = json!(number.to_string());
            pod
        }));
    }
    let made = create_objects(cluster, objects, |_| containers(1)).await;
    cluster.wait_for_running("mnist-", 5).await;
    let groups = cluster.list(&POD_GROUP).await;
    let minimums: Vec<&Value> = groups.iter().map(|group| &group["spec"]["minMember"]).collect();
    assert_eq!(minimums, [5], "{groups:#?}");
    delete_all(cluster, &made).await;
}

/// ray-02 and ray-03: workers beyond the minimum run as far as the queue allows.
async fn ray_workers<B>(cluster: &TestCluster<B>) {
    let of = |queue: &str, workers: usize| {
        let (mut objects, pods) = objects_and_pods("rayjob/autoscaled");
        for value in &mut objects {
            if *object::kind(value) == *"RayJob" {
                value["metadata"]["labels"][label::QUEUE] = json!(queue);
            }
            for groups in ["/spec/rayClusterSpec/workerGroupSpecs/0", "/spec/workerGroupSpecs/0"] {
                if let Some(group) = value.pointer_mut(groups) {
                    group["replicas"] = json!(workers);
                    group["maxReplicas"] = json!(10);
                }
            }
        }
        let head = pods.iter().filter(|pod| !is_ray_worker(pod)).take(1);
        let worker = pods.iter().find(|pod| is_ray_worker(pod));
        objects.extend(head.chain(std::iter::repeat_n(worker, workers).flatten()).cloned());
        objects
    };
    let made = create_objects(cluster, of("vision", 10), |_| containers(0)).await;
    cluster.wait_for_running("tune-", 11).await;
    delete_all(cluster, &made).await;

    let limits = json!({"resources": {"cpu": {"quota": 2_000, "limit": 2_000, "overQuotaWeight": 1}}});
    let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "two-cores", &free, limits).await;
    let made = create_objects(cluster, of("two-cores", 3), |pod| {
        let mut own = containers(0);
        let cpu = if is_ray_worker(pod) { json!({"requests": {"cpu": "1"}}) } else { json!({}) };
        own[0]["resources"] = cpu;
        own
    })
    .await;
    cluster.wait_for_running("tune-", 3).await;
    cluster.sleep(Duration::from_secs(3)).await;
    let pods = cluster.list(&POD).await;
    assert_eq!((pods.len(), cluster.running("tune-").await), (4, 3), "{}", cluster.dump().await);
    let waiting: Vec<&Value> =
        pods.iter().filter(|pod| object::str_at(pod, "/spec/nodeName").is_empty()).collect();
    assert!(matches!(&*waiting, [pod] if is_ray_worker(pod)), "the head and two workers run: {waiting:#?}");
    delete_all(cluster, &made).await;
}

fn is_ray_worker(pod: &Value) -> bool {
    pod["metadata"]["labels"]["ray.io/node-type"] == "worker"
}

/// spark-01: a driver and four executors, all in one group.
async fn spark_executors<B>(cluster: &TestCluster<B>) {
    let (_, pods) = objects_and_pods("pod/spark-submit");
    let is_driver = |pod: &&Value| pod["metadata"]["labels"]["spark-role"] == "driver";
    let executor = pods.iter().find(|pod| !is_driver(pod)).unwrap();
    let mut objects: Vec<Value> = pods.iter().filter(is_driver).take(1).cloned().collect();
    for number in 1..=4 {
        let mut pod = executor.clone();
        pod["metadata"]["name"] = json!(format!("etl-exec-{number}"));
        objects.push(pod);
    }
    let made = create_objects(cluster, objects, |_| containers(1)).await;
    cluster.wait_for_running("etl-", 5).await;
    let groups = cluster.list(&POD_GROUP).await;
    assert_eq!(groups.len(), 1, "{groups:#?}");
    delete_all(cluster, &made).await;
}

/// The objects of a workload, and its pods.
fn objects_and_pods(name: &str) -> (Vec<Value>, Vec<Value>) {
    let all = case(name).objects_with_pods().unwrap();
    let (pods, objects) = all.into_iter().partition(|value| *object::kind(value) == *"Pod");
    (objects, pods)
}

fn containers(gpus: u32) -> Value {
    PodBuilder::new("x", "vision", gpus).object["spec"]["containers"].clone()
}

async fn delete_all<B>(cluster: &TestCluster<B>, made: &[(ResourceKind, String)]) {
    for (kind, name) in made.iter().rev() {
        cluster.delete(kind, name).await;
    }
    nothing_is_left(cluster).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gang_of_a_third_party_kind_waits_until_all_its_pods_fit_and_grows_with_its_owner() {
    third_party_gang(&TestCluster::new(1).await).await;
}

/// On one node with eight GPUs.
pub(crate) async fn third_party_gang<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("vision", 8).await;
    let case = case("pytorchjob/master-and-workers");
    define_kinds(cluster, std::slice::from_ref(&case)).await;
    cluster.create_pod(PodBuilder::new("first", "vision", 2).priority_class("inference")).await;
    cluster.wait_for_running("first", 1).await;
    // Four pods of two GPUs each, where six GPUs are free.
    let made = create_with(cluster, &case, 2).await;
    let (kind, name) = &made[0];
    let group = cluster.wait_for_groups(1).await.remove(0);
    cluster.wait_for_condition(object::name(&group), "gang scheduling").await;
    assert_eq!(cluster.bound_pods("bert").await, [], "one pod too few fits");
    // With one worker less, the gang fits.
    let fewer = json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}});
    cluster.patch(kind, name, &fewer).await;
    cluster.delete_pod("bert-worker-2").await;
    cluster.wait_for_running("bert", 3).await;
    let group = cluster.get(&POD_GROUP, object::name(&group)).await.unwrap();
    assert_eq!(group["spec"]["minMember"], 3, "{group:#}");
    cluster.delete(kind, name).await;
    cluster
        .wait_until("the group goes with its owner", async || cluster.list(&POD_GROUP).await.len() == 1)
        .await;
    too_few_pods(cluster, kind).await;
}

/// An elastic job whose minimum is more than the pods that exist is not ready, by its elastic policy or by its scheduling
/// policy, and an event says how many are missing.
async fn too_few_pods<B>(cluster: &TestCluster<B>, kind: &ResourceKind) {
    let elastic = json!({"minReplicas": 2, "maxReplicas": 4});
    let policies =
        [("by-elastic", json!({})), ("by-minimum", json!({"schedulingPolicy": {"minAvailable": 2}}))];
    for (name, policy) in policies {
        let worker = json!({"Worker": {"replicas": 1}});
        let spec = json!({"elasticPolicy": elastic, "runPolicy": policy, "pytorchReplicaSpecs": worker});
        let owner = cluster.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await;
        let pod = PodBuilder::new(&format!("{name}-worker-0"), "vision", 1);
        let mut pod = pod.label("training.kubeflow.org/replica-type", "worker").object;
        pod["metadata"]["ownerReferences"] = json!([reference(&owner)]);
        cluster.create(&POD, pod).await;
        let is_reported = async || {
            let messages = cluster.event_messages("NotReady", &format!("pg-{name}")).await;
            messages
                .iter()
                .any(|text| text.starts_with("Job is not ready for scheduling. Waiting for 2 pods"))
        };
        cluster.wait_until("an event says that a pod is missing", is_reported).await;
        assert_eq!(cluster.bound_pods(name).await, []);
        cluster.delete(kind, name).await;
    }
}

impl<B> TestCluster<B> {
    /// Waits until there are this many pod groups of owners that are no pods.
    async fn wait_for_groups(&self, count: usize) -> Vec<Value> {
        let of_workloads = async || -> Vec<Value> {
            let groups = self.list(&POD_GROUP).await;
            let is_of_pod = |group: &Value| group["metadata"]["ownerReferences"][0]["kind"] == "Pod";
            groups.into_iter().filter(|group| !is_of_pod(group)).collect()
        };
        self.wait_until(&format!("there are {count} pod groups"), async || {
            of_workloads().await.len() == count
        })
        .await;
        of_workloads().await
    }
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn case(name: &str) -> Case {
    let cases = workloads::cases(&root()).unwrap();
    cases
        .into_iter()
        .find(|case| case.name == name)
        .unwrap_or_else(|| panic!("there is no workload `{name}`"))
}

fn built_in(manifest: &Value) -> ResourceKind {
    let kinds = [REPLICA_SET, DEPLOYMENT, STATEFUL_SET, JOB, CRON_JOB];
    kinds.into_iter().find(|kind| *kind.kind == *object::kind(manifest)).unwrap()
}

/// Whether no controller of Kubernetes makes the pods of the workload.
fn is_third_party(case: &Case) -> bool {
    !case.objects().unwrap().iter().any(is_of_kubernetes) && !case.name.starts_with("pod/single")
}

fn is_of_kubernetes(value: &Value) -> bool {
    let api_version = object::api_version(value);
    api_version.starts_with("apps/") || api_version.starts_with("batch/")
}

/// Gives an object of Kubernetes' own kinds, as another controller makes it, a spec with which its controller does nothing.
fn make_inert(value: &mut Value) {
    let labels = json!({"written-by-hand": object::name(value)});
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1"}]});
    value["spec"] = if object::kind(value) == "Job" {
        json!({"managedBy": "example.com/by-hand", "template": {"spec": pod}})
    } else {
        let mut spec = json!({
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": pod["containers"]}},
        });
        if object::kind(value) == "StatefulSet" {
            spec["serviceName"] = json!("none");
        }
        spec
    };
}

/// The resource of a kind; its plural is in the table of the grouper, or that of its definition here.
pub(crate) fn resource(value: &Value) -> ResourceKind {
    let (api_version, kind) = (object::api_version(value), object::kind(value));
    if kind == "Pod" {
        return POD;
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let of_table = TABLE.iter().find(|of| of.group == group && of.kind == kind).map(|of| of.plural);
    let further = || FURTHER.iter().find(|of| of.group == group && of.kind == kind).map(|of| of.plural);
    let plural = of_table.or_else(further).map_or_else(|| format!("{}s", kind.to_lowercase()), str::to_owned);
    ResourceKind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: plural.into(),
        namespaced: true,
    }
}

/// The topology that workloads name, with all nodes in one rack.
pub(crate) async fn define_topology<B>(cluster: &TestCluster<B>, nodes: usize) {
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]);
    let topology = json!({"metadata": {"name": "cluster"}, "spec": {"levels": levels}});
    cluster.api().ensure_dynamic(&TOPOLOGY, "", &cluster.complete(&TOPOLOGY, topology)).await.unwrap();
    for number in 1..=nodes {
        cluster
            .patch(&NODE, &cluster.node_name(number), &json!({"metadata": {"labels": {"rack": "r1"}}}))
            .await;
    }
}

/// Creates definitions of all kinds that the workloads have, and lets the grouper read those that it has no right for.
async fn define_kinds<B>(cluster: &TestCluster<B>, cases: &[Case]) {
    let mut versions: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();
    for value in cases.iter().flat_map(|case| case.objects_with_pods().unwrap()) {
        let kind = resource(&value);
        if kind != POD && !is_of_kubernetes(&value) {
            let id = (kind.group.to_string(), kind.kind.to_string(), kind.plural.to_string());
            versions.entry(id).or_default().insert(kind.version.to_string());
        }
    }
    let mut rules = Vec::new();
    for ((group, kind, plural), versions) in &versions {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = |(index, name): (usize, &String)| json!({"name": name, "served": true, "storage": index == 0, "schema": schema});
        let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
        let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                // Definitions in groups of `k8s.io` need it.
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
        });
        cluster.api().ensure_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &definition).await.unwrap();
        rules.push(json!({"apiGroups": [group], "resources": [plural], "verbs": ["get"]}));
    }
    let name = format!("{}-unknown-kinds", cluster.namespace());
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    cluster.api().ensure_dynamic(&CLUSTER_ROLE, "", &role).await.unwrap();
    let subjects = json!([{"kind": "ServiceAccount", "name": "pod-grouper", "namespace": "kai-scheduler"}]);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": subjects,
    });
    cluster.api().ensure_dynamic(&CLUSTER_ROLE_BINDING, "", &binding).await.unwrap();
    // The authorizer of kube-apiserver follows its informers.
    cluster.sleep(Duration::from_secs(2)).await;
}

fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::api_version(owner), "kind": object::kind(owner), "name": object::name(owner),
        "uid": object::uid(owner), "controller": true,
    })
}

async fn create_all<B>(cluster: &TestCluster<B>, case: &Case) -> Vec<(ResourceKind, String)> {
    create_with(cluster, case, 0).await
}

/// Creates a workload, what its controller makes of it, and its pods, each with some GPUs; returns what was made.
async fn create_with<B>(cluster: &TestCluster<B>, case: &Case, gpus: u32) -> Vec<(ResourceKind, String)> {
    create_objects(cluster, case.objects_with_pods().unwrap(), |_| containers(gpus)).await
}

/// Creates these objects, each pod with these containers; returns what was made.
async fn create_objects<B>(
    cluster: &TestCluster<B>,
    objects: Vec<Value>,
    containers: impl Fn(&Value) -> Value,
) -> Vec<(ResourceKind, String)> {
    let mut made: Vec<(ResourceKind, Value)> = Vec::new();
    for (number, mut value) in objects.into_iter().enumerate() {
        let kind = resource(&value);
        if let Some((_, known)) =
            made.iter().find(|(of, known)| *of == kind && object::name(known) == object::name(&value))
        {
            let name = object::name(known).to_owned();
            cluster.patch(&kind, &name, &json!({"status": value["status"]})).await;
            continue;
        }
        for owner in
            value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let known = made.iter().find(|(of, known)| {
                *of.kind == *object::str_at(owner, "/kind")
                    && object::name(known) == object::str_at(owner, "/name")
            });
            let known = &known.expect("owners come before what they own").1;
            *owner = reference(known);
            if is_of_kubernetes(known) {
                // Its controller must not count what was written by hand.
                owner["controller"] = json!(false);
            }
        }
        if is_of_kubernetes(&value) {
            make_inert(&mut value);
        }
        if kind == POD {
            let name = object::name(&value).replace("xxxxx", &format!("{number:05}"));
            value["metadata"]["name"] = json!(name);
            value["spec"]["containers"] = containers(&value);
            if let Some(spec) = value["spec"].as_object_mut() {
                spec.remove("nodeName");
            }
        }
        for gang in value.pointer_mut("/spec/podgroups").and_then(Value::as_array_mut).into_iter().flatten() {
            for pod in gang["podReferences"].as_array_mut().into_iter().flatten() {
                pod["namespace"] = json!(cluster.namespace());
            }
        }
        made.push((kind.clone(), create(cluster, &kind, value).await));
    }
    made.into_iter().map(|(kind, value)| (kind, object::name(&value).to_owned())).collect()
}

/// Creates an object; its definition may not be served yet.
async fn create<B>(cluster: &TestCluster<B>, kind: &ResourceKind, value: Value) -> Value {
    let value = cluster.complete(kind, value);
    for _ in 0..100 {
        match cluster.api().create_dynamic(kind, cluster.namespace(), &value).await {
            Err(error) if error.is_not_found() => cluster.sleep(Duration::from_millis(200)).await,
            made => return made.unwrap(),
        }
    }
    panic!("{} is not served", kind.kind);
}

/// Waits until all pods of a workload run, and compares its pod groups with those of its file.
pub(crate) async fn assert_groups<B>(cluster: &TestCluster<B>, case: &Case) {
    let report = workloads::group(&case.objects_with_pods().unwrap());
    let mut expected = Vec::new();
    let mut pods = 0;
    for group in &report.groups {
        let of_group: u64 = group.pods().values().sum();
        pods += usize::try_from(of_group).unwrap() * group.groups as usize;
        expected
            .extend((0..group.groups).map(|_| compared(&group.object(), &|queue| cluster.queue_name(queue))));
    }
    expected.sort();
    cluster.wait_for_running("", pods).await;
    let stored = async || -> Vec<String> {
        let groups = cluster.list(&POD_GROUP).await;
        let mut groups: Vec<String> = groups.iter().map(|group| compared(group, &str::to_owned)).collect();
        groups.sort();
        groups
    };
    // The group of a launcher or a leader changes once the pod has a node.
    for _ in 0..50 {
        if stored().await == expected {
            return;
        }
        cluster.sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(stored().await, expected, "{}", case.name);
}

/// What two pod groups of the same workload have in common, whatever the uids.
fn compared(group: &Value, queue: &dyn Fn(&str) -> String) -> String {
    let spec = &group["spec"];
    let fields = [
        "minMember",
        "minSubGroup",
        "priorityClassName",
        "preemptibility",
        "preemptionDelay",
        "topologyConstraint",
    ];
    let fields: BTreeMap<&str, &Value> = fields.into_iter().map(|field| (field, &spec[field])).collect();
    let empty = Vec::new();
    let sub_groups = spec["subGroups"].as_array().unwrap_or(&empty).iter().map(|of| {
        ["name", "parent", "minMember", "minSubGroup", "topologyConstraint"].map(|field| of[field].clone())
    });
    let sub_groups: Vec<_> = sub_groups.collect();
    let owner = object::str_at(&group["metadata"]["ownerReferences"][0], "/kind");
    json!([owner, queue(object::str_at(spec, "/queue")), fields, sub_groups]).to_string()
}

/// Waits until pods and groups of the last workload are gone.
pub(crate) async fn nothing_is_left<B>(cluster: &TestCluster<B>) {
    cluster.wait_until("the pods are gone", async || cluster.list(&POD).await.is_empty()).await;
    cluster.wait_until("the pod groups are gone", async || cluster.list(&POD_GROUP).await.is_empty()).await;
}

//! Workloads whose pods their own controllers create: JobSet, LeaderWorkerSet, KubeRay, MPI operator, training operator
//! and Trainer.
//!
//! Each workload of `tests/grouper` with such a controller is submitted as users write it. Its pods are compared with those
//! in its file (`UPDATE=1` writes them), and the pod groups with what the grouper makes of these. Then the documented examples
//! wait while one pod too few fits, and are scaled.

mod gangs;

use super::control_plane::Plane;
use crate::test_cluster::{PodBuilder, TestCluster};
use crate::workload_kinds;
use gangs::GANGS;
use kai_api::well_known::{annotation, label};
use kai_kubetest::control_plane::Programs;
use kai_kubetest::third_party::{Controller, DEFINITIONS};
use kai_object as object;
use kai_runtime::api::{self, Part};
use kai_runtime::kind::{
    CUSTOM_RESOURCE_DEFINITION, JOB, MUTATING_WEBHOOK_CONFIGURATION, NAMESPACE, POD, REPLICA_SET,
    STATEFUL_SET, VALIDATING_WEBHOOK_CONFIGURATION,
};
use kai_runtime::{Key, ResourceKind};
use kai_scheduler::resources::POD_GROUP;
use kai_sim::NodeGroup;
use kai_testkit::workloads::{self, Case};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const SECRET: ResourceKind = ResourceKind {
    group: Cow::Borrowed(""),
    version: Cow::Borrowed("v1"),
    kind: Cow::Borrowed("Secret"),
    plural: Cow::Borrowed("secrets"),
    namespaced: true,
};

pub(super) type RealCluster = TestCluster<Arc<Plane>>;

/// The workloads by controller.
const WORKLOADS: [(&str, &[&str]); 6] = [
    ("jobset", &["jobset/any-order", "jobset/in-order", "jobset/depends-on"]),
    ("lws", &["leaderworkerset/two-groups", "leaderworkerset/segments"]),
    ("kuberay", &["raycluster/two-worker-groups", "rayjob/autoscaled"]),
    ("mpi-operator", &["mpijob/v2beta1"]),
    (
        "training-operator",
        &[
            "pytorchjob/master-and-workers",
            "pytorchjob/elastic",
            "pytorchjob/segments",
            "tfjob/chief-ps-workers",
            "xgboostjob/master-and-workers",
            "jaxjob/three-workers",
        ],
    ),
    ("trainer", &["trainjob/three-nodes"]),
];

#[test]
#[ignore = "needs workload controllers: cargo xtask kubernetes --with jobset,lws,kuberay,mpi-operator,training-operator,trainer --test"]
fn pods_of_real_controllers_are_grouped_and_run() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    // `KAI_WORKLOAD_CONTROLLERS=jobset,lws` runs only these.
    let selected = std::env::var("KAI_WORKLOAD_CONTROLLERS").ok();
    let is_selected =
        |name: &str| selected.as_ref().is_none_or(|names| names.split(',').any(|of| of == name));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "workload-controllers").await);
        for (name, cases) in WORKLOADS.iter().filter(|(name, _)| is_selected(name)) {
            let mut controllers = vec![start(&plane, &programs, name).await];
            if *name == "trainer" {
                // Its jobs are JobSets.
                controllers.push(start(&plane, &programs, "jobset").await);
            }
            let cluster = plane.test_cluster(&format!("real-{name}"), NodeGroup::gpu_nodes(2, 8)).await;
            cluster.create_queue("vision", 16).await;
            workload_kinds::define_topology(&cluster, 2).await;
            for case in *cases {
                println!("{name}: {case}");
                run_case(&cluster, &mut controllers, &workload_kinds::case(case)).await;
            }
            for gang in GANGS.iter().filter(|gang| cases.contains(&gang.case)) {
                println!("{name}: gang of {}", gang.case);
                gang.waits_and_scales(&cluster).await;
            }
            if *name == "lws" {
                replica_waits_and_scales(&cluster).await;
            }
            plane.clean_up(&cluster).await;
        }
    });
}

/// Starts a controller and creates its definitions.
pub(super) async fn start(plane: &Plane, programs: &Programs, name: &str) -> Controller {
    let definition = DEFINITIONS.into_iter().find(|of| of.name == name).unwrap();
    let controller = Controller::start(definition, programs.folder(), plane.control()).unwrap();
    for value in controller.objects() {
        let kind = match object::kind(value) {
            "CustomResourceDefinition" => CUSTOM_RESOURCE_DEFINITION,
            "MutatingWebhookConfiguration" => MUTATING_WEBHOOK_CONFIGURATION,
            "ValidatingWebhookConfiguration" => VALIDATING_WEBHOOK_CONFIGURATION,
            "Namespace" => NAMESPACE,
            "Secret" => SECRET,
            kind => panic!("{name} brings a {kind}"),
        };
        let namespace = object::namespace(value);
        plane.api().ensure_dynamic(&kind, namespace, value).await.unwrap();
        // A controller that is started a second time serves its webhooks on another port.
        if value["webhooks"].as_array().is_some_and(|webhooks| !webhooks.is_empty()) {
            let key = Key::new(namespace, object::name(value));
            plane.api().patch_dynamic(&kind, &key, Part::Main, value).await.unwrap();
        }
    }
    controller
}

/// Submits a workload, and waits until its pods run in the pod groups of its file.
async fn run_case(cluster: &RealCluster, controllers: &mut [Controller], case: &Case) {
    let mut objects = case.objects().unwrap();
    let manifest = objects.remove(0);
    let kind = workload_kinds::resource(&manifest);
    let value = cluster.complete(&kind, manifest.clone());
    let expected = workloads::group(&case.objects().unwrap());
    let pods: u64 = expected.groups.iter().flat_map(|group| group.pods().into_values()).sum();
    // Its definition or its webhook may not be served yet.
    let deadline = tokio::time::Instant::now() + Duration::from_mins(3);
    let create = async || {
        for runtime in &objects {
            set_runtime(cluster, runtime).await?;
        }
        cluster.api().create_dynamic(&kind, cluster.namespace(), &value).await
    };
    while let Err(error) = create().await {
        keep_running(cluster, controllers).await;
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{} is not accepted: {error}\n{}", case.name, controllers[0].log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let pods = usize::try_from(pods).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    while cluster.running("").await < pods {
        keep_running(cluster, controllers).await;
        let late = tokio::time::Instant::now() > deadline;
        let dump = if late { cluster.dump().await } else { String::new() };
        assert!(!late, "{}: {pods} pods do not run\n{}\n{dump}", case.name, controllers[0].log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let recorded = record(cluster, &manifest, &controllers[0]).await;
    if std::env::var_os("UPDATE").is_some() {
        case.write_pods(&recorded).unwrap();
    } else {
        let stored = workloads::parse(&case.pods).unwrap();
        assert_eq!(workloads::parse(&recorded).unwrap(), stored, "{}: UPDATE=1 writes the pods", case.name);
    }
    workload_kinds::assert_groups(cluster, case).await;
    cluster.delete(&kind, object::name(&manifest)).await;
    workload_kinds::nothing_is_left(cluster).await;
}

async fn keep_running(cluster: &RealCluster, controllers: &mut [Controller]) {
    for controller in controllers {
        controller.keep_running(cluster.backend.control()).await.unwrap();
    }
}

/// Creates or changes what a workload refers to, which is for the whole cluster.
async fn set_runtime(cluster: &RealCluster, runtime: &Value) -> api::Result<()> {
    let kind = ResourceKind { namespaced: false, ..workload_kinds::resource(runtime) };
    cluster.api().ensure_dynamic(&kind, "", runtime).await?;
    let key = Key::new("", object::name(runtime));
    cluster.api().patch_dynamic(&kind, &key, Part::Main, runtime).await.map(|_| ())
}

/// A replica of which one pod too few fits waits whole; one more replica is one more group.
async fn replica_waits_and_scales(cluster: &RealCluster) {
    let mut manifest = workload_kinds::case("leaderworkerset/two-groups").objects().unwrap().remove(0);
    let container =
        manifest.pointer_mut("/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0").unwrap();
    container["resources"]["limits"]["nvidia.com/gpu"] = json!(2);
    let kind = workload_kinds::resource(&manifest);
    // Of the eight pairs of GPUs one is taken: seven pods would fit.
    cluster.create_pod(PodBuilder::new("first", "vision", 2).priority_class("inference")).await;
    cluster.wait_for_running("first", 1).await;
    cluster.create(&kind, manifest).await;
    let groups = async || -> usize {
        let groups = cluster.list(&POD_GROUP).await;
        groups.iter().filter(|group| object::name(group).starts_with("pg-llama-")).count()
    };
    cluster.wait_until("both replicas have a group", async || groups().await == 2).await;
    cluster.wait_for_running("llama", 4).await;
    cluster.sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.bound_pods("llama").await.len(), 4, "{}", cluster.dump().await);
    cluster.delete_pod("first").await;
    cluster.wait_for_running("llama", 8).await;
    cluster.patch(&kind, "llama", &json!({"spec": {"replicas": 3}})).await;
    cluster.wait_until("the third replica has a group", async || groups().await == 3).await;
    cluster.patch(&kind, "llama", &json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for_running("llama", 4).await;
    cluster.delete(&kind, "llama").await;
    workload_kinds::nothing_is_left(cluster).await;
}

/// Pods and what is between them and the workload, as `pods.yaml` has them.
async fn record(cluster: &RealCluster, manifest: &Value, controller: &Controller) -> String {
    let (name, version) = (controller.definition.title, &controller.version);
    let workload = workload_kinds::resource(manifest);
    let top = cluster.get(&workload, object::name(manifest)).await.unwrap();
    let cluster_kind =
        ResourceKind { kind: "RayCluster".into(), plural: "rayclusters".into(), ..workload.clone() };
    let mut kinds = vec![REPLICA_SET, STATEFUL_SET, JOB];
    if workload.group == "ray.io" && *workload.kind != *"RayCluster" {
        kinds.push(cluster_kind);
    }
    if *workload.kind == *"TrainJob" {
        let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"});
        kinds.push(workload_kinds::resource(&set));
    }
    kinds.push(POD);
    let mut objects = Vec::new();
    for kind in kinds {
        for mut value in cluster.list(&kind).await {
            value["apiVersion"] = json!(kind.api_version());
            value["kind"] = json!(kind.kind);
            objects.push(reduced(&value));
        }
    }
    // KubeRay submits a job with a pod that is not ours.
    objects.retain(|of| object::kind(of) != "Pod" || of["spec"]["schedulerName"] == "kai-scheduler");
    let owners: Vec<Value> = objects.iter().map(|of| of["metadata"]["ownerReferences"][0].clone()).collect();
    objects.retain(|of| {
        let owns = |owner: &Value| owner["kind"] == of["kind"] && owner["name"] == of["metadata"]["name"];
        object::kind(of) == "Pod" || owners.iter().any(owns)
    });
    if let Some(name) = top.pointer("/status/rayClusterName") {
        let mut named = manifest.clone();
        named["status"] = json!({"rayClusterName": name});
        objects.insert(0, named);
    }
    in_order_of_owners(&mut objects);
    let mut text = format!("# Created by {name} {version}; the parts that grouping reads.\n");
    for (index, value) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(value).unwrap());
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    // The name of the cluster of a RayJob ends with random letters, and pods repeat it.
    match top.pointer("/status/rayClusterName").and_then(Value::as_str) {
        Some(random) => text.replace(random, &format!("{}-xxxxx", object::name(&top))),
        None => text,
    }
}

/// Leaves what grouping reads, and `x` for random letters in names.
fn reduced(value: &Value) -> Value {
    const LABELS: [&str; 9] = [
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index",
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "ray.io/cluster",
        "ray.io/node-type",
        "ray.io/group",
    ];
    // What our components add to the pods.
    const WRITTEN: [&str; 3] = [label::NODE_POOL, label::SUBGROUP, annotation::LAST_START];
    let is_read = |key: &str| {
        LABELS.contains(&key)
            || ["leaderworkerset.sigs.k8s.io/size", "batch.kubernetes.io/job-name", "app"].contains(&key)
            || key.starts_with("training.kubeflow.org/")
            || (key.starts_with("kai.scheduler/") && !WRITTEN.contains(&key))
    };
    let part = |field: &str| -> serde_json::Map<String, Value> {
        let all = value["metadata"][field].as_object().cloned().unwrap_or_default();
        all.into_iter().filter(|(key, _)| is_read(key)).collect()
    };
    let generated = object::str_at(value, "/metadata/generateName");
    // Pods of a StatefulSet have a generated name and a number nevertheless.
    let is_numbered = object::str_at(value, "/metadata/ownerReferences/0/kind") == "StatefulSet";
    let is_random = !generated.is_empty() && !is_numbered;
    let name = if is_random { format!("{generated}xxxxx") } else { object::name(value).to_owned() };
    let mut metadata = json!({"name": name});
    for (field, part) in [("labels", part("labels")), ("annotations", part("annotations"))] {
        if !part.is_empty() && object::kind(value) == "Pod" {
            metadata[field] = Value::Object(part);
        }
    }
    let owners = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owners: Vec<Value> = owners
        .iter()
        .map(|of| json!({"apiVersion": of["apiVersion"], "kind": of["kind"], "name": of["name"], "controller": true}))
        .collect();
    if !owners.is_empty() {
        metadata["ownerReferences"] = json!(owners);
    }
    let mut reduced = json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata});
    if object::kind(value) == "Pod" {
        reduced["spec"] = json!({"schedulerName": value["spec"]["schedulerName"]});
    } else if object::kind(value) == "RayCluster" {
        let group = |of: &Value| {
            json!({
                "groupName": of["groupName"], "replicas": of["replicas"], "minReplicas": of["minReplicas"],
                "maxReplicas": of["maxReplicas"], "numOfHosts": of["numOfHosts"],
            })
        };
        let groups = value["spec"]["workerGroupSpecs"].as_array().into_iter().flatten().map(group);
        reduced["spec"] = json!({"workerGroupSpecs": groups.collect::<Vec<_>>()});
    } else if object::kind(value) == "JobSet" {
        let job = |of: &Value| {
            let spec = &of["template"]["spec"];
            let spec = json!({"parallelism": spec["parallelism"], "completions": spec["completions"]});
            json!({"name": of["name"], "replicas": of["replicas"], "template": {"spec": spec}})
        };
        let jobs = value["spec"]["replicatedJobs"].as_array().into_iter().flatten().map(job);
        reduced["spec"] = json!({"replicatedJobs": jobs.collect::<Vec<_>>()});
    }
    reduced
}

/// Owners before what they own, else by name.
fn in_order_of_owners(objects: &mut Vec<Value>) {
    objects.sort_by_key(|of| (object::kind(of) == "Pod", object::name(of).to_owned()));
    let mut ordered: Vec<Value> = Vec::new();
    while !objects.is_empty() {
        let is_waiting = |of: &Value| {
            let owner = &of["metadata"]["ownerReferences"][0];
            objects.iter().any(|other| {
                object::kind(other) == object::str_at(owner, "/kind")
                    && object::name(other) == object::str_at(owner, "/name")
            })
        };
        let next = objects.iter().position(|of| !is_waiting(of)).unwrap_or(0);
        ordered.push(objects.remove(next));
    }
    *objects = ordered;
}

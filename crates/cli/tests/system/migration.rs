//! Moving over from KAI v0.17, and back: what KAI's chart and operator installed is taken over while workloads run.
//!
//! The objects of the installation are those that KAI's own operator created (`kai_testkit::installed`). The workloads are
//! in the state in which KAI's components leave them: groups, bound pods, a shared GPU with its reservation pod, and a
//! BindRequest in flight.

use crate::high_availability::{self, REPLICAS, Terms};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_admission::queue::QuotaValidation;
use kai_admission::{pod, podgroup, queue, topology};
use kai_api::{Config, SchedulingShard};
use kai_cli::embedded::admission::pod_options;
use kai_components::{Component, ComponentOptions, SchedulerHandle};
use kai_object as object;
use kai_operator::Images;
use kai_operator::process::{self, Options};
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::kind::{self, DEPLOYMENT, JOB, Key, LEASE, NAMESPACE, POD, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE};
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const OPERATOR: &str = "operator-of-the-installation";
const INSTALLATION: &str = "kai-scheduler";
const RESERVATIONS: &str = "kai-resource-reservation";
const KAI_HOLDER: &str = "kai-scheduler-default-6d5f_0a1b";
const GPU_GROUP: &str = "0b8d6a2e-4a55-4d8e-9a2a-6a1e6e0c9d11";

/// Kinds that survive the move as they are, in all namespaces.
fn surviving() -> Vec<ResourceKind> {
    vec![
        ResourceKind::of::<Config>(),
        ResourceKind::of::<SchedulingShard>(),
        QUEUE.clone(),
        POD_GROUP.clone(),
        DEPLOYMENT,
        kind::SERVICE_ACCOUNT,
        kind::VALIDATING_WEBHOOK_CONFIGURATION,
        kind::MUTATING_WEBHOOK_CONFIGURATION,
        JOB,
    ]
}

/// Uids by kind, namespace and name: of surviving kinds, and of all pods outside of the installation's namespace.
async fn uids(cluster: &TestCluster) -> BTreeMap<String, String> {
    let mut uids = BTreeMap::new();
    for kind in surviving().iter().chain([&POD]) {
        for item in cluster.api().list_dynamic(kind, "").await.unwrap().items {
            let key = kai_runtime::key_of(&item);
            if *kind != POD || key.namespace != INSTALLATION {
                uids.insert(format!("{} {key}", kind.kind), object::uid(&item).to_owned());
            }
        }
    }
    uids
}

/// Everything of `before` is still the same object, and no workload has restarted or is being deleted.
async fn assert_undisturbed(cluster: &TestCluster, before: &BTreeMap<String, String>) {
    let now = uids(cluster).await;
    for (name, uid) in before {
        assert_eq!(now.get(name), Some(uid), "{name} was deleted or replaced");
    }
    for pod in cluster.api().list_dynamic(&POD, "").await.unwrap().items {
        let key = kai_runtime::key_of(&pod);
        if before.contains_key(&format!("Pod {key}")) {
            assert!(!object::is_deleting(&pod), "{key} is being deleted");
            assert_eq!(object::str_at(&pod, "/status/phase"), "Running", "{key}");
        }
    }
}

fn kind_of(object: &Value) -> ResourceKind {
    let secret = kind::untyped("", "v1", "Secret", "secrets", true);
    let service = kind::untyped("", "v1", "Service", "services", true);
    let all = surviving().into_iter().chain([kind::CONFIG_MAP, secret, service]);
    let name = object::kind(object);
    all.into_iter().find(|kind| kind.kind == name).unwrap_or_else(|| panic!("unknown kind {name}"))
}

/// The recorded objects with the uids of their owners in this cluster.
async fn installed_by_kai(cluster: &TestCluster) -> Vec<(ResourceKind, Value)> {
    let mut objects = Vec::new();
    for mut object in kai_testkit::installed::objects().unwrap() {
        let kind = kind_of(&object);
        let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            let owner_kind = kind_of(owner);
            let key = Key::new("", object::str_at(owner, "/name"));
            let current = cluster.api().get_dynamic(&owner_kind, &key).await;
            owner["uid"] =
                Value::from(current.map(|found| object::uid(&found).to_owned()).unwrap_or_default());
        }
        if matches!(object::kind(&object), "Config" | "SchedulingShard") {
            let created = cluster.api().ensure_dynamic(&kind, "", &object).await;
            created.unwrap();
        }
        objects.push((kind, object));
    }
    objects
}

/// Creates what the chart does besides the operator: namespaces, `Config` and shard, and a queue. Their webhooks are served.
pub(crate) async fn create_installation(cluster: &TestCluster, namespace: &str) {
    serve_webhooks(&cluster.backend);
    for name in [namespace, "kai-resource-reservation", "kai-scale-adjust"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.api().ensure_dynamic(&NAMESPACE, "", &object).await.unwrap();
    }
    for (kind, name) in
        [(ResourceKind::of::<SchedulingShard>(), "default"), (ResourceKind::of::<Config>(), "kai-config")]
    {
        let settings = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind, "metadata": {"name": name}, "spec": {},
        });
        cluster.api().ensure_dynamic(&kind, "", &settings).await.unwrap();
    }
    cluster.create_queue("research", 32).await;
}

/// Serves the webhooks under the names of their Services, whichever pods are behind them.
pub(crate) fn serve_webhooks(cluster: &Cluster) {
    let api = cluster.api().clone();
    let routers = [
        ("admission", pod::router(pod_options()).merge(topology::router())),
        ("podgroup-controller", podgroup::router()),
        ("queue-controller", queue::router(api, QuotaValidation::Disabled)),
    ];
    for (service, router) in routers {
        cluster.server().core().webhooks.serve(&format!("{service}.{INSTALLATION}.svc"), router);
    }
}

async fn install_kai(cluster: &TestCluster) {
    serve_webhooks(&cluster.backend);
    for name in [INSTALLATION, RESERVATIONS, "kai-scale-adjust"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.api().ensure_dynamic(&NAMESPACE, "", &namespace).await.unwrap();
    }
    for (kind, object) in installed_by_kai(cluster).await {
        cluster.api().ensure_dynamic(&kind, object::namespace(&object), &object).await.unwrap();
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kai-scheduler", "namespace": INSTALLATION},
        "spec": {
            "holderIdentity": KAI_HOLDER, "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "acquireTime": "2025-12-31T23:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    cluster.api().create_dynamic(&LEASE, INSTALLATION, &lease).await.unwrap();
}

/// A group of a pod or workload, as KAI's pod grouper names it.
async fn group(cluster: &TestCluster, owner: &Value, owner_kind: &ResourceKind, pods: u32) -> String {
    let name = format!("pg-{}-{}", object::name(owner), object::uid(owner));
    let spec = json!({"minMember": pods, "queue": "research", "priorityClassName": "train"});
    let reference = json!({
        "apiVersion": owner_kind.api_version(), "kind": &*owner_kind.kind,
        "name": object::name(owner), "uid": object::uid(owner),
    });
    let metadata = json!({
        "name": name, "ownerReferences": [reference], "labels": {"kai.scheduler/queue": "research"},
    });
    cluster.create(&POD_GROUP, json!({"metadata": metadata, "spec": spec})).await;
    name
}

async fn assign(cluster: &TestCluster, pod: &str, group: &str) {
    cluster.patch(&POD, pod, &json!({"metadata": {"annotations": {"pod-group-name": group}}})).await;
}

async fn bind(cluster: &TestCluster, pod: &str, node: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("{}/binding", POD.path_of(&Key::new("default", pod)));
    cluster.api().send("POST", &path, Some(("application/json", &binding))).await.unwrap();
}

/// A job of two pods, half a GPU, and a pod whose BindRequest the binder has not seen yet.
async fn workloads_of_kai(cluster: &TestCluster) {
    cluster.create_queue("research", 4).await;
    let template = PodBuilder::new("x", "research", 1).object;
    let job = json!({
        "metadata": {"name": "train", "labels": {"kai.scheduler/queue": "research"}},
        "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"labels": {"kai.scheduler/queue": "research"}},
            "spec": {
                "schedulerName": "kai-scheduler", "restartPolicy": "Never",
                "containers": template["spec"]["containers"],
            },
        }},
    });
    let job = cluster.create(&JOB, job).await;
    let of_job = async || {
        let pods = cluster.list(&POD).await;
        let names = pods.iter().map(object::name).filter(|name| name.starts_with("train"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    cluster.wait_until("the job has two pods", async || of_job().await.len() == 2).await;
    let name = group(cluster, &job, &JOB, 2).await;
    for pod in of_job().await {
        assign(cluster, &pod, &name).await;
        bind(cluster, &pod, "node-1").await;
    }

    let reservation = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "gpu-reservation-node-1-x7k2p", "namespace": RESERVATIONS,
            "labels": {"app": "kai-resource-reservation", "runai-gpu-group": GPU_GROUP},
            "annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"},
        },
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "kai-resource-reservation",
            "containers": [{
                "name": "resource-reservation", "image": "registry.example/kai/resource-reservation:v1",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }],
        },
    });
    cluster.api().create_dynamic(&POD, RESERVATIONS, &reservation).await.unwrap();
    let half = PodBuilder::fraction("half-0", "research", "0.5").label("runai-gpu-group", GPU_GROUP);
    let half = cluster.create_pod(half.annotation("received-resource-type", "Fraction")).await;
    let name = group(cluster, &half, &POD, 1).await;
    assign(cluster, "half-0", &name).await;
    bind(cluster, "half-0", "node-1").await;

    let late = cluster.create_pod(PodBuilder::new("late", "research", 1)).await;
    let name = group(cluster, &late, &POD, 1).await;
    assign(cluster, "late", &name).await;
    let request = json!({
        "metadata": {"name": "late", "labels": {"selected-node": "node-2"}},
        "spec": {
            "podName": "late", "selectedNode": "node-2", "receivedResourceType": "Regular",
            "receivedGPU": {"count": 1, "portion": "1"},
        },
    });
    cluster.create(&BIND_REQUEST, request).await;
    cluster.wait_for_running("train", 2).await;
    cluster.wait_for_running("half-0", 1).await;
}

/// Binds the components' own pods, which another scheduler does.
pub(crate) async fn place_components(api: Api) {
    loop {
        let pods = api.list_dynamic(&POD, INSTALLATION).await.map(|list| list.items).unwrap_or_default();
        for pod in pods.iter().filter(|pod| object::str_at(pod, "/spec/nodeName").is_empty()) {
            let key = kai_runtime::key_of(pod);
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": key.name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            });
            let path = format!("{}/binding", POD.path_of(&key));
            let _ = api.send("POST", &path, Some(("application/json", &binding))).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Starts our operator and components.
fn take_over(cluster: &mut Cluster) {
    let clock = cluster.clock();
    cluster.run(OPERATOR, move |client| {
        let process = Process::start(Api::new(client, "kai-operator"), clock, "kai-operator");
        let images = Images { repository: "registry.example/ours".to_owned(), tag: "v1".to_owned() };
        process::run(process, Options { namespace: INSTALLATION.to_owned(), images })
    });
    high_availability::join(cluster, &ComponentOptions::simulated(), &Terms::default());
}

async fn is_ready(cluster: &TestCluster, kind: &ResourceKind, name: &str) -> bool {
    let Ok(owner) = cluster.api().get_dynamic(kind, &Key::new("", name)).await else { return false };
    let conditions =
        owner.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.iter().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"] == json!(object::generation(&owner))
    })
}

async fn images(cluster: &TestCluster) -> Vec<String> {
    let deployments = cluster.api().list_dynamic(&DEPLOYMENT, INSTALLATION).await.unwrap().items;
    // The chart owns the operator's own Deployment.
    let operands = deployments.iter().filter(|one| object::name(one) != "kai-operator");
    let image = |one: &Value| object::str_at(one, "/spec/template/spec/containers/0/image").to_owned();
    operands.map(image).collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn installation_of_kai_is_taken_over_without_disturbing_workloads_and_given_back() {
    let nodes = [NodeGroup::gpu_nodes(2, 8)];
    let mut cluster = TestCluster::with_components(1, nodes, |cluster| {
        cluster.run("placer", |client| place_components(Api::new(client, "placer")));
        SchedulerHandle::default()
    })
    .await;
    install_kai(&cluster).await;
    workloads_of_kai(&cluster).await;
    cluster.sleep(Duration::from_secs(5)).await;
    let before = uids(&cluster).await;
    assert!(images(&cluster).await.iter().all(|image| image.starts_with("registry.example/kai/")));

    take_over(&mut cluster.backend);
    cluster.wait_for_running("late", 1).await;
    assert_eq!(cluster.bound_pods("late").await[0].1, "node-2", "the bind in flight is completed as decided");
    let (config, shard) = (ResourceKind::of::<Config>(), ResourceKind::of::<SchedulingShard>());
    cluster
        .wait_until("the installation is ready", async || {
            is_ready(&cluster, &config, "kai-config").await && is_ready(&cluster, &shard, "default").await
        })
        .await;
    assert!(images(&cluster).await.iter().all(|image| image.starts_with("registry.example/ours/")));
    cluster
        .wait_until("the lease of KAI's scheduler is taken over", async || {
            high_availability::leader(&cluster, Component::Scheduler).await.is_some()
        })
        .await;

    // New work continues on what KAI left: the second half joins the shared GPU.
    cluster.create_pod(PodBuilder::fraction("half-1", "research", "0.5")).await;
    cluster.wait_for_running("half-1", 1).await;
    let joined = cluster.get(&POD, "half-1").await.unwrap();
    assert_eq!(object::str_at(&joined, "/metadata/labels/runai-gpu-group"), GPU_GROUP);
    assert_eq!(cluster.reservations().await.len(), 1, "no second reservation");
    cluster.sleep(Duration::from_mins(10)).await;
    assert_undisturbed(&cluster, &before).await;
    let queue = cluster.get(&QUEUE, "research").await.unwrap();
    assert_eq!(queue["status"]["allocated"]["nvidia.com/gpu"], "4", "{queue}");

    // The way back: ours are gone, and KAI's operator writes its objects over ours.
    cluster.backend.faults().partition(OPERATOR);
    for name in REPLICAS.iter().flat_map(|(_, names)| names) {
        cluster.backend.faults().partition(name);
    }
    let before = uids(&cluster).await;
    for (kind, object) in installed_by_kai(&cluster).await {
        let key = kai_runtime::key_of(&object);
        let mut object = object;
        if kind == DEPLOYMENT || kind == kind::CONFIG_MAP {
            let current = cluster.api().get_dynamic(&kind, &key).await;
            let current = current.unwrap_or_else(|error| panic!("{} {key} is gone: {error}", kind.kind));
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            let written =
                cluster.api().send("PUT", &kind.path_of(&key), Some(("application/json", &object))).await;
            written.unwrap_or_else(|error| panic!("KAI cannot write {} {key}: {error}", kind.kind));
        } else {
            let current = cluster.api().get_dynamic(&kind, &key).await;
            assert!(current.is_ok(), "{} {key}, which KAI expects, is gone", kind.kind);
        }
    }
    cluster.sleep(Duration::from_mins(10)).await;
    assert!(images(&cluster).await.iter().all(|image| image.starts_with("registry.example/kai/")));
    assert_undisturbed(&cluster, &before).await;
}

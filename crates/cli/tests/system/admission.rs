//! Admission webhooks: pods are prepared, invalid objects are refused with a sentence that the client sees, and queues in
//! use are not deleted.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_admission::pod;
use kai_cli::embedded::admission::pod_options;
use kai_object as object;
use kai_runtime::api;
use kai_runtime::kind::{CONFIG_MAP, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE, TOPOLOGY};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_share_a_gpu_are_prepared_and_run() {
    prepared_pods(&TestCluster::with_admission(1, pod_options()).await).await;
}

/// On one node. Pods are posted without a namespace, as users write them.
pub(crate) async fn prepared_pods<B>(cluster: &TestCluster<B>) {
    for name in ["half-a", "half-b"] {
        cluster.create_pod(PodBuilder::unprepared_fraction(name, "default-queue", "0.5")).await;
    }
    let mut named = PodBuilder::unprepared_fraction("half-named", "default-queue", "0.5")
        .annotation("gpu-fraction-container-name", "setup");
    named.object["spec"]["initContainers"] = json!([{"name": "setup", "image": "busybox"}]);
    cluster.create_pod(named).await;
    cluster.create_pod(PodBuilder::new("plain", "default-queue", 1)).await;
    cluster.wait_for_running("half-", 3).await;
    cluster.wait_for_running("plain", 1).await;
    let mut devices = BTreeSet::new();
    for (name, container) in [
        ("half-a", "/spec/containers/0"),
        ("half-b", "/spec/containers/0"),
        ("half-named", "/spec/initContainers/0"),
    ] {
        let pod = cluster.get(&POD, name).await.unwrap();
        let prefix = object::str_at(&pod, "/metadata/annotations/runai~1shared-gpu-configmap");
        assert!(prefix.starts_with(name) && prefix.ends_with("-shared-gpu"), "{pod:#}");
        let reference = format!("{container}/env/0/valueFrom/configMapKeyRef");
        let map = object::str_at(&pod, &format!("{reference}/name")).to_owned();
        assert!(map.starts_with(prefix), "{pod:#}");
        assert_eq!(object::str_at(&pod, &format!("{reference}/key")), "NVIDIA_VISIBLE_DEVICES");
        let environment = object::str_at(&pod, &format!("{container}/envFrom/0/configMapRef/name"));
        assert_eq!(environment, format!("{map}-evar"));
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["configMap"]["name"] == map.as_str()), "{pod:#}");
        let data = cluster.get(&CONFIG_MAP, &map).await.unwrap()["data"].clone();
        assert_eq!(data["GPU_PORTION"], "0.50");
        devices.insert(object::str_at(&data, "/NVIDIA_VISIBLE_DEVICES").to_owned());
    }
    assert!(devices.len() == 2 && !devices.contains(""), "two of three share a GPU: {devices:?}");
    let plain = cluster.get(&POD, "plain").await.unwrap();
    assert!(plain.pointer("/spec/containers/0/env").is_none(), "{plain:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_objects_are_refused_with_a_sentence() {
    refusals(&TestCluster::with_admission(1, pod_options()).await).await;
}

#[track_caller]
fn refused(response: api::Result<Value>, code: u16, texts: &[&str]) {
    let error = response.expect_err("it is refused");
    let message = error.message();
    assert_eq!(error.code(), code, "{message}");
    for text in texts {
        assert!(message.contains(text), "`{text}` is missing in: {message}");
    }
}

/// Pods, queues, pod groups and topologies.
pub(crate) async fn refusals<B>(cluster: &TestCluster<B>) {
    let pod = |fraction: &str| PodBuilder::unprepared_fraction("bad", "default-queue", fraction).object;
    refused(
        cluster.try_create(&POD, pod("1.5")).await,
        403,
        &["denied the request", "/bad`: annotation `gpu-fraction` is `1.5`", "hint: such as `0.5`"],
    );
    let mut whole = pod("0.5");
    whole["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
    refused(cluster.try_create(&POD, whole).await, 403, &["container `main`", "hint: keep one of the two"]);
    cluster.create_pod(PodBuilder::new("late", "default-queue", 1)).await;
    let late = json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}}});
    refused(
        cluster.try_patch(&POD, "late", &late).await,
        403,
        &["only be requested when the pod is created", "hint: delete the pod"],
    );

    let queue = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    refused(cluster.try_create(&QUEUE, queue("bare", json!({}))).await, 403, &["has no `spec.resources`"]);
    let soon = json!({"resources": {}, "preemptMinRuntime": "soon"});
    refused(cluster.try_create(&QUEUE, queue("soon", soon)).await, 400, &["`spec.preemptMinRuntime`"]);
    let below = json!({"spec": {"parentQueue": cluster.queue_name("default-queue")}});
    let parent = json!({"spec": {"parentQueue": cluster.queue_name("teams")}});
    cluster.patch(&QUEUE, "default-queue", &parent).await;
    refused(cluster.try_patch(&QUEUE, "teams", &below).await, 403, &["would be below itself", "hint:"]);

    pod_group_rules(cluster).await;
    let levels = |alias: &str| json!({"metadata": {"name": "aliased"}, "spec": {"levels": [{"nodeLabel": "zone", "alias": alias}]}});
    refused(
        cluster.try_create(&TOPOLOGY, levels("zone")).await,
        403,
        &["topology `aliased`: `zone` is an alias and a node label", "hint:"],
    );
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn minimum_above_the_subgroups_is_accepted_with_exactly_one_warning() {
    let cluster = TestCluster::with_admission(1, pod_options()).await;
    let client = cluster.backend.client("kubectl");
    warned_minimum(&cluster, &client).await;
}

/// The warnings about a group that can never start, which are headers of the response.
pub(crate) async fn warned_minimum<B>(cluster: &TestCluster<B>, client: &kube::Client) {
    let leaves: Vec<Value> =
        (0..4).map(|number| json!({"name": format!("prefill-{number}"), "minMember": 8})).collect();
    let spec = json!({"queue": "default-queue", "minSubGroup": 5, "subGroups": leaves});
    let group = cluster.complete(&POD_GROUP, json!({"metadata": {"name": "warned"}, "spec": spec}));
    let request = axum::http::Request::post(POD_GROUP.path(cluster.namespace()))
        .header("content-type", "application/json")
        .body(kube::client::Body::from(group.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warnings: Vec<&str> =
        response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    let text = "minSubGroup (5) exceeds the number of direct child SubGroups (4)";
    assert!(matches!(warnings.as_slice(), [only] if only.contains(text)), "{warnings:?}");
}

/// Rules for trees of subgroups, on creation.
async fn pod_group_rules<B>(cluster: &TestCluster<B>) {
    let leaves = |count: usize, min: i64| -> Vec<Value> {
        (0..count).map(|number| json!({"name": format!("prefill-{number}"), "minMember": min})).collect()
    };
    let inner = |fields: Value| {
        let mut groups = leaves(2, 2);
        for leaf in &mut groups {
            leaf["parent"] = json!("inner");
        }
        let mut inner = json!({"name": "inner"});
        crate::test_cluster::json_merge(&mut inner, &fields);
        groups.push(inner);
        groups
    };
    let mut mixed = leaves(3, 8);
    mixed[0] = json!({"name": "prefill-0", "minSubGroup": 2});
    let cases = [
        (
            "both",
            json!({"minMember": 24, "minSubGroup": 3, "subGroups": leaves(3, 8)}),
            Some("exclude each other"),
        ),
        ("leaf", json!({"minSubGroup": 3, "subGroups": mixed}), Some("subgroup `prefill-0` has minSubGroup")),
        ("many", json!({"minSubGroup": 5, "subGroups": leaves(4, 8)}), None),
        ("zero", json!({"minSubGroup": 0, "subGroups": leaves(2, 8)}), None),
        (
            "inner",
            json!({"subGroups": inner(json!({"minMember": 5, "minSubGroup": 2}))}),
            Some("subgroup `inner`"),
        ),
        ("members", json!({"subGroups": inner(json!({"minMember": 5}))}), Some("consists of subgroups")),
        ("fine", json!({"minSubGroup": 3, "subGroups": leaves(4, 8)}), None),
    ];
    for (name, mut spec, problem) in cases {
        spec["queue"] = json!("default-queue");
        let created = cluster.try_create(&POD_GROUP, json!({"metadata": {"name": name}, "spec": spec})).await;
        match problem {
            Some(problem) => refused(created, 403, &[problem]),
            None => assert_eq!(object::name(&created.unwrap()), name),
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_with_children_or_pods_is_not_deleted() {
    queue_deletion(&TestCluster::with_admission(1, pod_options()).await).await;
}

/// On one node.
pub(crate) async fn queue_deletion<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("used", 1).await;
    let child = cluster.queue_name("used");
    let by_children = cluster.try_delete(&QUEUE, "teams").await.map(|()| Value::Null);
    refused(by_children, 403, &["has child queues", &child, "hint: delete those first"]);
    cluster.create_pod(PodBuilder::new("user", "used", 1)).await;
    cluster.wait_for_running("user", 1).await;
    let in_use = async |is_used: bool| {
        let queue = cluster.get(&QUEUE, "used").await.unwrap();
        let requested = object::str_at(&queue, "/status/requested/nvidia.com~1gpu").to_owned();
        is_used != matches!(requested.as_str(), "" | "0")
    };
    cluster.wait_until("the queue reports its pod", async || in_use(true).await).await;
    let by_pods = cluster.try_delete(&QUEUE, "used").await.map(|()| Value::Null);
    refused(by_pods, 403, &["has pods, which could not run without it", "hint:"]);
    cluster.delete_pod("user").await;
    cluster.wait_until("the queue is empty", async || in_use(false).await).await;
    // A group whose resources were never counted: that of pods that request nothing.
    let spec = json!({"queue": "used", "minMember": 1});
    cluster.create(&POD_GROUP, json!({"metadata": {"name": "uncounted"}, "spec": spec})).await;
    let by_group = cluster.try_delete(&QUEUE, "used").await.map(|()| Value::Null);
    refused(by_group, 403, &["is named by pod group", "/uncounted`", "hint: delete the workload"]);
    cluster.delete(&POD_GROUP, "uncounted").await;
    cluster.delete(&QUEUE, "used").await;
    cluster.wait_until("the queue is deleted", async || cluster.get(&QUEUE, "used").await.is_none()).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn devices_are_hidden_only_where_that_is_configured() {
    device_access(&TestCluster::with_admission(1, pod_options()).await, false).await;
    let options = pod::Options { block_visible_devices: true, ..pod_options() };
    device_access(&TestCluster::with_admission(1, options).await, true).await;
}

/// `NVIDIA_VISIBLE_DEVICES` of containers with and without GPUs.
pub(crate) async fn device_access<B>(cluster: &TestCluster<B>, is_blocked: bool) {
    let pod = |name: &str, value: &str| {
        let mut pod = PodBuilder::new(&format!("{name}-{is_blocked}"), "default-queue", 1).object;
        pod["spec"]["containers"][0]["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]);
        pod
    };
    for (name, value, is_open) in [
        ("one", "1", true),
        ("two", "1,2", true),
        ("all", "all", true),
        ("void", "void", false),
        ("none", "none", false),
    ] {
        let created = cluster.try_create(&POD, pod(name, value)).await;
        if is_open && is_blocked {
            refused(created, 403, &["sets `NVIDIA_VISIBLE_DEVICES`", value, "hint: remove the variable"]);
        } else {
            assert!(created.is_ok(), "{created:?}");
        }
    }
    let mut both = PodBuilder::new(&format!("both-{is_blocked}"), "default-queue", 1).object;
    both["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "side", "image": "busybox"}));
    let both = cluster.create(&POD, both).await;
    assert!(both.pointer("/spec/containers/0/env").is_none(), "{both:#}");
    let hidden = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    assert_eq!(both.pointer("/spec/containers/1/env"), is_blocked.then_some(&hidden), "{both:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_created_without_webhooks_is_reported_and_runs_after_it_is_created_again() {
    let options = kai_components::ComponentOptions::default();
    let cluster = TestCluster::with_options(1, [kai_sim::NodeGroup::gpu_nodes(1, 8)], &options).await;
    unprepared_pod(&cluster, async || {
        kai_cli::embedded::admission::install(&cluster.backend, pod_options()).await.unwrap();
    })
    .await;
}

/// On one node, without webhooks at first; `start_webhooks` starts them.
pub(crate) async fn unprepared_pod<B>(cluster: &TestCluster<B>, start_webhooks: impl AsyncFnOnce()) {
    let half = || PodBuilder::unprepared_fraction("half", "default-queue", "0.5");
    cluster.create_pod(half()).await;
    let reported = async || {
        let messages = cluster.event_messages("BindingError", "half").await;
        messages.iter().any(|text| {
            text.contains("created without the admission webhook") && text.contains("hint: delete the pod")
        })
    };
    cluster.wait_until("an event says to create the pod again", reported).await;
    let condition = cluster.get(&POD, "half").await.unwrap()["status"]["conditions"].clone();
    assert!(condition.to_string().contains("containers cannot be changed"), "{condition}");
    assert!(cluster.bound_pods("half").await.is_empty());
    start_webhooks().await;
    cluster.delete_pod("half").await;
    cluster.wait_until("the pod is gone", async || cluster.get(&POD, "half").await.is_none()).await;
    cluster.create_pod(half()).await;
    cluster.wait_for_running("half", 1).await;
}

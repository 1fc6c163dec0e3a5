//! Scenarios that need a real control plane: workload owners, rejected requests, event counts, volumes.

use super::control_plane::Plane;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::kind::{self, CRON_JOB, DEPLOYMENT, JOB, POD, STATEFUL_SET, STORAGE_CLASS};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

type RealCluster = TestCluster<Arc<Plane>>;

/// A pod template without GPUs.
fn template(app: &str) -> Value {
    let containers = PodBuilder::new("x", "default-queue", 0).object["spec"]["containers"].clone();
    json!({
        "metadata": {"labels": {"app": app, "kai.scheduler/queue": "default-queue"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": containers},
    })
}

fn job(name: &str) -> Value {
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": template(name)}});
    job["spec"]["template"]["spec"]["restartPolicy"] = Value::from("Never");
    job
}

/// Pods of a Deployment, a `StatefulSet` and a `CronJob` are grouped by their top owner.
pub(super) async fn owners(cluster: &RealCluster) {
    let spec = |app: &str| json!({"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": template(app), "serviceName": app});
    let mut deployment = spec("web");
    deployment.as_object_mut().unwrap().remove("serviceName");
    cluster.create(&DEPLOYMENT, json!({"metadata": {"name": "web"}, "spec": deployment})).await;
    cluster.create(&STATEFUL_SET, json!({"metadata": {"name": "store"}, "spec": spec("store")})).await;
    let scheduled = json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": job("x")});
    let owner = cluster.create(&CRON_JOB, json!({"metadata": {"name": "nightly"}, "spec": scheduled})).await;
    let mut owned = job("night");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": object::uid(&owner), "controller": true,
    }]);
    cluster.create(&JOB, owned).await;
    for name in ["web", "store", "night"] {
        cluster.wait_for_running(name, 1).await;
    }
}

/// An invalid annotation and a bind to a missing node are reported as events.
pub(super) async fn rejections(cluster: &RealCluster) {
    let mut invalid = job("invalid");
    invalid["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": "many"});
    cluster.create(&JOB, invalid).await;
    wait_for_event(cluster, "PodGrouperWarning", "invalid").await;

    cluster.create_gang("waiting", "no-such-queue", 1, 1, json!({})).await;
    let pod = cluster.get(&POD, "waiting-0").await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "waiting-0", "uid": object::uid(&pod)}]);
    let spec = json!({
        "podName": "waiting-0", "selectedNode": "nowhere", "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"}, "backoffLimit": 1,
    });
    let metadata = json!({"name": "waiting-0", "ownerReferences": owner});
    cluster.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
    wait_for_event(cluster, "BindingError", "waiting").await;
}

/// A `PodGroup` that another client changes, deletes or creates is restored by the pod-grouper.
pub(super) async fn pod_group_repair(cluster: &RealCluster) {
    let owner = cluster.create(&JOB, job("fixed")).await;
    cluster.wait_for_running("fixed", 1).await;
    let name = format!("pg-fixed-{}", object::uid(&owner));
    cluster.patch(&POD_GROUP, &name, &json!({"spec": {"minMember": 3}})).await;
    cluster
        .wait_until("the spec of the group is restored", async || {
            cluster.get(&POD_GROUP, &name).await.is_some_and(|group| group["spec"]["minMember"] == 1)
        })
        .await;

    let pod = cluster.create_pod(PodBuilder::new("lone", "default-queue", 1)).await;
    cluster.wait_for_running("lone", 1).await;
    let name = format!("pg-lone-{}", object::uid(&pod));
    let first = cluster.get(&POD_GROUP, &name).await.unwrap();
    cluster.delete(&POD_GROUP, &name).await;
    cluster
        .wait_until("the group is created again", async || {
            let group = cluster.get(&POD_GROUP, &name).await;
            group.is_some_and(|group| object::uid(&group) != object::uid(&first))
        })
        .await;

    let later = PodBuilder::new("later", "default-queue", 1).annotation(annotation::SKIP_GROUPING, "true");
    let pod = cluster.create_pod(later).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "later", "uid": object::uid(&pod)}]);
    // As the grouper wrote it: only the identity of such a group is stored, so it is read before it is compared.
    let top_owner = format!("name: later\nuid: {}\ngroup: \"\"\nversion: v1\nkind: Pod\n", object::uid(&pod));
    let metadata = json!({
        "name": format!("pg-later-{}", object::uid(&pod)), "labels": {"kai.scheduler/queue": "default-queue"},
        "annotations": {annotation::TOP_OWNER: top_owner}, "ownerReferences": owner,
    });
    let group = json!({"metadata": metadata, "spec": {"minMember": 2, "queue": "default-queue"}});
    cluster.create(&POD_GROUP, group).await;
    cluster
        .patch(&POD, "later", &json!({"metadata": {"annotations": {annotation::SKIP_GROUPING: null}}}))
        .await;
    cluster.wait_for_running("later", 1).await;
}

/// Existing `ConfigMaps` of a shared GPU, without owners and with the keys of binders only, are updated; those of a pod that
/// cannot be bound are deleted.
pub(super) async fn config_maps(cluster: &RealCluster) {
    for name in ["half-shared-gpu-0", "half-shared-gpu-0-evar"] {
        cluster
            .create(&kind::CONFIG_MAP, json!({"metadata": {"name": name}, "data": {"GPU_PORTION": "1"}}))
            .await;
    }
    cluster.create_pod(PodBuilder::fraction("half", "default-queue", "0.5")).await;
    cluster.wait_for_running("half", 1).await;
    let map = cluster.get(&kind::CONFIG_MAP, "half-shared-gpu-0").await.unwrap();
    assert_eq!(map["data"]["GPU_PORTION"], "0.50", "{map}");

    let gates = json!([{"name": "example.com/later"}]);
    let gated = PodBuilder::fraction("gated", "default-queue", "0.5").spec_field("schedulingGates", gates);
    let gated = cluster.create_pod(gated).await;
    let spec = |groups: Value| {
        json!({
            "receivedResourceType": "Fraction", "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": groups,
        })
    };
    create_bind_request(cluster, &gated, "gated", spec(json!(["a-group-of-its-own"]))).await;
    wait_for_event(cluster, "BindingError", "gated").await;
    cluster
        .wait_until("its ConfigMaps are deleted", async || {
            cluster.get(&kind::CONFIG_MAP, "gated-shared-gpu-0").await.is_none()
        })
        .await;
    create_bind_request(cluster, &gated, "groupless", spec(json!([]))).await;
    cluster
        .wait_until("the invalid bind request is deleted", async || {
            cluster.get(&BIND_REQUEST, "groupless").await.is_none()
        })
        .await;
}

/// Devices that back an extended resource get a `ResourceClaim`, which is deleted when the bind fails (KEP-5004).
pub(super) async fn extended_resources(cluster: &RealCluster) {
    let gates = json!([{"name": "example.com/later"}]);
    let gated = cluster
        .create_pod(PodBuilder::new("extended", "default-queue", 1).spec_field("schedulingGates", gates))
        .await;
    let device = json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": cluster.node_name(1), "device": "gpu-0"});
    let extended = json!({
        "allocation": {"devices": {"results": [device]}},
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    });
    let spec = json!({
        "receivedResourceType": "Regular", "receivedGPU": {"count": 1, "portion": "1.00"},
        "extendedResourceClaimAllocation": extended,
    });
    create_bind_request(cluster, &gated, "extended", spec).await;
    wait_for_event(cluster, "BindingError", "extended").await;
    cluster
        .wait_until("its claim is deleted", async || cluster.list(&kind::RESOURCE_CLAIM).await.is_empty())
        .await;
}

/// An event that recurs after a minute increments the count of the existing one.
pub(super) async fn repeated_events(cluster: &RealCluster) {
    let mut invalid = job("invalid");
    invalid["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": "many"});
    cluster.create(&JOB, invalid).await;
    wait_for_event(cluster, "PodGrouperWarning", "invalid").await;

    let gates = json!([{"name": "example.com/later"}]);
    let gated = cluster
        .create_pod(PodBuilder::new("gated", "default-queue", 1).spec_field("schedulingGates", gates))
        .await;
    let spec = json!({
        "receivedResourceType": "Regular", "receivedGPU": {"count": 1, "portion": "1.00"}, "backoffLimit": 20,
    });
    create_bind_request(cluster, &gated, "gated", spec).await;

    let picky = json!({"picky": "yes"});
    cluster.create_queue("a", 1).await;
    let pod = |name: &str| PodBuilder::new(name, "a", 1).spec_field("nodeSelector", picky.clone());
    cluster.create_group("picky", "a", 1, json!({}), pod).await;
    wait_for_event(cluster, "Unschedulable", "picky").await;
    let first = cluster.condition("picky").await;

    cluster.sleep(Duration::from_secs(61)).await;
    let node = cluster.node_name(1);
    let node_patch = |label: Value, unschedulable: bool| json!({"metadata": {"labels": {"picky": label}}, "spec": {"unschedulable": unschedulable}});
    cluster.patch(&kind::NODE, &node, &node_patch(json!("yes"), true)).await;
    cluster
        .wait_until("another reason is reported", async || cluster.condition("picky").await != first)
        .await;
    cluster.patch(&kind::NODE, &node, &node_patch(Value::Null, false)).await;
    for pod in cluster.list(&POD).await.iter().filter(|pod| object::name(pod).starts_with("invalid")) {
        cluster.patch(&POD, object::name(pod), &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    }
    for (reason, about) in
        [("PodGrouperWarning", "invalid"), ("BindingError", "gated"), ("Unschedulable", "picky")]
    {
        let what = format!("{reason} about `{about}*` has a count above one");
        cluster.wait_until(&what, async || event_count(cluster, reason, about).await > 1).await;
    }
}

/// The highest count of the events with this reason.
async fn event_count(cluster: &RealCluster, reason: &str, about: &str) -> u64 {
    let events = cluster.list(&kind::EVENT).await;
    let ours = events.iter().filter(|event| {
        event["reason"] == reason && object::str_at(event, "/involvedObject/name").starts_with(about)
    });
    ours.filter_map(|event| event["count"].as_u64()).max().unwrap_or(0)
}

/// Creates a bind request to the first node.
async fn create_bind_request(cluster: &RealCluster, pod: &Value, name: &str, mut spec: Value) {
    let owner =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": object::name(pod), "uid": object::uid(pod)}]);
    spec["podName"] = Value::from(object::name(pod));
    spec["selectedNode"] = Value::from(cluster.node_name(1));
    if spec.get("backoffLimit").is_none() {
        spec["backoffLimit"] = Value::from(1);
    }
    let metadata = json!({"name": name, "ownerReferences": owner});
    cluster.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
}

/// A volume with `WaitForFirstConsumer` is selected together with the node.
pub(super) async fn volumes(cluster: &RealCluster) {
    let class = json!({
        "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&STORAGE_CLASS, class).await;
    let terms = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node_name(1)]},
    ]}]);
    let volume = json!({"metadata": {"name": "disk"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }});
    cluster.create(&kind::PERSISTENT_VOLUME, volume).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}},
    }});
    cluster.create(&kind::PERSISTENT_VOLUME_CLAIM, claim).await;
    let mut pod = PodBuilder::new("reader", "default-queue", 0);
    pod.object["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.create_pod(pod).await;
    cluster.wait_for_running("reader", 1).await;
    let claim = cluster.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await.unwrap();
    assert_eq!(object::str_at(&claim, "/spec/volumeName"), "disk");
}

async fn wait_for_event(cluster: &RealCluster, reason: &str, about: &str) {
    let what = format!("there is an event {reason} about `{about}*`");
    cluster.wait_until(&what, async || !cluster.event_messages(reason, about).await.is_empty()).await;
}

//! What only a real control plane shows in full: owners of pods, refusals and volumes.

use super::plane::Plane;
use crate::world::{Pod, World};
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::kind::{self, CRON_JOB, DEPLOYMENT, JOB, POD, STATEFUL_SET, STORAGE_CLASS};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

type Real = World<Arc<Plane>>;

/// A template of pods without GPUs.
fn template(app: &str) -> Value {
    let containers = Pod::new("x", "default-queue", 0).object["spec"]["containers"].clone();
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

/// Pods belong to the group of whatever owns their owners.
pub(super) async fn owners(world: &Real) {
    let spec = |app: &str| json!({"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": template(app), "serviceName": app});
    let mut deployment = spec("web");
    deployment.as_object_mut().unwrap().remove("serviceName");
    world.create(&DEPLOYMENT, json!({"metadata": {"name": "web"}, "spec": deployment})).await;
    world.create(&STATEFUL_SET, json!({"metadata": {"name": "store"}, "spec": spec("store")})).await;
    let scheduled = json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": job("x")});
    let owner = world.create(&CRON_JOB, json!({"metadata": {"name": "nightly"}, "spec": scheduled})).await;
    let mut owned = job("night");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": object::uid(&owner), "controller": true,
    }]);
    world.create(&JOB, owned).await;
    for name in ["web", "store", "night"] {
        world.runs(name, 1).await;
    }
}

/// What cannot be done is said on the object, and what is over is taken away.
pub(super) async fn refusals(world: &Real) {
    let mut odd = job("odd");
    odd["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": "many"});
    world.create(&JOB, odd).await;
    told(world, "PodGrouperWarning", "odd").await;

    world.gang("waiting", "no-such-queue", 1, 1, json!({})).await;
    let pod = world.get(&POD, "waiting-0").await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "waiting-0", "uid": object::uid(&pod)}]);
    let spec = json!({
        "podName": "waiting-0", "selectedNode": "nowhere", "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"}, "backoffLimit": 1,
    });
    let metadata = json!({"name": "waiting-0", "ownerReferences": owner});
    world.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
    told(world, "BindingError", "waiting").await;
}

/// A group of ours that somebody changes, deletes or makes is put right.
pub(super) async fn repaired(world: &Real) {
    let owner = world.create(&JOB, job("fixed")).await;
    world.runs("fixed", 1).await;
    let name = format!("pg-fixed-{}", object::uid(&owner));
    world.change(&POD_GROUP, &name, &json!({"spec": {"minMember": 3}})).await;
    world
        .comes("the group is put right", async || {
            world.get(&POD_GROUP, &name).await.is_some_and(|group| group["spec"]["minMember"] == 1)
        })
        .await;

    let pod = world.pod(Pod::new("lone", "default-queue", 1)).await;
    world.runs("lone", 1).await;
    let name = format!("pg-lone-{}", object::uid(&pod));
    let first = world.get(&POD_GROUP, &name).await.unwrap();
    world.delete(&POD_GROUP, &name).await;
    world
        .comes("the group is made anew", async || {
            let group = world.get(&POD_GROUP, &name).await;
            group.is_some_and(|group| object::uid(&group) != object::uid(&first))
        })
        .await;

    let later = Pod::new("later", "default-queue", 1).annotated(annotation::SKIP_GROUPING, "true");
    let pod = world.pod(later).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "later", "uid": object::uid(&pod)}]);
    let metadata = json!({
        "name": format!("pg-later-{}", object::uid(&pod)), "labels": {"kai.scheduler/queue": "default-queue"},
        "ownerReferences": owner,
    });
    let group = json!({"metadata": metadata, "spec": {"minMember": 2, "queue": "default-queue"}});
    world.create(&POD_GROUP, group).await;
    world
        .change(&POD, "later", &json!({"metadata": {"annotations": {annotation::SKIP_GROUPING: null}}}))
        .await;
    world.runs("later", 1).await;
}

/// Maps of a shared GPU that somebody else made become the pod's, and those of a pod that cannot be bound go.
pub(super) async fn maps(world: &Real) {
    for name in ["half-shared-gpu-0", "half-shared-gpu-0-evar"] {
        world.create(&kind::CONFIG_MAP, json!({"metadata": {"name": name}, "data": {"a": "b"}})).await;
    }
    world.pod(Pod::fraction("half", "default-queue", "0.5")).await;
    world.runs("half", 1).await;
    let map = world.get(&kind::CONFIG_MAP, "half-shared-gpu-0").await.unwrap();
    assert_eq!(map["data"]["GPU_PORTION"], "0.50", "{map}");

    let gates = json!([{"name": "example.com/later"}]);
    let gated = Pod::fraction("gated", "default-queue", "0.5").with("schedulingGates", gates);
    let gated = world.pod(gated).await;
    let spec = |groups: Value| {
        json!({
            "receivedResourceType": "Fraction", "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": groups,
        })
    };
    order(world, &gated, "gated", spec(json!(["a-group-of-its-own"]))).await;
    told(world, "BindingError", "gated").await;
    world
        .comes("its maps are gone", async || {
            world.get(&kind::CONFIG_MAP, "gated-shared-gpu-0").await.is_none()
        })
        .await;
    order(world, &gated, "groupless", spec(json!([]))).await;
    world
        .comes("a request that makes no sense goes", async || {
            world.get(&BIND_REQUEST, "groupless").await.is_none()
        })
        .await;
}

/// Devices that stand for a resource get a claim, which goes when the pod cannot be bound.
pub(super) async fn devices_as_resources(world: &Real) {
    let gates = json!([{"name": "example.com/later"}]);
    let gated = world.pod(Pod::new("extended", "default-queue", 1).with("schedulingGates", gates)).await;
    let device =
        json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": world.node(1), "device": "gpu-0"});
    let extended = json!({
        "allocation": {"devices": {"results": [device]}},
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    });
    let spec = json!({
        "receivedResourceType": "Regular", "receivedGPU": {"count": 1, "portion": "1.00"},
        "extendedResourceClaimAllocation": extended,
    });
    order(world, &gated, "extended", spec).await;
    told(world, "BindingError", "extended").await;
    world.comes("its claim is gone", async || world.list(&kind::RESOURCE_CLAIM).await.is_empty()).await;
}

/// What is said again after a minute is counted and not repeated.
pub(super) async fn said_again(world: &Real) {
    let mut odd = job("odd");
    odd["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": "many"});
    world.create(&JOB, odd).await;
    told(world, "PodGrouperWarning", "odd").await;

    let gates = json!([{"name": "example.com/later"}]);
    let gated = world.pod(Pod::new("gated", "default-queue", 1).with("schedulingGates", gates)).await;
    let spec = json!({
        "receivedResourceType": "Regular", "receivedGPU": {"count": 1, "portion": "1.00"}, "backoffLimit": 20,
    });
    order(world, &gated, "gated", spec).await;

    let picky = json!({"picky": "yes"});
    world.queue("a", 1).await;
    let pod = |name: &str| Pod::new(name, "a", 1).with("nodeSelector", picky.clone());
    world.group("picky", "a", 1, json!({}), pod).await;
    told(world, "Unschedulable", "picky").await;
    let first = world.condition("picky").await;

    world.pass(Duration::from_secs(61)).await;
    let node = world.node(1);
    let change = |label: Value, closed: bool| json!({"metadata": {"labels": {"picky": label}}, "spec": {"unschedulable": closed}});
    world.change(&kind::NODE, &node, &change(json!("yes"), true)).await;
    world.comes("another reason is told", async || world.condition("picky").await != first).await;
    world.change(&kind::NODE, &node, &change(Value::Null, false)).await;
    for pod in world.list(&POD).await.iter().filter(|pod| object::name(pod).starts_with("odd")) {
        world.change(&POD, object::name(pod), &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    }
    for (reason, about) in
        [("PodGrouperWarning", "odd"), ("BindingError", "gated"), ("Unschedulable", "picky")]
    {
        let what = format!("{reason} about `{about}*` is counted");
        world.comes(&what, async || counted(world, reason, about).await > 1).await;
    }
}

/// How often the most frequent event of this kind was said.
async fn counted(world: &Real, reason: &str, about: &str) -> u64 {
    let events = world.list(&kind::EVENT).await;
    let ours = events.iter().filter(|event| {
        event["reason"] == reason && object::str_at(event, "/involvedObject/name").starts_with(about)
    });
    ours.filter_map(|event| event["count"].as_u64()).max().unwrap_or(0)
}

/// Orders a binding by hand, on our first node.
async fn order(world: &Real, pod: &Value, name: &str, mut spec: Value) {
    let owner =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": object::name(pod), "uid": object::uid(pod)}]);
    spec["podName"] = Value::from(object::name(pod));
    spec["selectedNode"] = Value::from(world.node(1));
    if spec.get("backoffLimit").is_none() {
        spec["backoffLimit"] = Value::from(1);
    }
    let metadata = json!({"name": name, "ownerReferences": owner});
    world.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
}

/// A volume is chosen together with the node.
pub(super) async fn volumes(world: &Real) {
    let class = json!({
        "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    world.create(&STORAGE_CLASS, class).await;
    let terms = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [world.node(1)]},
    ]}]);
    let volume = json!({"metadata": {"name": "disk"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }});
    world.create(&kind::VOLUME, volume).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}},
    }});
    world.create(&kind::VOLUME_CLAIM, claim).await;
    let mut pod = Pod::new("reader", "default-queue", 0);
    pod.object["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.pod(pod).await;
    world.runs("reader", 1).await;
    let claim = world.get(&kind::VOLUME_CLAIM, "data").await.unwrap();
    assert_eq!(object::str_at(&claim, "/spec/volumeName"), "disk");
}

/// Waits for an event.
async fn told(world: &Real, reason: &str, about: &str) {
    let what = format!("somebody says {reason} about `{about}*`");
    world.comes(&what, async || !world.events(reason, about).await.is_empty()).await;
}

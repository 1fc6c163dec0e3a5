//! What only a real control plane shows in full: owners of pods, refusals and volumes.

use super::plane::Plane;
use crate::world::{Pod, World};
use kai_object as object;
use kai_runtime::kind::{self, CRON_JOB, DEPLOYMENT, JOB, POD, STATEFUL_SET, STORAGE_CLASS};
use kai_scheduler::resources::BIND_REQUEST;
use serde_json::{Value, json};
use std::sync::Arc;

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

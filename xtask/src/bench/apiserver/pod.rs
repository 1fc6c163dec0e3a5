//! The pod manifests of the load: what a user of a GPU scheduler submits.

use serde_json::json;

pub(super) const NAMESPACE: &str = "bench";

pub(super) fn name(index: usize) -> String {
    format!("pod-{index:06}")
}

pub(super) fn manifest(index: usize) -> String {
    let resources = json!({"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"});
    let pod = json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name(index),
            "labels": {"app": "bench", "queue": "team-a"},
            "annotations": {"example.com/group": "group-1"},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{
                "name": "main",
                "image": "busybox",
                "resources": {"limits": resources, "requests": resources},
            }],
        },
    });
    pod.to_string()
}

//! The pods of the bench: what a user of a GPU scheduler submits.

use serde_json::json;

/// The namespace of all pods.
pub(crate) const NAMESPACE: &str = "bench";

/// The name of a pod.
pub(crate) fn name(index: usize) -> String {
    format!("pod-{index:06}")
}

/// The pod as it is submitted.
pub(crate) fn manifest(index: usize) -> String {
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

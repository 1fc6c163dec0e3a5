//! Accessors for the typed objects that the binder reads.

use k8s_openapi::api::core::v1::Pod;
use kai_api::well_known::{annotation as annotations, label};
use kai_runtime::Key;
use kube::ResourceExt;

/// The value of an annotation; empty where it is missing.
pub(crate) fn annotation<'a>(object: &'a impl ResourceExt, name: &str) -> &'a str {
    object.annotations().get(name).map_or("", String::as_str)
}

/// The uid; empty for an object that the server has not stored.
pub(crate) fn uid(object: &impl ResourceExt) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

pub(crate) fn name(object: &impl ResourceExt) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(object: &impl ResourceExt) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

pub(crate) fn key(object: &impl ResourceExt) -> Key {
    Key::new(namespace(object), name(object))
}

pub(crate) fn is_terminating(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// The node that the pod is bound to; empty for an unbound pod.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub(crate) fn is_bound(pod: &Pod) -> bool {
    !node_name(pod).is_empty()
}

/// The phase of a pod; empty before its first status.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether all containers have terminated for good, so that the pod holds no device.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    kai_object::is_terminal_phase(phase(pod))
}

/// Whether a pod requests a part of a GPU. The label of a GPU group alone does not make a pod its user: any tenant may write
/// it, and would keep the GPU reserved.
pub(crate) fn shares_gpus(pod: &Pod) -> bool {
    [annotations::GPU_FRACTION, annotations::GPU_MEMORY].iter().any(|name| !annotation(pod, name).is_empty())
}

/// The GPU groups in the labels of a pod, sorted: the label of a single device and those of several.
pub(crate) fn gpu_groups(pod: &Pod) -> Vec<&str> {
    let mut groups: Vec<&str> = pod
        .labels()
        .iter()
        .filter(|(name, group)| is_gpu_group_label(name) && !group.is_empty())
        .map(|(_, group)| group.as_str())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

pub(crate) fn is_gpu_group_label(name: &str) -> bool {
    name == label::GPU_GROUP || name.starts_with(label::GPU_GROUP_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn gpu_groups_are_read_from_both_label_forms() {
        let table: [(Value, &[&str]); 4] = [
            (json!({}), &[]),
            (json!({"runai-gpu-group": "a", "app": "x"}), &["a"]),
            (json!({"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}), &["a", "b"]),
            (
                json!({"runai-gpu-group": "a", "runai-gpu-group/a": "a", "runai-gpu-group/c": "c"}),
                &["a", "c"],
            ),
        ];
        for (labels, expected) in table {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(gpu_groups(&pod), expected);
        }
    }
}

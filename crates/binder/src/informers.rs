//! Which objects the binder follows, the little it keeps of each, and how it finds them.
//!
//! A bound pod that shares no GPU is reduced to its name and node: large clusters have many of them.

use kai_api::BindRequestStatus;
use kai_api::well_known::{annotation, env, label};
use kai_object as object;
use kai_runtime::informer::Informer;
use kai_runtime::kind::{self, ResourceKind};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Bind requests.
pub const BIND_REQUEST: ResourceKind = ResourceKind {
    group: Cow::Borrowed("scheduling.run.ai"),
    version: Cow::Borrowed("v1alpha2"),
    kind: Cow::Borrowed("BindRequest"),
    plural: Cow::Borrowed("bindrequests"),
    namespaced: true,
};

/// Config maps.
pub(crate) const CONFIG_MAP: ResourceKind = ResourceKind {
    group: Cow::Borrowed(""),
    version: Cow::Borrowed("v1"),
    kind: Cow::Borrowed("ConfigMap"),
    plural: Cow::Borrowed("configmaps"),
    namespaced: true,
};

/// The index of pods and bind requests by the GPU groups they name.
pub(crate) const BY_GROUP: &str = "gpu-group";
/// The index of pods that name GPU groups by their node.
pub(crate) const SHARING_ON: &str = "sharing-on-node";

/// What the binder follows.
pub(crate) fn informers() -> Vec<Informer<Value>> {
    vec![
        Informer::dynamic(kind::POD)
            .trim(keep_pod)
            .index(BY_GROUP, |pod| groups_of(pod).into_iter().map(str::to_owned).collect())
            .index(SHARING_ON, |pod| {
                let node = object::str_at(pod, "/spec/nodeName");
                if node.is_empty() || groups_of(pod).is_empty() { Vec::new() } else { vec![node.to_owned()] }
            }),
        Informer::dynamic(kind::NODE).trim(keep_node),
        Informer::dynamic(BIND_REQUEST)
            .trim(keep_request)
            .index(BY_GROUP, |request| selected_groups(request).into_iter().map(str::to_owned).collect()),
    ]
}

/// The GPU groups that a pod's labels name, sorted: the one of a single device and those of several.
pub(crate) fn groups_of(pod: &Value) -> Vec<&str> {
    let labels = object::meta(pod, "labels").and_then(Value::as_object);
    let names_group = |name: &str| name == label::GPU_GROUP || name.starts_with(label::GPU_GROUP_PREFIX);
    let mut groups: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter(|(name, _)| names_group(name))
        .filter_map(|(_, group)| group.as_str())
        .filter(|group| !group.is_empty())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The GPU groups that a bind request names, in order.
pub(crate) fn selected_groups(request: &Value) -> Vec<&str> {
    let groups = request.pointer("/spec/selectedGPUGroups").and_then(Value::as_array);
    groups.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// An annotation; empty where it is missing.
pub(crate) fn annotation_of<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = object::meta(object, "annotations");
    annotations.and_then(|annotations| annotations.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// What an object is called, and what decides which of two versions is newer.
const IDENTITY: [&str; 6] =
    ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The annotations of pods that are read.
const ANNOTATIONS: [&str; 4] = [
    annotation::SHARED_GPU_CONFIG_MAP,
    annotation::GPU_FRACTION_CONTAINER,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::RESERVED_GPU,
];

fn pick(from: Option<&Value>, wanted: impl Fn(&str) -> bool) -> Option<Value> {
    let fields = from?.as_object()?;
    let left: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!left.is_empty()).then_some(Value::Object(left))
}

fn identity(object: &Value) -> Value {
    pick(object.get("metadata"), |name| IDENTITY.contains(&name)).unwrap_or_else(|| json!({}))
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[field] = value;
    }
}

fn keep_pod(pod: &mut Value) {
    let mut metadata = identity(pod);
    let labels = pick(object::meta(pod, "labels"), |name| {
        name == label::GPU_GROUP || name.starts_with(label::GPU_GROUP_PREFIX)
    });
    set(&mut metadata, "labels", labels);
    let annotations = pick(object::meta(pod, "annotations"), |name| ANNOTATIONS.contains(&name));
    set(&mut metadata, "annotations", annotations);
    let bound = !object::str_at(pod, "/spec/nodeName").is_empty();
    let (spec, status): (&[&str], &[&str]) = if bound {
        (&["nodeName"], &["phase", "reason", "message"])
    } else {
        (
            &["tolerations", "resourceClaims"],
            &["phase", "resourceClaimStatuses", "extendedResourceClaimStatus"],
        )
    };
    let mut kept_spec = pick(pod.get("spec"), |name| spec.contains(&name)).unwrap_or_else(|| json!({}));
    let mut kept_status = pick(pod.get("status"), |name| status.contains(&name)).unwrap_or_else(|| json!({}));
    if !bound {
        for list in ["containers", "initContainers"] {
            set(&mut kept_spec, list, pod["spec"][list].as_array().map(|list| containers(list)));
        }
        set(&mut kept_spec, "volumes", pod["spec"]["volumes"].as_array().and_then(|list| claims(list)));
        let conditions = pod["status"]["conditions"].as_array();
        let own = conditions.into_iter().flatten().find(|condition| condition["type"] == POD_BOUND);
        set(&mut kept_status, "conditions", own.map(|own| json!([own])));
    }
    *pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": kept_spec, "status": kept_status,
    });
}

/// The condition with which the binder says what became of a pod.
pub(crate) const POD_BOUND: &str = "PodBound";

/// Of containers only their names count, and how they learn their GPUs.
fn containers(list: &[Value]) -> Value {
    let of = |container: &Value| {
        let mut kept = json!({"name": container["name"]});
        let variables = container["env"].as_array().into_iter().flatten();
        let devices: Vec<&Value> =
            variables.filter(|variable| variable["name"] == env::NVIDIA_VISIBLE_DEVICES).collect();
        if !devices.is_empty() {
            kept["env"] = json!(devices);
        }
        kept
    };
    Value::Array(list.iter().map(of).collect())
}

/// Of volumes only those that claim storage count.
fn claims(volumes: &[Value]) -> Option<Value> {
    let claims: Vec<Value> = volumes
        .iter()
        .filter_map(|volume| {
            if let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName") {
                return Some(json!({"name": volume["name"], "persistentVolumeClaim": {"claimName": claim}}));
            }
            volume.get("ephemeral").map(|_| json!({"name": volume["name"], "ephemeral": {}}))
        })
        .collect();
    (!claims.is_empty()).then_some(Value::Array(claims))
}

fn keep_node(node: &mut Value) {
    let mut metadata = identity(node);
    set(&mut metadata, "labels", object::meta(node, "labels").cloned());
    *node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
}

fn keep_request(request: &mut Value) {
    let mut metadata = identity(request);
    set(&mut metadata, "ownerReferences", object::meta(request, "ownerReferences").cloned());
    let over = object::str_at(request, "/status/phase") == BindRequestStatus::SUCCEEDED;
    let reads = ["podName", "selectedNode", "selectedGPUGroups", "receivedResourceType", "backoffLimit"];
    let spec = if over {
        pick(request.get("spec"), |name| reads.contains(&name))
    } else {
        request.get("spec").cloned()
    };
    *request = json!({
        "apiVersion": BIND_REQUEST.api_version(), "kind": "BindRequest", "metadata": metadata,
        "spec": spec.unwrap_or_else(|| json!({})),
        "status": request.get("status").cloned().unwrap_or_else(|| json!({})),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_both_forms_of_label() {
        let table: [(Value, &[&str]); 4] = [
            (json!({}), &[]),
            (json!({"runai-gpu-group": "a", "app": "x"}), &["a"]),
            (json!({"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}), &["a", "b"]),
            (
                json!({"runai-gpu-group": "a", "runai-gpu-group/a": "a", "runai-gpu-group/c": "c"}),
                &["a", "c"],
            ),
        ];
        for (labels, wanted) in table {
            assert_eq!(groups_of(&json!({"metadata": {"labels": labels}})), wanted);
        }
    }

    #[test]
    fn little_is_kept_of_pods_that_are_bound() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "3", "labels": {"app": "x"},
                "annotations": {"other": "y"}, "managedFields": [{}]},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "conditions": []},
        });
        keep_pod(&mut pod);
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "3"},
                "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
            })
        );
    }

    #[test]
    fn pods_that_wait_keep_what_binding_reads() {
        let mut pod = json!({
            "metadata": {"name": "a", "annotations": {"gpu-fraction-num-devices": "2", "x": "y"}},
            "spec": {
                "containers": [{"name": "main", "image": "i", "env": [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES"}]}],
                "volumes": [{"name": "t", "projected": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
                "tolerations": [{"operator": "Exists"}],
            },
            "status": {"conditions": [{"type": "PodScheduled"}, {"type": "PodBound", "status": "False"}]},
        });
        keep_pod(&mut pod);
        assert_eq!(pod["metadata"]["annotations"], json!({"gpu-fraction-num-devices": "2"}));
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}]}])
        );
        assert_eq!(pod["spec"]["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(pod["status"]["conditions"], json!([{"type": "PodBound", "status": "False"}]));
        assert!(pod["spec"]["tolerations"].is_array());
    }
}

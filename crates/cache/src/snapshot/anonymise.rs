//! Replaces the names in a snapshot by pseudonyms, so that it can be attached to a bug report.
//!
//! A text is replaced unless its field, its key or its form shows that it names nothing: what is not known to be harmless
//! is replaced. Equal texts get equal pseudonyms, and pseudonyms sort as the texts do: ties of decisions are broken by
//! names, and a cycle on the result decides the same up to renaming.
//! Annotations that no rule reads, and messages, are left out.

use kai_api::Pod;
use kai_api::well_known::{annotation, label, label_value, name, priority_class};
use kai_units::{Quantity, Timestamp};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Fields whose texts belong to an API, to hardware or to time.
const KEPT_FIELDS: [&str; 39] = [
    "accessModes",
    "allocationMode",
    "apiGroup",
    "bindingMode",
    "effect",
    "expression",
    "extendedResourceName",
    "key",
    "matchAttribute",
    "distinctAttribute",
    "matchLabelKeys",
    "mode",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "operator",
    "phase",
    "policy",
    "preemptibility",
    "preemptionPolicy",
    "protocol",
    "qosClass",
    "receivedResourceType",
    "restartPolicy",
    "schedulerName",
    "status",
    "string",
    "topologyKey",
    "topologyPolicies",
    "type",
    "unhealthyPodEvictionPolicy",
    "version",
    "volumeBindingMode",
    "volumeMode",
    "whenUnsatisfiable",
    "requiredTopologyLevel",
    "preferredTopologyLevel",
    "nodeLabel",
    "resourceVersion",
    "portion",
];
/// Fields that hold label keys or resource names.
const KEY_FIELDS: [&str; 8] = [
    "apiVersion",
    "key",
    "topologyKey",
    "matchLabelKeys",
    "nodeLabel",
    "requiredTopologyLevel",
    "preferredTopologyLevel",
    "extendedResourceName",
];
/// Fields without which a snapshot decides the same.
const DROPPED_FIELDS: [&str; 6] =
    ["managedFields", "message", "reason", "image", "connectionString", "connectionStringEnvVar"];
/// Kinds of owners and of objects in a snapshot; others may be a site's own.
const KINDS: [&str; 18] = [
    "Pod",
    "Node",
    "Queue",
    "PodGroup",
    "Job",
    "ReplicaSet",
    "StatefulSet",
    "ResourceClaim",
    "Topology",
    "PriorityClass",
    "BindRequest",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "DeviceClass",
    "ResourceSlice",
    "ConfigMap",
    "Namespace",
];
/// What a device or a NUMA zone is, and how it is divided, comes from hardware and its driver.
const HARDWARE_FIELDS: [&str; 3] = ["attributes", "counters", "zones"];
/// Names in the domains of hardware vendors are those of drivers and device classes, which expressions contain.
const VENDORS: [&str; 3] = [".nvidia.com", ".amd.com", ".intel.com"];
/// Maps from label keys to values.
const LABEL_MAPS: [&str; 3] = ["labels", "matchLabels", "nodeSelector"];
/// Maps from resource names to quantities.
const RESOURCE_MAPS: [&str; 6] = ["requests", "limits", "capacity", "allocatable", "counters", "amount"];
/// Members of the file that name objects as keys.
const NAME_MAPS: [&str; 1] = ["usage"];
/// Domains of keys that say nothing about a cluster.
const PUBLIC_DOMAINS: [&str; 14] = [
    "kubernetes.io",
    "k8s.io",
    "nvidia.com",
    "amd.com",
    "intel.com",
    "kai.scheduler",
    "run.ai",
    "ray.io",
    "kubeflow.org",
    "x-k8s.io",
    "knative.dev",
    "grove.io",
    "karpenter.sh",
    "kubevirt.io",
];
/// Labels whose values rules read, besides names.
const VALUE_LABELS: [&str; 12] = [
    label::PREEMPTIBILITY,
    label::TASK_PRIORITY,
    label::GPU_WORKER,
    label::CPU_WORKER,
    label::MIG_ENABLED,
    label::GPU_COUNT,
    label::GPU_MEMORY,
    label::MIG_STRATEGY,
    label::FAKE_GPU,
    label::NUMA_NODE,
    label::RAY_NODE_TYPE,
    label::KUBEFLOW_JOB_ROLE,
];
/// Annotations whose values are no names.
const VALUE_ANNOTATIONS: [&str; 20] = [
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::MPS,
    annotation::RECEIVED_RESOURCE_TYPE,
    annotation::STALE_SINCE,
    annotation::LAST_START,
    annotation::LAST_EVICTION,
    annotation::SIMULATED_DURATION,
    annotation::SIMULATED_SUBMIT_AT,
    annotation::SIMULATED_RESTART,
    annotation::MAX_RUNTIME,
    annotation::MAX_RUNTIME_ACTION,
    annotation::MAX_RUNTIME_GRACE_PERIOD,
    annotation::MAX_RUNTIME_WARNING,
    annotation::MAX_RUNTIME_ENDED,
    annotation::NUMA_PREDICTED,
    annotation::NUMA_OBSERVED,
    annotation::EXTENDED_RESOURCE_CLAIM,
    annotation::USAGE_HALF_LIFE,
];
/// Annotations whose values are names.
const NAME_ANNOTATIONS: [&str; 3] =
    [annotation::POD_GROUP, annotation::GPU_FRACTION_CONTAINER, annotation::RESERVED_GPU];
/// Texts with a meaning of their own, and names that every cluster has.
const KEPT_TEXTS: [&str; 16] = [
    label_value::TRUE,
    "false",
    label_value::DEFAULT_SUBGROUP,
    label_value::SCALING_POD,
    name::RESOURCE_RESERVATION,
    name::SCHEDULER,
    priority_class::TRAIN,
    priority_class::BUILD,
    priority_class::BUILD_PREEMPTIBLE,
    priority_class::INFERENCE,
    "system-cluster-critical",
    "system-node-critical",
    "head",
    "master",
    "launcher",
    "",
];
/// Longest nesting that is read; deeper values are left out.
const DEPTH_MAX: usize = 64;

/// Replaces the names in the JSON of a snapshot. Returns the pseudonym of each text.
pub fn anonymise(snapshot: &mut Value) -> BTreeMap<String, String> {
    name_implied_groups(snapshot);
    let mut texts = Pass::Collect(BTreeSet::new());
    each_part(snapshot, &mut texts);
    let Pass::Collect(found) = texts else { return BTreeMap::new() };
    let width = found.len().to_string().len();
    let names: BTreeMap<String, String> =
        found.into_iter().enumerate().map(|(at, text)| (text, format!("x{at:0width$}"))).collect();
    let mut replace = Pass::Replace(names);
    each_part(snapshot, &mut replace);
    match replace {
        Pass::Replace(names) => names,
        Pass::Collect(_) => BTreeMap::new(),
    }
}

/// Names the groups of pods that have them without an annotation: pseudonyms imply none.
fn name_implied_groups(snapshot: &mut Value) {
    let name_of = |object: &Value| {
        let text = |field| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/metadata/namespace"), text("/metadata/name"))
    };
    let groups = snapshot.pointer("/rawObjects/podGroups").and_then(Value::as_array);
    let groups: BTreeSet<(String, String)> = groups.into_iter().flatten().map(name_of).collect();
    let pods = snapshot.pointer_mut("/rawObjects/pods").and_then(Value::as_array_mut);
    for pod in pods.into_iter().flatten() {
        let Ok(known) = Pod::deserialize(&*pod) else { continue };
        let Some(group) = known.group_name().filter(|_| known.named_group().is_none()) else { continue };
        if groups.contains(&(known.metadata.namespace.to_text(), group.to_string()))
            && let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut)
            && let Some(annotations) =
                metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
        {
            annotations.insert(annotation::POD_GROUP.to_owned(), Value::from(&*group));
        }
    }
}

/// Both passes visit the same texts: one collects them, the other replaces them.
enum Pass {
    Collect(BTreeSet<String>),
    Replace(BTreeMap<String, String>),
}

impl Pass {
    fn text(&mut self, text: &mut String) {
        match self {
            Self::Collect(found) => {
                found.insert(text.clone());
            }
            Self::Replace(names) => {
                if let Some(name) = names.get(text) {
                    text.clone_from(name);
                }
            }
        }
    }
}

/// The objects, and the parts beside them that name objects.
fn each_part(snapshot: &mut Value, pass: &mut Pass) {
    for pointer in ["/rawObjects", "/replay"] {
        if let Some(part) = snapshot.pointer_mut(pointer) {
            visit(part, "", DEPTH_MAX, pass);
        }
    }
    if let Some(usage) = snapshot.pointer_mut("/config/usageDBConfig").and_then(Value::as_object_mut) {
        usage.retain(|key, _| !DROPPED_FIELDS.contains(&key.as_str()));
    }
    // Groups of APIs name what else is installed.
    if let Some(Value::Array(served)) = snapshot.pointer_mut("/discovery/resources") {
        served.retain(|list| {
            let version = list.get("groupVersion").and_then(Value::as_str).unwrap_or_default();
            version.split_once('/').is_none_or(|(group, _)| !group.contains('.') || is_public(group))
        });
    }
    if let Some(Value::String(pool)) =
        snapshot.pointer_mut("/schedulerParams/partitionParams/NodePoolLabelValue")
    {
        name_text(pool, pass);
    }
    for pointer in ["/schedulerParams/partitionParams/NodePoolLabelKey", "/schedulerParams/queueLabelKey"] {
        if let Some(Value::String(key)) = snapshot.pointer_mut(pointer) {
            key_text(key, pass);
        }
    }
}

fn visit(value: &mut Value, field: &str, depth: usize, pass: &mut Pass) {
    if depth == 0 {
        *value = Value::Null;
        return;
    }
    match value {
        Value::Object(fields) => object(fields, field, depth, pass),
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, field, depth - 1, pass)),
        Value::String(text) if field == "expression" => literals(text, pass),
        Value::String(text) if field == "kind" && KINDS.contains(&text.as_str()) => {}
        Value::String(text) if field == "apiVersion" && !text.contains('.') => {}
        Value::String(text) if KEY_FIELDS.contains(&field) => key_text(text, pass),
        Value::String(_) if KEPT_FIELDS.contains(&field) || field.ends_with("Time") => {}
        Value::String(_) if field.ends_with("Timestamp") => {}
        Value::String(text) => name_text(text, pass),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn object(fields: &mut Map<String, Value>, field: &str, depth: usize, pass: &mut Pass) {
    if LABEL_MAPS.contains(&field) && fields.values().all(Value::is_string) {
        return each_key(fields, pass, |key, value, pass| {
            if let Value::String(text) = value
                && !keeps_value(key)
            {
                name_text(text, pass);
            }
        });
    }
    if field == "annotations" {
        let is_kept = |key: &str| {
            VALUE_ANNOTATIONS.contains(&key)
                || NAME_ANNOTATIONS.contains(&key)
                || key.starts_with(annotation::MIG_PREFIX)
        };
        fields.retain(|key, _| is_kept(key));
        for (_, value) in fields.iter_mut().filter(|(key, _)| NAME_ANNOTATIONS.contains(&key.as_str())) {
            if let Value::String(text) = value {
                name_text(text, pass);
            }
        }
        return;
    }
    if RESOURCE_MAPS.contains(&field) && fields.values().all(|value| !value.is_object()) {
        return each_key(fields, pass, |_, _, _| {});
    }
    if NAME_MAPS.contains(&field) {
        return each_name(fields, depth, pass);
    }
    fields.retain(|key, _| !DROPPED_FIELDS.contains(&key.as_str()));
    if HARDWARE_FIELDS.contains(&field) {
        return;
    }
    if field == "params" {
        for text in fields.values_mut() {
            if let Value::String(text) = text {
                if text.contains('/') { key_text(text, pass) } else { name_text(text, pass) }
            }
        }
        return;
    }
    let keeps_values = fields.get("key").and_then(Value::as_str).is_some_and(keeps_value);
    for (key, value) in fields.iter_mut().filter(|(key, _)| !(keeps_values && *key == "values")) {
        visit(value, key, depth - 1, pass);
    }
}

/// Whether the values of a label are no names.
fn keeps_value(key: &str) -> bool {
    VALUE_LABELS.contains(&key) || key.starts_with("nvidia.com/")
}

/// Replaces the keys of a map by the rule for label keys, after their values.
fn each_key(
    fields: &mut Map<String, Value>,
    pass: &mut Pass,
    mut value_of: impl FnMut(&str, &mut Value, &mut Pass),
) {
    for (mut key, mut value) in std::mem::take(fields) {
        value_of(&key, &mut value, pass);
        key_text(&mut key, pass);
        fields.insert(key, value);
    }
}

/// Replaces the keys of a map by the rule for names.
fn each_name(fields: &mut Map<String, Value>, depth: usize, pass: &mut Pass) {
    for (mut key, mut value) in std::mem::take(fields) {
        visit(&mut value, "", depth - 1, pass);
        name_text(&mut key, pass);
        fields.insert(key, value);
    }
}

/// A label key, annotation key or resource name. The group in the key of a shared GPU is a name.
fn key_text(key: &mut String, pass: &mut Pass) {
    if let Some(group) = key.strip_prefix(label::GPU_GROUP_PREFIX) {
        let mut group = group.to_owned();
        name_text(&mut group, pass);
        *key = format!("{}{group}", label::GPU_GROUP_PREFIX);
        return;
    }
    let is_known = match key.split_once('/') {
        None => KEPT_KEYS.contains(&key.as_str()) || key.starts_with("hugepages-"),
        Some((domain, _)) => is_public(domain),
    };
    if !is_known {
        pass.text(key);
    }
}

fn is_public(domain: &str) -> bool {
    let ends = |public: &&str| {
        domain.strip_suffix(*public).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    PUBLIC_DOMAINS.iter().any(ends)
}

/// Keys without a domain that rules read.
const KEPT_KEYS: [&str; 13] = [
    label::PROJECT,
    label::PRIORITY_CLASS,
    label::USER,
    label::GPU_GROUP,
    label::SELECTED_NODE,
    label::APP,
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "storage",
    "metadata.name",
    "",
];

fn name_text(text: &mut String, pass: &mut Pass) {
    let is_vendors = VENDORS.iter().any(|vendor| text.ends_with(vendor));
    if !KEPT_TEXTS.contains(&text.as_str()) && !is_vendors && !is_amount(text) {
        pass.text(text);
    }
}

/// A number, a quantity or a time.
fn is_amount(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
        && (text.parse::<f64>().is_ok()
            || text.parse::<Quantity>().is_ok()
            || text.parse::<Timestamp>().is_ok())
}

/// Replaces names in the string literals of a CEL expression.
fn literals(text: &mut String, pass: &mut Pass) {
    let Pass::Replace(names) = pass else { return };
    for quote in ['"', '\''] {
        let parts: Vec<String> = text
            .split(quote)
            .enumerate()
            .map(|(at, part)| {
                names.get(part).filter(|_| at % 2 == 1).cloned().unwrap_or_else(|| part.to_owned())
            })
            .collect();
        *text = parts.join(&quote.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_texts_get_equal_pseudonyms_in_the_same_order() {
        let mut snapshot = json!({"rawObjects": {
            "nodes": [{"metadata": {"name": "berlin-2", "labels": {"kubernetes.io/hostname": "berlin-2", "acme.com/rack": "r7"}}},
                      {"metadata": {"name": "berlin-10", "labels": {"nvidia.com/gpu.memory": "81920"}}}],
            "topologies": [{"spec": {"levels": [{"nodeLabel": "acme.com/rack"}]}}],
            "pods": [{"metadata": {"name": "secret-project-0", "annotations": {"pod-group-name": "secret-project",
                "gpu-fraction": "0.5", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
                "spec": {"nodeName": "berlin-2", "schedulerName": "kai-scheduler"}, "status": {"phase": "Running", "message": "on berlin-2"}}],
        }});
        let names = anonymise(&mut snapshot);
        let node =
            |at: usize| snapshot["rawObjects"]["nodes"][at]["metadata"]["name"].as_str().unwrap_or_default();
        assert!(node(1) < node(0), "`berlin-10` sorts before `berlin-2`");
        let pod = &snapshot["rawObjects"]["pods"][0];
        assert_eq!(pod["spec"]["nodeName"], node(0));
        assert_eq!(
            pod["metadata"]["annotations"],
            json!({"pod-group-name": names["secret-project"], "gpu-fraction": "0.5"})
        );
        assert_eq!(pod["status"], json!({"phase": "Running"}));
        let labels = &snapshot["rawObjects"]["nodes"][0]["metadata"]["labels"];
        assert_eq!(labels["kubernetes.io/hostname"], node(0));
        let level = snapshot["rawObjects"]["topologies"][0]["spec"]["levels"][0]["nodeLabel"]
            .as_str()
            .unwrap_or_default();
        assert_eq!(labels[level], names["r7"].as_str());
        let text = snapshot.to_string();
        for name in ["berlin", "acme", "secret", "r7"] {
            assert!(!text.contains(name), "`{name}` is left in {text}");
        }
    }

    #[test]
    fn literals_of_expressions_are_renamed_and_the_rest_is_kept() {
        let mut snapshot = json!({"rawObjects": {"nodes": [{"metadata": {"name": "berlin"}}],
            "deviceClasses": [{"spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.nvidia.com\" && x == \"berlin\""}}]}}]}});
        let names = anonymise(&mut snapshot);
        let expression =
            &snapshot["rawObjects"]["deviceClasses"][0]["spec"]["selectors"][0]["cel"]["expression"];
        assert_eq!(
            *expression,
            format!("device.driver == \"gpu.nvidia.com\" && x == \"{}\"", names["berlin"])
        );
    }

    #[test]
    fn implied_group_of_a_pod_is_named() {
        let mut snapshot = json!({"rawObjects": {
            "pods": [
                {"metadata": {"namespace": "a", "name": "p", "uid": "u"}},
                {"metadata": {"namespace": "b", "name": "p", "uid": "u"}},
            ],
            "podGroups": [{"metadata": {"namespace": "a", "name": "pg-p-u"}}],
        }});
        let names = anonymise(&mut snapshot);
        let group_of = |at: usize| {
            snapshot["rawObjects"]["pods"][at]["metadata"]["annotations"]["pod-group-name"].as_str()
        };
        assert_eq!(group_of(0), Some(names["pg-p-u"].as_str()));
        assert_eq!(group_of(1), None, "no group of that name is in its namespace");
    }
}

//! Defaults of built-in types, applied wherever the type occurs.
//!
//! Constant defaults are in a table. Defaults that depend on sibling fields are functions in a second table. Defaults
//! of a single kind (a Pod, but not a pod template) are in the module of that kind.

use super::pod;
use crate::schema::merge_rules::short_name;
use crate::schema::{Schema, builtin};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Sets defaults that depend on sibling fields.
type Rule = fn(&mut Map<String, Value>);

/// Constant defaults as JSON, by `group.Type`.
const CONSTANTS: &[(&str, &str)] = &[
    (
        "admissionregistration.MutatingWebhook",
        r#"{"failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "reinvocationPolicy": "Never", "timeoutSeconds": 10}"#,
    ),
    ("admissionregistration.RuleWithOperations", r#"{"scope": "*"}"#),
    ("admissionregistration.ServiceReference", r#"{"port": 443}"#),
    (
        "admissionregistration.ValidatingWebhook",
        r#"{"failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "timeoutSeconds": 10}"#,
    ),
    ("apps.DaemonSetSpec", r#"{"revisionHistoryLimit": 10}"#),
    ("apps.DeploymentSpec", r#"{"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}"#),
    ("apps.ReplicaSetSpec", r#"{"replicas": 1}"#),
    (
        "apps.StatefulSetSpec",
        r#"{"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {}}"#,
    ),
    (
        "apps.StatefulSetPersistentVolumeClaimRetentionPolicy",
        r#"{"whenDeleted": "Retain", "whenScaled": "Retain"}"#,
    ),
    (
        "batch.CronJobSpec",
        r#"{"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1}"#,
    ),
    ("batch.PodFailurePolicyOnPodConditionsPattern", r#"{"status": "True"}"#),
    (
        "core.AzureDiskVolumeSource",
        r#"{"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": false}"#,
    ),
    ("core.ConfigMapVolumeSource", r#"{"defaultMode": 420}"#),
    (
        "core.Container",
        r#"{"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}"#,
    ),
    ("core.ContainerPort", r#"{"protocol": "TCP"}"#),
    ("core.DownwardAPIVolumeSource", r#"{"defaultMode": 420}"#),
    (
        "core.EphemeralContainer",
        r#"{"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}"#,
    ),
    ("core.FileKeySelector", r#"{"optional": false}"#),
    ("core.GRPCAction", r#"{"service": ""}"#),
    ("core.HTTPGetAction", r#"{"path": "/", "scheme": "HTTP"}"#),
    ("core.HostPathVolumeSource", r#"{"type": ""}"#),
    ("core.ISCSIVolumeSource", r#"{"iscsiInterface": "default"}"#),
    ("core.ISCSIPersistentVolumeSource", r#"{"iscsiInterface": "default"}"#),
    ("core.NamespaceStatus", r#"{"phase": "Active"}"#),
    ("core.ObjectFieldSelector", r#"{"apiVersion": "v1"}"#),
    ("core.PersistentVolumeClaimSpec", r#"{"volumeMode": "Filesystem"}"#),
    ("core.PersistentVolumeClaimStatus", r#"{"phase": "Pending"}"#),
    (
        "core.PersistentVolumeSpec",
        r#"{"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}"#,
    ),
    ("core.PersistentVolumeStatus", r#"{"phase": "Pending"}"#),
    (
        "core.PodSpec",
        r#"{"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30}"#,
    ),
    (
        "core.Probe",
        r#"{"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}"#,
    ),
    ("core.ProjectedVolumeSource", r#"{"defaultMode": 420}"#),
    ("core.RBDVolumeSource", r#"{"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}"#),
    ("core.RBDPersistentVolumeSource", r#"{"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}"#),
    ("core.ScaleIOVolumeSource", r#"{"storageMode": "ThinProvisioned", "fsType": "xfs"}"#),
    ("core.ScaleIOPersistentVolumeSource", r#"{"storageMode": "ThinProvisioned", "fsType": "xfs"}"#),
    ("core.Secret", r#"{"type": "Opaque"}"#),
    ("core.SecretVolumeSource", r#"{"defaultMode": 420}"#),
    ("core.ServiceAccountTokenProjection", r#"{"expirationSeconds": 3600}"#),
    ("core.ServicePort", r#"{"protocol": "TCP"}"#),
    ("core.ServiceSpec", r#"{"sessionAffinity": "None", "type": "ClusterIP"}"#),
    ("discovery.EndpointPort", r#"{"name": "", "protocol": "TCP"}"#),
    ("rbac.RoleRef", r#"{"apiGroup": "rbac.authorization.k8s.io"}"#),
    ("resource.DeviceSubRequest", r#"{"allocationMode": "ExactCount"}"#),
    ("resource.DeviceToleration", r#"{"operator": "Equal"}"#),
    ("resource.ExactDeviceRequest", r#"{"allocationMode": "ExactCount"}"#),
    ("scheduling.PriorityClass", r#"{"preemptionPolicy": "PreemptLowerPriority"}"#),
    (
        "storage.CSIDriverSpec",
        r#"{"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "podInfoOnMount": false,
            "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false,
            "volumeLifecycleModes": ["Persistent"]}"#,
    ),
    ("storage.StorageClass", r#"{"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}"#),
];

/// Defaults that depend on sibling fields, by `group.Type`.
const RULES: &[(&str, Rule)] = &[
    ("apps.DaemonSetUpdateStrategy", |fields| {
        rolling(fields, &json!({"maxUnavailable": 1, "maxSurge": 0}));
    }),
    ("apps.DeploymentStrategy", |fields| {
        rolling(fields, &json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
    }),
    ("apps.StatefulSetUpdateStrategy", |fields| rolling(fields, &json!({"partition": 0}))),
    ("core.Container", pod::default_pull_policy),
    ("core.EphemeralContainer", pod::default_pull_policy),
    ("core.PodSpec", pod::default_spec),
    ("core.ServicePort", service_port),
    ("core.ServiceSpec", service),
    ("core.Volume", |fields| {
        if fields.len() <= 1 {
            set(fields, "emptyDir", json!({}));
        }
    }),
    ("rbac.Subject", |fields| {
        if matches!(fields.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            set(fields, "apiGroup", json!("rbac.authorization.k8s.io"));
        }
    }),
    ("resource.DeviceSubRequest", exact_count),
    ("resource.ExactDeviceRequest", exact_count),
];

/// Sets a missing field.
pub(super) fn set(fields: &mut Map<String, Value>, name: &str, value: Value) {
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), value);
    }
}

/// A string field; empty if missing.
pub(super) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn rolling(fields: &mut Map<String, Value>, parameters: &Value) {
    set(fields, "type", json!("RollingUpdate"));
    if text(fields, "type") != "RollingUpdate" {
        return;
    }
    set(fields, "rollingUpdate", json!({}));
    let own = fields.get_mut("rollingUpdate").and_then(Value::as_object_mut);
    if let (Some(own), Some(parameters)) = (own, parameters.as_object()) {
        for (name, value) in parameters {
            set(own, name, value.clone());
        }
    }
}

fn exact_count(fields: &mut Map<String, Value>) {
    if text(fields, "allocationMode") == "ExactCount" {
        set(fields, "count", json!(1));
    }
}

fn service_port(fields: &mut Map<String, Value>) {
    let unset = fields.get("targetPort").is_none_or(|target| target == 0 || target == "");
    if unset && let Some(port) = fields.get("port").cloned() {
        fields.insert("targetPort".to_owned(), port);
    }
}

fn service(fields: &mut Map<String, Value>) {
    let kind = text(fields, "type").to_owned();
    if matches!(&*kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        set(fields, "internalTrafficPolicy", json!("Cluster"));
    }
    if matches!(&*kind, "NodePort" | "LoadBalancer") {
        set(fields, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        set(fields, "allocateLoadBalancerNodePorts", json!(true));
    }
    if text(fields, "sessionAffinity") == "ClientIP" {
        set(fields, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
}

/// The defaults of one type.
#[derive(Default)]
struct Defaults {
    constants: Vec<(String, Value)>,
    rule: Option<Rule>,
}

/// Defaults by full definition name, so that the lookup does not allocate.
static BY_DEFINITION: LazyLock<FxHashMap<&'static str, Defaults>> = LazyLock::new(|| {
    let mut table: FxHashMap<&'static str, Defaults> = FxHashMap::default();
    for definition in builtin::definitions() {
        let name = short_name(definition.name());
        let same = |known: &str| name.as_deref() == Some(known);
        for (_, constants) in CONSTANTS.iter().filter(|(known, _)| same(known)) {
            let constants: Map<String, Value> =
                serde_json::from_str(constants).expect("the table of defaults is JSON");
            table.entry(definition.name()).or_default().constants.extend(constants);
        }
        for (_, rule) in RULES.iter().filter(|(known, _)| same(known)) {
            table.entry(definition.name()).or_default().rule = Some(*rule);
        }
    }
    table
});

/// Applies the defaults of a built-in type recursively.
pub(super) fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let defaults = schema.definition.and_then(|name| BY_DEFINITION.get(name));
            if let Some(defaults) = defaults {
                for (name, value) in &defaults.constants {
                    // An empty string counts as missing, also in fields that are always written.
                    if fields.get(name).is_none_or(|own| own == "") {
                        fields.insert(name.clone(), value.clone());
                    }
                }
                if let Some(rule) = defaults.rule {
                    rule(fields);
                }
            }
            for (name, value) in fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array())
            {
                if let Some(field) = schema.properties.get(name).or(schema.additional.as_ref()) {
                    fill(field, value);
                }
            }
        }
        Value::Array(elements) => {
            for element in elements.iter_mut().filter(|element| element.is_object()) {
                fill(schema.element(), element);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defaulted_type_and_field_exists() {
        let known: Vec<_> = builtin::definitions().collect();
        for (name, constants) in CONSTANTS {
            let constants: Map<String, Value> = serde_json::from_str(constants).unwrap();
            let types: Vec<_> =
                known.iter().filter(|one| short_name(one.name()).as_deref() == Some(*name)).collect();
            assert!(!types.is_empty(), "there is no {name}");
            for field in constants.keys() {
                let found = types.iter().any(|one| one.raw()["properties"].get(field).is_some());
                assert!(found, "{name} has no field {field}");
            }
        }
        for (name, _) in RULES {
            let found = known.iter().any(|one| short_name(one.name()).as_deref() == Some(*name));
            assert!(found, "there is no {name}");
        }
    }

    #[test]
    fn pod_templates_are_defaulted_like_pods() {
        let mut deployment = json!({"spec": {"strategy": {}, "template": {"spec": {"containers":
            [{"name": "a", "image": "a:1", "ports": [{"containerPort": 1}]}], "volumes": [{"name": "v"}]}}}});
        fill(builtin::schema("apps/v1", "Deployment").unwrap(), &mut deployment);
        let spec = &deployment["spec"];
        assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(pod["containers"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(pod["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(pod["dnsPolicy"], "ClusterFirst");
    }
}

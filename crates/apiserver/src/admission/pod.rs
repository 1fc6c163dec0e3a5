//! `ServiceAccount`, `DefaultTolerationSeconds` and node taint admission.

use super::forbidden;
use crate::object;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::verbs::Call;
use serde_json::{Value, json};

/// Mount path of the service account token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Default of `--default-not-ready-toleration-seconds` and `--default-unreachable-toleration-seconds`.
const TOLERATION_SECONDS: u32 = 300;

/// Sets the service account and mounts its token unless `automountServiceAccountToken` is false.
pub(super) fn set_account(core: &Core, call: &Call, pod: &mut Value) -> Result<(), StatusError> {
    let name = match object::str_at(pod, "/spec/serviceAccountName") {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let accounts = core.builtin("", "serviceaccounts");
    let Some(account) = core.store.get(accounts.table, &accounts.key(&call.namespace, &name)) else {
        let namespace = &call.namespace;
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(forbidden(call, pod, &why));
    };
    let account = account.value();
    let spec = object::map_mut(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), json!(name));
    spec.insert("serviceAccount".to_owned(), json!(name));
    if let Some(secrets) = account.get("imagePullSecrets") {
        spec.entry("imagePullSecrets").or_insert_with(|| secrets.clone());
    }
    let automount = |owner: &Value| owner.get("automountServiceAccountToken").and_then(Value::as_bool);
    if automount(&pod["spec"]).or_else(|| automount(&account)).unwrap_or(true) {
        mount_token(core, pod);
    }
    Ok(())
}

fn mount_token(core: &Core, pod: &mut Value) {
    let spec = &mut pod["spec"];
    let name = format!("kube-api-access-{}", core.ids.suffix());
    let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
    let mut mounted = false;
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                mounts.push(mount.clone());
                mounted = true;
            }
        }
    }
    if !mounted {
        return;
    }
    let field =
        json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [field]}},
    ]}});
    let volumes = object::map_mut(pod, "spec").entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume);
    }
}

/// Adds the default `not-ready` and `unreachable` tolerations.
pub(super) fn add_default_tolerations(pod: &mut Value) {
    let tolerations = object::map_mut(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in [NOT_READY, UNREACHABLE] {
        let tolerated = tolerations.iter().any(|toleration| {
            let of = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
            matches!(of("effect"), "" | "NoExecute") && (of("key").is_empty() || of("key") == key)
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
}

/// Adds the `not-ready` taint to a created node (`TaintNodesByCondition`).
pub(super) fn taint_new_node(node: &mut Value) {
    let taints = object::map_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else { return };
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

//! Brings rendered objects into the form in which they are compared.

use serde_json::{Value, json};

/// The chart's default registry, `<registry>` in the recordings.
pub(super) const REGISTRY: &str = "registry/local/kai-scheduler";

/// `Kind/namespace/name`.
pub(super) fn by_key(object: &Value) -> String {
    let (kind, namespace, name) =
        (kai_object::kind(object), kai_object::namespace(object), kai_object::name(object));
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The object without rights and without the commands of hooks; `None` for what is not compared at all.
pub(super) fn normalise(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    // Ours also run after a rollback (`docs/differences.md`).
    if let Some(Value::Object(annotations)) = kai_object::meta_mut(&mut object).get_mut("annotations")
        && let Some(hook) = annotations.get_mut("helm.sh/hook")
        && *hook == "post-install,post-upgrade,post-rollback"
    {
        *hook = json!("post-install,post-upgrade");
    }
    match kai_object::kind(&object) {
        "ClusterRole" | "Role" => return None,
        "ClusterRoleBinding" | "RoleBinding" => {
            if let Some(Value::Array(subjects)) = object.get_mut("subjects") {
                subjects.sort_by_key(|subject| subject.get("name").map(Value::to_string));
            }
        }
        // `helm test`, which KAI's chart does not have.
        "Pod" if kai_object::str_at(&object, "/metadata/annotations/helm.sh~1hook") == "test" => return None,
        // The script of a hook.
        "ConfigMap" if kai_object::name(&object) == "topology-migration-script" => return None,
        "ConfigMap" => {
            for value in
                object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(|d| d.values_mut())
            {
                let parsed = value.as_str().and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
                if let Some(parsed) = parsed {
                    *value = json!({"$yaml": parsed});
                }
            }
        }
        "Job" => {
            job(&mut object);
            security_context(&mut object);
        }
        "Deployment" => security_context(&mut object),
        // Ours stay (`docs/differences.md`); that namespaces do is checked besides.
        "ServiceAccount" | "Namespace" => {
            let annotations = kai_object::meta_mut(&mut object).get_mut("annotations");
            if annotations.is_some_and(|annotations| *annotations == kept()) {
                kai_object::meta_mut(&mut object).remove("annotations");
            }
        }
        _ => {}
    }
    Some(object)
}

/// Annotations of objects that stay when a release no longer has them.
fn kept() -> Value {
    json!({"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false"})
}

/// Without the context that containers of ours have where the values have none (`docs/differences.md`).
fn security_context(object: &mut Value) {
    let default = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let containers = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container.get("securityContext") == Some(&default) {
            remove(container, "securityContext");
        }
    }
}

fn job(object: &mut Value) {
    let mounts_script = kai_object::name(object) == "topology-migration";
    let Some(pod) = object.pointer_mut("/spec/template/spec") else { return };
    if mounts_script {
        remove(pod, "volumes");
    }
    for container in pod.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(container, "command");
        remove(container, "args");
        if mounts_script {
            remove(container, "volumeMounts");
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

//! Fields that an API server does not let change.
//!
//! An installation that takes over another's objects must have the same values there: `helm upgrade` and the operator's
//! writes would fail, and so would the way back.

use serde_json::Value;
use std::collections::BTreeMap;

/// JSON pointers to the fields of a kind that never change.
fn pointers(kind: &str) -> &'static [&'static str] {
    match kind {
        "ClusterRoleBinding" | "RoleBinding" => &["/roleRef"],
        "Deployment" | "DaemonSet" => &["/spec/selector"],
        "StatefulSet" => &["/spec/selector", "/spec/serviceName", "/spec/volumeClaimTemplates"],
        "Service" => &["/spec/clusterIP"],
        "PriorityClass" => &["/value", "/preemptionPolicy"],
        "StorageClass" => &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"],
        "PersistentVolumeClaim" => &["/spec/storageClassName", "/spec/accessModes", "/spec/volumeName"],
        "Secret" => &["/type", "/immutable"],
        "ConfigMap" => &["/immutable"],
        "EndpointSlice" => &["/addressType"],
        _ => &[],
    }
}

/// Names of webhooks: a server-side apply adds a webhook of another name beside the one that is there.
fn webhook_names(object: &Value) -> Vec<&str> {
    let webhooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<&str> = webhooks.map(|webhook| kai_object::str_at(webhook, "/name")).collect();
    names.sort_unstable();
    names
}

fn key(object: &Value) -> [String; 3] {
    [kai_object::kind(object), kai_object::namespace(object), kai_object::name(object)].map(str::to_owned)
}

/// Which objects of both lists differ in such a field, and how many are in both.
pub fn differences(theirs: &[Value], ours: &[Value]) -> (Vec<String>, usize) {
    let ours: BTreeMap<_, _> = ours.iter().map(|object| (key(object), object)).collect();
    let mut found = Vec::new();
    let mut both = 0;
    for theirs in theirs {
        let key = key(theirs);
        let Some(ours) = ours.get(&key) else { continue };
        both += 1;
        for pointer in pointers(kai_object::kind(theirs)) {
            let [theirs, ours] =
                [theirs, *ours].map(|object| object.pointer(pointer).unwrap_or(&Value::Null));
            if theirs != ours {
                found.push(format!("{} {pointer}: {theirs} cannot become {ours}", key.join("/")));
            }
        }
        let [theirs, ours] = [theirs, *ours].map(webhook_names);
        if theirs != ours {
            found.push(format!("{} webhooks: {theirs:?} cannot become {ours:?}", key.join("/")));
        }
    }
    (found, both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn role_of_a_binding_cannot_change() {
        let binding = |role: &str| json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": {"name": role}});
        let [one, other] = ["one", "other"].map(binding);
        let (one, other) = (std::slice::from_ref(&one), std::slice::from_ref(&other));
        assert_eq!(differences(one, one), (Vec::new(), 1));
        let (found, _) = differences(one, other);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

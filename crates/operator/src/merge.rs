//! The object that results from applying a desired object over the current one.
//!
//! Fields that others added stay, unless the operator decides them: a decided field that the desired object lacks is
//! removed, so that a setting that is gone from the `Config`, or a field that KAI's operator or a user wrote, does not
//! linger. The same rules tell whether a write is needed at all.

use serde_json::{Map, Value};

/// Fields that are removed when the desired object lacks them, and fields whose value is replaced as a whole.
struct Rules {
    decided: &'static [&'static str],
    replaced: &'static [&'static str],
}

const WORKLOAD: Rules = Rules {
    decided: &[
        "spec/template/spec/affinity",
        "spec/template/spec/imagePullSecrets",
        "spec/template/spec/nodeSelector",
        "spec/template/spec/priorityClassName",
        "spec/template/spec/tolerations",
        "spec/template/spec/volumes",
        "spec/template/spec/containers/env",
        "spec/template/spec/containers/ports",
        "spec/template/spec/containers/readinessProbe",
        "spec/template/spec/containers/securityContext",
        "spec/template/spec/containers/volumeMounts",
    ],
    replaced: &[
        "metadata/ownerReferences",
        "spec/strategy",
        "spec/template/spec/affinity",
        "spec/template/spec/nodeSelector",
        "spec/template/spec/containers/resources",
        "spec/template/spec/containers/securityContext",
    ],
};
const SERVICE: Rules =
    Rules { decided: &["spec/selector"], replaced: &["metadata/ownerReferences", "spec/selector"] };
const CONFIG_MAP: Rules = Rules { decided: &["binaryData"], replaced: &["metadata/ownerReferences", "data"] };
const WEBHOOKS: Rules = Rules {
    decided: &[],
    replaced: &["metadata/ownerReferences", "webhooks/namespaceSelector", "webhooks/objectSelector"],
};
const PROMETHEUS: Rules = Rules {
    decided: &[
        "metadata/annotations/kai/deprecation-timestamp",
        "spec/serviceMonitorNamespaceSelector",
        "spec/serviceMonitorSelector",
        "spec/storage",
    ],
    replaced: &["metadata/ownerReferences", "spec/ruleSelector", "spec/serviceMonitorSelector"],
};
const AUTOSCALER: Rules = Rules {
    decided: &["spec/resourcePolicy", "spec/updatePolicy"],
    replaced: &["metadata/ownerReferences", "spec/resourcePolicy", "spec/updatePolicy"],
};
const OTHER: Rules = Rules { decided: &[], replaced: &["metadata/ownerReferences"] };

/// Lists whose items are matched by a key; items that are not desired are dropped. Other lists are replaced.
const KEYED: [(&str, &str); 6] = [
    ("containers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("ports", "name"),
    ("volumeMounts", "mountPath"),
    ("webhooks", "name"),
];

fn rules(kind: &str) -> &'static Rules {
    match kind {
        "Deployment" | "DaemonSet" => &WORKLOAD,
        "Service" => &SERVICE,
        "ConfigMap" => &CONFIG_MAP,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => &WEBHOOKS,
        "Prometheus" => &PROMETHEUS,
        "VerticalPodAutoscaler" => &AUTOSCALER,
        _ => &OTHER,
    }
}

/// The current object with the desired fields.
pub fn merged(current: &Value, desired: &Value) -> Value {
    overlay(current, desired, "", rules(kai_object::kind(desired)))
}

fn overlay(current: &Value, desired: &Value, path: &str, rules: &Rules) -> Value {
    if rules.replaced.contains(&path) {
        return desired.clone();
    }
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => {
            Value::Object(overlay_fields(current, desired, path, rules))
        }
        (Value::Array(current), Value::Array(desired)) => {
            let field = path.rsplit('/').next().unwrap_or_default();
            let Some((_, key)) = KEYED.iter().find(|(list, _)| *list == field) else {
                return Value::from(desired.clone());
            };
            let items = desired.iter().map(|item| {
                let same =
                    current.iter().find(|other| item.get(key).is_some() && other.get(key) == item.get(key));
                same.map_or_else(|| item.clone(), |same| overlay(same, item, path, rules))
            });
            Value::Array(items.collect())
        }
        _ => desired.clone(),
    }
}

fn overlay_fields(
    current: &Map<String, Value>,
    desired: &Map<String, Value>,
    path: &str,
    rules: &Rules,
) -> Map<String, Value> {
    let below = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}/{field}") };
    let mut fields = current.clone();
    fields.retain(|field, _| desired.contains_key(field) || !rules.decided.contains(&below(field).as_str()));
    for (field, value) in desired {
        let merged = match current.get(field) {
            Some(known) => overlay(known, value, &below(field), rules),
            None => value.clone(),
        };
        fields.insert(field.clone(), merged);
    }
    // A map that held nothing but decided fields goes with them.
    if path == "metadata" && fields.get("annotations").is_some_and(|map| *map == Value::Object(Map::new())) {
        fields.remove("annotations");
    }
    if path == "metadata"
        && !desired.contains_key("annotations")
        && let Some(Value::Object(annotations)) = fields.get_mut("annotations")
    {
        annotations
            .retain(|name, _| !rules.decided.contains(&format!("metadata/annotations/{name}").as_str()));
        if annotations.is_empty() {
            fields.remove("annotations");
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_others_stay_and_decided_fields_go() {
        let current = json!({
            "kind": "Deployment",
            "metadata": {"labels": {"app": "x", "mine": "1"}, "annotations": {"note": "1"}},
            "spec": {"replicas": 5, "template": {"spec": {
                "hostNetwork": true, "nodeSelector": {"a": "b"},
                "containers": [
                    {"name": "sidecar"},
                    {"name": "binder", "args": ["old"], "terminationMessagePath": "/dev/x", "env": [{"name": "A"}]},
                ],
            }}},
        });
        let desired = json!({
            "kind": "Deployment",
            "metadata": {"labels": {"app": "binder"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "binder", "args": ["new"]}]}}},
        });
        let expected = json!({
            "kind": "Deployment",
            "metadata": {"labels": {"app": "binder", "mine": "1"}, "annotations": {"note": "1"}},
            "spec": {"replicas": 1, "template": {"spec": {
                "hostNetwork": true,
                "containers": [{"name": "binder", "args": ["new"], "terminationMessagePath": "/dev/x"}],
            }}},
        });
        assert_eq!(merged(&current, &desired), expected);
        assert_eq!(merged(&expected, &desired), expected, "a second time changes nothing");
    }

    #[test]
    fn prometheus_that_is_wanted_again_loses_its_deprecation() {
        let current = json!({
            "kind": "Prometheus", "metadata": {"annotations": {"kai/deprecation-timestamp": "x"}}, "spec": {"storage": {}},
        });
        let desired = json!({"kind": "Prometheus", "metadata": {}, "spec": {}});
        assert_eq!(merged(&current, &desired), json!({"kind": "Prometheus", "metadata": {}, "spec": {}}));
    }
}

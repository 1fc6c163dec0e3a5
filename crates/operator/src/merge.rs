//! The object that results from applying a desired object over the current one.
//!
//! Fields that others added stay, unless the operator decides them: a decided field that the desired object lacks is
//! removed, so that a setting that is gone from the `Config`, or a field that KAI's operator or a user wrote, does not
//! linger. The same rules tell whether a write is needed at all.

use serde_json::{Map, Value, json};

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

/// Whether [`merged`] would change nothing. Most objects are as desired in most reconciles: this copies nothing.
pub fn is_merged(current: &Value, desired: &Value) -> bool {
    holds(current, desired, &mut String::new(), rules(kai_object::kind(desired)))
}

fn holds(current: &Value, desired: &Value, path: &mut String, rules: &Rules) -> bool {
    if rules.replaced.contains(&path.as_str()) {
        return current == desired;
    }
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => fields_hold(current, desired, path, rules),
        (Value::Array(current), Value::Array(desired)) => {
            let Some(key) = key_of_list(path) else { return current == desired };
            current.len() == desired.len()
                && current.iter().zip(desired).all(|(known, item)| {
                    let same = current.iter().find(|other| is_same_item(other, item, key));
                    match same {
                        Some(same) if std::ptr::eq(same, known) => holds(known, item, path, rules),
                        Some(same) => overlay(same, item, path, rules) == *known,
                        None => item == known,
                    }
                })
        }
        _ => current == desired,
    }
}

fn fields_hold(
    current: &Map<String, Value>,
    desired: &Map<String, Value>,
    path: &mut String,
    rules: &Rules,
) -> bool {
    let is_metadata = path == "metadata";
    if is_metadata && !annotations_hold(current, desired, rules) {
        return false;
    }
    let length = path.len();
    let mut below = |field: &str, test: &mut dyn FnMut(&mut String) -> bool| {
        if length > 0 {
            path.push('/');
        }
        path.push_str(field);
        let result = test(path);
        path.truncate(length);
        result
    };
    current
        .keys()
        .filter(|field| !desired.contains_key(*field))
        .all(|field| below(field, &mut |path| !rules.decided.contains(&path.as_str())))
        && desired.iter().all(|(field, value)| {
            // A map without annotations is not stored.
            let is_nothing = is_metadata && field == "annotations" && *value == json!({});
            if is_absent(current, field, value) || is_nothing && !current.contains_key(field) {
                return true;
            }
            let Some(known) = current.get(field) else { return false };
            below(field, &mut |path| holds(known, value, path, rules))
        })
}

/// Whether no annotation is removed.
fn annotations_hold(current: &Map<String, Value>, desired: &Map<String, Value>, rules: &Rules) -> bool {
    let Some(Value::Object(annotations)) = current.get("annotations") else { return true };
    let is_decided = |name: &String| rules.decided.contains(&format!("metadata/annotations/{name}").as_str());
    !annotations.is_empty() && (desired.contains_key("annotations") || !annotations.keys().any(is_decided))
}

/// Whether a list is empty here and there: the API server returns one as `null`, or leaves it out.
fn is_absent(current: &Map<String, Value>, field: &str, desired: &Value) -> bool {
    desired.as_array().is_some_and(Vec::is_empty) && current.get(field).is_none_or(Value::is_null)
}

/// The key by which the items of the list at this path are matched.
fn key_of_list(path: &str) -> Option<&'static str> {
    let field = path.rsplit('/').next().unwrap_or_default();
    KEYED.iter().find(|(list, _)| *list == field).map(|(_, key)| *key)
}

fn is_same_item(other: &Value, item: &Value, key: &str) -> bool {
    item.get(key).is_some() && other.get(key) == item.get(key)
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
            let Some(key) = key_of_list(path) else { return Value::from(desired.clone()) };
            let items = desired.iter().map(|item| {
                let same = current.iter().find(|other| is_same_item(other, item, key));
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
    for (field, value) in desired.iter().filter(|(field, value)| !is_absent(current, field, value)) {
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
    fn empty_list_may_be_stored_as_null_or_not_at_all() {
        let desired = json!({"kind": "EndpointSlice", "endpoints": []});
        for current in [json!({"kind": "EndpointSlice"}), json!({"kind": "EndpointSlice", "endpoints": null})]
        {
            assert_eq!(merged(&current, &desired), current);
            assert!(is_merged(&current, &desired));
        }
        let full = json!({"kind": "EndpointSlice", "endpoints": [{"addresses": ["10.0.0.1"]}]});
        assert_eq!(merged(&full, &desired), desired);
        assert!(!is_merged(&full, &desired));
    }

    /// Every pair of some objects, most of which differ in one field.
    #[test]
    fn comparison_without_copies_finds_the_same() {
        let base = json!({
            "kind": "Deployment", "metadata": {"labels": {"app": "x"}, "annotations": {"note": "1"}},
            "spec": {"replicas": 1, "strategy": {"type": "Recreate"}, "template": {"spec": {
                "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}],
                "containers": [{"name": "binder", "args": ["a"], "env": [{"name": "A", "value": "1"}], "ports": []}],
            }}},
        });
        let changes = [
            ("/metadata/labels/app", json!("y")),
            ("/metadata/annotations", json!({})),
            ("/metadata/annotations", json!({"kai/deprecation-timestamp": "x"})),
            ("/metadata", json!({"labels": {"app": "x"}})),
            ("/metadata", json!({"labels": {"app": "x", "more": "1"}, "annotations": {"note": "1"}})),
            ("/spec/strategy", json!({"type": "Recreate", "more": 1})),
            ("/spec/template/spec/nodeSelector", json!({"a": "b", "c": "d"})),
            ("/spec/template/spec", json!({"containers": [{"name": "binder", "args": ["a"]}]})),
            (
                "/spec/template/spec/containers",
                json!([{"name": "sidecar"}, {"name": "binder", "args": ["a"]}]),
            ),
            ("/spec/template/spec/containers", json!([{"name": "binder"}, {"name": "binder"}])),
            ("/spec/template/spec/containers", json!([{"args": ["a"]}])),
            ("/spec/template/spec/containers/0/env", json!([{"name": "B"}, {"name": "A", "value": "1"}])),
            ("/spec/template/spec/containers/0/env", json!([])),
            ("/spec/template/spec/tolerations", json!(null)),
            ("/spec/template/spec/containers/0/ports", json!(null)),
            ("/kind", json!("Prometheus")),
            ("/kind", json!("Service")),
        ];
        let changed = changes.into_iter().map(|(pointer, value)| {
            let mut object = base.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            object
        });
        let objects: Vec<Value> = std::iter::once(base.clone()).chain(changed).collect();
        let mut equal = 0;
        for current in &objects {
            for desired in &objects {
                let is_equal = merged(current, desired) == *current;
                assert_eq!(is_merged(current, desired), is_equal, "{current} {desired}");
                equal += usize::from(is_equal);
            }
        }
        assert!(equal > objects.len(), "{equal}");
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

//! Assigns the objects of a test to its node pool, so that tests can share a cluster.
//!
//! Objects get the label of the pool, and queue names a prefix.

use kai_api::well_known::label;
use serde_json::Value;

/// Labels an object with a pool, and replaces the queue names in it by those of the pool.
pub(super) fn assign(object: &mut Value, pool: &str, queue: &dyn Fn(&str) -> String) {
    if object["kind"] == "Queue" {
        rename(&mut object["metadata"]["name"], queue);
        object["metadata"]["labels"][label::NODE_POOL] = Value::from(pool);
    }
    for field in ["queue", "parentQueue"] {
        if let Some(named) = object.pointer_mut(&format!("/spec/{field}")) {
            rename(named, queue);
        }
    }
    label_all(object, pool, queue);
}

fn rename(named: &mut Value, queue: &dyn Fn(&str) -> String) {
    if let Some(name) = named.as_str() {
        *named = Value::from(queue(name));
    }
}

/// Labels an object and its nested pod templates.
fn label_all(object: &mut Value, pool: &str, queue: &dyn Fn(&str) -> String) {
    let Some(fields) = object.as_object_mut() else { return };
    // Pods that name a PodGroup get the pool label from the components, which the tests check.
    let grouped = fields.get("annotations").is_some_and(|all| all.get("pod-group-name").is_some());
    if let Some(labels) = fields.get_mut("labels").filter(|labels| labels.get(label::QUEUE).is_some()) {
        rename(&mut labels[label::QUEUE], queue);
        if !grouped {
            labels[label::NODE_POOL] = Value::from(pool);
        }
    }
    for (_, field) in fields.iter_mut() {
        label_all(field, pool, queue);
    }
}

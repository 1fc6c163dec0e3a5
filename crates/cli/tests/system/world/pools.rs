//! Tests that share a cluster have a node pool each: what they make is labelled with it, and their queues are their own.

use kai_api::well_known::label;
use serde_json::Value;

/// Puts an object into a pool: all queues that it names become those of the pool, and so does whatever names one.
pub(super) fn settle(object: &mut Value, pool: &str, queue: &dyn Fn(&str) -> String) {
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

/// Labels an object and the templates in it.
fn label_all(object: &mut Value, pool: &str, queue: &dyn Fn(&str) -> String) {
    let Some(fields) = object.as_object_mut() else { return };
    // Pods of a group that was made by hand learn their pool from whoever places them.
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

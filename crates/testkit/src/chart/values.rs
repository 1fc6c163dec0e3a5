//! The complete values of KAI's chart, which `helm upgrade --reuse-values` passes to ours in place of its own.

use serde_json::{Value, json};

/// Keys of our values that KAI's v0.17 do not have.
const OURS_ONLY: [&str; 7] = [
    "/topology",
    "/monitoring",
    "/global/fips",
    "/global/daemonsetsTolerations",
    "/global/additionalLabels",
    "/global/additionalAnnotations",
    "/scheduler/affinity",
];

/// KAI's values, made from ours: without the keys that it lacks, and with a pull policy for every image.
pub fn values_of_kai(ours: &Value) -> Value {
    let mut values = ours.clone();
    for pointer in OURS_ONLY {
        if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = values.pointer_mut(parent)
        {
            fields.remove(key);
        }
    }
    for section in values.as_object_mut().into_iter().flat_map(|sections| sections.values_mut()) {
        for (key, image) in section.as_object_mut().into_iter().flatten() {
            if key.to_lowercase().ends_with("image")
                && let Some(image) = image.as_object_mut()
            {
                image.insert("pullPolicy".to_owned(), json!("IfNotPresent"));
            }
        }
    }
    values
}

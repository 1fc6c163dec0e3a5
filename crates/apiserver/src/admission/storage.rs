//! `StorageObjectInUseProtection` and `DefaultStorageClass` admission.

use crate::object;
use crate::server::Core;
use crate::store::ListRange;
use serde_json::{Value, json};

const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Adds the protection finalizer.
pub(super) fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = object::finalizers(object);
    if finalizers.contains(&finalizer) {
        return;
    }
    finalizers.push(finalizer);
    let finalizers: Vec<String> = finalizers.into_iter().map(str::to_owned).collect();
    object::set_meta(object, "finalizers", Some(Value::from(finalizers)));
}

/// Sets the default `StorageClass` of a claim; of several, the newest.
pub(super) fn default_class(core: &Core, claim: &mut Value) {
    let spec = object::map_mut(claim, "spec");
    if spec.contains_key("storageClassName") {
        return;
    }
    let classes = core.builtin("storage.k8s.io", "storageclasses");
    let page = core.store.list(classes.table, &ListRange::default(), |_| true);
    let all = page.map(|page| page.records).unwrap_or_default();
    let defaults = all.into_iter().map(|record| record.value()).filter(|class| {
        object::meta(class, "annotations").and_then(|all| all.get(IS_DEFAULT)) == Some(&json!("true"))
    });
    let newest = defaults.max_by_key(|class| object::meta_str(class, "creationTimestamp").to_owned());
    if let Some(class) = newest {
        spec.insert("storageClassName".to_owned(), json!(object::name(&class)));
    }
}

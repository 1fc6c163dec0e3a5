//! `ControllerRevision`s of stateful and daemon sets.

use super::pod::hash;
use super::{int_at, owner_reference};
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind;
use serde_json::{Value, json};
use std::sync::Arc;

/// Label of pods: their revision.
pub const HASH: &str = "controller-revision-hash";

#[derive(Debug)]
pub struct Revisions {
    /// The revision of the current template.
    pub wanted: Arc<Value>,
    /// Oldest first.
    pub all: Vec<Arc<Value>>,
}

/// Finds the revisions of a set; creates that of the current template where it is missing.
pub async fn find(context: &Context, set: &Value) -> Result<Revisions> {
    let mut all = context.informers.dynamic(&kind::CONTROLLER_REVISION).controlled_by(object::uid(set));
    let order = |revision: &Arc<Value>| (int_at(revision, "/revision", 0), object::name(revision).to_owned());
    all.sort_by_key(order);
    let data = json!({"spec": {"template": set["spec"]["template"]}});
    let latest = all.last().map_or(0, |revision| int_at(revision, "/revision", 0));
    if let Some(found) = all.iter().find(|revision| revision["data"] == data) {
        let wanted = Arc::clone(found);
        return Ok(Revisions { wanted, all });
    }
    let hash = hash(&data);
    let new = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{}-{hash}", object::name(set)), "namespace": object::namespace(set),
            "labels": {HASH: hash}, "ownerReferences": [owner_reference(set)],
        },
        "data": data, "revision": latest + 1,
    });
    let new =
        Arc::new(context.create_dynamic(&kind::CONTROLLER_REVISION, object::namespace(set), &new).await?);
    all.push(Arc::clone(&new));
    Ok(Revisions { wanted: new, all })
}

/// Deletes the oldest unused revisions above `revisionHistoryLimit`.
pub async fn enforce_history_limit(
    context: &Context,
    set: &Value,
    revisions: &Revisions,
    used: &[&str],
) -> Result<()> {
    let keep = usize::try_from(int_at(set, "/spec/revisionHistoryLimit", 10)).unwrap_or(0);
    let unused: Vec<&Arc<Value>> = revisions
        .all
        .iter()
        .filter(|revision| {
            !Arc::ptr_eq(revision, &revisions.wanted) && !used.contains(&object::name(revision))
        })
        .collect();
    for revision in unused.iter().take(unused.len().saturating_sub(keep)) {
        context.delete_dynamic(&kind::CONTROLLER_REVISION, revision, DeleteOptions::of(revision)).await?;
    }
    Ok(())
}

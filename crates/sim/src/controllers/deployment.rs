//! Rolls out the pod template of a `Deployment` with one `ReplicaSet` per template.

mod rolling;
mod status;

use super::pod::hash;
use super::replica_set::owners;
use super::{annotation, int_at, owner_reference, set_entry};
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::sync::Arc;

/// Label: the hash of the pod template.
const HASH: &str = "pod-template-hash";
/// Annotation: the revision number.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation: `spec.replicas` of the deployment at the last scaling.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation: desired replicas plus surge at the last scaling.
const MAX: &str = "deployment.kubernetes.io/max-replicas";

#[derive(Debug)]
pub struct DeploymentController;

impl DynamicController for DeploymentController {
    const NAME: &'static str = "deployment";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::DEPLOYMENT, kind::REPLICA_SET]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        owners(informers, &kind::DEPLOYMENT, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(mut deployment) = context.informers.dynamic(&kind::DEPLOYMENT).get(key) else {
            return Ok(Action::AwaitChange);
        };
        if object::is_deleting(&deployment) {
            return Ok(Action::AwaitChange);
        }
        let paused = deployment.pointer("/spec/paused") == Some(&json!(true));
        let mut sets = Sets::find(context, &deployment);
        if sets.new.is_none() && !paused {
            create_new_set(context, &deployment, &sets).await?;
            sets = Sets::find(context, &deployment);
        }
        if let Some(new) = &sets.new {
            set_revision(context, &deployment, new, &sets.old).await?;
            let fresh = context.informers.dynamic(&kind::DEPLOYMENT).get(key);
            deployment = fresh.unwrap_or(deployment);
            sets = Sets::find(context, &deployment);
        }
        rolling::step(context, &deployment, &sets, paused).await?;
        let sets = Sets::find(context, &deployment);
        let (status, next) = status::status(context, &deployment, &sets);
        let mut new = (*deployment).clone();
        new["status"] = status;
        context.patch_difference_dynamic(&kind::DEPLOYMENT, Part::Status, &deployment, &new).await?;
        if status::is_complete(&new) {
            enforce_history_limit(context, &deployment, &sets).await?;
        }
        Ok(next)
    }
}

#[derive(Debug)]
struct Sets {
    /// The one with the current template.
    new: Option<Arc<Value>>,
    /// The others, oldest first.
    old: Vec<Arc<Value>>,
}

impl Sets {
    fn find(context: &Context, deployment: &Value) -> Self {
        let mut sets = context.informers.dynamic(&kind::REPLICA_SET).controlled_by(object::uid(deployment));
        sets.retain(|set| !object::is_deleting(set));
        sets.sort_by_key(|set| {
            (object::meta_str(set, "creationTimestamp").to_owned(), kai_runtime::key_of(set))
        });
        let wanted = without_hash(&deployment["spec"]["template"]);
        let new = sets.iter().position(|set| without_hash(&set["spec"]["template"]) == wanted);
        let new = new.map(|at| sets.remove(at));
        Self { new, old: sets }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.old.iter().chain(&self.new)
    }

    fn sum(&self, pointer: &str) -> i64 {
        self.all().map(|set| int_at(set, pointer, 0)).sum()
    }
}

/// A template without the hash label that the replica set adds.
fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template
}

fn revision(object: &Value) -> i64 {
    annotation(object, REVISION).parse().unwrap_or(0)
}

/// Creates the replica set of the current template, as large as the surge allows.
async fn create_new_set(context: &Context, deployment: &Value, sets: &Sets) -> Result<()> {
    let template = &deployment["spec"]["template"];
    let collisions = &deployment["status"]["collisionCount"];
    let hash = hash(&json!([without_hash(template), collisions]));
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", object::name(deployment)), "namespace": object::namespace(deployment),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": inherited(deployment),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": rolling::initial_size(deployment, sets),
            "selector": deployment["spec"]["selector"].clone(), "template": template.clone(),
        },
    });
    if let Some(seconds) = deployment.pointer("/spec/minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    set["spec"]["selector"]["matchLabels"][HASH] = Value::from(hash.as_str());
    set["spec"]["template"]["metadata"]["labels"][HASH] = Value::from(hash.as_str());
    set_entry(&mut set, "labels", HASH, &hash);
    let latest = sets.old.iter().map(|set| revision(set)).max().unwrap_or(0);
    set_entry(&mut set, "annotations", REVISION, &(latest + 1).to_string());
    rolling::annotate_sizes(deployment, &mut set);
    let created = context.create_dynamic(&kind::REPLICA_SET, object::namespace(deployment), &set).await;
    match created {
        // Hash collision: another set has this name. The collision count changes the next hash.
        Err(error) if error.is_conflict() => {
            let mut new = deployment.clone();
            object::map_mut(&mut new, "status")
                .insert("collisionCount".to_owned(), Value::from(collisions.as_i64().unwrap_or(0) + 1));
            context.patch_difference_dynamic(&kind::DEPLOYMENT, Part::Status, deployment, &new).await?;
            Err(error)
        }
        created => {
            let (name, size) = (object::name(&set), int_at(&set, "/spec/replicas", 0));
            created.map(|_| rolling::report_scaled(context, deployment, name, 0, size))
        }
    }
}

/// The annotations that a replica set inherits from its deployment.
fn inherited(deployment: &Value) -> Value {
    let mut annotations = object::meta(deployment, "annotations").cloned().unwrap_or_else(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|name, _| {
            name != "kubectl.kubernetes.io/last-applied-configuration"
                && !name.starts_with("deployment.kubernetes.io/")
        });
    }
    annotations
}

/// Gives the current replica set the highest revision, and copies it to the deployment.
async fn set_revision(
    context: &Context,
    deployment: &Value,
    new: &Arc<Value>,
    old: &[Arc<Value>],
) -> Result<()> {
    let before = old.iter().map(|set| revision(set)).max().unwrap_or(0);
    let wanted = if revision(new) > before { revision(new) } else { before + 1 };
    let mut set = (**new).clone();
    for (name, value) in inherited(deployment).as_object().into_iter().flatten() {
        set_entry(&mut set, "annotations", name, value.as_str().unwrap_or_default());
    }
    set_entry(&mut set, "annotations", REVISION, &wanted.to_string());
    context.patch_difference_dynamic(&kind::REPLICA_SET, Part::Main, new, &set).await?;
    let mut updated = deployment.clone();
    set_entry(&mut updated, "annotations", REVISION, &wanted.to_string());
    context.patch_difference_dynamic(&kind::DEPLOYMENT, Part::Main, deployment, &updated).await?;
    Ok(())
}

/// Deletes the oldest empty replica sets above `revisionHistoryLimit`.
async fn enforce_history_limit(context: &Context, deployment: &Value, sets: &Sets) -> Result<()> {
    let keep = usize::try_from(int_at(deployment, "/spec/revisionHistoryLimit", 10)).unwrap_or(0);
    let mut empty: Vec<&Arc<Value>> = sets
        .old
        .iter()
        .filter(|set| int_at(set, "/spec/replicas", 0) == 0 && int_at(set, "/status/replicas", 0) == 0)
        .collect();
    empty.sort_by_key(|set| revision(set));
    for set in empty.iter().take(empty.len().saturating_sub(keep)) {
        context
            .delete_dynamic(&kind::REPLICA_SET, set, DeleteOptions::of(set).propagate("Background"))
            .await?;
    }
    Ok(())
}

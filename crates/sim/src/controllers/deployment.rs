//! Brings the pods of a `Deployment` to its template, a few at a time, by way of one replica set per template.

mod rolling;
mod status;

use super::pod::hash;
use super::replica_set::owners;
use super::{annotation, int_at, owner_reference, set_entry};
use kai_object as object;
use kai_runtime::api::{Deletion, Part, Result};
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};
use std::sync::Arc;

/// Where pods and replica sets say which template they have.
const HASH: &str = "pod-template-hash";
/// Which rollout a deployment or replica set stands for.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// How many pods the deployment wanted when the replica set was last scaled.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many it may have had.
const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The controller of deployments.
#[derive(Debug)]
pub struct Deployments;

impl Controller for Deployments {
    const NAME: &'static str = "deployment";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::DEPLOYMENT, kind::REPLICA_SET]
    }

    fn wakes(&self, caches: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        owners(caches, &kind::DEPLOYMENT, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(mut deployment) = context.caches.get(&kind::DEPLOYMENT, key) else { return Ok(Next::Wait) };
        if object::is_deleting(&deployment) {
            return Ok(Next::Wait);
        }
        let paused = deployment.pointer("/spec/paused") == Some(&json!(true));
        let mut sets = Sets::find(context, &deployment);
        if sets.new.is_none() && !paused {
            make(context, &deployment, &sets).await?;
            sets = Sets::find(context, &deployment);
        }
        if let Some(new) = &sets.new {
            number(context, &deployment, new, &sets.old).await?;
            let fresh = context.caches.get(&kind::DEPLOYMENT, key);
            deployment = fresh.unwrap_or(deployment);
            sets = Sets::find(context, &deployment);
        }
        rolling::step(context, &deployment, &sets, paused).await?;
        let sets = Sets::find(context, &deployment);
        let (status, next) = status::status(context, &deployment, &sets);
        let mut new = (*deployment).clone();
        new["status"] = status;
        context.update(&kind::DEPLOYMENT, Part::Status, &deployment, &new).await?;
        if status::is_complete(&new) {
            trim(context, &deployment, &sets).await?;
        }
        Ok(next)
    }
}

/// The replica sets of a deployment.
#[derive(Debug)]
struct Sets {
    /// The one with the deployment's template.
    new: Option<Arc<Value>>,
    /// The others, oldest first.
    old: Vec<Arc<Value>>,
}

impl Sets {
    fn find(context: &Context, deployment: &Value) -> Self {
        let mut sets = context.caches.owned(&kind::REPLICA_SET, object::uid(deployment));
        sets.retain(|set| !object::is_deleting(set));
        sets.sort_by_key(|set| (object::meta_str(set, "creationTimestamp").to_owned(), Key::of(set)));
        let wanted = bare(&deployment["spec"]["template"]);
        let new = sets.iter().position(|set| bare(&set["spec"]["template"]) == wanted);
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

/// A template without what a replica set adds to it.
fn bare(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template
}

fn revision(object: &Value) -> i64 {
    annotation(object, REVISION).parse().unwrap_or(0)
}

/// Makes the replica set of the deployment's template, as large as it may be at once.
async fn make(context: &Context, deployment: &Value, sets: &Sets) -> Result<()> {
    let template = &deployment["spec"]["template"];
    let collisions = &deployment["status"]["collisionCount"];
    let hash = hash(&json!([bare(template), collisions]));
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", object::name(deployment)), "namespace": object::namespace(deployment),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": inherited(deployment),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": rolling::first_size(deployment, sets),
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
    rolling::note_sizes(deployment, &mut set);
    let made = context.create(&kind::REPLICA_SET, object::namespace(deployment), &set).await;
    match made {
        // The name is taken by a set that is not ours or has another template: the next hash is another.
        Err(error) if error.is_conflict() => {
            let mut new = deployment.clone();
            object::map_mut(&mut new, "status")
                .insert("collisionCount".to_owned(), Value::from(collisions.as_i64().unwrap_or(0) + 1));
            context.update(&kind::DEPLOYMENT, Part::Status, deployment, &new).await?;
            Err(error)
        }
        made => {
            let (name, size) = (object::name(&set), int_at(&set, "/spec/replicas", 0));
            made.map(|_| rolling::tell_scaled(context, deployment, name, 0, size))
        }
    }
}

/// The annotations that a replica set takes from its deployment.
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

/// Gives the current replica set the highest revision, and the deployment the same.
async fn number(context: &Context, deployment: &Value, new: &Arc<Value>, old: &[Arc<Value>]) -> Result<()> {
    let before = old.iter().map(|set| revision(set)).max().unwrap_or(0);
    let wanted = if revision(new) > before { revision(new) } else { before + 1 };
    let mut set = (**new).clone();
    for (name, value) in inherited(deployment).as_object().into_iter().flatten() {
        set_entry(&mut set, "annotations", name, value.as_str().unwrap_or_default());
    }
    set_entry(&mut set, "annotations", REVISION, &wanted.to_string());
    context.update(&kind::REPLICA_SET, Part::Main, new, &set).await?;
    let mut numbered = deployment.clone();
    set_entry(&mut numbered, "annotations", REVISION, &wanted.to_string());
    context.update(&kind::DEPLOYMENT, Part::Main, deployment, &numbered).await?;
    Ok(())
}

/// Deletes the oldest replica sets that are empty and beyond what is kept for going back.
async fn trim(context: &Context, deployment: &Value, sets: &Sets) -> Result<()> {
    let keep = usize::try_from(int_at(deployment, "/spec/revisionHistoryLimit", 10)).unwrap_or(0);
    let mut empty: Vec<&Arc<Value>> = sets
        .old
        .iter()
        .filter(|set| int_at(set, "/spec/replicas", 0) == 0 && int_at(set, "/status/replicas", 0) == 0)
        .collect();
    empty.sort_by_key(|set| revision(set));
    for set in empty.iter().take(empty.len().saturating_sub(keep)) {
        context.delete(&kind::REPLICA_SET, set, Deletion::of(set).propagate("Background")).await?;
    }
    Ok(())
}

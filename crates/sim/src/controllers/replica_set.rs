//! Keeps the number of pods of a `ReplicaSet` at `spec.replicas`.

use super::pod::{self, availability, is_active, is_ready};
use super::{int_at, owner_reference};
use kai_apiserver::selector::LabelSelector;
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug)]
pub struct ReplicaSetController;

/// Limit of the pods that one reconciliation creates or deletes.
const BURST: usize = 500;

impl DynamicController for ReplicaSetController {
    const NAME: &'static str = "replicaset";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::REPLICA_SET, kind::POD]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        owners(informers, &kind::REPLICA_SET, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(set) = context.informers.dynamic(&kind::REPLICA_SET).get(key) else {
            return Ok(Action::AwaitChange);
        };
        adopt(context, &set).await?;
        let pods = context.informers.dynamic(&kind::POD).controlled_by(object::uid(&set));
        if !object::is_deleting(&set) {
            scale(context, &set, &pods).await?;
        }
        let pods = context.informers.dynamic(&kind::POD).controlled_by(object::uid(&set));
        let (status, next) = status(context, &set, &pods);
        let mut new = (*set).clone();
        new["status"] = status;
        context.patch_difference_dynamic(&kind::REPLICA_SET, Part::Status, &set, &new).await?;
        Ok(next)
    }
}

/// Keys of the owners that a changed object affects: itself, its controller, or those that could adopt it.
pub(super) fn owners(
    informers: &Informers,
    owner_kind: &ResourceKind,
    kind: &ResourceKind,
    changed: &Value,
) -> Vec<Key> {
    if kind == owner_kind {
        return vec![kai_runtime::key_of(changed)];
    }
    let namespace = object::namespace(changed);
    let controller = object::meta(changed, "ownerReferences").and_then(Value::as_array);
    let controller = controller.into_iter().flatten().find(|owner| owner["controller"] == true);
    match controller {
        Some(owner) if owner["kind"] == *owner_kind.kind => {
            vec![Key::new(namespace, object::str_at(owner, "/name"))]
        }
        Some(_) => Vec::new(),
        None => {
            let candidates = informers.dynamic(owner_kind).in_namespace(namespace);
            candidates
                .iter()
                .filter(|owner| selects(owner, changed))
                .map(|owner| kai_runtime::key_of(owner))
                .collect()
        }
    }
}

pub(super) fn selects(owner: &Value, object: &Value) -> bool {
    let selector = owner.pointer("/spec/selector").unwrap_or(&Value::Null);
    LabelSelector::from_object(selector)
        .is_ok_and(|selector| !selector.is_everything() && selector.matches_object(object))
}

/// Adopts pods that match the selector and have no controller.
pub(super) async fn adopt(context: &Context, owner: &Value) -> Result<()> {
    if object::is_deleting(owner) {
        return Ok(());
    }
    for found in context.informers.dynamic(&kind::POD).controlled_by("") {
        let same = object::namespace(&found) == object::namespace(owner);
        if !same || !is_active(&found) || !selects(owner, &found) {
            continue;
        }
        let mut adopted = (*found).clone();
        let references = object::meta_mut(&mut adopted).entry("ownerReferences").or_insert_with(|| json!([]));
        if let Some(references) = references.as_array_mut() {
            references.push(owner_reference(owner));
        }
        context.patch_difference_dynamic(&kind::POD, Part::Main, &found, &adopted).await?;
    }
    Ok(())
}

async fn scale(context: &Context, set: &Value, pods: &[Arc<Value>]) -> Result<()> {
    let mut active: Vec<&Value> = pods.iter().map(|pod| &**pod).filter(|pod| is_active(pod)).collect();
    let wanted = usize::try_from(int_at(set, "/spec/replicas", 1)).unwrap_or(0);
    for _ in active.len()..wanted.min(active.len() + BURST) {
        let new = pod::from_template(set, &set["spec"]["template"]);
        pod::create(context, set, &new).await?;
    }
    if active.len() > wanted {
        pod::sort_by_deletion_cost(&mut active);
        for pod in active.iter().take((active.len() - wanted).min(BURST)) {
            pod::delete(context, set, pod).await?;
        }
    }
    Ok(())
}

fn status(context: &Context, set: &Value, pods: &[Arc<Value>]) -> (Value, Action) {
    let min_ready = int_at(set, "/spec/minReadySeconds", 0);
    let labels = set.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let labels: Vec<(&String, &Value)> = labels.into_iter().flatten().collect();
    let (mut replicas, mut labelled, mut ready, mut available, mut terminating) = (0, 0, 0, 0, 0);
    let mut next = Action::AwaitChange;
    for pod in pods {
        if object::is_deleting(pod) && !pod::is_terminal(pod) {
            terminating += 1;
        }
        if !is_active(pod) {
            continue;
        }
        replicas += 1;
        labelled +=
            i64::from(labels.iter().all(|(name, value)| pod["metadata"]["labels"][name.as_str()] == **value));
        ready += i64::from(is_ready(pod));
        let (is_available, wait) = availability(pod, min_ready, context.clock.now());
        available += i64::from(is_available);
        next = wait.map_or(next, |wait| next.or(Action::RequeueAfter(wait)));
    }
    let mut status = json!({"replicas": replicas, "observedGeneration": object::generation(set)});
    for (field, count) in [
        ("fullyLabeledReplicas", labelled),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("terminatingReplicas", terminating),
    ] {
        if count > 0 {
            status[field] = Value::from(count);
        }
    }
    (status, next)
}

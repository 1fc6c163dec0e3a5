//! Deletes the content of a terminating namespace, then removes its finalizer.

use super::garbage_collector::discover;
use kai_object as object;
use kai_runtime::api::Result;
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::time::Duration;

/// Requeue while objects are terminating.
const REQUEUE_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct NamespaceController;

impl DynamicController for NamespaceController {
    const NAME: &'static str = "namespace";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::NAMESPACE]
    }

    fn map_to_keys(&self, _: &Informers, _: &ResourceKind, changed: &Value) -> Vec<Key> {
        vec![kai_runtime::key_of(changed)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(namespace) = context.informers.dynamic(&kind::NAMESPACE).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
        let pending = finalizers.is_some_and(|finalizers| finalizers.iter().any(|name| name == "kubernetes"));
        if !object::is_deleting(&namespace) || !pending {
            return Ok(Action::AwaitChange);
        }
        let mut remaining = 0;
        for kind in discover(&context.api).await?.into_iter().filter(|kind| kind.namespaced) {
            if context.api.list_dynamic(&kind, &key.name).await?.items.is_empty() {
                continue;
            }
            context.api.delete_collection_dynamic(&kind, &key.name).await?;
            remaining += context.api.list_dynamic(&kind, &key.name).await?.items.len();
        }
        if remaining > 0 {
            return Ok(Action::RequeueAfter(REQUEUE_AFTER));
        }
        finalize(context, &namespace).await?;
        Ok(Action::AwaitChange)
    }
}

async fn finalize(context: &Context, namespace: &Value) -> Result<()> {
    let mut new = namespace.clone();
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    let others: Vec<&Value> = finalizers.into_iter().flatten().filter(|name| *name != "kubernetes").collect();
    new["spec"]["finalizers"] = json!(others);
    let path = kind::NAMESPACE.path_of(&kai_runtime::key_of(namespace)) + "/finalize";
    match context.api.send("PUT", &path, Some(("application/json", &new))).await {
        Err(error) if error.is_not_found() => Ok(()),
        sent => sent.map(|_| ()),
    }
}

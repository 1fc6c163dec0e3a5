//! Deletes the content of a terminating namespace, then removes its finalizer.

use super::garbage_collector::discover;
use kai_object as object;
use kai_runtime::api::Result;
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};
use std::time::Duration;

/// Requeue while objects are terminating.
const REQUEUE_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct NamespaceController;

impl Controller for NamespaceController {
    const NAME: &'static str = "namespace";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::NAMESPACE]
    }

    fn wakes(&self, _: &Caches, _: &Kind, changed: &Value) -> Vec<Key> {
        vec![Key::of(changed)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(namespace) = context.caches.get(&kind::NAMESPACE, key) else { return Ok(Next::Wait) };
        let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
        let pending = finalizers.is_some_and(|finalizers| finalizers.iter().any(|name| name == "kubernetes"));
        if !object::is_deleting(&namespace) || !pending {
            return Ok(Next::Wait);
        }
        let mut remaining = 0;
        for kind in discover(&context.api).await?.into_iter().filter(|kind| kind.namespaced) {
            if context.api.list(&kind, &key.name).await?.items.is_empty() {
                continue;
            }
            context.api.delete_all(&kind, &key.name).await?;
            remaining += context.api.list(&kind, &key.name).await?.items.len();
        }
        if remaining > 0 {
            return Ok(Next::After(REQUEUE_AFTER));
        }
        finalize(context, &namespace).await?;
        Ok(Next::Wait)
    }
}

async fn finalize(context: &Context, namespace: &Value) -> Result<()> {
    let mut new = namespace.clone();
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    let others: Vec<&Value> = finalizers.into_iter().flatten().filter(|name| *name != "kubernetes").collect();
    new["spec"]["finalizers"] = json!(others);
    let path = kind::NAMESPACE.path_of(&Key::of(namespace)) + "/finalize";
    match context.api.send("PUT", &path, Some(("application/json", &new))).await {
        Err(error) if error.is_not_found() => Ok(()),
        sent => sent.map(|_| ()),
    }
}

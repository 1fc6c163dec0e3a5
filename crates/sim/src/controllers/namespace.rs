//! Empties a namespace that is to go, and lets it go when nothing is left in it.

use super::garbage::discover;
use kai_object as object;
use kai_runtime::api::Result;
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};
use std::time::Duration;

/// How long to wait for what takes its time to go.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The controller of namespaces.
#[derive(Debug)]
pub struct Namespaces;

impl Controller for Namespaces {
    const NAME: &'static str = "namespace";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::NAMESPACE]
    }

    fn wakes(&self, _: &Caches, _: &Kind, changed: &Value) -> Vec<Key> {
        vec![Key::of(changed)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(namespace) = context.caches.get(&kind::NAMESPACE, key) else { return Ok(Next::Wait) };
        let held = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
        let held = held.is_some_and(|finalizers| finalizers.iter().any(|name| name == "kubernetes"));
        if !object::is_deleting(&namespace) || !held {
            return Ok(Next::Wait);
        }
        let mut left = 0;
        for kind in discover(&context.api).await?.into_iter().filter(|kind| kind.namespaced) {
            if context.api.list(&kind, &key.name).await?.items.is_empty() {
                continue;
            }
            context.api.delete_all(&kind, &key.name).await?;
            left += context.api.list(&kind, &key.name).await?.items.len();
        }
        if left > 0 {
            return Ok(Next::After(LOOK_AGAIN));
        }
        release(context, &namespace).await?;
        Ok(Next::Wait)
    }
}

async fn release(context: &Context, namespace: &Value) -> Result<()> {
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

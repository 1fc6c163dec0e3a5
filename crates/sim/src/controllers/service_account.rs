//! Gives every namespace the service account `default`.

use kai_object as object;
use kai_runtime::api::Result;
use kai_runtime::cache::Caches;
use kai_runtime::controller::{Context, Controller, Next};
use kai_runtime::kind::{self, Key, Kind};
use serde_json::{Value, json};

/// The controller of default service accounts.
#[derive(Debug)]
pub struct ServiceAccounts;

impl Controller for ServiceAccounts {
    const NAME: &'static str = "serviceaccount";

    fn kinds(&self) -> Vec<Kind> {
        vec![kind::NAMESPACE, kind::SERVICE_ACCOUNT]
    }

    fn wakes(&self, _: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        let namespace =
            if *kind == kind::NAMESPACE { object::name(changed) } else { object::namespace(changed) };
        vec![Key::new("", namespace)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(namespace) = context.caches.get(&kind::NAMESPACE, key) else { return Ok(Next::Wait) };
        let account = Key::new(&key.name, "default");
        if object::is_deleting(&namespace) || context.caches.get(&kind::SERVICE_ACCOUNT, &account).is_some() {
            return Ok(Next::Wait);
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": key.name},
        });
        match context.create(&kind::SERVICE_ACCOUNT, &key.name, &object).await {
            // Somebody else was first, and the news are on their way.
            Err(error) if error.is_conflict() => Ok(Next::Wait),
            made => made.map(|_| Next::Wait),
        }
    }
}

//! Creates the service account `default` and the config map `kube-root-ca.crt` in every namespace.

use kai_object as object;
use kai_runtime::api::Result;
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::sync::Arc;

const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

#[derive(Debug)]
pub struct ServiceAccountController {
    authority: Option<Arc<str>>,
}

impl ServiceAccountController {
    /// `authority` is the CA certificate of the API server, where it listens on a port.
    pub fn new(authority: Option<Arc<str>>) -> Self {
        Self { authority }
    }
}

impl DynamicController for ServiceAccountController {
    const NAME: &'static str = "serviceaccount";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::NAMESPACE, kind::SERVICE_ACCOUNT, kind::CONFIG_MAP]
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::CONFIG_MAP && object::name(changed) != ROOT_CA_CONFIG_MAP {
            return Vec::new();
        }
        let namespace =
            if *kind == kind::NAMESPACE { object::name(changed) } else { object::namespace(changed) };
        vec![Key::new("", namespace)]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(namespace) = context.informers.dynamic(&kind::NAMESPACE).get(key) else {
            return Ok(Action::AwaitChange);
        };
        if object::is_deleting(&namespace) {
            return Ok(Action::AwaitChange);
        }
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": key.name},
        });
        ensure(context, &kind::SERVICE_ACCOUNT, &account).await?;
        if let Some(authority) = &self.authority {
            let bundle = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": ROOT_CA_CONFIG_MAP, "namespace": key.name}, "data": {"ca.crt": &**authority},
            });
            ensure(context, &kind::CONFIG_MAP, &bundle).await?;
        }
        Ok(Action::AwaitChange)
    }
}

async fn ensure(context: &Context, kind: &ResourceKind, object: &Value) -> Result<()> {
    if context.informers.dynamic(kind).get(&kai_runtime::key_of(object)).is_some() {
        return Ok(());
    }
    match context.create_dynamic(kind, object::namespace(object), object).await {
        // It exists already; the informer has not seen it yet.
        Err(error) if error.is_conflict() => Ok(()),
        created => created.map(|_| ()),
    }
}

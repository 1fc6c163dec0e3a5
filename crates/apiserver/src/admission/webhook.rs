//! Mutating and validating admission webhooks.
//!
//! Webhooks are called over HTTPS, or in process if a service is registered for their host ([`Webhooks::serve`]).
//! A [`WebhookTransport`], if set, carries both kinds of calls.

mod client;
mod hook;
mod match_condition;
mod pool;
mod request;
mod response;

use super::{Attributes, Operation};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::ListRange;
use crate::{object, schema, strategy};
use axum::Router;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use hook::{FailurePolicy, MatchAttributes, Webhook};
use parking_lot::RwLock;
use request::AdmissionRequest;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The API group of webhook configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// The admission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before validation; webhooks may change the object.
    Mutating,
    /// After validation; webhooks only allow or deny.
    Validating,
}

impl Phase {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// Status code and body of a webhook's response, or why there is none.
pub type WebhookResponse = Result<(u16, Bytes), String>;

/// Carries webhook calls; tests inject faults with it.
pub trait WebhookTransport: std::fmt::Debug + Send + Sync {
    /// Forwards a call to a host, or fails it. The server enforces the webhook's timeout.
    fn call<'a>(
        &'a self,
        host: &'a str,
        review: &'a Bytes,
        call: BoxFuture<'a, WebhookResponse>,
    ) -> BoxFuture<'a, WebhookResponse>;
}

/// Cached webhook configurations and in-process services.
#[derive(Debug, Default)]
pub struct Webhooks {
    transport: OnceLock<Arc<dyn WebhookTransport>>,
    mutating: RwLock<ParsedWebhooks>,
    validating: RwLock<ParsedWebhooks>,
    services: RwLock<FxHashMap<String, Router>>,
}

pub(super) fn any(core: &Core, phase: Phase) -> bool {
    core.store.len(core.builtin(GROUP, phase.plural()).table) > 0
}

/// Parsed webhooks and the revisions of the configurations they come from.
#[derive(Debug, Default)]
struct ParsedWebhooks {
    versions: Vec<(Arc<str>, u64)>,
    hooks: Arc<Vec<Arc<Webhook>>>,
}

impl Webhooks {
    /// Serves calls to `https://host/…` in process. The host of a Service reference is `name.namespace.svc`.
    pub fn serve(&self, host: &str, service: Router) {
        self.services.write().insert(host.to_owned(), service);
    }

    /// Sends all calls through `transport`. Only the first call has an effect.
    pub fn set_transport(&self, transport: Arc<dyn WebhookTransport>) {
        let _ = self.transport.set(transport);
    }

    fn service(&self, host: &str) -> Option<Router> {
        self.services.read().get(host).cloned()
    }

    /// All webhooks ordered by the names of their configurations; parsed again only after a change.
    fn all(&self, core: &Core, phase: Phase) -> Arc<Vec<Arc<Webhook>>> {
        let table = core.builtin(GROUP, phase.plural()).table;
        let records = core.store.list(table, &ListRange::default(), |_| true).map(|page| page.records);
        let records = records.unwrap_or_default();
        let versions: Vec<_> = records.iter().map(|one| (Arc::clone(&one.key), one.revision)).collect();
        let known = match phase {
            Phase::Mutating => &self.mutating,
            Phase::Validating => &self.validating,
        };
        {
            let known = known.read();
            if known.versions == versions {
                return Arc::clone(&known.hooks);
            }
        }
        let hooks = records.iter().flat_map(|record| {
            let configuration = record.value();
            let hooks = configuration.get("webhooks").and_then(Value::as_array).cloned();
            hooks.into_iter().flatten().map(|hook| Arc::new(Webhook::of(&hook)))
        });
        let hooks: Arc<Vec<_>> = Arc::new(hooks.collect());
        *known.write() = ParsedWebhooks { versions, hooks: Arc::clone(&hooks) };
        hooks
    }
}

/// The webhooks that match a request. One whose condition fails is handled by its `failurePolicy`.
fn matching(
    core: &Core,
    phase: Phase,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<Arc<Webhook>>, StatusError> {
    let resource = &*attributes.call.resource;
    // Webhooks are not called for webhook configurations, so that a broken one can be repaired.
    let configures = &*resource.group == GROUP;
    // Webhooks were called for the eviction, so they are not called for the delete that follows.
    let evicts = attributes.operation == Operation::Delete && attributes.call.subresource.is_some();
    if configures || evicts {
        return Ok(Vec::new());
    }
    let input = MatchAttributes::of(core, attributes, object, old);
    let mut found = Vec::new();
    for hook in core.webhooks.all(core, phase).iter().filter(|hook| hook.selects(&input)) {
        if applies(hook, attributes, object, old)? {
            found.push(Arc::clone(hook));
        }
    }
    Ok(found)
}

fn applies(
    hook: &Webhook,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, StatusError> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let request = AdmissionRequest::new(attributes, object, old, String::new());
    match (match_condition::hold(&hook.conditions, &request), hook.policy) {
        (Ok(holds), _) => Ok(holds),
        (Err(_), FailurePolicy::Ignore) => Ok(false),
        (Err(why), FailurePolicy::Fail) => {
            let name = object.or(old).map(object::name).unwrap_or_default();
            Err(StatusError::forbidden(attributes.call.resource.qualified_resource(), name, &why))
        }
    }
}

/// Calls the mutating webhooks sequentially; returns whether the object changed.
pub(super) async fn mutate(
    core: &Core,
    attributes: &Attributes<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<bool, StatusError> {
    let mut called: Vec<Arc<Webhook>> = Vec::new();
    let mut again: Vec<Arc<Webhook>> = Vec::new();
    let mut any_change = false;
    for hook in core.webhooks.all(core, Phase::Mutating).iter() {
        // Each webhook is matched against the object as the previous ones left it.
        let one = matching(core, Phase::Mutating, attributes, object.as_deref(), old)?;
        if !one.iter().any(|wanted| Arc::ptr_eq(wanted, hook)) {
            continue;
        }
        if call_mutating(core, hook, attributes, object.as_deref_mut(), old, warnings).await? {
            any_change = true;
            again.extend(called.iter().filter(|earlier| earlier.again).cloned());
        }
        called.push(Arc::clone(hook));
    }
    again.dedup_by(|a, b| Arc::ptr_eq(a, b));
    for hook in &again {
        any_change |= call_mutating(core, hook, attributes, object.as_deref_mut(), old, warnings).await?;
    }
    Ok(any_change)
}

async fn call_mutating(
    core: &Core,
    hook: &Webhook,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<bool, StatusError> {
    let request = AdmissionRequest::new(attributes, object.as_deref(), old, core.ids.uid());
    let response = match client::call(core, hook, &request).await {
        Ok(response) => response,
        Err(why) => return apply_failure_policy(hook, &why).map(|()| false),
    };
    warnings.extend(response.warnings());
    response.check(&hook.name).map_err(|failure| failure.warn(warnings.clone()))?;
    let (Some(object), Some(patch)) = (object, response.patch(&hook.name)?) else { return Ok(false) };
    let new = response::patched(object, &patch)?;
    if new == *object {
        return Ok(false);
    }
    *object = new;
    normalize(core, attributes, object)?;
    Ok(true)
}

/// Applies defaulting and pruning to an object that a webhook changed.
fn normalize(core: &Core, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), StatusError> {
    let resource = &*attributes.call.resource;
    let own_kind = attributes.call.subresource.and_then(crate::registry::Subresource::own_kind);
    if own_kind.is_some() {
        return Ok(());
    }
    let schema = resource.schema();
    if resource.custom().is_some() {
        schema::prune(schema, object);
        schema::default(schema, object);
    } else {
        schema::decode(schema, object).map_err(StatusError::internal)?;
        schema::normalize(schema, object);
        strategy::default(core, resource, object);
    }
    Ok(())
}

/// Calls the validating webhooks concurrently; of several denials the first in configuration order is returned.
pub(super) async fn validate(
    core: &Core,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let hooks = matching(core, Phase::Validating, attributes, object, old)?;
    let requests: Vec<_> =
        hooks.iter().map(|_| AdmissionRequest::new(attributes, object, old, core.ids.uid())).collect();
    let responses = hooks.iter().zip(&requests).map(|(hook, request)| client::call(core, hook, request));
    let responses = join_all(responses).await;
    for (hook, response) in hooks.iter().zip(responses) {
        match response {
            Ok(response) => {
                warnings.extend(response.warnings());
                response.check(&hook.name).map_err(|failure| failure.warn(warnings.clone()))?;
            }
            Err(why) => apply_failure_policy(hook, &why)?,
        }
    }
    Ok(())
}

fn apply_failure_policy(hook: &Webhook, why: &str) -> Result<(), StatusError> {
    match hook.policy {
        FailurePolicy::Fail => {
            Err(StatusError::internal(format!("failed calling webhook \"{}\": {why}", hook.name)))
        }
        FailurePolicy::Ignore => {
            tracing::warn!(webhook = %hook.name, why, "webhook call failed; ignored by its failurePolicy");
            Ok(())
        }
    }
}

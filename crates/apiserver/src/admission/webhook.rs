//! Mutating and validating admission webhooks.
//!
//! Webhooks are called over HTTPS, or in process if a service is registered for their host ([`Webhooks::serve`]).
//! A [`WebhookTransport`], if set, carries both kinds of calls.

mod answer;
mod client;
mod condition;
mod hook;
mod pool;
mod review;

use super::{Operation, Review};
use crate::failure::Failure;
use crate::server::Core;
use crate::store::Wanted;
use crate::{object, schema, strategy};
use axum::Router;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use hook::{Hook, Policy, Subject};
use parking_lot::RwLock;
use review::Asked;
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
pub type Answered = Result<(u16, Bytes), String>;

/// Carries webhook calls; tests inject faults with it.
pub trait Way: std::fmt::Debug + Send + Sync {
    /// Forwards a call to a host, or fails it. The server enforces the webhook's timeout.
    fn pass<'a>(
        &'a self,
        host: &'a str,
        asked: &'a Bytes,
        call: BoxFuture<'a, Answered>,
    ) -> BoxFuture<'a, Answered>;
}

/// Cached webhook configurations and in-process services.
#[derive(Debug, Default)]
pub struct Hooks {
    way: OnceLock<Arc<dyn Way>>,
    mutating: RwLock<Known>,
    validating: RwLock<Known>,
    services: RwLock<FxHashMap<String, Router>>,
}

pub(super) fn any(core: &Core, phase: Phase) -> bool {
    core.store.len(core.builtin(GROUP, phase.plural()).table) > 0
}

/// Parsed webhooks and the revisions of the configurations they come from.
#[derive(Debug, Default)]
struct Known {
    versions: Vec<(Arc<str>, u64)>,
    hooks: Arc<Vec<Arc<Hook>>>,
}

impl Hooks {
    /// Serves calls to `https://host/…` in process. The host of a Service reference is `name.namespace.svc`.
    pub fn serve(&self, host: &str, service: Router) {
        self.services.write().insert(host.to_owned(), service);
    }

    /// Sends all calls through `transport`. Only the first call has an effect.
    pub fn go_by(&self, way: Arc<dyn Way>) {
        let _ = self.way.set(way);
    }

    fn service(&self, host: &str) -> Option<Router> {
        self.services.read().get(host).cloned()
    }

    /// All webhooks ordered by the names of their configurations; parsed again only after a change.
    fn all(&self, core: &Core, phase: Phase) -> Arc<Vec<Arc<Hook>>> {
        let table = core.builtin(GROUP, phase.plural()).table;
        let records = core.store.list(table, &Wanted::default(), |_| true).map(|page| page.records);
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
            hooks.into_iter().flatten().map(|hook| Arc::new(Hook::of(&hook)))
        });
        let hooks: Arc<Vec<_>> = Arc::new(hooks.collect());
        *known.write() = Known { versions, hooks: Arc::clone(&hooks) };
        hooks
    }
}

/// The webhooks that match a request. One whose condition fails is handled by its `failurePolicy`.
fn matching(
    core: &Core,
    phase: Phase,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<Arc<Hook>>, Failure> {
    let resource = &*review.call.resource;
    // Webhooks are not called for webhook configurations, so that a broken one can be repaired.
    let configures = &*resource.group == GROUP;
    // Webhooks were called for the eviction, so they are not called for the delete that follows.
    let evicts = review.operation == Operation::Delete && review.call.subresource.is_some();
    if configures || evicts {
        return Ok(Vec::new());
    }
    let subject = Subject::of(core, review, object, old);
    let mut found = Vec::new();
    for hook in core.hooks.all(core, phase).iter().filter(|hook| hook.selects(&subject)) {
        if applies(hook, review, object, old)? {
            found.push(Arc::clone(hook));
        }
    }
    Ok(found)
}

fn applies(
    hook: &Hook,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, Failure> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let asked = Asked::new(review, object, old, String::new());
    match (condition::hold(&hook.conditions, &asked), hook.policy) {
        (Ok(holds), _) => Ok(holds),
        (Err(_), Policy::Ignore) => Ok(false),
        (Err(why), Policy::Fail) => {
            let name = object.or(old).map(object::name).unwrap_or_default();
            Err(Failure::forbidden(review.call.resource.about(), name, &why))
        }
    }
}

/// Calls the mutating webhooks sequentially; returns whether the object changed.
pub(super) async fn mutate(
    core: &Core,
    review: &Review<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<bool, Failure> {
    let mut asked: Vec<Arc<Hook>> = Vec::new();
    let mut again: Vec<Arc<Hook>> = Vec::new();
    let mut any_change = false;
    for hook in core.hooks.all(core, Phase::Mutating).iter() {
        // Each webhook is matched against the object as the previous ones left it.
        let one = matching(core, Phase::Mutating, review, object.as_deref(), old)?;
        if !one.iter().any(|wanted| Arc::ptr_eq(wanted, hook)) {
            continue;
        }
        if ask_to_change(core, hook, review, object.as_deref_mut(), old, warnings).await? {
            any_change = true;
            again.extend(asked.iter().filter(|earlier| earlier.again).cloned());
        }
        asked.push(Arc::clone(hook));
    }
    again.dedup_by(|a, b| Arc::ptr_eq(a, b));
    for hook in &again {
        any_change |= ask_to_change(core, hook, review, object.as_deref_mut(), old, warnings).await?;
    }
    Ok(any_change)
}

async fn ask_to_change(
    core: &Core,
    hook: &Hook,
    review: &Review<'_>,
    object: Option<&mut Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<bool, Failure> {
    let asked = Asked::new(review, object.as_deref(), old, core.identities.uid());
    let answer = match client::ask(core, hook, &asked).await {
        Ok(answer) => answer,
        Err(why) => return refuse_unless_ignored(hook, &why).map(|()| false),
    };
    warnings.extend(answer.warnings());
    answer.check(&hook.name).map_err(|failure| failure.warn(warnings.clone()))?;
    let (Some(object), Some(patch)) = (object, answer.patch(&hook.name)?) else { return Ok(false) };
    let new = answer::patched(object, &patch)?;
    if new == *object {
        return Ok(false);
    }
    *object = new;
    settle(core, review, object)?;
    Ok(true)
}

/// Applies defaulting and pruning to an object that a webhook changed.
fn settle(core: &Core, review: &Review<'_>, object: &mut Value) -> Result<(), Failure> {
    let resource = &*review.call.resource;
    let own_kind = review.call.subresource.and_then(crate::kinds::Subresource::own_kind);
    if own_kind.is_some() {
        return Ok(());
    }
    let schema = resource.schema();
    if resource.custom().is_some() {
        schema::prune(schema, object);
        schema::default(schema, object);
    } else {
        schema::decode(schema, object).map_err(Failure::internal)?;
        schema::normalize(schema, object);
        strategy::default(core, resource, object);
    }
    Ok(())
}

/// Calls the validating webhooks concurrently; of several denials the first in configuration order is returned.
pub(super) async fn validate(
    core: &Core,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let hooks = matching(core, Phase::Validating, review, object, old)?;
    let asked: Vec<_> =
        hooks.iter().map(|_| Asked::new(review, object, old, core.identities.uid())).collect();
    let answers = hooks.iter().zip(&asked).map(|(hook, asked)| client::ask(core, hook, asked));
    let answers = join_all(answers).await;
    for (hook, answer) in hooks.iter().zip(answers) {
        match answer {
            Ok(answer) => {
                warnings.extend(answer.warnings());
                answer.check(&hook.name).map_err(|failure| failure.warn(warnings.clone()))?;
            }
            Err(why) => refuse_unless_ignored(hook, &why)?,
        }
    }
    Ok(())
}

fn refuse_unless_ignored(hook: &Hook, why: &str) -> Result<(), Failure> {
    match hook.policy {
        Policy::Fail => Err(Failure::internal(format!("failed calling webhook \"{}\": {why}", hook.name))),
        Policy::Ignore => {
            tracing::warn!(webhook = %hook.name, why, "a webhook failed and is ignored");
            Ok(())
        }
    }
}

//! Admission webhooks: who is asked about a write, and what becomes of the answers.
//!
//! Webhooks are asked by HTTPS, or in this process where a service was registered for their host ([`Hooks::serve`]).
//! Either way a call goes by whatever [`Way`] there is.

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
use review::Asked;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The API group of configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// When webhooks are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the object is validated; they may change it.
    Mutating,
    /// After that.
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

/// What came of a call: a status and a body, or why there is none.
pub type Answered = Result<(u16, Bytes), String>;

/// What lies between the server and webhooks: for tests that make it bad.
pub trait Way: std::fmt::Debug + Send + Sync {
    /// Makes a call to a host, or does something worse. The server waits no longer than the webhook may take.
    fn pass<'a>(
        &'a self,
        host: &'a str,
        asked: &'a Bytes,
        call: BoxFuture<'a, Answered>,
    ) -> BoxFuture<'a, Answered>;
}

/// Configurations as they were read last, and services in this process.
#[derive(Debug, Default)]
pub struct Hooks {
    way: OnceLock<Arc<dyn Way>>,
    mutating: RwLock<Known>,
    validating: RwLock<Known>,
    services: RwLock<FxHashMap<String, Router>>,
}

/// Whether there is any configuration.
pub(super) fn any(core: &Core, phase: Phase) -> bool {
    core.store.len(core.builtin(GROUP, phase.plural()).table) > 0
}

/// Hooks and the versions of the configurations they come from.
#[derive(Debug, Default)]
struct Known {
    versions: Vec<(Arc<str>, u64)>,
    hooks: Arc<Vec<Arc<Hook>>>,
}

impl Hooks {
    /// Answers calls to `https://host/…` in this process. A service reference has the host `name.namespace.svc`.
    pub fn serve(&self, host: &str, service: Router) {
        self.services.write().unwrap_or_else(PoisonError::into_inner).insert(host.to_owned(), service);
    }

    /// Sends all calls by this way. The first one that is set stays.
    pub fn go_by(&self, way: Arc<dyn Way>) {
        // A second way has nothing to do.
        let _ = self.way.set(way);
    }

    fn service(&self, host: &str) -> Option<Router> {
        self.services.read().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    /// All hooks, by the names of their configurations; read again only after a change.
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
            let known = known.read().unwrap_or_else(PoisonError::into_inner);
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
        *known.write().unwrap_or_else(PoisonError::into_inner) =
            Known { versions, hooks: Arc::clone(&hooks) };
        hooks
    }
}

/// The hooks that want to know of a write. Those that cannot tell because a condition fails count as their policy says.
fn matching(
    core: &Core,
    phase: Phase,
    review: &Review<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<Arc<Hook>>, Failure> {
    let resource = &*review.call.resource;
    // Nobody may lock everybody out of repairing the configurations themselves.
    let configures = &*resource.group == GROUP;
    // Whoever was asked about an eviction is not asked about the deletion that follows.
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

/// Asks the mutating webhooks one after the other; tells whether the object changed.
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
        // Whether a hook is asked depends on what those before it did.
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

/// Brings an object that a webhook changed into the form of its kind again.
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

/// Asks the validating webhooks, all at once; of several refusals the first in the order of configurations counts.
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

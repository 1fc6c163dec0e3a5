//! Looks after bind requests: takes up what is open, writes down what became of it, and tries again where it may.
//!
//! A request counts as failed only once the server has confirmed that its pod is not bound and what was done for it has
//! been undone.

use crate::attempt::{self, Outcome};
use crate::bind::{Attempt, Binder};
use crate::bind_target::BindTarget;
use crate::concurrency_limit::Permit;
use crate::error::{Doing, Error, Result};
use crate::informers::BIND_REQUEST;
use crate::plugin::Plugin;
use crate::report;
use futures::FutureExt as _;
use kai_api::BindRequestStatus;
use kai_object as object;
use kai_runtime::api::{self, DeleteOptions, Part};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::event::Recorder;
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often an attempt begins anew because the server did not answer or was busy, before that counts as a failure.
const INTERRUPTIONS_MAX: u32 = 4;
/// How long the server may take to answer all that is asked of it in an attempt, besides what is waited for.
const ANSWERS_MAX: Duration = Duration::from_mins(2);
/// How many requests may wait for something for each that may be worked on.
const WAITING_EACH: usize = 32;

/// The controller of bind requests.
#[derive(Debug)]
pub(crate) struct BindRequestController {
    pub(crate) binder: Arc<Binder>,
    pub(crate) recorder: Recorder,
    pub(crate) limit: Arc<Semaphore>,
    /// What is remembered of requests between their attempts.
    pub(crate) pending: Mutex<BTreeMap<Key, Pending>>,
}

/// What is remembered of a request between its attempts; forgetting it does no harm.
#[derive(Debug)]
pub(crate) struct Pending {
    uid: String,
    interruptions: u32,
    /// Not to be tried before.
    due: Instant,
}

/// How an attempt ended.
enum Ended {
    /// The pod is on a node.
    Bound(Value),
    /// The pod cannot be bound as asked.
    Failed(Error, Option<Value>),
}

impl DynamicController for BindRequestController {
    const NAME: &'static str = "bind-requests";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![BIND_REQUEST, kind::POD, kind::NODE]
    }

    fn workers(&self) -> usize {
        self.binder.options.concurrent_max.max(1) * WAITING_EACH
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == BIND_REQUEST { vec![Key::of(changed)] } else { Vec::new() }
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let Some(request) = context.informers.dynamic(&BIND_REQUEST).get(key) else {
            self.pending().remove(key);
            return Ok(Action::AwaitChange);
        };
        let target = BindTarget::of(&request);
        if object::is_deleting(&request) || !attempt::is_open(&target.status, target.limit) {
            self.pending().remove(key);
            return Ok(Action::AwaitChange);
        }
        if let Some(wait) = self.pause_left(&target) {
            return Ok(Action::RequeueAfter(wait));
        }
        let mut permit = Permit::acquire(&self.limit).await;
        // Boxed: an attempt is large, and there may be many.
        let attempt = AssertUnwindSafe(Box::pin(self.try_once(&target, &mut permit))).catch_unwind();
        let limit = self.longest(&target);
        let tried = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(tried)) => tried,
            Ok(Err(panic)) => Ok(Ended::Failed(Error::Panic(panic_text(&*panic)), None)),
            Err(_) => Err(Error::Timeout { step: "binding the pod", limit }),
        };
        let late = |_| Err(Error::Timeout { step: "writing down what became of it", limit: ANSWERS_MAX });
        let concluded = match tried {
            Ok(ended) => {
                let concluded = tokio::time::timeout(ANSWERS_MAX, self.conclude(&target, ended)).await;
                concluded.map_or_else(late, |concluded| concluded.doing(|| format!("conclude `{key}`")))
            }
            Err(error) => Err(error),
        };
        Ok(concluded.unwrap_or_else(|error| Action::RequeueAfter(self.interrupted(&target, &error))))
    }
}

impl BindRequestController {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<Key, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause_left(&self, target: &BindTarget) -> Option<Duration> {
        let pending = self.pending();
        let pending = pending.get(&target.key).filter(|pending| pending.uid == target.uid)?;
        let left = pending.due.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn interruptions(&self, target: &BindTarget) -> u32 {
        let pending = self.pending();
        let pending = pending.get(&target.key).filter(|pending| pending.uid == target.uid);
        pending.map_or(0, |pending| pending.interruptions)
    }

    fn remember(&self, target: &BindTarget, interruptions: u32, wait: Duration) {
        let pending = Pending { uid: target.uid.clone(), interruptions, due: Instant::now() + wait };
        self.pending().insert(target.key.clone(), pending);
    }

    /// How long an attempt may take, so that a server that never answers holds up nothing for ever.
    fn longest(&self, target: &BindTarget) -> Duration {
        let options = &self.binder.options;
        let groups = u32::try_from(target.groups.len()).unwrap_or(u32::MAX);
        let plugins = options.plugins.iter().map(|plugin| match plugin {
            Plugin::VolumeBinding { timeout } | Plugin::DynamicResources { timeout } => *timeout,
            Plugin::GpuSharing { .. } | Plugin::HamiCore => Duration::ZERO,
        });
        // Others may have to be waited for that reserve the same GPUs.
        let reserving = options.reservation_timeout.saturating_mul(groups.saturating_mul(8));
        plugins.fold(ANSWERS_MAX.saturating_add(reserving), Duration::saturating_add)
    }

    /// Notes that an attempt did not come to an end, and says how long to wait before the next.
    fn interrupted(&self, target: &BindTarget, error: &Error) -> Duration {
        let interruptions = self.interruptions(target) + 1;
        let options = &self.binder.options;
        let wait = options.retry_delay.saturating_mul(1 << (interruptions - 1).min(16));
        let wait = wait.min(options.retry_delay_max);
        tracing::warn!(request = %target.key, error = error as &dyn std::error::Error, "binding was interrupted");
        self.remember(target, interruptions, wait);
        wait
    }

    /// One attempt. An error means that nothing is known for sure, and that the attempt is to begin anew.
    async fn try_once(&self, target: &BindTarget, permit: &mut Permit) -> Result<Ended> {
        let pod = match self.find_pod(target).await {
            Ok(pod) => pod,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return Ok(Ended::Failed(error, None)),
        };
        if is_bound(&pod) {
            return Ok(Ended::Bound(pod));
        }
        let node = match self.find_node(target).await {
            Ok(node) => node,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return Ok(Ended::Failed(error, Some(pod))),
        };
        let mut attempt = Attempt::new(&self.binder, target, pod.clone(), &node);
        let Err(error) = attempt.run(permit).await else { return Ok(Ended::Bound(pod)) };
        // The answer to the binding may be what got lost, or somebody else bound the pod.
        match self.live_pod(target).await {
            Ok(live) if is_bound(&live) => return Ok(Ended::Bound(pod)),
            Err(failed) if failed.is_transient() => return Err(failed),
            Ok(_) | Err(_) => {}
        }
        if error.is_transient() && self.interruptions(target) < INTERRUPTIONS_MAX {
            return Err(error);
        }
        match attempt.undo(permit).await {
            Err(failed) if failed.is_transient() && self.interruptions(target) < INTERRUPTIONS_MAX => {
                return Err(failed);
            }
            Err(failed) => {
                let failed = &failed as &dyn std::error::Error;
                tracing::error!(request = %target.key, error = failed, "a failed binding was not undone");
            }
            Ok(()) => {}
        }
        Ok(Ended::Failed(error, Some(pod)))
    }

    /// The pod that the request is about. What the watch has not told yet is asked for.
    async fn find_pod(&self, target: &BindTarget) -> Result<Value> {
        let known = self.binder.context.informers.dynamic(&kind::POD).get(&target.pod);
        let is_it = |pod: &Value| target.pod_uid.as_ref().is_none_or(|uid| uid == object::uid(pod));
        if let Some(known) = known.filter(|pod| is_it(pod)) {
            return Ok((*known).clone());
        }
        self.live_pod(target).await
    }

    async fn live_pod(&self, target: &BindTarget) -> Result<Value> {
        let missing = || Error::Missing { kind: "pod", name: target.pod.to_string() };
        let context = &self.binder.context;
        let pod = match context.api.get_dynamic(&kind::POD, &target.pod).await {
            Err(error) if error.is_not_found() => return Err(missing()),
            pod => pod.doing(|| format!("read pod `{}`", target.pod))?,
        };
        context.informers.update_dynamic(&kind::POD, &pod);
        // Another pod of the same name is not the one that the node was chosen for.
        let is_it = target.pod_uid.as_ref().is_none_or(|uid| uid == object::uid(&pod));
        if is_it { Ok(pod) } else { Err(missing()) }
    }

    async fn find_node(&self, target: &BindTarget) -> Result<Arc<Value>> {
        let key = Key::new("", &target.node);
        let context = &self.binder.context;
        if let Some(known) = context.informers.dynamic(&kind::NODE).get(&key) {
            return Ok(known);
        }
        match context.api.get_dynamic(&kind::NODE, &key).await {
            Err(error) if error.is_not_found() => {
                Err(Error::Missing { kind: "node", name: target.node.clone() })
            }
            node => node.map(Arc::new).doing(|| format!("read node `{}`", target.node)),
        }
    }

    /// Writes down what became of an attempt.
    async fn conclude(&self, target: &BindTarget, ended: Ended) -> api::Result<Action> {
        let (outcome, told) = match ended {
            Ended::Bound(pod) => {
                let told = report::bound(&self.binder, &self.recorder, target, &pod).await;
                (Ok(()), told)
            }
            Ended::Failed(error, pod) => {
                let text = error.to_string();
                tracing::info!(request = %target.key, node = %target.node, error = text, "binding failed");
                let told = match &pod {
                    Some(pod) => report::failed(&self.binder, &self.recorder, target, pod, &text).await,
                    None => Ok(()),
                };
                if matches!(error, Error::NoGroups) {
                    return self.withdraw(target).await;
                }
                (Err(text), told)
            }
        };
        if let Err(error) = told {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(request = %target.key, error, "the condition of the pod was not written");
        }
        let outcome = match &outcome {
            Ok(()) => Outcome::Bound,
            Err(text) => Outcome::Failed(text),
        };
        let longest = self.binder.options.retry_delay_max;
        let after = attempt::after(&target.status, target.limit, outcome, longest);
        self.remember(target, 0, after.retry.unwrap_or_default());
        self.write_status(target, &after.status).await?;
        Ok(after.retry.map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// A request that makes no sense goes.
    async fn withdraw(&self, target: &BindTarget) -> api::Result<Action> {
        let how = DeleteOptions { uid: Some(target.uid.clone()), ..DeleteOptions::default() };
        match self.binder.context.api.delete_dynamic(&BIND_REQUEST, &target.key, &how).await {
            Err(error) if error.is_not_found() => Ok(Action::AwaitChange),
            deleted => deleted.map(|_| Action::AwaitChange),
        }
    }

    async fn write_status(&self, target: &BindTarget, status: &BindRequestStatus) -> api::Result<()> {
        let mut changes = json!({"phase": status.phase});
        if status.reason != target.status.reason {
            let reason = status.reason.as_str();
            changes["reason"] = if reason.is_empty() { Value::Null } else { Value::from(reason) };
        }
        if status.failed_attempts != target.status.failed_attempts {
            changes["failedAttempts"] = json!(status.failed_attempts);
        }
        let context = &self.binder.context;
        let patch = json!({"metadata": {"uid": target.uid}, "status": changes});
        match context.api.patch_dynamic(&BIND_REQUEST, &target.key, Part::Status, &patch).await {
            Ok(written) => {
                context.informers.update_dynamic(&BIND_REQUEST, &written);
                Ok(())
            }
            // It was withdrawn. One that was replaced by another of its name is a conflict, which ends when the watch
            // has told so.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_bound(pod: &Value) -> bool {
    !object::str_at(pod, "/spec/nodeName").is_empty()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason given".to_owned())
}

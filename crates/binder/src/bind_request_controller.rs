//! Reconciles BindRequests: runs bind attempts for open requests, writes their status, and retries with backoff.
//!
//! A request fails only after the API server has confirmed that its pod is not bound, and after the rollback.

use crate::attempt::{self, Outcome};
use crate::bind::{Attempt, Binder};
use crate::bind_target::{BindTarget, InvalidRequest, StoredRequest};
use crate::concurrency_limit::Permit;
use crate::error::{ApiContext as _, Error, Result};
use crate::objects::{is_bound, uid};
use crate::plugin::{Plugin, panic_text};
use crate::report;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kai_api::{BindRequest, BindRequestStatus};
use kai_runtime::api::{self, DeleteOptions, Part};
use kai_runtime::backoff::BackoffPolicy;
use kai_runtime::controller::{Action, Context, Controller, Watch};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::{Key, ResourceKind};
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often an attempt is repeated after transient errors of the API server, before they count as a failed attempt.
const INTERRUPTIONS_MAX: u32 = 4;
/// Time limit for the API requests of an attempt, besides its waits.
const REQUESTS_TIMEOUT: Duration = Duration::from_mins(2);
/// When the pod of a succeeded request is read that the informer has unbound: the informer can be late.
const UNBOUND_MAX: Duration = Duration::from_secs(10);
/// Workers for each concurrent attempt: most workers wait for volumes or reservations.
const WORKERS_PER_ATTEMPT: usize = 32;

#[derive(Debug)]
pub(crate) struct BindRequestController {
    pub(crate) binder: Arc<Binder>,
    pub(crate) recorder: Recorder,
    pub(crate) limit: Arc<Semaphore>,
    pub(crate) pending: Mutex<BTreeMap<Key, Pending>>,
    /// Since when the pods of succeeded requests are unbound, with the uid of the request.
    pub(crate) unbound: Mutex<BTreeMap<Key, (String, Instant)>>,
}

/// State of a request between attempts. It is only an optimisation: the status of the request has what must survive.
#[derive(Debug)]
pub(crate) struct Pending {
    uid: String,
    interruptions: u32,
    not_before: Instant,
}

enum Unbound {
    No,
    /// It is read after this time.
    Perhaps(Duration),
    Yes,
}

enum AttemptResult {
    Bound(Pod),
    Failed(Error, Option<Pod>),
}

impl Controller for BindRequestController {
    /// As KAI's controller is called in metrics.
    const NAME: &'static str = "bindrequest";

    fn workers(&self) -> usize {
        self.binder.options.concurrent_max.max(1) * WORKERS_PER_ATTEMPT
    }

    fn watches(&self) -> Vec<Watch<Self>> {
        vec![
            Watch::of::<StoredRequest>(ResourceKind::of::<BindRequest>(), |_, _, request| {
                vec![Arc::new(request.key())]
            }),
            // These trigger nothing, but an attempt reads them: it waits for the first list.
            Watch::typed::<Pod>(|_, _, _| Vec::new()),
            Watch::typed::<Node>(|_, _, _| Vec::new()),
            Watch::typed::<PersistentVolume>(|_, _, _| Vec::new()),
        ]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let request = context.informers.get::<StoredRequest>(key);
        let Some(request) = request.filter(|request| !request.is_terminating()) else {
            self.pending.lock().remove(key);
            self.unbound.lock().remove(key);
            return Ok(Action::AwaitChange);
        };
        let target = match &request.target {
            Ok(target) => Arc::clone(target),
            Err(invalid) => return self.report_invalid(&request, invalid).await,
        };
        if !attempt::is_open(&target.status, target.spec.backoff_limit) {
            self.pending.lock().remove(key);
            match self.unbound_pod(&target).await {
                Unbound::No => return Ok(Action::AwaitChange),
                Unbound::Perhaps(delay) => return Ok(Action::RequeueAfter(delay)),
                Unbound::Yes => {}
            }
        }
        if let Some(delay) = self.remaining_delay(&target) {
            return Ok(Action::RequeueAfter(delay));
        }
        let mut permit = Permit::acquire(&self.limit).await;
        // Boxed: the future of an attempt is large, and there may be many.
        let attempt = AssertUnwindSafe(Box::pin(self.attempt(&target, &mut permit))).catch_unwind();
        let limit = self.attempt_timeout(&target);
        let attempted = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(attempted)) => attempted,
            Ok(Err(panic)) => Ok(AttemptResult::Failed(Error::Panic(panic_text(&*panic)), None)),
            Err(_) => Err(Error::Timeout { step: "binding the pod", limit }),
        };
        let late = |_| Err(Error::Timeout { step: "writing the result", limit: REQUESTS_TIMEOUT });
        let concluded = match attempted {
            Ok(result) => {
                let concluded = tokio::time::timeout(REQUESTS_TIMEOUT, self.conclude(&target, result)).await;
                concluded.map_or_else(late, |done| done.during(|| format!("write the result of `{key}`")))
            }
            Err(error) => Err(error),
        };
        Ok(concluded.unwrap_or_else(|error| Action::RequeueAfter(self.interrupted(&target, &error))))
    }
}

impl BindRequestController {
    /// Whether the pod of a succeeded request is not bound, although it has no other way to be: its status is not the
    /// binder's, or is older than what a restored server has. The pod would wait for ever.
    async fn unbound_pod(&self, target: &BindTarget) -> Unbound {
        let known = self.binder.context.informers.get::<Pod>(&target.pod);
        let is_waiting =
            |pod: &Pod| !is_bound(pod) && target.pod_uid.as_ref().is_none_or(|known| known == uid(pod));
        if target.status.phase != BindRequestStatus::SUCCEEDED || !known.is_some_and(|pod| is_waiting(&pod)) {
            self.unbound.lock().remove(&target.key);
            return Unbound::No;
        }
        let since = {
            let mut unbound = self.unbound.lock();
            let known =
                unbound.get(&target.key).filter(|(uid, _)| *uid == target.uid).map(|(_, since)| *since);
            let now = Instant::now();
            known.unwrap_or_else(|| {
                unbound.insert(target.key.clone(), (target.uid.clone(), now));
                now
            })
        };
        let remaining = UNBOUND_MAX.saturating_sub(since.elapsed());
        if !remaining.is_zero() {
            return Unbound::Perhaps(remaining);
        }
        match self.get_pod(target).await {
            Ok(current) if !is_bound(&current) => {
                tracing::warn!(request = %target.key, "the request has succeeded and its pod is not bound; binding it");
                Unbound::Yes
            }
            Err(error) if error.is_transient() => Unbound::Perhaps(UNBOUND_MAX),
            Ok(_) | Err(_) => Unbound::No,
        }
    }

    fn remaining_delay(&self, target: &BindTarget) -> Option<Duration> {
        let pending = self.pending.lock();
        let pending = pending.get(&target.key).filter(|pending| pending.uid == target.uid)?;
        let remaining = pending.not_before.saturating_duration_since(Instant::now());
        (!remaining.is_zero()).then_some(remaining)
    }

    fn interruptions(&self, target: &BindTarget) -> u32 {
        let pending = self.pending.lock();
        let pending = pending.get(&target.key).filter(|pending| pending.uid == target.uid);
        pending.map_or(0, |pending| pending.interruptions)
    }

    fn set_pending(&self, target: &BindTarget, interruptions: u32, delay: Duration) {
        let not_before = Instant::now() + delay;
        let pending = Pending { uid: target.uid.clone(), interruptions, not_before };
        self.pending.lock().insert(target.key.clone(), pending);
    }

    /// Time limit of an attempt, so that an unresponsive server blocks no worker forever.
    fn attempt_timeout(&self, target: &BindTarget) -> Duration {
        let options = &self.binder.options;
        let groups = u32::try_from(target.gpu_groups().len()).unwrap_or(u32::MAX);
        let plugins = options.plugins.iter().map(|plugin| match plugin {
            Plugin::VolumeBinding { timeout } | Plugin::DynamicResources { timeout } => *timeout,
            Plugin::GpuSharing { .. } | Plugin::HamiCore => Duration::ZERO,
            Plugin::Custom(plugin) => plugin.attempt_timeout(),
        });
        // An attempt may wait for other attempts that reserve the same GPUs.
        let reserving = options.reservation_timeout.saturating_mul(groups.saturating_mul(8));
        plugins.fold(REQUESTS_TIMEOUT.saturating_add(reserving), Duration::saturating_add)
    }

    /// Counts an attempt without a result; returns the delay before the next one.
    fn interrupted(&self, target: &BindTarget, error: &Error) -> Duration {
        let interruptions = self.interruptions(target) + 1;
        let options = &self.binder.options;
        let delay = BackoffPolicy::new(options.retry_delay, options.retry_delay_max).delay(interruptions);
        tracing::warn!(request = %target.key, error = error as &dyn std::error::Error, "bind attempt interrupted");
        self.set_pending(target, interruptions, delay);
        delay
    }

    /// One attempt. An error means that the result is unknown and that the attempt has to be repeated.
    async fn attempt(&self, target: &BindTarget, permit: &mut Permit) -> Result<AttemptResult> {
        let pod = match self.find_pod(target).await {
            Ok(pod) => pod,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return Ok(AttemptResult::Failed(error, None)),
        };
        // The informer may have a state that a restored server no longer has, and a pod whose request has succeeded is not
        // bound again.
        let pod = if is_bound(&pod) {
            match self.get_pod(target).await {
                Ok(current) if is_bound(&current) => return Ok(AttemptResult::Bound(current)),
                Ok(current) => current,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => return Ok(AttemptResult::Failed(error, None)),
            }
        } else {
            pod
        };
        let node = match self.find_node(target).await {
            Ok(node) => node,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return Ok(AttemptResult::Failed(error, Some(pod))),
        };
        let mut attempt = Attempt::new(&self.binder, target, pod.clone(), &node);
        let Err(error) = attempt.run(permit).await else { return Ok(AttemptResult::Bound(pod)) };
        // The response to the Binding may be lost, or another client has bound the pod.
        match self.get_pod(target).await {
            Ok(current) if is_bound(&current) => return Ok(AttemptResult::Bound(pod)),
            Err(failed) if failed.is_transient() => return Err(failed),
            Ok(_) | Err(_) => {}
        }
        if error.is_transient() && self.interruptions(target) < INTERRUPTIONS_MAX {
            return Err(error);
        }
        match attempt.rollback(permit).await {
            Err(failed) if failed.is_transient() && self.interruptions(target) < INTERRUPTIONS_MAX => {
                return Err(failed);
            }
            Err(failed) => {
                let failed = &failed as &dyn std::error::Error;
                tracing::error!(request = %target.key, error = failed, "rollback failed");
            }
            Ok(()) => {}
        }
        Ok(AttemptResult::Failed(error, Some(pod)))
    }

    /// The pod of the request, from the informer or, if that does not have it yet, from the server.
    async fn find_pod(&self, target: &BindTarget) -> Result<Pod> {
        let known = self.binder.context.informers.get::<Pod>(&target.pod);
        let is_same = |pod: &Pod| target.pod_uid.as_ref().is_none_or(|known| known == uid(pod));
        if let Some(known) = known.filter(|pod| is_same(pod)) {
            return Ok((*known).clone());
        }
        self.get_pod(target).await
    }

    async fn get_pod(&self, target: &BindTarget) -> Result<Pod> {
        let not_found = || Error::NotFound { kind: "pod", name: target.pod.to_string() };
        let context = &self.binder.context;
        let pod: Pod = match context.api.get(&target.pod).await {
            Err(error) if error.is_not_found() => return Err(not_found()),
            pod => pod.during(|| format!("read pod `{}`", target.pod))?,
        };
        context.informers.store().update(pod.clone());
        // A pod that was recreated under the same name is not the one that the scheduler placed.
        let is_same = target.pod_uid.as_ref().is_none_or(|known| known == uid(&pod));
        if is_same { Ok(pod) } else { Err(not_found()) }
    }

    async fn find_node(&self, target: &BindTarget) -> Result<Arc<Node>> {
        let key = Key::new("", target.node());
        let context = &self.binder.context;
        if let Some(known) = context.informers.get(&key) {
            return Ok(known);
        }
        match context.api.get::<Node>(&key).await {
            Err(error) if error.is_not_found() => {
                Err(Error::NotFound { kind: "node", name: target.node().to_owned() })
            }
            node => node.map(Arc::new).during(|| format!("read node `{}`", target.node())),
        }
    }

    /// Reports the result of an attempt on the pod and in the status of the request.
    async fn conclude(&self, target: &BindTarget, result: AttemptResult) -> api::Result<Action> {
        let (outcome, reported) = match result {
            AttemptResult::Bound(pod) => {
                let reported = report::bound(&self.binder, &self.recorder, target, &pod).await;
                (Ok(()), reported)
            }
            AttemptResult::Failed(error, pod) => {
                let text = error.to_string();
                tracing::info!(request = %target.key, node = %target.node(), error = text, "bind attempt failed");
                let reported = match &pod {
                    Some(pod) => report::failed(&self.binder, &self.recorder, target, pod, &text).await,
                    None => Ok(()),
                };
                if matches!(error, Error::NoGroups) {
                    return self.delete(target).await;
                }
                (Err(text), reported)
            }
        };
        if let Err(error) = reported {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(request = %target.key, error, "cannot write the condition of the pod");
        }
        let outcome = match &outcome {
            Ok(()) => Outcome::Bound,
            Err(text) => Outcome::Failed(text),
        };
        let delay_max = self.binder.options.retry_delay_max;
        let next = attempt::next(&target.status, target.spec.backoff_limit, outcome, delay_max);
        self.set_pending(target, 0, next.retry.unwrap_or_default());
        self.write_status(target, &next.status).await?;
        Ok(next.retry.map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// Deletes a request that can never be bound, as KAI does.
    async fn delete(&self, target: &BindTarget) -> api::Result<Action> {
        let options = DeleteOptions { uid: Some(target.uid.clone()), ..DeleteOptions::default() };
        match self.binder.context.api.delete::<BindRequest>(&target.key, &options).await {
            Err(error) if error.is_not_found() => Ok(Action::AwaitChange),
            deleted => deleted.map(|_| Action::AwaitChange),
        }
    }

    /// Fails a request that does not parse, and records an event on it. It is not deleted: the scheduler sees the failed
    /// request and decides again.
    async fn report_invalid(&self, request: &StoredRequest, invalid: &InvalidRequest) -> api::Result<Action> {
        self.pending.lock().remove(&request.key());
        let reason = format!("invalid bind request: {}", invalid.reason);
        if invalid.reported == (BindRequestStatus::FAILED.to_owned(), reason.clone()) {
            return Ok(Action::AwaitChange);
        }
        let (key, uid) = (request.key(), request.identity().uid.to_owned());
        tracing::warn!(request = %key, error = invalid.reason, "invalid bind request");
        self.recorder.record(&Event {
            regarding: Regarding {
                kind: ResourceKind::of::<BindRequest>(),
                key: key.clone(),
                uid: uid.clone(),
            },
            type_: EventType::Warning,
            reason: "InvalidInput",
            message: reason.clone(),
            annotations: BTreeMap::new(),
        });
        let status = json!({"phase": BindRequestStatus::FAILED, "reason": reason});
        self.patch_status(&key, &uid, &status).await?;
        Ok(Action::AwaitChange)
    }

    async fn write_status(&self, target: &BindTarget, status: &BindRequestStatus) -> api::Result<()> {
        let mut changes = json!({"phase": status.phase});
        if status.reason != target.status.reason {
            let reason = status.reason.as_str();
            kai_object::set(
                &mut changes,
                &["reason"],
                if reason.is_empty() { Value::Null } else { Value::from(reason) },
            );
        }
        if status.failed_attempts != target.status.failed_attempts {
            kai_object::set(&mut changes, &["failedAttempts"], json!(status.failed_attempts));
        }
        self.patch_status(&target.key, &target.uid, &changes).await
    }

    async fn patch_status(&self, key: &Key, uid: &str, changes: &Value) -> api::Result<()> {
        let context = &self.binder.context;
        let patch = json!({"metadata": {"uid": uid}, "status": changes});
        let kind = ResourceKind::of::<BindRequest>();
        match context.api.patch_dynamic(&kind, key, Part::Status, &patch).await {
            Ok(written) => {
                if let Ok(written) = StoredRequest::deserialize(written) {
                    context.informers.store().update(written);
                }
                Ok(())
            }
            // The request was deleted. A request that was recreated under the same name is a conflict, which ends when the
            // informer has the new one.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

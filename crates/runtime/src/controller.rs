//! The controller loop: changed objects are mapped to keys, and the object of a key is reconciled.
//!
//! A controller is level-triggered: it reads the observed state, computes the desired state and writes the difference. It
//! may stop between any two requests and resumes from the state of the server.

use crate::api::{self, Api, DeleteOptions, Part};
use crate::degradation::Degradations;
use crate::event::EventType;
use crate::informer::{Informers, Subscription};
use crate::kind::{ApiObject, Key, ResourceKind};
use crate::metrics::controller::{ControllerMetrics, Outcome};
use crate::process::Process;
use crate::work_queue::WorkQueue;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kai_clock::Clock;
use kai_object as object;
use prometheus::Registry;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What follows a successful reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reconciles again when a watched object changes.
    AwaitChange,
    /// Reconciles again after this time at the latest.
    RequeueAfter(Duration),
}

impl Action {
    /// The earlier of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::RequeueAfter(one), Self::RequeueAfter(two)) => Self::RequeueAfter(one.min(two)),
            (Self::AwaitChange, other) => other,
            (some, Self::AwaitChange) => some,
        }
    }
}

/// Reconciles objects named by keys.
pub trait Controller: Send + Sync + Sized + 'static {
    /// The name in logs and metrics.
    const NAME: &'static str;

    /// How many keys are reconciled concurrently; one key never is.
    fn workers(&self) -> usize {
        1
    }

    /// The watched types, each with the function that maps a changed object to keys.
    fn watches(&self) -> Vec<Watch<Self>>;

    fn reconcile(&self, context: &Context, key: &Key) -> impl Future<Output = api::Result<Action>> + Send;
}

/// A controller of JSON objects, for simulated controllers of many kinds.
pub trait DynamicController: Send + Sync + Sized + 'static {
    const NAME: &'static str;

    fn workers(&self) -> usize {
        1
    }

    fn kinds(&self) -> Vec<ResourceKind>;

    /// The keys to reconcile after a change of an object.
    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key>;

    fn reconcile(&self, context: &Context, key: &Key) -> impl Future<Output = api::Result<Action>> + Send;
}

/// Enqueues the keys of a changed object; ends when the queue or the informers are dropped.
type Enqueue<C> = Box<dyn Fn(&Arc<C>, &Arc<Informers>, &Arc<WorkQueue>) + Send>;

/// A watched type of a controller.
pub struct Watch<C> {
    kind: ResourceKind,
    subscribe: Enqueue<C>,
    enqueue_all: Enqueue<C>,
}

impl<C> std::fmt::Debug for Watch<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("kind", &self.kind.plural).finish_non_exhaustive()
    }
}

impl<C: Send + Sync + 'static> Watch<C> {
    /// Watches the store of a type that watches this kind.
    pub fn of<T: Send + Sync + 'static>(
        kind: ResourceKind,
        map_to_keys: fn(&C, &Informers, &T) -> Vec<Arc<Key>>,
    ) -> Self {
        Self {
            kind,
            subscribe: Box::new(move |controller, informers, queue| {
                let controller = Arc::clone(controller);
                let (queue, weak) = (Arc::downgrade(queue), Arc::downgrade(informers));
                let handler = move |object: &T| {
                    let (Some(queue), Some(informers)) = (queue.upgrade(), weak.upgrade()) else {
                        return Subscription::End;
                    };
                    for key in map_to_keys(&controller, &informers, object) {
                        queue.add(key);
                    }
                    Subscription::Continue
                };
                informers.store::<T>().subscribe(Box::new(handler));
            }),
            enqueue_all: Box::new(move |controller, informers, queue| {
                for object in informers.store::<T>().list() {
                    for key in map_to_keys(controller, informers, &object) {
                        queue.add(key);
                    }
                }
            }),
        }
    }

    /// Watches whole typed objects.
    pub fn typed<T: ApiObject>(map_to_keys: fn(&C, &Informers, &T) -> Vec<Arc<Key>>) -> Self {
        Self::of(ResourceKind::of::<T>(), map_to_keys)
    }
}

impl<C: DynamicController> Watch<Dynamic<C>> {
    fn dynamic(kind: ResourceKind) -> Self {
        let (watched, listed) = (kind.clone(), kind.clone());
        Self {
            kind,
            subscribe: Box::new(move |controller, informers, queue| {
                let (controller, kind) = (Arc::clone(controller), watched.clone());
                let (queue, weak) = (Arc::downgrade(queue), Arc::downgrade(informers));
                let handler = move |object: &Value| {
                    let (Some(queue), Some(informers)) = (queue.upgrade(), weak.upgrade()) else {
                        return Subscription::End;
                    };
                    for key in controller.0.map_to_keys(&informers, &kind, object) {
                        queue.add(key);
                    }
                    Subscription::Continue
                };
                informers.dynamic(&watched).subscribe(Box::new(handler));
            }),
            enqueue_all: Box::new(move |controller, informers, queue| {
                for object in informers.dynamic(&listed).list() {
                    for key in controller.0.map_to_keys(informers, &listed, &object) {
                        queue.add(key);
                    }
                }
            }),
        }
    }
}

struct Dynamic<C>(C);

impl<C: DynamicController> Controller for Dynamic<C> {
    const NAME: &'static str = C::NAME;

    fn workers(&self) -> usize {
        self.0.workers()
    }

    fn watches(&self) -> Vec<Watch<Self>> {
        self.0.kinds().into_iter().map(Watch::dynamic).collect()
    }

    fn reconcile(&self, context: &Context, key: &Key) -> impl Future<Output = api::Result<Action>> + Send {
        self.0.reconcile(context, key)
    }
}

/// What controllers work with.
#[derive(Clone, Debug)]
pub struct Context {
    pub api: Api,
    pub informers: Arc<Informers>,
    pub clock: Clock,
    /// Records events of dynamic objects; none where no events are recorded.
    pub events: Option<Arc<dyn EventSink>>,
    /// Where controllers and their queues are measured; none where they are not.
    pub metrics: Option<Registry>,
    /// Where missing optional rights are reported; none where they are not.
    pub degradations: Option<Degradations>,
}

/// Records events of JSON objects.
pub trait EventSink: std::fmt::Debug + Send + Sync {
    fn record(&self, object: &Value, type_: EventType, reason: &str, message: String);
}

impl Context {
    /// A context that records no events and has no metrics.
    pub fn new(api: Api, informers: Arc<Informers>, clock: Clock) -> Self {
        Self { api, informers, clock, events: None, metrics: None, degradations: None }
    }

    /// The context of a component's controllers.
    pub fn of(process: &Process, informers: Arc<Informers>) -> Self {
        Self {
            metrics: Some(process.metrics.clone()),
            degradations: Some(process.degradations.clone()),
            ..Self::new(process.api.clone(), informers, process.clock)
        }
    }

    /// Records an event of type Normal.
    pub fn record(&self, object: &Value, reason: &str, message: impl Into<String>) {
        if let Some(events) = &self.events {
            events.record(object, EventType::Normal, reason, message.into());
        }
    }

    /// Records an event of type Warning.
    pub fn warn(&self, object: &Value, reason: &str, message: impl Into<String>) {
        if let Some(events) = &self.events {
            events.record(object, EventType::Warning, reason, message.into());
        }
    }

    /// Creates an object and stores the response.
    pub async fn create<T: ApiObject>(&self, object: &T) -> api::Result<T> {
        let created = self.api.create(object).await?;
        self.informers.store::<T>().update(created.clone());
        Ok(created)
    }

    /// As [`Api::patch_difference`]; stores the response. Returns whether there was a difference.
    pub async fn patch_difference<T: ApiObject>(&self, part: Part, old: &T, new: &T) -> api::Result<bool> {
        let Some(written) = self.api.patch_difference(part, old, new).await? else { return Ok(false) };
        let meta = written.meta();
        let is_deleted = meta.deletion_timestamp.is_some()
            && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
            && meta.deletion_grace_period_seconds.unwrap_or(0) == 0;
        // A deleted object is gone once its last finalizer is removed.
        if is_deleted {
            self.informers.store::<T>().remove(old);
        } else {
            self.informers.store::<T>().update(written);
        }
        Ok(true)
    }

    pub async fn create_dynamic(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> api::Result<Value> {
        let created = self.api.create_dynamic(kind, namespace, object).await?;
        self.informers.update_dynamic(kind, &created);
        Ok(created)
    }

    /// As [`Api::patch_difference_dynamic`]; stores the response. Returns whether there was a difference.
    pub async fn patch_difference_dynamic(
        &self,
        kind: &ResourceKind,
        part: Part,
        old: &Value,
        new: &Value,
    ) -> api::Result<bool> {
        let Some(written) = self.api.patch_difference_dynamic(kind, part, old, new).await? else {
            return Ok(false);
        };
        let is_deleted = object::is_deleting(&written)
            && object::finalizers(&written).is_empty()
            && object::grace_period(&written).unwrap_or(0) == 0;
        // A deleted object is gone once its last finalizer is removed.
        if is_deleted {
            self.informers.remove_dynamic(kind, old);
        } else {
            self.informers.update_dynamic(kind, &written);
        }
        Ok(true)
    }

    /// Deletes exactly this object; succeeds if it is gone already.
    pub async fn delete_dynamic(
        &self,
        kind: &ResourceKind,
        object: &Value,
        options: DeleteOptions,
    ) -> api::Result<()> {
        let options = DeleteOptions { uid: Some(object::uid(object).to_owned()), ..options };
        match self.api.delete_dynamic(kind, &crate::key_of(object), &options).await {
            Ok(response) => {
                let is_terminating = object::is_deleting(&response)
                    && (!object::finalizers(&response).is_empty()
                        || object::grace_period(&response).unwrap_or(0) > 0);
                if is_terminating {
                    self.informers.update_dynamic(kind, &response);
                } else {
                    self.informers.remove_dynamic(kind, object);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.informers.remove_dynamic(kind, object);
                Ok(())
            }
            // The uid precondition failed: another object has the name.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Runs a dynamic controller. Never returns.
pub async fn run_dynamic<C: DynamicController>(controller: C, context: Context) {
    run(Dynamic(controller), context).await;
}

/// Runs a controller. Never returns.
pub async fn run<C: Controller>(controller: C, context: Context) {
    let queue = queue::<C>(&context);
    run_on(Arc::new(controller), context, queue).await;
}

/// The queue of a controller, measured where the context has metrics.
pub fn queue<C: Controller>(context: &Context) -> Arc<WorkQueue> {
    let measured = context.metrics.as_ref();
    Arc::new(measured.map_or_else(WorkQueue::default, |to| WorkQueue::measured(C::NAME, to)))
}

/// Runs a controller whose queue also gets keys from elsewhere. Never returns.
pub async fn run_on<C: Controller>(controller: Arc<C>, context: Context, queue: Arc<WorkQueue>) {
    let measured = context.metrics.as_ref();
    let metrics = measured.map(|to| ControllerMetrics::register(C::NAME, controller.workers(), to));
    let watches = controller.watches();
    for watch in &watches {
        (watch.subscribe)(&controller, &context.informers, &queue);
    }
    let kinds: Vec<ResourceKind> = watches.iter().map(|watch| watch.kind.clone()).collect();
    context.informers.synced(&kinds).await;
    // Objects that were stored before the subscriptions.
    for watch in &watches {
        (watch.enqueue_all)(&controller, &context.informers, &queue);
    }
    drop(watches);
    let (controller, context) = (&*controller, &context);
    let reconcile = |key: Arc<Key>| async move { controller.reconcile(context, &key).await };
    process(C::NAME, &queue, controller.workers(), metrics.as_ref(), reconcile).await;
}

/// Reconciles the keys of a queue with so many workers, and requeues them as the result says. Never returns.
pub async fn process<F>(
    name: &str,
    queue: &WorkQueue,
    workers: usize,
    metrics: Option<&ControllerMetrics>,
    reconcile: impl Fn(Arc<Key>) -> F,
) where
    F: Future<Output = api::Result<Action>>,
{
    // The queue may have outlived an earlier worker.
    queue.requeue_abandoned();
    let mut running = FuturesUnordered::new();
    loop {
        let is_idle = running.len() < workers;
        tokio::select! {
            biased;
            Some((key, outcome)) = running.next() => conclude(name, queue, key, outcome),
            key = queue.next(), if is_idle => {
                let measured = metrics.map(ControllerMetrics::begin);
                let reconciling = reconcile(Arc::clone(&key));
                running.push(async move {
                    let outcome = reconciling.await;
                    if let Some(measured) = measured {
                        measured.end(measured_outcome(&outcome));
                    }
                    (key, outcome)
                });
            }
        }
    }
}

fn measured_outcome(outcome: &api::Result<Action>) -> Outcome {
    match outcome {
        Ok(Action::AwaitChange) => Outcome::Success,
        Ok(Action::RequeueAfter(_)) => Outcome::RequeueAfter,
        Err(_) => Outcome::Error,
    }
}

fn conclude(name: &str, queue: &WorkQueue, key: Arc<Key>, outcome: api::Result<Action>) {
    match outcome {
        Ok(action) => {
            queue.done(&key);
            queue.forget(&key);
            if let Action::RequeueAfter(delay) = action {
                queue.add_after(key, delay);
            }
        }
        Err(error) => {
            tracing::debug!(controller = name, %key, error = &error as &dyn std::error::Error, "reconciliation failed; requeued");
            queue.done(&key);
            queue.add_rate_limited(key);
        }
    }
}

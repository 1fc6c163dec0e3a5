//! The loop that every controller here runs: changes wake keys, and a key is brought to what it should be.
//!
//! A controller is level-triggered: it reads what is, computes what should be and writes the difference. It may be
//! stopped between any two requests and begins again from the state of the server.

use crate::api::{self, Api, Deletion, Part};
use crate::cache::{Caches, Interest};
use crate::event::EventType;
use crate::kind::{Key, Kind};
use crate::queue::Queue;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kai_clock::Clock;
use kai_object as object;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for a change.
    Wait,
    /// It is to be looked at again after this time at the latest.
    After(Duration),
}

impl Next {
    /// The earlier of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::Wait, other) => other,
            (some, Self::Wait) => some,
        }
    }
}

/// Keeps one kind of thing as it should be.
pub trait Controller: Send + Sync + 'static {
    /// What it is called in logs.
    const NAME: &'static str;

    /// How many keys are looked at side by side; one key never is twice.
    fn workers(&self) -> usize {
        1
    }

    /// Which resources it watches.
    fn kinds(&self) -> Vec<Kind>;

    /// Which keys a changed object concerns.
    fn wakes(&self, caches: &Caches, kind: &Kind, object: &Value) -> Vec<Key>;

    /// Brings what the key names to what it should be, or nearer to it.
    fn reconcile(&self, context: &Context, key: &Key) -> impl Future<Output = api::Result<Next>> + Send;
}

/// What controllers work with.
#[derive(Clone, Debug)]
pub struct Context {
    /// The server.
    pub api: Api,
    /// What is known of it.
    pub caches: Arc<Caches>,
    /// The time.
    pub clock: Clock,
    /// Who tells users what happens, if anybody does.
    pub events: Option<Arc<dyn Tell>>,
}

/// Tells users what happens to objects.
pub trait Tell: std::fmt::Debug + Send + Sync {
    /// Tells something about an object.
    fn tell(&self, object: &Value, type_: EventType, reason: &str, message: String);
}

impl Context {
    /// What a controller works with that tells users nothing.
    pub fn new(api: Api, caches: Arc<Caches>, clock: Clock) -> Self {
        Self { api, caches, clock, events: None }
    }

    /// Tells users of an object that something is as it should be.
    pub fn tell(&self, object: &Value, reason: &str, message: impl Into<String>) {
        if let Some(events) = &self.events {
            events.tell(object, EventType::Normal, reason, message.into());
        }
    }

    /// Tells users of an object that something is not.
    pub fn warn(&self, object: &Value, reason: &str, message: impl Into<String>) {
        if let Some(events) = &self.events {
            events.tell(object, EventType::Warning, reason, message.into());
        }
    }

    /// Makes an object and knows it from then on.
    pub async fn create(&self, kind: &Kind, namespace: &str, object: &Value) -> api::Result<Value> {
        let made = self.api.create(kind, namespace, object).await?;
        self.caches.note(kind, &made);
        Ok(made)
    }

    /// Turns `old` into `new`, if nobody wrote in between; says whether there was anything to write.
    pub async fn update(&self, kind: &Kind, part: Part, old: &Value, new: &Value) -> api::Result<bool> {
        let Some(written) = self.api.update(kind, part, old, new).await? else { return Ok(false) };
        let over = object::is_deleting(&written)
            && object::finalizers(&written).is_empty()
            && object::grace_period(&written).unwrap_or(0) == 0;
        // Without its last finalizer a deleted object is gone.
        if over {
            self.caches.note_gone(kind, old);
        } else {
            self.caches.note(kind, &written);
        }
        Ok(true)
    }

    /// Deletes exactly this object; one that is gone already is as good.
    pub async fn delete(&self, kind: &Kind, object: &Value, how: Deletion) -> api::Result<()> {
        let how = Deletion { uid: Some(object::uid(object).to_owned()), ..how };
        match self.api.delete(kind, &Key::of(object), &how).await {
            Ok(answer) => {
                let going = object::is_deleting(&answer)
                    && (!object::finalizers(&answer).is_empty()
                        || object::grace_period(&answer).unwrap_or(0) > 0);
                if going {
                    self.caches.note(kind, &answer);
                } else {
                    self.caches.note_gone(kind, object);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.caches.note_gone(kind, object);
                Ok(())
            }
            // Another object has the name.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Runs a controller. Never returns.
pub async fn run<C: Controller>(controller: C, context: Context) {
    let controller = Arc::new(controller);
    let queue = Arc::new(Queue::default());
    let kinds = controller.kinds();
    for kind in &kinds {
        let (controller, queue, caches) =
            (Arc::clone(&controller), Arc::downgrade(&queue), Arc::downgrade(&context.caches));
        let listener = move |kind: &Kind, object: &Value| {
            let (Some(queue), Some(caches)) = (queue.upgrade(), caches.upgrade()) else {
                return Interest::Ended;
            };
            for key in controller.wakes(&caches, kind, object) {
                queue.add(key);
            }
            Interest::Stays
        };
        context.caches.listen(kind, Box::new(listener));
    }
    context.caches.synced(&kinds).await;
    // What came before the listeners did.
    for kind in &kinds {
        for object in context.caches.all(kind) {
            for key in controller.wakes(&context.caches, kind, &object) {
                queue.add(key);
            }
        }
    }
    let (controller, context) = (&*controller, &context);
    let reconcile = |key| async move { controller.reconcile(context, &key).await };
    work(C::NAME, &queue, controller.workers(), reconcile).await;
}

/// Takes keys from the queue, so many at once, and puts back those that are to be looked at again. Never returns.
pub async fn work<F>(name: &str, queue: &Queue, workers: usize, reconcile: impl Fn(Key) -> F)
where
    F: Future<Output = api::Result<Next>>,
{
    // The queue may have outlived whoever worked on it before.
    queue.recover();
    let mut running = FuturesUnordered::new();
    loop {
        let room = running.len() < workers;
        tokio::select! {
            biased;
            Some((key, outcome)) = running.next() => conclude(name, queue, key, outcome),
            key = queue.next(), if room => {
                let outcome = reconcile(key.clone());
                running.push(async move { (key, outcome.await) });
            }
        }
    }
}

fn conclude(name: &str, queue: &Queue, key: Key, outcome: api::Result<Next>) {
    match outcome {
        Ok(next) => {
            queue.done(&key);
            queue.forgive(&key);
            if let Next::After(wait) = next {
                queue.add_after(key, wait);
            }
        }
        Err(error) => {
            tracing::debug!(controller = name, %key, error = &error as &dyn std::error::Error, "will try again");
            queue.done(&key);
            queue.add_failed(key);
        }
    }
}

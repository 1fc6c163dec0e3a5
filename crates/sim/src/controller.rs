//! The loop that every controller here runs: changes wake keys, and a key is brought to what it should be.
//!
//! A controller is level-triggered: it reads what is, computes what should be and writes the difference. It may be
//! stopped between any two requests and begins again from the state of the server.

use crate::api::{self, Api, Deletion, Part};
use crate::cache::{Caches, Interest};
use crate::event::{Recorder, Severity};
use crate::kind::{self, Key, Kind};
use crate::queue::Queue;
use kai_apiserver::clock::Clock;
use kai_apiserver::object;
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
    /// Where users are told what happens.
    pub events: Recorder,
}

impl Context {
    /// Tells users of an object that something is as it should be.
    pub fn tell(&self, object: &Value, reason: &str, message: impl Into<String>) {
        self.events.tell(object, Severity::Normal, reason, message.into());
    }

    /// Tells users of an object that something is not.
    pub fn warn(&self, object: &Value, reason: &str, message: impl Into<String>) {
        self.events.tell(object, Severity::Warning, reason, message.into());
    }

    /// Makes a pod for its controller, and tells so, or why it could not be made.
    pub async fn create_pod(&self, owner: &Value, pod: &Value) -> api::Result<Value> {
        let made = self.create(&kind::POD, object::namespace(owner), pod).await;
        match &made {
            Ok(made) => self.tell(owner, "SuccessfulCreate", format!("Created pod: {}", object::name(made))),
            Err(error) => self.warn(owner, "FailedCreate", format!("Error creating: {}", error.reason())),
        }
        made
    }

    /// Deletes a pod for its controller, and tells so.
    pub async fn delete_pod(&self, owner: &Value, pod: &Value) -> api::Result<()> {
        self.delete(&kind::POD, pod, Deletion::of(pod)).await?;
        self.tell(owner, "SuccessfulDelete", format!("Deleted pod: {}", object::name(pod)));
        Ok(())
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
    work(C::NAME, &queue, |key| async move { controller.reconcile(context, &key).await }).await;
}

/// Takes keys from the queue one after the other, and puts back those that are to be looked at again. Never returns.
pub(crate) async fn work<F>(name: &str, queue: &Queue, reconcile: impl Fn(Key) -> F)
where
    F: Future<Output = api::Result<Next>>,
{
    loop {
        let key = queue.next().await;
        match reconcile(key.clone()).await {
            Ok(next) => {
                queue.forgive(&key);
                if let Next::After(wait) = next {
                    queue.add_after(key, wait);
                }
            }
            Err(error) => {
                tracing::debug!(controller = name, %key, error = &error as &dyn std::error::Error, "will try again");
                queue.add_failed(key);
            }
        }
    }
}

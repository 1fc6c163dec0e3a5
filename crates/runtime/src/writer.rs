//! Write queue: sends writes in the background by priority, and writes to one object in submission order.
//!
//! What acts goes before what reports: while an action is queued or in flight, status and events wait, at most
//! [`REPORT_DELAY_MAX`]; after that they take turns with actions. Writes with a slot coalesce: a queued write is replaced by
//! a later one with the same slot of the same object, so a state that changes faster than it can be written costs one write. The number of writes in flight adapts to the latency of the
//! server (module `concurrency`). A write that failed transiently is retried with backoff and occupies no capacity meanwhile.

mod concurrency;

use crate::api::{Api, Error, Result};
use crate::backoff::BackoffPolicy;
use crate::kind::{Key, ResourceKind};
use concurrency::ConcurrencyLimit;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Queued events beyond this number are dropped: events are best effort.
const EVENTS_MAX: usize = 10_000;
/// Delay before a write is retried.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));

/// How long actions may delay a report.
pub const REPORT_DELAY_MAX: Duration = Duration::from_secs(3);

/// Attempts of a write that an admission webhook refuses with a server error: seconds, in which a webhook may restart.
const WEBHOOK_ATTEMPTS: u32 = 6;

/// Higher priorities come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritePriority {
    /// Bindings and evictions.
    Action,
    /// Status and annotations that other components act upon.
    Status,
    /// Events.
    Event,
}

/// The priorities of writes that act upon nothing.
const REPORTS: [WritePriority; 2] = [WritePriority::Status, WritePriority::Event];

/// Whether a write that failed transiently is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The failure is passed to `done`.
    Never,
    /// Until the server responds, or a later write takes the slot; a few times if a webhook responds with an error.
    UntilAnswered,
}

/// Called with the response.
pub type Done = Box<dyn FnOnce(Result<Value>) + Send>;

pub struct Write {
    pub priority: WritePriority,
    pub object: (ResourceKind, Key),
    /// A later write with the same slot of the same object replaces one that is still queued.
    pub slot: Option<&'static str>,
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub body: Value,
    pub retry: Retry,
    /// Not called for writes that are replaced or dropped.
    pub done: Option<Done>,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Write")
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub queued: usize,
    pub in_flight: usize,
    /// Dropped events since the start.
    pub dropped: u64,
    /// Requests sent since the start.
    pub sent: u64,
}

/// The write queue; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// The queues of components that run in the process, by name.
    components: Mutex<BTreeMap<String, Writer>>,
}

type ObjectId = (ResourceKind, Key);

#[derive(Debug)]
struct Queued {
    write: Write,
    failures: u32,
    /// When it was submitted; a write that replaces another one keeps its time.
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    objects: FxHashMap<ObjectId, VecDeque<Queued>>,
    /// Objects whose first write may be sent; one may be listed under several priorities.
    ready: [VecDeque<ObjectId>; 3],
    /// Objects with a write in flight or in backoff.
    busy: FxHashSet<ObjectId>,
    /// Objects whose first write failed, by the time of its retry.
    backoff: BTreeMap<(Instant, u64), ObjectId>,
    failures: u64,
    queued_events: usize,
    actions_in_flight: usize,
    /// Whether it is the turn of a report that has waited for too long.
    is_turn_of_reports: bool,
    counts: Counts,
}

impl Writer {
    pub fn submit(&self, write: Write) {
        let mut state = self.lock();
        if write.priority == WritePriority::Event {
            if state.queued_events >= EVENTS_MAX {
                state.counts.dropped += 1;
                return;
            }
            state.queued_events += 1;
        }
        state.add(write);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Removes the queued writes of a slot of an object.
    pub fn cancel(&self, object: &(ResourceKind, Key), slot: &str) {
        let mut state = self.lock();
        if let Some(writes) = state.objects.get_mut(object) {
            let before = writes.len();
            writes.retain(|queued| queued.write.slot != Some(slot));
            let removed = before - writes.len();
            let empty = writes.is_empty();
            state.counts.queued -= removed;
            if empty {
                state.objects.remove(object);
            }
        }
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Adds the queue of a component that runs in the process, or replaces that of its last run.
    pub fn set_component(&self, name: &str, writer: Self) {
        self.shared.components.lock().insert(name.to_owned(), writer);
    }

    /// Waits until nothing is queued or in flight, here and in the queues of components.
    pub async fn idle(&self) {
        while self.is_busy() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn is_busy(&self) -> bool {
        let counts = self.counts();
        counts.queued + counts.in_flight > 0 || self.shared.components.lock().values().any(Self::is_busy)
    }

    /// Sends the submitted writes. Never returns.
    pub async fn run(&self, api: Api) {
        let mut limit = ConcurrencyLimit::new();
        let mut in_flight: FuturesUnordered<BoxFuture<'static, Sent>> = FuturesUnordered::new();
        loop {
            let next_retry = self.lock().release_due(Instant::now());
            while in_flight.len() < limit.get() {
                let Some(queued) = self.lock().take(Instant::now()) else { break };
                in_flight.push(Box::pin(send(api.clone(), queued)));
            }
            let retry_due = async {
                match next_retry {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(sent) = in_flight.next(), if !in_flight.is_empty() => self.conclude(sent, &mut limit),
                () = self.shared.changed.notified() => {}
                () = retry_due => {}
            }
        }
    }

    fn conclude(&self, sent: Sent, limit: &mut ConcurrencyLimit) {
        let Sent { queued, response, latency } = sent;
        match &response {
            // A webhook that fails says nothing about how much the API server can take.
            Err(error) if error.is_transient() && !error.is_webhook_failure() => limit.failed(),
            Ok(_) | Err(_) => limit.responded(latency),
        }
        let may_succeed_later = |error: &Error| {
            error.is_transient() && !(error.is_webhook_failure() && queued.failures + 1 >= WEBHOOK_ATTEMPTS)
        };
        let retries = queued.write.retry == Retry::UntilAnswered;
        if retries && response.as_ref().is_err_and(may_succeed_later) {
            let (path, failures) = (&queued.write.path, queued.failures + 1);
            tracing::debug!(path, failures, "write failed; retrying");
            self.lock().retry_later(queued, Instant::now());
            return;
        }
        let mut write = queued.write;
        if let Err(error) = &response {
            tracing::debug!(path = write.path, error = error as &dyn std::error::Error, "write failed");
        }
        let done = write.done.take();
        self.lock().finish(&write);
        if let Some(done) = done {
            done(response);
        }
        self.shared.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

impl State {
    /// The objects with a write of this priority that may be sent.
    fn ready(&mut self, priority: WritePriority) -> &mut VecDeque<ObjectId> {
        let [action, status, event] = &mut self.ready;
        match priority {
            WritePriority::Action => action,
            WritePriority::Status => status,
            WritePriority::Event => event,
        }
    }

    fn add(&mut self, write: Write) {
        let id = write.object.clone();
        let priority = write.priority;
        let writes = self.objects.entry(id.clone()).or_default();
        let same = |queued: &&mut Queued| write.slot.is_some() && queued.write.slot == write.slot;
        if let Some(queued) = writes.iter_mut().find(same) {
            queued.write = write;
        } else {
            writes.push_back(Queued { write, failures: 0, since: Instant::now() });
            self.counts.queued += 1;
        }
        if !self.busy.contains(&id) {
            self.ready(priority).push_back(id);
        }
    }

    /// The next write to send.
    fn take(&mut self, now: Instant) -> Option<Queued> {
        let overdue = REPORTS.into_iter().find(|priority| {
            self.oldest(*priority).is_some_and(|since| now.duration_since(since) >= REPORT_DELAY_MAX)
        });
        if let Some(priority) = overdue.filter(|_| self.is_turn_of_reports) {
            return self.take_of(priority);
        }
        if let Some(action) = self.take_of(WritePriority::Action) {
            return Some(action);
        }
        match overdue {
            Some(priority) => self.take_of(priority),
            None if self.actions_in_flight > 0 => None,
            None => REPORTS.into_iter().find_map(|priority| self.take_of(priority)),
        }
    }

    /// When the first write of this priority that may be sent was submitted.
    fn oldest(&mut self, priority: WritePriority) -> Option<Instant> {
        while let Some(id) = self.ready(priority).front().cloned() {
            let first = self.objects.get(&id).and_then(VecDeque::front).map(|queued| queued.since);
            match first.filter(|_| !self.busy.contains(&id)) {
                Some(since) => return Some(since),
                None => self.ready(priority).pop_front(),
            };
        }
        None
    }

    fn take_of(&mut self, priority: WritePriority) -> Option<Queued> {
        while let Some(id) = self.ready(priority).pop_front() {
            if self.busy.contains(&id) {
                continue;
            }
            let Some(writes) = self.objects.get_mut(&id) else { continue };
            let Some(queued) = writes.pop_front() else { continue };
            if writes.is_empty() {
                self.objects.remove(&id);
            }
            if queued.write.priority == WritePriority::Event {
                self.queued_events -= 1;
            }
            let is_action = queued.write.priority == WritePriority::Action;
            self.actions_in_flight += usize::from(is_action);
            self.is_turn_of_reports = is_action;
            self.counts.queued -= 1;
            self.counts.in_flight += 1;
            self.counts.sent += 1;
            self.busy.insert(id);
            return Some(queued);
        }
        None
    }

    /// Ends a write; the next one to the object may be sent.
    fn finish(&mut self, write: &Write) {
        self.landed(write);
        self.release(&write.object);
    }

    /// A write is no longer in flight.
    fn landed(&mut self, write: &Write) {
        self.counts.in_flight -= 1;
        self.actions_in_flight -= usize::from(write.priority == WritePriority::Action);
    }

    fn release(&mut self, object: &ObjectId) {
        self.busy.remove(object);
        let writes = self.objects.get(object).into_iter().flatten();
        if let Some(priority) = writes.map(|queued| queued.write.priority).min() {
            self.ready(priority).push_back(object.clone());
        }
    }

    /// Queues a failed write at the front again, unless a later one took its slot. Nothing is written to the object until
    /// the backoff is over.
    fn retry_later(&mut self, mut queued: Queued, now: Instant) {
        self.landed(&queued.write);
        queued.failures += 1;
        self.failures += 1;
        let due = now + BACKOFF.delay(queued.failures);
        self.backoff.insert((due, self.failures), queued.write.object.clone());
        let writes = self.objects.entry(queued.write.object.clone()).or_default();
        let same = |known: &&mut Queued| known.write.slot.is_some() && known.write.slot == queued.write.slot;
        if let Some(newer) = writes.iter_mut().find(same) {
            newer.failures = queued.failures;
            return;
        }
        self.counts.queued += 1;
        if queued.write.priority == WritePriority::Event {
            self.queued_events += 1;
        }
        writes.push_front(queued);
    }

    /// Releases the objects whose backoff is over; returns when the next one is.
    fn release_due(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.backoff.first_entry() {
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            let object = entry.remove();
            self.release(&object);
        }
        None
    }
}

struct Sent {
    queued: Queued,
    response: Result<Value>,
    latency: Duration,
}

async fn send(api: Api, queued: Queued) -> Sent {
    let write = &queued.write;
    let body = (!write.body.is_null()).then_some((write.content_type, &write.body));
    let (response, latency) = api.send_timed(write.method, &write.path, body).await;
    Sent { queued, response, latency }
}

#[cfg(test)]
mod tests;

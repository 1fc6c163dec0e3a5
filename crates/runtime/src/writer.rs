//! Sends writes in the background: the important ones first, and about one object in the order they were made.
//!
//! There are three lanes. A write waits only for those of its own lane or a better one, and for earlier writes about the
//! same object. A write with a slot replaces one that still waits in the same slot of the same object, so a state that
//! changes faster than it can be written costs one write. How many are under way at once follows what the server can
//! take: more while answers come as fast as ever, half as many when it says that it is too much.

mod pace;

use crate::api::{Api, Error, Result};
use crate::kind::{Key, Kind};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use pace::Pace;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most events that wait; more are lost, as they are no part of any state.
const EVENTS_MAX: usize = 10_000;
/// How long to wait before the first repetition, and at most.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How important a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Something happens by it: bindings and evictions.
    Act,
    /// Something is told by it that others act upon.
    Tell,
    /// Something is told by it to people.
    Remark,
}

const LANES: [Lane; 3] = [Lane::Act, Lane::Tell, Lane::Remark];

/// What becomes of a write that fails for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing: whoever made it looks at the failure.
    Never,
    /// It is sent again until the server answers, or something newer takes its slot.
    UntilAnswered,
}

/// What is told when a write is over.
pub type Done = Box<dyn FnOnce(Result<Value>) + Send>;

/// A write.
pub struct Write {
    /// How important it is.
    pub lane: Lane,
    /// Which object it is about.
    pub object: (Kind, Key),
    /// Which part of it: a later write of the same part replaces one that still waits.
    pub slot: Option<&'static str>,
    /// `POST`, `PATCH`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// Where to.
    pub path: String,
    /// What `body` is.
    pub content_type: &'static str,
    /// What is written.
    pub body: Value,
    /// What becomes of it when it fails for a while.
    pub retry: Retry,
    /// Called with the answer; not called for writes that are replaced or lost.
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

/// How writing goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes that wait.
    pub waiting: usize,
    /// Writes under way.
    pub running: usize,
    /// Events that were lost, since the start.
    pub lost: u64,
    /// Requests that were sent, since the start.
    pub sent: u64,
}

/// Takes writes; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

type ObjectId = (Kind, Key);

#[derive(Debug, Default)]
struct State {
    objects: FxHashMap<ObjectId, VecDeque<Write>>,
    /// Objects whose first write may be sent; one may stand in several lanes.
    ready: [VecDeque<ObjectId>; 3],
    running: FxHashSet<ObjectId>,
    remarks: usize,
    counts: Counts,
}

impl Writer {
    /// Adds a write.
    pub fn submit(&self, write: Write) {
        let mut state = self.lock();
        if write.lane == Lane::Remark {
            if state.remarks >= EVENTS_MAX {
                state.counts.lost += 1;
                return;
            }
            state.remarks += 1;
        }
        state.add(write);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Takes back what waits in a slot of an object.
    pub fn cancel(&self, object: &(Kind, Key), slot: &str) {
        let mut state = self.lock();
        if let Some(writes) = state.objects.get_mut(object) {
            let before = writes.len();
            writes.retain(|write| write.slot != Some(slot));
            let gone = before - writes.len();
            let empty = writes.is_empty();
            state.counts.waiting -= gone;
            if empty {
                state.objects.remove(object);
            }
        }
    }

    /// How writing goes.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Waits until nothing waits and nothing is under way.
    pub async fn idle(&self) {
        loop {
            let counts = self.counts();
            if counts.waiting + counts.running == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends what is submitted. Never returns.
    pub async fn run(&self, api: Api) {
        let mut pace = Pace::new();
        let mut running: FuturesUnordered<BoxFuture<'static, Sent>> = FuturesUnordered::new();
        loop {
            while running.len() < pace.limit() {
                let Some(write) = self.lock().take() else { break };
                running.push(Box::pin(send(api.clone(), write)));
            }
            tokio::select! {
                biased;
                Some(sent) = running.next(), if !running.is_empty() => self.conclude(sent, &mut pace),
                () = self.shared.changed.notified() => {}
            }
        }
    }

    fn conclude(&self, sent: Sent, pace: &mut Pace) {
        let Sent { mut write, attempts, answer, took } = sent;
        match &answer {
            Err(error) if error.is_transient() => pace.overloaded(),
            Ok(_) | Err(_) => pace.answered(took),
        }
        let retries = write.retry == Retry::UntilAnswered;
        if retries && answer.as_ref().is_err_and(Error::is_transient) {
            tracing::debug!(path = write.path, attempts, "will be written again");
            self.lock().put_back(write);
            self.shared.changed.notify_one();
            return;
        }
        if let Err(error) = &answer {
            tracing::debug!(path = write.path, error = error as &dyn std::error::Error, "was not written");
        }
        let done = write.done.take();
        self.lock().finish(&write);
        if let Some(done) = done {
            done(answer);
        }
        self.shared.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, write: Write) {
        let id = write.object.clone();
        let lane = write.lane;
        let writes = self.objects.entry(id.clone()).or_default();
        let waiting = write.slot.and_then(|slot| writes.iter_mut().find(|known| known.slot == Some(slot)));
        if let Some(waiting) = waiting {
            *waiting = write;
        } else {
            writes.push_back(write);
            self.counts.waiting += 1;
        }
        if !self.running.contains(&id) {
            self.ready[lane as usize].push_back(id);
        }
    }

    /// The next write to send.
    fn take(&mut self) -> Option<Write> {
        for lane in LANES {
            while let Some(id) = self.ready[lane as usize].pop_front() {
                if self.running.contains(&id) {
                    continue;
                }
                let Some(writes) = self.objects.get_mut(&id) else { continue };
                let Some(write) = writes.pop_front() else { continue };
                if writes.is_empty() {
                    self.objects.remove(&id);
                }
                if write.lane == Lane::Remark {
                    self.remarks -= 1;
                }
                self.counts.waiting -= 1;
                self.counts.running += 1;
                self.counts.sent += 1;
                self.running.insert(id);
                return Some(write);
            }
        }
        None
    }

    /// Lets the next write about the object go.
    fn finish(&mut self, write: &Write) {
        self.counts.running -= 1;
        self.running.remove(&write.object);
        let next =
            self.objects.get(&write.object).and_then(|writes| writes.iter().map(|write| write.lane).min());
        if let Some(lane) = next {
            self.ready[lane as usize].push_back(write.object.clone());
        }
    }

    /// Puts a write back in front, unless something newer is there in its place.
    fn put_back(&mut self, write: Write) {
        self.finish(&write);
        let newer = |known: &Write| known.slot.is_some() && known.slot == write.slot;
        let writes = self.objects.entry(write.object.clone()).or_default();
        if writes.iter().any(newer) {
            return;
        }
        self.counts.waiting += 1;
        if write.lane == Lane::Remark {
            self.remarks += 1;
        }
        self.ready[write.lane as usize].push_back(write.object.clone());
        writes.push_front(write);
    }
}

struct Sent {
    write: Write,
    attempts: u32,
    answer: Result<Value>,
    took: Duration,
}

/// Sends a write, a few times if need be, so that a short failure does not cost it its place.
async fn send(api: Api, write: Write) -> Sent {
    let mut attempts = 0;
    let mut pause = PAUSE;
    loop {
        attempts += 1;
        let began = Instant::now();
        let body = (!write.body.is_null()).then_some((write.content_type, &write.body));
        let answer = match tokio::time::timeout(TIMEOUT, api.send(write.method, &write.path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::NoAnswer { path: write.path.clone() }),
        };
        let took = began.elapsed();
        let again = answer.as_ref().is_err_and(Error::is_transient) && write.retry == Retry::UntilAnswered;
        if !again || attempts > 3 {
            return Sent { write, attempts, answer, took };
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests;

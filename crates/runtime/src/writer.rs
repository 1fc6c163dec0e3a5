//! Sends writes in the background: the important ones first, and about one object in the order they were made.
//!
//! There are three lanes. A write waits only for those of its own lane or a better one, and for earlier writes about the
//! same object. A write with a slot replaces one that still waits in the same slot of the same object, so a state that
//! changes faster than it can be written costs one write. How many are under way at once follows what the server can
//! take: more while answers come as fast as ever, half as many when it says that it is too much. A write that failed for
//! a while waits, the longer the more often it failed, and takes nobody's place meanwhile.

mod pace;

use crate::api::{Api, Error, Result};
use crate::kind::{Key, Kind};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use pace::Pace;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most events that wait; more are lost, as they are no part of any state.
const EVENTS_MAX: usize = 10_000;
/// How long to wait before the first repetition, and at most.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

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

/// A write that waits, and how often it has failed.
#[derive(Debug)]
struct Waiting {
    write: Write,
    failures: u32,
}

#[derive(Debug, Default)]
struct State {
    objects: FxHashMap<ObjectId, VecDeque<Waiting>>,
    /// Objects whose first write may be sent; one may stand in several lanes.
    ready: [VecDeque<ObjectId>; 3],
    /// Objects of which a write is under way, or waits to be sent again.
    running: FxHashSet<ObjectId>,
    /// Objects whose first write failed, by when it is sent again.
    later: BTreeMap<(Instant, u64), ObjectId>,
    failures: u64,
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
            writes.retain(|waiting| waiting.write.slot != Some(slot));
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
            let again = self.lock().ripen(Instant::now());
            while running.len() < pace.limit() {
                let Some(waiting) = self.lock().take() else { break };
                running.push(Box::pin(send(api.clone(), waiting)));
            }
            let alarm = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(sent) = running.next(), if !running.is_empty() => self.conclude(sent, &mut pace),
                () = self.shared.changed.notified() => {}
                () = alarm => {}
            }
        }
    }

    fn conclude(&self, sent: Sent, pace: &mut Pace) {
        let Sent { waiting, answer, took } = sent;
        match &answer {
            Err(error) if error.is_transient() => pace.overloaded(),
            Ok(_) | Err(_) => pace.answered(took),
        }
        let retries = waiting.write.retry == Retry::UntilAnswered;
        if retries && answer.as_ref().is_err_and(Error::is_transient) {
            let (path, failures) = (&waiting.write.path, waiting.failures + 1);
            tracing::debug!(path, failures, "will be written again");
            self.lock().put_back(waiting, Instant::now());
            return;
        }
        let mut write = waiting.write;
        if let Err(error) = &answer {
            tracing::debug!(path = write.path, error = error as &dyn std::error::Error, "was not written");
        }
        let done = write.done.take();
        self.lock().finish(&write.object);
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
        let same = |waiting: &&mut Waiting| write.slot.is_some() && waiting.write.slot == write.slot;
        if let Some(waiting) = writes.iter_mut().find(same) {
            waiting.write = write;
        } else {
            writes.push_back(Waiting { write, failures: 0 });
            self.counts.waiting += 1;
        }
        if !self.running.contains(&id) {
            self.ready[lane as usize].push_back(id);
        }
    }

    /// The next write to send.
    fn take(&mut self) -> Option<Waiting> {
        for lane in LANES {
            while let Some(id) = self.ready[lane as usize].pop_front() {
                if self.running.contains(&id) {
                    continue;
                }
                let Some(writes) = self.objects.get_mut(&id) else { continue };
                let Some(waiting) = writes.pop_front() else { continue };
                if writes.is_empty() {
                    self.objects.remove(&id);
                }
                if waiting.write.lane == Lane::Remark {
                    self.remarks -= 1;
                }
                self.counts.waiting -= 1;
                self.counts.running += 1;
                self.counts.sent += 1;
                self.running.insert(id);
                return Some(waiting);
            }
        }
        None
    }

    /// Lets the next write about the object go.
    fn finish(&mut self, object: &ObjectId) {
        self.counts.running -= 1;
        self.release(object);
    }

    fn release(&mut self, object: &ObjectId) {
        self.running.remove(object);
        let writes = self.objects.get(object).into_iter().flatten();
        if let Some(lane) = writes.map(|waiting| waiting.write.lane).min() {
            self.ready[lane as usize].push_back(object.clone());
        }
    }

    /// Puts a write that failed back in front, unless something newer is there in its place. Nothing is written about
    /// the object until then.
    fn put_back(&mut self, mut waiting: Waiting, now: Instant) {
        self.counts.running -= 1;
        waiting.failures += 1;
        let wait = PAUSE.saturating_mul(1 << waiting.failures.min(16).saturating_sub(1)).min(PAUSE_MAX);
        self.failures += 1;
        self.later.insert((now + wait, self.failures), waiting.write.object.clone());
        let writes = self.objects.entry(waiting.write.object.clone()).or_default();
        let same =
            |known: &&mut Waiting| known.write.slot.is_some() && known.write.slot == waiting.write.slot;
        if let Some(newer) = writes.iter_mut().find(same) {
            newer.failures = waiting.failures;
            return;
        }
        self.counts.waiting += 1;
        if waiting.write.lane == Lane::Remark {
            self.remarks += 1;
        }
        writes.push_front(waiting);
    }

    /// Lets go what has waited long enough; says when the next one has.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.later.first_entry() {
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
    waiting: Waiting,
    answer: Result<Value>,
    took: Duration,
}

async fn send(api: Api, waiting: Waiting) -> Sent {
    let write = &waiting.write;
    let began = Instant::now();
    let body = (!write.body.is_null()).then_some((write.content_type, &write.body));
    let answer = api.send(write.method, &write.path, body).await;
    Sent { answer, took: began.elapsed(), waiting }
}

#[cfg(test)]
mod tests;

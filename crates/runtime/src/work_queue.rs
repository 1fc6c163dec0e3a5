//! Rate-limited work queue of a controller, with the semantics of client-go's `workqueue`.
//!
//! A key is queued at most once. A key that is being processed is not handed out again before it is [`done`]; if it is
//! added meanwhile, it is queued again then. Order is first in, first out, so that the same events give the same work.
//!
//! [`done`]: WorkQueue::done

use crate::backoff::BackoffPolicy;
use crate::kind::Key;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Delay of a key that failed.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(30));

#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    queued: FxHashSet<Key>,
    processing: FxHashSet<Key>,
    /// Added again while being processed.
    dirty: FxHashSet<Key>,
    /// By due time, then by arrival.
    delayed: BTreeMap<(Instant, u64), Key>,
    due: FxHashMap<Key, (Instant, u64)>,
    arrivals: u64,
    failures: FxHashMap<Key, u32>,
}

impl WorkQueue {
    /// Adds a key; one that is queued already keeps its position.
    pub fn add(&self, key: Key) {
        self.state.lock().push(key);
        self.notify.notify_one();
    }

    /// Adds a key after a delay; of two due times of a key the earlier one counts.
    pub fn add_after(&self, key: Key, delay: Duration) {
        let at = Instant::now() + delay;
        let mut state = self.state.lock();
        if let Some(known) = state.due.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            state.delayed.remove(&known);
        }
        state.arrivals += 1;
        let due = (at, state.arrivals);
        state.due.insert(key.clone(), due);
        state.delayed.insert(due, key);
        drop(state);
        self.notify.notify_one();
    }

    /// Adds a key that failed, after the backoff for its number of consecutive failures.
    pub fn add_rate_limited(&self, key: Key) {
        let failures = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(key.clone()).or_insert(0);
            *failures += 1;
            *failures
        };
        self.add_after(key, BACKOFF.delay(failures));
    }

    /// Resets the backoff of a key after a success.
    pub fn forget(&self, key: &Key) {
        self.state.lock().failures.remove(key);
    }

    /// Ends the processing of a key; queues it again if it was added meanwhile.
    pub fn done(&self, key: &Key) {
        let mut state = self.state.lock();
        state.processing.remove(key);
        if state.dirty.remove(key) {
            state.push(key.clone());
            drop(state);
            self.notify.notify_one();
        }
    }

    /// Queues the keys again that a worker held when it was dropped.
    pub fn requeue_abandoned(&self) {
        let mut state = self.state.lock();
        let mut abandoned: Vec<Key> = std::mem::take(&mut state.processing).into_iter().collect();
        abandoned.sort_unstable();
        state.dirty.clear();
        for key in abandoned {
            state.push(key);
        }
        drop(state);
        self.notify.notify_one();
    }

    /// Waits for the next key, which is then processed until [`done`](Self::done).
    pub async fn next(&self) -> Key {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                state.promote_due(Instant::now());
                if let Some(key) = state.pop() {
                    return key;
                }
                state.delayed.first_key_value().map(|((at, _), _)| *at)
            };
            match next_due {
                Some(at) => tokio::select! {
                    biased;
                    () = self.notify.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.notify.notified().await,
            }
        }
    }
}

impl State {
    fn push(&mut self, key: Key) {
        if self.processing.contains(&key) {
            self.dirty.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    fn promote_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("", name)
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn keys_are_deduplicated_and_handed_out_in_order() {
        let queue = WorkQueue::default();
        for name in ["a", "b", "a"] {
            queue.add(key(name));
        }
        queue.add_after(key("late"), Duration::from_secs(5));
        queue.add_after(key("late"), Duration::from_secs(2));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(queue.next().await, key("b"));
        let before = Instant::now();
        assert_eq!(queue.next().await, key("late"));
        assert_eq!(before.elapsed().as_secs(), 2);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn key_added_while_processing_is_queued_after_done() {
        let queue = WorkQueue::default();
        queue.add(key("a"));
        queue.next().await;
        queue.add(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.next().await, key("b"));
        queue.done(&key("a"));
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn keys_of_a_dropped_worker_are_queued_again() {
        let queue = WorkQueue::default();
        for name in ["b", "a"] {
            queue.add(key(name));
            queue.next().await;
        }
        queue.add(key("a"));
        queue.requeue_abandoned();
        assert_eq!((queue.next().await, queue.next().await), (key("a"), key("b")));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn failing_key_backs_off_exponentially() {
        let queue = WorkQueue::default();
        let before = Instant::now();
        for _ in 0..3 {
            queue.add_rate_limited(key("a"));
            queue.next().await;
            queue.done(&key("a"));
        }
        assert!(before.elapsed() >= BACKOFF.base * 7, "{:?}", before.elapsed());
        queue.forget(&key("a"));
        let before = Instant::now();
        queue.add_rate_limited(key("a"));
        queue.next().await;
        assert!(before.elapsed() < BACKOFF.base * 2);
    }
}

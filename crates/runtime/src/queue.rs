//! The work of a controller: each key at most once, some of it only later.
//!
//! A key that is being worked on is not handed out again before that is done, whatever comes in the meantime.
//! Order is first come, first served, so that the same events give the same work.

use crate::kind::Key;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a key waits after its first failure; the wait doubles with each further one.
const BACKOFF: Duration = Duration::from_millis(50);
/// The longest wait of a key that keeps failing.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Keys to look at.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    queued: FxHashSet<Key>,
    running: FxHashSet<Key>,
    /// Came again while they were worked on.
    again: FxHashSet<Key>,
    /// By time, then by arrival.
    later: BTreeMap<(Instant, u64), Key>,
    due: FxHashMap<Key, (Instant, u64)>,
    arrivals: u64,
    failures: FxHashMap<Key, u32>,
}

impl Queue {
    /// Adds a key; one that is already waiting for its turn stays where it is.
    pub fn add(&self, key: Key) {
        self.lock().push(key);
        self.filled.notify_one();
    }

    /// Adds a key after a while; of two such times the earlier one counts.
    pub fn add_after(&self, key: Key, wait: Duration) {
        let at = Instant::now() + wait;
        let mut state = self.lock();
        if let Some(known) = state.due.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            state.later.remove(&known);
        }
        state.arrivals += 1;
        let place = (at, state.arrivals);
        state.due.insert(key.clone(), place);
        state.later.insert(place, key);
        drop(state);
        self.filled.notify_one();
    }

    /// Adds a key that failed: the longer, the more often it did.
    pub fn add_failed(&self, key: Key) {
        let failures = {
            let mut state = self.lock();
            let failures = state.failures.entry(key.clone()).or_insert(0);
            *failures += 1;
            *failures
        };
        let wait = BACKOFF.saturating_mul(1 << failures.min(16).saturating_sub(1)).min(BACKOFF_MAX);
        self.add_after(key, wait);
    }

    /// Notes that a key did not fail.
    pub fn forgive(&self, key: &Key) {
        self.lock().failures.remove(key);
    }

    /// Notes that the work on a key is over.
    pub fn done(&self, key: &Key) {
        let mut state = self.lock();
        state.running.remove(key);
        if state.again.remove(key) {
            state.push(key.clone());
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Puts keys back that were being worked on: whoever did has crashed.
    pub fn recover(&self) {
        let mut state = self.lock();
        let mut left: Vec<Key> = std::mem::take(&mut state.running).into_iter().collect();
        left.sort_unstable();
        state.again.clear();
        for key in left {
            state.push(key);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for the next key, which is then worked on until it is [`done`](Self::done).
    pub async fn next(&self) -> Key {
        loop {
            let alarm = {
                let mut state = self.lock();
                state.ripen(Instant::now());
                if let Some(key) = state.pop() {
                    return key;
                }
                state.later.first_key_value().map(|((at, _), _)| *at)
            };
            match alarm {
                Some(at) => tokio::select! {
                    biased;
                    () = self.filled.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.filled.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, key: Key) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    fn ripen(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
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
    async fn keys_come_once_and_in_order() {
        let queue = Queue::default();
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
    async fn a_key_that_is_worked_on_comes_again_only_after_that() {
        let queue = Queue::default();
        queue.add(key("a"));
        queue.next().await;
        queue.add(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.next().await, key("b"));
        queue.done(&key("a"));
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn keys_of_a_worker_that_crashed_come_again() {
        let queue = Queue::default();
        for name in ["b", "a"] {
            queue.add(key(name));
            queue.next().await;
        }
        queue.add(key("a"));
        queue.recover();
        assert_eq!((queue.next().await, queue.next().await), (key("a"), key("b")));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_key_that_fails_waits_longer_each_time() {
        let queue = Queue::default();
        let before = Instant::now();
        for _ in 0..3 {
            queue.add_failed(key("a"));
            queue.next().await;
            queue.done(&key("a"));
        }
        assert!(before.elapsed() >= BACKOFF * 7, "{:?}", before.elapsed());
        queue.forgive(&key("a"));
        let before = Instant::now();
        queue.add_failed(key("a"));
        queue.next().await;
        assert!(before.elapsed() < BACKOFF * 2);
    }
}

//! Rate-limited work queue of a controller, with the semantics of client-go's `workqueue`.
//!
//! A key is queued at most once. A key that is being processed is not handed out again before it is [`done`]; if it is
//! added meanwhile, it is queued again then. Order is first in, first out, so that the same events give the same work.
//!
//! [`done`]: WorkQueue::done

use crate::backoff::BackoffPolicy;
use crate::kind::Key;
use crate::metrics::work_queue::{Depth, WorkQueueMetrics};
use parking_lot::Mutex;
use prometheus::Registry;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Delay of a key that failed.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(30));

#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Arc<Mutex<State>>,
    notify: Notify,
    metrics: Option<WorkQueueMetrics>,
}

/// Every object of a large cluster may wait at once: the collections share the keys.
#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Arc<Key>>,
    /// With the time when each was queued.
    queued: FxHashMap<Arc<Key>, Instant>,
    /// With the time when each was handed out.
    processing: FxHashMap<Arc<Key>, Instant>,
    /// Added again while being processed.
    dirty: FxHashSet<Arc<Key>>,
    /// By due time, then by arrival.
    delayed: BTreeMap<(Instant, u64), Arc<Key>>,
    due: FxHashMap<Arc<Key>, (Instant, u64)>,
    arrivals: u64,
    failures: FxHashMap<Arc<Key>, u32>,
}

impl WorkQueue {
    /// A queue with the metrics `workqueue_*` of this controller.
    pub fn measured(controller: &str, metrics: &Registry) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let weak = Arc::downgrade(&state);
        let depth = move || weak.upgrade().map(|state| state.lock().depth()).unwrap_or_default();
        let metrics = WorkQueueMetrics::register(controller, metrics, depth);
        Self { state, notify: Notify::new(), metrics: Some(metrics) }
    }

    /// Adds a key; one that is queued already keeps its position.
    pub fn add(&self, key: impl Into<Arc<Key>>) {
        self.push(&mut self.state.lock(), key.into());
        self.notify.notify_one();
    }

    /// Adds a key after a delay; of two due times of a key the earlier one counts.
    pub fn add_after(&self, key: impl Into<Arc<Key>>, delay: Duration) {
        let key = key.into();
        let at = Instant::now() + delay;
        if let Some(metrics) = &self.metrics {
            metrics.retries.inc();
        }
        let mut state = self.state.lock();
        if let Some(known) = state.due.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            state.delayed.remove(&known);
        }
        state.arrivals += 1;
        let due = (at, state.arrivals);
        state.due.insert(Arc::clone(&key), due);
        state.delayed.insert(due, key);
        drop(state);
        self.notify.notify_one();
    }

    /// Adds a key that failed, after the backoff for its number of consecutive failures.
    pub fn add_rate_limited(&self, key: impl Into<Arc<Key>>) {
        let key = key.into();
        let failures = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(Arc::clone(&key)).or_insert(0);
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
        let began = state.processing.remove(key);
        if let (Some(metrics), Some(began)) = (&self.metrics, began) {
            metrics.work_seconds.observe(began.elapsed().as_secs_f64());
        }
        if let Some(key) = state.dirty.take(key) {
            state.push(key);
            drop(state);
            self.notify.notify_one();
        }
    }

    /// Queues the keys again that a worker held when it was dropped.
    pub fn requeue_abandoned(&self) {
        let mut state = self.state.lock();
        let mut abandoned: Vec<Arc<Key>> = std::mem::take(&mut state.processing).into_keys().collect();
        abandoned.sort_unstable();
        state.dirty.clear();
        for key in abandoned {
            state.push(key);
        }
        drop(state);
        self.notify.notify_one();
    }

    /// Waits for the next key, which is then processed until [`done`](Self::done).
    pub async fn next(&self) -> Arc<Key> {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                while let Some(key) = state.take_due(Instant::now()) {
                    self.push(&mut state, key);
                }
                if let Some((key, queued)) = state.pop() {
                    if let Some(metrics) = &self.metrics {
                        metrics.queue_seconds.observe(queued.elapsed().as_secs_f64());
                    }
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

    fn push(&self, state: &mut State, key: Arc<Key>) {
        if state.push(key)
            && let Some(metrics) = &self.metrics
        {
            metrics.adds.inc();
        }
    }
}

impl State {
    /// Returns whether the key was not waiting already.
    fn push(&mut self, key: Arc<Key>) -> bool {
        if self.processing.contains_key(&key) {
            return self.dirty.insert(key);
        }
        let Entry::Vacant(entry) = self.queued.entry(key) else { return false };
        self.ready.push_back(Arc::clone(entry.key()));
        entry.insert(Instant::now());
        true
    }

    /// The next key, and when it was queued.
    fn pop(&mut self) -> Option<(Arc<Key>, Instant)> {
        let key = self.ready.pop_front()?;
        let now = Instant::now();
        let queued = self.queued.remove(&key).unwrap_or(now);
        self.processing.insert(Arc::clone(&key), now);
        Some((key, queued))
    }

    /// The next key whose delay is over.
    fn take_due(&mut self, now: Instant) -> Option<Arc<Key>> {
        let entry = self.delayed.first_entry().filter(|entry| entry.key().0 <= now)?;
        let key = entry.remove();
        self.due.remove(&key);
        Some(key)
    }

    fn depth(&self) -> Depth {
        let times = || self.processing.values().map(Instant::elapsed);
        Depth {
            queued: self.ready.len(),
            unfinished: times().sum(),
            longest: times().max().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<Key> {
        Arc::new(Key::new("", name))
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
    async fn metrics_follow_the_keys() {
        let metrics = Registry::new();
        let queue = WorkQueue::measured("pod", &metrics);
        for name in ["a", "b", "a"] {
            queue.add(key(name));
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        queue.next().await;
        tokio::time::advance(Duration::from_secs(3)).await;
        queue.add_rate_limited(key("c"));
        let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
        for line in [
            "workqueue_depth{controller=\"pod\",name=\"pod\"} 1",
            "workqueue_adds_total{controller=\"pod\",name=\"pod\"} 2",
            "workqueue_retries_total{controller=\"pod\",name=\"pod\"} 1",
            "workqueue_queue_duration_seconds_sum{controller=\"pod\",name=\"pod\"} 2",
            "workqueue_unfinished_work_seconds{controller=\"pod\",name=\"pod\"} 3",
            "workqueue_longest_running_processor_seconds{controller=\"pod\",name=\"pod\"} 3",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        queue.done(&key("a"));
        let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
        assert!(
            text.contains("workqueue_work_duration_seconds_sum{controller=\"pod\",name=\"pod\"} 3\n"),
            "{text}"
        );
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

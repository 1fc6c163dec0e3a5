//! A shared value whose changes can be awaited, with deterministic wake-ups.
//!
//! Waiters are woken in the order in which they began to wait. `tokio::sync::watch` wakes its receivers in random order,
//! which would give one simulation seed several histories.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// A value whose changes can be awaited; clones share it.
#[derive(Debug, Default)]
pub struct WatchValue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug, Default)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for WatchValue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Copy> WatchValue<T> {
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(Shared { value: Mutex::new(value), changed: Notify::new() }) }
    }

    pub fn get(&self) -> T {
        *self.shared.value.lock()
    }

    /// Replaces the value and wakes all waiters.
    pub fn set(&self, value: T) {
        self.modify(|old| *old = value);
    }

    /// Modifies the value in place and wakes all waiters.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.shared.value.lock());
        self.shared.changed.notify_waiters();
    }

    /// Waits until the value satisfies the predicate.
    pub async fn wait_for(&self, predicate: impl Fn(T) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Registered before the value is read, so that no change is missed.
            changed.as_mut().enable();
            if predicate(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiters_are_woken_in_order_of_registration() {
        let (value, woken) = (WatchValue::new(false), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (value, woken) = (value.clone(), Arc::clone(&woken));
            tasks.spawn(async move {
                value.wait_for(|set| set).await;
                woken.lock().push(number);
            });
        }
        tokio::task::yield_now().await;
        value.set(true);
        tasks.join_all().await;
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn satisfied_predicate_returns_immediately() {
        let value = WatchValue::new(3);
        value.wait_for(|current| current > 2).await;
        value.modify(|current| *current += 1);
        assert_eq!(value.get(), 4);
    }
}

//! A value that others wait for.
//!
//! Those who wait are woken in the order in which they came. `tokio::sync::watch` wakes them in an order that it draws,
//! and one seed of a simulation would have many histories.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A value that others wait for; clones are the same one.
#[derive(Debug, Default)]
pub struct Signal<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug, Default)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Copy> Signal<T> {
    /// A value to begin with.
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(Shared { value: Mutex::new(value), changed: Notify::new() }) }
    }

    /// The value now.
    pub fn get(&self) -> T {
        *self.lock()
    }

    /// Replaces the value, and wakes those who wait.
    pub fn set(&self, value: T) {
        self.change(|old| *old = value);
    }

    /// Changes the value, and wakes those who wait.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.shared.changed.notify_waiters();
    }

    /// Waits until the value is as wanted.
    pub async fn until(&self, wanted: impl Fn(T) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Who is in line before looking misses no change.
            changed.as_mut().enable();
            if wanted(self.get()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.shared.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let (signal, woken) = (Signal::new(false), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (signal, woken) = (signal.clone(), Arc::clone(&woken));
            tasks.spawn(async move {
                signal.until(|set| set).await;
                woken.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        signal.set(true);
        tasks.join_all().await;
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_as_wanted_is_not_waited_for() {
        let signal = Signal::new(3);
        signal.until(|value| value > 2).await;
        signal.change(|value| *value += 1);
        assert_eq!(signal.get(), 4);
    }
}

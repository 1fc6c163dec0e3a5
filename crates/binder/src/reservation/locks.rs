//! One lock for each name, made when somebody wants it and gone with its last user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OwnedMutexGuard;

/// Locks by name.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Waits until nobody else holds the name. Turns are given in the order of asking.
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|_, lock| lock.strong_count() > 0);
            if let Some(lock) = held.get(name).and_then(Weak::upgrade) {
                lock
            } else {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                held.insert(name.to_owned(), Arc::downgrade(&lock));
                lock
            }
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_name_is_held_by_one_at_a_time_and_forgotten_by_the_last() {
        let locks = Arc::new(Locks::default());
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        let waiting = tokio::spawn({
            let locks = Arc::clone(&locks);
            async move { drop(locks.lock("a").await) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        drop(other);
        drop(locks.lock("c").await);
        drop(locks.lock("d").await);
        assert!(locks.held.lock().unwrap().len() <= 2, "names without holders are forgotten");
    }
}

//! One asynchronous lock for each name, created on demand and dropped with its last user.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<BTreeMap<String, Weak<RwLock<()>>>>,
}

impl Locks {
    /// Acquires the lock of a name exclusively. Waiters are served in order.
    pub(crate) async fn lock(&self, name: &str) -> OwnedRwLockWriteGuard<()> {
        self.get(name).write_owned().await
    }

    /// Acquires the lock of a name together with others.
    pub(crate) async fn share(&self, name: &str) -> OwnedRwLockReadGuard<()> {
        self.get(name).read_owned().await
    }

    fn get(&self, name: &str) -> Arc<RwLock<()>> {
        let mut held = self.held.lock();
        held.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = held.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(RwLock::new(()));
        held.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn lock_is_exclusive_for_each_name_and_dropped_after_use() {
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
        assert!(locks.held.lock().len() <= 2, "unused locks are dropped");
    }
}

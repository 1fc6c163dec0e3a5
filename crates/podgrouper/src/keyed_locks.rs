//! One lock for each key that is in use: what one worker does for a key, the others wait for.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Locks without a holder are removed once there are more than this many.
const UNUSED_MAX: usize = 64;

type Lock = tokio::sync::Mutex<()>;

#[derive(Debug)]
pub(crate) struct KeyedLocks<K>(Mutex<BTreeMap<K, Weak<Lock>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Ord> KeyedLocks<K> {
    /// The lock of a key, for as long as someone keeps it.
    pub(crate) fn of(&self, key: &K) -> Arc<Lock> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() > UNUSED_MAX {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_a_key_share_its_lock_and_unused_locks_are_removed() {
        let locks = KeyedLocks::default();
        let held = locks.of(&0);
        for key in 1..1_000 {
            let _ = locks.of(&key);
        }
        assert!(Arc::ptr_eq(&held, &locks.of(&0)));
        assert!(locks.0.lock().len() <= UNUSED_MAX + 1);
    }
}

//! Everything that the heart is told, in the order in which it came.

use crate::effect::evict::Evicted;
use crate::usage::Usage;
use kai_cache::{Kind, Object};
use kai_engine::input::Key;
use kai_runtime::api;
use kai_runtime::watch::News;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Something that the heart is told.
#[derive(Debug)]
pub(crate) enum Change {
    /// The server has something new.
    News(Kind, News<Object>),
    /// What became of a bind request that was to be made.
    BindAnswered(Key, api::Result<Value>),
    /// A bind request was refused, and this is what the server has under its name.
    BindLookedUp(Key, api::Error, Option<Value>),
    /// What became of evictions.
    Evicted(Evicted),
    /// What queues used in the past.
    Usage(Usage),
    /// Marks were written to a group, or could not be: the group and how many marks there had been by then.
    Marked(Key, u64, Result<(), MarkFailure>),
}

/// Why marks were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkFailure {
    /// The group is gone.
    Gone,
    /// The server refused.
    Refused,
}

/// Collects changes until the heart takes them.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    changes: Mutex<Vec<Change>>,
    filled: Notify,
}

impl Inbox {
    /// Adds a change.
    pub(crate) fn put(&self, change: Change) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        self.filled.notify_one();
    }

    /// Takes all changes.
    pub(crate) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a change.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}

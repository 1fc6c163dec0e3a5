//! The ordered log of changes: per table, so that a watch sees only its own, with one order and one size over all.

use super::record::wrap;
use super::{Action, Compacted, Record, Store, TableId};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// How many changes a cursor hands out at once.
const BATCH: usize = 256;

/// One write: the version it made and the one it replaced.
#[derive(Debug)]
pub struct Change {
    action: Action,
    record: Arc<Record>,
    previous: Option<Arc<Record>>,
    /// Events for watchers whose selector the change entered or left, encoded once for all of them.
    entered: OnceLock<Bytes>,
    left: OnceLock<Bytes>,
}

impl Change {
    pub(super) fn new(action: Action, record: Arc<Record>, previous: Option<Arc<Record>>) -> Self {
        Self { action, record, previous, entered: OnceLock::new(), left: OnceLock::new() }
    }

    /// The revision of the write.
    pub fn revision(&self) -> u64 {
        self.record.revision
    }

    /// What the write did.
    pub fn action(&self) -> Action {
        self.action
    }

    /// The version the write made; of a deleted object its last state.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// The version it replaced.
    pub fn previous(&self) -> Option<&Arc<Record>> {
        self.previous.as_ref()
    }

    /// The event for a client that did not see the object before.
    pub fn entered(&self) -> Bytes {
        self.entered.get_or_init(|| self.record.event_as(Action::Added)).clone()
    }

    /// The object as a client sees it go that no longer selects it: its state before, at the revision of the change.
    pub fn left_object(&self) -> Option<Value> {
        let mut object = self.previous.as_ref()?.value();
        object["metadata"]["resourceVersion"] = Value::String(self.revision().to_string());
        Some(object)
    }

    /// The event for a client that no longer selects the object.
    pub fn left(&self) -> Option<Bytes> {
        if let Some(event) = self.left.get() {
            return Some(event.clone());
        }
        let object = self.left_object()?;
        Some(self.left.get_or_init(|| wrap(Action::Deleted, &super::record::to_json(&object))).clone())
    }
}

/// The changes of one table, oldest first.
#[derive(Debug, Default)]
pub(super) struct Changes(VecDeque<Arc<Change>>);

impl Changes {
    pub(super) fn push(&mut self, change: Change) {
        self.0.push_back(Arc::new(change));
    }

    pub(super) fn drop_oldest(&mut self) -> Arc<Change> {
        self.0.pop_front().expect("the order of the log names a table with a change")
    }

    /// Changes after `revision`, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.0.range(self.0.partition_point(|change| change.revision() <= revision)..)
    }
}

/// The order of changes over all tables, and how much they hold.
#[derive(Debug, Default)]
pub(super) struct Log {
    order: VecDeque<TableId>,
    bytes: usize,
    /// The newest revision that is no longer in the log.
    compacted: u64,
}

impl Log {
    pub(super) fn note(&mut self, table: TableId, bytes: usize) {
        self.order.push_back(table);
        self.bytes += bytes;
    }

    pub(super) fn oldest_beyond(&self, bytes_max: usize) -> Option<TableId> {
        if self.bytes > bytes_max { self.order.front().copied() } else { None }
    }

    pub(super) fn forget(&mut self, bytes: usize, revision: u64) {
        self.order.pop_front();
        self.bytes -= bytes;
        self.compacted = revision;
    }

    /// Forgets that there was anything before this revision.
    pub(super) fn begin_at(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
    }

    #[cfg(test)]
    pub(super) fn bytes_for_test(&self) -> usize {
        self.bytes
    }

    /// Whether one can go on from `revision` without a gap.
    pub(super) fn reaches(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted {
            return Err(Compacted { asked: revision, oldest: self.compacted });
        }
        Ok(())
    }
}

/// A place in the log of one table, from which a watch reads on.
#[derive(Debug)]
pub struct Cursor {
    table: TableId,
    seen: u64,
    changed: Arc<Notify>,
}

impl Cursor {
    /// The newest revision of the store when this cursor last looked: nothing of the table up to it is missing.
    pub fn revision(&self) -> u64 {
        self.seen
    }
}

impl Store {
    /// A cursor that reads what happened to the table after `revision`.
    pub fn cursor(&self, table: TableId, revision: u64) -> Result<Cursor, Compacted> {
        let state = self.read();
        state.log.reaches(revision)?;
        Ok(Cursor { table, seen: revision, changed: Arc::clone(&state.tables[table.index()].changed) })
    }

    /// The next changes, at most a batch, without waiting. Fails when the cursor fell out of the log.
    pub fn poll(&self, cursor: &mut Cursor) -> Result<Vec<Arc<Change>>, Compacted> {
        let state = self.read();
        state.log.reaches(cursor.seen)?;
        let changes: Vec<_> = state.tables[cursor.table.index()]
            .changes
            .after(cursor.seen)
            .take(BATCH)
            .map(Arc::clone)
            .collect();
        match changes.last() {
            Some(last) => cursor.seen = last.revision(),
            None => cursor.seen = cursor.seen.max(state.revision),
        }
        Ok(changes)
    }

    /// Waits for the next changes; may come back with none.
    pub async fn next(&self, cursor: &mut Cursor) -> Result<Vec<Arc<Change>>, Compacted> {
        let changed = Arc::clone(&cursor.changed);
        let notified = changed.notified();
        tokio::pin!(notified);
        // Before looking: a change between the look and the wait must wake us.
        notified.as_mut().enable();
        let changes = self.poll(cursor)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
        notified.await;
        self.poll(cursor)
    }
}

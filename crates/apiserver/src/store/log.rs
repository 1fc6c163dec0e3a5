//! The ordered log of changes: one list for each table, with a total order and size over all tables.

use super::record::wrap;
use super::{Action, Compacted, Record, Store, TableId};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Maximum number of changes that a cursor returns at once.
const BATCH: usize = 256;

/// A write: the version it created and the one it replaced.
#[derive(Debug)]
pub struct Change {
    action: Action,
    record: Arc<Record>,
    previous: Option<Arc<Record>>,
    /// Events for watchers whose selector starts or stops matching, encoded once.
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

    pub fn action(&self) -> Action {
        self.action
    }

    /// The version that the write created; for a delete the last state.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// The version that the write replaced.
    pub fn previous(&self) -> Option<&Arc<Record>> {
        self.previous.as_ref()
    }

    /// The `ADDED` event for a watcher whose selector did not match before.
    pub fn entered(&self) -> Bytes {
        self.entered.get_or_init(|| self.record.event_as(Action::Added)).clone()
    }

    /// The object in the `DELETED` event for a watcher whose selector stops matching: the previous state at the
    /// revision of the change.
    pub fn left_object(&self) -> Option<Value> {
        let mut object = self.previous.as_ref()?.value();
        object["metadata"]["resourceVersion"] = Value::String(self.revision().to_string());
        Some(object)
    }

    /// The `DELETED` event for a watcher whose selector stops matching.
    pub fn left(&self) -> Option<Bytes> {
        if let Some(event) = self.left.get() {
            return Some(event.clone());
        }
        let object = self.left_object()?;
        Some(self.left.get_or_init(|| wrap(Action::Deleted, &super::record::to_json(&object))).clone())
    }
}

#[derive(Debug, Default)]
pub(super) struct Changes(VecDeque<Arc<Change>>);

impl Changes {
    pub(super) fn push(&mut self, change: Change) {
        self.0.push_back(Arc::new(change));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn drop_oldest(&mut self) -> Arc<Change> {
        self.0.pop_front().expect("the log order refers to tables with changes")
    }

    /// Changes after `revision`, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.0.range(self.0.partition_point(|change| change.revision() <= revision)..)
    }
}

/// The order and the size of the changes of all tables.
#[derive(Debug, Default)]
pub(super) struct Log {
    order: VecDeque<TableId>,
    bytes: usize,
    /// The newest compacted revision.
    compacted: u64,
}

impl Log {
    /// An empty log after this revision.
    pub(super) fn compacted_to(revision: u64) -> Self {
        Self { compacted: revision, ..Self::default() }
    }

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

    /// Compacts everything before this revision.
    pub(super) fn compact_to(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
    }

    #[cfg(test)]
    pub(super) fn bytes_for_test(&self) -> usize {
        self.bytes
    }

    /// Fails if changes after `revision` are compacted.
    pub(super) fn check_reachable(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted {
            return Err(Compacted { requested: revision, oldest: self.compacted });
        }
        Ok(())
    }
}

/// A position in the log of one table.
#[derive(Debug)]
pub struct Cursor {
    table: TableId,
    seen: u64,
    /// Restores of the store before it began.
    restores: u64,
    changed: Arc<Notify>,
}

impl Cursor {
    /// The revision of the store at the last poll: no change of the table up to it is missing.
    pub fn revision(&self) -> u64 {
        self.seen
    }
}

impl Store {
    /// A cursor after `revision`.
    pub fn cursor(&self, table: TableId, revision: u64) -> Result<Cursor, Compacted> {
        let state = self.read();
        state.log.check_reachable(revision)?;
        let changed = Arc::clone(&state.tables[table.index()].changed);
        Ok(Cursor { table, seen: revision, restores: state.restores, changed })
    }

    /// Whether all objects were replaced since the cursor began.
    pub fn is_restored_since(&self, cursor: &Cursor) -> bool {
        self.read().restores != cursor.restores
    }

    /// The next batch of changes, without waiting. Fails if the position is compacted.
    pub fn poll(&self, cursor: &mut Cursor) -> Result<Vec<Arc<Change>>, Compacted> {
        let state = self.read();
        state.log.check_reachable(cursor.seen)?;
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

    /// Waits for the next changes; may return none.
    pub async fn next(&self, cursor: &mut Cursor) -> Result<Vec<Arc<Change>>, Compacted> {
        let changed = Arc::clone(&cursor.changed);
        let notified = changed.notified();
        tokio::pin!(notified);
        // Registers before polling: a change between poll and wait must wake this task.
        notified.as_mut().enable();
        let changes = self.poll(cursor)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
        notified.await;
        self.poll(cursor)
    }
}

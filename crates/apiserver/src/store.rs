//! The in-memory storage: all objects, and an ordered log of changes.
//!
//! Every write gets the next revision, which is the object's `resourceVersion`. Objects are stored as compact JSON,
//! already encoded as the watch event of their write, so that watches send the stored bytes without copying.
//! The log is compacted by size: reading from a compacted revision fails with [`Compacted`].
//! Watchers pull from the log, so that a slow watcher costs nothing: its watch ends once its revision is compacted.

mod log;
mod page;
mod record;

#[cfg(test)]
mod tests;

pub use log::{Change, Cursor};
pub use page::{ListRange, Page};
pub use record::{Action, Record, to_json, wrap};

use log::Log;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Notify;

/// A table of the store: all objects of one resource in all served versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(u32);

impl TableId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The object changed since the writer read it.
#[derive(Debug, thiserror::Error)]
#[error("the object was written concurrently")]
pub struct WriteConflict {
    /// The current object.
    pub current: Option<Arc<Record>>,
}

/// The requested revision is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is compacted, the oldest kept is {oldest}")]
pub struct Compacted {
    pub requested: u64,
    /// The oldest revision from which a watch can resume.
    pub oldest: u64,
}

/// An object and the name of its table.
#[derive(Clone, Debug)]
pub struct StoredObject {
    pub table: Box<str>,
    pub record: Arc<Record>,
}

#[derive(Debug)]
pub struct Store {
    state: RwLock<State>,
    log_bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    tables: Vec<Table>,
    by_name: FxHashMap<Box<str>, TableId>,
    log: Log,
    /// Incremented by each restore of all objects.
    restores: u64,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Record>>,
    changes: log::Changes,
    changed: Arc<Notify>,
}

impl Store {
    /// An empty store whose log holds up to `log_bytes_max` bytes.
    pub fn new(log_bytes_max: usize) -> Self {
        // An empty etcd is at revision 1; objects follow.
        Self { state: RwLock::new(State { revision: 1, ..State::default() }), log_bytes_max }
    }

    /// The table with this name; created if it is missing.
    pub fn table(&self, name: &str) -> TableId {
        if let Some(id) = self.read().by_name.get(name) {
            return *id;
        }
        let mut state = self.write();
        if let Some(id) = state.by_name.get(name) {
            return *id;
        }
        let id = TableId(u32::try_from(state.tables.len()).expect("there are fewer than 2^32 resources"));
        state.tables.push(Table::default());
        state.by_name.insert(name.into(), id);
        id
    }

    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The object with this key (`namespace/name`, or `name`).
    pub fn get(&self, table: TableId, key: &str) -> Option<Arc<Record>> {
        self.read().tables[table.index()].objects.get(key).map(Arc::clone)
    }

    pub fn len(&self, table: TableId) -> usize {
        self.read().tables[table.index()].objects.len()
    }

    /// Whether the table has a key with this prefix.
    pub fn any(&self, table: TableId, prefix: &str) -> bool {
        let state = self.read();
        state.tables[table.index()]
            .objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .next()
            .is_some_and(|(key, _)| key.starts_with(prefix))
    }

    /// Adds an object and sets its `resourceVersion`.
    pub fn create(
        &self,
        table: TableId,
        key: &str,
        object: &mut Value,
    ) -> Result<Arc<Record>, WriteConflict> {
        let mut state = self.write();
        if let Some(current) = state.tables[table.index()].objects.get(key) {
            return Err(WriteConflict { current: Some(Arc::clone(current)) });
        }
        let record = state.next_record(Action::Added, key.into(), object);
        state.commit(table, Action::Added, &record, None, self.log_bytes_max);
        Ok(record)
    }

    /// Replaces the version `seen` and sets the `resourceVersion`.
    pub fn update(
        &self,
        table: TableId,
        seen: &Record,
        object: &mut Value,
    ) -> Result<Arc<Record>, WriteConflict> {
        let mut state = self.write();
        let current = state.current(table, seen)?;
        let record = state.next_record(Action::Modified, Arc::clone(&current.key), object);
        state.commit(table, Action::Modified, &record, Some(current), self.log_bytes_max);
        Ok(record)
    }

    /// Removes the version `seen`. `last` is the state in the `DELETED` event.
    pub fn delete(
        &self,
        table: TableId,
        seen: &Record,
        last: &mut Value,
    ) -> Result<Arc<Record>, WriteConflict> {
        let mut state = self.write();
        let current = state.current(table, seen)?;
        let record = state.next_record(Action::Deleted, Arc::clone(&current.key), last);
        state.commit(table, Action::Deleted, &record, Some(current), self.log_bytes_max);
        Ok(record)
    }

    /// All objects by table and key, and the revision of this copy.
    pub fn all_objects(&self) -> (u64, Vec<StoredObject>) {
        let state = self.read();
        let names: BTreeMap<TableId, &str> = state.by_name.iter().map(|(name, id)| (*id, &**name)).collect();
        let mut records = Vec::new();
        for (id, name) in names {
            let objects = state.tables[id.index()].objects.values();
            records.extend(
                objects.map(|record| StoredObject { table: name.into(), record: Arc::clone(record) }),
            );
        }
        (state.revision, records)
    }

    /// Restores an object with its revision; returns false if the key exists.
    pub fn restore(&self, table: TableId, key: &str, revision: u64, object: &Value) -> bool {
        let mut state = self.write();
        let objects = &mut state.tables[table.index()].objects;
        if objects.contains_key(key) {
            return false;
        }
        let key: Arc<str> = key.into();
        objects.insert(Arc::clone(&key), Arc::new(Record::new(Action::Added, key, revision, object)));
        true
    }

    /// Replaces all objects by a copy that [`Store::all_objects`] made, as a restore of etcd does, and continues at
    /// `revision`. Open watches end, and no earlier revision can be read.
    pub fn replace_all(&self, saved: &[StoredObject], revision: u64) {
        let mut state = self.write();
        for table in &mut state.tables {
            table.objects.clear();
            table.changes.clear();
        }
        for StoredObject { table, record } in saved {
            let Some(id) = state.by_name.get(table).copied() else { continue };
            state.tables[id.index()].objects.insert(Arc::clone(&record.key), Arc::clone(record));
        }
        state.revision = revision;
        state.log = Log::compacted_to(revision);
        state.restores += 1;
        for table in &state.tables {
            table.changed.notify_waiters();
        }
    }

    /// Continues with the next revision after a restore; earlier revisions count as compacted.
    pub fn resume_from(&self, revision: u64) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
        let revision = state.revision;
        state.log.compact_to(revision);
    }

    /// Wakes the watchers of a table without a change, so that they check whether their resource is still served.
    pub fn wake(&self, table: TableId) {
        self.read().tables[table.index()].changed.notify_waiters();
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }
}

impl State {
    fn current(&self, table: TableId, seen: &Record) -> Result<Arc<Record>, WriteConflict> {
        match self.tables[table.index()].objects.get(&seen.key) {
            Some(current) if current.revision == seen.revision => Ok(Arc::clone(current)),
            other => Err(WriteConflict { current: other.map(Arc::clone) }),
        }
    }

    fn next_record(&mut self, action: Action, key: Arc<str>, object: &mut Value) -> Arc<Record> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = Value::String(self.revision.to_string());
        Arc::new(Record::new(action, key, self.revision, object))
    }

    fn commit(
        &mut self,
        id: TableId,
        action: Action,
        record: &Arc<Record>,
        previous: Option<Arc<Record>>,
        log_bytes_max: usize,
    ) {
        let table = &mut self.tables[id.index()];
        match action {
            Action::Added | Action::Modified => {
                table.objects.insert(Arc::clone(&record.key), Arc::clone(record));
            }
            Action::Deleted => {
                table.objects.remove(&record.key);
            }
        }
        table.changes.push(Change::new(action, Arc::clone(record), previous));
        table.changed.notify_waiters();
        self.log.note(id, record.bytes_held());
        self.compact(log_bytes_max);
    }

    fn compact(&mut self, log_bytes_max: usize) {
        while let Some(table) = self.log.oldest_beyond(log_bytes_max) {
            let gone = self.tables[table.index()].changes.drop_oldest();
            self.log.forget(gone.record().bytes_held(), gone.revision());
        }
    }
}

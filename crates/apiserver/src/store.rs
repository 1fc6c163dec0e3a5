//! Keeps all objects in memory, and one ordered log of what happened to them.
//!
//! Every write gets the next revision, which is the object's `resourceVersion`. Objects rest as compact JSON, already
//! wrapped as the watch event that announced them, so that a watch sends what the store holds without copying it.
//! The log is compacted by size: whoever asks for a revision that is no longer in it is told so ([`Compacted`]).
//! Watchers pull from the log, so a slow one costs nothing: it falls out of the log and is ended.

mod log;
mod page;
mod record;

#[cfg(test)]
mod tests;

pub use log::{Change, Cursor};
pub use page::{Page, Wanted};
pub use record::{Action, Record, to_json, wrap};

use log::Log;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

/// Which table of the store: all objects of one resource, whatever version they are served in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(u32);

impl TableId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The object is not what the writer believed: somebody else wrote first.
#[derive(Debug, thiserror::Error)]
#[error("the object was written by somebody else")]
pub struct Raced {
    /// What is there instead.
    pub current: Option<Arc<Record>>,
}

/// The revision asked for is no longer in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is compacted, the oldest kept is {oldest}")]
pub struct Compacted {
    /// The revision asked for.
    pub asked: u64,
    /// The oldest revision from which one can go on.
    pub oldest: u64,
}

/// An object and where it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The name of the table.
    pub table: Box<str>,
    /// The object.
    pub record: Arc<Record>,
}

/// All objects and the log of their changes.
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
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Record>>,
    changes: log::Changes,
    changed: Arc<Notify>,
}

impl Store {
    /// An empty store whose log holds up to `log_bytes_max` bytes of objects.
    pub fn new(log_bytes_max: usize) -> Self {
        // Revision 1 is what an empty etcd has; objects come after it.
        Self { state: RwLock::new(State { revision: 1, ..State::default() }), log_bytes_max }
    }

    /// The table of this name; made when it is new.
    pub fn table(&self, name: &str) -> TableId {
        if let Some(id) = self.read().by_name.get(name) {
            return *id;
        }
        let mut state = self.write();
        if let Some(id) = state.by_name.get(name) {
            return *id;
        }
        let id = TableId(u32::try_from(state.tables.len()).expect("fewer than 2^32 kinds"));
        state.tables.push(Table::default());
        state.by_name.insert(name.into(), id);
        id
    }

    /// The latest revision.
    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The object at this key (`namespace/name`, or `name` alone).
    pub fn get(&self, table: TableId, key: &str) -> Option<Arc<Record>> {
        self.read().tables[table.index()].objects.get(key).map(Arc::clone)
    }

    /// How many objects the table holds.
    pub fn len(&self, table: TableId) -> usize {
        self.read().tables[table.index()].objects.len()
    }

    /// Whether any object of the table has a key that begins with `prefix`.
    pub fn any(&self, table: TableId, prefix: &str) -> bool {
        let state = self.read();
        state.tables[table.index()]
            .objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .next()
            .is_some_and(|(key, _)| key.starts_with(prefix))
    }

    /// Adds an object; its `resourceVersion` is set.
    pub fn create(&self, table: TableId, key: &str, object: &mut Value) -> Result<Arc<Record>, Raced> {
        let mut state = self.write();
        if let Some(current) = state.tables[table.index()].objects.get(key) {
            return Err(Raced { current: Some(Arc::clone(current)) });
        }
        let record = state.next_record(Action::Added, key.into(), object);
        state.commit(table, Action::Added, &record, None, self.log_bytes_max);
        Ok(record)
    }

    /// Replaces the object that was read as `seen`; its `resourceVersion` is set.
    pub fn update(&self, table: TableId, seen: &Record, object: &mut Value) -> Result<Arc<Record>, Raced> {
        let mut state = self.write();
        let current = state.current(table, seen)?;
        let record = state.next_record(Action::Modified, Arc::clone(&current.key), object);
        state.commit(table, Action::Modified, &record, Some(current), self.log_bytes_max);
        Ok(record)
    }

    /// Removes the object that was read as `seen`. `last` is its last state, as watchers see it go.
    pub fn delete(&self, table: TableId, seen: &Record, last: &mut Value) -> Result<Arc<Record>, Raced> {
        let mut state = self.write();
        let current = state.current(table, seen)?;
        let record = state.next_record(Action::Deleted, Arc::clone(&current.key), last);
        state.commit(table, Action::Deleted, &record, Some(current), self.log_bytes_max);
        Ok(record)
    }

    /// Every object with the name of its table, by table and key, and the revision at which they stand so.
    pub fn everything(&self) -> (u64, Vec<Kept>) {
        let state = self.read();
        let names: BTreeMap<TableId, &str> = state.by_name.iter().map(|(name, id)| (*id, &**name)).collect();
        let mut records = Vec::new();
        for (id, name) in names {
            let objects = state.tables[id.index()].objects.values();
            records.extend(objects.map(|record| Kept { table: name.into(), record: Arc::clone(record) }));
        }
        (state.revision, records)
    }

    /// Puts an object back as it was, with its revision; not when its place is taken.
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

    /// Counts revisions on from here, once everything is put back; what was before is as if compacted.
    pub fn resume_after(&self, revision: u64) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
        let revision = state.revision;
        state.log.begin_at(revision);
    }

    /// Wakes whoever watches the table, though nothing changed: they look again at what else ends a watch.
    pub fn wake(&self, table: TableId) {
        self.read().tables[table.index()].changed.notify_waiters();
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn current(&self, table: TableId, seen: &Record) -> Result<Arc<Record>, Raced> {
        match self.tables[table.index()].objects.get(&seen.key) {
            Some(current) if current.revision == seen.revision => Ok(Arc::clone(current)),
            other => Err(Raced { current: other.map(Arc::clone) }),
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

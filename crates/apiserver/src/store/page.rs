//! Consistent, paginated lists of a table at one revision.

use super::{Compacted, Record, State, Store, Table, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The range of a list.
#[derive(Debug, Default)]
pub struct ListRange<'a> {
    /// The key prefix; empty for all.
    pub prefix: &'a str,
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// The revision; the latest if absent.
    pub at: Option<u64>,
    pub limit: Option<usize>,
}

/// A page of a table at one revision.
#[derive(Debug)]
pub struct Page {
    pub revision: u64,
    /// Sorted by key.
    pub records: Vec<Arc<Record>>,
    /// The number of keys after the page, matching or not; 0 on the last page.
    pub remaining: usize,
}

impl Store {
    /// Lists the objects that `keep` accepts.
    pub fn list(
        &self,
        table: TableId,
        wanted: &ListRange<'_>,
        mut keep: impl FnMut(&Record) -> bool,
    ) -> Result<Page, Compacted> {
        let state = self.read();
        let revision = wanted.at.unwrap_or(state.revision);
        let table = &state.tables[table.index()];
        let limit = wanted.limit.unwrap_or(usize::MAX);
        let mut records = Vec::new();
        let mut remaining = 0;
        let mut take = |record: &Arc<Record>| {
            if records.len() < limit {
                if keep(record) {
                    records.push(Arc::clone(record));
                }
            } else {
                remaining += 1;
            }
        };
        if revision >= state.revision {
            range(table, wanted).for_each(&mut take);
        } else {
            past(&state, table, wanted, revision)?.values().for_each(&mut take);
        }
        Ok(Page { revision, records, remaining })
    }
}

fn range<'a>(table: &'a Table, wanted: &'a ListRange<'_>) -> impl Iterator<Item = &'a Arc<Record>> {
    let start = match wanted.after {
        Some(after) if after >= wanted.prefix => Bound::Excluded(after),
        Some(_) | None => Bound::Included(wanted.prefix),
    };
    table
        .objects
        .range::<str, _>((start, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(wanted.prefix))
        .map(|(_, record)| record)
}

/// The range at `revision`: the current one with every later change undone.
fn past(
    state: &State,
    table: &Table,
    wanted: &ListRange<'_>,
    revision: u64,
) -> Result<BTreeMap<Arc<str>, Arc<Record>>, Compacted> {
    state.log.check_reachable(revision)?;
    let mut records: BTreeMap<_, _> =
        range(table, wanted).map(|record| (Arc::clone(&record.key), Arc::clone(record))).collect();
    let in_range = |key: &str| key.starts_with(wanted.prefix) && wanted.after.is_none_or(|after| key > after);
    for change in table.changes.after(revision).rev() {
        let key = &change.record().key;
        if !in_range(key) {
            continue;
        }
        match change.previous() {
            Some(previous) => records.insert(Arc::clone(key), Arc::clone(previous)),
            None => records.remove(key),
        };
    }
    Ok(records)
}

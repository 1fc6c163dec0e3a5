//! Lets events go an hour after they were last written, as the real server does by default.
//!
//! It happens when events are written: a server to which nobody writes any keeps those it has.

use crate::kinds::Resource;
use crate::server::Core;
use crate::store::{Record, Wanted};
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How long an event stays.
const STAY: SignedDuration = SignedDuration::from_hours(1);

/// When which event goes, the first at the front.
#[derive(Debug, Default)]
pub struct Expiry(Mutex<Option<VecDeque<Due>>>);

#[derive(Debug)]
struct Due {
    at: Timestamp,
    key: Arc<str>,
    /// One that was written again meanwhile has another, and a later time.
    revision: u64,
}

/// Notes that an object was written, and deletes the events whose time is over.
pub(crate) fn note(core: &Core, resource: &Resource, record: &Record) {
    if &*resource.plural != "events" || !matches!(&*resource.group, "" | "events.k8s.io") {
        return;
    }
    let now = core.clock.now();
    let due = |record: &Record| Due {
        at: now.saturating_add(STAY).unwrap_or(Timestamp::MAX),
        key: Arc::clone(&record.key),
        revision: record.revision,
    };
    let mut over = Vec::new();
    {
        let mut dues = core.expiry.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dues) = dues.as_mut() {
            dues.push_back(due(record));
            while let Some(first) = dues.pop_front_if(|first| first.at <= now) {
                over.push(first);
            }
        } else {
            // What was loaded stays for as long as if it had just been written.
            let all = core.store.list(resource.table, &Wanted::default(), |_| true);
            *dues =
                Some(all.map(|page| page.records.iter().map(|one| due(one)).collect()).unwrap_or_default());
        }
    }
    for due in over {
        let current = core.store.get(resource.table, &due.key).filter(|now| now.revision == due.revision);
        if let Some(record) = current {
            // Whoever was faster wrote it again or deleted it.
            let _ = core.store.delete(resource.table, &record, &mut record.value());
        }
    }
}

//! Deletes events one hour after their last write, the default of kube-apiserver's `--event-ttl`.
//!
//! Expired events are deleted when events are written: a server that receives no events keeps the last ones.

use crate::registry::Resource;
use crate::server::Core;
use crate::store::{ListRange, Record};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

const TTL: SignedDuration = SignedDuration::from_hours(1);

/// The expiration queue, the earliest first.
#[derive(Debug, Default)]
pub struct EventTtl(Mutex<Option<VecDeque<Expiration>>>);

#[derive(Debug)]
struct Expiration {
    at: Timestamp,
    key: Arc<str>,
    /// The revision that expires; an event that was written again has a newer one.
    revision: u64,
}

/// Queues a written event and deletes expired ones.
pub(crate) fn track(core: &Core, resource: &Resource, record: &Record) {
    if &*resource.plural != "events" || !matches!(&*resource.group, "" | "events.k8s.io") {
        return;
    }
    let now = core.clock.now();
    let due = |record: &Record| Expiration {
        at: now.saturating_add(TTL).unwrap_or(Timestamp::MAX),
        key: Arc::clone(&record.key),
        revision: record.revision,
    };
    let mut over = Vec::new();
    {
        let mut queue = core.event_ttl.0.lock();
        if let Some(queue) = queue.as_mut() {
            queue.push_back(due(record));
            while let Some(first) = queue.pop_front_if(|first| first.at <= now) {
                over.push(first);
            }
        } else {
            // Loaded events get a full TTL.
            let all = core.store.list(resource.table, &ListRange::default(), |_| true);
            *queue =
                Some(all.map(|page| page.records.iter().map(|one| due(one)).collect()).unwrap_or_default());
        }
    }
    for due in over {
        let current = core.store.get(resource.table, &due.key).filter(|now| now.revision == due.revision);
        if let Some(record) = current {
            // A conflict means that the event was written again or deleted.
            let _ = core.store.delete(resource.table, &record, &mut record.value());
        }
    }
}

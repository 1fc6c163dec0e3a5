//! Everything that the heart is told, in the order in which it came.
//!
//! While the heart plans, objects may change more often than anybody wants to know: of several states of one object only
//! the last is kept, so that what waits grows with the number of objects and not with that of events.

use crate::effect::evict::Evicted;
use crate::usage::Usage;
use kai_cache::{Kind, Object};
use kai_engine::input::Key;
use kai_runtime::api;
use kai_runtime::invalid::InvalidObject;
use kai_runtime::watch::WatchEvent;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Something that the heart is told.
#[derive(Debug)]
pub(crate) enum Change {
    /// The server has something new.
    WatchEvent(Kind, WatchEvent<Object>),
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
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Change>,
    /// Where the last state of an object is, if nothing else has been told of it since.
    latest: FxHashMap<(Kind, Key), usize>,
}

impl Waiting {
    fn put(&mut self, change: Change) {
        match &change {
            Change::WatchEvent(kind, WatchEvent::Applied(object)) => {
                let id = (*kind, object.key());
                if let Some(at) = self.latest.get(&id) {
                    self.changes[*at] = change;
                    return;
                }
                self.latest.insert(id, self.changes.len());
            }
            // That an object was there in between may matter, so what came before stays.
            Change::WatchEvent(kind, WatchEvent::Deleted(object)) => {
                self.latest.remove(&(*kind, object.key()));
            }
            Change::WatchEvent(kind, WatchEvent::Invalid(InvalidObject { key, .. })) => {
                self.latest.remove(&(*kind, Key::new(key.namespace.as_str(), key.name.as_str())));
            }
            Change::WatchEvent(_, WatchEvent::Listed(..)) => self.latest.clear(),
            Change::BindAnswered(..)
            | Change::BindLookedUp(..)
            | Change::Evicted(_)
            | Change::Usage(_)
            | Change::Marked(..) => {}
        }
        self.changes.push(change);
    }
}

impl Inbox {
    /// Adds a change.
    pub(crate) fn put(&self, change: Change) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).put(change);
        self.filled.notify_one();
    }

    /// Takes all changes.
    pub(crate) fn take(&self) -> Vec<Change> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.latest.clear();
        std::mem::take(&mut waiting.changes)
    }

    /// Waits for a change.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::object::Pod;

    fn pod(name: &str, label: usize) -> Object {
        let json =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"a","labels":{{"n":"{label}"}}}}}}"#);
        serde_json::from_str::<Pod>(&json).unwrap().into()
    }

    fn labels(changes: &[Change]) -> Vec<String> {
        let of = |object: &Object| {
            let Object::Pod(pod) = object else { unreachable!("only pods are told of") };
            format!("{}{}", pod.metadata.name.to_text(), pod.metadata.label("n").unwrap_or_default())
        };
        let told = |change: &Change| {
            let Change::WatchEvent(_, news) = change else { unreachable!("only news are told") };
            match news {
                WatchEvent::Applied(object) => of(object),
                WatchEvent::Deleted(object) => format!("-{}", of(object)),
                WatchEvent::Listed(..) | WatchEvent::Invalid(..) => {
                    unreachable!("only single pods are told of")
                }
            }
        };
        changes.iter().map(told).collect()
    }

    #[test]
    fn a_hundred_thousand_states_of_ten_pods_wait_as_ten() {
        let inbox = Inbox::default();
        for at in 0..100_000 {
            inbox.put(Change::WatchEvent(Kind::Pod, WatchEvent::Applied(pod(&format!("p{}-", at % 10), at))));
        }
        let taken = labels(&inbox.take());
        assert_eq!(taken.len(), 10);
        assert_eq!((taken[0].as_str(), taken[9].as_str()), ("p0-99990", "p9-99999"));
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn that_an_object_was_gone_in_between_is_not_lost() {
        let inbox = Inbox::default();
        for news in [
            WatchEvent::Applied(pod("p", 1)),
            WatchEvent::Applied(pod("p", 2)),
            WatchEvent::Deleted(pod("p", 2)),
            WatchEvent::Applied(pod("p", 3)),
            WatchEvent::Applied(pod("p", 4)),
        ] {
            inbox.put(Change::WatchEvent(Kind::Pod, news));
        }
        assert_eq!(labels(&inbox.take()), ["p2", "-p2", "p4"]);
        inbox.put(Change::WatchEvent(Kind::Pod, WatchEvent::Applied(pod("p", 5))));
        assert_eq!(labels(&inbox.take()), ["p5"], "what was taken is not written to");
    }
}

//! The event queue of the scheduler loop: watch events and the results of writes, in order of arrival.
//!
//! Updates of one object coalesce: only its latest state is kept, so the queue is bounded by the number of objects and
//! not by the number of events.

use crate::effect::condition::PodCondition;
use crate::effect::evict::{EvictionResult, Victim};
use crate::usage::Usage;
use k8s_openapi::api::core::v1::ConfigMap;
use kai_cache::{Kind, Object};
use kai_engine::input::Key;
use kai_engine::verdict::GroupVerdict;
use kai_runtime::api;
use kai_runtime::invalid::InvalidObject;
use kai_runtime::watch::WatchEvent;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) enum SchedulerEvent {
    Watch(Kind, WatchEvent<Object>),
    /// The response to the creation of a bind request.
    BindResponse(Key, api::Result<Value>),
    /// The creation of a bind request failed with this error, and the server has this object under its name.
    BindLookup(Key, api::Error, Option<Value>),
    /// The response to the Binding with this number.
    BindingResponse(Key, u64, api::Result<Value>),
    /// The Binding with this number failed with this error, or a list shows its pod unbound; the server has this pod.
    BindingLookup(Key, u64, Option<api::Error>, Option<Value>),
    /// The backoff after a failed Binding with this number is over.
    BindingRetry(Key, u64),
    /// Whether the server has an assumed bind request that a list lacks.
    AssumedLookup(Key, bool),
    /// The response to the deletion of the obsolete bind request with this uid.
    DeletionResponse(Key, String, api::Result<Value>),
    /// The backoff after a refused deletion is over.
    DeletionRetry(Key),
    EvictionResult(EvictionResult),
    /// The watch should have delivered the deletions of these victims by now; with the group that they were evicted for.
    EvictionsOverdue(Option<Key>, Vec<Victim>),
    Audited(AuditResult),
    /// What would run pending groups, after so many cycles.
    HintsFound(Vec<FoundHint>, u64),
    /// A query of historical usage succeeded.
    Usage(Usage),
    /// The ConfigMap with the configuration was listed (`None`: it does not exist) or changed.
    Configuration(Option<Box<ConfigMap>>),
    /// A condition of a pod was not written, since the pod was in another state.
    PodConditionConflict(PodCondition),
    /// The conditions of a group were not written, since the group was in another state.
    GroupConditionConflict(Key),
    /// The response to a patch of a group's annotations, with the generation of the annotations it wrote.
    AnnotationsWritten(Key, u64, Result<(), AnnotationError>),
}

/// The first hint for a group, if there is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoundHint {
    /// The verdict on the group for which it was searched.
    pub(crate) verdict: GroupVerdict,
    pub(crate) text: Option<String>,
}

/// The decisions of a cycle on the model of the loop and on a rebuilt one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditResult {
    pub(crate) kept: PlannedDecisions,
    /// `None` if planning on the rebuilt model panicked.
    pub(crate) rebuilt: Option<PlannedDecisions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedDecisions {
    pub(crate) hash: u64,
    pub(crate) count: usize,
}

/// Why a patch of annotations failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnnotationError {
    /// The group does not exist.
    NotFound,
    Rejected,
}

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pending: Mutex<Pending>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    events: Vec<SchedulerEvent>,
    /// Position of the latest update of an object, while a newer one may replace it.
    latest: FxHashMap<(Kind, Key), usize>,
}

impl Pending {
    fn push(&mut self, event: SchedulerEvent) {
        match &event {
            SchedulerEvent::Watch(kind, WatchEvent::Applied(object)) => {
                let id = (*kind, object.key());
                if let Some(known) = self.latest.get(&id).and_then(|at| self.events.get_mut(*at)) {
                    *known = event;
                    return;
                }
                self.latest.insert(id, self.events.len());
            }
            // A deletion is never coalesced: the object after it may be another one of the same name.
            SchedulerEvent::Watch(kind, WatchEvent::Deleted(object)) => {
                self.latest.remove(&(*kind, object.key()));
            }
            SchedulerEvent::Watch(kind, WatchEvent::Invalid(InvalidObject { key, .. })) => {
                self.latest.remove(&(*kind, Key::new(key.namespace.as_str(), key.name.as_str())));
            }
            SchedulerEvent::Watch(_, WatchEvent::Listed(..) | WatchEvent::Denied) => self.latest.clear(),
            SchedulerEvent::BindResponse(..)
            | SchedulerEvent::BindLookup(..)
            | SchedulerEvent::BindingResponse(..)
            | SchedulerEvent::BindingLookup(..)
            | SchedulerEvent::BindingRetry(..)
            | SchedulerEvent::AssumedLookup(..)
            | SchedulerEvent::DeletionResponse(..)
            | SchedulerEvent::DeletionRetry(_)
            | SchedulerEvent::EvictionResult(_)
            | SchedulerEvent::EvictionsOverdue(..)
            | SchedulerEvent::Usage(_)
            | SchedulerEvent::Configuration(_)
            | SchedulerEvent::Audited(_)
            | SchedulerEvent::HintsFound(..)
            | SchedulerEvent::PodConditionConflict(_)
            | SchedulerEvent::GroupConditionConflict(_)
            | SchedulerEvent::AnnotationsWritten(..) => {}
        }
        self.events.push(event);
    }
}

impl EventQueue {
    pub(crate) fn push(&self, event: SchedulerEvent) {
        self.pending.lock().push(event);
        self.ready.notify_one();
    }

    pub(crate) fn drain(&self) -> Vec<SchedulerEvent> {
        let mut pending = self.pending.lock();
        pending.latest.clear();
        std::mem::take(&mut pending.events)
    }

    /// Waits until an event is pushed.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
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

    fn labels(events: &[SchedulerEvent]) -> Vec<String> {
        let of = |object: &Object| {
            let Object::Pod(pod) = object else { unreachable!("only pods are pushed") };
            format!("{}{}", pod.metadata.name.to_text(), pod.metadata.label("n").unwrap_or_default())
        };
        let text = |event: &SchedulerEvent| {
            let SchedulerEvent::Watch(_, event) = event else { unreachable!("only watch events are pushed") };
            match event {
                WatchEvent::Applied(object) => of(object),
                WatchEvent::Deleted(object) => format!("-{}", of(object)),
                WatchEvent::Listed(..) | WatchEvent::Invalid(..) | WatchEvent::Denied => {
                    unreachable!("only single pods are pushed")
                }
            }
        };
        events.iter().map(text).collect()
    }

    #[test]
    fn updates_of_one_object_coalesce() {
        let queue = EventQueue::default();
        for at in 0..100_000 {
            queue.push(SchedulerEvent::Watch(
                Kind::Pod,
                WatchEvent::Applied(pod(&format!("p{}-", at % 10), at)),
            ));
        }
        let drained = labels(&queue.drain());
        assert_eq!(drained.len(), 10);
        assert_eq!((drained[0].as_str(), drained[9].as_str()), ("p0-99990", "p9-99999"));
        assert!(queue.drain().is_empty());
    }

    #[test]
    fn deletion_between_updates_is_kept() {
        let queue = EventQueue::default();
        for event in [
            WatchEvent::Applied(pod("p", 1)),
            WatchEvent::Applied(pod("p", 2)),
            WatchEvent::Deleted(pod("p", 2)),
            WatchEvent::Applied(pod("p", 3)),
            WatchEvent::Applied(pod("p", 4)),
        ] {
            queue.push(SchedulerEvent::Watch(Kind::Pod, event));
        }
        assert_eq!(labels(&queue.drain()), ["p2", "-p2", "p4"]);
        queue.push(SchedulerEvent::Watch(Kind::Pod, WatchEvent::Applied(pod("p", 5))));
        assert_eq!(labels(&queue.drain()), ["p5"], "drained events are not replaced");
    }
}

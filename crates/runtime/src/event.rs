//! Event recorder: Kubernetes events with client-side aggregation.
//!
//! An identical event of the same object increments `count` of the existing one, at most once per interval: a group that
//! cannot be scheduled reports the reason once, not every cycle.

use crate::kind::{ApiObject, EVENT, Key, ResourceKind};
use crate::writer::{Retry, Write, WritePriority, Writer};
use indexmap::IndexMap;
use kai_clock::Clock;
use kai_object as object;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Distinct events that are kept for aggregation, as in client-go's event correlator.
const RECORDED_MAX: usize = 4_096;
/// An identical event is written at most once in this interval.
const REPEAT_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object of an event (`involvedObject`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regarding {
    pub kind: ResourceKind,
    pub key: Key,
    pub uid: String,
}

impl Regarding {
    pub fn of<T: ApiObject>(object: &T) -> Self {
        let uid = object.meta().uid.clone().unwrap_or_default();
        Self { kind: ResourceKind::of::<T>(), key: crate::key_of_typed(object), uid }
    }
}

#[derive(Clone, Debug)]
pub struct Event {
    pub regarding: Regarding,
    pub type_: EventType,
    pub reason: &'static str,
    pub message: String,
    pub annotations: BTreeMap<String, String>,
}

/// Records events through the write queue; clones share the aggregation.
#[derive(Clone, Debug)]
pub struct Recorder {
    writer: Writer,
    clock: Clock,
    source: Arc<str>,
    recorded: Arc<Mutex<IndexMap<u64, Recorded, std::hash::BuildHasherDefault<FxHasher>>>>,
}

#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    count: u64,
    at: Instant,
}

impl Recorder {
    pub fn new(writer: Writer, clock: Clock, source: &str) -> Self {
        Self { writer, clock, source: source.into(), recorded: Arc::default() }
    }

    /// Writes an event, unless an identical one was written within the interval.
    pub fn record(&self, event: &Event) {
        let Some((recorded, first)) = self.aggregate(event) else { return };
        let regarding = &event.regarding;
        // Events of cluster-scoped objects are in the namespace `default`, as in client-go.
        let namespace = if regarding.key.namespace.is_empty() { "default" } else { &regarding.key.namespace };
        let key = Key::new(namespace, &recorded.name);
        let time = self.clock.time();
        let write = if first {
            Write {
                method: "POST",
                path: EVENT.path(namespace),
                content_type: "application/json",
                body: self.new_event(event, &key, &time),
                ..Self::write(&key)
            }
        } else {
            Write {
                method: "PATCH",
                path: EVENT.path_of(&key),
                content_type: "application/merge-patch+json",
                body: json!({"count": recorded.count, "lastTimestamp": time}),
                ..Self::write(&key)
            }
        };
        self.writer.submit(write);
    }

    fn write(key: &Key) -> Write {
        Write {
            priority: WritePriority::Event,
            object: (EVENT, key.clone()),
            slot: None,
            method: "",
            path: String::new(),
            content_type: "",
            body: Value::Null,
            retry: Retry::Never,
            done: None,
        }
    }

    /// Counts the event and returns whether it is the first; none when nothing is to be written.
    fn aggregate(&self, event: &Event) -> Option<(Recorded, bool)> {
        let mut hasher = FxHasher::default();
        (&event.regarding, event.type_, event.reason, &event.message, &event.annotations).hash(&mut hasher);
        let id = hasher.finish();
        let now = Instant::now();
        let mut recorded = self.recorded.lock();
        if let Some(known) = recorded.get_mut(&id) {
            known.count += 1;
            if now.duration_since(known.at) < REPEAT_INTERVAL {
                return None;
            }
            known.at = now;
            return Some((known.clone(), false));
        }
        if recorded.len() >= RECORDED_MAX {
            recorded.shift_remove_index(0);
        }
        let nanos = self.clock.now().as_nanosecond() as u64;
        let name = event_name(&event.regarding.key.name, nanos ^ id.rotate_left(17));
        let new = Recorded { name, count: 1, at: now };
        recorded.insert(id, new.clone());
        Some((new, true))
    }

    fn new_event(&self, event: &Event, key: &Key, time: &str) -> Value {
        let regarding = &event.regarding;
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), Value::from(key.name.as_str()));
        metadata.insert("namespace".to_owned(), Value::from(key.namespace.as_str()));
        if !event.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(event.annotations));
        }
        let mut object = json!({
            "apiVersion": regarding.kind.api_version(), "kind": regarding.kind.kind,
            "name": regarding.key.name, "uid": regarding.uid,
        });
        if !regarding.key.namespace.is_empty() {
            object["namespace"] = Value::from(regarding.key.namespace.as_str());
        }
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": metadata,
            "involvedObject": object,
            "type": event.type_.name(), "reason": event.reason, "message": event.message,
            "source": {"component": &*self.source}, "reportingComponent": &*self.source,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        })
    }
}

/// The object's name and a number, as client-go forms it. The start of a long name is enough.
fn event_name(object: &str, number: u64) -> String {
    let number = format!("{number:x}");
    format!("{}.{number}", object::name_start(object, object::NAME_MAX - number.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_of_an_object_with_a_long_name_has_a_valid_name() {
        assert_eq!(event_name("pod-1", 255), "pod-1.ff");
        let long = "p".repeat(object::NAME_MAX);
        assert_eq!(event_name(&long, u64::MAX).len(), object::NAME_MAX);
    }
}

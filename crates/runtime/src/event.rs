//! Event recorder: Kubernetes events with client-side aggregation.
//!
//! An identical event of the same object increments `count` of the existing one, at most once per interval: a group that
//! cannot be scheduled reports the reason once, not every cycle. An event that the server has removed meanwhile (its time
//! to live is an hour by default) is created again with its count.

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
    /// `firstTimestamp`.
    first_time: String,
    at: Instant,
}

impl Recorder {
    pub fn new(writer: Writer, clock: Clock, source: &str) -> Self {
        Self { writer, clock, source: source.into(), recorded: Arc::default() }
    }

    /// Writes an event, unless an identical one was written within the interval.
    pub fn record(&self, event: &Event) {
        let Some((recorded, first)) = self.aggregate(event) else { return };
        if first {
            self.create(event, &recorded);
        } else {
            self.repeat(event.clone(), recorded);
        }
    }

    fn create(&self, event: &Event, recorded: &Recorded) {
        let key = event_key(event, recorded);
        self.writer.submit(Write {
            method: "POST",
            path: EVENT.path(&key.namespace),
            content_type: "application/json",
            body: self.new_event(event, &key, recorded),
            ..Self::write(&key)
        });
    }

    /// Increments the count; creates the event again when the server no longer has it.
    fn repeat(&self, event: Event, recorded: Recorded) {
        let key = event_key(&event, &recorded);
        let body = json!({"count": recorded.count, "lastTimestamp": self.clock.time()});
        let (recorder, path) = (self.clone(), EVENT.path_of(&key));
        self.writer.submit(Write {
            method: "PATCH",
            path,
            content_type: "application/merge-patch+json",
            body,
            done: Some(Box::new(move |response| {
                if response.is_err_and(|error| error.is_not_found()) {
                    recorder.create(&event, &recorded);
                }
            })),
            ..Self::write(&key)
        });
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
        let new = Recorded { name, count: 1, first_time: self.clock.time(), at: now };
        recorded.insert(id, new.clone());
        Some((new, true))
    }

    fn new_event(&self, event: &Event, key: &Key, recorded: &Recorded) -> Value {
        let regarding = &event.regarding;
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), Value::from(key.name.as_str()));
        metadata.insert("namespace".to_owned(), Value::from(key.namespace.as_str()));
        if !event.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(event.annotations));
        }
        let mut object = json!({
            "apiVersion": regarding.kind.api_version(), "kind": regarding.kind.kind,
            "name": regarding.key.name,
        });
        if !regarding.uid.is_empty() {
            kai_object::set(&mut object, &["uid"], Value::from(regarding.uid.as_str()));
        }
        if !regarding.key.namespace.is_empty() {
            kai_object::set(&mut object, &["namespace"], Value::from(regarding.key.namespace.as_str()));
        }
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": metadata,
            "involvedObject": object,
            "type": event.type_.name(), "reason": event.reason, "message": event.message,
            "source": {"component": &*self.source}, "reportingComponent": &*self.source,
            "firstTimestamp": recorded.first_time, "lastTimestamp": self.clock.time(), "count": recorded.count,
        })
    }
}

/// The object's name and a number, as client-go forms it. The start of a long name is enough.
fn event_name(object: &str, number: u64) -> String {
    let number = format!("{number:x}");
    format!("{}.{number}", object::name_start(object, object::NAME_MAX - number.len() - 1))
}

/// Events of cluster-scoped objects are in the namespace `default`, as in client-go.
fn event_key(event: &Event, recorded: &Recorded) -> Key {
    let namespace = event.regarding.key.namespace.as_str();
    Key::new(if namespace.is_empty() { "default" } else { namespace }, &recorded.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, DeleteOptions};
    use crate::kind::{POD, key_of};
    use kai_apiserver::{ApiServer, Options};

    #[test]
    fn event_of_an_object_with_a_long_name_has_a_valid_name() {
        assert_eq!(event_name("pod-1", 255), "pod-1.ff");
        let long = "p".repeat(object::NAME_MAX);
        assert_eq!(event_name(&long, u64::MAX).len(), object::NAME_MAX);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn repeated_event_that_the_server_removed_is_created_again() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(&Options::new(1, clock));
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        let writer = Writer::default();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn({
            let (writer, api) = (writer.clone(), api.clone());
            async move { writer.run(api).await }
        });
        let recorder = Recorder::new(writer.clone(), clock, "test");
        let event = Event {
            regarding: Regarding { kind: POD, key: Key::new("default", "a"), uid: "u1".to_owned() },
            type_: EventType::Warning,
            reason: "Unschedulable",
            message: "no node fits".to_owned(),
            annotations: BTreeMap::new(),
        };
        recorder.record(&event);
        writer.idle().await;
        let stored = async || api.list_dynamic(&EVENT, "default").await.unwrap().items;
        let [first] = &stored().await[..] else { panic!("one event") };
        api.delete_dynamic(&EVENT, &key_of(first), &DeleteOptions::default()).await.unwrap();

        tokio::time::advance(REPEAT_INTERVAL * 2).await;
        recorder.record(&event);
        writer.idle().await;
        let [again] = &stored().await[..] else { panic!("one event") };
        assert_eq!((&again["count"], &again["reason"]), (&json!(2), &json!("Unschedulable")));
        assert_eq!(again["firstTimestamp"], first["firstTimestamp"]);
        assert_ne!(again["lastTimestamp"], first["lastTimestamp"]);
    }
}

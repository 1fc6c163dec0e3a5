//! Tells people what happened to an object: Kubernetes events, one for each thing that is said, with a count.
//!
//! Saying the same of the same object again raises the count of the event that says it, and not more than once in a
//! while: a group that cannot run says why once, not every second.

use crate::kind::{EVENT, Key, Kind};
use crate::writer::{Lane, Retry, Write, Writer};
use indexmap::IndexMap;
use kai_clock::Clock;
use rustc_hash::FxHasher;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most different things that are remembered as said.
const REMEMBERED: usize = 4_096;
/// How long the same is not said again.
const QUIET: Duration = Duration::from_mins(1);

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It is.
    Normal,
    /// Somebody should look at it.
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

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
    /// Its uid.
    pub uid: String,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// To what.
    pub regarding: Regarding,
    /// Whether that is as it should be.
    pub type_: EventType,
    /// In one word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
    /// For programs that read events.
    pub annotations: BTreeMap<String, String>,
}

/// Sends events; clones are the same.
#[derive(Clone, Debug)]
pub struct Recorder {
    writer: Writer,
    clock: Clock,
    source: Arc<str>,
    said: Arc<Mutex<IndexMap<u64, Said, std::hash::BuildHasherDefault<FxHasher>>>>,
}

#[derive(Clone, Debug)]
struct Said {
    name: String,
    count: u64,
    at: Instant,
}

impl Recorder {
    /// A recorder for the component of this name.
    pub fn new(writer: Writer, clock: Clock, source: &str) -> Self {
        Self { writer, clock, source: source.into(), said: Arc::default() }
    }

    /// Sends an event, unless the same was said a moment ago.
    pub fn record(&self, event: &Event) {
        let Some((said, first)) = self.say(event) else { return };
        let regarding = &event.regarding;
        // Events about objects without a namespace live in the default one.
        let namespace = if regarding.key.namespace.is_empty() { "default" } else { &regarding.key.namespace };
        let key = Key::new(namespace, &said.name);
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
                body: json!({"count": said.count, "lastTimestamp": time}),
                ..Self::write(&key)
            }
        };
        self.writer.submit(write);
    }

    fn write(key: &Key) -> Write {
        Write {
            lane: Lane::Remark,
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

    /// Counts what is said; nothing when it was said a moment ago.
    fn say(&self, event: &Event) -> Option<(Said, bool)> {
        let mut hasher = FxHasher::default();
        (&event.regarding, event.type_, event.reason, &event.message, &event.annotations).hash(&mut hasher);
        let id = hasher.finish();
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = said.get_mut(&id) {
            known.count += 1;
            if now.duration_since(known.at) < QUIET {
                return None;
            }
            known.at = now;
            return Some((known.clone(), false));
        }
        if said.len() >= REMEMBERED {
            said.shift_remove_index(0);
        }
        let nanos = self.clock.now().as_nanosecond() as u64;
        let name = format!("{}.{:x}", event.regarding.key.name, nanos ^ id.rotate_left(17));
        let new = Said { name, count: 1, at: now };
        said.insert(id, new.clone());
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

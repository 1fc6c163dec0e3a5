//! Tells users what controllers and nodes do, as events of the objects concerned.
//!
//! What is told again within an hour is counted on the event that is there, and many similar things become one event,
//! so that a busy controller costs the server little. Events are told in the background and may be lost: nothing
//! depends on them.

use jiff::{SignedDuration, Timestamp};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::controller::Tell;
use kai_runtime::event::EventType;
use kai_runtime::kind::{EVENT, Key};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// How many events may wait to be told; more are lost.
const WAITING_MAX: usize = 1_000;
/// How many different messages with one reason an object may have before they are told as one.
const SIMILAR_MAX: usize = 10;
/// How long events count as the same, or as similar.
const MEMORY: SignedDuration = SignedDuration::from_mins(10);
/// What the message of an event begins with that stands for many.
const COMBINED: &str = "(combined from similar events): ";
/// How much is remembered of what was told.
const REMEMBERED_MAX: usize = 4_096;

/// Who tells.
#[derive(Clone, Debug)]
pub struct Source {
    /// The program or controller.
    pub component: String,
    /// The node, where it is one that tells.
    pub host: Option<String>,
}

/// Where events are told; clones tell to the same place.
#[derive(Clone, Debug)]
pub struct Recorder(mpsc::Sender<Note>);

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    about: About,
    warns: bool,
    reason: String,
    message: String,
}

/// An object as events refer to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct About {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// A recorder, and what writes down for as long as it runs what the recorder is told.
pub fn recorder(api: Api, clock: Clock, source: Source) -> (Recorder, Recording) {
    let (send, notes) = mpsc::channel(WAITING_MAX);
    let recording =
        Recording { api, clock, source, notes, told: BTreeMap::new(), similar: BTreeMap::new(), count: 0 };
    (Recorder(send), recording)
}

impl Tell for Recorder {
    fn tell(&self, object: &Value, type_: EventType, reason: &str, message: String) {
        let text = |text: &str| text.to_owned();
        let about = About {
            api_version: text(object::api_version(object)),
            kind: text(object::kind(object)),
            namespace: text(object::namespace(object)),
            name: text(object::name(object)),
            uid: text(object::uid(object)),
        };
        // One that does not fit is lost, as are those of a busy cluster.
        let _ = self.0.try_send(Note {
            about,
            warns: type_ == EventType::Warning,
            reason: text(reason),
            message,
        });
    }
}

/// Writes events down.
#[derive(Debug)]
pub struct Recording {
    api: Api,
    clock: Clock,
    source: Source,
    notes: mpsc::Receiver<Note>,
    /// The event that stands for each note.
    told: BTreeMap<Note, Told>,
    /// How many different messages there were, by object and reason.
    similar: BTreeMap<(About, String), (usize, Timestamp)>,
    count: u64,
}

#[derive(Clone, Debug)]
struct Told {
    key: Key,
    count: u64,
    last: Timestamp,
}

impl Recording {
    /// Writes down what is told. Returns when nobody can tell anything any more.
    pub async fn run(mut self) {
        while let Some(note) = self.notes.recv().await {
            let now = self.clock.now();
            self.forget(now);
            let message = note.message.clone();
            let note = self.combined(note, now);
            if let Err(error) = self.write(note, message, now).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "an event is lost");
            }
        }
    }

    fn forget(&mut self, now: Timestamp) {
        if self.told.len() + self.similar.len() > REMEMBERED_MAX {
            self.told.retain(|_, told| now.duration_since(told.last) < MEMORY);
            self.similar.retain(|_, (_, since)| now.duration_since(*since) < MEMORY);
        }
    }

    /// The note, or one for many that are like it.
    fn combined(&mut self, mut note: Note, now: Timestamp) -> Note {
        if self.told.contains_key(&note) {
            return note;
        }
        let (count, since) =
            self.similar.entry((note.about.clone(), note.reason.clone())).or_insert((0, now));
        if now.duration_since(*since) >= MEMORY {
            (*count, *since) = (0, now);
        }
        *count += 1;
        if *count > SIMILAR_MAX {
            COMBINED.clone_into(&mut note.message);
        }
        note
    }

    async fn write(&mut self, note: Note, message: String, now: Timestamp) -> kai_runtime::api::Result<()> {
        // Of many that are told as one, the latest is shown.
        let message = if note.message == COMBINED { format!("{COMBINED}{message}") } else { message };
        let known = self.told.get(&note).filter(|told| now.duration_since(told.last) < MEMORY).cloned();
        if let Some(mut told) = known {
            told.count += 1;
            told.last = now;
            let patch =
                json!({"count": told.count, "lastTimestamp": kai_clock::time(now), "message": message});
            match self.api.merge(&EVENT, &told.key, Part::Main, &patch).await {
                Err(error) if error.is_not_found() => {}
                written => {
                    written?;
                    self.told.insert(note, told);
                    return Ok(());
                }
            }
        }
        self.count += 1;
        // Times are the same for whatever happens at once; the count tells them apart.
        let suffix = i128::from(self.count) + now.as_nanosecond();
        let name = format!("{}.{suffix:x}", note.about.name);
        let event = self.event(&note, &name, &message, now);
        let key = Key::of(&event);
        self.api.create(&EVENT, &key.namespace, &event).await?;
        self.told.insert(note, Told { key, count: 1, last: now });
        Ok(())
    }

    fn event(&self, note: &Note, name: &str, message: &str, now: Timestamp) -> Value {
        let about = &note.about;
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let mut source = json!({"component": self.source.component});
        let mut involved = json!({
            "apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid,
        });
        if !about.namespace.is_empty() {
            involved["namespace"] = Value::from(&*about.namespace);
        }
        if let Some(host) = &self.source.host {
            source["host"] = Value::from(&**host);
        }
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved, "reason": note.reason, "message": message,
            "type": if note.warns { "Warning" } else { "Normal" }, "source": source, "count": 1,
            "firstTimestamp": kai_clock::time(now), "lastTimestamp": kai_clock::time(now),
            "reportingComponent": self.source.component,
            "reportingInstance": self.source.host.as_deref().unwrap_or_default(),
        })
    }
}

//! Records events of controllers and kubelets, with the correlation rules of client-go's `EventCorrelator`.
//!
//! A repeated event increments the count of the existing one, and many similar events are aggregated into one. Events
//! are written in the background and may be lost.
//! Not `kai_runtime::event`: that recorder uses the write queue of a component, limits repeats to one a minute, and does
//! not aggregate similar messages.

use jiff::{SignedDuration, Timestamp};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::controller::EventSink;
use kai_runtime::event::EventType;
use kai_runtime::kind::{EVENT, Key};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Capacity of the channel; further events are lost.
const QUEUED_MAX: usize = 1_000;
/// Distinct messages by object and reason before they are aggregated (client-go: `defaultAggregateMaxEvents`).
const SIMILAR_MAX: usize = 10;
/// Interval of deduplication and aggregation (client-go: `defaultAggregateIntervalInSeconds`).
const CORRELATION_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Prefix of the message of an aggregated event, as in client-go.
const AGGREGATE_PREFIX: &str = "(combined from similar events): ";
/// Size of the correlation cache (client-go: `maxLruCacheEntries`).
const CACHE_ENTRIES_MAX: usize = 4_096;

/// `source` of the events.
#[derive(Clone, Debug)]
pub struct Source {
    pub component: String,
    /// The node of a kubelet.
    pub host: Option<String>,
}

/// Queues events for an [`EventWriter`].
#[derive(Clone, Debug)]
pub struct Recorder(mpsc::Sender<EventRecord>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventRecord {
    involved_object: InvolvedObject,
    is_warning: bool,
    reason: String,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InvolvedObject {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// A recorder, and the writer of its events.
pub fn recorder(api: Api, clock: Clock, source: Source) -> (Recorder, EventWriter) {
    let (send, records) = mpsc::channel(QUEUED_MAX);
    let writer = EventWriter {
        api,
        clock,
        source,
        records,
        written: BTreeMap::new(),
        similar: BTreeMap::new(),
        count: 0,
    };
    (Recorder(send), writer)
}

impl EventSink for Recorder {
    fn record(&self, object: &Value, type_: EventType, reason: &str, message: String) {
        let text = |text: &str| text.to_owned();
        let involved_object = InvolvedObject {
            api_version: text(object::api_version(object)),
            kind: text(object::kind(object)),
            namespace: text(object::namespace(object)),
            name: text(object::name(object)),
            uid: text(object::uid(object)),
        };
        // Lost where the channel is full.
        let _ = self.0.try_send(EventRecord {
            involved_object,
            is_warning: type_ == EventType::Warning,
            reason: text(reason),
            message,
        });
    }
}

/// Writes the events of a recorder.
#[derive(Debug)]
pub struct EventWriter {
    api: Api,
    clock: Clock,
    source: Source,
    records: mpsc::Receiver<EventRecord>,
    written: BTreeMap<EventRecord, WrittenEvent>,
    /// Distinct messages and start of the interval, by object and reason.
    similar: BTreeMap<(InvolvedObject, String), (usize, Timestamp)>,
    count: u64,
}

#[derive(Clone, Debug)]
struct WrittenEvent {
    key: Key,
    count: u64,
    last: Timestamp,
}

impl EventWriter {
    /// Returns after all recorders are dropped.
    pub async fn run(mut self) {
        while let Some(record) = self.records.recv().await {
            let now = self.clock.now();
            self.expire(now);
            let message = record.message.clone();
            let record = self.aggregate(record, now);
            if let Err(error) = self.write(record, message, now).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot write an event");
            }
        }
    }

    fn expire(&mut self, now: Timestamp) {
        if self.written.len() + self.similar.len() > CACHE_ENTRIES_MAX {
            self.written.retain(|_, event| now.duration_since(event.last) < CORRELATION_INTERVAL);
            self.similar.retain(|_, (_, since)| now.duration_since(*since) < CORRELATION_INTERVAL);
        }
    }

    /// Replaces the message of a record that exceeds the number of similar ones.
    fn aggregate(&mut self, mut record: EventRecord, now: Timestamp) -> EventRecord {
        if self.written.contains_key(&record) {
            return record;
        }
        let (count, since) =
            self.similar.entry((record.involved_object.clone(), record.reason.clone())).or_insert((0, now));
        if now.duration_since(*since) >= CORRELATION_INTERVAL {
            (*count, *since) = (0, now);
        }
        *count += 1;
        if *count > SIMILAR_MAX {
            AGGREGATE_PREFIX.clone_into(&mut record.message);
        }
        record
    }

    async fn write(
        &mut self,
        record: EventRecord,
        message: String,
        now: Timestamp,
    ) -> kai_runtime::api::Result<()> {
        // An aggregated event shows the latest message.
        let message =
            if record.message == AGGREGATE_PREFIX { format!("{AGGREGATE_PREFIX}{message}") } else { message };
        let known = self
            .written
            .get(&record)
            .filter(|event| now.duration_since(event.last) < CORRELATION_INTERVAL)
            .cloned();
        if let Some(mut event) = known {
            event.count += 1;
            event.last = now;
            let patch =
                json!({"count": event.count, "lastTimestamp": kai_clock::time(now), "message": message});
            match self.api.patch_dynamic(&EVENT, &event.key, Part::Main, &patch).await {
                Err(error) if error.is_not_found() => {}
                merged => {
                    merged?;
                    self.written.insert(record, event);
                    return Ok(());
                }
            }
        }
        self.count += 1;
        // The count distinguishes events of the same virtual time.
        let suffix = i128::from(self.count) + now.as_nanosecond();
        let name = format!("{}.{suffix:x}", record.involved_object.name);
        let event = self.event(&record, &name, &message, now);
        let key = kai_runtime::key_of(&event);
        self.api.create_dynamic(&EVENT, &key.namespace, &event).await?;
        self.written.insert(record, WrittenEvent { key, count: 1, last: now });
        Ok(())
    }

    fn event(&self, record: &EventRecord, name: &str, message: &str, now: Timestamp) -> Value {
        let involved_object = &record.involved_object;
        let namespace =
            if involved_object.namespace.is_empty() { "default" } else { &involved_object.namespace };
        let mut source = json!({"component": self.source.component});
        let mut involved = json!({
            "apiVersion": involved_object.api_version, "kind": involved_object.kind, "name": involved_object.name, "uid": involved_object.uid,
        });
        if !involved_object.namespace.is_empty() {
            involved["namespace"] = Value::from(&*involved_object.namespace);
        }
        if let Some(host) = &self.source.host {
            source["host"] = Value::from(&**host);
        }
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved, "reason": record.reason, "message": message,
            "type": if record.is_warning { "Warning" } else { "Normal" }, "source": source, "count": 1,
            "firstTimestamp": kai_clock::time(now), "lastTimestamp": kai_clock::time(now),
            "reportingComponent": self.source.component,
            "reportingInstance": self.source.host.as_deref().unwrap_or_default(),
        })
    }
}

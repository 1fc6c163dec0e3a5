//! A stored version of an object.

use crate::selector::Field;
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Added,
    Modified,
    Deleted,
}

impl Action {
    fn opening(self) -> &'static [u8] {
        match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// The bytes after the object in an encoded watch event.
const CLOSING: &[u8] = b"}\n";

/// A version of an object: compact JSON, and an index of its labels and selectable fields.
#[derive(Debug)]
pub struct Record {
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
    /// The `resourceVersion`.
    pub revision: u64,
    /// Sorted by key.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The object, encoded as the watch event of its write.
    event: Bytes,
    action: Action,
    /// Whether it has a `deletionTimestamp`.
    terminating: bool,
    /// Values of selectable fields, cached by the first selector that reads them.
    fields: Mutex<Vec<(Field, Box<str>)>>,
    /// The offset of the fields after `kind` and `apiVersion`, from the start of the object.
    fields_at: u32,
}

impl Record {
    /// Encodes an object whose `resourceVersion` is set.
    pub(super) fn new(action: Action, key: Arc<str>, revision: u64, object: &Value) -> Self {
        let (event, fields_at) = encode_event(action, object);
        let terminating = crate::object::is_deleting(object);
        Self {
            key,
            revision,
            labels: labels_of(object),
            event,
            action,
            terminating,
            fields: Mutex::default(),
            fields_at,
        }
    }

    /// The object as compact JSON, with `kind` and `apiVersion` first.
    pub fn json(&self) -> Bytes {
        self.event.slice(self.action.opening().len()..self.event.len() - CLOSING.len())
    }

    /// The JSON after `{"kind":…,"apiVersion":…,`: a list item without its opening brace.
    pub fn json_fields(&self) -> &[u8] {
        let start = self.action.opening().len() + self.fields_at as usize;
        &self.event[start..self.event.len() - CLOSING.len()]
    }

    /// The decoded object.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).expect("the store encoded the object itself")
    }

    /// The watch event of the write, with its line end.
    pub fn event(&self) -> Bytes {
        self.event.clone()
    }

    /// The watch event of another type with this version.
    pub fn event_as(&self, action: Action) -> Bytes {
        if action == self.action {
            return self.event();
        }
        wrap(action, &self.json())
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Whether a field of the object, which `read` decodes, has a value.
    pub fn has_field(&self, field: &Field, value: &str, read: impl FnOnce() -> Value) -> bool {
        let mut known = self.fields.lock();
        if let Some((_, own)) = known.iter().find(|(known, _)| known == field) {
            return **own == *value;
        }
        let object = read();
        let own = field.value(&object);
        let same = own == value;
        known.push((field.clone(), own.into()));
        // Decoding the object is the expensive part.
        for other in field.cached_together() {
            let own = other.value(&object).into();
            known.push((other, own));
        }
        same
    }

    /// The namespace part of the key; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// Whether the object has a `deletionTimestamp`.
    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// Approximate memory use.
    pub(super) fn bytes_held(&self) -> usize {
        const OVERHEAD: usize = 256;
        self.event.len() + OVERHEAD
    }
}

/// Encodes an object as a watch event.
pub fn wrap(action: Action, json: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(action.opening().len() + json.len() + CLOSING.len());
    event.put_slice(action.opening());
    event.put_slice(json);
    event.put_slice(CLOSING);
    event.freeze()
}

fn labels_of(object: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let labels =
        object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    let mut labels: Vec<(Box<str>, Box<str>)> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
        .collect();
    labels.sort_unstable();
    labels.into()
}

fn encode_event(action: Action, object: &Value) -> (Bytes, u32) {
    let mut buffer = Vec::with_capacity(1024);
    buffer.extend_from_slice(action.opening());
    let start = buffer.len();
    let fields_at = encode_into(&mut buffer, object);
    buffer.extend_from_slice(CLOSING);
    buffer.shrink_to_fit();
    (Bytes::from(buffer), u32::try_from(fields_at - start).expect("kind and version are short"))
}

/// Encodes the object with `kind` and `apiVersion` first; returns the offset of the other fields.
fn encode_into(buffer: &mut Vec<u8>, object: &Value) -> usize {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let text_len = |key: &str| fields.get(key).and_then(Value::as_str).map_or(0, str::len);
    // Kinds and versions contain no characters that JSON escapes.
    let fields_at =
        buffer.len() + r#"{"kind":"","apiVersion":"","#.len() + text_len("kind") + text_len("apiVersion");
    serde_json::to_writer(&mut *buffer, &Ordered(fields))
        .expect("JSON values have string keys, and writing to a vector cannot fail");
    fields_at
}

/// The object as compact JSON, with `kind`, `apiVersion` and `metadata` first.
pub fn to_json(object: &Value) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(1024);
    match object.as_object() {
        Some(fields) => serde_json::to_writer(&mut buffer, &Ordered(fields)),
        None => serde_json::to_writer(&mut buffer, object),
    }
    .expect("JSON values have string keys, and writing to a vector cannot fail");
    buffer
}

/// The fields of an object, with the type and object metadata first.
struct Ordered<'a>(&'a Map<String, Value>);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
        let mut map = serializer.serialize_map(None)?;
        for key in FIRST {
            if let Some(value) = self.0.get(key) {
                map.serialize_entry(key, value)?;
            }
        }
        for (key, value) in self.0 {
            if !FIRST.contains(&key.as_str()) {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

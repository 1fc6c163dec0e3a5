//! Reads cell values from objects.

use super::age;
use crate::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::Value;

/// An object and the current time.
pub(super) struct Cells<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Cells<'a> {
    /// A value by its JSON pointer; null counts as missing.
    pub(super) fn get(&self, pointer: &str) -> Option<&'a Value> {
        self.object.pointer(pointer).filter(|value| !value.is_null())
    }

    /// A string; empty if missing.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.get(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A string, or `other` if it is missing or empty.
    pub(super) fn text_or<'b>(&self, pointer: &str, other: &'b str) -> &'b str
    where
        'a: 'b,
    {
        self.get(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    /// A string or number as text.
    pub(super) fn printed(&self, pointer: &str) -> Option<String> {
        self.get(pointer).map(printed)
    }

    /// An integer; zero if missing.
    pub(super) fn number(&self, pointer: &str) -> i64 {
        self.get(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    /// A boolean; false if missing.
    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.get(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A list; empty if missing.
    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        self.get(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of elements or fields.
    pub(super) fn count(&self, pointer: &str) -> i64 {
        match self.get(pointer) {
            Some(Value::Array(elements)) => elements.len() as i64,
            Some(Value::Object(fields)) => fields.len() as i64,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => 0,
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.text("/metadata/name")
    }

    /// The time since `creationTimestamp`.
    pub(super) fn age(&self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    /// The time since a timestamp.
    pub(super) fn since(&self, pointer: &str) -> String {
        self.get(pointer).map_or_else(|| "<unknown>".to_owned(), |time| since(time, self.now))
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.get("/metadata/deletionTimestamp").is_some()
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&'a Value> {
        self.list("/status/conditions").iter().find(|condition| condition["type"] == kind)
    }

    pub(super) fn has_condition(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition["status"] == "True")
    }

    /// Names and images of the containers of a pod template.
    pub(super) fn containers(&self, pointer: &str) -> [Value; 2] {
        let join = |field: &str| {
            let texts: Vec<_> =
                self.list(pointer).iter().map(|one| one[field].as_str().unwrap_or_default()).collect();
            Value::from(texts.join(","))
        };
        [join("name"), join("image")]
    }

    /// A `LabelSelector` as text.
    pub(super) fn selector(&self, pointer: &str) -> String {
        match LabelSelector::from_object(self.get(pointer).unwrap_or(&Value::Null)) {
            Err(_) => "<error>".to_owned(),
            Ok(selector) if selector.to_string().is_empty() => "<none>".to_owned(),
            Ok(selector) => selector.to_string(),
        }
    }

    /// A label map as text.
    pub(super) fn labels(&self, pointer: &str) -> String {
        let fields = self.get(pointer).and_then(Value::as_object);
        let pairs: Vec<_> =
            fields.into_iter().flatten().map(|(key, value)| format!("{key}={}", printed(value))).collect();
        if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
    }

    /// The strings of a list, joined.
    pub(super) fn joined(&self, pointer: &str, separator: &str) -> String {
        self.list(pointer).iter().map(printed).collect::<Vec<_>>().join(separator)
    }
}

pub(super) fn printed(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn since(time: &Value, now: Timestamp) -> String {
    let time = time.as_str().and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or_else(|| "<unknown>".to_owned(), |time| age::since(time, now))
}

/// The first elements of a list, and how many more there are.
pub(super) fn first_of(list: &[String], max: usize, empty: &str) -> String {
    if list.is_empty() {
        return empty.to_owned();
    }
    let shown = list[..list.len().min(max)].join(",");
    if list.len() > max { format!("{shown} + {} more...", list.len() - max) } else { shown }
}

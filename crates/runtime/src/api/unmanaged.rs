//! Deserialises JSON objects without `metadata.managedFields`, which make up half of most objects and are not read.

use kube::core::WatchEvent;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};
use std::fmt;

/// An object or a list of objects.
#[derive(Clone, Debug)]
pub(crate) struct Unmanaged(Value);

impl Unmanaged {
    pub(crate) fn into_value(self) -> Value {
        self.0
    }

    pub(crate) fn of_event(event: WatchEvent<Self>) -> WatchEvent<Value> {
        match event {
            WatchEvent::Added(object) => WatchEvent::Added(object.0),
            WatchEvent::Modified(object) => WatchEvent::Modified(object.0),
            WatchEvent::Deleted(object) => WatchEvent::Deleted(object.0),
            WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
            WatchEvent::Error(status) => WatchEvent::Error(status),
        }
    }
}

impl<'de> Deserialize<'de> for Unmanaged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Place::Object.deserialize(deserializer).map(Self)
    }
}

/// The position in an object while it is read.
#[derive(Clone, Copy)]
enum Place {
    Object,
    Metadata,
    /// The items of a list.
    Items,
    /// Below everything that is filtered.
    Elsewhere,
}

impl Place {
    fn of(self, field: &str) -> Self {
        match (self, field) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "items") => Self::Items,
            (Self::Object | Self::Metadata | Self::Items | Self::Elsewhere, _) => Self::Elsewhere,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Object | Self::Metadata | Self::Items => deserializer.deserialize_any(self),
            Self::Elsewhere => Value::deserialize(deserializer),
        }
    }
}

impl<'de> Visitor<'de> for Place {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            if matches!(self, Self::Metadata) && field == "managedFields" {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = fields.next_value_seed(self.of(&field))?;
            kept.insert(field, value);
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let place = if matches!(self, Self::Items) { Self::Object } else { Self::Elsewhere };
        let mut kept = Vec::new();
        while let Some(item) = items.next_element_seed(place)? {
            kept.push(item);
        }
        Ok(Value::Array(kept))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Value {
        serde_json::from_str::<Unmanaged>(&value.to_string()).unwrap().into_value()
    }

    #[test]
    fn only_managed_fields_are_left_out() {
        let object = |managed: &Value| {
            let mut object = json!({
                "metadata": {"name": "a", "labels": {"managedFields": "kept"}},
                "spec": {"metadata": {"managedFields": [1, 2.5, -3, true, null]}, "items": [{"metadata": {"managedFields": 1}}]},
            });
            if !managed.is_null() {
                object["metadata"]["managedFields"] = managed.clone();
            }
            object
        };
        let (with, without) = (object(&json!([{"manager": "m"}])), object(&Value::Null));
        assert_eq!(read(&with), without);
        assert_eq!(
            read(&json!({"kind": "PodList", "items": [with, "text"], "metadata": {"resourceVersion": "1"}})),
            json!({"kind": "PodList", "items": [without, "text"], "metadata": {"resourceVersion": "1"}})
        );
        for other in [
            json!("text"),
            json!([1, {"a": 2}]),
            json!(null),
            json!(1.5),
            json!({"metadata": 7, "items": {}}),
        ] {
            assert_eq!(read(&other), other);
        }
    }
}

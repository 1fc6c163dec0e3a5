//! `meta.k8s.io` Tables for `kubectl get`.
//!
//! A [`Printer`] has the columns of one kind: from a table for built-in kinds, from `additionalPrinterColumns` for
//! custom resources. All columns are always sent; the client hides the wide ones.

pub mod age;
pub mod path;

mod cells;
mod columns;
mod network;
mod pod;
mod storage;
mod workload;

use crate::strategy::TEMPLATE_GENERATION;
use cells::Cells;
use columns::Column;
use jiff::Timestamp;
use path::JsonPath;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The `includeObject` parameter: what a row contains besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    /// `PartialObjectMetadata`, the default.
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    pub fn parse(text: Option<&str>) -> Result<Self, String> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(format!(
                "includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                crate::field::quote(other)
            )),
        }
    }
}

/// Whether a table has column definitions. In a watch only the first event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    Send,
    Omit,
}

/// Prints objects of one kind as rows.
#[derive(Clone, Debug)]
pub struct Printer {
    headers: Arc<Vec<Value>>,
    rows: Rows,
}

#[derive(Clone, Debug)]
enum Rows {
    BuiltIn(columns::Row),
    /// Type and JSON path of every column after the name.
    Custom(Vec<(String, Option<JsonPath>)>),
}

impl Printer {
    /// The printer of a built-in kind; kinds without their own columns print name and creation time.
    pub fn built_in(api_version: &str, kind: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let (headers, row) = columns::of(group, kind);
        Self { headers, rows: Rows::BuiltIn(row) }
    }

    /// The printer of a custom resource, from the `additionalPrinterColumns` of its version.
    pub fn custom(columns: &[Value]) -> Self {
        let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
        let (columns, defaulted) = if columns.is_empty() { (&age[..], true) } else { (columns, false) };
        let text = |column: &Value, name: &str| {
            column.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut headers = vec![Column::NAME.header()];
        let mut paths = Vec::new();
        for column in columns {
            let path = text(column, "jsonPath");
            let mut description = text(column, "description");
            if defaulted {
                description = columns::description("ObjectMeta.creationTimestamp");
            } else if description.is_empty() {
                description = format!("Custom resource definition column (in JSONPath format): {path}");
            }
            headers.push(json!({
                "name": text(column, "name"), "type": text(column, "type"), "format": text(column, "format"),
                "description": description, "priority": column.get("priority").cloned().unwrap_or(json!(0)),
            }));
            paths.push((text(column, "type"), JsonPath::parse(&path).ok()));
        }
        Self { headers: Arc::new(headers), rows: Rows::Custom(paths) }
    }

    /// A table of objects. `metadata` is that of the list, or of a single requested object.
    pub fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        metadata: &Value,
        include: IncludeObject,
        headers: Headers,
        now: Timestamp,
    ) -> Value {
        let rows: Vec<_> = objects.into_iter().map(|object| self.row(object, include, now)).collect();
        let mut own = Map::new();
        for name in ["resourceVersion", "continue", "remainingItemCount"] {
            if let Some(value) = metadata.get(name).filter(|value| !value.is_null()) {
                own.insert(name.to_owned(), value.clone());
            }
        }
        let headers = match headers {
            Headers::Send => Value::Array(Vec::clone(&self.headers)),
            Headers::Omit => Value::Null,
        };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": own, "columnDefinitions": headers, "rows": rows,
        })
    }

    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells = match &self.rows {
            Rows::BuiltIn(row) => row(&Cells { object, now }),
            Rows::Custom(columns) => {
                let own = columns.iter().map(|(kind, path)| custom_cell(kind, path.as_ref(), object, now));
                std::iter::once(Value::from(Cells { object, now }.name())).chain(own).collect()
            }
        };
        let included = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => without_template_count(partial(object)),
            IncludeObject::Object => object.clone(),
        };
        let mut row = json!({"cells": cells, "object": included});
        if matches!(self.rows, Rows::BuiltIn(_))
            && object.get("kind").and_then(Value::as_str) == Some("Pod")
            && let Some(conditions) = pod::row_conditions(object)
        {
            row["conditions"] = conditions;
        }
        row
    }
}

/// kube-apiserver builds tables from internal types, where the template generation is not an annotation.
fn without_template_count(mut partial: Value) -> Value {
    let Some(metadata) = partial.get_mut("metadata").and_then(Value::as_object_mut) else { return partial };
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    if annotations.is_some_and(|all| all.remove(TEMPLATE_GENERATION).is_some() && all.is_empty()) {
        metadata.remove("annotations");
    }
    partial
}

/// The object as `PartialObjectMetadata`.
pub fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A `PartialObjectMetadataList`; `metadata` is that of the list. Without objects kube-apiserver encodes `null`.
pub fn partial_list<'a>(objects: impl IntoIterator<Item = &'a Value>, metadata: &Value) -> Value {
    let items: Vec<Value> = objects.into_iter().map(partial).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "items": Some(items).filter(|items| !items.is_empty()),
    })
}

fn custom_cell(kind: &str, path: Option<&JsonPath>, object: &Value, now: Timestamp) -> Value {
    let Some(value) =
        path.and_then(|path| path.find(object).into_iter().next()).filter(|value| !value.is_null())
    else {
        return Value::Null;
    };
    match kind {
        "string" => Value::from(path::text_of(value)),
        "integer" => match (value.as_i64(), value.as_f64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number as i64),
            (None, None) => Value::Null,
        },
        "number" => value.as_f64().map_or(Value::Null, Value::from),
        "boolean" => value.as_bool().map_or(Value::Null, Value::from),
        "date" => match value.as_str().map(str::parse::<Timestamp>) {
            Some(Ok(time)) => Value::from(age::since(time, now)),
            Some(Err(_)) => Value::from("<invalid>"),
            None => Value::Null,
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;

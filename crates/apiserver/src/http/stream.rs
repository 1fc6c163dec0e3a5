//! Lists and watches as response bodies that are encoded while they are sent.

use super::negotiate::{Negotiated, Representation};
use super::respond;
use crate::registry::{Origin, convert};
use crate::request_body::Format;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::{Action, Record, to_json};
use crate::table::{Headers, IncludeObject, Printer, partial, partial_list};
use crate::verbs::list::Listing;
use crate::verbs::watch::{Transition, Watch, WatchItem};
use crate::verbs::{Call, served};
use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::Response;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// Approximate size of an encoded chunk of a list.
const CHUNK_BYTES: usize = 128 * 1024;

pub(super) fn list(core: &Core, call: &Call, listing: Listing, negotiated: Negotiated) -> Response<Body> {
    let mut metadata = list_metadata(&listing);
    if call.resource.custom().is_some()
        && listing.continue_token.is_none()
        && negotiated.representation == Representation::Object
    {
        metadata["continue"] = Value::from("");
    }
    match (negotiated.representation, negotiated.format) {
        (Representation::Object, Format::Json) => respond::json(200, list_body(call, listing, &metadata)),
        (Representation::Object, Format::Yaml) => {
            let items: Vec<Value> = listing.records.iter().map(|record| list_item(call, record)).collect();
            let resource = &*call.resource;
            let list = json!({
                "kind": &*resource.list_kind, "apiVersion": &*resource.api_version, "metadata": metadata, "items": items,
            });
            respond::value_as(200, &list, Format::Yaml)
        }
        (Representation::Metadata, format) => {
            let objects: Vec<Value> =
                listing.records.iter().map(|record| served(&call.resource, record)).collect();
            respond::value_as(200, &partial_list(&objects, &metadata), format)
        }
        (Representation::Table | Representation::OldTable, format) => {
            let objects: Vec<Value> =
                listing.records.iter().map(|record| served(&call.resource, record)).collect();
            respond::value_as(
                200,
                &table(core, call, &objects, &metadata, Headers::Send, negotiated.representation),
                format,
            )
        }
    }
}

fn list_metadata(listing: &Listing) -> Value {
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if let Some(token) = &listing.continue_token {
        metadata["continue"] = Value::from(token.as_str());
    }
    if let Some(remaining) = listing.remaining {
        metadata["remainingItemCount"] = Value::from(remaining);
    }
    metadata
}

/// A list item; items of built-in lists omit `kind` and `apiVersion`.
fn list_item(call: &Call, record: &Record) -> Value {
    let mut object = served(&call.resource, record);
    if let (Origin::Builtin(_), Some(fields)) = (&call.resource.origin, object.as_object_mut()) {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

fn list_body(call: &Call, listing: Listing, metadata: &Value) -> Body {
    let resource = Arc::clone(&call.resource);
    let opening = respond::list_opening(&resource, metadata);
    let call = call.clone();
    let make = move |state: Option<(usize, bool)>| {
        let (mut at, opened) = state?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 16 * 1024);
        if !opened {
            chunk.extend_from_slice(&opening);
        }
        while let Some(record) = listing.records.get(at) {
            if at > 0 {
                chunk.push(b',');
            }
            write_item(&call, record, &mut chunk);
            at += 1;
            if chunk.len() >= CHUNK_BYTES {
                return Some((Bytes::from(chunk), Some((at, true))));
            }
        }
        chunk.extend_from_slice(b"]}\n");
        Some((Bytes::from(chunk), None))
    };
    let (first, rest) = make(Some((0, false))).expect("a list has at least its opening");
    if rest.is_none() {
        // A small list has a known length and needs no chunked encoding.
        return Body::from(first);
    }
    let chunks = stream::unfold((Some(first), rest), move |(first, state)| {
        let next = match first {
            Some(first) => Some((Ok::<_, Infallible>(first), (None, state))),
            None => make(state).map(|(chunk, state)| (Ok(chunk), (None, state))),
        };
        std::future::ready(next)
    });
    Body::from_stream(chunks)
}

fn write_item(call: &Call, record: &Record, chunk: &mut Vec<u8>) {
    match call.resource.origin {
        Origin::Builtin(_) if call.resource.is_storage_version() => {
            chunk.push(b'{');
            chunk.extend_from_slice(record.json_fields());
        }
        Origin::Custom(_) if call.resource.is_storage_version() => chunk.extend_from_slice(&record.json()),
        Origin::Builtin(_) | Origin::Custom(_) => chunk.extend_from_slice(&to_json(&list_item(call, record))),
    }
}

pub(super) fn table(
    core: &Core,
    call: &Call,
    objects: &[Value],
    metadata: &Value,
    headers: Headers,
    representation: Representation,
) -> Value {
    // The parameter is validated before the request is executed.
    let include = IncludeObject::parse(call.query.get("includeObject")).unwrap_or(IncludeObject::Metadata);
    let resource = &*call.resource;
    let printer = match &resource.origin {
        Origin::Builtin(_) => Printer::built_in(&resource.api_version, &resource.kind),
        Origin::Custom(custom) => {
            Printer::custom(custom.columns.as_array().map(Vec::as_slice).unwrap_or_default())
        }
    };
    let mut table = printer.table(objects, metadata, include, headers, core.clock.now());
    if representation == Representation::OldTable {
        table["apiVersion"] = Value::from("meta.k8s.io/v1beta1");
    }
    table
}

pub(super) fn watch(
    core: &Arc<Core>,
    call: Call,
    negotiated: Negotiated,
) -> Result<Response<Body>, StatusError> {
    let watch = Watch::start(core, &call)?;
    let state = (Arc::clone(core), call, watch, true);
    let events = stream::unfold(state, move |(core, call, mut watch, first)| async move {
        let item = watch.next(&core).await?;
        let event = encode(&core, &call, &item, negotiated, first);
        Some((Ok::<_, Infallible>(event), (core, call, watch, false)))
    });
    let media_type = match negotiated.format {
        Format::Json => "application/json",
        Format::Yaml => "application/yaml;stream=watch",
    };
    Ok(respond::with(200, media_type, Body::from_stream(events)))
}

/// Encodes a watch event. An object in its storage version is sent as the stored bytes.
fn encode(core: &Core, call: &Call, item: &WatchItem, negotiated: Negotiated, first: bool) -> Bytes {
    let as_kept = negotiated.representation == Representation::Object
        && negotiated.format == Format::Json
        && call.resource.is_storage_version();
    let (action, object) = match item {
        WatchItem::Existing(record) if as_kept => return record.event_as(Action::Added),
        WatchItem::Changed(change, seen) if as_kept => {
            let kept = match seen {
                Transition::Unchanged => Some(change.record().event()),
                Transition::Entered => Some(change.entered()),
                Transition::Left => change.left(),
            };
            return kept.unwrap_or_default();
        }
        WatchItem::Existing(record) => ("ADDED", served(&call.resource, record)),
        WatchItem::Changed(change, seen) => {
            let (action, object) = match (seen, change.action()) {
                (Transition::Entered, _) | (Transition::Unchanged, Action::Added) => {
                    ("ADDED", change.record().value())
                }
                (Transition::Unchanged, Action::Modified) => ("MODIFIED", change.record().value()),
                (Transition::Unchanged, Action::Deleted) => ("DELETED", change.record().value()),
                (Transition::Left, _) => ("DELETED", change.left_object().unwrap_or_default()),
            };
            (action, convert::to_served(&call.resource, object))
        }
        WatchItem::Bookmark { revision, initial_events_end } => {
            ("BOOKMARK", bookmark(call, *revision, *initial_events_end))
        }
        WatchItem::Failed(failure) => {
            let status = serde_json::from_slice(&failure.to_json()).unwrap_or_default();
            return event("ERROR", &status, negotiated.format);
        }
    };
    let object = match negotiated.representation {
        Representation::Object => object,
        Representation::Metadata => partial(&object),
        Representation::Table | Representation::OldTable => {
            let headers = if first { Headers::Send } else { Headers::Omit };
            let metadata = object["metadata"].clone();
            table(core, call, &[object], &metadata, headers, negotiated.representation)
        }
    };
    event(action, &object, negotiated.format)
}

fn bookmark(call: &Call, revision: u64, initial_events_end: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"kind": &*call.resource.kind, "apiVersion": &*call.resource.api_version, "metadata": metadata})
}

fn event(action: &str, object: &Value, format: Format) -> Bytes {
    match format {
        Format::Json => {
            let mut event = format!("{{\"type\":\"{action}\",\"object\":").into_bytes();
            event.extend_from_slice(&to_json(object));
            event.extend_from_slice(b"}\n");
            Bytes::from(event)
        }
        Format::Yaml => {
            let mut fields = Map::new();
            fields.insert("type".to_owned(), Value::from(action));
            fields.insert("object".to_owned(), object.clone());
            Bytes::from(format!("{}---\n", respond::yaml(&Value::Object(fields))))
        }
    }
}

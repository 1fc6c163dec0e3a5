//! Builds responses.

use super::negotiate::{Negotiated, Representation};
use crate::field::quote;
use crate::registry::{Resource, convert};
use crate::request_body::Format;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::to_json;
use crate::table;
use crate::verbs::{Call, Reply, ReplyBody};
use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

pub(super) fn media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Yaml => "application/yaml",
    }
}

pub(super) fn with(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Encoded JSON.
pub(super) fn json(code: u16, body: impl Into<Body>) -> Response<Body> {
    with(code, media_type(Format::Json), body)
}

pub(super) fn text(code: u16, body: impl Into<Body>) -> Response<Body> {
    with(code, "text/plain; charset=utf-8", body)
}

/// The 404 response outside of the API groups.
pub(super) fn not_found_page() -> Response<Body> {
    text(404, "404 page not found\n")
}

pub(super) fn method_not_allowed() -> Response<Body> {
    failure(&StatusError::unknown_method(), false)
}

pub(super) fn failure(failure: &StatusError, yaml: bool) -> Response<Body> {
    let json = failure.to_json();
    let mut response = match serde_json::from_slice::<Value>(&json) {
        Ok(value) if yaml => value_as(failure.code(), &value, Format::Yaml),
        Ok(_) | Err(_) => self::json(failure.code(), json),
    };
    if let Some(seconds) = failure.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.code() == 401 {
        response.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    warn(&mut response, failure.warnings());
    response
}

pub(super) fn value_as(code: u16, value: &Value, format: Format) -> Response<Body> {
    match format {
        Format::Json => json(code, to_json(value)),
        Format::Yaml => with(code, media_type(Format::Yaml), yaml(value)),
    }
}

pub(super) fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// The response of a call on one object.
pub(super) fn reply(core: &Core, call: &Call, reply: Reply, negotiated: Negotiated) -> Response<Body> {
    let Reply { code, body, warnings } = reply;
    let mut response = match (body, negotiated.representation) {
        (ReplyBody::Other(value), _) => value_as(code, &value, negotiated.format),
        (ReplyBody::Record(record), Representation::Object)
            if negotiated.format == Format::Json && call.resource.is_storage_version() =>
        {
            json(code, record.json())
        }
        (ReplyBody::Record(record), representation) => {
            let object = convert::to_served(&call.resource, record.value());
            formed(core, call, code, object, Negotiated { representation, ..negotiated })
        }
        (ReplyBody::Object(object), representation) => {
            formed(core, call, code, object, Negotiated { representation, ..negotiated })
        }
    };
    warn(&mut response, &warnings);
    response
}

fn formed(core: &Core, call: &Call, code: u16, object: Value, negotiated: Negotiated) -> Response<Body> {
    let value = match negotiated.representation {
        Representation::Object => object,
        Representation::Metadata => table::partial(&object),
        Representation::Table | Representation::OldTable => {
            let metadata = object["metadata"].clone();
            super::stream::table(
                core,
                call,
                &[object],
                &metadata,
                table::Headers::Send,
                negotiated.representation,
            )
        }
    };
    value_as(code, &value, negotiated.format)
}

/// Adds `Warning` headers.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        // Code 299 is a persistent warning; Kubernetes writes `-` as its agent.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quote(warning))) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The beginning of a typed list, up to its items.
pub(super) fn list_opening(resource: &Resource, metadata: &Value) -> Bytes {
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
        quote(&resource.list_kind),
        quote(&resource.api_version)
    );
    Bytes::from(opening)
}

//! Serves subresources.

use super::negotiate::{Accept, Negotiated};
use super::{body, respond};
use crate::admission;
use crate::registry::Subresource;
use crate::request_body::{self, RequestBody};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::verbs::{self, Call, bind, evict, logs, patch, scale, token, update};
use axum::body::Body;
use futures::stream;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Polling interval of a followed log.
const FOLLOW_PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    core: &Arc<Core>,
    call: Call,
    part: Subresource,
    accept: &Accept,
    parts: &Parts,
    body: Body,
) -> Result<Response<Body>, StatusError> {
    if part == Subresource::Log {
        return if parts.method == Method::GET { log(core, call) } else { Ok(respond::method_not_allowed()) };
    }
    let negotiated = accept.objects()?;
    match part {
        Subresource::EphemeralContainers
        | Subresource::Finalize
        | Subresource::Resize
        | Subresource::Status => serve_part(core, &call, part, parts, body, negotiated).await,
        Subresource::Scale => serve_scale(core, &call, parts, body, negotiated).await,
        Subresource::Binding | Subresource::Eviction | Subresource::Token | Subresource::Log => {
            if parts.method != Method::POST {
                return Ok(respond::method_not_allowed());
            }
            let request = decode(part, &body::object(&parts.headers, body).await?)?;
            let (request, warnings) = admission::admit_request(core, &call, request).await?;
            let reply = if part == Subresource::Binding {
                bind::bind(core, &call, &request)?
            } else if part == Subresource::Eviction {
                evict::evict(core, &call, &request).await?
            } else {
                token::issue(core, &call, request)?
            };
            Ok(respond::reply(core, &call, reply.warn(warnings), negotiated))
        }
    }
}

/// A subresource with the kind of its object.
async fn serve_part(
    core: &Core,
    call: &Call,
    part: Subresource,
    parts: &Parts,
    body: Body,
    negotiated: Negotiated,
) -> Result<Response<Body>, StatusError> {
    let allowed = |verb: &str| part.verbs().contains(&verb);
    let reply = match parts.method.as_str() {
        "GET" if allowed("get") => verbs::get(core, call)?,
        "PUT" => update::update(core, call, body::object(&parts.headers, body).await?).await?,
        "PATCH" if allowed("patch") => {
            let media_type = super::negotiate::content_type(&parts.headers);
            patch::patch(core, call, &media_type, body::read(body).await?).await?
        }
        _ => return Ok(respond::method_not_allowed()),
    };
    Ok(respond::reply(core, call, reply, negotiated))
}

async fn serve_scale(
    core: &Core,
    call: &Call,
    parts: &Parts,
    body: Body,
    negotiated: Negotiated,
) -> Result<Response<Body>, StatusError> {
    let reply = match parts.method.as_str() {
        "GET" => scale::get(core, call)?,
        "PUT" => {
            let scale = decode(Subresource::Scale, &body::object(&parts.headers, body).await?)?;
            if crate::object::name(&scale).is_empty() {
                let name = &call.name;
                return Err(StatusError::bad_request(format!(
                    "the name of the object ({name} based on URL) was undeterminable: name must be provided"
                )));
            }
            scale::write(core, call, |_| Ok(scale.clone())).await?
        }
        "PATCH" => {
            let media_type = super::negotiate::content_type(&parts.headers);
            let bytes = body::read(body).await?;
            scale::write(core, call, |scale| patch::patched_scale(&media_type, &bytes, scale)).await?
        }
        _ => return Ok(respond::method_not_allowed()),
    };
    Ok(respond::reply(core, call, reply, negotiated))
}

/// Decodes the body for a subresource with a kind of its own.
fn decode(part: Subresource, body: &RequestBody) -> Result<Value, StatusError> {
    let (group, _, kind) = part.own_kind().unwrap_or_default();
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    request_body::decode_subresource(kind, package, body)
}

fn log(core: &Arc<Core>, call: Call) -> Result<Response<Body>, StatusError> {
    let Some(log) = logs::read(core, &call)? else {
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    if !call.query.is_set("follow") || log.complete {
        return Ok(respond::text(200, log.text));
    }
    let state = (Arc::clone(core), call, log.text, 0, false);
    let lines = stream::unfold(state, |(core, call, mut text, mut sent, mut complete)| async move {
        loop {
            if text.len() > sent {
                let more = text[sent..].to_owned();
                sent = text.len();
                return Some((Ok::<_, Infallible>(more), (core, call, text, sent, complete)));
            }
            if complete {
                return None;
            }
            tokio::time::sleep(FOLLOW_PERIOD).await;
            let log = logs::read(&core, &call).ok()??;
            complete = log.complete;
            if log.text.len() >= sent {
                text = log.text;
            }
        }
    });
    Ok(respond::text(200, Body::from_stream(lines)))
}

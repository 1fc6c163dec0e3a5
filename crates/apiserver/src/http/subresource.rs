//! Serves subresources.

use super::negotiate::{Accept, Wish};
use super::{body, respond};
use crate::admission;
use crate::failure::Failure;
use crate::incoming::{self, Incoming};
use crate::kinds::Subresource;
use crate::server::Core;
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
) -> Result<Response<Body>, Failure> {
    if part == Subresource::Log {
        return if parts.method == Method::GET { log(core, call) } else { Ok(respond::method_not_allowed()) };
    }
    let wish = accept.objects()?;
    match part {
        Subresource::EphemeralContainers
        | Subresource::Finalize
        | Subresource::Resize
        | Subresource::Status => serve_part(core, &call, part, parts, body, wish).await,
        Subresource::Scale => serve_scale(core, &call, parts, body, wish).await,
        Subresource::Binding | Subresource::Eviction | Subresource::Token | Subresource::Log => {
            if parts.method != Method::POST {
                return Ok(respond::method_not_allowed());
            }
            let request = decode(part, &body::object(&parts.headers, body).await?)?;
            let (request, warnings) = admission::admit_request(core, &call, request).await?;
            let done = if part == Subresource::Binding {
                bind::bind(core, &call, &request)?
            } else if part == Subresource::Eviction {
                evict::evict(core, &call, &request).await?
            } else {
                token::issue(core, &call, request)?
            };
            Ok(respond::done(core, &call, done.warn(warnings), wish))
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
    wish: Wish,
) -> Result<Response<Body>, Failure> {
    let allowed = |verb: &str| part.verbs().contains(&verb);
    let done = match parts.method.as_str() {
        "GET" if allowed("get") => verbs::get(core, call)?,
        "PUT" => update::update(core, call, body::object(&parts.headers, body).await?).await?,
        "PATCH" if allowed("patch") => {
            let media_type = super::negotiate::content_type(&parts.headers);
            patch::patch(core, call, &media_type, body::read(body).await?).await?
        }
        _ => return Ok(respond::method_not_allowed()),
    };
    Ok(respond::done(core, call, done, wish))
}

async fn serve_scale(
    core: &Core,
    call: &Call,
    parts: &Parts,
    body: Body,
    wish: Wish,
) -> Result<Response<Body>, Failure> {
    let done = match parts.method.as_str() {
        "GET" => scale::get(core, call)?,
        "PUT" => {
            let scale = decode(Subresource::Scale, &body::object(&parts.headers, body).await?)?;
            if crate::object::name(&scale).is_empty() {
                let name = &call.name;
                return Err(Failure::bad_request(format!(
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
    Ok(respond::done(core, call, done, wish))
}

/// Decodes the body for a subresource with a kind of its own.
fn decode(part: Subresource, body: &Incoming) -> Result<Value, Failure> {
    let (group, _, kind) = part.own_kind().unwrap_or_default();
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    incoming::admit_part(kind, package, body)
}

fn log(core: &Arc<Core>, call: Call) -> Result<Response<Body>, Failure> {
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

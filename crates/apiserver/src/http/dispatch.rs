//! Determines the verb of a request and runs it.

use super::negotiate::{Accept, Negotiated};
use super::route::{self, RouteError};
use super::{body, respond, review, stream, subresource};
use crate::crd;
use crate::object;
use crate::registry::Resource;
use crate::request_body::{self, RequestBody};
use crate::server::Core;
use crate::status_error::StatusError;
use crate::table::IncludeObject;
use crate::user::User;
use crate::verbs::delete::{self, DeleteOptions};
use crate::verbs::{self, Call, Query, bind, create, list, patch, update};
use axum::body::Body;
use http::header::USER_AGENT;
use http::{HeaderMap, Method, Request, Response};
use std::sync::Arc;

pub(super) async fn dispatch(
    core: &Arc<Core>,
    user: Arc<User>,
    accept: &Accept,
    request: Request<Body>,
) -> Result<Response<Body>, StatusError> {
    let target = match route::find(&core.catalog(), request.uri().path()) {
        Ok(target) => target,
        Err(RouteError::Object(failure)) => return Err(failure),
        Err(RouteError::Path) => {
            let path = request.uri().path();
            return Err(without_containers(path).unwrap_or_else(StatusError::unknown_path));
        }
        Err(RouteError::Page) => return Ok(respond::not_found_page()),
    };
    let mut query = Query::parse(request.uri().query().unwrap_or_default());
    if target.watch {
        query = query.with("watch", "true");
    }
    let call = Call {
        resource: target.resource,
        namespace: target.namespace,
        name: target.name,
        subresource: target.subresource,
        user,
        agent: agent(request.headers()),
        query,
    };
    IncludeObject::parse(call.query.get("includeObject")).map_err(|message| {
        StatusError::bad_request(format!("Unable to convert to Table as requested: {message}"))
    })?;
    let (parts, body) = request.into_parts();
    // The parameter has no effect on a single object; the deprecated `/watch/` paths have.
    let may_watch = call.subresource.is_none() && (call.name.is_empty() || target.watch);
    let watches = parts.method == Method::GET && may_watch && call.query.is_set("watch");
    if watches {
        return if call.resource.verbs.allow("watch") {
            stream::watch(core, call, accept.objects()?)
        } else {
            Ok(respond::method_not_allowed())
        };
    }
    let Ok(_permit) = Arc::clone(&core.in_flight).try_acquire_owned() else {
        let message = "the server has received too many requests and has asked us to try again later";
        return Err(StatusError::too_many_requests(message, 1));
    };
    let deprecation = deprecation(&call.resource);
    let mut response = match call.subresource {
        Some(part) => subresource::serve(core, call, part, accept, &parts, body).await?,
        None => serve(core, call, accept, &parts.method, &parts.headers, body).await?,
    };
    respond::warn(&mut response, deprecation.as_slice());
    Ok(response)
}

async fn serve(
    core: &Core,
    call: Call,
    accept: &Accept,
    method: &Method,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response<Body>, StatusError> {
    let negotiated = accept.objects()?;
    let collection = call.name.is_empty();
    let Some(verb) = verb_of(method, collection) else { return Ok(respond::method_not_allowed()) };
    let needs_namespace = matches!(verb, "create" | "deletecollection");
    if needs_namespace && call.resource.namespaced && call.namespace.is_empty() {
        return Ok(respond::method_not_allowed());
    }
    if verb == "create" && call.resource.is("", "bindings") {
        return bind_named(core, call, &body::object(headers, body).await?, negotiated);
    }
    if verb == "create" && review::is_review(&call.resource) {
        return review::create(core, &call, &body::object(headers, body).await?, negotiated);
    }
    if !call.resource.verbs.allow(verb) {
        return Ok(respond::method_not_allowed());
    }
    if verb == "create" && crd::is_terminating(core, &call.resource) {
        let message = "create not allowed while custom resource definition is terminating";
        return Err(
            StatusError::new(405, "MethodNotAllowed", message).on(call.resource.qualified_resource(), "")
        );
    }
    let reply = match verb {
        "list" => return Ok(stream::list(core, &call, list::list(core, &call)?, negotiated)),
        "get" => verbs::get(core, &call)?,
        "create" => create::create(core, &call, body::object(headers, body).await?).await?,
        "update" => update::update(core, &call, body::object(headers, body).await?).await?,
        "patch" => {
            patch::patch(core, &call, &super::negotiate::content_type(headers), body::read(body).await?)
                .await?
        }
        "deletecollection" => {
            let options = delete_options(&call, headers, body).await?;
            return Ok(stream::list(
                core,
                &call,
                delete::delete_collection(core, &call, &options).await?,
                negotiated,
            ));
        }
        _ => {
            let options = delete_options(&call, headers, body).await?;
            delete::delete(core, &call, &options).await?
        }
    };
    Ok(respond::reply(core, &call, reply, negotiated))
}

/// The error of a subresource that needs a running container.
fn without_containers(path: &str) -> Option<StatusError> {
    let rest = path.strip_prefix("/api/v1/namespaces/")?;
    let [_, "pods", pod, what, ..] = rest.split('/').collect::<Vec<_>>()[..] else { return None };
    if !["exec", "attach", "portforward", "proxy"].contains(&what) {
        return None;
    }
    Some(StatusError::bad_request(format!(
        "pod `{pod}` is simulated and runs no container, so that `{what}` has nothing to connect to"
    )))
}

/// The deprecation warning of the resource.
fn deprecation(resource: &Resource) -> Option<String> {
    resource.custom().and_then(|custom| custom.deprecation.clone())
}

/// The verb of a method on a collection or an object.
pub(super) fn verb_of(method: &Method, collection: bool) -> Option<&'static str> {
    match (method.as_str(), collection) {
        ("GET", true) => Some("list"),
        ("GET", false) => Some("get"),
        ("POST", true) => Some("create"),
        ("PUT", false) => Some("update"),
        ("PATCH", false) => Some("patch"),
        ("DELETE", true) => Some("deletecollection"),
        ("DELETE", false) => Some("delete"),
        _ => None,
    }
}

/// A Binding created at `/bindings`, where only the body names the pod.
fn bind_named(
    core: &Core,
    mut call: Call,
    body: &RequestBody,
    negotiated: Negotiated,
) -> Result<Response<Body>, StatusError> {
    let binding = body.decode()?;
    call.resource = core.builtin("", "pods");
    object::name(&binding).clone_into(&mut call.name);
    let reply = bind::bind(core, &call, &binding)?;
    Ok(respond::reply(core, &call, reply, negotiated))
}

async fn delete_options(call: &Call, headers: &HeaderMap, body: Body) -> Result<DeleteOptions, StatusError> {
    let body = body::optional_object(headers, body).await?;
    let options = body.as_ref().map(request_body::decode_delete_options).transpose()?;
    DeleteOptions::read(call, options.filter(|options| !options.is_null()))
}

/// The default field manager: the `User-Agent` up to the first slash.
fn agent(headers: &HeaderMap) -> String {
    const CHARS_MAX: usize = 128;
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
    agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect()
}

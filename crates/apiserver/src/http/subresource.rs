//! Serves sub-resources.

use super::negotiate::Accept;
use super::{body, respond};
use crate::failure::Failure;
use crate::kinds::Subresource;
use crate::server::Core;
use crate::verbs::{self, Call, patch, update};
use axum::body::Body;
use http::{HeaderMap, Method, Response};

/// Serves a request for a sub-resource.
pub(super) async fn serve(
    core: &Core,
    call: Call,
    kind: Subresource,
    accept: &Accept,
    method: &Method,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response<Body>, Failure> {
    let wish = accept.objects()?;
    if !super::dispatch::is_part(kind) {
        return Ok(respond::method_not_allowed());
    }
    let done = match method.as_str() {
        "GET" | "HEAD" if kind.verbs().contains(&"get") => verbs::get(core, &call)?,
        "PUT" => update::update(core, &call, body::object(headers, body).await?).await?,
        "PATCH" if kind.verbs().contains(&"patch") => {
            patch::patch(core, &call, &super::dispatch::patch_type(headers), body::read(body).await?).await?
        }
        _ => return Ok(respond::method_not_allowed()),
    };
    Ok(respond::done(core, &call, done, wish))
}

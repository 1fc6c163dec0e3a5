//! OpenAPI v3 documents.

use crate::failure::Failure;
use crate::server::Core;
use axum::body::Body;
use http::{Request, Response};

/// The answer to a request for a document; nothing when the path is none.
pub(super) fn respond(_core: &Core, _request: &Request<Body>) -> Option<Result<Response<Body>, Failure>> {
    None
}

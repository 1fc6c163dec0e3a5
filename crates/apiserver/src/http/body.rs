//! Reads request bodies, limited in size and time.

use super::negotiate;
use crate::request_body::{Encoding, Format, RequestBody};
use crate::status_error::StatusError;
use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::time::Duration;

/// Limit of the request body, as in kube-apiserver.
pub(super) const BYTES_MAX: usize = 3 * 1024 * 1024;
/// Time limit for a client to send its body.
const TIME_MAX: Duration = Duration::from_mins(1);

pub(super) async fn read(body: Body) -> Result<Bytes, StatusError> {
    let whole = tokio::time::timeout(TIME_MAX, Limited::new(body, BYTES_MAX).collect()).await;
    match whole {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BYTES_MAX}");
            Err(StatusError::new(413, "RequestEntityTooLarge", message))
        }
        Ok(Err(error)) => {
            Err(StatusError::bad_request(format!("the body of the request could not be read: {error}")))
        }
        Err(_) => {
            Err(StatusError::new(504, "Timeout", "Timeout: the body of the request did not arrive in time"))
        }
    }
}

/// Decodes the body by its `Content-Type`.
pub(super) async fn object(headers: &HeaderMap, body: Body) -> Result<RequestBody, StatusError> {
    let encoding = negotiate::body_encoding(headers)?;
    Ok(RequestBody { bytes: read(body).await?, encoding })
}

/// As [`object`], for a body that may be empty.
pub(super) async fn optional_object(
    headers: &HeaderMap,
    body: Body,
) -> Result<Option<RequestBody>, StatusError> {
    let bytes = read(body).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let encoding = negotiate::body_encoding(headers).unwrap_or(Encoding::Text(Format::Json));
    Ok(Some(RequestBody { bytes, encoding }))
}

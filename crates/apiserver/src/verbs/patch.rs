//! Patches an object.

use super::{Call, Done};
use crate::failure::Failure;
use crate::server::Core;
use bytes::Bytes;

/// Patches the object of the call.
#[expect(clippy::unused_async, reason = "admission is asked here")]
pub async fn patch(_core: &Core, _call: &Call, _media_type: &str, _body: Bytes) -> Result<Done, Failure> {
    Err(Failure::unsupported_media_type("patches"))
}

//! Patches an object: the four ways of saying what to change, and one way of writing it.

use super::update::{ATTEMPTS, Replaced, check_preconditions, replace};
use super::{Call, Done, find, served};
use crate::failure::Failure;
use crate::fields::{self, Writer};
use crate::kinds::{Origin, Resource};
use crate::object;
use crate::server::Core;
use bytes::Bytes;
use serde_json::Value;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// How a patch says what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Way {
    fn of(media_type: &str, resource: &Resource) -> Result<Self, Failure> {
        let builtin = matches!(resource.origin, Origin::Builtin(_));
        match media_type {
            JSON_PATCH => Ok(Self::Json),
            MERGE_PATCH => Ok(Self::Merge),
            STRATEGIC_PATCH if builtin => Ok(Self::Strategic),
            APPLY_PATCH => Ok(Self::Apply),
            _ => {
                let mut known = vec![JSON_PATCH, MERGE_PATCH, APPLY_PATCH];
                if builtin {
                    known.insert(2, STRATEGIC_PATCH);
                }
                Err(Failure::unsupported_media_type(format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    known.join(", ")
                )))
            }
        }
    }
}

/// Patches the object of the call.
pub async fn patch(core: &Core, call: &Call, media_type: &str, body: Bytes) -> Result<Done, Failure> {
    let resource = &*call.resource;
    let way = Way::of(media_type, resource)?;
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let old = served(resource, &live);
        let mut new = patched(resource, way, &body, &old)?;
        check_identity(resource, &old, &new)?;
        let warnings = fields::decode_patched(call, &mut new)?;
        let version = object::meta_str(&new, "resourceVersion").to_owned();
        check_preconditions(resource, &live, &version, object::uid(&new))?;
        match replace(core, call, &live, &old, new, &Writer::Patch).await? {
            Replaced::Done(mut done) => {
                done.warnings.splice(0..0, warnings);
                return Ok(*done);
            }
            Replaced::Raced => {}
        }
    }
    Err(Failure::modified(resource.about(), &call.name))
}

fn check_identity(resource: &Resource, old: &Value, new: &Value) -> Result<(), Failure> {
    let same = object::kind(new) == &*resource.kind && object::api_version(new) == &*resource.api_version;
    if !same {
        let shown = format!("{}, Kind={}", object::api_version(new), object::kind(new));
        return Err(Failure::bad_request(format!("the patch changes what the object is: it would become {shown}")));
    }
    let name = object::name(new);
    if name != object::name(old) {
        let own = object::name(old);
        let message = format!("the name of the object ({name}) does not match the name on the URL ({own})");
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn patched(_resource: &Resource, way: Way, body: &[u8], old: &Value) -> Result<Value, Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::bad_request(format!("error decoding patch: {error}"));
    let mut new = old.clone();
    match way {
        Way::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::patch(&mut new, &patch).map_err(|_| rejected())?;
        }
        Way::Merge | Way::Strategic | Way::Apply => {
            let patch: Value = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::merge(&mut new, &patch);
        }
    }
    Ok(new)
}

fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
}

/// A scale with a patch applied.
pub fn patched_scale(media_type: &str, body: &[u8], scale: &Value) -> Result<Value, Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::bad_request(format!("error decoding patch: {error}"));
    let mut new = scale.clone();
    match media_type {
        JSON_PATCH => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::patch(&mut new, &patch).map_err(|_| rejected())?;
        }
        APPLY_PATCH => json_patch::merge(&mut new, &crate::incoming::decode_yaml(body)?),
        _ => {
            let patch: Value = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::merge(&mut new, &patch);
        }
    }
    Ok(new)
}

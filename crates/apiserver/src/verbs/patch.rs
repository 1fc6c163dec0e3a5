//! The `patch` verb for all four patch types.

use super::update::{ATTEMPTS, Replaced, check_preconditions, replace};
use super::{Call, Done, create, find, metadata, served};
use crate::failure::{About, Failure};
use crate::field::{Error, Path, go_text};
use crate::fields::{self, Writer};
use crate::kinds::{Origin, Resource};
use crate::schema::{Reader, Schema, strict};
use crate::server::Core;
use crate::{incoming, object, patch};
use bytes::Bytes;
use serde_json::Value;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The patch type.
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
            STRATEGIC_PATCH => Err(unknown_format(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
            _ => Err(Failure::unknown_patch()),
        }
    }
}

/// Patches the object of the call.
pub async fn patch(core: &Core, call: &Call, media_type: &str, body: Bytes) -> Result<Done, Failure> {
    let resource = &*call.resource;
    let way = Way::of(media_type, resource)?;
    check_options(call, way)?;
    if way == Way::Apply {
        let wanted = incoming::decode_yaml(&body)
            .map_err(|failure| Failure::bad_request(format!("error decoding YAML: {}", failure.message())))?;
        check_applied(call, &wanted)?;
        return apply(core, call, &wanted).await;
    }
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let old = served(resource, &live);
        let mut new = patched(resource.schema(), way, &body, &old)?;
        keep_kind(core, resource, way, &old, &mut new)?;
        check_place(resource, &old, &new)?;
        let reader = if way == Way::Strategic { Reader::Maps } else { Reader::Text };
        let shown = |new: &Value| shown(way, &body, new);
        let warnings = fields::decode_patched(call, findings(way, &body), reader, shown, &mut new)?;
        let version = object::meta_str(&new, "resourceVersion").to_owned();
        check_preconditions(resource, &live, &version, "")?;
        match replace(core, call, &live, &old, new, Writer::Patch).await {
            Ok(Replaced::Done(done)) => return Done::warned(Ok(*done), warnings),
            Ok(Replaced::Raced) => {}
            Err(failure) => return Err(failure.warn(warnings)),
        }
    }
    Err(Failure::modified(resource.about(), &call.name))
}

/// Merges the apply configuration into the object, or creates it.
async fn apply(core: &Core, call: &Call, wanted: &Value) -> Result<Done, Failure> {
    let resource = &*call.resource;
    for _ in 0..ATTEMPTS {
        let live = match find(core, call) {
            Ok(live) => live,
            Err(failure) if call.subresource.is_some() => return Err(failure),
            Err(_) => {
                let mut object = fields::applied(core, call, None, wanted)?;
                check_named(call, wanted)?;
                metadata::place(call, &mut object)?;
                check_absent(resource, wanted)?;
                let warnings =
                    fields::decode_patched(call, Vec::new(), Reader::Text, Value::to_string, &mut object)?;
                return Done::warned(
                    create::create_object(core, call, object, Writer::Apply).await,
                    warnings,
                );
            }
        };
        let old = served(resource, &live);
        check_preconditions(
            resource,
            &live,
            object::meta_str(wanted, "resourceVersion"),
            object::uid(wanted),
        )?;
        let mut new = fields::applied(core, call, Some(&old), wanted)?;
        check_named(call, wanted)?;
        check_place(resource, &old, &new)?;
        let warnings = fields::decode_patched(call, Vec::new(), Reader::Text, Value::to_string, &mut new)?;
        match replace(core, call, &live, &old, new, Writer::Apply).await {
            Ok(Replaced::Done(done)) => return Done::warned(Ok(*done), warnings),
            Ok(Replaced::Raced) => {}
            Err(failure) => return Err(failure.warn(warnings)),
        }
    }
    Err(Failure::modified(resource.about(), &call.name))
}

/// Rejects an apply configuration of another kind or object.
fn check_applied(call: &Call, wanted: &Value) -> Result<(), Failure> {
    let resource = &*call.resource;
    let (version, kind) = (object::api_version(wanted), object::kind(wanted));
    if kind != &*resource.kind {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(Failure::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    Ok(())
}

/// An apply configuration must have a name; checked after its fields.
fn check_named(call: &Call, wanted: &Value) -> Result<(), Failure> {
    if !object::name(wanted).is_empty() {
        return Ok(());
    }
    let name = &call.name;
    Err(Failure::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )))
}

/// Rejects an apply with a uid or `resourceVersion` if the object does not exist.
fn check_absent(resource: &Resource, wanted: &Value) -> Result<(), Failure> {
    let uid = object::uid(wanted);
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Failure::conflict(resource.about(), object::name(wanted), &why))
}

fn check_options(call: &Call, way: Way) -> Result<(), Failure> {
    const MANAGER_BYTES_MAX: usize = 128;
    let about = About { group: "meta.k8s.io", what: "PatchOptions" };
    let manager = call.query.get("fieldManager").unwrap_or_default();
    let error = match way {
        _ if manager.len() > MANAGER_BYTES_MAX => {
            Error::too_long(&Path::of("fieldManager"), MANAGER_BYTES_MAX)
        }
        Way::Apply if manager.is_empty() => {
            Error::required(&Path::of("fieldManager"), "is required for apply patch")
        }
        Way::Json | Way::Merge | Way::Strategic if call.query.get("force").is_some() => {
            Error::forbidden(&Path::of("force"), "may not be specified for non-apply patch")
        }
        Way::Apply | Way::Json | Way::Merge | Way::Strategic => return Ok(()),
    };
    Err(Failure::invalid(about, "", &[error]))
}

/// Rejects a patch that changes the kind; a strategic merge patch cannot change it.
fn keep_kind(
    core: &Core,
    resource: &Resource,
    way: Way,
    old: &Value,
    new: &mut Value,
) -> Result<(), Failure> {
    let Origin::Builtin(_) = resource.origin else { return check_custom_kind(resource, new) };
    let Some(fields) = new.as_object_mut() else { return Ok(()) };
    for field in ["kind", "apiVersion"] {
        let missing = fields.get(field).and_then(Value::as_str).is_none_or(str::is_empty);
        if way == Way::Strategic || missing {
            fields.insert(field.to_owned(), old[field].clone());
        }
    }
    match incoming::why_another(core, resource, new) {
        None => Ok(()),
        Some(why) => Err(fields::unreadable_patch(new.to_string(), &why)),
    }
}

fn check_custom_kind(resource: &Resource, new: &Value) -> Result<(), Failure> {
    let kind = object::kind(new);
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{new}'");
        return Err(fields::unreadable_patch(new.to_string(), &why));
    }
    let fixed =
        [("kind", kind, &*resource.kind), ("apiVersion", object::api_version(new), &*resource.api_version)];
    let errors: Vec<Error> = fixed
        .into_iter()
        .filter(|(_, own, wanted)| own != wanted)
        .map(|(field, own, wanted)| Error::invalid(&Path::of(field), own, format!("must be {wanted}")))
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(About { group: &resource.group, what: kind }, object::name(new), &errors))
}

/// Rejects a patch that changes name or namespace.
fn check_place(resource: &Resource, old: &Value, new: &Value) -> Result<(), Failure> {
    if resource.namespaced && object::namespace(new) != object::namespace(old) {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    let name = object::name(new);
    if name != object::name(old) {
        let own = object::name(old);
        let message = format!("the name of the object ({name}) does not match the name on the URL ({own})");
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn patched(schema: &Schema, way: Way, body: &[u8], old: &Value) -> Result<Value, Failure> {
    let patch: Value = match way {
        Way::Apply => incoming::decode_yaml(body)?,
        Way::Json | Way::Merge => incoming::decode_patch(body, "error decoding patch: ")?,
        Way::Strategic => incoming::decode_patch(body, "")?,
    };
    if way == Way::Json && !patch.is_array() {
        let kind = incoming::type_name(&patch);
        let message = format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
        );
        return Err(Failure::bad_request(message));
    }
    if matches!(way, Way::Merge | Way::Strategic) && patch.is_array() {
        let message = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        return Err(Failure::bad_request(message));
    }
    let new = match way {
        Way::Json => patch::json(old, &patch),
        Way::Merge | Way::Apply => patch::merge(old, &patch),
        Way::Strategic => patch::strategic(old, &patch, schema),
    };
    new.map_err(|error| {
        if error.status() == 422 {
            return Failure::rejected();
        }
        let reason = match error.status() {
            400 => "BadRequest",
            413 => "RequestEntityTooLarge",
            _ => "",
        };
        Failure::new(error.status(), reason, error.to_string())
    })
}

/// Unknown and duplicate fields of the patch itself.
fn findings(way: Way, body: &[u8]) -> Vec<String> {
    match way {
        Way::Merge | Way::Strategic => strict::duplicate_fields(body),
        Way::Apply => Vec::new(),
        Way::Json => {
            let known = ["op", "path", "from", "value"];
            let operations: Vec<Value> = serde_json::from_slice(body).unwrap_or_default();
            let members = |(index, operation): (usize, &Value)| -> Vec<String> {
                let unknown = operation
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !known.contains(&name.as_str()));
                unknown.map(|(name, _)| format!("json patch unknown field \"[{index}].{name}\"")).collect()
            };
            operations.iter().enumerate().flat_map(members).collect()
        }
    }
}

/// The value that an error quotes: the patch for strategic merge patches, otherwise the object.
fn shown(way: Way, body: &[u8], object: &Value) -> String {
    let patch = match way {
        Way::Strategic => serde_json::from_slice::<Value>(body).ok(),
        Way::Json | Way::Merge | Way::Apply => None,
    };
    patch.map_or_else(|| object.to_string(), |patch| go_text(&patch))
}

/// Applies a patch to a Scale.
pub fn patched_scale(media_type: &str, body: &[u8], scale: &Value) -> Result<Value, Failure> {
    let way = match media_type {
        JSON_PATCH => Way::Json,
        MERGE_PATCH => Way::Merge,
        STRATEGIC_PATCH => Way::Strategic,
        APPLY_PATCH => Way::Apply,
        _ => return Err(Failure::unknown_patch()),
    };
    patched(Schema::untyped(), way, body, scale)
}

fn unknown_format(known: &[&str]) -> Failure {
    Failure::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        known.join(", ")
    ))
}

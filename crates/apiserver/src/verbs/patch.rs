//! The `patch` verb for all four patch types.

use super::update::{ATTEMPTS, Replaced, check_preconditions, replace};
use super::{Call, Reply, create, find, metadata, served};
use crate::field::{Error, Path, go_text};
use crate::field_management::{self, Writer};
use crate::registry::{Origin, Resource};
use crate::schema::{Reader, Schema, strict};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::{object, patch, request_body};
use bytes::Bytes;
use serde_json::Value;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The patch type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn of(media_type: &str, resource: &Resource) -> Result<Self, StatusError> {
        let builtin = matches!(resource.origin, Origin::Builtin(_));
        match media_type {
            JSON_PATCH => Ok(Self::Json),
            MERGE_PATCH => Ok(Self::Merge),
            STRATEGIC_PATCH if builtin => Ok(Self::Strategic),
            APPLY_PATCH => Ok(Self::Apply),
            STRATEGIC_PATCH => Err(unknown_format(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
            _ => Err(StatusError::unknown_patch()),
        }
    }
}

/// Patches the object of the call.
pub async fn patch(core: &Core, call: &Call, media_type: &str, body: Bytes) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    let patch_type = PatchType::of(media_type, resource)?;
    check_options(call, patch_type)?;
    if patch_type == PatchType::Apply {
        let wanted = request_body::decode_yaml(&body).map_err(|failure| {
            StatusError::bad_request(format!("error decoding YAML: {}", failure.message()))
        })?;
        check_applied(call, &wanted)?;
        return apply(core, call, &wanted).await;
    }
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let old = served(resource, &live);
        let mut new = patched(resource.schema(), patch_type, &body, &old)?;
        keep_kind(core, resource, patch_type, &old, &mut new)?;
        check_place(resource, &old, &new)?;
        let reader = if patch_type == PatchType::Strategic { Reader::Maps } else { Reader::Text };
        let shown = |new: &Value| shown(patch_type, &body, new);
        let warnings =
            field_management::decode_patched(call, findings(patch_type, &body), reader, shown, &mut new)?;
        let version = object::meta_str(&new, "resourceVersion").to_owned();
        check_preconditions(resource, &live, &version, "")?;
        match replace(core, call, &live, &old, new, Writer::Patch).await {
            Ok(Replaced::Written(reply)) => return Reply::warned(Ok(*reply), warnings),
            Ok(Replaced::Conflict) => {}
            Err(failure) => return Err(failure.warn(warnings)),
        }
    }
    Err(StatusError::modified(resource.qualified_resource(), &call.name))
}

/// Merges the apply configuration into the object, or creates it.
async fn apply(core: &Core, call: &Call, wanted: &Value) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    for _ in 0..ATTEMPTS {
        let live = match find(core, call) {
            Ok(live) => live,
            Err(failure) if call.subresource.is_some() => return Err(failure),
            Err(_) => {
                let mut object = field_management::applied(core, call, None, wanted)?;
                check_named(call, wanted)?;
                metadata::set_path_fields(call, &mut object)?;
                check_absent(resource, wanted)?;
                let warnings = field_management::decode_patched(
                    call,
                    Vec::new(),
                    Reader::Text,
                    Value::to_string,
                    &mut object,
                )?;
                return Reply::warned(
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
        let mut new = field_management::applied(core, call, Some(&old), wanted)?;
        check_named(call, wanted)?;
        check_place(resource, &old, &new)?;
        let warnings =
            field_management::decode_patched(call, Vec::new(), Reader::Text, Value::to_string, &mut new)?;
        match replace(core, call, &live, &old, new, Writer::Apply).await {
            Ok(Replaced::Written(reply)) => return Reply::warned(Ok(*reply), warnings),
            Ok(Replaced::Conflict) => {}
            Err(failure) => return Err(failure.warn(warnings)),
        }
    }
    Err(StatusError::modified(resource.qualified_resource(), &call.name))
}

/// Rejects an apply configuration of another kind or object.
fn check_applied(call: &Call, wanted: &Value) -> Result<(), StatusError> {
    let resource = &*call.resource;
    let (version, kind) = (object::api_version(wanted), object::kind(wanted));
    if kind != &*resource.kind {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(StatusError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    Ok(())
}

/// An apply configuration must have a name; checked after its fields.
fn check_named(call: &Call, wanted: &Value) -> Result<(), StatusError> {
    if !object::name(wanted).is_empty() {
        return Ok(());
    }
    let name = &call.name;
    Err(StatusError::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )))
}

/// Rejects an apply with a uid or `resourceVersion` if the object does not exist.
fn check_absent(resource: &Resource, wanted: &Value) -> Result<(), StatusError> {
    let uid = object::uid(wanted);
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(StatusError::conflict(resource.qualified_resource(), object::name(wanted), &why))
}

fn check_options(call: &Call, patch_type: PatchType) -> Result<(), StatusError> {
    const MANAGER_BYTES_MAX: usize = 128;
    let about = QualifiedName { group: "meta.k8s.io", name: "PatchOptions" };
    let manager = call.query.get("fieldManager").unwrap_or_default();
    let error = match patch_type {
        _ if manager.len() > MANAGER_BYTES_MAX => {
            Error::too_long(&Path::of("fieldManager"), MANAGER_BYTES_MAX)
        }
        PatchType::Apply if manager.is_empty() => {
            Error::required(&Path::of("fieldManager"), "is required for apply patch")
        }
        PatchType::Json | PatchType::Merge | PatchType::Strategic if call.query.get("force").is_some() => {
            Error::forbidden(&Path::of("force"), "may not be specified for non-apply patch")
        }
        PatchType::Apply | PatchType::Json | PatchType::Merge | PatchType::Strategic => return Ok(()),
    };
    Err(StatusError::invalid(about, "", &[error]))
}

/// Rejects a patch that changes the kind; a strategic merge patch cannot change it.
fn keep_kind(
    core: &Core,
    resource: &Resource,
    patch_type: PatchType,
    old: &Value,
    new: &mut Value,
) -> Result<(), StatusError> {
    let Origin::Builtin(_) = resource.origin else { return check_custom_kind(resource, new) };
    let Some(fields) = new.as_object_mut() else { return Ok(()) };
    for field in ["kind", "apiVersion"] {
        let missing = fields.get(field).and_then(Value::as_str).is_none_or(str::is_empty);
        if patch_type == PatchType::Strategic || missing {
            fields.insert(field.to_owned(), old[field].clone());
        }
    }
    match request_body::kind_mismatch(core, resource, new) {
        None => Ok(()),
        Some(why) => Err(field_management::unreadable_patch(new.to_string(), &why)),
    }
}

fn check_custom_kind(resource: &Resource, new: &Value) -> Result<(), StatusError> {
    let kind = object::kind(new);
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{new}'");
        return Err(field_management::unreadable_patch(new.to_string(), &why));
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
    Err(StatusError::invalid(
        QualifiedName { group: &resource.group, name: kind },
        object::name(new),
        &errors,
    ))
}

/// Rejects a patch that changes name or namespace.
fn check_place(resource: &Resource, old: &Value, new: &Value) -> Result<(), StatusError> {
    if resource.namespaced && object::namespace(new) != object::namespace(old) {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(message));
    }
    let name = object::name(new);
    if name != object::name(old) {
        let own = object::name(old);
        let message = format!("the name of the object ({name}) does not match the name on the URL ({own})");
        return Err(StatusError::bad_request(message));
    }
    Ok(())
}

fn patched(schema: &Schema, patch_type: PatchType, body: &[u8], old: &Value) -> Result<Value, StatusError> {
    let patch: Value = match patch_type {
        PatchType::Apply => request_body::decode_yaml(body)?,
        PatchType::Json | PatchType::Merge => request_body::decode_patch(body, "error decoding patch: ")?,
        PatchType::Strategic => request_body::decode_patch(body, "")?,
    };
    if patch_type == PatchType::Json && !patch.is_array() {
        let kind = request_body::type_name(&patch);
        let message = format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
        );
        return Err(StatusError::bad_request(message));
    }
    if matches!(patch_type, PatchType::Merge | PatchType::Strategic) && patch.is_array() {
        let message = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        return Err(StatusError::bad_request(message));
    }
    let new = match patch_type {
        PatchType::Json => patch::json(old, &patch),
        PatchType::Merge | PatchType::Apply => patch::merge(old, &patch),
        PatchType::Strategic => patch::strategic(old, &patch, schema),
    };
    new.map_err(|error| {
        if error.status() == 422 {
            return StatusError::rejected();
        }
        let reason = match error.status() {
            400 => "BadRequest",
            413 => "RequestEntityTooLarge",
            _ => "",
        };
        StatusError::new(error.status(), reason, error.to_string())
    })
}

/// Unknown and duplicate fields of the patch itself.
fn findings(patch_type: PatchType, body: &[u8]) -> Vec<String> {
    match patch_type {
        PatchType::Merge | PatchType::Strategic => strict::duplicate_fields(body),
        PatchType::Apply => Vec::new(),
        PatchType::Json => {
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
fn shown(patch_type: PatchType, body: &[u8], object: &Value) -> String {
    let patch = match patch_type {
        PatchType::Strategic => serde_json::from_slice::<Value>(body).ok(),
        PatchType::Json | PatchType::Merge | PatchType::Apply => None,
    };
    patch.map_or_else(|| object.to_string(), |patch| go_text(&patch))
}

/// Applies a patch to a Scale.
pub fn patched_scale(media_type: &str, body: &[u8], scale: &Value) -> Result<Value, StatusError> {
    let patch_type = match media_type {
        JSON_PATCH => PatchType::Json,
        MERGE_PATCH => PatchType::Merge,
        STRATEGIC_PATCH => PatchType::Strategic,
        APPLY_PATCH => PatchType::Apply,
        _ => return Err(StatusError::unknown_patch()),
    };
    patched(Schema::untyped(), patch_type, body, scale)
}

fn unknown_format(known: &[&str]) -> StatusError {
    StatusError::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        known.join(", ")
    ))
}

//! Applies `fieldValidation` and field management to every write.

use crate::apply::{self, Force, Scope};
use crate::field::{self, quote};
use crate::object;
use crate::registry::{Origin, Subresource};
use crate::request_body::{self, Encoding, Format, RequestBody};
use crate::schema::{self, Reader, strict};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusCause, StatusError};
use crate::verbs::Call;
use serde_json::Value;

/// How the client wrote the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Create or update.
    Update,
    /// Any patch but an apply.
    Patch,
    /// Server-side apply.
    Apply,
}

/// Prunes or rejects unknown fields as `fieldValidation` requests, then applies the defaults of custom resources.
/// Returns warnings.
pub fn decode(call: &Call, body: &RequestBody, object: &mut Value) -> Result<Vec<String>, StatusError> {
    let strictness = Strictness::of(call)?;
    let duplicates = match (strictness, body.encoding) {
        (Strictness::Ignore, _) | (_, Encoding::Protobuf) => Vec::new(),
        (Strictness::Warn | Strictness::Strict, Encoding::Text(Format::Json)) => {
            strict::duplicate_fields(&body.bytes)
        }
        (Strictness::Warn | Strictness::Strict, Encoding::Text(Format::Yaml)) => {
            request_body::yaml_duplicate(&body.bytes).into_iter().collect()
        }
    };
    check(call, strictness, duplicates, object, Reader::Text).map_err(|fault| {
        let (kind, version) = (&call.resource.kind, quote(&call.resource.version));
        let message = fault.message();
        StatusError::bad_request(format!(
            "{kind} in version {version} cannot be handled as a {kind}: {message}"
        ))
    })
}

/// As [`decode`], for the result of a patch; `shown` formats the value that the error quotes.
pub fn decode_patched(
    call: &Call,
    findings: Vec<String>,
    reader: Reader,
    shown: impl FnOnce(&Value) -> String,
    object: &mut Value,
) -> Result<Vec<String>, StatusError> {
    let strictness = Strictness::of(call)?;
    let findings = if strictness == Strictness::Ignore { Vec::new() } else { findings };
    check(call, strictness, findings, object, reader)
        .map_err(|fault| unreadable_patch(shown(object), &fault.message()))
}

/// The error for a patch result that cannot be decoded.
pub fn unreadable_patch(shown: String, why: &str) -> StatusError {
    let error = field::Error::invalid(&field::Path::of("patch"), shown, why);
    StatusError::invalid(QualifiedName { group: "", name: "" }, "", &[error])
}

/// Why an object is rejected.
enum Fault {
    /// A value has the wrong type.
    Mistyped(String),
    /// There are unknown or duplicate fields, and validation is strict.
    Strict(Vec<String>),
}

impl Fault {
    fn message(&self) -> String {
        match self {
            Self::Mistyped(message) => message.clone(),
            Self::Strict(findings) => match findings.as_slice() {
                [yaml] if yaml.starts_with("line ") => {
                    strict::message(&[format!("yaml: unmarshal errors:\n  {yaml}")])
                }
                findings => strict::message(findings),
            },
        }
    }
}

fn check(
    call: &Call,
    strictness: Strictness,
    mut findings: Vec<String>,
    object: &mut Value,
    reader: Reader,
) -> Result<Vec<String>, Fault> {
    let resource = &*call.resource;
    let schema = resource.schema();
    let builtin = matches!(resource.origin, Origin::Builtin(_));
    if builtin {
        schema::decode_by(reader, schema, object).map_err(Fault::Mistyped)?;
    } else if let Some(metadata) = object.get("metadata") {
        schema::decode_by(reader, schema::builtin::object_meta(), metadata).map_err(Fault::Mistyped)?;
    }
    if strictness != Strictness::Ignore {
        findings.extend(strict::unknown_fields(schema, object));
    }
    if strictness == Strictness::Strict && !findings.is_empty() {
        return Err(Fault::Strict(findings));
    }
    if builtin {
        schema::normalize(schema, object);
    } else {
        schema::prune(schema, object);
        schema::default(schema, object);
    }
    object::meta_mut(object);
    Ok(findings)
}

/// `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strictness {
    Ignore,
    Warn,
    Strict,
}

impl Strictness {
    fn of(call: &Call) -> Result<Self, StatusError> {
        match call.query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                let error = field::Error::not_supported(&field::Path::of("fieldValidation"), other, &known);
                Err(StatusError::invalid(
                    QualifiedName { group: "meta.k8s.io", name: "CreateOptions" },
                    "",
                    &[error],
                ))
            }
        }
    }
}

/// Records the caller as manager of a created object.
pub fn track_create(core: &Core, call: &Call, object: &mut Value, writer: Writer) {
    match writer {
        Writer::Update | Writer::Patch => with_write(core, call, |write| apply::create(object, write)),
        Writer::Apply => {}
    }
}

/// Records the caller as manager of the changed fields.
pub fn track_update(core: &Core, call: &Call, old: &Value, new: &mut Value, writer: Writer) {
    match writer {
        Writer::Update | Writer::Patch => with_write(core, call, |write| apply::update(old, new, write)),
        Writer::Apply => {}
    }
}

/// Reverts a change that consists only of new times in the managed fields.
pub fn ignore_new_times(old: &Value, new: &mut Value) {
    if object::meta(old, "managedFields") != object::meta(new, "managedFields") {
        apply::ignore_new_times(old, new);
    }
}

/// Merges the caller's apply configuration into the object, or creates it.
pub fn applied(core: &Core, call: &Call, live: Option<&Value>, wanted: &Value) -> Result<Value, StatusError> {
    let force = if call.query.is_set("force") { Force::Yes } else { Force::No };
    with_write(core, call, |write| apply::apply(live, wanted, force, write)).map_err(|error| match error {
        apply::Error::Conflicts(ref conflicts) => {
            let causes = conflicts.iter().map(|conflict| StatusCause {
                reason: "FieldManagerConflict".to_owned(),
                message: conflict.message(),
                field: conflict.field.clone(),
            });
            StatusError::new(409, "Conflict", error.to_string()).causes(causes)
        }
        apply::Error::Malformed(message) => StatusError::bad_request(message),
        apply::Error::Mistyped(message) => StatusError::new(500, "", message),
    })
}

fn with_write<T>(core: &Core, call: &Call, run: impl FnOnce(&apply::Write<'_>) -> T) -> T {
    let resource = &*call.resource;
    let scope = match call.subresource {
        None if resource.has(Subresource::Status) && !resource.is("", "nodes") => Scope::Except(&["status"]),
        None => Scope::Whole,
        Some(Subresource::Status) if resource.custom().is_some() => Scope::Only("status"),
        Some(Subresource::Status) => Scope::Except(&["spec"]),
        Some(
            Subresource::EphemeralContainers
            | Subresource::Finalize
            | Subresource::Resize
            | Subresource::Scale
            | Subresource::Binding
            | Subresource::Eviction
            | Subresource::Log
            | Subresource::Token,
        ) => Scope::Except(&["status"]),
    };
    run(&apply::Write {
        manager: call.manager(),
        api_version: &resource.api_version,
        subresource: call.subresource_name(),
        now: &core.clock.time(),
        schema: resource.schema(),
        scope,
    })
}

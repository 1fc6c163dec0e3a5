//! Decodes request bodies into objects of the kind that the path serves.

mod go_json;

pub use go_json::syntax_error;

use crate::field::{self, Path, quote};
use crate::registry::{Origin, Resource};
use crate::schema;
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::verbs::Call;
use crate::{field_management, object, protobuf};
use bytes::Bytes;
use serde_json::Value;
use std::fmt::Write as _;

/// The prefix of syntax errors.
const NO_KIND: &str = "couldn't get version/kind; json parse error: ";
/// The source location of the Go scheme, which is part of messages that clients see.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Text(Format),
    Protobuf,
}

#[derive(Clone, Debug)]
pub struct RequestBody {
    pub bytes: Bytes,
    pub encoding: Encoding,
}

/// Why a body cannot be decoded.
#[derive(Debug)]
enum DecodeError {
    /// A syntax error, with its message.
    Fault(String),
    /// The kind is not supported in this encoding.
    Unsupported(String),
}

impl RequestBody {
    /// Decodes the body without checking its kind.
    pub fn decode(&self) -> Result<Value, StatusError> {
        self.read().map_err(|unreadable| match unreadable {
            DecodeError::Fault(message) => StatusError::bad_request(message),
            DecodeError::Unsupported(message) => StatusError::unsupported_media_type(message),
        })
    }

    /// Decodes the body; if it states a kind, it must be this one.
    pub fn decode_as(&self, kind: &str) -> Result<Value, StatusError> {
        let object = self.read().and_then(|object| match not_an_object(&object) {
            None => Ok(object),
            Some(message) => Err(DecodeError::Fault(format!("{NO_KIND}{message}"))),
        });
        object.map_err(|unreadable| match unreadable {
            DecodeError::Fault(message) => self.unrecognized(kind, &message),
            DecodeError::Unsupported(message) => StatusError::unsupported_media_type(message),
        })
    }

    fn read(&self) -> Result<Value, DecodeError> {
        match self.encoding {
            Encoding::Text(Format::Json) => read_json(&self.bytes).map_err(DecodeError::Fault),
            Encoding::Text(Format::Yaml) => read_yaml(&self.bytes).map_err(DecodeError::Fault),
            Encoding::Protobuf => protobuf::decode(&self.bytes).map_err(|error| match error {
                protobuf::Error::UnknownKind { .. } => DecodeError::Unsupported(format!(
                    "{error} - accepted media types include: application/json, application/yaml"
                )),
                protobuf::Error::NoMagic | protobuf::Error::Malformed(_) => {
                    DecodeError::Fault(error.to_string())
                }
            }),
        }
    }

    fn unrecognized(&self, kind: &str, message: &str) -> StatusError {
        let shown = summary(&self.bytes);
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {message} ({shown})"
        ))
    }
}

/// Decodes JSON; invalid UTF-8 becomes U+FFFD.
fn read_json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).or_else(|error| {
        if let Some(fault) = go_json::syntax_error(bytes) {
            return Err(format!("{NO_KIND}{fault}"));
        }
        let text = replace_unpaired_surrogates(&String::from_utf8_lossy(bytes));
        serde_json::from_str(&text).map_err(|_| format!("{NO_KIND}{error}"))
    })
}

/// Replaces escapes of unpaired surrogates by U+FFFD.
fn replace_unpaired_surrogates(text: &str) -> String {
    const REPLACEMENT: &str = "\\ufffd";
    let escape = |text: &str| -> Option<u32> {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (escape(rest), rest.get(6..).and_then(escape)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                clean.push_str(REPLACEMENT);
                rest = &rest[6..];
                continue;
            }
            _ => rest.chars().take(2).map(char::len_utf8).sum(),
        };
        clean.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    clean.push_str(rest);
    clean
}

fn read_yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("yaml: {error}"))?;
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let shown = error.to_string();
        format!("yaml: {}", shown.lines().next().unwrap_or_default().trim_start_matches("error: "))
    })
}

/// Decodes YAML or JSON.
pub fn decode_yaml(bytes: &[u8]) -> Result<Value, StatusError> {
    read_yaml(bytes)
        .map_err(|message| StatusError::bad_request(format!("error converting YAML to JSON: {message}")))
}

/// Decodes the JSON of a patch; `what` begins the error message.
pub fn decode_patch(bytes: &[u8], what: &str) -> Result<Value, StatusError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let fault = go_json::syntax_error(bytes).unwrap_or_else(|| error.to_string());
        StatusError::bad_request(format!("{what}{fault}"))
    })
}

/// The keys that occur twice in a YAML document.
pub fn yaml_duplicate(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let error = serde_saphyr::from_str::<Value>(text).err()?.to_string();
    let (place, rest) = error.split_once(": duplicate mapping key: ")?;
    let line = place.split("line ").nth(1)?.split(' ').next()?;
    let key = rest.split(',').next()?;
    Some(format!("line {line}: key {} already set in map", quote(key)))
}

/// The beginning of a body: as text if it looks like JSON, otherwise in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const LENGTH_MAX: usize = 30;
    let shown = &bytes[..bytes.len().min(LENGTH_MAX)];
    let mut text = match bytes.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if bytes.len() > LENGTH_MAX {
        text.push_str(" ...");
    }
    text
}

/// The Go type name of a value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Why a value is not an object; `null` is an empty one.
fn not_an_object(value: &Value) -> Option<String> {
    let Value::Object(fields) = value else {
        let name = type_name(value);
        return (!value.is_null()).then(|| format!(
            "json: cannot unmarshal {name} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
    };
    ["apiVersion", "kind"].into_iter().find_map(|field| {
        let value = fields.get(field).filter(|value| !value.is_string() && !value.is_null())?;
        Some(format!(
            "json: cannot unmarshal {} into Go struct field .{field} of type string",
            type_name(value)
        ))
    })
}

/// Decodes the object of a request and checks its kind; returns warnings.
pub fn decode_object(
    core: &Core,
    call: &Call,
    body: &RequestBody,
) -> Result<(Value, Vec<String>), StatusError> {
    let mut object = decode_kind(core, &call.resource, body)?;
    let warnings = field_management::decode(call, body, &mut object)?;
    Ok((object, warnings))
}

/// Decodes an object and rejects another kind; a built-in object may omit its kind.
pub fn decode_kind(core: &Core, resource: &Resource, body: &RequestBody) -> Result<Value, StatusError> {
    let mut object = body.decode_as(&resource.kind)?;
    if object.is_null() {
        object = Value::Object(serde_json::Map::new());
    }
    match resource.origin {
        Origin::Builtin(_) => check_builtin(core, resource, &mut object)?,
        Origin::Custom(_) => check_custom(resource, &object, body)?,
    }
    if object.get("metadata").is_none_or(Value::is_null) {
        object::meta_mut(&mut object);
    }
    Ok(object)
}

/// Why the result of a patch is not an object of the resource.
pub fn kind_mismatch(core: &Core, resource: &Resource, object: &Value) -> Option<String> {
    let (kind, version) = (object::kind(object), object::api_version(object));
    if kind == &*resource.kind && version == &*resource.api_version {
        return None;
    }
    let (group, number) = version.rsplit_once('/').unwrap_or(("", version));
    let catalog = core.catalog();
    let Some(other) = catalog.find_kind(group, number, kind).filter(|known| known.custom().is_none()) else {
        return Some(unregistered(kind, version));
    };
    let mistyped = schema::decode(other.schema(), object).err();
    Some(mistyped.unwrap_or_else(|| unconverted(resource, number, kind)))
}

fn unregistered(kind: &str, version: &str) -> String {
    format!("no kind {} is registered for version {} in scheme \"{SCHEME}\"", quote(kind), quote(version))
}

fn unconverted(resource: &Resource, number: &str, kind: &str) -> String {
    let package = match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("converting ({number}.{kind}) to ({package}.{}): unknown conversion", resource.kind)
}

fn check_builtin(core: &Core, resource: &Resource, object: &mut Value) -> Result<(), StatusError> {
    let kind =
        Some(object::kind(object)).filter(|kind| !kind.is_empty()).unwrap_or(&resource.kind).to_owned();
    let own = &*resource.api_version;
    let version =
        Some(object::api_version(object)).filter(|version| !version.is_empty()).unwrap_or(own).to_owned();
    let (group, number) = version.rsplit_once('/').unwrap_or(("", &version));
    let unfit = |why: &str| {
        let message =
            format!("{kind} in version {} cannot be handled as a {}: {why}", quote(number), resource.kind);
        Err(StatusError::bad_request(message))
    };
    let known = core.catalog().find_kind(group, number, &kind).is_some_and(|known| known.custom().is_none());
    if !known {
        return unfit(&unregistered(&kind, &version));
    }
    if kind != *resource.kind {
        return unfit(&unconverted(resource, number, &kind));
    }
    if version != own {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({own})"
        )));
    }
    object["kind"] = Value::from(kind);
    object["apiVersion"] = Value::from(version);
    Ok(())
}

fn check_custom(resource: &Resource, object: &Value, body: &RequestBody) -> Result<(), StatusError> {
    let (kind, version) = (object::kind(object), object::api_version(object));
    if kind.is_empty() {
        let shown = String::from_utf8_lossy(&body.bytes);
        return Err(body.unrecognized(&resource.kind, &format!("Object 'Kind' is missing in '{shown}'")));
    }
    if version != &*resource.api_version {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    if kind != &*resource.kind {
        let error = field::Error::invalid(&Path::of("kind"), kind, format!("must be {}", resource.kind));
        let about = QualifiedName { group: &resource.group, name: kind };
        return Err(StatusError::invalid(about, object::name(object), &[error]));
    }
    Ok(())
}

/// Decodes the body for a subresource with a kind of its own.
pub fn decode_subresource(kind: &str, package: &str, body: &RequestBody) -> Result<Value, StatusError> {
    let object = body.decode_as(kind)?;
    let own = object::kind(&object);
    if !own.is_empty() && own != kind {
        let version = object::api_version(&object).rsplit('/').next().unwrap_or_default().to_owned();
        return Err(StatusError::bad_request(format!(
            "{own} in version {} cannot be handled as a {kind}: converting ({version}.{own}) to ({package}.{kind}): unknown conversion",
            quote(&version)
        )));
    }
    Ok(if object.is_null() { Value::Object(serde_json::Map::new()) } else { object })
}

pub fn decode_delete_options(body: &RequestBody) -> Result<Value, StatusError> {
    let options = body.decode()?;
    if let Some(message) = not_an_object(&options) {
        return Err(StatusError::bad_request(format!("{NO_KIND}{message}")));
    }
    let (kind, version) = (object::kind(&options), object::api_version(&options));
    if kind.is_empty() || kind == "DeleteOptions" {
        return Ok(options);
    }
    Err(StatusError::bad_request(unregistered(kind, version)))
}

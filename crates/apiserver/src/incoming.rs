//! Turns the body of a request into an object of the kind that the path serves.

use crate::failure::Failure;
use crate::field::quote;
use crate::kinds::{Origin, Resource};
use crate::object;
use crate::verbs::Call;
use bytes::Bytes;
use serde_json::Value;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// What the client sent.
    pub bytes: Bytes,
    /// In which format.
    pub format: Format,
}

impl Incoming {
    /// Decodes the body as it is.
    pub fn decode(&self) -> Result<Value, Failure> {
        match self.format {
            Format::Json => {
                serde_json::from_slice(&self.bytes).map_err(|error| json_failure(&self.bytes, &error))
            }
            Format::Yaml => decode_yaml(&self.bytes),
        }
    }
}

fn json_failure(bytes: &[u8], error: &serde_json::Error) -> Failure {
    let text = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(_) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Some(_) => format!("couldn't get version/kind; json parse error: {error}"),
    };
    Failure::bad_request(text)
}

/// Decodes YAML, of which every JSON is one.
pub fn decode_yaml(bytes: &[u8]) -> Result<Value, Failure> {
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_request(format!("error converting YAML to JSON: yaml: {error}"))
    };
    let text = std::str::from_utf8(bytes).map_err(|error| bad(&error))?;
    serde_saphyr::from_str(text).map_err(|error| bad(&error))
}

/// Decodes the object of a request and holds it to the kind that the path serves; also what to warn about.
pub fn admit_object(call: &Call, body: &Incoming) -> Result<(Value, Vec<String>), Failure> {
    let mut object = body.decode()?;
    check_kind(&call.resource, &mut object)?;
    let warnings = crate::fields::decode(call, body, &mut object)?;
    Ok((object, warnings))
}

/// Refuses an object of another kind; fills in the kind of a built-in object that does not say.
pub fn check_kind(resource: &Resource, object: &mut Value) -> Result<(), Failure> {
    if !object.is_object() {
        let what = match object {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) | Value::Object(_) => "array",
        };
        return Err(Failure::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    let (kind, version) = (object::kind(object).to_owned(), object::api_version(object).to_owned());
    if let Origin::Custom(_) = resource.origin
        && kind.is_empty()
    {
        return Err(Failure::bad_request(format!("Object 'Kind' is missing in '{object}'")));
    }
    if version.is_empty() {
        object["apiVersion"] = Value::from(&*resource.api_version);
    } else if version != *resource.api_version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    if kind.is_empty() {
        object["kind"] = Value::from(&*resource.kind);
    } else if kind != *resource.kind {
        return Err(match resource.origin {
            Origin::Builtin(_) => Failure::bad_request(format!(
                "{kind} in version {} cannot be handled as a {}: converting ({}.{kind}) to ({}.{}): unknown conversion",
                quote(&resource.version),
                resource.kind,
                resource.version,
                if resource.group.is_empty() {
                    "core"
                } else {
                    resource.group.split('.').next().unwrap_or_default()
                },
                resource.kind,
            )),
            Origin::Custom(_) => {
                let message = format!(
                    "the kind in the data ({kind}) does not match the expected kind ({})",
                    resource.kind
                );
                Failure::bad_request(message)
            }
        });
    }
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        let shown = quote(&resource.version);
        return Err(Failure::bad_request(format!(
            "{kind} in version {shown} cannot be handled as a {kind}: json: cannot unmarshal into Go struct field {kind}.metadata of type v1.ObjectMeta"
        )));
    }
    object::meta_mut(object);
    Ok(())
}

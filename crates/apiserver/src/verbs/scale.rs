//! The `scale` subresource.

use super::update::{ATTEMPTS, Replaced, check_preconditions, replace};
use super::{Call, Reply, ReplyBody, find, served};
use crate::field::{Error, Path};
use crate::field_management::Writer;
use crate::object;
use crate::registry::{Origin, Resource};
use crate::server::Core;
use crate::status_error::StatusError;
use serde_json::{Value, json};

/// The fields behind the `scale` subresource, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas.
    pub spec_replicas: String,
    /// Current replicas.
    pub status_replicas: String,
    /// The label selector as text; empty if the kind has none.
    pub selector: String,
}

pub fn get(core: &Core, call: &Call) -> Result<Reply, StatusError> {
    let record = find(core, call)?;
    Ok(Reply::new(200, ReplyBody::Other(view(&call.resource, &served(&call.resource, &record))?)))
}

/// Writes the Scale that `edit` derives from the current one.
pub async fn write(
    core: &Core,
    call: &Call,
    mut edit: impl FnMut(&Value) -> Result<Value, StatusError>,
) -> Result<Reply, StatusError> {
    let resource = &*call.resource;
    for _ in 0..ATTEMPTS {
        let live = find(core, call)?;
        let old = served(resource, &live);
        let scale = edit(&view(resource, &old)?)?;
        let version = object::meta_str(&scale, "resourceVersion").to_owned();
        check_preconditions(resource, &live, &version, object::uid(&scale))?;
        let mut new = old.clone();
        set_replicas(resource, &mut new, &scale)?;
        match replace(core, call, &live, &old, new, Writer::Patch).await? {
            Replaced::Written(reply) => {
                let object = match &reply.body {
                    ReplyBody::Record(record) => served(resource, record),
                    ReplyBody::Object(object) | ReplyBody::Other(object) => object.clone(),
                };
                return Ok(Reply::new(200, ReplyBody::Other(view(resource, &object)?)).warn(reply.warnings));
            }
            Replaced::Conflict => {}
        }
    }
    Err(StatusError::modified(resource.qualified_resource(), &call.name))
}

fn paths(resource: &Resource) -> Result<ScalePaths, StatusError> {
    match &resource.origin {
        Origin::Custom(custom) => custom
            .scale
            .clone()
            .ok_or_else(|| StatusError::not_found(resource.qualified_resource(), &resource.plural)),
        Origin::Builtin(_) => Ok(ScalePaths {
            spec_replicas: "/spec/replicas".to_owned(),
            status_replicas: "/status/replicas".to_owned(),
            selector: "/spec/selector".to_owned(),
        }),
    }
}

pub fn view(resource: &Resource, object: &Value) -> Result<Value, StatusError> {
    let paths = paths(resource)?;
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    if resource.custom().is_some() && number(&paths.spec_replicas).is_none() {
        let path = paths.spec_replicas.replace('/', ".");
        return Err(StatusError::internal(format!("the spec replicas field \"{path}\" does not exist")));
    }
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::meta(object, field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status_replicas).unwrap_or(0)});
    let selector = match object.pointer(&paths.selector) {
        Some(Value::String(text)) => text.clone(),
        Some(selector @ Value::Object(_)) => selector_text(selector),
        _ => String::new(),
    };
    if !selector.is_empty() {
        status["selector"] = Value::from(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = Value::from(replicas);
    }
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    let labels =
        selector.get("matchLabels").or(selector.get("matchExpressions").is_none().then_some(selector));
    let mut terms: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = object::str_at(expression, "/key");
        let mut values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        match object::str_at(expression, "/operator") {
            "In" => terms.push(format!("{key} in ({values})")),
            "NotIn" => terms.push(format!("{key} notin ({values})")),
            "Exists" => terms.push(key.to_owned()),
            "DoesNotExist" => terms.push(format!("!{key}")),
            _ => {}
        }
    }
    terms.sort_unstable();
    terms.join(",")
}

fn set_replicas(resource: &Resource, object: &mut Value, scale: &Value) -> Result<(), StatusError> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let path = Path::of("spec");
        let error = Error::invalid(&path.field("replicas"), replicas, "must be greater than or equal to 0");
        let about = crate::status_error::QualifiedName { group: "autoscaling", name: "Scale" };
        return Err(StatusError::invalid(about, object::name(object), &[error]));
    }
    let pointer = paths(resource)?.spec_replicas;
    let mut place = object;
    for field in pointer.trim_start_matches('/').split('/') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[field];
    }
    *place = Value::from(replicas);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_selector_is_formatted_as_text() {
        let selector = json!({
            "matchLabels": {"b": "c", "a": "x"},
            "matchExpressions": [
                {"key": "t", "operator": "In", "values": ["2", "1"]},
                {"key": "z", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector_text(&selector), "!z,a=x,b=c,t in (1,2)");
        assert_eq!(selector_text(&json!({"app": "web"})), "app=web");
    }
}

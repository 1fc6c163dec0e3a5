//! The `AdmissionReview` response of a webhook.

use crate::patch;
use crate::status_error::StatusError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The values of `metav1.StatusReason` that a webhook may return.
const REASONS: [&str; 20] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
    "Unknown",
];
const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

#[derive(Debug)]
pub(super) struct AdmissionResponse {
    response: Value,
}

impl AdmissionResponse {
    /// Parses a response body; its uid must be that of the request.
    pub(super) fn read(body: &[u8], uid: &str) -> Result<Self, String> {
        // kube-apiserver decodes a body that is not JSON as YAML, where almost any text is a string.
        let attributes: Value = match serde_json::from_slice(body) {
            Ok(attributes) => attributes,
            Err(error) => crate::request_body::decode_yaml(body).map_err(|_| {
                format!("failed to call webhook: couldn't get version/kind; json parse error: {error}")
            })?,
        };
        if !attributes.is_object() {
            let what = match attributes {
                Value::Null => "null",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) | Value::Object(_) => "array",
            };
            return Err(format!(
                "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type {TYPE_META}"
            ));
        }
        let text = |pointer: &str| attributes.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
        if kind != "AdmissionReview" || version != "admission.k8s.io/v1" {
            return invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
            ));
        }
        let Some(response) = attributes.get("response").filter(|response| response.is_object()) else {
            return invalid("webhook response was absent".to_owned());
        };
        let own = text("/response/uid");
        if own != uid {
            return invalid(format!("expected response.uid=\"{uid}\", got \"{own}\""));
        }
        Ok(Self { response: response.clone() })
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = self.response.get("warnings").and_then(Value::as_array);
        warnings.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Returns an error if the webhook denied the request.
    pub(super) fn check(&self, hook: &str) -> Result<(), StatusError> {
        if self.response.get("allowed") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let text = |pointer: &str| self.response.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let denied = format!("admission webhook \"{hook}\" denied the request");
        let (message, reason) = (text("/status/message"), text("/status/reason"));
        let message = match (message, reason) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = self.response.pointer("/status/code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400).unwrap_or(400);
        let reason = REASONS.iter().find(|known| **known == reason).copied().unwrap_or_default();
        Err(StatusError::new(code, reason, message))
    }

    /// The JSON patch of the response.
    pub(super) fn patch(&self, hook: &str) -> Result<Option<Value>, StatusError> {
        let Some(patch) =
            self.response.get("patch").and_then(Value::as_str).filter(|patch| !patch.is_empty())
        else {
            return Ok(None);
        };
        let kind = self.response.get("patchType").and_then(Value::as_str).unwrap_or_default();
        let broken = |why: String| {
            StatusError::internal(format!(
                "failed calling webhook \"{hook}\": received invalid webhook response: {why}"
            ))
        };
        if kind != "JSONPatch" {
            return Err(broken(format!("webhook returned invalid response.patchType of \"{kind}\"")));
        }
        let bytes = STANDARD.decode(patch).map_err(|error| broken(error.to_string()))?;
        serde_json::from_slice(&bytes).map(Some).map_err(StatusError::internal)
    }
}

/// Applies the JSON patch of a webhook.
pub(super) fn patched(object: &Value, patch: &Value) -> Result<Value, StatusError> {
    let mut object = object.clone();
    for operation in patch.as_array().into_iter().flatten() {
        // Operations are applied one by one so that the error names the one that failed.
        object = patch::json(&object, &json!([operation])).map_err(|_| {
            let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
            let (kind, path) = (text("op"), text("path"));
            StatusError::internal(match kind {
                "test" => format!("testing value {path} failed: test failed"),
                "add" | "remove" | "replace" | "move" | "copy" => {
                    format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value")
                }
                _ => format!("Unexpected kind: {kind}"),
            })
        })?;
    }
    Ok(object)
}

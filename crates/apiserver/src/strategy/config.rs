//! The strategies of `ConfigMap`s and Secrets.

use super::checks::{Errors, part, text};
use crate::field::{Error, Path};
use crate::names;
use crate::object;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Limit of the total size of the data.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum length of a key.
const KEY_MAX: usize = 253;

/// Types of Secrets with their required keys.
const SECRET_TYPES: [(&str, &[&str]); 4] = [
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
];

/// Moves `stringData` to `data`.
pub(super) fn default_secret(secret: &mut Value) {
    let text = secret.as_object_mut().and_then(|fields| fields.remove("stringData"));
    let Some(Value::Object(text)) = text else { return };
    let data = object::map_mut(secret, "data");
    for (key, value) in text {
        data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or_default())));
    }
}

/// Validates a data key.
fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > KEY_MAX {
        faults.push(format!("must be no more than {KEY_MAX} characters"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(plain) {
        let message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        faults.push(names::with_examples(message, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    if key == "." {
        faults.push("must not be '.'".to_owned());
    } else if key == ".." {
        faults.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        faults.push("must not start with '..'".to_owned());
    }
    faults
}

pub(super) fn validate_config_map(map: &Value) -> Errors {
    let mut errors = Vec::new();
    let mut bytes = 0;
    let binary = part(map, "binaryData");
    let path = Path::of("data");
    for (key, value) in part(map, "data").as_object().into_iter().flatten() {
        let path = path.key(key);
        errors.extend(key_faults(key).into_iter().map(|fault| Error::invalid(&path, key.as_str(), fault)));
        if binary.get(key).is_some() {
            errors.push(Error::invalid(&path, key.as_str(), "duplicate of key present in binaryData"));
        }
        bytes += value.as_str().unwrap_or_default().len();
    }
    let path = Path::of("binaryData");
    for (key, value) in binary.as_object().into_iter().flatten() {
        let path = path.key(key);
        errors.extend(key_faults(key).into_iter().map(|fault| Error::invalid(&path, key.as_str(), fault)));
        bytes += decoded_len(value);
    }
    if bytes > BYTES_MAX {
        // kube-apiserver passes an empty field path here, which it prints as `[]`.
        errors.push(Error::too_long(&Path::of("[]"), BYTES_MAX));
    }
    errors
}

fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}

pub(super) fn validate_secret(secret: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("data");
    let data = part(secret, "data");
    let mut bytes = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        let faults = key_faults(key).into_iter();
        errors.extend(faults.map(|fault| Error::invalid(&path.key(key), key.as_str(), fault)));
        bytes += decoded_len(value);
    }
    if bytes > BYTES_MAX {
        errors.push(Error::too_long(&path, BYTES_MAX));
    }
    let kind = text(secret, "type");
    for (_, keys) in SECRET_TYPES.iter().filter(|(name, _)| *name == kind) {
        for key in keys.iter().filter(|key| data.get(**key).is_none()) {
            errors.push(Error::required(&path.key(key), ""));
        }
    }
    let either = ["username", "password"];
    if kind == "kubernetes.io/basic-auth" && either.iter().all(|key| data.get(*key).is_none()) {
        errors.extend(either.iter().map(|key| Error::required(&path.key(key), "")));
    }
    if kind == "kubernetes.io/service-account-token" {
        let name = "kubernetes.io/service-account.name";
        let annotation = object::meta(secret, "annotations").and_then(|all| all.get(name));
        if annotation.is_none_or(|name| name == "") {
            let metadata = Path::of("metadata");
            let annotations = metadata.field("annotations");
            errors.push(Error::required(&annotations.key(name), ""));
        }
    }
    errors
}

/// Validates an update: the type of a Secret and immutable data do not change.
pub(super) fn validate_change(old: &Value, new: &Value, fields: &[&str]) -> Errors {
    let mut errors = Vec::new();
    if old.get("type") != new.get("type") {
        let value = text(new, "type");
        errors.push(Error::invalid(&Path::of("type"), value, "field is immutable"));
    }
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return errors;
    }
    let detail = "field is immutable when `immutable` is set";
    if new.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(Error::forbidden(&Path::of("immutable"), detail));
    }
    for field in fields.iter().filter(|field| old.get(**field) != new.get(**field)) {
        errors.push(Error::forbidden(&Path::of(field), detail));
    }
    errors
}

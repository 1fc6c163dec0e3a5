//! Validation of webhook configurations.

use super::checks::{Errors, list, number, one_of, part, selector, text};
use crate::field::{Error, Path};
use crate::names;
use kube_cel::cel::Program;
use serde_json::Value;

const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn validate(configuration: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("webhooks");
    let mut seen = Vec::new();
    for (index, hook) in list(configuration, "webhooks").iter().enumerate() {
        let path = path.index(index);
        validate_hook(&mut errors, hook, &path);
        let name = text(hook, "name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path.field("name"), name));
        }
        seen.push(name);
    }
    errors
}

fn validate_hook(errors: &mut Errors, hook: &Value, path: &Path<'_>) {
    validate_name(errors, text(hook, "name"), &path.field("name"));
    let rules = path.field("rules");
    for (index, rule) in list(hook, "rules").iter().enumerate() {
        validate_rule(errors, rule, &rules.index(index));
    }
    one_of(errors, hook, path, "failurePolicy", &["Fail", "Ignore"]);
    one_of(errors, hook, path, "matchPolicy", &["Equivalent", "Exact"]);
    if text(hook, "sideEffects").is_empty() {
        let detail = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.push(Error::required(&path.field("sideEffects"), detail));
    }
    one_of(errors, hook, path, "sideEffects", &SIDE_EFFECTS);
    if let Some(seconds) = number(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(Error::invalid(&path.field("timeoutSeconds"), seconds, detail));
    }
    selector(errors, part(hook, "namespaceSelector"), &path.field("namespaceSelector"));
    selector(errors, part(hook, "objectSelector"), &path.field("objectSelector"));
    validate_client(errors, part(hook, "clientConfig"), &path.field("clientConfig"));
    let versions = list(hook, "admissionReviewVersions");
    let known = |version: &Value| REVIEW_VERSIONS.iter().any(|known| version == known);
    let at = path.field("admissionReviewVersions");
    if versions.is_empty() {
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(Error::required(&at, detail));
    } else if !versions.iter().any(known) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(Error::invalid(&at, versions.to_vec(), detail));
    }
    one_of(errors, hook, path, "reinvocationPolicy", &["IfNeeded", "Never"]);
    let conditions = path.field("matchConditions");
    for (index, condition) in list(hook, "matchConditions").iter().enumerate() {
        let path = conditions.index(index);
        let expression = text(condition, "expression");
        if expression.trim().is_empty() {
            errors.push(Error::required(&path.field("expression"), ""));
        } else if let Err(error) = Program::compile(expression) {
            let detail = format!("compilation failed: {}", error.to_string().trim());
            errors.push(Error::invalid(&path.field("expression"), expression, detail));
        }
        if text(condition, "name").is_empty() {
            errors.push(Error::required(&path.field("name"), ""));
        }
    }
}

fn validate_name(errors: &mut Errors, name: &str, path: &Path<'_>) {
    if name.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let faults = names::subdomain(name);
    if faults.is_empty() && name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(Error::invalid(path, name, detail));
    }
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, name, fault)));
}

fn validate_rule(errors: &mut Errors, rule: &Value, path: &Path<'_>) {
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        if list(rule, field).is_empty() {
            errors.push(Error::required(&path.field(field), ""));
        }
    }
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations = path.field("operations");
    for (index, operation) in list(rule, "operations").iter().enumerate() {
        let operation = operation.as_str().unwrap_or_default();
        if !known.contains(&operation) {
            errors.push(Error::not_supported(&operations.index(index), operation, &known));
        }
    }
    one_of(errors, rule, path, "scope", &["Cluster", "Namespaced", "*"]);
}

fn validate_client(errors: &mut Errors, client: &Value, path: &Path<'_>) {
    match (client.get("url").and_then(Value::as_str), client.get("service")) {
        (None, None) | (Some(_), Some(_)) => {
            errors.push(Error::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => validate_url(errors, url, &path.field("url")),
        (None, Some(service)) => {
            let path = path.field("service");
            for field in ["name", "namespace"] {
                if text(service, field).is_empty() {
                    errors.push(Error::required(
                        &path.field(field),
                        &format!("service {field} is required")[..],
                    ));
                }
            }
        }
    }
}

fn validate_url(errors: &mut Errors, url: &str, path: &Path<'_>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.push(Error::invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}")));
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        errors.push(Error::invalid(path, host, format!("host must be specified{FORM}")));
    }
    for (mark, what) in [("@", "user information is not permitted in the URL")] {
        if host.contains(mark) {
            errors.push(Error::invalid(path, host, what));
        }
    }
    for (mark, what) in [
        ('#', "fragments are not permitted in the URL"),
        ('?', "query parameters are not permitted in the URL"),
    ] {
        if rest.contains(mark) {
            errors.push(Error::invalid(path, url, what));
        }
    }
}

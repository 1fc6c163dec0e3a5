//! Validation of RBAC objects. They are stored and served, but not enforced.

use super::checks::{Errors, list, part, text};
use crate::field::{Error, Path};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The scope of a role or binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Namespace,
    Cluster,
}

pub(super) fn validate_role(role: &Value, scope: Scope) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("rules");
    for (index, rule) in list(role, "rules").iter().enumerate() {
        let path = path.index(index);
        if list(rule, "verbs").is_empty() {
            errors.push(Error::required(&path.field("verbs"), "verbs must contain at least one value"));
        }
        let groups = list(rule, "apiGroups");
        let resources = list(rule, "resources");
        let urls = list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let at = path.field("nonResourceURLs");
            let mixed =
                !groups.is_empty() || !resources.is_empty() || !list(rule, "resourceNames").is_empty();
            if scope == Scope::Namespace {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.push(Error::invalid(&at, json!(urls), detail));
            } else if mixed {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(Error::invalid(&at, json!(urls), detail));
            }
            continue;
        }
        if groups.is_empty() {
            let detail = "resource rules must supply at least one api group";
            errors.push(Error::required(&path.field("apiGroups"), detail));
        }
        if resources.is_empty() {
            let detail = "resource rules must supply at least one resource";
            errors.push(Error::required(&path.field("resources"), detail));
        }
    }
    errors
}

pub(super) fn validate_binding(binding: &Value, scope: Scope) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("roleRef");
    let reference = part(binding, "roleRef");
    if text(reference, "apiGroup") != GROUP {
        errors.push(Error::not_supported(&path.field("apiGroup"), text(reference, "apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] = match scope {
        Scope::Namespace => &["Role", "ClusterRole"],
        Scope::Cluster => &["ClusterRole"],
    };
    if !kinds.contains(&text(reference, "kind")) {
        errors.push(Error::not_supported(&path.field("kind"), text(reference, "kind"), kinds));
    }
    if text(reference, "name").is_empty() {
        errors.push(Error::required(&path.field("name"), ""));
    }
    let path = Path::of("subjects");
    for (index, subject) in list(binding, "subjects").iter().enumerate() {
        let path = path.index(index);
        if text(subject, "name").is_empty() {
            errors.push(Error::required(&path.field("name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if scope == Scope::Cluster && text(subject, "namespace").is_empty() {
                    errors.push(Error::required(&path.field("namespace"), ""));
                }
            }
            "User" | "Group" => {}
            other => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.push(Error::not_supported(&path.field("kind"), other, &kinds));
            }
        }
    }
    errors
}

/// `roleRef` is immutable.
pub(super) fn validate_binding_change(old: &Value, new: &Value) -> Errors {
    if old.get("roleRef") == new.get("roleRef") {
        return Vec::new();
    }
    let reference = part(new, "roleRef");
    let value = format!(
        "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
        json!(text(reference, "apiGroup")),
        json!(text(reference, "kind")),
        json!(text(reference, "name"))
    );
    vec![Error::invalid_unshown(&Path::of("roleRef"), format!("{value}: cannot change roleRef"))]
}

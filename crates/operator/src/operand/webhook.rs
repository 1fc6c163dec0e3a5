//! Webhook configurations.
//!
//! `timeoutSeconds` and `matchPolicy` are left to the cluster: clouds adjust them.

use crate::settings::Settings;
use crate::workload::cluster_metadata;
use serde_json::{Value, json};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Where the API server calls a webhook.
pub(crate) struct Endpoint<'a> {
    pub(crate) service: &'a str,
    pub(crate) path: &'a str,
    pub(crate) port: i64,
    pub(crate) trusted: &'a str,
}

/// The resources that a webhook is called for.
pub(crate) struct Rule<'a> {
    pub(crate) operations: &'a [&'a str],
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) scope: &'a str,
}

/// A webhook for all objects of a resource. Its object selector is empty rather than absent, so that one that was added
/// by hand, which would exempt objects from validation, is removed.
pub(crate) fn webhook(settings: &Settings, name: &str, endpoint: &Endpoint<'_>, rule: &Rule<'_>) -> Value {
    json!({
        "name": name,
        "clientConfig": {
            "service": {
                "namespace": settings.namespace,
                "name": endpoint.service,
                "path": endpoint.path,
                "port": endpoint.port,
            },
            "caBundle": endpoint.trusted,
        },
        "rules": [{
            "operations": rule.operations,
            "apiGroups": [rule.group],
            "apiVersions": [rule.version],
            "resources": [rule.resource],
            "scope": rule.scope,
        }],
        "objectSelector": {},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

pub(crate) fn validating(settings: &Settings, name: &str, app: &str, webhooks: &[Value]) -> Value {
    configuration("ValidatingWebhookConfiguration", settings, name, app, webhooks)
}

pub(crate) fn mutating(settings: &Settings, name: &str, app: &str, webhooks: &[Value]) -> Value {
    configuration("MutatingWebhookConfiguration", settings, name, app, webhooks)
}

fn configuration(kind: &str, settings: &Settings, name: &str, app: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": cluster_metadata(name, app, &settings.owner()),
        "webhooks": webhooks,
    })
}

//! The affinity of a component's pods: its own setting, the global one, and the default anti-affinity.

use crate::settings::Settings;
use k8s_openapi::api::core::v1::Affinity;
use kai_api::well_known::label;
use serde_json::{Value, json};

/// The affinity of the pods with the label `app`.
///
/// With one of both settings, that one is used; with both, each section of the component's own comes first, and replicas
/// prefer different nodes unless a setting has an anti-affinity. `requireDefaultPodAntiAffinityTerm` makes them require
/// different nodes, also without any affinity setting.
pub(crate) fn affinity(settings: &Settings, own: Option<&Affinity>, app: &str) -> Option<Value> {
    let global = settings.global.affinity.as_ref();
    let required = settings.global.require_default_pod_anti_affinity_term.unwrap_or(false);
    let merged = match (own, global) {
        (Some(own), Some(global)) => Affinity {
            node_affinity: own.node_affinity.clone().or_else(|| global.node_affinity.clone()),
            pod_affinity: own.pod_affinity.clone().or_else(|| global.pod_affinity.clone()),
            pod_anti_affinity: own.pod_anti_affinity.clone().or_else(|| global.pod_anti_affinity.clone()),
        },
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) if required => Affinity::default(),
        (None, None) => return None,
    };
    let by_default = required || (own.is_some() && global.is_some());
    let needs_default = by_default && merged.pod_anti_affinity.is_none();
    let mut affinity = serde_json::to_value(merged).unwrap_or_default();
    if needs_default {
        kai_object::set(&mut affinity, &["podAntiAffinity"], default_anti_affinity(app, required));
    }
    Some(affinity)
}

fn default_anti_affinity(app: &str, required: bool) -> Value {
    let term = json!({
        "labelSelector": {"matchLabels": {label::APP: app}},
        "topologyKey": label::HOSTNAME,
    });
    let mut terms = json!({
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}],
    });
    if required {
        kai_object::set(&mut terms, &["requiredDuringSchedulingIgnoredDuringExecution"], json!([term]));
    }
    terms
}

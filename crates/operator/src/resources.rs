//! Requests and limits of a component's container.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kai_units::Quantity;
use serde_json::{Map, Value, json};

/// Default requests and limits of a component.
pub(crate) struct Defaults {
    pub(crate) cpu: [&'static str; 2],
    pub(crate) memory: [&'static str; 2],
}

/// Defaults of components without their own.
pub(crate) const COMPONENT: Defaults = Defaults { cpu: ["50m", "100m"], memory: ["256Mi", "512Mi"] };
pub(crate) const BINDER: Defaults = Defaults { cpu: ["50m", "100m"], memory: ["200Mi", "200Mi"] };
pub(crate) const SCHEDULER: Defaults = Defaults { cpu: ["250m", "700m"], memory: ["512Mi", "512Mi"] };

/// Of all components in one process, which share their connection, their watches and what they read.
pub(crate) const COMBINED: Defaults = Defaults { cpu: ["300m", "1"], memory: ["512Mi", "1Gi"] };

/// The settings of a component, filled up value by value.
///
/// A default is adjusted to the setting beside it: a limit is never below a request that was set, nor a request above a
/// limit that was set.
pub(crate) fn resources(own: Option<&ResourceRequirements>, defaults: &Defaults) -> Value {
    let own = own.cloned().unwrap_or_default();
    let mut requests = amounts(own.requests);
    let mut limits = amounts(own.limits);
    for (resource, [request, limit]) in [("cpu", defaults.cpu), ("memory", defaults.memory)] {
        let set = (requests.get(resource).cloned(), limits.get(resource).cloned());
        let default = (Value::from(request), Value::from(limit));
        let (request, limit) = match set {
            (Some(request), Some(limit)) => (request, limit),
            (Some(request), None) => (request.clone(), larger(request, default.1)),
            (None, Some(limit)) => (smaller(default.0, limit.clone()), limit),
            (None, None) => default,
        };
        requests.insert(resource.to_owned(), request);
        limits.insert(resource.to_owned(), limit);
    }
    let mut resources = json!({"requests": requests, "limits": limits});
    if let Some(claims) = own.claims {
        kai_object::set(&mut resources, &["claims"], serde_json::to_value(claims).unwrap_or_default());
    }
    resources
}

type Amounts = std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// Amounts in canonical form, as the API server returns them.
fn amounts(amounts: Option<Amounts>) -> Map<String, Value> {
    let amounts = amounts.unwrap_or_default().into_iter();
    amounts.map(|(resource, amount)| (resource, canonical(&amount.0))).collect()
}

/// A quantity in canonical form; other text is kept for the API server to refuse.
pub(crate) fn canonical(text: &str) -> Value {
    Value::from(text.parse::<Quantity>().map_or_else(|_| text.to_owned(), |quantity| quantity.to_string()))
}

fn larger(a: Value, b: Value) -> Value {
    if quantity(&a) < quantity(&b) { b } else { a }
}

fn smaller(a: Value, b: Value) -> Value {
    if quantity(&b) < quantity(&a) { b } else { a }
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(own: Value) -> Value {
        let own: ResourceRequirements = serde_json::from_value(own).unwrap();
        resources(Some(&own), &COMPONENT)
    }

    #[test]
    fn default_limit_rises_to_a_request_that_was_set() {
        let filled = filled(json!({"requests": {"cpu": "2000m"}}));
        assert_eq!(filled["requests"], json!({"cpu": "2", "memory": "256Mi"}));
        assert_eq!(filled["limits"], json!({"cpu": "2", "memory": "512Mi"}));
    }

    #[test]
    fn default_request_falls_to_a_limit_that_was_set() {
        let filled = filled(json!({"limits": {"memory": "64Mi", "nvidia.com/gpu": "1"}}));
        assert_eq!(filled["requests"], json!({"cpu": "50m", "memory": "64Mi"}));
        assert_eq!(filled["limits"], json!({"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": "1"}));
    }
}

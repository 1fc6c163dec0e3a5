//! The opaque driver configuration of an allocated claim: from the device classes of its requests, then from the claim.
//!
//! The order is that of Kubernetes' allocator (KEP-4381). The configuration of a class is repeated for each request that
//! is served from it, in the order of requests; configuration of the claim for requests or subrequests that were not
//! chosen is left out.

use k8s_openapi::api::resource::v1::{DeviceAllocationConfiguration, OpaqueDeviceConfiguration};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kai_cache::object::device::{DeviceClass, DeviceConfig, ResourceClaim};
use kai_engine::input::{ClaimDevice, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

type Classes = BTreeMap<Key, Arc<DeviceClass>>;

pub(super) fn of_claim(
    claim: &ResourceClaim,
    devices: &[ClaimDevice],
    classes: &Classes,
) -> Vec<DeviceAllocationConfiguration> {
    // Each request by its name, and by the name of the chosen subrequest.
    let mut served: Vec<(String, Option<String>)> = Vec::new();
    let mut configs = Vec::new();
    for request in &claim.spec.devices.requests {
        let name = request.name.to_string();
        if let Some(exactly) = &request.exactly {
            configs.extend(of_class(&exactly.device_class_name, &name, classes));
            served.push((name, None));
            continue;
        }
        let chosen = request.first_available.iter().find_map(|subrequest| {
            let full = format!("{name}/{}", subrequest.name);
            devices
                .iter()
                .any(|device| device.request == full)
                .then_some((full, &subrequest.device_class_name))
        });
        if let Some((full, class)) = &chosen {
            configs.extend(of_class(class, full, classes));
        }
        served.push((name, chosen.map(|(full, _)| full)));
    }
    let is_served = |wanted: &str| {
        served.iter().any(|(name, subrequest)| name == wanted || subrequest.as_deref() == Some(wanted))
    };
    let own = claim.spec.devices.config.iter();
    let own = own.filter(|config| config.requests.is_empty() || config.requests.iter().any(|r| is_served(r)));
    configs.extend(own.map(|config| {
        let requests = config.requests.iter().map(ToString::to_string).collect();
        configuration("FromClaim", requests, config)
    }));
    configs
}

/// The configuration of a class for a request that is served from it.
pub(super) fn of_class(
    class: &str,
    request: &str,
    classes: &Classes,
) -> impl Iterator<Item = DeviceAllocationConfiguration> {
    let class = classes.get(&Key::new("", class));
    let configs = class.into_iter().flat_map(|class| class.spec.config.iter());
    configs.map(move |config| configuration("FromClass", vec![request.to_owned()], config))
}

fn configuration(
    source: &str,
    requests: Vec<String>,
    config: &DeviceConfig,
) -> DeviceAllocationConfiguration {
    let opaque = config.opaque.as_ref().map(|opaque| OpaqueDeviceConfiguration {
        driver: opaque.driver.to_string(),
        parameters: RawExtension(opaque.parameters.clone()),
    });
    DeviceAllocationConfiguration {
        opaque,
        requests: Some(requests).filter(|requests| !requests.is_empty()),
        source: source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn opaque(text: &str) -> Value {
        json!({"driver": "gpu.example.com", "parameters": {"mode": text}})
    }

    fn classes() -> Classes {
        let class = |name: &str, config: Value| {
            let class = json!({"metadata": {"name": name}, "spec": {"config": config}});
            (Key::new("", name), Arc::new(serde_json::from_value::<DeviceClass>(class).unwrap()))
        };
        [
            class("small", json!([{"opaque": opaque("small-1")}, {"opaque": opaque("small-2")}])),
            class("large", json!([{"opaque": opaque("large")}])),
            class("plain", json!([])),
        ]
        .into()
    }

    /// The configuration of a claim: source, requests and mode.
    fn config_of(spec: &Value, served: &[&str]) -> Vec<(String, Vec<String>, String)> {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": spec}});
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let devices: Vec<ClaimDevice> = served
            .iter()
            .map(|request| ClaimDevice { request: (*request).to_owned(), ..ClaimDevice::default() })
            .collect();
        let mode = |config: &DeviceAllocationConfiguration| {
            config.opaque.as_ref().unwrap().parameters.0["mode"].as_str().unwrap().to_owned()
        };
        of_claim(&claim, &devices, &classes())
            .into_iter()
            .map(|config| (config.source.clone(), config.requests.clone().unwrap_or_default(), mode(&config)))
            .collect()
    }

    fn entry(source: &str, requests: &[&str], mode: &str) -> (String, Vec<String>, String) {
        (source.to_owned(), requests.iter().map(|r| (*r).to_owned()).collect(), mode.to_owned())
    }

    #[test]
    fn class_configuration_precedes_that_of_the_claim() {
        let spec = json!({
            "requests": [
                {"name": "b", "exactly": {"deviceClassName": "large"}},
                {"name": "a", "exactly": {"deviceClassName": "small"}},
                {"name": "c", "exactly": {"deviceClassName": "plain"}},
            ],
            "config": [
                {"opaque": opaque("all")},
                {"requests": ["a", "b"], "opaque": opaque("some")},
                {"requests": ["unknown"], "opaque": opaque("none")},
            ],
        });
        assert_eq!(
            config_of(&spec, &["b", "a", "c"]),
            [
                entry("FromClass", &["b"], "large"),
                entry("FromClass", &["a"], "small-1"),
                entry("FromClass", &["a"], "small-2"),
                entry("FromClaim", &[], "all"),
                entry("FromClaim", &["a", "b"], "some"),
            ]
        );
    }

    #[test]
    fn only_the_chosen_subrequest_is_configured() {
        let spec = json!({
            "requests": [{"name": "gpu", "firstAvailable": [
                {"name": "big", "deviceClassName": "large"}, {"name": "little", "deviceClassName": "small"},
            ]}],
            "config": [
                {"requests": ["gpu/big"], "opaque": opaque("big")},
                {"requests": ["gpu/little"], "opaque": opaque("little")},
                {"requests": ["gpu"], "opaque": opaque("any")},
            ],
        });
        assert_eq!(
            config_of(&spec, &["gpu/little"]),
            [
                entry("FromClass", &["gpu/little"], "small-1"),
                entry("FromClass", &["gpu/little"], "small-2"),
                entry("FromClaim", &["gpu/little"], "little"),
                entry("FromClaim", &["gpu"], "any"),
            ]
        );
    }
}

//! The bind request of a binding decision, and its creation.

use super::device_config;
use crate::options::Options;
use crate::resources::BIND_REQUEST;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequest,
    DeviceRequestAllocationResult, ExactDeviceRequest,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::bind_request::{
    ContainerResourceMapping, ExtendedResourceClaimAllocation, NumaZoneAmount, ReceivedGpu,
    ResourceClaimAllocation,
};
use kai_api::well_known::{label, resource};
use kai_api::{BindRequest, BindRequestSpec, bind_request};
use kai_cache::object::Objects;
use kai_cache::object::device::{ResourceClaim, ResourceSlice};
use kai_cache::translate::pod as pods;
use kai_engine::input::{self, ClaimDevice, Received, WHOLE_GPU};
use kai_engine::outcome::{Bind, ExtendedClaim};
use kai_runtime::writer::{Done, Retry, Write, WritePriority};
use serde_json::json;
use std::collections::BTreeMap;

pub(crate) fn request(bind: &Bind, options: &Options, objects: &Objects) -> BindRequest {
    let settings = &options.settings;
    let node = bind_request::selected_node_label(&bind.node);
    let mut labels: BTreeMap<String, String> =
        node.map(|node| (label::SELECTED_NODE.to_owned(), node.to_owned())).into_iter().collect();
    if !settings.node_pool_key.is_empty() && !settings.node_pool_value.is_empty() {
        labels.insert(settings.node_pool_key.clone(), settings.node_pool_value.clone());
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: bind.pod.name.clone(),
        uid: bind.uid.clone(),
        ..OwnerReference::default()
    };
    let claims = bind.claims.iter().map(|(name, devices)| {
        let claim = claim_of(&bind.pod, name, objects);
        let config = claim.map(|claim| device_config::of_claim(claim, devices, &objects.device_classes));
        ResourceClaimAllocation {
            name: name.clone(),
            allocation: Some(allocation(devices, config.unwrap_or_default(), &bind.node, objects)),
        }
    });
    BindRequest {
        metadata: ObjectMeta {
            name: Some(bind.pod.name.clone()),
            namespace: Some(bind.pod.namespace.clone()),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: Some(bind.annotations.0.clone()).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: BindRequestSpec {
            pod_name: bind.pod.name.clone(),
            selected_node: bind.node.clone(),
            received_resource_type: received(bind.received).to_owned(),
            received_gpu: Some(ReceivedGpu {
                count: Some(i64::from(bind.gpu_count)),
                portion: format!("{}.{:02}", bind.gpu_hundredths / 100, bind.gpu_hundredths % 100),
            }),
            selected_gpu_groups: bind.gpu_groups.clone(),
            resource_claim_allocations: claims.collect(),
            extended_resource_claim_allocation: bind
                .extended
                .as_ref()
                .map(|extended| extended_allocation(extended, &bind.node, objects)),
            predicted_numa_zones: bind.numa.iter().map(numa_zone).collect(),
            backoff_limit: None,
        },
        status: None,
    }
}

/// The write that creates a bind request.
pub(crate) fn write(request: &BindRequest, done: Done) -> Write {
    let name = request.metadata.name.clone().unwrap_or_default();
    let namespace = request.metadata.namespace.clone().unwrap_or_default();
    let key = input::Key::new(namespace.as_str(), name);
    let mut body = json!(request);
    kai_object::set(&mut body, &["apiVersion"], BIND_REQUEST.api_version());
    kai_object::set(&mut body, &["kind"], BIND_REQUEST.kind.as_ref());
    Write {
        priority: WritePriority::Action,
        object: (BIND_REQUEST.clone(), key),
        slot: None,
        method: "POST",
        path: BIND_REQUEST.path(&namespace),
        content_type: "application/json",
        body,
        retry: Retry::UntilAnswered,
        done: Some(done),
    }
}

fn received(kind: Option<Received>) -> &'static str {
    match kind {
        Some(Received::Regular) => BindRequestSpec::REGULAR,
        Some(Received::Fraction) => BindRequestSpec::FRACTION,
        Some(Received::Mig) => BindRequestSpec::MIG_INSTANCE,
        None => "",
    }
}

fn numa_zone(zone: &input::NumaAmount) -> NumaZoneAmount {
    let amount = |(name, value): &(String, i64)| match name.as_str() {
        input::CPU => (name.clone(), Quantity(format!("{value}m"))),
        input::GPU => (resource::NVIDIA_GPU.to_owned(), Quantity((value / WHOLE_GPU).to_string())),
        _ => (name.clone(), Quantity(value.to_string())),
    };
    NumaZoneAmount { zone: zone.zone.clone(), amount: zone.amounts.iter().map(amount).collect() }
}

/// The ResourceClaim that a claim of a pod refers to.
fn claim_of<'a>(pod: &input::Key, name: &str, objects: &'a Objects) -> Option<&'a ResourceClaim> {
    let object = pods::claim_object(objects.pods.get(pod)?, name)?;
    objects.resource_claims.get(&input::Key::new(pod.namespace.as_str(), object)).map(|claim| &**claim)
}

/// The allocation of a claim: devices, driver configuration and node selector.
fn allocation(
    devices: &[ClaimDevice],
    config: Vec<DeviceAllocationConfiguration>,
    node: &str,
    objects: &Objects,
) -> AllocationResult {
    let result = |device: &ClaimDevice| DeviceRequestAllocationResult {
        request: device.request.clone(),
        driver: device.device.driver.clone(),
        pool: device.device.pool.clone(),
        device: device.device.device.clone(),
        admin_access: device.admin_access.then_some(true),
        ..DeviceRequestAllocationResult::default()
    };
    let is_node_local = devices.iter().any(|device| !is_on_all_nodes(device, objects));
    AllocationResult {
        devices: Some(DeviceAllocationResult {
            results: Some(devices.iter().map(result).collect()),
            config: Some(config).filter(|config| !config.is_empty()),
        }),
        node_selector: is_node_local.then(|| node_selector(node)),
        ..AllocationResult::default()
    }
}

/// Whether a device is in a slice with `allNodes`.
fn is_on_all_nodes(device: &ClaimDevice, objects: &Objects) -> bool {
    let of = |slice: &&ResourceSlice| {
        slice.spec.driver == device.device.driver.as_str()
            && slice.spec.pool.name == device.device.pool.as_str()
            && slice.spec.devices.iter().any(|known| known.name == device.device.device.as_str())
    };
    let slices = objects.resource_slices.values().map(|slice| &**slice);
    slices.filter(of).any(|slice| slice.spec.all_nodes)
}

fn node_selector(node: &str) -> NodeSelector {
    let name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![name]),
            ..NodeSelectorTerm::default()
        }],
    }
}

fn extended_allocation(
    extended: &ExtendedClaim,
    node: &str,
    objects: &Objects,
) -> ExtendedResourceClaimAllocation {
    let request = |(name, class, count): &(String, String, u32)| DeviceRequest {
        name: name.clone(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: class.clone(),
            allocation_mode: Some("ExactCount".to_owned()),
            count: Some(i64::from(*count)),
            ..ExactDeviceRequest::default()
        }),
        ..DeviceRequest::default()
    };
    let mapping = |(container, resource, request): &(String, String, String)| ContainerResourceMapping {
        container_name: container.clone(),
        resource_name: resource.clone(),
        request_name: request.clone(),
    };
    let of_class = |(name, class, _): &(String, String, u32)| {
        device_config::of_class(class, name, &objects.device_classes).collect::<Vec<_>>()
    };
    let config = extended.requests.iter().flat_map(of_class).collect();
    ExtendedResourceClaimAllocation {
        allocation: Some(allocation(&extended.devices, config, node, objects)),
        device_requests: extended.requests.iter().map(request).collect(),
        container_mappings: extended.mappings.iter().map(mapping).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_request_has_the_fields_of_kai() {
        let bind = Bind {
            pod: input::Key::new("team", "worker-0"),
            uid: "u1".to_owned(),
            node: "n1".to_owned(),
            gpu_groups: vec!["g1".to_owned()],
            received: Some(Received::Fraction),
            gpu_count: 1,
            gpu_hundredths: 50,
            numa: vec![input::NumaAmount {
                zone: "node-0".to_owned(),
                amounts: vec![(input::CPU.to_owned(), 1_500), (input::GPU.to_owned(), WHOLE_GPU)],
            }],
            ..Bind::default()
        };
        let request = request(&bind, &Options::default(), &Objects::default());
        let write = write(&request, Box::new(|_| ()));
        assert_eq!(write.path, "/apis/scheduling.run.ai/v1alpha2/namespaces/team/bindrequests");
        assert_eq!(
            write.body,
            json!({
                "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
                "metadata": {
                    "name": "worker-0", "namespace": "team", "labels": {"selected-node": "n1"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "worker-0", "uid": "u1"}],
                },
                "spec": {
                    "podName": "worker-0", "selectedNode": "n1", "receivedResourceType": "Fraction",
                    "receivedGPU": {"count": 1, "portion": "0.50"}, "selectedGPUGroups": ["g1"],
                    "predictedNUMAZones": [{"zone": "node-0", "amount": {"cpu": "1500m", "nvidia.com/gpu": "1"}}],
                },
            })
        );
    }

    #[test]
    fn name_of_a_node_that_is_too_long_for_a_label_is_left_out() {
        let labels = |node: String| {
            let bind = Bind { node, ..Bind::default() };
            request(&bind, &Options::default(), &Objects::default()).metadata.labels
        };
        assert!(labels("n".repeat(63)).is_some());
        assert_eq!(labels("n".repeat(64)), None);
    }
}

//! Pod admission of the kubelet: checks allocatable resources, and allocates devices.

use crate::controllers::{annotation, pod};
use crate::node::NodeGroup;
use crate::well_known;
use kai_object as object;
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_units::Quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by resource, in nano-units.
type Amounts = BTreeMap<String, i128>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejection {
    #[error(
        "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    )]
    InsufficientResource { resource: String, reason: String, requested: i128, used: i128, capacity: i128 },
    #[error(
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}, which is unexpected"
    )]
    InsufficientDevices { resource: String, requested: usize, available: usize },
}

impl Rejection {
    /// `status.reason` of the rejected pod.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::InsufficientResource { reason, .. } => reason,
            Self::InsufficientDevices { .. } => "UnexpectedAdmissionError",
        }
    }
}

/// Whether a pod is admitted and not terminal.
pub(super) fn holds_resources(pod: &Value) -> bool {
    !pod::is_terminal(pod) && pod.pointer("/status/startTime").is_some()
}

/// Checks that the pod fits beside the others, and allocates its GPUs.
pub(super) fn admit(pod: &Value, node: &Value, others: &[&Value]) -> Result<Vec<String>, Rejection> {
    let wanted = requests(pod);
    let mut used = Amounts::new();
    for other in others {
        for (resource, amount) in requests(other) {
            *used.entry(resource).or_insert(0) += amount;
        }
    }
    for (resource, amount) in wanted.iter().filter(|(_, amount)| **amount > 0) {
        let capacity = amount_of(node["status"]["allocatable"].get(resource));
        let taken = used.get(resource).copied().unwrap_or(0);
        if taken + amount > capacity {
            let scale = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
            return Err(Rejection::InsufficientResource {
                reason: format!("OutOf{resource}"),
                resource: resource.clone(),
                requested: amount / scale,
                used: taken / scale,
                capacity: capacity / scale,
            });
        }
    }
    devices(pod, node, others, &wanted)
}

fn devices(pod: &Value, node: &Value, others: &[&Value], wanted: &Amounts) -> Result<Vec<String>, Rejection> {
    let Some((resource, amount)) = wanted.iter().find(|(resource, _)| resource.ends_with("/gpu")) else {
        return Ok(Vec::new());
    };
    let allocated = annotation(pod, well_known::GPU_DEVICES);
    if !allocated.is_empty() {
        return Ok(allocated.split(',').map(str::to_owned).collect());
    }
    let count = |nanos: i128| usize::try_from(nanos / 1_000_000_000).unwrap_or(0);
    let total = count(amount_of(node["status"]["allocatable"].get(resource)));
    let taken: BTreeSet<&str> =
        others.iter().flat_map(|other| annotation(other, well_known::GPU_DEVICES).split(',')).collect();
    let free: Vec<String> = (0..total)
        .map(|index| NodeGroup::gpu_uuid(object::name(node), u32::try_from(index).unwrap_or(u32::MAX)))
        .filter(|uuid| !taken.contains(uuid.as_str()))
        .collect();
    let requested = count(*amount);
    if free.len() < requested {
        return Err(Rejection::InsufficientDevices {
            resource: resource.clone(),
            requested,
            available: free.len(),
        });
    }
    Ok(free.into_iter().take(requested).collect())
}

fn amount_of(value: Option<&Value>) -> i128 {
    match value {
        Some(Value::String(text)) => text.parse::<Quantity>().map_or(0, Quantity::nanos),
        Some(Value::Number(number)) => i128::from(number.as_i64().unwrap_or(0)) * 1_000_000_000,
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => 0,
    }
}

/// Requests of a pod: the sum of its containers, or the largest init container with the sidecars before it.
fn requests(pod: &Value) -> Amounts {
    let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
    let mut total = Amounts::new();
    for container in list("containers") {
        add(&mut total, &of_container(container));
    }
    let mut most = Amounts::new();
    let mut sidecars = Amounts::new();
    for container in list("initContainers") {
        let own = of_container(container);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            continue;
        }
        let mut beside = sidecars.clone();
        add(&mut beside, &own);
        for (resource, amount) in beside {
            let known = most.entry(resource).or_insert(0);
            *known = amount.max(*known);
        }
    }
    for (resource, amount) in most {
        let known = total.entry(resource).or_insert(0);
        *known = amount.max(*known);
    }
    let overhead = pod["spec"]["overhead"].as_object().into_iter().flatten();
    for (resource, amount) in overhead {
        *total.entry(resource.clone()).or_insert(0) += amount_of(Some(amount));
    }
    for resource in claimed(pod) {
        total.remove(resource);
    }
    total.insert("pods".to_owned(), 1_000_000_000);
    total
}

/// Extended resources that the devices of a claim provide (KEP-5004): the node need not have them.
fn claimed(pod: &Value) -> impl Iterator<Item = &str> {
    let mappings = pod.pointer("/status/extendedResourceClaimStatus/requestMappings");
    let mappings = mappings.and_then(Value::as_array).into_iter().flatten();
    mappings.map(|mapping| object::str_at(mapping, "/resourceName"))
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *total.entry(resource.clone()).or_insert(0) += amount;
    }
}

/// Requests of a container; limits where it has no request.
fn of_container(container: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    for part in ["limits", "requests"] {
        for (resource, amount) in container["resources"][part].as_object().into_iter().flatten() {
            amounts.insert(resource.clone(), amount_of(Some(amount)));
        }
    }
    amounts
}

/// Whether a claim of the pod is not bound, allocated or reserved yet.
pub(super) fn waits_for_claims(pod: &Value, informers: &Informers) -> bool {
    let namespace = object::namespace(pod);
    let storage = volume_claims(pod).any(|name| {
        let claim = informers.dynamic(&kind::PERSISTENT_VOLUME_CLAIM).get(&Key::new(namespace, name));
        claim.is_none_or(|claim| object::str_at(&claim, "/status/phase") != "Bound")
    });
    let devices = resource_claims(pod).any(|name| {
        let Some(name) = name else { return true };
        let claim = informers.dynamic(&kind::RESOURCE_CLAIM).get(&Key::new(namespace, name));
        claim.is_none_or(|claim| {
            let users = claim.pointer("/status/reservedFor").and_then(Value::as_array);
            let reserved = users.into_iter().flatten().any(|user| user["uid"] == object::uid(pod));
            claim.pointer("/status/allocation").is_none() || !reserved
        })
    });
    storage || devices
}

fn volume_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str())
}

/// Names of the pod's resource claims; `None` for one that is not created yet.
fn resource_claims(pod: &Value) -> impl Iterator<Item = Option<&str>> {
    let entries = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    entries.map(|entry| {
        entry["resourceClaimName"].as_str().or_else(|| {
            let statuses = pod["status"]["resourceClaimStatuses"].as_array()?;
            statuses.iter().find(|status| status["name"] == entry["name"])?.get("resourceClaimName")?.as_str()
        })
    })
}

/// Whether the pod references this claim.
pub(super) fn references(pod: &Value, kind: &ResourceKind, claim: &Value) -> bool {
    let name = object::name(claim);
    if *kind == kind::PERSISTENT_VOLUME_CLAIM {
        return volume_claims(pod).any(|claimed| claimed == name);
    }
    resource_claims(pod).any(|claimed| claimed == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node() -> Value {
        json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "10", "nvidia.com/gpu": "4"}}})
    }

    fn pod(gpus: u32, devices: &str) -> Value {
        json!({
            "metadata": {"annotations": {well_known::GPU_DEVICES: devices}},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus.to_string(), "cpu": "500m"}}}]},
        })
    }

    #[test]
    fn free_devices_are_allocated_in_order() {
        let neighbour = pod(2, "GPU-n-0,GPU-n-2");
        assert_eq!(
            admit(&pod(2, ""), &node(), &[&neighbour]),
            Ok(vec!["GPU-n-1".to_owned(), "GPU-n-3".to_owned()])
        );
    }

    #[test]
    fn pod_that_does_not_fit_is_rejected_with_the_reason_of_the_kubelet() {
        let neighbour = pod(2, "GPU-n-0,GPU-n-2");
        let rejection = admit(&pod(3, ""), &node(), &[&neighbour]).unwrap_err();
        assert_eq!(rejection.reason(), "OutOfnvidia.com/gpu");
        assert!(rejection.to_string().ends_with("requested: 3, used: 2, capacity: 4"), "{rejection}");
    }

    #[test]
    fn extended_resource_of_a_claim_is_not_taken_from_the_node() {
        let mut claimed = pod(8, "");
        let mapping = json!({"containerName": "main", "requestName": "r", "resourceName": "nvidia.com/gpu"});
        claimed["status"] = json!({"extendedResourceClaimStatus": {"requestMappings": [mapping]}});
        assert_eq!(admit(&claimed, &node(), &[]), Ok(Vec::new()));
    }

    #[test]
    fn largest_init_container_counts() {
        let pod = json!({"spec": {
            "initContainers": [{"resources": {"requests": {"cpu": "3"}}}, {"resources": {"requests": {"cpu": "2"}}}],
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        }});
        assert_eq!(requests(&pod)["cpu"], 3_000_000_000);
    }
}

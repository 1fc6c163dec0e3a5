//! `Node` and `NodeResourceTopology` objects of simulated nodes.

use super::{NodeGroup, RACK, ZONE};
use crate::well_known;
use kai_units::Quantity;
use serde_json::{Value, json};

/// The `Node` at an index of its group, initially ready.
pub fn node(group: &NodeGroup, at: usize, now: &str) -> Value {
    let name = format!("{}-{}", group.name, at + 1);
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node-role.kubernetes.io/worker": "",
    });
    let (rack, zone) = group.location(at);
    if let Some(rack) = rack {
        labels[RACK] = Value::from(format!("rack-{rack}"));
    }
    if let Some(zone) = zone {
        labels[ZONE] = Value::from(format!("zone-{zone}"));
    }
    if group.gpus > 0 {
        labels["nvidia.com/gpu.present"] = json!("true");
        labels["nvidia.com/gpu.count"] = Value::from(group.gpus.to_string());
        labels["nvidia.com/gpu.product"] = Value::from(group.gpu_product.as_str());
        labels["nvidia.com/gpu.memory"] = Value::from(group.gpu_memory_mib.to_string());
        labels["nvidia.com/mig.strategy"] = json!("none");
    }
    if group.numa_zones > 1 {
        labels["feature.node.kubernetes.io/memory-numa"] = json!("true");
    }
    for (key, value) in &group.labels {
        labels[key.as_str()] = Value::from(value.as_str());
    }
    let amounts = amounts(group);
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {well_known::SIMULATED: "true"}},
        "spec": {"providerID": format!("sim://{name}")},
        "status": {
            "capacity": amounts.clone(), "allocatable": amounts,
            "conditions": conditions(now, "True"),
            "addresses": addresses(&name),
            "nodeInfo": info(&name),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}},
        },
    });
    if !group.taints.is_empty() {
        node["spec"]["taints"] = json!(group.taints);
    }
    node
}

/// Converts a recorded node to a simulated one: keeps labels, taints and resources. A node that was not ready gets the
/// failure mode `not-ready`.
pub fn adopt(known: &Value, now: &str) -> Value {
    let name = kai_object::name(known);
    let mut metadata = known["metadata"].clone();
    metadata["annotations"][well_known::SIMULATED] = json!("true");
    let conditions_known = known.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions_known.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let ready = if ready.is_none_or(|ready| ready["status"] == "True") { "True" } else { "False" };
    if ready == "False" {
        metadata["annotations"][well_known::FAILURE] = json!("not-ready");
    }
    let allocatable = known.pointer("/status/allocatable").cloned().unwrap_or_else(|| json!({}));
    let capacity = known.pointer("/status/capacity").unwrap_or(&allocatable).clone();
    let mut spec = known.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    spec["providerID"] = Value::from(format!("sim://{name}"));
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec,
        "status": {
            "capacity": capacity, "allocatable": allocatable, "conditions": conditions(now, ready),
            "addresses": addresses(name), "nodeInfo": info(name),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}},
        },
    })
}

fn addresses(name: &str) -> Value {
    json!([{"type": "InternalIP", "address": address(name)}, {"type": "Hostname", "address": name}])
}

fn amounts(group: &NodeGroup) -> Value {
    let mut amounts = json!({
        "cpu": group.cpu, "memory": group.memory, "pods": group.pods.to_string(),
        "ephemeral-storage": "1Ti", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    if group.gpus > 0 && !group.dra {
        amounts[group.gpu_resource.as_str()] = Value::from(group.gpus.to_string());
    }
    amounts
}

fn info(name: &str) -> Value {
    json!({
        "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "6.8.0-sim",
        "osImage": "Simulated Linux", "containerRuntimeVersion": "sim://1.0", "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
    })
}

/// An address derived from the name by a hash; collisions are possible.
pub(crate) fn address(name: &str) -> String {
    let hash = name.bytes().fold(5_381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("10.{}.{}.{}", 64 + (hash >> 16) % 64, (hash >> 8) & 255, 1 + hash % 254)
}

/// The conditions of a node with heartbeats; `ready` is the status of `Ready`.
pub(crate) fn conditions(now: &str, ready: &str) -> Value {
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let (reason, message) = if ready == "True" {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "the failure mode of the simulated node is not-ready")
    };
    json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", ready, reason, message),
    ])
}

/// The NUMA zones of a node, with equal parts of its resources.
pub fn topology(group: &NodeGroup, name: &str) -> Value {
    let zones = i64::from(group.numa_zones.max(1));
    let part = |text: &str| text.parse::<Quantity>().map_or(0, Quantity::units) / zones;
    let gpus = i64::from(group.gpus);
    let zone = |zone: i64| {
        let mut amounts =
            vec![("cpu".to_owned(), part(&group.cpu)), ("memory".to_owned(), part(&group.memory))];
        if gpus > 0 {
            // The first zones get the remainder.
            let own = gpus / zones + i64::from(zone < gpus % zones);
            amounts.push((group.gpu_resource.clone(), own));
        }
        let resources: Vec<Value> = amounts
            .into_iter()
            .map(|(name, amount)| {
                let amount = amount.to_string();
                json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount})
            })
            .collect();
        json!({"name": format!("node-{zone}"), "type": "Node", "resources": resources})
    };
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": group.numa_policy},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": (0..zones).map(zone).collect::<Vec<_>>(),
    })
}

/// The CRD of `NodeResourceTopology`.
pub fn topology_definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let text = json!({"type": "string"});
    let amount =
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
    let attributes = json!({"type": "array", "items": {
        "type": "object", "required": ["name", "value"], "properties": {"name": text, "value": text},
    }});
    let resource = json!({
        "type": "object", "required": ["name", "capacity", "allocatable", "available"],
        "properties": {"name": text, "capacity": amount, "allocatable": amount, "available": amount},
    });
    let zone = json!({
        "type": "object", "required": ["name", "type"],
        "properties": {
            "name": text, "type": text, "parent": text, "attributes": attributes,
            "costs": {"type": "array", "items": open}, "resources": {"type": "array", "items": resource},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {
            "group": "topology.node.k8s.io", "scope": "Cluster",
            "names": {
                "kind": "NodeResourceTopology", "listKind": "NodeResourceTopologyList",
                "plural": "noderesourcetopologies", "singular": "noderesourcetopology", "shortNames": ["node-res-topo"],
            },
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["zones"],
                "properties": {
                    "apiVersion": text, "kind": text, "metadata": {"type": "object"}, "attributes": attributes,
                    "topologyPolicies": {"type": "array", "items": text},
                    "zones": {"type": "array", "items": zone},
                },
            }}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_node_keeps_labels_resources_and_readiness() {
        let known = json!({
            "metadata": {"name": "a", "labels": {"pool": "x"}, "annotations": {"kai.scheduler/b": "c"}},
            "spec": {"unschedulable": true},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        let node = adopt(&known, "2026-01-01T00:00:00Z");
        assert_eq!(
            (&node["metadata"]["labels"], &node["spec"]["unschedulable"]),
            (&json!({"pool": "x"}), &json!(true))
        );
        assert_eq!(node["metadata"]["annotations"][well_known::FAILURE], "not-ready");
        assert_eq!(node["metadata"]["annotations"]["kai.scheduler/b"], "c");
        assert_eq!(
            (&node["status"]["capacity"], &node["status"]["addresses"][1]["address"]),
            (&json!({"cpu": "4"}), &json!("a"))
        );
    }

    #[test]
    fn numa_zones_divide_the_resources_of_the_node() {
        let group = NodeGroup {
            numa_zones: 2,
            cpu: "64".to_owned(),
            memory: "8Gi".to_owned(),
            ..NodeGroup::gpu_nodes(1, 3)
        };
        let topology = topology(&group, "node-1");
        let amount = |zone: usize, resource: usize| {
            topology["zones"][zone]["resources"][resource]["available"].clone()
        };
        assert_eq!((amount(0, 0), amount(1, 1)), (json!("32"), json!("4294967296")));
        assert_eq!((amount(0, 2), amount(1, 2)), (json!("2"), json!("1")));
    }
}

//! `ResourceSlice`s and the `DeviceClass` of the GPUs of simulated nodes.

use super::NodeGroup;
use serde_json::{Value, json};

const DRIVER: &str = "gpu.nvidia.com";

/// The slice with the GPUs of a node.
pub fn slice(group: &NodeGroup, node: &Value) -> Value {
    let name = kai_object::name(node);
    let device = |index: u32| {
        json!({
            "name": format!("gpu-{index}"),
            "attributes": {
                "type": {"string": "gpu"},
                "index": {"int": index},
                "uuid": {"string": NodeGroup::gpu_uuid(name, index)},
                "productName": {"string": group.gpu_product},
                "driverVersion": {"version": "570.0.0"},
            },
            "capacity": {"memory": {"value": format!("{}Mi", group.gpu_memory_mib)}},
        })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{name}-{DRIVER}"), "ownerReferences": [{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": kai_object::uid(node),
            "controller": true,
        }]},
        "spec": {
            "driver": DRIVER, "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": (0..group.gpus).map(device).collect::<Vec<_>>(),
        },
    })
}

/// The device class of whole GPUs.
pub fn device_class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {
            "expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"),
        }}]},
    })
}

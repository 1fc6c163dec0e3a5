//! Simulated nodes and their API objects.
//!
//! Nodes are defined by groups of equal nodes ([`NodeGroup`]), in code or in a YAML file ([`read`]).

pub(crate) mod heartbeat;
mod objects;
mod resource_slices;

pub use heartbeat::Failure;
pub(crate) use objects::address;
pub use objects::{adopt, node, topology, topology_definition};
pub use resource_slices::{device_class, slice};

use serde::Deserialize;
use std::collections::BTreeMap;

/// Node label: the rack.
pub const RACK: &str = "topology.kubernetes.io/rack";
/// Node label: the zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeGroup {
    /// Prefix of the node names `NAME-1`, `NAME-2` and so on.
    pub name: String,
    pub count: usize,
    /// GPUs per node.
    pub gpus: u32,
    pub gpu_resource: String,
    /// Label `nvidia.com/gpu.product`.
    pub gpu_product: String,
    pub gpu_memory_mib: u64,
    /// A quantity.
    pub cpu: String,
    /// A quantity.
    pub memory: String,
    /// Allocatable pods per node.
    pub pods: u32,
    /// Number of racks over which the nodes are spread; 0 for none.
    pub racks: usize,
    /// Number of zones over which the nodes are spread; 0 for none. Racks lie within zones.
    pub zones: usize,
    /// NUMA zones per node; more than one are published as a `NodeResourceTopology`.
    pub numa_zones: u32,
    /// Topology manager policy.
    pub numa_policy: String,
    /// Publishes GPUs in a `ResourceSlice` instead of as an extended resource.
    pub dra: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: String,
}

impl Default for NodeGroup {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            count: 1,
            gpus: 0,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            gpu_product: "NVIDIA-H100-80GB-HBM3".to_owned(),
            gpu_memory_mib: 81_559,
            cpu: "64".to_owned(),
            memory: "512Gi".to_owned(),
            pods: 110,
            racks: 0,
            zones: 0,
            numa_zones: 1,
            numa_policy: "single-numa-node".to_owned(),
            dra: false,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

impl NodeGroup {
    pub fn gpu_nodes(count: usize, gpus: u32) -> Self {
        Self { count, gpus, ..Self::default() }
    }

    pub fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|number| format!("{}-{number}", self.name))
    }

    /// Rack and zone of the node at an index; both are counted from 1.
    fn location(&self, at: usize) -> (Option<usize>, Option<usize>) {
        let part = |parts: usize| (parts > 0).then(|| at * parts / self.count.max(1) + 1);
        (part(self.racks), part(self.zones))
    }

    pub fn gpu_uuid(node: &str, index: u32) -> String {
        format!("GPU-{node}-{index}")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nodes: Vec<NodeGroup>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot read the nodes: {0}\nhint: `nodes:` is a list of groups such as `{{name: a, count: 4, gpus: 8}}`"
    )]
    Malformed(String),
    #[error("group `{group}` of nodes has no valid `{field}`: `{value}`\nhint: {hint}")]
    Invalid { group: String, field: &'static str, value: String, hint: &'static str },
}

/// Reads groups of nodes from YAML: `nodes: [{name: a, count: 4, gpus: 8, racks: 2}]`.
pub fn read(text: &str) -> Result<Vec<NodeGroup>, Error> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| Error::Malformed(error.to_string()))?;
    for group in &file.nodes {
        check(group)?;
    }
    Ok(file.nodes)
}

/// Validates the fields that the API server would reject.
pub fn check(group: &NodeGroup) -> Result<(), Error> {
    let invalid = |field, value: &str, hint| {
        Err(Error::Invalid { group: group.name.clone(), field, value: value.to_owned(), hint })
    };
    let is_name = !group.name.is_empty()
        && group.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !group.name.starts_with('-');
    if !is_name {
        return invalid("name", &group.name, "lower case letters, digits and `-`");
    }
    for (field, value) in [("cpu", &group.cpu), ("memory", &group.memory)] {
        let positive = value.parse::<kai_units::Quantity>().is_ok_and(|amount| amount.nanos() > 0);
        if !positive {
            return invalid(field, value, "a quantity such as `64` or `512Gi`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_groups_are_read_from_yaml() {
        let groups =
            read("nodes:\n- {name: a, count: 4, gpus: 8, racks: 2, zones: 1}\n- {cpu: '8'}\n").unwrap();
        assert_eq!(groups[0].names().collect::<Vec<_>>(), ["a-1", "a-2", "a-3", "a-4"]);
        let racks: Vec<_> = (0..4).map(|at| groups[0].location(at)).collect();
        assert_eq!(racks, [(Some(1), Some(1)), (Some(1), Some(1)), (Some(2), Some(1)), (Some(2), Some(1))]);
        assert_eq!((groups[1].cpu.as_str(), groups[1].count), ("8", 1));
    }

    #[test]
    fn invalid_node_groups_are_reported_with_a_hint() {
        let wrong = read("nodes: [{name: a, gpu: 8}]").unwrap_err().to_string();
        assert!(wrong.contains("gpu") && wrong.contains("hint:"), "{wrong}");
        let wrong = read("nodes: [{name: A}]").unwrap_err().to_string();
        assert!(wrong.contains("`A`"), "{wrong}");
        assert!(read("nodes: [{cpu: lots}]").unwrap_err().to_string().contains("`lots`"));
    }
}

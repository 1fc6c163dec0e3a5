//! Simulated nodes: what they are made of, and the objects that stand for them.
//!
//! Nodes come in groups of equals ([`NodeGroup`]), from code or from a small YAML file ([`read`]).

pub(crate) mod heartbeat;
mod objects;
mod slices;

pub use heartbeat::Failure;
pub(crate) use objects::address;
pub use objects::{adopt, node, topology, topology_definition};
pub use slices::{device_class, slice};

use serde::Deserialize;
use std::collections::BTreeMap;

/// The label with which a node says in which rack it is.
pub const RACK: &str = "topology.kubernetes.io/rack";
/// The label with which a node says in which zone it is.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A number of equal nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeGroup {
    /// The names: this with `-1`, `-2` and so on.
    pub name: String,
    /// How many.
    pub count: usize,
    /// GPUs of each.
    pub gpus: u32,
    /// What the GPUs are called as a resource.
    pub gpu_resource: String,
    /// Which GPUs.
    pub gpu_product: String,
    /// Memory of each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// CPUs of each, as a quantity.
    pub cpu: String,
    /// Memory of each, as a quantity.
    pub memory: String,
    /// How many pods each may have.
    pub pods: u32,
    /// Over how many racks they are spread; 0 for none.
    pub racks: usize,
    /// Over how many zones they are spread; 0 for none. Racks lie within zones.
    pub zones: usize,
    /// How many NUMA zones each has; with more than one they are published.
    pub numa_zones: u32,
    /// How strictly resources are aligned with NUMA zones.
    pub numa_policy: String,
    /// Whether GPUs are published as devices for claims instead of as a resource.
    pub dra: bool,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Taints, as nodes have them.
    pub taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default)]
    pub value: String,
    /// What happens to pods that do not bear it.
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
    /// So many nodes with so many GPUs each.
    pub fn gpu_nodes(count: usize, gpus: u32) -> Self {
        Self { count, gpus, ..Self::default() }
    }

    /// The names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|number| format!("{}-{number}", self.name))
    }

    /// Which rack and zone the node at this place is in, counted from 1.
    fn location(&self, at: usize) -> (Option<usize>, Option<usize>) {
        let part = |parts: usize| (parts > 0).then(|| at * parts / self.count.max(1) + 1);
        (part(self.racks), part(self.zones))
    }

    /// The uuid of a GPU of a node.
    pub fn gpu_uuid(node: &str, index: u32) -> String {
        format!("GPU-{node}-{index}")
    }
}

/// A file of nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nodes: Vec<NodeGroup>,
}

/// Why a file of nodes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not what it should be.
    #[error(
        "cannot read the nodes: {0}\nhint: `nodes:` is a list of groups such as `{{name: a, count: 4, gpus: 8}}`"
    )]
    Malformed(String),
    /// A group has no sensible size or amount.
    #[error("group `{group}` of nodes has no valid `{field}`: `{value}`\nhint: {hint}")]
    Invalid {
        /// The group.
        group: String,
        /// The field.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        hint: &'static str,
    },
}

/// Reads groups of nodes from YAML: `nodes: [{name: a, count: 4, gpus: 8, racks: 2}]`.
pub fn read(text: &str) -> Result<Vec<NodeGroup>, Error> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| Error::Malformed(error.to_string()))?;
    for group in &file.nodes {
        check(group)?;
    }
    Ok(file.nodes)
}

/// Holds a group to what the API server would take.
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
    fn nodes_are_read_from_a_file() {
        let groups =
            read("nodes:\n- {name: a, count: 4, gpus: 8, racks: 2, zones: 1}\n- {cpu: '8'}\n").unwrap();
        assert_eq!(groups[0].names().collect::<Vec<_>>(), ["a-1", "a-2", "a-3", "a-4"]);
        let racks: Vec<_> = (0..4).map(|at| groups[0].location(at)).collect();
        assert_eq!(racks, [(Some(1), Some(1)), (Some(1), Some(1)), (Some(2), Some(1)), (Some(2), Some(1))]);
        assert_eq!((groups[1].cpu.as_str(), groups[1].count), ("8", 1));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let wrong = read("nodes: [{name: a, gpu: 8}]").unwrap_err().to_string();
        assert!(wrong.contains("gpu") && wrong.contains("hint:"), "{wrong}");
        let wrong = read("nodes: [{name: A}]").unwrap_err().to_string();
        assert!(wrong.contains("`A`"), "{wrong}");
        assert!(read("nodes: [{cpu: lots}]").unwrap_err().to_string().contains("`lots`"));
    }
}

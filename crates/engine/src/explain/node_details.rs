//! Why each node rejects a pod, with the amounts: for `detailed-fit-errors`.

use super::amount::{is_storage, number, significant, unit_of};
use super::fit::node_rejection;
use crate::cluster::Cluster;
use crate::ids::{NodeIdx, PodIdx};
use crate::input::{self, GpuRequest};
use crate::place::filter;
use crate::place::trial::Trial;
use crate::policy::Policy;
use crate::resource;
use crate::verdict::NodeRejection;

/// The nodes that reject a pod, by name, each with all its reasons in KAI's format.
pub(super) fn node_details(cluster: &Cluster, policy: &Policy, pod: PodIdx) -> Vec<(String, String)> {
    let trial = Trial::new(cluster, policy, pod, None);
    let mut nodes: Vec<(String, String)> = Vec::new();
    for &node in &cluster.nodes_by_rank {
        let lacks = filter::lacks(cluster, &trial, node);
        let refusal = if lacks.is_empty() { filter::refusal(cluster, &trial, node) } else { None };
        let reasons: Vec<String> =
            lacks.iter().chain(&refusal).filter_map(|reason| detail(cluster, pod, node, reason)).collect();
        if !reasons.is_empty() {
            nodes.push((cluster.text(cluster.nodes[node].name).to_owned(), reasons.join(", ")));
        }
    }
    nodes.sort_unstable();
    nodes
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other reasons have one text for one node and for many"
)]
fn detail(cluster: &Cluster, pod: PodIdx, node: NodeIdx, reason: &NodeRejection) -> Option<String> {
    let n = &cluster.nodes[node];
    let shape = cluster.shape(pod);
    // KAI leaves out the amounts of a gang, of which other pods may have been placed on the node.
    let group = cluster.pods[pod].group;
    let is_gang = group.is_some_and(|group| cluster.groups[group].pods.len() > 1);
    let lacking = |name: &str, word: &str, requested: String, used: String, capacity: String| {
        Some(if is_gang {
            format!("Node didn't have enough resources: {name}, taking all considerations into account")
        } else {
            format!(
                "Node didn't have enough {word}: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            )
        })
    };
    let of_dim = |dim: resource::Dim| {
        let capacity = n.allocatable.get(dim);
        (shape.request.get(dim), capacity - n.free(dim), capacity)
    };
    let scaled = |name: &str, shown: &str, word: &str, (requested, used, capacity): (i64, i64, i64)| {
        let text = |amount| match name {
            input::CPU | input::MEMORY => number(amount, unit_of(name)),
            _ if is_storage(name) => amount.to_string(),
            _ => (amount / unit_of(name)).to_string(),
        };
        lacking(shown, word, text(requested), text(used), text(capacity))
    };
    match reason {
        NodeRejection::Gpus => {
            let (_, used, capacity) = of_dim(resource::GPU);
            let requested = shape.quota_on(n.gpu_memory.mib) + cluster.pods[pod].claim_gpus;
            let requested = if let GpuRequest::Fraction { hundredths, devices: devices @ 2.. } = shape.gpu {
                format!("{devices} X {}", significant(i64::from(hundredths) * (input::WHOLE_GPU / 100)))
            } else {
                significant(requested)
            };
            lacking("GPUs", "resources", requested, significant(used), significant(capacity))
        }
        NodeRejection::GpuMemory if !is_gang => {
            let requested = if let GpuRequest::Memory { mib, .. } = shape.gpu { mib } else { 0 };
            Some(format!(
                "Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of {} Mib. \
                 {requested} Mib of gpu memory has been requested.",
                n.gpu_memory.mib
            ))
        }
        NodeRejection::GpuMemory => {
            lacking("GPU memory", "resources", String::new(), String::new(), String::new())
        }
        NodeRejection::Cpu => scaled(input::CPU, "CPU cores", "resources", of_dim(resource::CPU)),
        NodeRejection::Memory => scaled(input::MEMORY, "memory", "resources", of_dim(resource::MEMORY)),
        NodeRejection::Resource(name) | NodeRejection::Mig(name) => {
            let dim = cluster.dims.find(cluster.names.find(name)?)?;
            scaled(name, name, "resource", of_dim(dim))
        }
        other => node_rejection(other),
    }
}

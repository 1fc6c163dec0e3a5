//! The GPUs of a node: allocated as a whole, shared, releasing or free, and MIG instances by profile.

use crate::amounts::{Amount, number};
use kai_engine::Cluster;
use kai_engine::cluster::node::Node;
use kai_engine::resource::{self, WHOLE_GPU};
use kai_engine::verdict::QueueResource;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// What a GPU is allocated to.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Gpu {
    Whole,
    /// The pods that have it as a whole are terminating.
    Releasing,
    Shared {
        /// The GPU group: the name that pods on one device have in common.
        group: String,
        /// The fraction in use, in millionths.
        #[serde(serialize_with = "fraction")]
        #[schemars(with = "f64")]
        part: i64,
        /// All pods on it are terminating.
        #[serde(rename = "leaving")]
        releasing: bool,
        /// It has lost its reservation: its pods keep it, and no other pod may share it.
        drained: bool,
        pods: Vec<String>,
    },
    Free,
}

/// MIG instances of a profile.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MigInstances {
    pub resource: String,
    pub used: i64,
    pub all: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct NodeGpus {
    pub total: usize,
    pub used: Amount,
    pub free: usize,
    /// Whole GPUs first, then shared, then free ones: only the kubelet knows which device a pod has.
    pub cells: Vec<Gpu>,
    pub mig: Vec<MigInstances>,
}

impl NodeGpus {
    pub fn of(cluster: &Cluster, node: &Node) -> Self {
        let ledger = &node.ledger;
        let shared = shared(cluster, node);
        let released = ledger.gpus.iter().filter(|gpu| gpu.flagged).count() as i64;
        let total = node.gpus_total().max(0);
        let whole = (ledger.used.get(resource::GPU) / WHOLE_GPU).clamp(0, total);
        let releasing = (ledger.releasing.get(resource::GPU) / WHOLE_GPU - released).clamp(0, whole);
        let mut cells = Vec::new();
        cells.extend((releasing..whole).map(|_| Gpu::Whole));
        cells.extend((0..releasing).map(|_| Gpu::Releasing));
        cells.extend(shared);
        let free = total - cells.len() as i64;
        cells.extend((0..free).map(|_| Gpu::Free));
        Self::new(cells, mig(cluster, node))
    }

    pub fn new(cells: Vec<Gpu>, mig: Vec<MigInstances>) -> Self {
        let used = |gpu: &Gpu| match gpu {
            Gpu::Whole | Gpu::Releasing => WHOLE_GPU,
            Gpu::Shared { part, .. } => *part,
            Gpu::Free => 0,
        };
        Self {
            total: cells.len(),
            used: Amount { resource: QueueResource::Gpu, value: cells.iter().map(used).sum() },
            free: cells.iter().filter(|gpu| **gpu == Gpu::Free).count(),
            cells,
            mig,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn fraction<S: Serializer>(part: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    number(*part as f64 / WHOLE_GPU as f64).serialize(serializer)
}

/// Shared GPUs, the fullest first.
fn shared(cluster: &Cluster, node: &Node) -> Vec<Gpu> {
    let memory = node.gpu_memory.mib.max(1);
    let in_use = node.ledger.gpus.iter().filter(|gpu| gpu.used > 0 || gpu.allocated > 0);
    let mut all: Vec<(i64, String, bool, bool, Vec<String>)> = in_use
        .map(|gpu| {
            let part = i128::from(gpu.allocated.max(gpu.used)) * i128::from(WHOLE_GPU) / i128::from(memory);
            let on_it = node.pods.iter().filter(|pod| {
                let pod = &cluster.pods[**pod];
                let place = pod.state.place.as_ref();
                // A reservation pod holds the GPU for others and uses nothing of it.
                pod.utility.is_none() && place.is_some_and(|place| place.gpu_groups.contains(&gpu.group))
            });
            let mut pods: Vec<String> = on_it.map(|pod| cluster.pod_key(*pod).to_string()).collect();
            pods.sort_unstable();
            let part = i64::try_from(part).unwrap_or(WHOLE_GPU).min(WHOLE_GPU);
            (part, cluster.text(gpu.group).to_owned(), gpu.all_releasing(), gpu.drained, pods)
        })
        .collect();
    all.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let cell =
        |(part, group, releasing, drained, pods)| Gpu::Shared { group, part, releasing, drained, pods };
    all.into_iter().map(cell).collect()
}

fn mig(cluster: &Cluster, node: &Node) -> Vec<MigInstances> {
    let offered = node.allocatable.iter().filter(|(dim, all)| *all > 0 && cluster.dims.mig(*dim).is_some());
    let mut all: Vec<MigInstances> = offered
        .map(|(dim, all)| MigInstances {
            resource: cluster.text(cluster.dims.name(dim)).to_owned(),
            used: node.ledger.used.get(dim) / 1_000,
            all: all / 1_000,
        })
        .collect();
    all.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gpus_in_use_are_summed_and_serialised_in_devices() {
        let shared = Gpu::Shared {
            group: "g".to_owned(),
            part: 250_000,
            releasing: false,
            drained: false,
            pods: vec!["a/b".to_owned()],
        };
        let gpus = NodeGpus::new(vec![Gpu::Whole, Gpu::Releasing, shared, Gpu::Free], Vec::new());
        assert_eq!(
            serde_json::to_value(&gpus).unwrap(),
            json!({
                "total": 4, "used": 2.25, "free": 1, "mig": [],
                "cells": [
                    {"state": "whole"},
                    {"state": "releasing"},
                    {"state": "shared", "group": "g", "part": 0.25, "leaving": false, "drained": false, "pods": ["a/b"]},
                    {"state": "free"},
                ],
            })
        );
    }
}

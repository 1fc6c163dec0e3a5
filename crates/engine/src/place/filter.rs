//! Node filters, in order.

use super::gpus;
use super::trial::Trial;
use crate::cluster::Cluster;
use crate::cluster::node::{Lack, Node, When};
use crate::cluster::shape::Shape;
use crate::ids::NodeIdx;
use crate::input::{GpuRequest, MigStrategy};
use crate::resource::{self, Amounts};
use crate::share::{capacity_policy, root_ledgers, root_path};
use crate::verdict::{GpuKindMismatch, NodeRejection};

/// The first filter that rejects a node whose resources fit the pod.
pub(crate) fn refusal(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> Option<NodeRejection> {
    let registry = &trial.policy.registry;
    let builtin = &registry.builtin;
    if builtin.predicates
        && let Some(miss) = predicates(cluster, trial, node)
    {
        return Some(miss);
    }
    if trial.has_claims
        && let Err(miss) = cluster.claims_fit(trial.pod, node)
    {
        return Some(NodeRejection::Claims(miss));
    }
    if let (Some((requests, ignored)), Some(numa)) = (&trial.numa, &cluster.nodes[node].ledger.numa)
        && !numa.admits(requests, ignored)
    {
        return Some(NodeRejection::Numa);
    }
    for (_, filter) in &registry.filters {
        if let Err(message) = filter.fits(cluster, trial.pod, node) {
            return Some(NodeRejection::Plugin(message));
        }
    }
    None
}

fn predicates(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> Option<NodeRejection> {
    let n = &cluster.nodes[node];
    let shape = cluster.shape(trial.pod);
    let pod = &cluster.pods[trial.pod];
    over_capacity(cluster, trial, node)
        .or_else(|| gpu_kind(n, shape, pod.claim_gpus).map(NodeRejection::GpuKind))
        .or_else(|| pod_slots(cluster, trial, node))
        .or_else(|| condition(n))
        .or_else(|| cluster.classes.accepts(shape.class, n.name, &n.labels, &n.taints, &cluster.names).err())
        .or_else(|| ports(cluster, shape, n))
        .or_else(|| {
            let terms = || cluster.terms.filter(pod.label_set, &shape.terms, &n.labels).err();
            trial.uses_terms.then(terms).flatten()
        })
        .or_else(|| trial.spread.as_ref().and_then(|s| s.allows(&n.labels).err()))
        .or_else(|| {
            let csi = trial.policy.params.csi_storage;
            trial.has_volumes.then(|| cluster.volumes_refusal(trial.pod, node, csi)).flatten()
        })
        .or_else(|| role(trial, n, shape, pod.claim_gpus))
}

/// Queue limits, for requests whose charge depends on the node.
fn over_capacity(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> Option<NodeRejection> {
    if !trial.cost_varies || trial.policy.registry.builtin.proportion.is_none() {
        return None;
    }
    let queue = trial.queue?;
    let shape = cluster.shape(trial.pod);
    let requested = [
        shape.request.get(resource::CPU),
        shape.request.get(resource::MEMORY),
        shape.quota_on(cluster.nodes[node].gpu_memory.mib),
    ];
    let excess = capacity_policy::check(root_ledgers(cluster, queue), &requested, trial.preemptibility)?;
    let at = root_path(cluster, queue).nth(excess.level)?;
    let named = excess.named(cluster.text(cluster.queues[at].display));
    Some(NodeRejection::OverCapacity(Box::new(named), excess.rule))
}

/// Compares the GPU kind of a node with the requested kind.
pub fn gpu_kind(node: &Node, shape: &Shape, claim_gpus: i64) -> Option<GpuKindMismatch> {
    if shape.spec.legacy_mig {
        return Some(GpuKindMismatch::LegacyMig);
    }
    if shape.is_cpu_only() && claim_gpus == 0 {
        return None;
    }
    let (shared, mig) = (shape.is_shared(), shape.gpu == GpuRequest::Mig);
    if node.has_dra_gpus && shared {
        return Some(GpuKindMismatch::SharedOnDra);
    }
    if mig && !node.is_mig {
        return Some(GpuKindMismatch::NoMig);
    }
    if node.is_mig {
        if mig && node.ledger.legacy_mig > 0 {
            return Some(GpuKindMismatch::NodeHasLegacyMig);
        }
        match node.mig_strategy {
            MigStrategy::Single if shared || mig => return Some(GpuKindMismatch::MigSingle),
            MigStrategy::Mixed if !mig => return Some(GpuKindMismatch::MigMixed),
            MigStrategy::None | MigStrategy::Single | MigStrategy::Mixed => {}
        }
    }
    let by_memory = matches!(shape.gpu, GpuRequest::Memory { .. });
    (by_memory && !node.gpu_memory.known).then_some(GpuKindMismatch::MemoryUnknown)
}

/// A pod needs a pod slot; one that creates a GPU group needs a second one for the reservation pod.
fn pod_slots(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> Option<NodeRejection> {
    let free = cluster.nodes[node].free(resource::PODS);
    if free >= 2 {
        return None;
    }
    let opens_gpu = || {
        cluster.shape(trial.pod).is_shared()
            && gpus::choose(cluster, &trial.policy.registry, trial.pod, node).is_some_and(|c| c.new > 0)
    };
    if free < 1 {
        Some(NodeRejection::PodSlots)
    } else {
        opens_gpu().then_some(NodeRejection::ReservationSlot)
    }
}

fn condition(node: &Node) -> Option<NodeRejection> {
    if node.unschedulable {
        return Some(NodeRejection::Cordoned);
    }
    node.bad_conditions.first().copied().map(NodeRejection::Condition)
}

fn ports(cluster: &Cluster, shape: &Shape, node: &Node) -> Option<NodeRejection> {
    let requested = &shape.spec.ports;
    let conflicts =
        |pod: &crate::ids::PodIdx| crate::ports::conflict(requested, &cluster.shape(*pod).spec.ports);
    (!requested.is_empty() && node.pods.iter().any(conflicts)).then_some(NodeRejection::Ports)
}

fn role(trial: &Trial<'_>, node: &Node, shape: &Shape, claim_gpus: i64) -> Option<NodeRejection> {
    if !trial.policy.params.restrict_nodes {
        return None;
    }
    let requests_gpu = !shape.is_cpu_only() || claim_gpus > 0;
    let has_role = if requests_gpu { node.gpu_worker } else { node.cpu_worker };
    (!has_role).then_some(NodeRejection::Role)
}

/// Every resource that a node lacks for a pod.
pub(crate) fn lacks(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> Vec<NodeRejection> {
    let n = &cluster.nodes[node];
    let load = trial.load(cluster);
    let backed = |r| cluster.is_device_backed(r);
    let mut misses = Vec::new();
    let first = n.first_lack(&load, When::Eventually, &cluster.dims, &backed);
    if let Some(lack @ (Lack::Gpus | Lack::GpuMemory | Lack::GpuMemoryFree)) = first {
        misses.push(lack_miss(cluster, lack));
    }
    for (dim, requested) in load.shape.request.iter().filter(|(d, _)| *d != resource::GPU) {
        let missing_but_backed = n.allocatable.get(dim) == 0 && backed(cluster.dims.name(dim));
        if requested > n.free(dim) && !missing_but_backed {
            misses.push(lack_miss(cluster, Lack::Dim(dim)));
        }
    }
    if misses.is_empty() {
        // Resources that the pod does not request can be overcommitted too, and simulated storage is accounted
        // separately.
        misses.extend(first.map(|lack| lack_miss(cluster, lack)));
        if misses.is_empty() && trial.has_volumes {
            misses.extend(cluster.storage_lack(trial.pod, node));
        }
    }
    let overhead = &load.shape.overhead;
    if !overhead.is_empty() && only_overhead(n, &load.shape.request, overhead) {
        let overhead = &load.shape.spec.overhead;
        misses = misses.into_iter().map(|m| NodeRejection::Overhead(Box::new(m), overhead.clone())).collect();
    }
    misses
}

fn only_overhead(node: &Node, request: &Amounts, overhead: &Amounts) -> bool {
    request.iter().all(|(dim, requested)| requested - overhead.get(dim) <= node.free(dim))
}

fn lack_miss(cluster: &Cluster, lack: Lack) -> NodeRejection {
    match lack {
        Lack::Gpus => NodeRejection::Gpus,
        Lack::GpuMemory => NodeRejection::GpuMemory,
        Lack::GpuMemoryFree => NodeRejection::GpuMemoryFree,
        Lack::Dim(resource::CPU) => NodeRejection::Cpu,
        Lack::Dim(resource::MEMORY) => NodeRejection::Memory,
        Lack::Dim(resource::PODS) => NodeRejection::PodSlots,
        Lack::Dim(dim) => {
            let name = cluster.text(cluster.dims.name(dim)).to_owned();
            if resource::is_mig(&name) { NodeRejection::Mig(name) } else { NodeRejection::Resource(name) }
        }
    }
}

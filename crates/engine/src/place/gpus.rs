//! Chooses the GPUs of a node for a shared request.

use crate::cluster::Cluster;
use crate::cluster::pod::GpuGroups;
use crate::ids::{NodeIdx, PodIdx, Sym};
use crate::plugin::{GpuOrder, Registry};
use crate::resource::{self, Amounts, WHOLE_GPU};
use smallvec::SmallVec;

/// GPUs chosen on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Existing shared GPUs.
    pub groups: GpuGroups,
    /// Number of whole GPUs that become shared.
    pub new: u32,
    /// The chosen shared GPUs have free memory now, and the whole ones are idle.
    pub ready: bool,
}

/// Chooses GPUs for a shared request: best score first, shared ones before whole ones where scores are equal.
/// `None` when the node has too few.
pub fn choose(cluster: &Cluster, registry: &Registry, pod: PodIdx, node: NodeIdx) -> Option<Chosen> {
    let n = &cluster.nodes[node];
    let shape = cluster.shape(pod);
    let memory = n.gpu_memory.mib;
    let mib = shape.memory_on(memory);
    let mut candidates: SmallVec<[(f64, Option<Sym>); 8]> = SmallVec::new();
    let mut groups: SmallVec<[Sym; 8]> =
        n.ledger.gpus.iter().filter(|g| g.fits(mib, memory)).map(|g| g.group).collect();
    groups.sort_by(|a, b| cluster.text(*a).cmp(cluster.text(*b)));
    let requested = shape.devices() as usize;
    for group in groups {
        if let Some(score) = score(cluster, registry, pod, node, Some(group)) {
            candidates.push((score, Some(group)));
        }
    }
    // Pods pipelined to idle GPUs make `releasing` negative: only the sum is meaningful.
    let whole = |amounts: &Amounts| amounts.get(resource::GPU) / WHOLE_GPU;
    let free = whole(&n.ledger.idle) + whole(&n.ledger.releasing);
    if free > 0
        && let Some(score) = score(cluster, registry, pod, node, None)
    {
        candidates.extend((0..free.min(requested as i64)).map(|_| (score, None)));
    }
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
    if candidates.len() < requested {
        return None;
    }
    let mut chosen = Chosen { groups: GpuGroups::new(), new: 0, ready: true };
    for (_, group) in candidates.into_iter().take(requested) {
        match group {
            Some(group) => {
                chosen.ready &= n.ledger.gpus.get(group).is_some_and(|g| g.fits_now(mib, memory));
                chosen.groups.push(group);
            }
            None => chosen.new += 1,
        }
    }
    // A releasing GPU cannot become shared now.
    chosen.ready &= i64::from(chosen.new) <= whole(&n.ledger.idle).max(0);
    Some(chosen)
}

fn score(
    cluster: &Cluster,
    registry: &Registry,
    pod: PodIdx,
    node: NodeIdx,
    group: Option<Sym>,
) -> Option<f64> {
    let mut sum = 0.0;
    for entry in &registry.gpu_order {
        sum += match entry {
            GpuOrder::Pack => used_portion(cluster, node, group),
            GpuOrder::Spread => 1.0 - used_portion(cluster, node, group),
            GpuOrder::Custom(custom) => custom.score(cluster, pod, node, group)?,
        };
    }
    Some(sum)
}

/// The used part of a shared GPU; 0 for a whole GPU.
pub fn used_portion(cluster: &Cluster, node: NodeIdx, group: Option<Sym>) -> f64 {
    let n = &cluster.nodes[node];
    let used = group.and_then(|g| n.ledger.gpus.get(g)).map_or(0, |g| g.used);
    used as f64 / n.gpu_memory.mib as f64
}

/// Name of a new GPU group, from the cycle's seed, the pod and the ordinal: a replay yields the same name.
pub fn new_group_name(seed: u64, pod_uid: &str, ordinal: u32) -> String {
    let mut a = fnv(0xcbf2_9ce4_8422_2325 ^ seed, pod_uid.as_bytes());
    a = fnv(a, &ordinal.to_le_bytes());
    let b = fnv(a.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15, pod_uid.as_bytes());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | (b >> 48 & 0x3fff),
        b & 0xffff_ffff_ffff
    )
}

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

//! Compares the requests of equivalent groups.

use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::{GroupIdx, Idx, ShapeIdx};
use crate::input::GpuRequest;
use crate::resource::{self, Amounts, Dim, WHOLE_GPU};
use std::cmp::Ordering;

/// Requests of a group's pending pods, ascending, equal specifications merged.
#[derive(Debug)]
pub(super) struct Demand {
    requests: Vec<(Amounts, usize)>,
    pub(super) pods: usize,
    /// Largest GPU memory request, in MiB.
    pub(super) gpu_memory: i64,
}

impl Demand {
    pub(super) fn of(cluster: &Cluster, group: GroupIdx) -> Self {
        let mut kinds: Vec<(ShapeIdx, i64)> = Vec::new();
        for (_, set) in cluster.groups[group].pod_sets() {
            let pods = set.pods.iter().map(|pod| &cluster.pods[*pod]);
            let pending = pods.filter(|pod| pod.state.status == Status::Pending);
            kinds.extend(pending.map(|pod| (pod.shape, pod.claim_gpus)));
        }
        kinds.sort_unstable();
        let gpu_memory =
            kinds.iter().map(|(shape, _)| cluster.shapes[*shape].memory_on(0)).max().unwrap_or(0);
        let mut requests: Vec<(Amounts, usize)> = kinds
            .chunk_by(|a, b| a == b)
            .map(|equal| (request(cluster, equal[0].0, equal[0].1), equal.len()))
            .collect();
        requests.sort_by(|(a, _), (b, _)| ascending(cluster, a, b));
        Self { requests, pods: kinds.len(), gpu_memory }
    }

    /// Whether it has fewer pods, or a pod that requests less than its counterpart and no more of any resource.
    pub(super) fn is_easier_than(&self, other: &Self) -> bool {
        self.pods > 0
            && (self.pods < other.pods || self.beside(other).any(|(own, its)| own.fits(its) && own != its))
    }

    /// Whether it has no more pods, and none that requests more than its counterpart.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.pods <= other.pods && self.beside(other).all(|(own, its)| own.fits(its))
    }

    /// Pairs of requests at equal positions, each pair once.
    fn beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Amounts, &'a Amounts)> {
        let (mut ours, mut theirs) = (self.requests.iter(), other.requests.iter());
        let (mut own, mut its) = (ours.next(), theirs.next());
        let (mut own_left, mut its_left) = (own.map_or(0, |r| r.1), its.map_or(0, |r| r.1));
        std::iter::from_fn(move || {
            let pair = (&own?.0, &its?.0);
            let shared = own_left.min(its_left);
            own_left -= shared;
            its_left -= shared;
            if own_left == 0 {
                own = ours.next();
                own_left = own.map_or(0, |r| r.1);
            }
            if its_left == 0 {
                its = theirs.next();
                its_left = its.map_or(0, |r| r.1);
            }
            Some(pair)
        })
    }
}

/// Resource request of a pod. Requests by GPU memory count no GPUs, since the fraction depends on the node.
fn request(cluster: &Cluster, shape: ShapeIdx, claim_gpus: i64) -> Amounts {
    let shape = &cluster.shapes[shape];
    let mut request = shape.request.clone();
    let shared = match shape.gpu {
        GpuRequest::Fraction { hundredths, devices } => {
            i64::from(hundredths) * i64::from(devices) * (WHOLE_GPU / 100)
        }
        GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Memory { .. } | GpuRequest::Mig => 0,
    };
    request.add(resource::GPU, shared + claim_gpus);
    request
}

/// Compares requests by dimension: the fixed ones in their order, then the others by name, so that the order in which
/// extended resources were registered has no influence.
fn ascending(cluster: &Cluster, left: &Amounts, right: &Amounts) -> Ordering {
    let fixed = resource::PODS.index() + 1;
    let compare = |dim: Dim| left.get(dim).cmp(&right.get(dim));
    let order = (0..fixed).map(Dim::new).map(compare).find(|order| order.is_ne());
    order.unwrap_or_else(|| {
        let others = (fixed..left.len().max(right.len())).map(Dim::new).filter(|dim| compare(*dim).is_ne());
        let first = others.min_by_key(|dim| cluster.text(cluster.dims.name(*dim)));
        first.map_or(Ordering::Equal, compare)
    })
}

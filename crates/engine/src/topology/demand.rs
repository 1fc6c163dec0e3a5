//! Aggregate request of the pods of a placement, for measuring domains.

use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::ids::{Idx, PodIdx};
use crate::input::GpuRequest;
use crate::resource::{self, Dim, WHOLE_GPU};
use smallvec::SmallVec;

/// Aggregate request of pods.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Number of pods.
    pub count: i64,
    /// Per dimension: the sum and the maximum of the requests.
    columns: SmallVec<[Column; 6]>,
    /// All of them request the same dimensions.
    uniform: bool,
    /// They request pod slots only.
    only_slots: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    total: i64,
    largest: i64,
    /// Number of pods that request it.
    users: i64,
    /// Backed by a device class: node ledgers do not account for it.
    backed: bool,
}

impl Demand {
    /// The aggregate request of pods.
    pub fn of(cluster: &Cluster, pods: &[PodIdx]) -> Self {
        let mut columns: SmallVec<[Column; 6]> = (0..cluster.dims.len())
            .map(|i| {
                let dim = Dim::new(i);
                let backed = dim != resource::GPU && cluster.is_device_backed(cluster.dims.name(dim));
                Column { backed, ..Column::default() }
            })
            .collect();
        let kind = |pod: &PodIdx| (cluster.pods[*pod].shape, cluster.pods[*pod].claim_gpus);
        for alike in pods.chunk_by(|a, b| kind(a) == kind(b)) {
            let shape = cluster.shape(alike[0]);
            let gpus = shape_gpus(shape.gpu, shape.request.get(resource::GPU));
            let gpus = gpus + cluster.pods[alike[0]].claim_gpus;
            for (i, column) in columns.iter_mut().enumerate() {
                let dim = Dim::new(i);
                column.add(if dim == resource::GPU { gpus } else { shape.request.get(dim) }, alike.len());
            }
        }
        let count = pods.len() as i64;
        let uniform = columns.iter().enumerate().all(|(i, column)| {
            [resource::CPU, resource::MEMORY].contains(&Dim::new(i)) || [0, count].contains(&column.users)
        });
        let only_slots =
            columns.iter().enumerate().all(|(i, c)| c.largest <= 0 || i == resource::PODS.index());
        Self { count, columns, uniform, only_slots }
    }

    /// All pods request the same dimensions, so that the largest of them can represent each.
    pub fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// Dimensions by which domains are compared, with the sum of the requests; pod slots not included.
    pub(super) fn requested(&self) -> impl Iterator<Item = (Dim, i64)> + '_ {
        let compared = |(i, column): &(usize, &Column)| {
            column.total > 0 && !column.backed && Dim::new(*i) != resource::PODS
        };
        self.columns.iter().enumerate().filter(compared).map(|(i, column)| (Dim::new(i), column.total))
    }

    /// How many pods as large as the largest fit a node, now or after releasing pods have terminated.
    ///
    /// For requests below one GPU, free memory of shared GPUs counts as one sum; fragmentation is left to the
    /// placement.
    pub fn capacity_on(&self, node: &Node) -> i64 {
        if self.only_slots {
            return self.count;
        }
        let mut most = i64::MAX;
        for (i, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.backed) {
            let dim = Dim::new(i);
            let pods = if dim == resource::GPU && (1..WHOLE_GPU).contains(&column.largest) {
                shares_on(node, column.largest)
            } else {
                times(column.largest, node.free(dim))
            };
            most = most.min(pods);
        }
        if most == i64::MAX { self.count } else { most }
    }
}

impl Column {
    fn add(&mut self, amount: i64, pods: usize) {
        let pods = pods as i64;
        self.total = self.total.saturating_add(amount.saturating_mul(pods));
        self.largest = self.largest.max(amount);
        self.users += if amount > 0 { pods } else { 0 };
    }
}

/// GPUs by which domains are measured; requests by memory have no GPU amount before a node is known.
fn shape_gpus(gpu: GpuRequest, whole: i64) -> i64 {
    match gpu {
        GpuRequest::Fraction { hundredths, devices } => {
            i64::from(hundredths) * i64::from(devices) * (WHOLE_GPU / 100)
        }
        GpuRequest::Memory { .. } => 0,
        GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Mig => whole,
    }
}

/// How often an amount fits; an overcommitted dimension fits no pod, even one that requests none of it.
fn times(requested: i64, free: i64) -> i64 {
    match (requested, free) {
        (_, ..0) => 0,
        (..=0, _) => i64::MAX,
        (requested, free) => free / requested,
    }
}

/// How many fractional GPU requests fit the idle and shared GPUs of a node.
fn shares_on(node: &Node, requested: i64) -> i64 {
    let memory = node.gpu_memory.mib;
    // A shared GPU with releasing pods only counts as a whole one already.
    let shared = node.ledger.gpus.iter().filter(|gpu| gpu.used > 0 && !gpu.drained && !gpu.all_releasing());
    let left: i64 = shared.map(|gpu| (memory - gpu.allocated + gpu.releasing).max(0)).sum();
    let free =
        i128::from(node.free(resource::GPU)) * i128::from(memory) + i128::from(left) * i128::from(WHOLE_GPU);
    if free < 0 { 0 } else { (free / (i128::from(requested) * i128::from(memory.max(1)))) as i64 }
}

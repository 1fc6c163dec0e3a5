//! The pods of a pending group that are placed next, with their GPU requests.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::order::member::{Selection, pods_to_place};
use crate::plugin::Registry;
use crate::resource::QueueResource;
use crate::share::reclaim::ReclaimAmount;
use crate::share::{QueueAmounts, sum};

/// The pods of a group's next scheduling step, in task order.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    pub group: GroupIdx,
    pub pods: Vec<PodIdx>,
    /// GPUs per pod, in millionths; requests by GPU memory count as 0.
    gpus: Vec<i64>,
    /// Number of pods before the first that requests a fraction of a GPU.
    whole: usize,
}

/// The first pods of a pending request: the subject of one probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPart<'a> {
    pub group: GroupIdx,
    pub pods: &'a [PodIdx],
    pub gpus: &'a [i64],
    least: i64,
    has_shared: bool,
}

impl PendingRequest {
    pub(crate) fn of(cluster: &Cluster, registry: &Registry, group: GroupIdx) -> Self {
        let pods = pods_to_place(cluster, registry, group, Selection::Simulated);
        let gpus = pods.iter().map(|pod| cluster.queue_request(*pod, None)[QueueResource::Gpu]).collect();
        let is_shared = |pod: &PodIdx| cluster.shape(*pod).is_shared();
        let whole = pods.iter().position(is_shared).unwrap_or(pods.len());
        Self { group, pods, gpus, whole }
    }

    pub(crate) fn first(&self, count: usize) -> RequestPart<'_> {
        let gpus = &self.gpus[..count];
        RequestPart {
            group: self.group,
            pods: &self.pods[..count],
            gpus,
            least: gpus.iter().copied().min().unwrap_or(0),
            has_shared: count > self.whole,
        }
    }

    pub(crate) fn whole(&self) -> RequestPart<'_> {
        self.first(self.pods.len())
    }
}

impl RequestPart<'_> {
    /// Queue resources of the pods; requests by GPU memory are converted with the smallest GPU.
    pub(crate) fn amounts(&self, cluster: &Cluster) -> QueueAmounts {
        let reference = cluster.figures.gpu_memory_min;
        self.pods.iter().fold([0; 3], |all, pod| sum(&all, &cluster.queue_request(*pod, reference)))
    }

    /// The same with the involved resources.
    pub(crate) fn reclaim_amount(&self, cluster: &Cluster) -> ReclaimAmount {
        let mut amount = ReclaimAmount::all_involved(self.amounts(cluster));
        let mig: i64 = self.pods.iter().map(|pod| cluster.shape(*pod).mig_quota).sum();
        amount.involved[QueueResource::Gpu] = amount.amounts[QueueResource::Gpu] > mig;
        amount
    }

    /// GPUs of the smallest pod.
    pub(crate) fn least_gpus(&self) -> i64 {
        self.least
    }

    /// GPUs of the smallest pod where they are a bound: a fraction may fit beside pipelined pods, which idle GPUs do
    /// not show.
    pub(crate) fn bounding_gpus(&self) -> i64 {
        if self.has_shared { 0 } else { self.least }
    }

    /// Whether GPUs of device plugins bound the number of pods: pods that share GPUs or use devices may need fewer than
    /// they request.
    pub(crate) fn is_bounded_by_gpus(&self, cluster: &Cluster) -> bool {
        let takes_devices = |pod: &PodIdx| cluster.pods[*pod].has_claims() || cluster.requests_devices(*pod);
        self.bounding_gpus() > 0 && !self.pods.iter().any(takes_devices)
    }

    pub(crate) fn is_even(&self) -> bool {
        self.gpus.iter().all(|gpus| *gpus == self.gpus[0])
    }
}

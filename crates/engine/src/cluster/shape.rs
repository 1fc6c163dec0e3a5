//! Interned pod specifications, with everything that filters and scores read of a pod.

use crate::class::ClassIdx;
use crate::dra::ExtendedRequest;
use crate::input::{GpuRequest, SharedSpec};
use crate::intern::Interner;
use crate::numa::NumaRequests;
use crate::resource::{self, AMOUNT_MAX, Amounts, Dims, WHOLE_GPU};
use crate::terms::TermRefs;

/// A distinct specification.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The specification it was resolved from.
    pub spec: SharedSpec,
    /// Requested amounts, pod slot included; GPUs of shared requests are not part of it.
    pub request: Amounts,
    /// Overhead part of `request`.
    pub overhead: Amounts,
    /// GPU request.
    pub gpu: GpuRequest,
    /// Quota charge of its MIG instances, in millionths of a GPU.
    pub mig_quota: i64,
    /// Scheduling class: node descriptions that accept it.
    pub class: ClassIdx,
    /// Pod affinity terms, spread constraints.
    pub terms: TermRefs,
    /// Requests for NUMA alignment.
    pub numa: NumaRequests,
    /// Extended resources that device classes back.
    pub extended: Option<ExtendedRequest>,
}

impl Shape {
    /// A fractional request, by share or by memory.
    pub fn is_shared(&self) -> bool {
        matches!(self.gpu, GpuRequest::Fraction { .. } | GpuRequest::Memory { .. })
    }
    /// Devices of a shared request, or whole GPUs.
    pub fn devices(&self) -> u32 {
        match self.gpu {
            GpuRequest::Fraction { devices, .. } | GpuRequest::Memory { devices, .. } => devices,
            GpuRequest::Whole(count) => count,
            GpuRequest::None | GpuRequest::Mig => 0,
        }
    }
    /// Requests neither GPUs nor MIG instances; device claims belong to the pod and are not considered.
    pub fn is_cpu_only(&self) -> bool {
        match self.gpu {
            GpuRequest::None => self.request.get(resource::GPU) == 0 && self.mig_quota == 0,
            GpuRequest::Whole(count) => count == 0,
            GpuRequest::Fraction { .. } | GpuRequest::Memory { .. } | GpuRequest::Mig => false,
        }
    }
    /// MiB that a shared request uses of each device.
    pub fn memory_on(&self, gpu_memory: i64) -> i64 {
        match self.gpu {
            GpuRequest::Fraction { hundredths, .. } => i64::from(hundredths).saturating_mul(gpu_memory) / 100,
            GpuRequest::Memory { mib, .. } => mib,
            GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Mig => 0,
        }
    }
    /// Hundredths of each device that a shared request uses, rounded up.
    pub fn hundredths_on(&self, gpu_memory: i64) -> i64 {
        match self.gpu {
            GpuRequest::Fraction { hundredths, .. } => i64::from(hundredths),
            GpuRequest::Memory { mib, .. } => {
                mib.saturating_mul(100).saturating_add(gpu_memory - 1) / gpu_memory.max(1)
            }
            GpuRequest::Whole(_) => 100,
            GpuRequest::None | GpuRequest::Mig => 0,
        }
    }
    /// Quota charge on a node with such GPUs, in millionths of a GPU.
    pub fn quota_on(&self, gpu_memory: i64) -> i64 {
        // Sums over pods must not overflow, whatever a pod requests.
        let plain = if self.is_shared() {
            let hundredths = self.hundredths_on(gpu_memory).saturating_mul(i64::from(self.devices()));
            hundredths.saturating_mul(WHOLE_GPU / 100).min(AMOUNT_MAX)
        } else {
            self.request.get(resource::GPU)
        };
        plain + self.mig_quota
    }
    /// Quota charge before a node is known; requests by memory are measured by a reference GPU, or 0 without one.
    pub fn quota_estimate(&self, reference_memory: Option<i64>) -> i64 {
        match (self.gpu, reference_memory) {
            (GpuRequest::Memory { mib, devices }, Some(memory)) => {
                let gpus = i128::from(devices) * i128::from(mib) * i128::from(WHOLE_GPU);
                i64::try_from(gpus / i128::from(memory.max(1))).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
            }
            (GpuRequest::Memory { .. }, None) => 0,
            (GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Fraction { .. } | GpuRequest::Mig, _) => {
                self.quota_on(100)
            }
        }
    }
}

/// Resolves a specification.
pub(crate) fn resolve(
    spec: SharedSpec,
    class: ClassIdx,
    terms: TermRefs,
    dims: &mut Dims,
    names: &mut Interner,
) -> Shape {
    let mut request = dims.request(&spec.request, names);
    request.add(resource::PODS, 1);
    let overhead = dims.request(&spec.overhead, names);
    let mig_quota = dims.mig_quota(&request);
    let numa = NumaRequests::build(&spec, dims, names);
    Shape { gpu: spec.gpu, request, overhead, mig_quota, class, terms, numa, extended: None, spec }
}

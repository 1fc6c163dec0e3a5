//! Distinct pod specifications, with everything a filter or score reads of a pod.

use crate::class::ClassIdx;
use crate::dra::ExtendedRequest;
use crate::input::{GpuRequest, SharedSpec};
use crate::intern::Interner;
use crate::numa::NumaRequests;
use crate::resource::{self, Amounts, Dims, WHOLE_GPU};
use crate::terms::TermRefs;

/// A distinct specification.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The value it was made from.
    pub spec: SharedSpec,
    /// What it takes of a node, pod slot included; GPUs of shared requests are not in here.
    pub request: Amounts,
    /// Overhead part of `request`.
    pub overhead: Amounts,
    /// GPUs wanted.
    pub gpu: GpuRequest,
    /// GPUs of quota its MIG instances cost, in millionths.
    pub mig_quota: i64,
    /// The class of node descriptions that accept it.
    pub class: ClassIdx,
    /// Pod affinity terms, spread constraints.
    pub terms: TermRefs,
    /// What NUMA alignment reads of it.
    pub numa: NumaRequests,
    /// What it wants of resources that device classes back.
    pub extended: Option<ExtendedRequest>,
}

impl Shape {
    /// The request is for a part of one or more GPUs.
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
    /// Neither GPUs of any kind nor MIG instances are wanted (device claims are the pod's, not the shape's).
    pub fn is_cpu_only(&self) -> bool {
        match self.gpu {
            GpuRequest::None => self.request.get(resource::GPU) == 0 && self.mig_quota == 0,
            GpuRequest::Whole(count) => count == 0,
            GpuRequest::Fraction { .. } | GpuRequest::Memory { .. } | GpuRequest::Mig => false,
        }
    }
    /// Memory in MiB that a shared request takes of each device on a node.
    pub fn memory_on(&self, gpu_memory: i64) -> i64 {
        match self.gpu {
            GpuRequest::Fraction { hundredths, .. } => i64::from(hundredths) * gpu_memory / 100,
            GpuRequest::Memory { mib, .. } => mib,
            GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Mig => 0,
        }
    }
    /// Hundredths of each device that a shared request takes on a node, rounded up.
    pub fn hundredths_on(&self, gpu_memory: i64) -> i64 {
        match self.gpu {
            GpuRequest::Fraction { hundredths, .. } => i64::from(hundredths),
            GpuRequest::Memory { mib, .. } => (mib.saturating_mul(100) + gpu_memory - 1) / gpu_memory.max(1),
            GpuRequest::Whole(_) => 100,
            GpuRequest::None | GpuRequest::Mig => 0,
        }
    }
    /// GPUs of quota that the shape takes when it sits on a node with such GPUs, in millionths.
    pub fn quota_on(&self, gpu_memory: i64) -> i64 {
        let plain = if self.is_shared() {
            self.hundredths_on(gpu_memory) * i64::from(self.devices()) * (WHOLE_GPU / 100)
        } else {
            self.request.get(resource::GPU)
        };
        plain + self.mig_quota
    }
    /// GPUs of quota before a node is known; requests by memory count against a reference GPU, or 0 without one.
    pub fn quota_estimate(&self, reference_memory: Option<i64>) -> i64 {
        match (self.gpu, reference_memory) {
            (GpuRequest::Memory { mib, devices }, Some(memory)) => {
                (i128::from(devices) * i128::from(mib) * i128::from(WHOLE_GPU) / i128::from(memory.max(1)))
                    as i64
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
    let mut request = dims.amounts(&spec.request, names);
    request.add(resource::PODS, 1);
    let overhead = dims.amounts(&spec.overhead, names);
    let mig_quota = dims.mig_quota(&request);
    let numa = NumaRequests::build(&spec, dims, names);
    Shape { gpu: spec.gpu, request, overhead, mig_quota, class, terms, numa, extended: None, spec }
}

//! NUMA requests of a pod, as a whole and per container.

use super::is_device;
use crate::input::{ContainerRequest, SpecInput};
use crate::intern::Interner;
use crate::resource::{Amounts, CPU, Dims};

/// Millicores of one core: the CPU manager pins whole cores only.
const WHOLE_CORE: i64 = 1000;

/// The requests of a pod as the kubelet's topology manager sees them. CPU is included only where the kubelet pins it:
/// containers with whole cores in Guaranteed pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumaRequests {
    /// Its quality-of-service class is Guaranteed.
    pub guaranteed: bool,
    /// Some container requests a device.
    pub devices: bool,
    /// The pod as one unit, for scope `pod`.
    pub pod_scope: Amounts,
    /// Sidecars, then app containers: they run at the same time.
    pub concurrent: Vec<Amounts>,
    /// Ordinary init containers: each runs alone.
    pub serial: Vec<Amounts>,
}

impl NumaRequests {
    /// Resolves the containers of a pod.
    pub fn build(spec: &SpecInput, dims: &mut Dims, names: &mut Interner) -> Self {
        let (mut sidecars, mut apps, mut serial) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = Amounts::zero();
        let mut peak = Amounts::zero();
        for container in &spec.containers {
            let request = pinned(container, spec.guaranteed, dims, names);
            if container.sidecar {
                before += &request;
                sidecars.push(request);
            } else if container.init {
                let mut moment = before.clone();
                moment += &request;
                peak.max_with(&moment);
                serial.push(request);
            } else {
                apps.push(request);
            }
        }
        let mut pod_scope = Amounts::zero();
        for request in sidecars.iter().chain(&apps) {
            pod_scope += request;
        }
        pod_scope.max_with(&peak);
        sidecars.append(&mut apps);
        let is_device_request = |(name, amount): &(String, i64)| *amount > 0 && is_device(name);
        Self {
            guaranteed: spec.guaranteed,
            devices: spec.containers.iter().flat_map(|c| &c.request).any(is_device_request),
            pod_scope,
            concurrent: sidecars,
            serial,
        }
    }

    /// Whether NUMA alignment can apply to the pod on any node.
    pub fn needs_alignment(&self) -> bool {
        self.guaranteed || self.devices
    }
}

/// A container's request, with CPU only where it is pinned.
fn pinned(container: &ContainerRequest, guaranteed: bool, dims: &mut Dims, names: &mut Interner) -> Amounts {
    let mut request = dims.request(&container.request, names);
    if !guaranteed || request.get(CPU) % WHOLE_CORE != 0 {
        request.set(CPU, 0);
    }
    request
}

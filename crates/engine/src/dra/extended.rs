//! Extended resources that a device class backs, and the claim for them (KEP-5004).
//!
//! Containers that run for the pod's whole lifetime get a request each. An ordinary init container ends before later
//! containers start, so that it reuses their devices; all init containers share what they need beyond that.

use super::claim::{Alternative, DeviceClaim, Request};
use super::inventory::Inventory;
use crate::ids::Sym;
use crate::input::{self, ContainerRequest, RequestMode, WHOLE_GPU};
use crate::intern::Interner;
use crate::resource::{Dim, Dims};
use smallvec::SmallVec;

/// One extended resource in the base unit of amounts.
const WHOLE_ITEM: i64 = 1000;

/// A pod's requests for resources that device classes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedRequest {
    resources: Vec<Backed>,
}

/// One resource that a class backs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Backed {
    dim: Dim,
    name: Sym,
    class: Sym,
    gpu: bool,
    demands: Vec<ContainerDemand>,
}

/// One container's request for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContainerDemand {
    container: usize,
    container_name: Sym,
    request: Sym,
    count: u64,
    runs_on: bool,
}

/// The claim for a pod's extended resources on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyntheticClaim {
    /// Requests.
    pub spec: DeviceClaim,
    /// Container, resource and request names.
    pub mappings: Vec<(Sym, Sym, Sym)>,
}

impl SyntheticClaim {
    /// Request name, class and count of each request.
    pub fn requests(&self) -> impl Iterator<Item = (Sym, Sym, u32)> {
        self.spec.alternatives().map(|a| {
            let count = match a.mode {
                RequestMode::Exactly(count) => u32::try_from(count).unwrap_or(u32::MAX),
                RequestMode::All | RequestMode::Unknown => 0,
            };
            (a.label, a.class, count)
        })
    }
}

impl ExtendedRequest {
    /// Resolves a pod's containers; none when no class backs a requested resource.
    pub fn build(
        containers: &[ContainerRequest],
        inventory: &Inventory,
        dims: &mut Dims,
        names: &mut Interner,
    ) -> Option<Self> {
        let mut resources: Vec<Backed> = Vec::new();
        // Init containers come first in the numbering of containers.
        let is_init = |c: &&ContainerRequest| c.init || c.sidecar;
        let ordered = containers.iter().filter(is_init).chain(containers.iter().filter(|c| !is_init(c)));
        for (at, container) in ordered.enumerate() {
            let mut requested: Vec<&(String, i64)> = container.request.iter().collect();
            requested.sort();
            for (order, (resource, amount)) in requested.into_iter().enumerate() {
                let unit = if resource == input::GPU { WHOLE_GPU } else { WHOLE_ITEM };
                let count = u64::try_from(amount / unit).unwrap_or(0);
                let backing = names.find(resource).and_then(|r| inventory.class_backing(r));
                let Some(class) = backing.filter(|_| count > 0) else { continue };
                let dim = dims.requested(resource, names);
                // Other resources, which no device backs, may share it.
                if dims.is_unoffered(dim) {
                    continue;
                }
                let demand = ContainerDemand {
                    container: at,
                    container_name: names.intern(&container.name),
                    request: names.intern(&format!("container-{at}-request-{order}")),
                    count,
                    runs_on: container.sidecar || !container.init,
                };
                match resources.iter_mut().find(|r| r.dim == dim) {
                    Some(backed) => backed.demands.push(demand),
                    None => resources.push(Backed::new(resource, dim, class, demand, inventory, names)),
                }
            }
        }
        resources.sort_by(|a, b| names.text(a.name).cmp(names.text(b.name)));
        (!resources.is_empty()).then_some(Self { resources })
    }

    /// Resources that a class backs.
    pub fn dims(&self) -> impl Iterator<Item = Dim> {
        self.resources.iter().map(|r| r.dim)
    }

    /// The claim for a node that lacks some of the resources; none when it has all of them.
    pub fn claim_for(&self, lacks: impl Fn(Dim) -> bool) -> Option<SyntheticClaim> {
        let mut claim = SyntheticClaim::default();
        for resource in self.resources.iter().filter(|r| lacks(r.dim)) {
            resource.add_to(&mut claim);
        }
        (!claim.spec.requests.is_empty()).then_some(claim)
    }
}

impl Backed {
    fn new(
        resource: &str,
        dim: Dim,
        class: Sym,
        demand: ContainerDemand,
        inventory: &Inventory,
        names: &mut Interner,
    ) -> Self {
        let gpu = resource == input::GPU;
        let shown = if gpu { inventory.gpu_resource_name(class).unwrap_or(resource) } else { resource };
        Self { dim, name: names.intern(shown), class, gpu, demands: vec![demand] }
    }

    fn add_to(&self, claim: &mut SyntheticClaim) {
        for demand in self.demands.iter().filter(|w| w.runs_on) {
            claim.spec.requests.push(self.request(demand.request, demand.count));
            claim.mappings.push((demand.container_name, self.name, demand.request));
        }
        let mut extra: SmallVec<[(&ContainerDemand, u64); 2]> = SmallVec::new();
        for demand in self.demands.iter().filter(|w| !w.runs_on) {
            let mut missing = demand.count;
            for later in self.demands.iter().filter(|w| w.runs_on && w.container > demand.container) {
                if missing == 0 {
                    break;
                }
                missing = missing.saturating_sub(later.count);
                claim.mappings.push((demand.container_name, self.name, later.request));
            }
            if missing > 0 {
                extra.push((demand, missing));
            }
        }
        let Some(most) = extra.iter().map(|(_, missing)| *missing).max() else { return };
        let largest = extra.iter().find(|(_, missing)| *missing == most).map(|(demand, _)| demand.request);
        let Some(shared) = largest else { return };
        claim.spec.requests.push(self.request(shared, most));
        for (demand, _) in &extra {
            claim.mappings.push((demand.container_name, self.name, shared));
        }
    }

    fn request(&self, label: Sym, count: u64) -> Request {
        let alternative = Alternative {
            label,
            class: self.class,
            mode: RequestMode::Exactly(count),
            accepts: None,
            admin_access: false,
            tolerations: Vec::new(),
            constraints: SmallVec::new(),
            gpu: self.gpu,
        };
        Request { alternatives: vec![alternative], is_choice: false }
    }
}

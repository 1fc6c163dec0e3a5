//! Dynamic resource allocation: devices, claims, and the allocation of claims on a node (KEP-4381).
//!
//! Input: slices, classes, claims and pods' references to them, one object at a time. [`Devices::refresh`] resolves
//! changes; [`Devices::fit`] checks a pod on a node; [`Devices::reserve`] and [`Devices::release`] apply a decision
//! and return its undo.
//! Not here: CEL selectors, which the caller evaluates; nodes' resource vectors.

mod allocator;
mod claim;
mod claims;
mod demand;
mod extended;
mod fit;
mod inventory;
mod place;
mod pool;

pub use allocator::{DEVICES_MAX, STEPS_MAX, allocate};
pub use claim::{AllocatedDevice, Allocation, CONSUMERS_MAX, Claim, ClaimState, DeviceClaim};
pub use claims::{Claims, Reference, Undo};
pub use demand::{claim_gpus, gpu_demand, gpu_devices, mentions_gpu};
pub use extended::{ExtendedRequest, SyntheticClaim};
pub use fit::{Fit, Served, fit, precheck};
pub use inventory::{Device, DeviceIdx, DeviceName, Inventory, NodeDevices, PoolIdx, Touched};
pub use place::{NodeView, Place, Selector, Usable};

use crate::ids::{ClaimIdx, Sym};
use crate::input::{ClaimDevice, ClaimInput, DeviceClassInput, DeviceId, Key, PodClaim, SliceInput};
use crate::intern::Interner;
use crate::outcome::ExtendedClaim;
use crate::verdict::{ClaimRejection, PodRejection};
use smallvec::SmallVec;

/// The devices of a cluster and the claims on them.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Devices and classes.
    pub inventory: Inventory,
    /// Claims on them.
    pub claims: Claims,
}

impl Devices {
    /// Adds or replaces a slice.
    pub fn set_slice(&mut self, slice: SliceInput, names: &mut Interner) {
        self.inventory.set_slice(slice, names);
    }
    /// Removes a slice.
    pub fn remove_slice(&mut self, name: &str) {
        self.inventory.remove_slice(name);
    }
    /// Adds or replaces a class.
    pub fn set_class(&mut self, class: &DeviceClassInput, names: &mut Interner) {
        self.inventory.set_class(class, names);
    }
    /// Removes a class.
    pub fn remove_class(&mut self, name: &str, names: &mut Interner) {
        self.inventory.remove_class(name, names);
    }
    /// Adds or replaces a claim.
    pub fn set_claim(&mut self, claim: &ClaimInput, names: &mut Interner) -> ClaimIdx {
        self.claims.set(claim, &mut self.inventory, names)
    }
    /// Removes a claim.
    pub fn remove_claim(&mut self, key: &Key, names: &Interner) {
        self.claims.remove(key, names);
    }
    /// Adds or replaces a pod's claim references (by UID and namespace); `extended` are devices that an in-flight
    /// bind request assigns to its extended resources. Not needed for pods without either.
    pub fn set_pod(
        &mut self,
        pod: (Sym, Sym),
        claims: &[PodClaim],
        extended: &[DeviceId],
        names: &mut Interner,
    ) {
        self.claims.set_pod(pod, claims, extended, &mut self.inventory, names);
    }
    /// Removes a pod.
    pub fn remove_pod(&mut self, uid: Sym, names: &Interner) {
        self.claims.remove_pod(uid, names);
    }
    /// Resolves all changes; the returned nodes must be attached again.
    pub fn refresh(&mut self, names: &mut Interner) -> Touched {
        let touched = self.inventory.refresh(names);
        self.claims.refresh(&self.inventory);
        touched
    }
    /// Computes the devices that a node can use.
    pub fn attach(&mut self, node: &NodeView<'_>) {
        self.inventory.attach(node);
    }
    /// Removes a node.
    pub fn detach(&mut self, node: Sym) {
        self.inventory.detach(node);
    }

    /// GPUs that drivers' slices assign to a node.
    pub fn gpus_on(&self, node: Sym) -> u32 {
        self.inventory.gpus_on(node)
    }
    /// GPUs of a pod's claims, in millionths.
    pub fn gpu_demand(&self, uid: Sym) -> i64 {
        gpu_demand(&self.claims, &self.claims.related(uid))
    }
    /// GPU devices that a pod's claims hold, by id.
    pub fn gpu_devices(&self, uid: Sym) -> SmallVec<[Sym; 2]> {
        gpu_devices(&self.claims, &self.claims.related(uid), &self.inventory)
    }
    /// Whether a class backs an extended resource.
    pub fn backs(&self, resource: Sym) -> bool {
        self.inventory.class_backing(resource).is_some()
    }

    /// Checks a pod's claims, as far as they do not depend on a node.
    pub fn precheck(
        &self,
        pod: Sym,
        queue: Sym,
        served: Served,
        names: &Interner,
    ) -> Result<(), PodRejection> {
        precheck(&self.claims, &self.inventory, (pod, queue), served, names)
    }
    /// The devices that a pod's claims would be allocated on a node.
    pub fn fit(
        &self,
        pod: Sym,
        extended: Option<&SyntheticClaim>,
        node: &NodeView<'_>,
    ) -> Result<Fit, ClaimRejection> {
        fit(&self.claims, &self.inventory, &self.claims.named(pod), extended, node)
    }

    /// Reserves a pod's claims for it and allocates the found devices. Undo newest first.
    pub fn reserve(&mut self, pod: Sym, found: &Fit) -> SmallVec<[Undo; 2]> {
        let mut undo = SmallVec::new();
        for claim in self.claims.named(pod) {
            let allocation = found.claims.iter().find(|(c, _)| *c == claim).map(|(_, a)| a);
            undo.push(self.claims.reserve(claim, pod, allocation));
        }
        if let Some(extended) = &found.extended {
            let old = self.claims.replace_extended(pod, Some(std::sync::Arc::clone(extended)));
            undo.push(Undo::Extended(pod, old));
        }
        undo
    }
    /// Ends a pod's use of devices. Undo newest first.
    pub fn release(&mut self, pod: Sym) -> SmallVec<[Undo; 2]> {
        let mut undo = SmallVec::new();
        for claim in self.claims.related(pod) {
            if self.claims[claim].state.reserved_for.contains(&pod) {
                undo.push(self.claims.unreserve(claim, pod));
            }
        }
        if self.claims.extended(pod).is_some() {
            let old = self.claims.replace_extended(pod, None);
            undo.push(Undo::Extended(pod, old));
        }
        undo
    }
    /// Undoes one change; later ones must be undone before.
    pub fn undo(&mut self, undo: Undo) {
        self.claims.undo(undo);
    }

    /// Allocations of a pod's claims, by the pod's names for them.
    pub fn export(&self, pod: Sym, names: &Interner) -> Vec<(String, Vec<ClaimDevice>)> {
        let mut exported = Vec::new();
        for reference in self.claims.references(pod) {
            let claim = self.claims.resolve(pod, reference).map(|claim| &self.claims[claim]);
            if let Some(allocation) = claim.and_then(|claim| claim.state.allocation.as_ref()) {
                let devices = allocation.export(&self.inventory, names);
                exported.push((names.text(reference.name).to_owned(), devices));
            }
        }
        exported
    }
    /// Devices allocated to a pod's extended resources, with requests and mappings.
    pub fn export_extended(
        &self,
        pod: Sym,
        claim: &SyntheticClaim,
        names: &Interner,
    ) -> Option<ExtendedClaim> {
        let text = |sym| names.text(sym).to_owned();
        let allocation = self.claims.extended(pod)?;
        Some(ExtendedClaim {
            devices: allocation.export(&self.inventory, names),
            mappings: claim.mappings.iter().map(|(c, r, q)| (text(*c), text(*r), text(*q))).collect(),
            requests: claim.requests().map(|(name, class, count)| (text(name), text(class), count)).collect(),
        })
    }
}

#[cfg(test)]
mod tests;

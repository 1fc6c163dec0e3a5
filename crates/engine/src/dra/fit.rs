//! Checks whether a pod's claims can be allocated, in general and on one node.

use super::allocator::allocate;
use super::claim::{Allocation, CONSUMERS_MAX, DeviceClaim};
use super::claims::{Claims, Reference};
use super::extended::SyntheticClaim;
use super::inventory::Inventory;
use super::place::NodeView;
use crate::ids::{ClaimIdx, Sym};
use crate::intern::Interner;
use crate::verdict::{ClaimRejection, PodRejection};
use std::sync::Arc;

/// Whether the cluster serves device claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Served {
    /// Served.
    #[default]
    Yes,
    /// The API server does not serve a supported version of `resource.k8s.io`.
    No,
}

/// The devices that a pod's claims would be allocated on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Unallocated claims, with their new allocations.
    pub claims: Vec<(ClaimIdx, Arc<Allocation>)>,
    /// Allocation for extended resources.
    pub extended: Option<Arc<Allocation>>,
    /// Some of the devices belong to claims that are being released.
    pub waits: bool,
}

/// Checks that do not depend on a node.
pub fn precheck(
    claims: &Claims,
    inventory: &Inventory,
    (pod, queue): (Sym, Sym),
    served: Served,
    names: &Interner,
) -> Result<(), PodRejection> {
    let references = claims.references(pod);
    if served == Served::No && !references.is_empty() {
        let own = |reference: &Reference| names.text(reference.name).to_owned();
        return Err(PodRejection::ClaimsUnavailable(references.iter().map(own).collect()));
    }
    for reference in references {
        let name = || names.text(reference.claim.unwrap_or(reference.name)).to_owned();
        let index = claims.resolve(pod, reference).ok_or_else(|| {
            if reference.from_template {
                PodRejection::ClaimUnmade(name())
            } else {
                PodRejection::ClaimMissing(name())
            }
        })?;
        let claim = &claims[index];
        if claim.consumers() >= CONSUMERS_MAX && !claim.state.reserved_for.contains(&pod) {
            return Err(PodRejection::ClaimFull(name()));
        }
        if !reference.from_template && claim.requests_gpus() && claim.queue_label != Some(queue) {
            let label = claim.queue_label.map(|label| names.text(label).to_owned());
            return Err(PodRejection::ClaimQueueLabel(name(), label));
        }
        if claim.state.allocation.is_none() {
            let missing = claim.spec.alternatives().find(|a| !inventory.has_class(a.class));
            if let Some(alternative) = missing {
                return Err(PodRejection::DeviceClassMissing {
                    class: names.text(alternative.class).to_owned(),
                    claim: name(),
                    request: names.text(alternative.label).to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Checks one node: allocated claims must be usable from it; unallocated ones, and extended resources, must be
/// allocatable together, on devices that become free where too few are.
pub fn fit(
    claims: &Claims,
    inventory: &Inventory,
    claims_of_pod: &[ClaimIdx],
    extended: Option<&SyntheticClaim>,
    node: &NodeView<'_>,
) -> Result<Fit, ClaimRejection> {
    let mut open: Vec<ClaimIdx> = Vec::new();
    let mut specs: Vec<&DeviceClaim> = Vec::new();
    for &index in claims_of_pod {
        match &claims[index].state.allocation {
            Some(allocation) if !allocation.usable.reaches(node) => {
                return Err(ClaimRejection::ElsewhereAllocated);
            }
            Some(_) => {}
            None => {
                open.push(index);
                specs.push(&claims[index].spec);
            }
        }
    }
    specs.extend(extended.map(|extended| &extended.spec));
    if specs.is_empty() {
        return Ok(Fit::default());
    }
    let devices = inventory.on(node.name).ok_or(ClaimRejection::NoDevices)?;
    let in_use = |device| claims.times_in_use(device) > 0;
    let now = allocate(inventory, in_use, devices, &specs);
    let waits = now.is_none();
    let some_become_free = || devices.devices.iter().any(|device| claims.is_releasing(*device));
    let stays_in_use = |device| in_use(device) && !claims.is_releasing(device);
    let later = || some_become_free().then(|| allocate(inventory, stays_in_use, devices, &specs))?;
    let found = now.or_else(later).ok_or(ClaimRejection::NoDevices)?;
    let mut found = found.into_iter().map(Arc::new);
    let claims = open.into_iter().zip(found.by_ref()).collect();
    Ok(Fit { claims, extended: extended.and_then(|_| found.next()), waits })
}

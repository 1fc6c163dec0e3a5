//! Claims of a cluster, the pods that use them, and the devices they hold.
//!
//! Invariant: the use count of a device is the number of claims, and of pods through extended resources, that hold it
//! without admin access; those of claims whose consumers are all terminating or gone count as releasing too. Every change
//! returns an [`Undo`]; undoing in reverse order restores the state.

use super::claim::{AllocatedDevice, Allocation, Claim, ClaimState};
use super::inventory::{DeviceIdx, Inventory};
use crate::ids::{ClaimIdx, Idx, IndexVec, Sym};
use crate::input::{ClaimInput, DeviceId, Key, PodClaim};
use crate::intern::Interner;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Undoes one change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Undo {
    /// Previous state of a claim.
    Claim(ClaimIdx, ClaimState),
    /// Previous devices of a pod's extended resources.
    Extended(Sym, Option<Arc<Allocation>>),
}

/// A claim as a pod refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The pod's own name for it.
    pub name: Sym,
    /// Name of the claim object; none until it is created from its template.
    pub claim: Option<Sym>,
    /// Created from a template for this pod.
    pub from_template: bool,
    /// Devices that an in-flight bind request assigns.
    chosen: Vec<DeviceIdx>,
}

/// A pod's references to claims and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PodRefs {
    namespace: Option<Sym>,
    claims: Vec<Reference>,
    /// Devices that an in-flight bind request assigns to extended resources.
    extended: Vec<DeviceIdx>,
}

impl PodRefs {
    fn has_chosen(&self) -> bool {
        !self.extended.is_empty() || self.claims.iter().any(|c| !c.chosen.is_empty())
    }
}

/// All claims.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    slots: IndexVec<ClaimIdx, Claim>,
    free: Vec<ClaimIdx>,
    by_key: FxHashMap<(Sym, Sym), ClaimIdx>,
    /// Claims by the pod that owns them, and by the first pod in `status.reservedFor`.
    by_pod: FxHashMap<Sym, SmallVec<[ClaimIdx; 2]>>,
    pods: FxHashMap<Sym, PodRefs>,
    /// Pods with in-flight bind requests, by UID.
    choosers: BTreeMap<String, Sym>,
    /// Devices that pods hold for extended resources without a claim object.
    extended: BTreeMap<Sym, Arc<Allocation>>,
    in_use: IndexVec<DeviceIdx, u32>,
    /// The part of `in_use` that ends when the consumers of claims are gone.
    releasing: IndexVec<DeviceIdx, u32>,
    stale: BTreeSet<ClaimIdx>,
    stale_extended: bool,
}

impl std::ops::Index<ClaimIdx> for Claims {
    type Output = Claim;
    fn index(&self, claim: ClaimIdx) -> &Claim {
        &self.slots[claim]
    }
}

impl Claims {
    /// A claim by namespace and name.
    pub fn find(&self, namespace: Sym, name: Sym) -> Option<ClaimIdx> {
        self.by_key.get(&(namespace, name)).copied()
    }

    /// Use count of a device.
    pub fn times_in_use(&self, device: DeviceIdx) -> u32 {
        self.in_use.get(device).copied().unwrap_or(0)
    }

    /// Whether a device is in use by claims only that are being released.
    pub fn is_releasing(&self, device: DeviceIdx) -> bool {
        let releasing = self.releasing.get(device).copied().unwrap_or(0);
        releasing > 0 && releasing == self.times_in_use(device)
    }

    /// Adds or replaces a claim; its state is that of its object.
    pub fn set(&mut self, input: &ClaimInput, inventory: &mut Inventory, names: &mut Interner) -> ClaimIdx {
        let claim = Claim::build(input, inventory, names);
        let key = (claim.namespace, claim.name);
        let index = match self.by_key.get(&key) {
            Some(&index) => {
                self.vacate(index);
                index
            }
            None => self.free.pop().unwrap_or_else(|| ClaimIdx::new(self.slots.len())),
        };
        self.by_key.insert(key, index);
        for pod in claim.owner.iter().chain(claim.observed.reserved_for.first()) {
            let claims = self.by_pod.entry(*pod).or_default();
            if !claims.contains(&index) {
                claims.push(index);
            }
        }
        if index.index() == self.slots.len() {
            self.slots.push(claim);
        } else {
            self.slots[index] = claim;
        }
        self.count_claim(index, Direction::Take);
        self.stale.insert(index);
        index
    }

    /// Removes a claim.
    pub fn remove(&mut self, key: &Key, names: &Interner) {
        let found = names.find(&key.namespace).zip(names.find(&key.name));
        if let Some(index) = found.and_then(|key| self.by_key.remove(&key)) {
            self.vacate(index);
            self.slots[index].present = false;
            self.free.push(index);
        }
    }

    /// Removes a claim from every index but that of keys.
    fn vacate(&mut self, index: ClaimIdx) {
        self.count_claim(index, Direction::Return);
        let claim = &mut self.slots[index];
        claim.state = ClaimState::default();
        for pod in claim.owner.iter().chain(claim.observed.reserved_for.first()) {
            if let Some(claims) = self.by_pod.get_mut(pod) {
                claims.retain(|c| *c != index);
                if claims.is_empty() {
                    self.by_pod.remove(pod);
                }
            }
        }
        self.stale.remove(&index);
        // The devices of an in-flight bind request for extended resources may be those of this claim.
        self.stale_extended = true;
    }

    /// Adds or replaces a pod's claim references, and the devices of its in-flight bind request.
    pub fn set_pod(
        &mut self,
        (uid, namespace): (Sym, Sym),
        claims: &[PodClaim],
        extended: &[DeviceId],
        inventory: &mut Inventory,
        names: &mut Interner,
    ) {
        self.remove_pod(uid, names);
        if claims.is_empty() && extended.is_empty() {
            return;
        }
        let references = claims.iter().map(|claim| Reference {
            name: names.intern(&claim.name),
            claim: claim.claim.as_ref().map(|name| names.intern(name)),
            from_template: claim.from_template,
            chosen: claim.chosen.iter().map(|id| inventory.device(id, names)).collect(),
        });
        let claims = references.collect();
        let extended = extended.iter().map(|id| inventory.device(id, names)).collect();
        let refs = PodRefs { namespace: Some(namespace), claims, extended };
        if refs.has_chosen() {
            self.choosers.insert(names.text(uid).to_owned(), uid);
        }
        self.pods.insert(uid, refs);
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, uid: Sym, names: &Interner) {
        let Some(refs) = self.pods.remove(&uid) else { return };
        if refs.has_chosen() {
            self.choosers.remove(names.text(uid));
            self.stale_extended |= !refs.extended.is_empty();
            let claims = refs.claims.iter().filter(|c| !c.chosen.is_empty());
            let claims = claims.filter_map(|c| self.find(refs.namespace?, c.claim?));
            let claims: Vec<ClaimIdx> = claims.collect();
            self.stale.extend(claims);
        }
    }

    /// Resets changed claims, and claims without a bind request any more, to their objects' state; then assumes the
    /// devices of in-flight bind requests.
    pub fn refresh(&mut self, inventory: &Inventory) {
        for index in std::mem::take(&mut self.stale) {
            if self.slots[index].present {
                let observed = self.slots[index].observed.clone();
                self.replace(index, observed);
            }
        }
        if std::mem::take(&mut self.stale_extended) {
            for allocation in std::mem::take(&mut self.extended).into_values() {
                count(&mut self.in_use, Some(&allocation), Direction::Return);
            }
        }
        let choosers: Vec<Sym> = self.choosers.values().copied().collect();
        for uid in choosers {
            self.assume(uid, inventory);
        }
    }

    fn assume(&mut self, uid: Sym, inventory: &Inventory) {
        let Some(refs) = self.pods.get(&uid).cloned() else { return };
        for reference in refs.claims.iter().filter(|c| !c.chosen.is_empty()) {
            let claim = refs.namespace.zip(reference.claim).and_then(|(ns, name)| self.find(ns, name));
            let Some(index) = claim else { continue };
            let mut state = self.slots[index].state.clone();
            if state.allocation.is_none() {
                let spec = &self.slots[index].spec;
                let serves = |device| spec.alternatives().find(|a| a.selects(device, inventory));
                let label = |device| serves(device).map_or(self.slots[index].name, |a| a.label);
                state.allocation = Some(chosen(&reference.chosen, label, inventory));
            }
            if !state.reserved_for.contains(&uid) {
                state.reserved_for.push(uid);
            }
            self.replace(index, state);
        }
        let made = |index: &ClaimIdx| {
            self.slots[*index].synthetic && self.slots[*index].observed.allocation.is_some()
        };
        let is_made = self.by_pod.get(&uid).is_some_and(|claims| claims.iter().any(made));
        if !refs.extended.is_empty() && !is_made && !self.extended.contains_key(&uid) {
            self.replace_extended(uid, Some(chosen(&refs.extended, |_| uid, inventory)));
        }
    }

    /// A pod's claim references.
    pub fn references(&self, uid: Sym) -> &[Reference] {
        self.pods.get(&uid).map_or(&[], |refs| &refs.claims)
    }

    /// The claims that a pod references, each once, in its order; missing ones are skipped.
    pub fn named(&self, uid: Sym) -> SmallVec<[ClaimIdx; 2]> {
        let mut found: SmallVec<[ClaimIdx; 2]> = SmallVec::new();
        let Some(refs) = self.pods.get(&uid) else { return found };
        let named = refs.claims.iter().filter_map(|c| self.find(refs.namespace?, c.claim?));
        for claim in named {
            if !found.contains(&claim) {
                found.push(claim);
            }
        }
        found
    }

    /// The claim behind one reference of a pod.
    pub fn resolve(&self, uid: Sym, reference: &Reference) -> Option<ClaimIdx> {
        self.find(self.pods.get(&uid)?.namespace?, reference.claim?)
    }

    /// Claims related to a pod: referenced by it, owned by it, or reserved for it first.
    pub fn related(&self, uid: Sym) -> SmallVec<[ClaimIdx; 2]> {
        let mut found = self.named(uid);
        let others = self.by_pod.get(&uid);
        let mut others: SmallVec<[ClaimIdx; 2]> = others.cloned().unwrap_or_default();
        others.sort_unstable_by_key(|c| (self.slots[*c].namespace, self.slots[*c].name));
        for claim in others {
            if !found.contains(&claim) {
                found.push(claim);
            }
        }
        found
    }

    /// Replaces a claim's state and returns the previous one.
    pub fn replace(&mut self, claim: ClaimIdx, state: ClaimState) -> ClaimState {
        self.count_claim(claim, Direction::Return);
        let old = std::mem::replace(&mut self.slots[claim].state, state);
        self.count_claim(claim, Direction::Take);
        old
    }

    /// Counts the devices of a claim in its state.
    fn count_claim(&mut self, index: ClaimIdx, direction: Direction) {
        let claim = &self.slots[index];
        let allocation = claim.state.allocation.as_deref();
        count(&mut self.in_use, allocation, direction);
        if claim.is_releasing() {
            count(&mut self.releasing, allocation, direction);
        }
    }

    /// Replaces the devices of a pod's extended resources and returns the previous ones.
    pub fn replace_extended(
        &mut self,
        uid: Sym,
        allocation: Option<Arc<Allocation>>,
    ) -> Option<Arc<Allocation>> {
        count(&mut self.in_use, allocation.as_deref(), Direction::Take);
        let old = match allocation {
            Some(allocation) => self.extended.insert(uid, allocation),
            None => self.extended.remove(&uid),
        };
        count(&mut self.in_use, old.as_deref(), Direction::Return);
        old
    }

    /// Devices that a pod holds for extended resources without a claim object.
    pub fn extended(&self, uid: Sym) -> Option<&Arc<Allocation>> {
        self.extended.get(&uid)
    }

    /// Reserves a claim for a pod, and allocates it if it has no allocation.
    pub fn reserve(&mut self, claim: ClaimIdx, uid: Sym, allocation: Option<&Arc<Allocation>>) -> Undo {
        let mut state = self.slots[claim].state.clone();
        if state.allocation.is_none() {
            state.allocation = allocation.map(Arc::clone);
        }
        if !state.reserved_for.contains(&uid) {
            state.reserved_for.push(uid);
        }
        Undo::Claim(claim, self.replace(claim, state))
    }

    /// Ends a pod's reservation; without consumers the claim is deallocated.
    pub fn unreserve(&mut self, claim: ClaimIdx, uid: Sym) -> Undo {
        let mut state = self.slots[claim].state.clone();
        state.reserved_for.retain(|pod| *pod != uid);
        if state.reserved_for.is_empty() && self.slots[claim].other_consumers == 0 {
            state.allocation = None;
        }
        Undo::Claim(claim, self.replace(claim, state))
    }

    /// Undoes a change; later changes must be undone before.
    pub fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Claim(claim, state) => {
                self.replace(claim, state);
            }
            Undo::Extended(uid, allocation) => {
                self.replace_extended(uid, allocation);
            }
        }
    }
}

/// An allocation of devices that a bind request names without request names.
fn chosen(devices: &[DeviceIdx], label: impl Fn(DeviceIdx) -> Sym, inventory: &Inventory) -> Arc<Allocation> {
    let allocated = devices.iter().map(|device| AllocatedDevice {
        request: label(*device),
        device: *device,
        admin_access: false,
    });
    Arc::new(Allocation::of(allocated.collect(), inventory))
}

#[derive(Clone, Copy)]
enum Direction {
    Take,
    Return,
}

/// Updates the use counts of the devices in an allocation.
fn count(in_use: &mut IndexVec<DeviceIdx, u32>, allocation: Option<&Allocation>, direction: Direction) {
    for allocated in allocation.into_iter().flat_map(|a| &a.devices).filter(|g| !g.admin_access) {
        in_use.grow(allocated.device.index() + 1, 0);
        let count = &mut in_use[allocated.device];
        match direction {
            Direction::Take => *count += 1,
            Direction::Return => *count -= 1,
        }
    }
}

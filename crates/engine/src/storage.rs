//! Volumes: the storage that pods need, and the nodes that can serve it.
//!
//! [`prefilter`](Storage::prefilter) checks once per pod whether its claims can be served, `filter` checks per node
//! (kube-scheduler's `VolumeBinding`, `VolumeZone` and `NodeVolumeLimits`). With simulated CSI storage, the free
//! amount of each capacity is tracked as pods are placed and removed ([`open_accounting`](Storage::open_accounting)).
//! Not here: provisioning or binding volumes.

mod capacities;
mod csi;
#[cfg(test)]
mod tests;
mod volumes;

pub use csi::{ClassLack, OwnedClaims, VolumePod};
pub use volumes::{CapacityCheck, VolumeNode};

use crate::class::NodeTerms;
use crate::ids::Sym;
use crate::input::{CapacityInput, ClaimPhase, Key, StorageClassInput, VolumeClaimInput, VolumeInput};
use crate::intern::Interner;
use crate::verdict::{PodRejection, VolumeClaimProblem};
use capacities::Capacities;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Namespace and name.
type SymKey = (Sym, Sym);

/// All storage objects.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    claims: FxHashMap<SymKey, Claim>,
    volumes: FxHashMap<Sym, Volume>,
    /// Volumes that a claim may be bound to, by class, smallest first.
    available: FxHashMap<Option<Sym>, BTreeSet<(i64, Sym)>>,
    classes: FxHashMap<Sym, Class>,
    capacities: Capacities,
    zone_keys: volumes::ZoneKeys,
    csi: csi::Accounting,
}

#[derive(Clone, Debug)]
struct Claim {
    phase: ClaimPhase,
    class: Option<Sym>,
    bytes: i64,
    volume: Option<Sym>,
    owner_pod: Option<Sym>,
    deleting: bool,
    selected_node: Option<Sym>,
}

#[derive(Clone, Debug)]
struct Volume {
    class: Option<Sym>,
    bytes: i64,
    claim: Option<SymKey>,
    available: bool,
    nodes: NodeTerms,
    zones: Box<[volumes::Zone]>,
    driver: Option<Sym>,
}

#[derive(Clone, Debug)]
struct Class {
    provisioner: Sym,
    wait_for_consumer: bool,
    tracks_capacity: bool,
    makes_volumes: bool,
    allowed: NodeTerms,
}

impl Claim {
    /// The volume it is bound to, once binding is complete.
    fn bound_volume(&self) -> Option<Sym> {
        self.volume.filter(|_| self.phase == ClaimPhase::Bound)
    }
}

impl Class {
    /// Its free capacity is simulated.
    fn is_simulated(&self) -> bool {
        self.wait_for_consumer && self.tracks_capacity
    }
}

impl Storage {
    /// Sets a claim.
    pub fn set_claim(&mut self, input: &VolumeClaimInput, names: &mut Interner) {
        let key = intern_key(&input.key, names);
        let claim = Claim {
            phase: input.phase,
            class: intern_some(&input.class, names),
            bytes: input.bytes,
            volume: input.volume.as_deref().and_then(|v| intern_some(v, names)),
            owner_pod: input.owner_pod.as_deref().map(|uid| names.intern(uid)),
            deleting: input.deleting,
            selected_node: input.selected_node.as_deref().map(|node| names.intern(node)),
        };
        self.claims.insert(key, claim);
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, key: &Key, names: &mut Interner) {
        self.claims.remove(&intern_key(key, names));
    }

    /// Class, bytes and phase of a claim.
    pub(crate) fn claim_traits(&self, namespace: Sym, name: Sym) -> Option<(Option<Sym>, i64, ClaimPhase)> {
        self.claims.get(&(namespace, name)).map(|claim| (claim.class, claim.bytes, claim.phase))
    }

    /// Sets a volume.
    pub fn set_volume(&mut self, input: &VolumeInput, names: &mut Interner) {
        self.remove_volume(&input.name, names);
        let name = names.intern(&input.name);
        let volume = Volume {
            class: intern_some(&input.class, names),
            bytes: input.bytes,
            claim: input.claim.as_ref().map(|key| intern_key(key, names)),
            available: input.available,
            nodes: NodeTerms::resolve(&input.node_terms, names),
            zones: input
                .zones
                .iter()
                .map(|(key, values)| volumes::Zone::resolve(key, values, names))
                .collect(),
            driver: input.driver.as_deref().and_then(|d| intern_some(d, names)),
        };
        if !volume.zones.is_empty() {
            self.zone_keys.fill(names);
        }
        if volume.available {
            self.available.entry(volume.class).or_default().insert((volume.bytes, name));
        }
        self.volumes.insert(name, volume);
    }

    /// Removes a volume.
    pub fn remove_volume(&mut self, name: &str, names: &mut Interner) {
        let name = names.intern(name);
        if let Some(old) = self.volumes.remove(&name)
            && let Some(available) = self.available.get_mut(&old.class)
        {
            available.remove(&(old.bytes, name));
        }
    }

    /// Sets a storage class.
    pub fn set_class(&mut self, input: &StorageClassInput, names: &mut Interner) {
        let class = Class {
            provisioner: names.intern(&input.provisioner),
            wait_for_consumer: input.wait_for_consumer,
            tracks_capacity: input.tracks_capacity,
            makes_volumes: !input.no_provisioner && !input.provisioner.is_empty(),
            allowed: NodeTerms::resolve(&input.allowed, names),
        };
        self.classes.insert(names.intern(&input.name), class);
    }

    /// Removes a storage class.
    pub fn remove_class(&mut self, name: &str, names: &mut Interner) {
        self.classes.remove(&names.intern(name));
    }

    /// Sets a capacity.
    pub fn set_capacity(&mut self, input: &CapacityInput, names: &mut Interner) {
        self.capacities.set(input, names);
        self.csi.unlink();
    }

    /// Removes a capacity.
    pub fn remove_capacity(&mut self, key: &Key, names: &mut Interner) {
        self.capacities.remove(intern_key(key, names));
        self.csi.unlink();
    }

    /// Whether a pod's claims, by name in its namespace, can be served by any node.
    pub fn prefilter(&self, namespace: Sym, claims: &[Sym], names: &Interner) -> Result<(), PodRejection> {
        let text = |claim: &Sym| names.text(*claim).to_owned();
        let problem = |name: &Sym| match self.claims.get(&(namespace, *name)) {
            None => Some(VolumeClaimProblem::Missing),
            Some(claim) if claim.phase == ClaimPhase::Lost => {
                Some(VolumeClaimProblem::Lost(claim.volume.as_ref().map(text).unwrap_or_default()))
            }
            Some(claim) => claim.deleting.then_some(VolumeClaimProblem::Deleting),
        };
        if let Some((name, problem)) = claims.iter().find_map(|name| Some((name, problem(name)?))) {
            return Err(PodRejection::VolumeClaim(text(name), problem));
        }
        let is_too_early = |name: &&Sym| {
            let claim = self.claims.get(&(namespace, **name));
            claim.is_some_and(|claim| claim.bound_volume().is_none() && !self.waits_for_consumer(claim))
        };
        match claims.iter().find(is_too_early) {
            Some(early) => Err(PodRejection::UnboundImmediate(text(early))),
            None => Ok(()),
        }
    }

    /// The claim is bound when its pod is scheduled (`WaitForFirstConsumer`).
    fn waits_for_consumer(&self, claim: &Claim) -> bool {
        claim.volume.is_none() && self.class_of(claim).is_some_and(|class| class.wait_for_consumer)
    }

    fn class_of(&self, claim: &Claim) -> Option<&Class> {
        self.classes.get(&claim.class?)
    }
}

fn intern_key(key: &Key, names: &mut Interner) -> SymKey {
    (names.intern(&key.namespace), names.intern(&key.name))
}

fn intern_some(text: &str, names: &mut Interner) -> Option<Sym> {
    (!text.is_empty()).then(|| names.intern(text))
}

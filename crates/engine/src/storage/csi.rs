//! Simulated CSI storage: free amount of each capacity while pods are placed and removed.
//!
//! Covers claims of `WaitForFirstConsumer` classes whose driver tracks capacity. An unbound claim of a pod on a node
//! is charged once to the capacity that applies to the node, regardless of the number of pods that use it. Claims
//! that a releasing pod owns are deleted with it: eventually their size is free again on its node.
//! Invariant: the accounting is a function of the pods placed and not unplaced since it was opened.

use super::{Claim, Storage, SymKey};
use crate::ids::{Idx, IndexVec, NodeIdx, Sym};
use crate::input::ClaimPhase;
use crate::terms::Presence;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A pod, as storage sees it.
#[derive(Clone, Copy, Debug)]
pub struct VolumePod<'a> {
    /// Its namespace.
    pub namespace: Sym,
    /// Its unique id.
    pub uid: Sym,
    /// Its claims, by name in its namespace.
    pub claims: &'a [Sym],
}

/// How claims that are owned by a single pod are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedClaims {
    /// As their objects are.
    AsObserved,
    /// The pod was evicted in this cycle: they are deleted with it, and provisioned again on its next node.
    Remade,
}

/// A storage class that lacks capacity on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassLack {
    /// Its capacity is smaller than requested.
    Capacity(Sym),
    /// None of its capacities reaches the node.
    Unreachable(Sym),
}

/// Charges and capacities of the simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Accounting {
    open: bool,
    linked: bool,
    /// The capacity of each class that applies to a node, by slot.
    reach: IndexVec<NodeIdx, SmallVec<[(Sym, u32); 1]>>,
    /// Bytes charged to each capacity by unbound claims.
    charged: Vec<i64>,
    /// Number of placed pods per claim and capacity.
    holders: FxHashMap<(u32, SymKey), u32>,
    /// Bytes that claims owned by releasing pods free, by node and class.
    releasing: FxHashMap<(NodeIdx, Sym), i64>,
    /// Claims whose owner exists and is not releasing.
    owned: FxHashSet<SymKey>,
}

impl Accounting {
    /// The mapping of capacities to nodes is outdated.
    pub(super) fn unlink(&mut self) {
        self.linked = false;
    }
}

impl Storage {
    /// Whether [`link`](Self::link) must run before accounting is opened. Changed node labels require it as well.
    pub fn needs_link(&self) -> bool {
        !self.csi.linked
    }

    /// Maps capacities to nodes. A node with two capacities of one class counts as having none: the capacity that a
    /// volume would use is ambiguous.
    pub fn link<'a>(&mut self, nodes: impl Iterator<Item = (NodeIdx, &'a [(Sym, Sym)])>) {
        self.csi.reach.clear();
        for (node, labels) in nodes {
            let mut seen: SmallVec<[(Sym, u32); 1]> =
                self.capacities.reaching(labels).map(|(slot, capacity)| (capacity.class, slot)).collect();
            seen.sort_unstable();
            if seen.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                seen.clear();
            }
            self.csi.reach.grow(node.index() + 1, SmallVec::new());
            self.csi.reach[node] = seen;
        }
        self.csi.linked = true;
    }

    /// Opens the accounting for a cycle, given every pod with claims and its node.
    pub fn open_accounting<'a>(
        &mut self,
        pods: impl Iterator<Item = (VolumePod<'a>, Option<NodeIdx>, Presence)>,
    ) {
        self.close_accounting();
        self.csi.open = true;
        self.csi.charged.resize(self.capacities.slots(), 0);
        for (pod, node, presence) in pods {
            if presence == Presence::Active {
                let its_own =
                    self.simulated_claims(&pod).filter(|(_, claim)| claim.owner_pod == Some(pod.uid));
                let keys: SmallVec<[SymKey; 2]> = its_own.map(|(key, _)| key).collect();
                self.csi.owned.extend(keys);
            }
            if let Some(node) = node {
                self.place(&pod, node, presence);
            }
        }
    }

    /// Ends the simulation; without accounting everything fits.
    pub fn close_accounting(&mut self) {
        let Accounting { open, linked: _, reach: _, charged, holders, releasing, owned } = &mut self.csi;
        *open = false;
        charged.clear();
        holders.clear();
        releasing.clear();
        owned.clear();
    }

    /// Counts a pod placed on a node.
    pub fn place(&mut self, pod: &VolumePod<'_>, node: NodeIdx, presence: Presence) {
        for (key, class, bytes, role) in self.entries(pod, presence) {
            match role {
                Role::Takes => {
                    let Some(slot) = self.capacity_at(node, class) else { continue };
                    let holders = self.csi.holders.entry((slot, key)).or_default();
                    *holders += 1;
                    if *holders == 1 {
                        self.csi.charged[slot as usize] += bytes;
                    }
                }
                Role::GivesBack => *self.csi.releasing.entry((node, class)).or_default() += bytes,
            }
        }
    }

    /// Removes a placed pod, given the same values.
    pub fn unplace(&mut self, pod: &VolumePod<'_>, node: NodeIdx, presence: Presence) {
        for (key, class, bytes, role) in self.entries(pod, presence) {
            match role {
                Role::Takes => {
                    let Some(slot) = self.capacity_at(node, class) else { continue };
                    let holders = self.csi.holders.get_mut(&(slot, key)).expect("the pod was placed");
                    *holders -= 1;
                    if *holders == 0 {
                        self.csi.holders.remove(&(slot, key));
                        self.csi.charged[slot as usize] -= bytes;
                    }
                }
                Role::GivesBack => {
                    let freed = self.csi.releasing.get_mut(&(node, class)).expect("the pod was placed");
                    *freed -= bytes;
                    if *freed == 0 {
                        self.csi.releasing.remove(&(node, class));
                    }
                }
            }
        }
    }

    /// Whether a node has capacity for a pod's unbound claims now. A claim whose owner is gone will be deleted and
    /// prevents a fit.
    pub fn fits_now(&self, pod: &VolumePod<'_>, node: NodeIdx, owned: OwnedClaims) -> bool {
        let is_orphan =
            |(key, claim): (SymKey, &Claim)| claim.owner_pod.is_some() && !self.csi.owned.contains(&key);
        !self.csi.open
            || (!self.simulated_claims(pod).any(is_orphan)
                && self.first_lack(pod, node, owned, |_| 0).is_none())
    }

    /// Whether a node has capacity for a pod's unbound claims, including what releasing pods free.
    pub fn fits_eventually(&self, pod: &VolumePod<'_>, node: NodeIdx, owned: OwnedClaims) -> bool {
        self.lacking_class(pod, node, owned).is_none()
    }

    /// The first class that lacks capacity for a pod's unbound claims, including what releasing pods free.
    pub fn lacking_class(&self, pod: &VolumePod<'_>, node: NodeIdx, owned: OwnedClaims) -> Option<ClassLack> {
        let freed = |class| self.csi.releasing.get(&(node, class)).copied().unwrap_or(0);
        if self.csi.open { self.first_lack(pod, node, owned, freed) } else { None }
    }

    fn first_lack(
        &self,
        pod: &VolumePod<'_>,
        node: NodeIdx,
        owned: OwnedClaims,
        freed: impl Fn(Sym) -> i64,
    ) -> Option<ClassLack> {
        let mut requested: SmallVec<[(Sym, i64); 2]> = SmallVec::new();
        for (_, claim) in self.simulated_claims(pod) {
            let remade = owned == OwnedClaims::Remade && claim.owner_pod == Some(pod.uid);
            let (true, Some(class)) = (claim.phase == ClaimPhase::Pending || remade, claim.class) else {
                continue;
            };
            match requested.iter_mut().find(|(c, _)| *c == class) {
                Some((_, bytes)) => *bytes += claim.bytes,
                None => requested.push((class, claim.bytes)),
            }
        }
        requested.iter().find_map(|&(class, bytes)| {
            let Some(slot) = self.capacity_at(node, class) else {
                return Some(ClassLack::Unreachable(class));
            };
            let reported = self.capacities.get(slot).map_or(0, |capacity| capacity.bytes);
            let free = reported - self.csi.charged[slot as usize] + freed(class);
            (bytes > free).then_some(ClassLack::Capacity(class))
        })
    }

    /// A pod's effect on the accounting, per claim.
    fn entries(&self, pod: &VolumePod<'_>, presence: Presence) -> SmallVec<[Entry; 2]> {
        let mut entries = SmallVec::new();
        if !self.csi.open {
            return entries;
        }
        for (key, claim) in self.simulated_claims(pod) {
            let Some(class) = claim.class else { continue };
            if claim.phase == ClaimPhase::Pending {
                entries.push((key, class, claim.bytes, Role::Takes));
            }
            if presence == Presence::Releasing && claim.owner_pod == Some(pod.uid) {
                entries.push((key, class, claim.bytes, Role::GivesBack));
            }
        }
        entries
    }

    /// The pod's simulated claims, each once.
    fn simulated_claims<'a>(&'a self, pod: &VolumePod<'a>) -> impl Iterator<Item = (SymKey, &'a Claim)> {
        let VolumePod { namespace, claims, .. } = *pod;
        let first = move |(at, name): &(usize, &Sym)| !claims[..*at].contains(name);
        let distinct = claims.iter().enumerate().filter(first);
        distinct
            .filter_map(move |(_, &name)| Some(((namespace, name), self.claims.get(&(namespace, name))?)))
            .filter(|(_, claim)| self.class_of(claim).is_some_and(super::Class::is_simulated))
    }

    fn capacity_at(&self, node: NodeIdx, class: Sym) -> Option<u32> {
        let reach = self.csi.reach.get(node)?;
        reach.iter().find(|(c, _)| *c == class).map(|(_, slot)| *slot)
    }
}

/// Claim, class, bytes and role.
type Entry = (SymKey, Sym, i64, Role);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Is charged to a capacity.
    Takes,
    /// Is freed on its node eventually.
    GivesBack,
}

//! Scheduling signatures: one failed eviction search represents all equivalent groups.
//!
//! Two groups have the same signature when their pending pods have the same node, volume and pod constraints under the
//! same topology constraints; amounts are not part of it. A group with the signature of a failed one that is not easier
//! to schedule fails as well: [`Representatives`] stores the failed groups (KAI: `MinimalJobRepresentatives`).
//! A signature is the index of an interned value, so that equal indices mean equal values. The part that needs strings
//! is computed once per shape. Signatures are compared within one cycle and never ordered.

mod demand;
mod failed;
#[cfg(test)]
mod tests;

pub use failed::{Comparison, Representatives, Scope};

use crate::class::ClassIdx;
use crate::cluster::Cluster;
use crate::cluster::group::{Constraint, Group};
use crate::ids::{GroupIdx, IndexVec, MemberIdx, PodIdx, ShapeIdx, Sym};
use crate::input::{AffinityTerm, ClaimPhase, HostPort, SpreadConstraint, WeightedTerm};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Signature of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSignature(u32);

/// Signature of a pod set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSetSignature(u32);

/// Signature of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSignature(u32);

/// Interned signatures of one cycle.
#[derive(Debug, Default)]
pub struct Signatures {
    by_shape: IndexVec<ShapeIdx, Option<PodSignature>>,
    traits: FxHashMap<Traits, PodSignature>,
    with_volumes: FxHashMap<(PodSignature, Volumes), PodSignature>,
    pod_sets: FxHashMap<PodSetValue, PodSetSignature>,
    groups: FxHashMap<SmallVec<[PodSetSignature; 4]>, GroupSignature>,
}

/// Scheduling constraints of a pod besides resources.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Traits {
    class: ClassIdx,
    affinity: Vec<AffinityTerm>,
    anti_affinity: Vec<AffinityTerm>,
    preferred_affinity: Vec<WeightedTerm>,
    spread: Vec<SpreadConstraint>,
    ports: Vec<HostPort>,
    priority_class: (String, i32),
}

/// Class, bytes and phase of each volume claim of a pod, sorted; `None` for a missing claim.
type Volumes = SmallVec<[Option<(Option<Sym>, i64, ClaimPhase)>; 2]>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct PodSetValue {
    /// Topology constraints of the member and its ancestors, innermost first.
    constraints: SmallVec<[Option<Constraint>; 4]>,
    /// Number of unplaced pods per signature, sorted.
    pods: SmallVec<[(PodSignature, u32); 2]>,
}

impl Signatures {
    /// Interns the signature of a pod.
    pub fn of_pod(&mut self, cluster: &Cluster, pod: PodIdx) -> PodSignature {
        let p = &cluster.pods[pod];
        let plain = self.of_shape(cluster, p.shape);
        let claims = p.extra.as_ref().map_or(&[][..], |extra| &extra.volumes);
        if claims.is_empty() {
            return plain;
        }
        let mut volumes: Volumes =
            claims.iter().map(|claim| cluster.storage.claim_traits(p.namespace, *claim)).collect();
        volumes.sort_unstable_by_key(|v| v.map(|(class, bytes, phase)| (class, bytes, phase as u8)));
        let next = self.next_pod();
        *self.with_volumes.entry((plain, volumes)).or_insert(next)
    }

    fn of_shape(&mut self, cluster: &Cluster, shape: ShapeIdx) -> PodSignature {
        self.by_shape.grow(cluster.shapes.len(), None);
        if let Some(known) = self.by_shape[shape] {
            return known;
        }
        let (spec, class) = (&cluster.shapes[shape].spec, cluster.shapes[shape].class);
        let traits = Traits {
            class,
            affinity: spec.affinity.clone(),
            anti_affinity: spec.anti_affinity.clone(),
            preferred_affinity: spec.preferred_affinity.clone(),
            spread: spec.spread.clone(),
            ports: spec.ports.clone(),
            priority_class: spec.priority_class.clone(),
        };
        let next = self.next_pod();
        let signature = *self.traits.entry(traits).or_insert(next);
        self.by_shape[shape] = Some(signature);
        signature
    }

    /// The next free index: pods with and without volumes share one range.
    fn next_pod(&self) -> PodSignature {
        PodSignature(number(self.traits.len() + self.with_volumes.len()))
    }

    /// Interns the signature of a pod set; `None` when all its pods are placed.
    pub fn of_pod_set(
        &mut self,
        cluster: &Cluster,
        group: GroupIdx,
        member: MemberIdx,
    ) -> Option<PodSetSignature> {
        let g = &cluster.groups[group];
        let set = g.members[member].pod_set()?;
        let mut pods: Vec<PodSignature> = Vec::new();
        for &pod in &set.pods {
            if !cluster.pods[pod].state.status.is_active_allocated() {
                pods.push(self.of_pod(cluster, pod));
            }
        }
        if pods.is_empty() {
            return None;
        }
        pods.sort_unstable();
        let value = PodSetValue {
            constraints: constraints(g, member),
            pods: pods.chunk_by(PodSignature::eq).map(|equal| (equal[0], number(equal.len()))).collect(),
        };
        let next = PodSetSignature(number(self.pod_sets.len()));
        Some(*self.pod_sets.entry(value).or_insert(next))
    }

    /// Interns the signature of a group: those of its pod sets, independent of their names and order.
    pub fn of_group(&mut self, cluster: &Cluster, group: GroupIdx) -> GroupSignature {
        let mut sets = SmallVec::new();
        for (member, _) in cluster.groups[group].pod_sets() {
            sets.extend(self.of_pod_set(cluster, group, member));
        }
        sets.sort_unstable();
        let next = GroupSignature(number(self.groups.len()));
        *self.groups.entry(sets).or_insert(next)
    }
}

fn constraints(group: &Group, member: MemberIdx) -> SmallVec<[Option<Constraint>; 4]> {
    std::iter::successors(Some(member), |m| group.members[*m].parent)
        .map(|m| group.members[m].topology)
        .collect()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2^32 pods")
}

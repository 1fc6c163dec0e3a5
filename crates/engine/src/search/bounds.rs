//! Proves that no set of victims can be sufficient, from the sums of free and evictable resources.
//!
//! Evictions only add free capacity, so that a request beyond these sums fits no plan. Pods placed in this cycle return
//! to their nodes and add nothing.

use super::accumulate::freed_by;
use super::node_capacity::NodeCapacity;
use super::pending_request::RequestPart;
use super::rules::Rules;
use super::victims::Candidates;
use crate::cluster::Cluster;
use crate::cluster::group::Constraint;
use crate::ids::{DomainIdx, GroupIdx, Idx, IndexVec, MemberIdx, NodeIdx, PodIdx, QueueIdx};
use crate::order::evict::EvictablePods;
use crate::order::tree_walk::leaf_of;
use crate::outcome::Cause;
use crate::place::{held_nodes, is_below};
use crate::resource::{CPU, Dim, GPU, MEMORY, PODS};
use crate::share::sum;
use crate::topology::{Levels, Topology};
use crate::verdict::{EvictionFailureReason, QueueResource};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Queue resources in the order in which a shortage is reported.
const OF_QUEUES: [QueueResource; 3] = [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// Requests of some pods, summed by dimension.
type Requested = SmallVec<[(Dim, i64); 4]>;

/// Inputs of the bounds.
pub(crate) struct Bounds<'a> {
    pub cluster: &'a Cluster,
    pub rules: &'a Rules<'a>,
    pub capacity: &'a NodeCapacity,
    pub candidates: &'a Candidates,
    /// Leaf queues whose groups may be victims, sorted.
    pub leaves: &'a [QueueIdx],
    /// The nodes that the pods may use, where these are not all.
    pub eligible: Option<&'a FixedBitSet>,
}

impl Bounds<'_> {
    /// The first bound that the request exceeds.
    pub(crate) fn rejection(&self, part: &RequestPart<'_>) -> Option<EvictionFailureReason> {
        self.of_queues(part)
            .or_else(|| self.of_others(part))
            .or_else(|| self.of_domains(part))
            .or_else(|| self.of_eligible_nodes(part))
    }

    /// GPUs that are free or evictable on the nodes that the pods may use.
    fn of_eligible_nodes(&self, part: &RequestPart<'_>) -> Option<EvictionFailureReason> {
        // Pods that this cycle evicted or moved are not among the pods of their nodes.
        let eligible = self.eligible.filter(|_| !self.rules.capacity_was_freed)?;
        let (gpus, pods) = (part.bounding_gpus(), part.pods.len() as i64);
        let mut fitting = 0;
        for node in eligible.ones().map(NodeIdx::new) {
            fitting += (self.capacity.gpus(node) + self.evictable_on(node)).max(0) / gpus;
            if fitting >= pods {
                return None;
            }
        }
        let (pods, fitting) = (u32::try_from(pods).ok()?, u32::try_from(fitting).ok()?);
        Some(EvictionFailureReason::NodesTooSmall { pods, fitting, gpus })
    }

    /// GPUs that evictions free on a node.
    fn evictable_on(&self, node: NodeIdx) -> i64 {
        let is_victim = |pod: &&PodIdx| {
            let p = &self.cluster.pods[**pod];
            let allowed = |group: GroupIdx| {
                let leaf = leaf_of(self.cluster, group);
                self.cluster.groups[group].preemptible
                    && leaf.is_some_and(|leaf| self.leaves.binary_search(&leaf).is_ok())
                    && self.rules.allow_group(self.cluster, group)
            };
            p.state.status.is_active_allocated() && p.group.is_some_and(allowed)
        };
        let victims = self.cluster.nodes[node].pods.iter().filter(is_victim);
        victims.filter_map(|pod| freed_by(self.cluster, *pod)).map(|(_, gpus)| gpus).sum()
    }

    /// Moved pods need as much elsewhere, so that a consolidation can use only what is free.
    fn moves_only(&self) -> bool {
        self.rules.cause == Cause::Consolidation
    }

    fn of_queues(&self, part: &RequestPart<'_>) -> Option<EvictionFailureReason> {
        let amounts = |leaf: &QueueIdx| self.candidates.total_of(*leaf);
        let evictable = self.leaves.iter().fold([0; 3], |all, leaf| sum(&all, &amounts(leaf)));
        let free = self.capacity.totals();
        let mut requested =
            part.pods.iter().fold([0; 3], |all, pod| sum(&all, &self.cluster.queue_request(*pod, None)));
        // A consolidation checks GPUs before the search.
        if !part.is_bounded_by_gpus(self.cluster) || self.moves_only() {
            requested[QueueResource::Gpu] = 0;
        }
        let resource = OF_QUEUES.into_iter().find(|&resource| {
            let evictable = if self.moves_only() { 0 } else { evictable[resource] };
            requested[resource] > free[resource] + evictable
        })?;
        let (requested, free) = (requested[resource], free[resource]);
        if self.moves_only() {
            return Some(EvictionFailureReason::InsufficientFree { resource, requested, free });
        }
        let queues = self.leaves.iter().filter(|leaf| amounts(leaf)[resource] > 0).count() as u32;
        Some(EvictionFailureReason::InsufficientEvictable {
            resource,
            requested,
            free,
            evictable: evictable[resource],
            queues,
        })
    }

    /// Resources that queues do not account for.
    fn of_others(&self, part: &RequestPart<'_>) -> Option<EvictionFailureReason> {
        let requested = self.requested(part.pods, |dim| ![CPU, MEMORY, GPU].contains(&dim));
        if requested.is_empty() {
            return None;
        }
        let (mut free, mut evictable) = (vec![0; requested.len()], vec![0; requested.len()]);
        for &node in &self.cluster.nodes_by_rank {
            self.add_free(node, &requested, &mut free);
        }
        if !self.moves_only() {
            self.each_victim(|pod, _| self.add_held(pod, &requested, &mut evictable));
        }
        let short = (0..requested.len()).find(|&at| requested[at].1 > free[at] + evictable[at])?;
        let (dim, requested) = requested[short];
        let resource = self.cluster.text(self.cluster.dims.name(dim)).to_owned();
        let (free, evictable) = (free[short], evictable[short]);
        Some(EvictionFailureReason::InsufficientEvictableOther { resource, requested, free, evictable })
    }

    /// Topology domains that must hold all pods of a member.
    fn of_domains(&self, part: &RequestPart<'_>) -> Option<EvictionFailureReason> {
        if !self.rules.policy.registry.builtin.topology {
            return None;
        }
        let members = self.cluster.groups[part.group].members.enumerated();
        members
            .filter_map(|(member, m)| Some((member, m.topology.as_ref()?)))
            .find_map(|(member, constraint)| self.of_domain(part, member, constraint))
    }

    fn of_domain(
        &self,
        part: &RequestPart<'_>,
        member: MemberIdx,
        constraint: &Constraint,
    ) -> Option<EvictionFailureReason> {
        let topology = self.cluster.topologies.get(constraint.topology)?;
        let level = constraint.required.filter(|_| Levels::of(topology, constraint).is_some())?;
        let depth = topology.depth_of(level)?;
        let below = |pod: &PodIdx| is_below(self.cluster, part.group, *pod, member);
        let pods: Vec<PodIdx> = part.pods.iter().copied().filter(below).collect();
        let requested = self.requested(&pods, |dim| dim != GPU || part.is_bounded_by_gpus(self.cluster));
        if requested.is_empty() {
            return None;
        }
        let of_node = |node: NodeIdx| Some(topology.ancestor_at(topology.innermost(node)?, depth));
        let held = held_nodes(self.cluster, part.group, member);
        let held: Vec<DomainIdx> = held.into_iter().filter_map(of_node).collect();
        let most = self.most_in_domains(topology, depth, &requested);
        let mut best: Option<(DomainIdx, Gap)> = None;
        for (domain, d) in topology.domains().filter(|(_, d)| d.depth == depth) {
            if d.nodes.is_empty() || !(held.is_empty() || held.contains(&domain)) {
                continue;
            }
            let gaps = requested.iter().zip(&most[domain]).map(|(w, most)| Gap {
                dim: w.0,
                requested: w.1,
                most: *most,
            });
            let worst = gaps.filter(|gap| gap.most < gap.requested).min_by(Gap::by_share)?;
            if best.as_ref().is_none_or(|(_, best)| worst.by_share(best).is_gt()) {
                best = Some((domain, worst));
            }
        }
        let (domain, gap) = best?;
        Some(EvictionFailureReason::DomainTooSmall {
            level: self.cluster.text(level).to_owned(),
            domain: topology.domain(domain).id.to_string(),
            resource: self.cluster.text(self.cluster.dims.name(gap.dim)).to_owned(),
            requested: gap.requested,
            most: gap.most,
        })
    }

    /// Free and evictable amounts per domain of a level.
    fn most_in_domains(
        &self,
        topology: &Topology,
        depth: usize,
        requested: &Requested,
    ) -> IndexVec<DomainIdx, Vec<i64>> {
        let mut most: IndexVec<DomainIdx, Vec<i64>> =
            topology.domains().map(|_| vec![0; requested.len()]).collect();
        let of_node = |node: NodeIdx| Some(topology.ancestor_at(topology.innermost(node)?, depth));
        for &node in &self.cluster.nodes_by_rank {
            if let Some(domain) = of_node(node) {
                self.add_free(node, requested, &mut most[domain]);
            }
        }
        self.each_victim(|pod, node| {
            if let Some(domain) = of_node(node) {
                self.add_held(pod, requested, &mut most[domain]);
            }
        });
        most
    }

    /// Requests of pods, summed over some node resources. Pod slots are excluded: a pod may use two.
    fn requested(&self, pods: &[PodIdx], counts: impl Fn(Dim) -> bool) -> Requested {
        let mut requested = Requested::new();
        let backed = |dim: Dim| self.cluster.is_device_backed(self.cluster.dims.name(dim));
        for &pod in pods {
            let request = self.cluster.shape(pod).request.iter();
            for (dim, amount) in request.filter(|(dim, amount)| *amount > 0 && *dim != PODS && counts(*dim)) {
                match requested.iter_mut().find(|(known, _)| *known == dim) {
                    Some((_, all)) => *all += amount,
                    None if dim != GPU && backed(dim) => {}
                    None => requested.push((dim, amount)),
                }
            }
        }
        requested.sort_unstable_by_key(|(dim, _)| *dim);
        requested
    }

    /// Adds the idle and releasing amounts of a node.
    fn add_free(&self, node: NodeIdx, requested: &Requested, sums: &mut [i64]) {
        for ((dim, _), sum) in requested.iter().zip(sums) {
            let free =
                if *dim == GPU { self.capacity.gpus(node) } else { self.cluster.nodes[node].free(*dim) };
            *sum += free.max(0);
        }
    }

    /// Adds the amounts that the eviction of a pod frees.
    fn add_held(&self, pod: PodIdx, requested: &Requested, sums: &mut [i64]) {
        for ((dim, _), sum) in requested.iter().zip(sums) {
            *sum += if *dim == GPU {
                freed_by(self.cluster, pod).map_or(0, |(_, gpus)| gpus)
            } else {
                self.cluster.shape(pod).request.get(*dim)
            };
        }
    }

    /// Visits every evictable pod with its node.
    fn each_victim(&self, mut visit: impl FnMut(PodIdx, NodeIdx)) {
        let groups = self.leaves.iter().flat_map(|leaf| self.candidates.of_leaf(*leaf));
        for &group in groups.filter(|group| self.rules.allow_group(self.cluster, **group)) {
            for pod in EvictablePods::of(self.cluster, group)
                .pods()
                .filter(|pod| !self.cluster.is_placed_this_cycle(*pod))
            {
                if let Some(node) = self.cluster.pods[pod].state.node() {
                    visit(pod, node);
                }
            }
        }
    }
}

/// A resource that a domain is short of.
struct Gap {
    dim: Dim,
    requested: i64,
    most: i64,
}

impl Gap {
    /// Compares by the fraction of the request that is available.
    fn by_share(&self, other: &Self) -> Ordering {
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        product(self.most, other.requested).cmp(&product(other.most, self.requested))
    }
}

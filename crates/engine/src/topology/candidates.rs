//! The node sets in which a member of a group may be placed, best first.

use super::demand::Demand;
use super::free_capacity::FreeCapacity;
use super::tree::Topology;
use crate::cluster::Cluster;
use crate::cluster::group::Constraint;
use crate::ids::{DomainIdx, Idx, NodeIdx, PodIdx};
use crate::node_set::NodeSet;
use crate::verdict::{DomainCapacity, Measured, TopologyReason};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// Weight of one score step: more than the sum of all other scores.
const STEP: f64 = 100_000.0;
/// Scores rise in this many steps.
const STEPS: usize = 10;
/// Maximum of domains that a rejection describes.
const DESCRIBED: usize = 32;
/// Marks a node without a score.
const UNSCORED: u8 = u8::MAX;

/// A member of a group with a topology constraint.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The constraint.
    pub constraint: &'a Constraint,
    /// Available nodes: those chosen for the member's parent.
    pub nodes: &'a NodeSet,
    /// Pods to place below the member.
    pub pods: &'a [PodIdx],
    /// Nodes of the member's allocated pods.
    pub held: &'a [NodeIdx],
}

/// Candidate node sets of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Node sets, best first.
    pub sets: Vec<NodeSet>,
    /// Scores for the member's pods; none when no level is preferred.
    pub scores: Option<NodeScores>,
}

/// Scores that keep pods of one placement in the same domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeScores {
    steps: Arc<[u8]>,
}

impl NodeScores {
    /// A node's score; none rules the node out.
    #[inline]
    pub fn score(&self, node: NodeIdx) -> Option<f64> {
        let step = *self.steps.get(node.index())?;
        (step != UNSCORED).then(|| f64::from(step) * STEP)
    }
}

/// Depths of the levels that a constraint names.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    required: Option<usize>,
    preferred: Option<usize>,
}

impl Levels {
    /// None when no level is named, a level is unknown, or the preferred level is outside the required one.
    pub fn of(topology: &Topology, constraint: &Constraint) -> Option<Self> {
        let depth = |label| topology.depth_of(label).ok_or(());
        let required = constraint.required.map(depth).transpose().ok()?;
        let preferred = constraint.preferred.map(depth).transpose().ok()?;
        let in_order = match (required, preferred) {
            (None, None) => false,
            (Some(required), Some(preferred)) => preferred >= required,
            (Some(_), None) | (None, Some(_)) => true,
        };
        in_order.then_some(Self { required, preferred })
    }

    /// The deepest level considered.
    pub fn deepest(self) -> usize {
        self.preferred.or(self.required).unwrap_or(0)
    }

    /// The widest level considered; 0 means all nodes together.
    pub fn widest(self) -> usize {
        self.required.unwrap_or(0)
    }
}

/// The node sets in which the request's pods are expected to fit together, best first.
///
/// Domains of the preferred level come before wider ones, up to the required level (or to all nodes); on one level
/// the tightest fit comes first. The search is limited to the deepest domain that contains all usable nodes, which
/// bounds its cost.
pub fn candidates(cluster: &Cluster, request: &Request<'_>) -> Result<Candidates, TopologyReason> {
    if request.pods.is_empty() {
        return Ok(Candidates { sets: vec![request.nodes.clone()], scores: None });
    }
    let topology = cluster.topologies.get(request.constraint.topology).ok_or(TopologyReason::Unknown)?;
    let levels = Levels::of(topology, request.constraint).ok_or(TopologyReason::BadLevel)?;
    let demand = Demand::of(cluster, request.pods);
    let Some(usable) = Usable::of(cluster, topology, request.nodes, levels.deepest()) else {
        return Err(too_small(topology, Topology::root(), Some(0), &demand));
    };
    let capacity = FreeCapacity::measure(&cluster.nodes, topology, &demand, usable.start, levels.deepest());
    let order = capacity.order();
    let start_depth = topology.domain(usable.start).depth;
    let widest = levels.widest().max(start_depth);
    let held = Held::of(topology, levels, request.held);
    let mut sets = Vec::new();
    if capacity.fits(usable.start) {
        let fitting = order[widest - start_depth..].iter().rev().flatten();
        let fitting = fitting.filter(|domain| capacity.fits(**domain) && held.allows(topology, **domain));
        sets.extend(fitting.filter_map(|domain| usable.part(cluster, topology, *domain)));
    }
    if sets.is_empty() {
        let widest = order[widest - start_depth].iter().copied();
        let best = best(&capacity, widest.filter(|domain| held.allows(topology, *domain)));
        return Err(match best {
            Some(best) => too_small(topology, best, capacity.pods(best), &demand),
            None => too_small(topology, held.first().unwrap_or(usable.start), Some(0), &demand),
        });
    }
    let preferred = levels.preferred.map(|depth| &order[depth - start_depth]);
    Ok(Candidates { sets, scores: preferred.map(|order| scores(cluster, topology, order)) })
}

/// The usable nodes of a placement.
struct Usable {
    /// The deepest domain that holds them all.
    start: DomainIdx,
    /// The nodes; none when every node of the start domain is usable.
    nodes: Option<FixedBitSet>,
}

impl Usable {
    /// None when no node of the set is part of the topology.
    fn of(cluster: &Cluster, topology: &Topology, nodes: &NodeSet, depth: usize) -> Option<Self> {
        if *nodes == NodeSet::All {
            let start = topology.holding_all(depth);
            return (!topology.domain(start).nodes.is_empty()).then_some(Self { start, nodes: None });
        }
        let nodes = nodes.nodes(cluster);
        let start = topology.holding(nodes, depth)?;
        let mut usable = FixedBitSet::with_capacity(cluster.nodes.len());
        for node in nodes.iter().filter(|node| topology.innermost(**node).is_some()) {
            usable.insert(node.index());
        }
        let all = usable.count_ones(..) == topology.domain(start).nodes.len();
        Some(Self { start, nodes: (!all).then_some(usable) })
    }

    /// The usable nodes of a domain, if there are any.
    fn part(&self, cluster: &Cluster, topology: &Topology, domain: DomainIdx) -> Option<NodeSet> {
        let nodes = &topology.domain(domain).nodes;
        let Some(usable) = &self.nodes else {
            let all = nodes.len() == cluster.nodes_by_rank.len();
            return Some(if all { NodeSet::All } else { NodeSet::Some(Arc::clone(nodes)) });
        };
        let part: Arc<[NodeIdx]> =
            nodes.iter().copied().filter(|node| usable.contains(node.index())).collect();
        (!part.is_empty()).then_some(NodeSet::Some(part))
    }
}

/// Required-level domains of the member's allocated pods.
enum Held {
    /// No restriction.
    Nothing,
    /// Only these, and those below them.
    In { depth: usize, domains: SmallVec<[DomainIdx; 2]> },
}

impl Held {
    fn of(topology: &Topology, levels: Levels, nodes: &[NodeIdx]) -> Self {
        let Some(depth) = levels.required.filter(|_| !nodes.is_empty()) else { return Self::Nothing };
        let mut domains = SmallVec::new();
        for domain in nodes.iter().filter_map(|node| topology.innermost(*node)) {
            let domain = topology.ancestor_at(domain, depth);
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        Self::In { depth, domains }
    }

    fn allows(&self, topology: &Topology, domain: DomainIdx) -> bool {
        match self {
            Self::Nothing => true,
            Self::In { depth, domains } => domains.contains(&topology.ancestor_at(domain, *depth)),
        }
    }

    fn first(&self) -> Option<DomainIdx> {
        match self {
            Self::Nothing => None,
            Self::In { domains, .. } => domains.iter().copied().min(),
        }
    }
}

/// The domain with the most free capacity, the first among equals.
fn best(capacity: &FreeCapacity<'_>, domains: impl Iterator<Item = DomainIdx>) -> Option<DomainIdx> {
    domains.min_by(|a, b| {
        capacity
            .pods(*b)
            .cmp(&capacity.pods(*a))
            .then_with(|| capacity.tightness(*a).cmp(&capacity.tightness(*b)))
    })
}

fn too_small(topology: &Topology, domain: DomainIdx, pods: Option<i64>, demand: &Demand) -> TopologyReason {
    let number = |pods: i64| u32::try_from(pods.max(0)).unwrap_or(u32::MAX);
    TopologyReason::TooSmall {
        domain: topology.domain(domain).id.to_string(),
        pods: pods.map(number),
        wanted: number(demand.count),
        measured: Measured::default(),
    }
}

/// Adds the measurements of further domains to a rejection. Not needed in simulations.
pub fn measure(cluster: &Cluster, request: &Request<'_>, refusal: &mut TopologyReason) {
    let TopologyReason::TooSmall { measured, .. } = refusal else { return };
    let Some(topology) = cluster.topologies.get(request.constraint.topology) else { return };
    let Some(levels) = Levels::of(topology, request.constraint) else { return };
    let Some(usable) = Usable::of(cluster, topology, request.nodes, levels.deepest()) else {
        *measured = if topology.domain(Topology::root()).nodes.is_empty() {
            let label = topology.unlabelled().map(|label| cluster.text(label).to_owned());
            Measured::Unlabelled(label.unwrap_or_default())
        } else {
            Measured::Whole(String::new())
        };
        return;
    };
    let demand = Demand::of(cluster, request.pods);
    let start = topology.domain(usable.start);
    let capacity = FreeCapacity::measure(&cluster.nodes, topology, &demand, usable.start, levels.deepest());
    if !capacity.fits(usable.start) {
        let id = if usable.start == Topology::root() { String::new() } else { start.id.to_string() };
        *measured = Measured::Whole(id);
        return;
    }
    let depth = levels.widest().max(start.depth);
    let held = Held::of(topology, levels, request.held);
    let mut domains = capacity.order().swap_remove(depth - start.depth);
    domains.retain(|domain| held.allows(topology, *domain));
    domains.sort_unstable();
    let describe = |domain: &DomainIdx| DomainCapacity {
        domain: topology.domain(*domain).id.to_string(),
        pods: capacity.pods(*domain).map(|pods| u32::try_from(pods.max(0)).unwrap_or(u32::MAX)),
        lacks: capacity
            .lacks(*domain)
            .map(|(dim, requested, free)| (cluster.text(cluster.dims.name(dim)).to_owned(), requested, free))
            .collect(),
    };
    *measured = Measured::Each(domains.iter().take(DESCRIBED).map(describe).collect());
}

/// Later domains of the order, the emptier ones, score higher: pods that do not fit one domain fill the one that
/// holds most of them.
fn scores(cluster: &Cluster, topology: &Topology, order: &[DomainIdx]) -> NodeScores {
    let mut steps = vec![UNSCORED; cluster.nodes.len()];
    for (i, &domain) in order.iter().enumerate() {
        let step = (STEPS * (i + 1) / order.len()) as u8;
        for node in topology.domain(domain).nodes.iter() {
            steps[node.index()] = step;
        }
    }
    NodeScores { steps: steps.into() }
}

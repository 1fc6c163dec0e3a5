//! Free capacity of the domains below a start domain.

use super::demand::Demand;
use super::tree::Topology;
use crate::cluster::node::Node;
use crate::ids::{DomainIdx, Idx, IndexVec, NodeIdx};
use crate::resource::Dim;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;

/// Free capacity for one demand in a start domain and in the domains below it, down to a depth.
#[derive(Debug)]
pub struct FreeCapacity<'a> {
    topology: &'a Topology,
    demand: &'a Demand,
    /// Domains by level, the start domain's first.
    spans: SmallVec<[Range<usize>; 6]>,
    /// Compared dimensions, with the requested amounts.
    requested: SmallVec<[(Dim, i64); 4]>,
    /// Free amounts of the compared dimensions, domain by domain.
    free: Vec<i64>,
    /// Pods that fit, by domain.
    pods: Vec<i64>,
}

/// The part of a domain that a demand uses: the largest fraction over the dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Tightness {
    requested: i64,
    free: i64,
}

impl Tightness {
    /// None of the compared dimensions is requested.
    const NONE: Self = Self { requested: 0, free: 1 };
    /// A requested dimension has nothing free.
    const LACKING: Self = Self { requested: 1000, free: 1 };

    fn new(requested: i64, free: i64) -> Self {
        if free > 0 { Self { requested, free } } else { Self::LACKING }
    }

    /// The request does not exceed the free amounts.
    pub fn fits(self) -> bool {
        self.requested <= self.free
    }
}

impl Ord for Tightness {
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        product(self.requested, other.free).cmp(&product(other.requested, self.free))
    }
}
impl PartialOrd for Tightness {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Tightness {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Tightness {}

impl<'a> FreeCapacity<'a> {
    /// Measures the start domain and everything below it down to `depth`.
    ///
    /// Every node of a domain counts, whether or not the placement may use it.
    pub fn measure(
        nodes: &IndexVec<NodeIdx, Node>,
        topology: &'a Topology,
        demand: &'a Demand,
        start: DomainIdx,
        depth: usize,
    ) -> Self {
        let spans = spans_below(topology, start, depth);
        let count = spans.iter().map(Range::len).sum();
        let requested: SmallVec<_> = demand.requested().collect();
        let free = vec![0; count * requested.len()];
        let mut capacity = Self { topology, demand, spans, requested, free, pods: vec![0; count] };
        let mut slot = count;
        for level in (0..capacity.spans.len()).rev() {
            for position in capacity.spans[level].clone().rev() {
                slot -= 1;
                let domain = DomainIdx::new(position);
                if level + 1 == capacity.spans.len() {
                    capacity.count_nodes(nodes, domain, slot);
                } else {
                    capacity.sum_children(domain, slot);
                }
            }
        }
        capacity
    }

    /// Number of pods that fit, if the pods request the same dimensions.
    pub fn pods(&self, domain: DomainIdx) -> Option<i64> {
        self.demand.is_uniform().then(|| self.pods[self.slot(domain)])
    }

    /// The part of the domain that the demand uses.
    pub fn tightness(&self, domain: DomainIdx) -> Tightness {
        let first = self.slot(domain) * self.requested.len();
        let free = &self.free[first..first + self.requested.len()];
        let each =
            self.requested.iter().zip(free).map(|(&(_, requested), &free)| Tightness::new(requested, free));
        each.max().unwrap_or(Tightness::NONE)
    }

    /// Whether the pods are expected to fit.
    pub fn fits(&self, domain: DomainIdx) -> bool {
        self.pods(domain).map_or_else(|| self.tightness(domain).fits(), |pods| pods >= self.demand.count)
    }

    /// Insufficient dimensions, if pods are not counted: requested and free amounts.
    pub fn lacks(&self, domain: DomainIdx) -> impl Iterator<Item = (Dim, i64, i64)> + '_ {
        let first = self.slot(domain) * self.requested.len();
        let requested = if self.demand.is_uniform() { &[][..] } else { &self.requested[..] };
        let pairs = requested.iter().zip(&self.free[first..]);
        pairs
            .map(|(&(dim, requested), &free)| (dim, requested, free))
            .filter(|(_, requested, free)| requested > free)
    }

    /// The domains of each level, the start domain's first: tightest first inside each parent, then by id.
    pub fn order(&self) -> Vec<Vec<DomainIdx>> {
        let mut levels = vec![self.spans[0].clone().map(DomainIdx::new).collect::<Vec<_>>()];
        for span in &self.spans[1..] {
            let mut level: Vec<(Tightness, DomainIdx)> = Vec::with_capacity(span.len());
            for &parent in levels.last().into_iter().flatten() {
                let first = level.len();
                level.extend(
                    self.topology.domain(parent).children().map(|child| (self.tightness(child), child)),
                );
                level[first..].sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            }
            levels.push(level.into_iter().map(|(_, domain)| domain).collect());
        }
        levels
    }

    fn slot(&self, domain: DomainIdx) -> usize {
        let mut first = 0;
        for span in &self.spans {
            if span.contains(&domain.index()) {
                return first + domain.index() - span.start;
            }
            first += span.len();
        }
        panic!("{domain:?} is not below the start domain")
    }

    fn count_nodes(&mut self, nodes: &IndexVec<NodeIdx, Node>, domain: DomainIdx, slot: usize) {
        let counted = self.demand.is_uniform();
        let first = slot * self.requested.len();
        let free = &mut self.free[first..first + self.requested.len()];
        for &node in self.topology.domain(domain).nodes.iter() {
            let node = &nodes[node];
            for (sum, &(dim, _)) in free.iter_mut().zip(&self.requested) {
                *sum = sum.saturating_add(node.free(dim));
            }
            if counted {
                self.pods[slot] = self.pods[slot].saturating_add(self.demand.capacity_on(node));
            }
        }
    }

    fn sum_children(&mut self, domain: DomainIdx, slot: usize) {
        let width = self.requested.len();
        for child in self.topology.domain(domain).children() {
            let from = self.slot(child);
            for i in 0..width {
                self.free[slot * width + i] =
                    self.free[slot * width + i].saturating_add(self.free[from * width + i]);
            }
            self.pods[slot] = self.pods[slot].saturating_add(self.pods[from]);
        }
    }
}

/// The positions of a domain and of those below it, level by level.
fn spans_below(topology: &Topology, start: DomainIdx, depth: usize) -> SmallVec<[Range<usize>; 6]> {
    let mut spans = SmallVec::new();
    let mut span = start.index()..start.index() + 1;
    for _ in topology.domain(start).depth..depth {
        let children = |position| topology.domain(DomainIdx::new(position)).children();
        let first = children(span.start).next().map_or(0, Idx::index);
        let end = children(span.end - 1).next_back().map_or(first, |last| last.index() + 1);
        spans.push(std::mem::replace(&mut span, first..end));
    }
    spans.push(span);
    spans
}

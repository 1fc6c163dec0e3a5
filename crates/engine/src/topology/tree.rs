//! The domain tree of one topology.
//!
//! Domains are stored level by level in one arena, siblings sorted by id, so that the domains below a domain are one
//! span per level.

use crate::ids::{DomainIdx, Idx, IndexVec, NodeIdx, Sym};
use crate::intern::Interner;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The id of the domain that holds every node of the topology.
const ROOT_ID: &str = "root";

/// A topology and its domains.
#[derive(Clone, Debug)]
pub struct Topology {
    name: Sym,
    /// Label keys, outermost first.
    levels: Box<[Sym]>,
    domains: IndexVec<DomainIdx, Domain>,
    /// The innermost domain of each node of the topology.
    innermost: IndexVec<NodeIdx, Option<DomainIdx>>,
    /// The first level whose label no node has; none where nodes are part of the topology.
    unlabelled: Option<Sym>,
}

/// Nodes with the same label values down to a level.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Label values from the outermost level, joined by dots.
    pub id: Box<str>,
    /// Depth: 0 for the root, 1 for the outermost level.
    pub depth: usize,
    /// Parent domain; none for the root.
    pub parent: Option<DomainIdx>,
    /// Its nodes, in name order.
    pub nodes: Arc<[NodeIdx]>,
    /// Positions of its child domains.
    children: Range<u32>,
}

/// A node with the values of its level labels.
struct Row {
    values: SmallVec<[Sym; 4]>,
    rank: u32,
    node: NodeIdx,
}

impl Domain {
    /// Child domains, sorted by id.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = DomainIdx> + ExactSizeIterator + use<> {
        (self.children.start as usize..self.children.end as usize).map(DomainIdx::new)
    }
}

impl Topology {
    /// A topology without nodes.
    pub(super) fn new(name: Sym, levels: Box<[Sym]>) -> Self {
        let (domains, innermost) = (IndexVec::new(), IndexVec::new());
        let mut topology = Self { name, levels, domains, innermost, unlabelled: None };
        topology.domains.push(domain(ROOT_ID.into(), None, 0, &[]));
        topology
    }

    /// Label keys, outermost first.
    pub fn levels(&self) -> &[Sym] {
        &self.levels
    }

    /// Its name.
    pub fn name(&self) -> Sym {
        self.name
    }

    /// The root domain.
    pub fn root() -> DomainIdx {
        DomainIdx::new(0)
    }

    /// A domain.
    pub fn domain(&self, domain: DomainIdx) -> &Domain {
        &self.domains[domain]
    }

    /// The first level whose label no node has; none where nodes are part of the topology.
    pub fn unlabelled(&self) -> Option<Sym> {
        self.unlabelled
    }

    /// All domains, outer levels first.
    pub fn domains(&self) -> impl Iterator<Item = (DomainIdx, &Domain)> {
        self.domains.enumerated()
    }

    /// The depth of the level that a label key names.
    pub fn depth_of(&self, label: Sym) -> Option<usize> {
        self.levels.iter().position(|&level| level == label).map(|position| position + 1)
    }

    /// The innermost domain of a node; none for a node without all labels.
    pub fn innermost(&self, node: NodeIdx) -> Option<DomainIdx> {
        self.innermost.get(node).copied().flatten()
    }

    /// The ancestor of a domain at a depth, or the domain itself when it is not that deep.
    pub fn ancestor_at(&self, domain: DomainIdx, depth: usize) -> DomainIdx {
        let mut at = domain;
        while let Some(parent) = self.domains[at].parent.filter(|_| self.domains[at].depth > depth) {
            at = parent;
        }
        at
    }

    /// The deepest domain that contains both.
    fn common(&self, a: DomainIdx, b: DomainIdx) -> DomainIdx {
        let depth = self.domains[a].depth.min(self.domains[b].depth);
        let (mut a, mut b) = (self.ancestor_at(a, depth), self.ancestor_at(b, depth));
        while a != b {
            let (Some(up_a), Some(up_b)) = (self.domains[a].parent, self.domains[b].parent) else {
                return Self::root();
            };
            (a, b) = (up_a, up_b);
        }
        a
    }

    /// The deepest domain, no deeper than `depth`, that contains all of these nodes that are part of the topology;
    /// none when none is.
    pub fn holding(&self, nodes: &[NodeIdx], depth: usize) -> Option<DomainIdx> {
        let mut domains = nodes.iter().filter_map(|&node| self.innermost(node));
        let mut last = domains.next()?;
        let mut held = self.ancestor_at(last, depth);
        for domain in domains {
            if domain != last {
                last = domain;
                held = self.common(held, domain);
            }
        }
        Some(held)
    }

    /// The deepest domain, no deeper than `depth`, that contains every node of the topology.
    pub(super) fn holding_all(&self, depth: usize) -> DomainIdx {
        let mut held = Self::root();
        while self.domains[held].depth < depth && self.domains[held].children().len() == 1 {
            held = DomainIdx::new(self.domains[held].children.start as usize);
        }
        held
    }

    /// Sorts the nodes into domains by their labels.
    pub(super) fn rebuild(
        &mut self,
        by_rank: &[NodeIdx],
        label: impl Fn(NodeIdx, Sym) -> Option<Sym>,
        names: &Interner,
    ) {
        let mut rows: Vec<Row> = Vec::with_capacity(by_rank.len());
        for (rank, &node) in by_rank.iter().enumerate() {
            let values: Option<_> = self.levels.iter().map(|&level| label(node, level)).collect();
            rows.extend(values.map(|values| Row { values, rank: rank as u32, node }));
        }
        let is_unlabelled = |level: &&Sym| by_rank.iter().all(|node| label(*node, **level).is_none());
        self.unlabelled = self.levels.iter().filter(|_| rows.is_empty()).find(is_unlabelled).copied();
        rows.sort_by(|a, b| {
            let texts = |row: &Row| row.values.clone().into_iter().map(|value| names.text(value));
            texts(a).cmp(texts(b)).then(a.rank.cmp(&b.rank))
        });
        let slots = by_rank.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        self.innermost = IndexVec::filled(None, slots);
        self.domains.clear();
        self.domains.push(domain(ROOT_ID.into(), None, 0, &rows));
        let every_row = 0..rows.len();
        let mut spans = vec![every_row];
        let mut first = 0;
        for depth in 1..=self.levels.len() {
            let outer = first..self.domains.len();
            first = self.domains.len();
            for parent in outer {
                self.divide(DomainIdx::new(parent), depth, &rows, &mut spans, names);
            }
        }
        for position in first..self.domains.len() {
            for row in &rows[spans[position].clone()] {
                self.innermost[row.node] = Some(DomainIdx::new(position));
            }
        }
    }

    /// Adds the children of a domain; `spans` has the rows of every domain so far.
    fn divide(
        &mut self,
        parent: DomainIdx,
        depth: usize,
        rows: &[Row],
        spans: &mut Vec<Range<usize>>,
        names: &Interner,
    ) {
        let first = self.domains.len() as u32;
        let mut begin = spans[parent.index()].start;
        let inside = &rows[spans[parent.index()].clone()];
        for part in inside.chunk_by(|a, b| a.values[depth - 1] == b.values[depth - 1]) {
            let value = names.text(part[0].values[depth - 1]);
            let id = match depth {
                1 => value.into(),
                _ => format!("{}.{value}", self.domains[parent].id).into(),
            };
            self.domains.push(domain(id, Some(parent), depth, part));
            spans.push(begin..begin + part.len());
            begin += part.len();
        }
        self.domains[parent].children = first..self.domains.len() as u32;
    }
}

fn domain(id: Box<str>, parent: Option<DomainIdx>, depth: usize, rows: &[Row]) -> Domain {
    let mut nodes: Vec<_> = rows.iter().map(|row| (row.rank, row.node)).collect();
    nodes.sort_unstable();
    Domain { id, depth, parent, nodes: nodes.into_iter().map(|(_, node)| node).collect(), children: 0..0 }
}

//! Nodes of one scheduling class sorted by placement strategy, updated incrementally.
//!
//! A sorted list in blocks with a summary of each block's maxima, so that a search skips blocks, and superblocks of
//! blocks, without a feasible node. Updates cost as much as changed: the cluster logs every node whose ledger
//! changed, and the list re-reads those with a new version.
//! Invariant: after `refresh`, the entries are exactly the class's nodes with their current keys.

use crate::class::ClassIdx;
use crate::cluster::Cluster;
use crate::ids::{Idx, NodeIdx};
use crate::plan::Plan;
use crate::plugin::Strategy;
use crate::resource::{self, Dim};
use rustc_hash::FxHashMap;

/// Maximum of entries in a block before it is split.
const BLOCK_MAX: usize = 64;
/// Blocks per superblock.
const SUPERBLOCK: usize = 16;

/// Identifies a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListKey {
    /// Ready nodes that this class accepts; all nodes without one.
    pub class: Option<ClassIdx>,
    /// The resource whose free amount orders the nodes.
    pub dim: Dim,
    /// Whether larger free amounts come first; none sorts by name.
    pub spread: Option<bool>,
}

impl ListKey {
    pub(crate) fn new(class: Option<ClassIdx>, placement: Option<(Dim, Strategy)>) -> Self {
        let (dim, strategy) = placement.unzip();
        Self { class, dim: dim.unwrap_or(resource::GPU), spread: strategy.map(|s| s == Strategy::Spread) }
    }
}

/// Ranked lists by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankedLists(FxHashMap<ListKey, RankedList>);

/// Maximum of lists; beyond it all are dropped and rebuilt on demand.
const LISTS_MAX: usize = 512;

impl RankedLists {
    /// Takes a list out for a search.
    pub(crate) fn take(&mut self, key: ListKey) -> Option<RankedList> {
        self.0.remove(&key)
    }
    /// Keeps a list for the next search.
    pub(crate) fn put_back(&mut self, list: RankedList) {
        if self.0.len() >= LISTS_MAX {
            self.0.clear();
        }
        self.0.insert(list.key, list);
    }
    /// Drops all lists: nodes were added or removed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The list of one class.
#[derive(Clone, Debug)]
pub(crate) struct RankedList {
    key: ListKey,
    /// Cursor in the cluster's log of changed ledgers.
    cursor: usize,
    nodes: Vec<NodeState>,
    blocks: Vec<Block>,
    /// Summary of each superblock of blocks; none until a search computes it.
    superblocks: Vec<Option<Summary>>,
}

/// State of a node when the list last read it.
#[derive(Clone, Copy, Debug)]
struct NodeState {
    version: u64,
    described: u64,
    member: bool,
    at: i64,
}

const UNREAD: NodeState = NodeState { version: 0, described: 0, member: false, at: 0 };

/// An entry of the list, with its node's summary: blocks are summed without visiting nodes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: i64,
    rank: u32,
    node: NodeIdx,
    has: Summary,
}

impl Entry {
    fn place(&self) -> (i64, u32) {
        (self.at, self.rank)
    }
}

#[derive(Clone, Debug, Default)]
struct Block {
    entries: Vec<Entry>,
    summary: Summary,
}

/// Maxima over the nodes of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    /// Idle CPU, memory, GPUs, pod slots.
    pub idle: [i64; 4],
    /// Idle plus releasing.
    pub free: [i64; 4],
    /// MiB on a shared GPU.
    pub shared: i64,
    /// Some node has releasing or pipelined amounts.
    pub moving: bool,
    /// Some node has neither GPUs nor MIG instances.
    pub cpu_only: bool,
}

impl Summary {
    const NOTHING: Self =
        Self { idle: [i64::MIN; 4], free: [i64::MIN; 4], shared: 0, moving: false, cpu_only: false };

    fn of(cluster: &Cluster, node: NodeIdx) -> Self {
        let n = &cluster.nodes[node];
        let mut has = Self::default();
        for i in 0..4 {
            let dim = Dim(i as u16);
            let (idle, releasing) = (n.ledger.idle.get(dim), n.ledger.releasing.get(dim));
            has.idle[i] = idle;
            has.free[i] = idle + releasing;
        }
        has.shared = n.ledger.gpus.most_free(n.gpu_memory.mib);
        has.moving = !n.ledger.releasing.is_empty() || n.ledger.gpus.iter().any(|g| g.releasing != 0);
        has.cpu_only = n.is_cpu_only();
        has
    }

    fn include(&mut self, other: &Self) {
        for i in 0..4 {
            self.idle[i] = self.idle[i].max(other.idle[i]);
            self.free[i] = self.free[i].max(other.free[i]);
        }
        self.shared = self.shared.max(other.shared);
        self.moving |= other.moving;
        self.cpu_only |= other.cpu_only;
    }
}

impl Block {
    fn of(entries: Vec<Entry>) -> Self {
        let mut block = Self { entries, summary: Summary::NOTHING };
        block.sum();
        block
    }
    fn sum(&mut self) {
        let mut summary = Summary::NOTHING;
        for entry in &self.entries {
            summary.include(&entry.has);
        }
        self.summary = summary;
    }
    /// Position of an entry, or where to insert it.
    fn position(&self, place: (i64, u32)) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&place, Entry::place)
    }
}

impl RankedList {
    pub(crate) fn new(key: ListKey, plan: &Plan<'_>) -> Self {
        let nodes = vec![UNREAD; plan.nodes.len()];
        let mut list = Self { key, cursor: 0, nodes, blocks: Vec::new(), superblocks: Vec::new() };
        list.rebuild(plan);
        list
    }

    fn rebuild(&mut self, plan: &Plan<'_>) {
        let cluster: &Cluster = plan;
        self.nodes = vec![UNREAD; cluster.nodes.len()];
        let mut entries = Vec::with_capacity(cluster.nodes_by_rank.len());
        for &node in &cluster.nodes_by_rank {
            let state = self.read(cluster, node);
            self.nodes[node.index()] = state;
            if state.member {
                let has = Summary::of(cluster, node);
                entries.push(Entry { at: state.at, rank: cluster.nodes[node].rank, node, has });
            }
        }
        entries.sort_unstable_by_key(Entry::place);
        self.blocks = entries.chunks(BLOCK_MAX / 2).map(|c| Block::of(c.to_vec())).collect();
        self.superblocks.clear();
        self.blocks_moved(0);
        self.cursor = plan.ledger_log().end();
    }

    /// Re-reads nodes that changed since the last refresh.
    pub(crate) fn refresh(&mut self, plan: &Plan<'_>) {
        let cluster: &Cluster = plan;
        let changed = plan.ledger_log().since(self.cursor);
        match changed {
            Some(nodes)
                if self.nodes.len() == cluster.nodes.len() && nodes.len() <= cluster.nodes_by_rank.len() =>
            {
                for &node in nodes {
                    self.reread(cluster, node);
                }
                self.cursor = plan.ledger_log().end();
            }
            _ => self.rebuild(plan),
        }
    }

    fn reread(&mut self, cluster: &Cluster, node: NodeIdx) {
        let old = self.nodes[node.index()];
        if old.version == cluster.nodes[node].version {
            return;
        }
        let new = self.read(cluster, node);
        self.nodes[node.index()] = new;
        let rank = cluster.nodes[node].rank;
        if old.member && new.member && old.at == new.at {
            let (at, position) = self.find((old.at, rank));
            self.superblocks[at / SUPERBLOCK] = None;
            let block = &mut self.blocks[at];
            block.entries[position].has = Summary::of(cluster, node);
            block.sum();
            return;
        }
        if old.member {
            self.remove((old.at, rank));
        }
        if new.member {
            self.insert(Entry { at: new.at, rank, node, has: Summary::of(cluster, node) });
        }
    }

    fn read(&self, cluster: &Cluster, node: NodeIdx) -> NodeState {
        let n = &cluster.nodes[node];
        let old = self.nodes[node.index()];
        let member = if old.described == n.described_version && old.version != 0 {
            old.member
        } else {
            n.present
                && self.key.class.is_none_or(|class| {
                    n.is_ready()
                        && cluster
                            .classes
                            .accepts(class, n.name, &n.labels, &n.taints, &cluster.names)
                            .is_ok()
                })
        };
        let at = match self.key.spread {
            None => 0,
            Some(false) => n.free(self.key.dim),
            // Larger ratios first; the bit patterns of non-negative floats sort like the numbers.
            Some(true) => {
                let ratio = super::score::placement(
                    cluster,
                    node,
                    self.key.dim,
                    Strategy::Spread,
                    super::score::FreeRange { min: 0, max: 0 },
                );
                -(ratio.max(0.0).to_bits() as i64)
            }
        };
        NodeState { version: n.version, described: n.described_version, member, at }
    }

    fn block_of(&self, place: (i64, u32)) -> usize {
        let before = |b: &Block| b.entries.last().is_some_and(|last| last.place() < place);
        self.blocks.partition_point(before).min(self.blocks.len() - 1)
    }

    /// Block and position of a member.
    fn find(&self, place: (i64, u32)) -> (usize, usize) {
        let block = self.block_of(place);
        (block, self.blocks[block].position(place).expect("members are in the list"))
    }

    fn remove(&mut self, place: (i64, u32)) {
        let (at, position) = self.find(place);
        self.superblocks[at / SUPERBLOCK] = None;
        let block = &mut self.blocks[at];
        block.entries.remove(position);
        if block.entries.is_empty() {
            self.blocks.remove(at);
            self.blocks_moved(at);
        } else {
            block.sum();
        }
    }

    fn insert(&mut self, entry: Entry) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::of(vec![entry]));
            self.blocks_moved(0);
            return;
        }
        let at = self.block_of(entry.place());
        self.superblocks[at / SUPERBLOCK] = None;
        let block = &mut self.blocks[at];
        let position = block.position(entry.place()).expect_err("a node is in the list once");
        block.entries.insert(position, entry);
        if block.entries.len() <= BLOCK_MAX {
            block.summary.include(&entry.has);
            return;
        }
        let upper = block.entries.split_off(BLOCK_MAX / 2);
        block.sum();
        self.blocks.insert(at + 1, Block::of(upper));
        self.blocks_moved(at);
    }

    /// Invalidates superblocks from a block on.
    fn blocks_moved(&mut self, from: usize) {
        self.superblocks.truncate(from / SUPERBLOCK);
        self.superblocks.resize(self.blocks.len().div_ceil(SUPERBLOCK), None);
    }

    /// Summary of a superblock.
    fn superblock(&mut self, at: usize) -> &Summary {
        let blocks = self.blocks.iter().skip(at * SUPERBLOCK).take(SUPERBLOCK);
        self.superblocks[at].get_or_insert_with(|| {
            let mut summary = Summary::NOTHING;
            blocks.for_each(|block| summary.include(&block.summary));
            summary
        })
    }

    /// Position of the first entry with at least this key.
    pub(crate) fn start(&self, at: i64) -> Position {
        let block = self.blocks.partition_point(|b| b.entries.last().is_some_and(|last| last.at < at));
        let entry = self.blocks.get(block).map_or(0, |b| b.entries.partition_point(|e| e.at < at));
        Position { block, entry }
    }

    /// The next entry that passes, from a position on; advances the position.
    pub(crate) fn next(
        &mut self,
        from: &mut Position,
        may: impl Fn(&Summary) -> bool,
        passes: impl Fn(NodeIdx) -> bool,
    ) -> Option<NodeIdx> {
        while from.block < self.blocks.len() {
            if from.entry == 0
                && from.block.is_multiple_of(SUPERBLOCK)
                && !may(self.superblock(from.block / SUPERBLOCK))
            {
                from.block += SUPERBLOCK;
                continue;
            }
            let block = &self.blocks[from.block];
            if from.entry > 0 || may(&block.summary) {
                while let Some(entry) = block.entries.get(from.entry) {
                    from.entry += 1;
                    if may(&entry.has) && passes(entry.node) {
                        return Some(entry.node);
                    }
                }
            }
            *from = Position { block: from.block + 1, entry: 0 };
        }
        None
    }
}

/// A position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    block: usize,
    entry: usize,
}

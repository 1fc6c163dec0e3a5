//! The search for victims: which running pods give way so that a waiting group gets its places.
//!
//! A search tries scenarios, each a set of victims, in a fixed order; the first that plays through and that the rules
//! allow is carried out. The size of the ask grows from one pod to all of them, and what worked for fewer pods is kept
//! for more. Scenarios that cannot succeed by a bound on GPUs are never played.

mod accumulate;
mod bounds;
pub(crate) mod budget;
mod custom;
mod minimal;
mod multi_node;
pub(crate) mod node_capacity;
mod node_costs;
mod node_local;
pub(crate) mod pending_request;
pub(crate) mod reduce;
pub(crate) mod rules;
pub(crate) mod simulation;
mod simulation_order;
mod sorted_list;
pub(crate) mod victims;

use crate::cluster::Cluster;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx, QueueIdx};
use crate::node_set::NodeSet;
use crate::observer::{Attempt, Observer, Scenarios, SearchResult};
use crate::outcome::Cause;
use crate::plan::Plan;
use crate::plugin::{Generator, Registry, VictimBatch as Batch};
use crate::policy::SearchDepth;
use crate::share::QueueAmounts;
use crate::verdict::EvictionFailureReason;
use accumulate::AccumulatedVictims;
use bounds::Bounds;
use custom::CustomProposals;
use multi_node::MultiNode;
use node_capacity::NodeCapacity;
use node_costs::NodeCosts;
use node_local::NodeLocal;
use pending_request::{PendingRequest, RequestPart};
use rules::{Rejection, Rules};
use rustc_hash::FxHashSet;
use simulation::{PlacementOrder, Simulation, SimulationResult, Solution};
use simulation_order::PendingGroups;
use victims::{Candidates, VictimWalk};

/// The generator of last resort, as metrics call it: it looks for the cheapest victims.
const SMALLEST_SET: &str = "SmallestSet";

/// What the searches of a cycle share.
pub(crate) struct Search {
    capacity: NodeCapacity,
    waiting: PendingGroups,
    candidates: Candidates,
    /// What it costs to make room on each node, from the last search that asked.
    node_costs: Option<NodeCosts>,
    total: QueueAmounts,
    seed: u64,
}

/// How a search ended.
#[derive(Debug)]
pub(crate) enum SearchOutcome {
    /// Places were found: the plan shows them.
    Solved(Solution),
    /// Nothing that was tried works.
    Unsolved(SearchStats),
    /// There is nobody who may be evicted.
    NoVictims,
    /// Everything that may be evicted is too little.
    Insufficient(EvictionFailureReason),
}

/// What a search without success looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchStats {
    /// Scenarios played.
    pub played: u32,
    /// The last rule that said no to one that found places.
    pub refused: Option<Rejection>,
    /// Every set of victims was tried.
    pub exhausted: bool,
    /// The budget ran out.
    pub gave_up: bool,
    /// Pods that would have fitted with every accumulated victim gone, by their GPUs.
    pub fitting: Option<i64>,
    /// Node evaluations and edits.
    pub steps: u64,
}

impl Search {
    pub(crate) fn new(cluster: &Cluster, registry: &Registry, total: QueueAmounts, seed: u64) -> Self {
        Self {
            capacity: NodeCapacity::new(cluster),
            waiting: PendingGroups::new(cluster, registry),
            candidates: Candidates::new(cluster),
            node_costs: None,
            total,
            seed,
        }
    }

    /// GPUs and GPU memory that are free or being freed on ready nodes.
    pub(crate) fn free(&mut self, cluster: &Cluster) -> (i64, i64) {
        self.capacity.refresh(cluster);
        self.capacity.ready()
    }

    /// Looks for victims. On success the plan holds the result; otherwise it is as before.
    pub(crate) fn solve(
        &mut self,
        plan: &mut Plan<'_>,
        rules: &Rules<'_>,
        ask: &PendingRequest,
        disruptions: &Disruptions,
        budget: Option<u64>,
        observer: &mut dyn Observer,
    ) -> SearchOutcome {
        self.capacity.refresh(plan);
        let registry = &rules.policy.registry;
        let leaves: Vec<QueueIdx> =
            self.candidates.queues().filter(|leaf| rules.allow_leaf(plan, *leaf)).collect();
        for &leaf in &leaves {
            self.candidates.sort(plan, registry, leaf, !rules.policy.literal);
        }
        if let (Some(bound), false) = (self.bound(plan, rules, ask, &leaves), rules.policy.literal) {
            return bound;
        }
        let start = self.capacity.start(plan, ask.group);
        let mut node_costs = self.node_costs.take();
        let simulation =
            Simulation { rules, waiting: &self.waiting, disruptions, total: self.total, seed: self.seed };
        let mut group_search = GroupSearch {
            search: self,
            simulation,
            registry,
            leaves,
            start,
            tried: SearchStats::default(),
            failed: FxHashSet::default(),
            scenarios: Scenarios::default(),
            limit: None,
        };
        let (mut found, begun) = (None, plan.work());
        for generator in &registry.generators {
            let left = budget.map(|budget| budget.saturating_sub(plan.work() - begun));
            let steps = budget::for_generator(&rules.policy.budgets, generator.name(), left);
            group_search.limit = steps.map(|steps| plan.work() + steps);
            found = found.or_else(|| {
                group_search.observed(generator.name(), observer, |group_search| {
                    group_search.with_generator(plan, ask, generator)
                })
            });
        }
        group_search.limit = None;
        if rules.policy.search == SearchDepth::Full {
            found = found.or_else(|| {
                group_search.observed(SMALLEST_SET, observer, |group_search| {
                    group_search.with_smallest_set(plan, ask, &mut node_costs)
                })
            });
            found = found.map(|solution| group_search.simulation.reduce(plan, &ask.whole(), solution));
        }
        let mut tried = group_search.tried;
        tried.steps = plan.work() - begun;
        self.node_costs = node_costs;
        found.map_or(SearchOutcome::Unsolved(tried), SearchOutcome::Solved)
    }

    /// What can be said before any scenario is tried.
    fn bound(
        &self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        ask: &PendingRequest,
        leaves: &[QueueIdx],
    ) -> Option<SearchOutcome> {
        let of_leaves = leaves.iter().map(|leaf| (*leaf, self.candidates.of_leaf(*leaf)));
        let may = |group: GroupIdx| rules.allow_group(cluster, group);
        let registry = &rules.policy.registry;
        if VictimWalk::new(cluster, registry, self.total, of_leaves, &may, None).is_empty()
            && !rules.capacity_was_freed
        {
            return Some(SearchOutcome::NoVictims);
        }
        let (capacity, candidates) = (&self.capacity, &self.candidates);
        let bounds = Bounds { cluster, rules, capacity, candidates, leaves };
        bounds.rejection(&ask.whole()).map(SearchOutcome::Insufficient)
    }

    /// Leaves behind what the next cycle can use.
    pub(crate) fn end(self, cluster: &mut Cluster, registry: &Registry) {
        self.candidates.remember(registry, &mut cluster.sorted_candidates);
    }

    /// Takes up what a committed search changed.
    pub(crate) fn commit(&mut self, cluster: &Cluster, registry: &Registry, groups: &[GroupIdx]) {
        self.waiting.remove(cluster, groups);
        self.candidates.remove(cluster, groups);
        for &group in groups {
            self.waiting.put_back(cluster, registry, group);
            self.candidates.put_back(cluster, registry, group);
        }
    }
}

/// The search for one group.
struct GroupSearch<'a> {
    search: &'a Search,
    simulation: Simulation<'a>,
    registry: &'a Registry,
    /// Leaf queues whose groups may be victims.
    leaves: Vec<QueueIdx>,
    start: NodeSet,
    tried: SearchStats,
    /// Scenarios that failed, by their pods.
    failed: FxHashSet<u64>,
    /// What became of the scenarios of the generator at work.
    scenarios: Scenarios,
    /// The plan's work beyond which this generator gives up.
    limit: Option<u64>,
}

impl GroupSearch<'_> {
    /// Lets a generator work under observation.
    fn observed(
        &mut self,
        generator: &str,
        observer: &mut dyn Observer,
        work: impl FnOnce(&mut Self) -> Option<Solution>,
    ) -> Option<Solution> {
        self.scenarios = Scenarios::default();
        let gave_up_before = std::mem::take(&mut self.tried.gave_up);
        observer.generator_begins();
        let found = work(self);
        let scenarios = self.scenarios;
        let result = match &found {
            Some(_) => SearchResult::Solved,
            None if self.tried.gave_up => SearchResult::DeadlineExhausted,
            None if scenarios.refused > 0 => SearchResult::ValidatorRejected,
            None => SearchResult::GeneratorsExhausted,
        };
        let action = self.simulation.rules.cause.action();
        observer.generator_ended(&Attempt { action, generator, result, scenarios });
        self.tried.gave_up |= gave_up_before;
        found
    }

    /// Finds how many pods can be placed, then places all.
    fn with_generator(
        &mut self,
        plan: &mut Plan<'_>,
        ask: &PendingRequest,
        generator: &Generator,
    ) -> Option<Solution> {
        let mut recorded = Vec::new();
        let size = ask.pods.len();
        let mark = plan.mark();
        let mut probe = |group_search: &mut Self, count: usize, recorded: &mut Vec<Batch>| {
            let found = group_search.probe(plan, &ask.first(count), generator, recorded);
            plan.rollback(mark);
            found.map(|solution| *recorded = solution.batches).is_some()
        };
        let (mut solved, mut count) = (0, 1);
        let mut failed = loop {
            if !probe(self, count, &mut recorded) {
                break count;
            }
            solved = count;
            if count == size {
                break size + 1;
            }
            count = (count * 2).min(size);
        };
        while failed - solved > 1 {
            let middle = usize::midpoint(solved, failed);
            if probe(self, middle, &mut recorded) {
                solved = middle;
            } else {
                failed = middle;
            }
        }
        if solved == 0 {
            return None;
        }
        self.probe(plan, &ask.whole(), generator, &recorded)
    }

    /// Tries to place the first pods; on success the plan shows how.
    fn probe(
        &mut self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        generator: &Generator,
        recorded: &[Batch],
    ) -> Option<Solution> {
        let rules = self.simulation.rules;
        let search = self.search;
        let leaves = self.leaves.iter().map(|leaf| (*leaf, search.candidates.of_leaf(*leaf)));
        let may = |group: GroupIdx| rules.allow_group(plan, group);
        let walk = VictimWalk::new(plan, self.registry, search.total, leaves, &may, rules.max_victims);
        let literal = rules.policy.literal;
        let accumulated =
            AccumulatedVictims::new(plan, self.registry, &search.capacity, walk, part, recorded, literal);
        let mut proposals = match generator {
            Generator::NodeLocalGreedy => {
                Proposals::NodeLocal(Box::new(NodeLocal::new(accumulated, !recorded.is_empty(), literal)))
            }
            Generator::MultiNodeGang => Proposals::MultiNode(Box::new(MultiNode::new(accumulated))),
            Generator::Custom(generator) => Proposals::CustomProposals(Box::new(CustomProposals::new(
                plan,
                accumulated,
                part,
                &**generator,
                &|group| rules.allow_group(plan, group),
            ))),
        };
        loop {
            let picked = {
                let cluster: &Cluster = plan;
                let may = |group: GroupIdx| rules.allow_group(cluster, group);
                match &mut proposals {
                    Proposals::NodeLocal(proposals) => proposals.next(cluster, part, &may),
                    Proposals::MultiNode(proposals) => proposals.next(cluster, part, &may),
                    Proposals::CustomProposals(proposals) => proposals.next(),
                }
            };
            let Some(picked) = picked else {
                self.tried.fitting = Some(proposals.fitting());
                return None;
            };
            if self.limit.is_some_and(|limit| plan.work() > limit) {
                self.tried.gave_up = true;
                return None;
            }
            let batches: Vec<Batch> = recorded.iter().cloned().chain(picked).collect();
            if let Some(solution) = self.simulate(plan, part, &batches, PlacementOrder::QueueOrder) {
                return Some(solution);
            }
        }
    }

    /// Plays one scenario, unless it failed before.
    fn simulate(
        &mut self,
        plan: &mut Plan<'_>,
        part: &RequestPart<'_>,
        batches: &[Batch],
        first: PlacementOrder,
    ) -> Option<Solution> {
        if batches.is_empty() {
            return None;
        }
        self.scenarios.emitted += 1;
        let fingerprint = fingerprint(part, batches, first);
        if self.failed.contains(&fingerprint) {
            self.scenarios.duplicate += 1;
            return None;
        }
        self.tried.played += 1;
        self.scenarios.simulated += 1;
        match self.simulation.simulate(plan, part, batches, &self.start, first) {
            SimulationResult::Solved(solution) => return Some(solution),
            SimulationResult::Unplaced => {}
            SimulationResult::Rejected(rejection) => {
                self.tried.refused = Some(rejection);
                self.scenarios.refused += 1;
            }
        }
        self.failed.insert(fingerprint);
        None
    }

    /// Looks for the cheapest victims; with few of them, among all sets.
    fn with_smallest_set(
        &mut self,
        plan: &mut Plan<'_>,
        ask: &PendingRequest,
        node_costs: &mut Option<NodeCosts>,
    ) -> Option<Solution> {
        let (rules, search, part) = (self.simulation.rules, self.search, ask.whole());
        if rules.capacity_was_freed
            && let Some(solution) = self.simulation.simulate_without_victims(plan, &part)
        {
            return Some(solution);
        }
        let cluster: &Cluster = plan;
        let may = |group: GroupIdx| rules.allow_group(cluster, group) && !rules::is_fresh(cluster, group);
        let leaves = self.leaves.iter().map(|leaf| (*leaf, search.candidates.of_leaf(*leaf)));
        let mut walk = VictimWalk::new(cluster, self.registry, search.total, leaves, &may, None);
        // Inside one queue the order of groups is the queue's own business.
        let first = if rules.cause == Cause::Preempt {
            PlacementOrder::QueueOrder
        } else {
            PlacementOrder::PreemptorFirst
        };
        if let Some(batches) = minimal::few_batches(cluster, self.registry, &mut walk, &may) {
            self.tried.exhausted = true;
            let sets = minimal::all_sets(cluster, rules, &search.capacity, &part, &batches);
            // Whoever goes first may take the only place of the other.
            let other = (rules.cause == Cause::Consolidation).then_some(PlacementOrder::QueueOrder);
            return sets.into_iter().find_map(|batches| {
                let mut orders = std::iter::once(first).chain(other);
                orders.find_map(|first| self.simulate(plan, &part, &batches, first))
            });
        }
        if part.least_gpus() == 0 {
            return None;
        }
        let key = NodeCosts::key(cluster, rules, ask, &self.leaves);
        let known = node_costs.as_mut().is_some_and(|o| o.refresh(cluster, rules, &search.capacity, &key));
        if !known {
            *node_costs = Some(NodeCosts::new(cluster, rules, &search.capacity, key));
        }
        let node_costs = node_costs.as_ref()?;
        let mut proposals = node_costs.proposals(plan, rules, &search.capacity, &part);
        while let Some(batches) = proposals.next(plan, rules, &search.capacity) {
            if let Some(solution) = self.simulate(plan, &part, &batches, first) {
                return Some(solution);
            }
        }
        None
    }
}

enum Proposals<'a> {
    NodeLocal(Box<NodeLocal<'a>>),
    MultiNode(Box<MultiNode<'a>>),
    CustomProposals(Box<CustomProposals<'a>>),
}

impl Proposals<'_> {
    /// Pods that would fit with everybody accumulated gone.
    fn fitting(&self) -> i64 {
        match self {
            Self::NodeLocal(proposals) => proposals.fitting(),
            Self::MultiNode(proposals) => proposals.fitting(),
            Self::CustomProposals(proposals) => proposals.fitting(),
        }
    }
}

/// Names a scenario: how many pods are asked for, and who gives way.
fn fingerprint(part: &RequestPart<'_>, batches: &[Batch], first: PlacementOrder) -> u64 {
    use std::hash::{BuildHasher, Hash, Hasher};
    let mut pods: Vec<PodIdx> = batches.iter().flat_map(|batch| batch.pods.iter().copied()).collect();
    pods.sort_unstable();
    pods.dedup();
    let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
    (part.pods.len(), first).hash(&mut hasher);
    pods.hash(&mut hasher);
    hasher.finish()
}

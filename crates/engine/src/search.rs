//! Searches the victims whose eviction lets a pending group be scheduled.
//!
//! A search simulates scenarios, each a set of victims, in a fixed order and commits the first that places the group
//! and passes the validation rules. The number of pods to place grows from one to all of them; the victims of a
//! smaller success are recorded and kept. Scenarios that a bound on GPUs rules out are never simulated.

mod accumulate;
mod bounds;
pub(crate) mod budget;
mod custom;
mod eligible_nodes;
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
use crate::policy::{Policy, SearchDepth};
use crate::share::QueueAmounts;
use crate::verdict::EvictionFailureReason;
use accumulate::{AccumulatedVictims, Available};
use bounds::Bounds;
use custom::CustomProposals;
use eligible_nodes::EligibleNodes;
use fixedbitset::FixedBitSet;
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

/// Name in metrics of the fallback generator, which searches the cheapest set of victims.
const SMALLEST_SET: &str = "SmallestSet";

/// State shared by the searches of a cycle.
pub(crate) struct Search {
    capacity: NodeCapacity,
    pending: PendingGroups,
    candidates: Candidates,
    eligible_nodes: EligibleNodes,
    /// Eviction cost per node, from the last search that computed it.
    node_costs: Option<NodeCosts>,
    total: QueueAmounts,
    seed: u64,
}

#[derive(Debug)]
pub(crate) enum SearchOutcome {
    /// Nodes were found for all pods; the plan contains the placement.
    Solved(Solution),
    /// No simulated scenario is valid.
    Unsolved(SearchStats),
    /// No running group may be evicted.
    NoVictims,
    /// Evicting every candidate would not free enough.
    Insufficient(EvictionFailureReason),
}

/// Statistics of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchStats {
    /// Scenarios simulated.
    pub simulated: u32,
    /// Rule that rejected the last scenario whose pods were placed.
    pub rejected: Option<Rejection>,
    /// Every set of victims was simulated.
    pub all_sets_tried: bool,
    /// The search budget was exhausted.
    pub budget_exhausted: bool,
    /// Upper bound, by GPUs, on the pods that fit with every accumulated victim evicted.
    pub fitting: Option<i64>,
    /// Node evaluations and plan edits.
    pub steps: u64,
}

impl Search {
    pub(crate) fn new(plan: &mut Plan<'_>, policy: &Policy, total: QueueAmounts, seed: u64) -> Self {
        let registry = &policy.registry;
        let mut known = std::mem::take(&mut plan.memo_mut().victims);
        let candidates = if policy.literal {
            Candidates::new(plan)
        } else {
            known.take(plan, registry, plan.changed_groups())
        };
        plan.memo_mut().victims = known;
        let mut capacity = plan.memo_mut().capacity.take().unwrap_or_else(|| NodeCapacity::new(plan));
        capacity.refresh(plan);
        Self {
            capacity,
            pending: PendingGroups::new(plan, registry),
            candidates,
            eligible_nodes: EligibleNodes::default(),
            node_costs: None,
            total,
            seed,
        }
    }

    /// GPUs and GPU memory that are idle or releasing on ready nodes.
    pub(crate) fn free(&mut self, plan: &Plan<'_>) -> (i64, i64) {
        self.capacity.refresh(plan);
        self.capacity.ready()
    }

    /// Searches victims for a group. On success the plan contains the result; otherwise it is unchanged.
    pub(crate) fn solve(
        &mut self,
        plan: &mut Plan<'_>,
        rules: &Rules<'_>,
        request: &PendingRequest,
        disruptions: &Disruptions,
        budget: Option<u64>,
        observer: &mut dyn Observer,
    ) -> SearchOutcome {
        self.capacity.refresh(plan);
        let registry = &rules.policy.registry;
        let leaves: Vec<QueueIdx> =
            self.candidates.queues().filter(|leaf| rules.allow_leaf(plan, *leaf)).collect();
        for &leaf in &leaves {
            self.candidates.sort(plan, registry, leaf);
        }
        let eligible = self.eligible_nodes.of(plan, rules.policy, &request.whole());
        let eligible = eligible.as_deref();
        if let (Some(bound), false) =
            (self.bound(plan, rules, request, &leaves, eligible), rules.policy.literal)
        {
            return bound;
        }
        let start = self.capacity.start(plan, request.group);
        let mut node_costs = self.node_costs.take();
        let simulation =
            Simulation { rules, pending: &self.pending, disruptions, total: self.total, seed: self.seed };
        let work_before = plan.work();
        let mut group_search = GroupSearch {
            search: self,
            simulation,
            registry,
            leaves,
            eligible,
            start,
            stats: SearchStats::default(),
            failed: FxHashSet::default(),
            scenarios: Scenarios::default(),
            budget_end: budget.map(|steps| work_before.saturating_add(steps)),
            limit: None,
            round_limit: None,
            is_cut: false,
        };
        let is_full = rules.policy.search == SearchDepth::Full;
        let first = is_full.then(|| budget::first_round(rules.policy, request)).flatten();
        let generators = registry.generators.iter();
        let round = first.map_or(Round::Only, Round::First);
        let (mut found, cut) = group_search.with_generators(plan, request, generators, round, observer);
        if is_full {
            found = found.or_else(|| {
                group_search.observed(SMALLEST_SET, observer, |group_search| {
                    group_search.with_smallest_set(plan, request, &mut node_costs)
                })
            });
        }
        if found.is_none() {
            (found, _) = group_search.with_generators(plan, request, cut, Round::Second, observer);
        }
        if is_full {
            found = found.map(|solution| group_search.simulation.reduce(plan, &request.whole(), solution));
        }
        let mut stats = group_search.stats;
        stats.steps = plan.work() - work_before;
        self.node_costs = node_costs;
        found.map_or(SearchOutcome::Unsolved(stats), SearchOutcome::Solved)
    }

    /// Fails early where no scenario can succeed.
    fn bound(
        &self,
        cluster: &Cluster,
        rules: &Rules<'_>,
        request: &PendingRequest,
        leaves: &[QueueIdx],
        eligible: Option<&FixedBitSet>,
    ) -> Option<SearchOutcome> {
        let of_leaves = leaves.iter().map(|leaf| (*leaf, self.candidates.of_leaf(*leaf)));
        let is_allowed = |group: GroupIdx| rules.allow_group(cluster, group);
        let registry = &rules.policy.registry;
        if VictimWalk::new(cluster, registry, self.total, of_leaves, &is_allowed, None).is_empty()
            && !rules.capacity_was_freed
        {
            return Some(SearchOutcome::NoVictims);
        }
        let (capacity, candidates) = (&self.capacity, &self.candidates);
        let bounds = Bounds { cluster, rules, capacity, candidates, leaves, eligible };
        bounds.rejection(&request.whole()).map(SearchOutcome::Insufficient)
    }

    /// Keeps for the next cycle what does not end with this one.
    pub(crate) fn end(self, plan: &mut Plan<'_>, registry: &Registry) {
        let memo = plan.memo_mut();
        memo.victims.keep(registry, self.candidates);
        memo.capacity = Some(self.capacity.between_cycles());
    }

    /// Updates candidates and pending groups after a search was committed.
    pub(crate) fn commit(&mut self, cluster: &Cluster, registry: &Registry, groups: &[GroupIdx]) {
        self.pending.remove(cluster, groups);
        for &group in groups {
            self.pending.insert_again(cluster, registry, group);
        }
        self.candidates.changed_by_cycle(cluster, registry, groups);
    }
}

/// A round in which generators run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// With the whole budget.
    Only,
    /// With so many steps, before the smallest set is searched.
    First(u64),
    /// After that search failed.
    Second,
}

/// The search for one group.
struct GroupSearch<'a> {
    search: &'a Search,
    simulation: Simulation<'a>,
    registry: &'a Registry,
    leaves: Vec<QueueIdx>,
    /// The nodes that the pods may use, where these are not all.
    eligible: Option<&'a FixedBitSet>,
    start: NodeSet,
    stats: SearchStats,
    /// Fingerprints of scenarios that failed.
    failed: FxHashSet<u64>,
    /// Counts of the generator that is running.
    scenarios: Scenarios,
    /// Value of `Plan::work` at which the budget of the group ends.
    budget_end: Option<u64>,
    /// Value of `Plan::work` beyond which the current generator stops.
    limit: Option<u64>,
    /// The same for its first round.
    round_limit: Option<u64>,
    /// The first round of the current generator ended before its scenarios did.
    is_cut: bool,
}

impl GroupSearch<'_> {
    /// Runs generators in order until one finds victims. Returns also those whose first round ended before their scenarios
    /// did.
    fn with_generators<'g>(
        &mut self,
        plan: &mut Plan<'_>,
        request: &PendingRequest,
        generators: impl IntoIterator<Item = &'g Generator>,
        round: Round,
        observer: &mut dyn Observer,
    ) -> (Option<Solution>, Vec<&'g Generator>) {
        let (mut found, mut cut) = (None, Vec::new());
        for generator in generators {
            let work = plan.work();
            let remaining = self.budget_end.map(|end| end.saturating_sub(work));
            let budgets = &self.simulation.rules.policy.budgets;
            let whole = budget::for_generator(budgets, generator.name(), remaining);
            let (steps, first) = match round {
                // How often a generator of a user is asked does not depend on the others.
                Round::First(steps) if !matches!(generator, Generator::Custom(_)) => (whole, Some(steps)),
                Round::First(_) | Round::Only => (whole, None),
                Round::Second => (whole.map(budget::of_second_round), None),
            };
            self.limit = steps.map(|steps| work.saturating_add(steps));
            self.round_limit = first.map(|steps| work.saturating_add(steps));
            self.is_cut = false;
            found = self.observed(generator.name(), observer, |group_search| {
                group_search.with_generator(plan, request, generator)
            });
            if self.is_cut {
                cut.push(generator);
            }
            if found.is_some() {
                break;
            }
        }
        (self.limit, self.round_limit, self.is_cut) = (None, None, false);
        (found, cut)
    }

    /// Runs a generator and reports its result to the observer.
    fn observed(
        &mut self,
        generator: &str,
        observer: &mut dyn Observer,
        work: impl FnOnce(&mut Self) -> Option<Solution>,
    ) -> Option<Solution> {
        self.scenarios = Scenarios::default();
        let exhausted_before = std::mem::take(&mut self.stats.budget_exhausted);
        observer.generator_begins();
        let found = work(self);
        let scenarios = self.scenarios;
        let result = match &found {
            Some(_) => SearchResult::Solved,
            None if self.stats.budget_exhausted || self.is_cut => SearchResult::DeadlineExhausted,
            None if scenarios.refused > 0 => SearchResult::ValidatorRejected,
            None => SearchResult::GeneratorsExhausted,
        };
        let action = self.simulation.rules.cause.action();
        observer.generator_ended(&Attempt { action, generator, result, scenarios });
        self.stats.budget_exhausted |= exhausted_before;
        found
    }

    /// Finds the largest number of pods that can be placed by doubling and bisection, then places all of them.
    fn with_generator(
        &mut self,
        plan: &mut Plan<'_>,
        request: &PendingRequest,
        generator: &Generator,
    ) -> Option<Solution> {
        let mut recorded = Vec::new();
        let size = request.pods.len();
        let mark = plan.mark();
        let mut probe = |group_search: &mut Self, count: usize, recorded: &mut Vec<Batch>| {
            let found = group_search.probe(plan, &request.first(count), generator, recorded);
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
        self.probe(plan, &request.whole(), generator, &recorded)
    }

    /// Simulates the scenarios of a generator for the first pods; on success the plan contains the placement.
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
        let is_allowed = |group: GroupIdx| rules.allow_group(plan, group);
        let walk = VictimWalk::new(plan, self.registry, search.total, leaves, &is_allowed, rules.max_victims);
        let literal = rules.policy.literal;
        let available = Available { capacity: &search.capacity, eligible: self.eligible };
        let accumulated =
            AccumulatedVictims::new(plan, self.registry, available, walk, part, recorded, literal);
        let mut proposals = match generator {
            Generator::NodeLocalGreedy => {
                Proposals::NodeLocal(Box::new(NodeLocal::new(accumulated, !recorded.is_empty(), literal)))
            }
            Generator::MultiNodeGang => Proposals::MultiNode(Box::new(MultiNode::new(accumulated))),
            Generator::Custom(generator) => Proposals::Custom(Box::new(CustomProposals::new(
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
                let is_allowed = |group: GroupIdx| rules.allow_group(cluster, group);
                match &mut proposals {
                    Proposals::NodeLocal(proposals) => proposals.next(cluster, part, &is_allowed),
                    Proposals::MultiNode(proposals) => proposals.next(cluster, part, &is_allowed),
                    Proposals::Custom(proposals) => proposals.next(),
                }
            };
            let Some(picked) = picked else {
                self.stats.fitting = Some(proposals.fitting());
                return None;
            };
            if self.limit.is_some_and(|limit| plan.work() > limit) {
                self.stats.budget_exhausted = true;
                return None;
            }
            if self.round_limit.is_some_and(|limit| plan.work() > limit) {
                self.is_cut = true;
                return None;
            }
            let batches: Vec<Batch> = recorded.iter().cloned().chain(picked).collect();
            if let Some(solution) = self.simulate(plan, part, &batches, PlacementOrder::QueueOrder) {
                return Some(solution);
            }
        }
    }

    /// Simulates a scenario, unless an equal one failed before.
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
        self.stats.simulated += 1;
        self.scenarios.simulated += 1;
        match self.simulation.simulate(plan, part, batches, &self.start, first) {
            SimulationResult::Solved(solution) => return Some(solution),
            SimulationResult::Unplaced => {}
            SimulationResult::Rejected(rejection) => {
                self.stats.rejected = Some(rejection);
                self.scenarios.refused += 1;
            }
        }
        self.failed.insert(fingerprint);
        None
    }

    /// Searches the cheapest set of victims; exhaustively where there are few candidates.
    fn with_smallest_set(
        &mut self,
        plan: &mut Plan<'_>,
        request: &PendingRequest,
        node_costs: &mut Option<NodeCosts>,
    ) -> Option<Solution> {
        let (rules, search, part) = (self.simulation.rules, self.search, request.whole());
        if rules.capacity_was_freed
            && let Some(solution) = self.simulation.simulate_without_victims(plan, &part)
        {
            return Some(solution);
        }
        let cluster: &Cluster = plan;
        let is_allowed = |group: GroupIdx| {
            rules.allow_group(cluster, group) && !rules::has_pod_placed_this_cycle(cluster, group)
        };
        let leaves = self.leaves.iter().map(|leaf| (*leaf, search.candidates.of_leaf(*leaf)));
        let mut walk = VictimWalk::new(cluster, self.registry, search.total, leaves, &is_allowed, None);
        // Preemption stays within one queue, so that the order of its groups decides.
        let first = if rules.cause == Cause::Preempt {
            PlacementOrder::QueueOrder
        } else {
            PlacementOrder::PreemptorFirst
        };
        if let Some(batches) = minimal::few_batches(cluster, self.registry, &mut walk, &is_allowed) {
            self.stats.all_sets_tried = true;
            let sets = minimal::all_sets(cluster, rules, &search.capacity, &part, &batches);
            // The group that is placed first may use the only node that suits the other.
            let other = (rules.cause == Cause::Consolidation).then_some(PlacementOrder::QueueOrder);
            return sets.into_iter().find_map(|batches| {
                let mut orders = std::iter::once(first).chain(other);
                orders.find_map(|first| self.simulate(plan, &part, &batches, first))
            });
        }
        if part.least_gpus() == 0 {
            return None;
        }
        let key = NodeCosts::key(cluster, rules, request, &self.leaves);
        let known = node_costs.as_mut().is_some_and(|o| o.refresh(plan, rules, &search.capacity, &key));
        if !known {
            *node_costs = Some(NodeCosts::new(plan, rules, &search.capacity, key));
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
    Custom(Box<CustomProposals<'a>>),
}

impl Proposals<'_> {
    /// Upper bound on the pods that fit with all accumulated victims evicted.
    fn fitting(&self) -> i64 {
        match self {
            Self::NodeLocal(proposals) => proposals.fitting(),
            Self::MultiNode(proposals) => proposals.fitting(),
            Self::Custom(proposals) => proposals.fitting(),
        }
    }
}

/// Identifies a scenario by the number of pods to place, the order and the victims.
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

//! The common part of consolidation, reclaim and preempt: searches victims for pending groups in queue order.

use crate::carry_over;
use crate::cluster::Cluster;
use crate::cluster::pod::PodState;
use crate::cycle::Run;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx, QueueIdx};
use crate::input::Key;
use crate::observer::{SearchResult, Searched};
use crate::order::evict::evictions_deferred;
use crate::order::tree_walk::{Purpose, TreeWalk};
use crate::outcome::{Cause, Decision, EvictionReason, QueueChange};
use crate::place::checks;
use crate::policy::SearchDepth;
use crate::search::budget::ActionBudget;
use crate::search::pending_request::PendingRequest;
use crate::search::reduce::{CommittedSearch, RestoreContext, restore_unneeded_victims};
use crate::search::rules::Rules;
use crate::search::simulation::Solution;
use crate::search::{Search, SearchOutcome, SearchStats};
use crate::share::{
    Preemptibility, RESOURCES, capacity_policy, levelled_pair, reclaim, root_ledgers, root_path,
};
use crate::signature::{Comparison, Representatives, Scope, Signatures};
use crate::verdict::{EvictionFailure, EvictionFailureReason, QueueResource, Verdict};
use std::collections::BTreeSet;

pub(crate) fn run(run: &mut Run<'_, '_>, cause: Cause) {
    if cause == Cause::Consolidation && run.policy.params.max_consolidation_victims == Some(0) {
        return;
    }
    let mut pending = run.pending_groups();
    if cause == Cause::Consolidation {
        pending.retain(|group| run.plan.groups[*group].preemptible);
    }
    pending.retain(|group| run.may_evict(*group) && !causes_no_evictions(run, *group));
    if pending.is_empty() {
        return;
    }
    let depth = run.policy.queue_depth.get(cause.action()).copied();
    let registry = &run.policy.registry;
    let mut walk = TreeWalk::new(&run.plan, registry, Purpose::Place, run.total, pending, depth);
    let scope = if cause == Cause::Consolidation { Scope::Cluster } else { Scope::Queue };
    let mut action = ActionRun {
        cause,
        search: run.search.take(),
        budget: ActionBudget::new(&run.policy.budgets, cause.action()),
        signatures: Signatures::default(),
        failed: Representatives::new(scope),
        result: SearchResult::NotAttempted,
        filtered: false,
    };
    while let Some(group) = walk.pop(&run.plan) {
        if run.is_over() {
            break;
        }
        if !run.may_evict(group) {
            continue;
        }
        let (reduced_budget, exhausted) =
            (action.budget.is_reduced(&run.policy.budgets), action.budget.is_exhausted());
        (action.result, action.filtered) = (SearchResult::NotAttempted, false);
        run.guarded(group, |run| action.of_group(run, group));
        run.observer.search_ended(&Searched {
            action: cause.action(),
            result: action.result,
            reduced_budget,
            filtered: action.filtered,
            action_exhausted: !exhausted && action.budget.is_exhausted(),
        });
        if run.quarantined.contains_key(&group) {
            action.search = None;
        }
        run.note_progress();
    }
    run.search = action.search;
}

/// Whether a group causes no evictions in this cycle; notes why.
fn causes_no_evictions(run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
    let Some(verdict) = evictions_deferred(&run.plan.groups[group], run.cycle.now) else { return false };
    run.note_obstacle_once(group, verdict);
    true
}

/// State of a running action.
struct ActionRun {
    cause: Cause,
    /// Created for the first group that needs it and passed on to the next action.
    search: Option<Search>,
    budget: ActionBudget,
    signatures: Signatures,
    failed: Representatives,
    /// Result of the current group's search.
    result: SearchResult,
    /// The search was skipped because all victims together are insufficient.
    filtered: bool,
}

impl ActionRun {
    /// Runs the action for a group; true when its pods were placed.
    fn of_group(&mut self, run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
        let request = PendingRequest::of(&run.plan, &run.policy.registry, group);
        if request.pods.is_empty() {
            return false;
        }
        let Some(mut rules) = Rules::new(&run.plan, run.policy, self.cause, run.cycle.now, &request.whole())
        else {
            return false;
        };
        rules.capacity_was_freed = run.capacity_was_freed;
        if carry_over::binds(self.cause) {
            rules.excluded = run.past_evictions.excluded_for(group);
        }
        match self.check(run, &rules, &request) {
            Ok(()) => {}
            Err(reason) => return self.record_failure(run, group, reason),
        }
        match self.search(run, &rules, &request) {
            Ok(()) => true,
            Err(reason) => {
                // An exclusion concerns this group only, so its failure does not represent equivalent groups.
                if let Some(&other) = rules.matched_excluded.get() {
                    let other = run.plan.group_key(other);
                    return self.record_failure(run, group, EvictionFailureReason::RepeatedEviction(other));
                }
                if run.policy.params.use_signatures {
                    self.failed.note(&run.plan, &mut self.signatures, group, request.pods.len());
                }
                self.record_failure(run, group, reason)
            }
        }
    }

    fn record_failure(&self, run: &mut Run<'_, '_>, group: GroupIdx, reason: EvictionFailureReason) -> bool {
        let failure = EvictionFailure { cause: self.cause, reason };
        run.note_obstacle_once(group, Verdict::NoVictims(Box::new(failure)));
        false
    }

    /// Checks that precede the search.
    fn check(
        &mut self,
        run: &Run<'_, '_>,
        rules: &Rules<'_>,
        request: &PendingRequest,
    ) -> Result<(), EvictionFailureReason> {
        let cluster: &Cluster = &run.plan;
        if self.cause == Cause::Reclaim && rules.shares().is_some() {
            within_share(cluster, rules)?;
        }
        if run.policy.params.use_signatures
            && let Some(other) = self.representative(run, request)
        {
            return Err(EvictionFailureReason::EquivalentGroupFailed(cluster.group_key(other)));
        }
        for &pod in &request.pods {
            checks::check_lasting(cluster, run.policy, pod).map_err(EvictionFailureReason::Unschedulable)?;
        }
        Ok(())
    }

    /// A failed group with the same scheduling signature that is not harder to schedule.
    fn representative(&mut self, run: &Run<'_, '_>, request: &PendingRequest) -> Option<GroupIdx> {
        let (cluster, signatures): (&Cluster, _) = (&run.plan, &mut self.signatures);
        if run.policy.search == SearchDepth::Full {
            return self.failed.representative_for(cluster, signatures, request.group, request.pods.len());
        }
        match self.failed.compare(cluster, signatures, request.group) {
            Comparison::NotEasier(other) => Some(other),
            Comparison::NoRepresentative | Comparison::Easier(_) => None,
        }
    }

    fn search(
        &mut self,
        run: &mut Run<'_, '_>,
        rules: &Rules<'_>,
        request: &PendingRequest,
    ) -> Result<(), EvictionFailureReason> {
        let (policy, registry) = (run.policy, &run.policy.registry);
        let (total, seed) = (run.total, run.cycle.seed);
        let search = self.search.get_or_insert_with(|| Search::new(&mut run.plan, policy, total, seed));
        let free = search.free(&run.plan);
        may_search(run, rules, request, free)?;
        if run.disruptions.is_none() {
            run.disruptions = Some(Disruptions::new(run.plan.cluster_mut(), run.policy.disruption_budgets));
        }
        let disruptions = run.disruptions.as_ref().expect("created above");
        let used = run.plan.groups[request.group].active_used();
        let (mark, work_before) = (run.plan.mark(), run.plan.work());
        let budget = self.budget.for_group(&run.policy.budgets);
        let found = search.solve(&mut run.plan, rules, request, disruptions, budget, &mut *run.observer);
        self.result = result(&found, registry.generators.is_empty());
        self.filtered = matches!(found, SearchOutcome::Insufficient(_));
        self.budget.spend(run.plan.work() - work_before);
        let solution = match found {
            SearchOutcome::Solved(solution) => solution,
            SearchOutcome::Unsolved(stats) => return Err(failure_reason(&run.plan, request, &stats)),
            SearchOutcome::NoVictims => return Err(EvictionFailureReason::NoCandidates),
            SearchOutcome::Insufficient(reason) => return Err(reason),
        };
        let group = &run.plan.groups[request.group];
        if !group.is_gang_satisfied() || group.active_used() <= used {
            run.plan.rollback(mark);
            self.result = SearchResult::Unsolved;
            return Err(EvictionFailureReason::NoValidScenario { tried: 1, all: false, refused: None });
        }
        let groups = run.commit_solution(self.cause, request, &solution);
        run.committed_searches.push(CommittedSearch {
            cause: self.cause,
            request: request.clone(),
            solution,
        });
        search.commit(&run.plan, registry, &groups);
        Ok(())
    }
}

/// The result of a search as reported in metrics.
fn result(found: &SearchOutcome, no_generators: bool) -> SearchResult {
    match found {
        SearchOutcome::Solved(_) => SearchResult::Solved,
        SearchOutcome::Unsolved(stats) if stats.budget_exhausted => SearchResult::DeadlineExhausted,
        SearchOutcome::Unsolved(stats) if stats.rejected.is_some() => SearchResult::ValidatorRejected,
        SearchOutcome::Unsolved(stats) if no_generators && stats.simulated == 0 => SearchResult::NoGenerator,
        SearchOutcome::Unsolved(_) | SearchOutcome::NoVictims | SearchOutcome::Insufficient(_) => {
            SearchResult::GeneratorsExhausted
        }
    }
}

/// Checks that follow the comparison of signatures: a failure here represents equivalent groups as well.
fn may_search(
    run: &Run<'_, '_>,
    rules: &Rules<'_>,
    request: &PendingRequest,
    free: (i64, i64),
) -> Result<(), EvictionFailureReason> {
    let cluster: &Cluster = &run.plan;
    let has_shares = run.policy.registry.builtin.proportion.is_some();
    let non_preemptible = rules.reclaimer.preemptibility == Preemptibility::NonPreemptible;
    match rules.cause {
        Cause::Preempt if has_shares && non_preemptible => {
            let amounts = crate::place::requested(cluster, &request.pods);
            let queue = rules.reclaimer.queue;
            match capacity_policy::over_quota(root_ledgers(cluster, queue), &amounts) {
                None => Ok(()),
                Some(excess) => {
                    let at = root_path(cluster, queue).nth(excess.level).unwrap_or(queue);
                    let name = cluster.text(cluster.queues[at].display);
                    Err(EvictionFailureReason::BeyondQuota(excess.named(name)))
                }
            }
        }
        Cause::Consolidation => enough_without_fragmentation(cluster, &request.pods, free),
        Cause::Preempt | Cause::Reclaim | Cause::Stale => Ok(()),
    }
}

/// The reason of a failed search.
fn failure_reason(cluster: &Cluster, request: &PendingRequest, stats: &SearchStats) -> EvictionFailureReason {
    let pods = request.pods.len() as u32;
    let fitting = stats.fitting.and_then(|fitting| u32::try_from(fitting).ok());
    match fitting {
        _ if stats.budget_exhausted => {
            EvictionFailureReason::BudgetExhausted { tried: stats.simulated, steps: stats.steps }
        }
        Some(fitting) if fitting < pods => {
            EvictionFailureReason::NodesTooSmall { pods, fitting, gpus: request.whole().least_gpus() }
        }
        _ => EvictionFailureReason::NoValidScenario {
            tried: stats.simulated,
            all: stats.all_sets_tried,
            refused: stats.rejected.as_ref().map(|rejection| rejection.named(cluster)),
        },
    }
}

/// Whether the queue of a group stays within its fair share, and within its quota if the group is non-preemptible.
fn within_share(cluster: &Cluster, rules: &Rules<'_>) -> Result<(), EvictionFailureReason> {
    let (ledger, reclaimer) = (&cluster.queues[rules.reclaimer.queue].ledger, &rules.reclaimer);
    let requested = &reclaimer.request.amounts;
    if reclaim::may_reclaim(ledger, reclaimer.preemptibility, requested) {
        return Ok(());
    }
    let queue = cluster.text(cluster.queues[reclaimer.queue].display).to_owned();
    let over = RESOURCES.into_iter().find(|&r| ledger.allocated[r] + requested[r] > ledger.fair_share[r]);
    let Some(r) = over else {
        let excess = capacity_policy::over_quota(std::iter::once(ledger), requested);
        let beyond =
            |excess: capacity_policy::Excess| EvictionFailureReason::BeyondQuota(excess.named(queue));
        return Err(excess.map_or(EvictionFailureReason::NoCandidates, beyond));
    };
    Err(EvictionFailureReason::BeyondFairShare {
        queue,
        resource: r,
        fair_share: ledger.fair_share[r],
        used: ledger.allocated[r],
        requested: requested[r],
    })
}

/// Whether the idle and releasing GPUs would be sufficient without fragmentation.
fn enough_without_fragmentation(
    cluster: &Cluster,
    pods: &[PodIdx],
    (gpus, mib): (i64, i64),
) -> Result<(), EvictionFailureReason> {
    let requested: i64 = pods.iter().map(|pod| cluster.queue_request(*pod, None)[QueueResource::Gpu]).sum();
    let requested_mib: i64 = pods.iter().map(|pod| cluster.shape(*pod).memory_on(0)).sum();
    if gpus >= requested && mib >= requested_mib {
        return Ok(());
    }
    Err(EvictionFailureReason::InsufficientFree { resource: QueueResource::Gpu, requested, free: gpus })
}

/// Restores victims whose eviction later searches of the cycle made unnecessary.
pub(crate) fn reduce_victims(run: &mut Run<'_, '_>) {
    if run.committed_searches.len() < 2 || run.policy.search == SearchDepth::Kai {
        return;
    }
    let context = RestoreContext { policy: run.policy, seed: run.cycle.seed };
    let restored = restore_unneeded_victims(&mut run.plan, context, run.cycle.now, &run.committed_searches);
    run.withdraw_decisions(&restored);
}

impl Run<'_, '_> {
    /// Turns a solution into decisions; returns the groups that it changed.
    fn commit_solution(
        &mut self,
        cause: Cause,
        request: &PendingRequest,
        solution: &Solution,
    ) -> Vec<GroupIdx> {
        let preemptor = self.plan.group_key(request.group);
        let size = solution.before.len();
        let in_order = solution.batches.iter().flat_map(|batch| batch.pods.iter().copied());
        let affected: Vec<PodIdx> =
            in_order.filter(|pod| self.plan.pods[*pod].state != solution.before[pod]).collect();
        let (moved_before, evicted): (Vec<PodIdx>, Vec<PodIdx>) =
            affected.iter().partition(|pod| solution.before[*pod].releasing.is_some());
        self.withdraw_decisions(&moved_before);
        let restored = |pod: &&PodIdx| {
            let state = &self.plan.pods[**pod].state;
            state.releasing.is_none() && state.status.is_active_allocated()
        };
        let restored: Vec<PodIdx> = moved_before.iter().filter(restored).copied().collect();
        for &pod in affected.iter().filter(|pod| !restored.contains(pod)) {
            let why = self.why(cause, request, solution, pod);
            self.push_eviction(pod, cause.action(), size, Some(preemptor.clone()), why);
        }
        let moved = affected.iter().filter(|pod| self.plan.pods[**pod].state.releasing.is_some());
        let placed: Vec<PodIdx> =
            request.pods.iter().chain(moved).chain(&solution.also_placed).copied().collect();
        for &pod in &placed {
            self.commit(pod, cause.action());
        }
        for &pod in affected.iter().chain(&placed) {
            let state = self.plan.pods[pod].state.clone();
            self.plan.set_state(pod, PodState { is_virtual: false, ..state });
        }
        if let Some(mut disruptions) = self.disruptions.take() {
            disruptions.draw(&self.plan, &evicted);
            disruptions.give_back(&self.plan, &restored);
            self.disruptions = Some(disruptions);
        }
        self.note_pipelined(request.group);
        let mut groups: Vec<GroupIdx> =
            affected.iter().filter_map(|pod| self.plan.pods[*pod].group).collect();
        for &group in &groups {
            self.note_pipelined(group);
        }
        groups.push(request.group);
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Removes the decisions for pods that were moved earlier in the cycle: they lose the node they wait for, get
    /// another one, or keep their original node.
    fn withdraw_decisions(&mut self, pods: &[PodIdx]) {
        if pods.is_empty() {
            return;
        }
        let keys: BTreeSet<Key> = pods.iter().map(|pod| self.plan.pod_key(*pod)).collect();
        self.outcome.decisions.retain(|decision| match decision {
            Decision::Pipeline { pod, .. } | Decision::Evict { pod, .. } => !keys.contains(pod),
            Decision::Bind(_) => true,
        });
    }

    pub(crate) fn push_eviction(
        &mut self,
        pod: PodIdx,
        action: &'static str,
        gang_size: usize,
        preemptor: Option<Key>,
        why: EvictionReason,
    ) {
        self.capacity_was_freed = true;
        let p = &self.plan.pods[pod];
        self.outcome.decisions.push(Decision::Evict {
            pod: self.plan.pod_key(pod),
            uid: self.plan.text(p.uid).to_owned(),
            group: p.group.map(|group| self.plan.group_key(group)),
            gang_size: gang_size as u32,
            preemptor,
            action,
            why: Box::new(why),
        });
    }

    /// The rule that allows the eviction of a pod.
    fn why(
        &self,
        cause: Cause,
        request: &PendingRequest,
        solution: &Solution,
        pod: PodIdx,
    ) -> EvictionReason {
        let cluster: &Cluster = &self.plan;
        let p = &cluster.pods[pod];
        if let (Some(_), Some(node)) = (&p.state.releasing, p.state.node()) {
            return EvictionReason::Moved { node: cluster.text(cluster.nodes[node].name).to_owned() };
        }
        let (preemptor, victim) =
            (&cluster.groups[request.group], p.group.map(|group| &cluster.groups[group]));
        let queues = preemptor.queue.zip(victim.and_then(|victim| victim.queue));
        let (Cause::Reclaim, Some((reclaimer, victim))) = (cause, queues) else {
            let victim = victim.map_or(0, |victim| victim.priority);
            return EvictionReason::Priority { preemptor: preemptor.priority, victim };
        };
        let (reclaimer, victim) = levelled_pair(cluster, reclaimer, victim);
        let change = |queue: QueueIdx| {
            let now = &cluster.queues[queue].ledger;
            let before = solution.ledgers.get(&queue).unwrap_or(now);
            QueueChange {
                queue: cluster.text(cluster.queues[queue].display).to_owned(),
                quota: now.quota,
                fair_share: now.fair_share,
                before: before.allocated,
                after: now.allocated,
            }
        };
        let ledger = solution.ledgers.get(&victim).unwrap_or(&cluster.queues[victim].ledger);
        let (reclaimer, victim) = (change(reclaimer), change(victim));
        if reclaim::holds_beyond_share(ledger, &ledger.allocated) {
            EvictionReason::AboveShare { reclaimer, victim }
        } else {
            EvictionReason::AboveQuota { reclaimer, victim }
        }
    }
}

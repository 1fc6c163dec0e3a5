//! What consolidation, reclaim and preempt have in common: groups take turns, and each looks for victims.

use crate::carry_over;
use crate::cluster::Cluster;
use crate::cluster::pod::PodState;
use crate::cycle::Run;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx, QueueIdx};
use crate::input::Key;
use crate::observer::{SearchResult, Searched};
use crate::order::evict::preemption_delay;
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

/// Runs one of the actions.
pub(crate) fn run(run: &mut Run<'_, '_>, cause: Cause) {
    if cause == Cause::Consolidation && run.policy.params.max_consolidation_victims == Some(0) {
        return;
    }
    let mut waiting = run.waiting_groups();
    if cause == Cause::Consolidation {
        waiting.retain(|group| run.plan.groups[*group].preemptible);
    }
    waiting.retain(|group| !delayed(run, *group));
    if waiting.is_empty() {
        return;
    }
    let depth = run.policy.queue_depth.get(cause.action()).copied();
    let registry = &run.policy.registry;
    let mut walk = TreeWalk::new(&run.plan, registry, Purpose::Place, run.total, waiting, depth);
    let scope = if cause == Cause::Consolidation { Scope::Cluster } else { Scope::Queue };
    let mut turn = Turn {
        cause,
        search: run.search.take(),
        budget: ActionBudget::new(&run.policy.budgets, cause.action()),
        signatures: Signatures::default(),
        failed: Representatives::new(scope),
        result: SearchResult::NotAttempted,
        filtered: false,
    };
    while let Some(group) = walk.pop(&run.plan) {
        let (reduced_budget, exhausted) =
            (turn.budget.is_reduced(&run.policy.budgets), turn.budget.is_exhausted());
        (turn.result, turn.filtered) = (SearchResult::NotAttempted, false);
        run.guarded(group, |run| turn.of_group(run, group));
        run.observer.search_ended(&Searched {
            action: cause.action(),
            result: turn.result,
            reduced_budget,
            filtered: turn.filtered,
            action_exhausted: !exhausted && turn.budget.is_exhausted(),
        });
        if run.quarantined.contains_key(&group) {
            turn.search = None;
        }
    }
    run.search = turn.search;
}

/// A group within its preemption delay causes no evictions, and says so.
fn delayed(run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
    let Some(verdict) = preemption_delay(&run.plan.groups[group], run.cycle.now) else { return false };
    run.note_obstacle_once(group, verdict);
    true
}

/// An action in progress.
struct Turn {
    cause: Cause,
    /// Made when the first group needs it, and handed on to the next action.
    search: Option<Search>,
    budget: ActionBudget,
    signatures: Signatures,
    failed: Representatives,
    /// How the search of the group whose turn it is ended.
    result: SearchResult,
    /// It was clear before that all victims are too few.
    filtered: bool,
}

impl Turn {
    /// One group's turn; true when it got places.
    fn of_group(&mut self, run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
        let ask = PendingRequest::of(&run.plan, &run.policy.registry, group);
        if ask.pods.is_empty() {
            return false;
        }
        let Some(mut rules) = Rules::new(&run.plan, run.policy, self.cause, run.cycle.now, &ask.whole())
        else {
            return false;
        };
        rules.capacity_was_freed = run.capacity_was_freed;
        if carry_over::binds(self.cause) {
            rules.excluded = run.taken.excluded_for(group);
        }
        match self.obstacle(run, &rules, &ask) {
            Ok(()) => {}
            Err(reason) => return self.refuse(run, group, reason),
        }
        match self.search(run, &rules, &ask) {
            Ok(()) => true,
            Err(reason) => {
                // What bars one group does not bar its likes.
                if let Some(&other) = rules.matched_excluded.get() {
                    let other = run.plan.group_key(other);
                    return self.refuse(run, group, EvictionFailureReason::RepeatedEviction(other));
                }
                if run.policy.params.use_signatures {
                    self.failed.note(&run.plan, &mut self.signatures, group, ask.pods.len());
                }
                self.refuse(run, group, reason)
            }
        }
    }

    fn refuse(&self, run: &mut Run<'_, '_>, group: GroupIdx, reason: EvictionFailureReason) -> bool {
        let miss = EvictionFailure { cause: self.cause, reason };
        run.note_obstacle_once(group, Verdict::NoVictims(Box::new(miss)));
        false
    }

    /// What must hold before victims are looked for.
    fn obstacle(
        &mut self,
        run: &Run<'_, '_>,
        rules: &Rules<'_>,
        ask: &PendingRequest,
    ) -> Result<(), EvictionFailureReason> {
        let cluster: &Cluster = &run.plan;
        if self.cause == Cause::Reclaim && rules.shares().is_some() {
            within_share(cluster, rules)?;
        }
        if run.policy.params.use_signatures
            && let Some(other) = self.speaker(run, ask)
        {
            return Err(EvictionFailureReason::EquivalentGroupFailed(cluster.group_key(other)));
        }
        for &pod in &ask.pods {
            checks::check_lasting(cluster, run.policy, pod).map_err(EvictionFailureReason::Unschedulable)?;
        }
        Ok(())
    }

    /// A group that failed in this action and speaks for this one.
    fn speaker(&mut self, run: &Run<'_, '_>, ask: &PendingRequest) -> Option<GroupIdx> {
        let (cluster, signatures): (&Cluster, _) = (&run.plan, &mut self.signatures);
        if run.policy.search == SearchDepth::Full {
            return self.failed.speaker_for(cluster, signatures, ask.group, ask.pods.len());
        }
        match self.failed.compare(cluster, signatures, ask.group) {
            Comparison::NotEasier(other) => Some(other),
            Comparison::NoRepresentative | Comparison::Easier(_) => None,
        }
    }

    fn search(
        &mut self,
        run: &mut Run<'_, '_>,
        rules: &Rules<'_>,
        ask: &PendingRequest,
    ) -> Result<(), EvictionFailureReason> {
        let registry = &run.policy.registry;
        let (total, seed) = (run.total, run.cycle.seed);
        let search = self.search.get_or_insert_with(|| Search::new(&run.plan, registry, total, seed));
        let free = search.free(&run.plan);
        may_search(run, rules, ask, free)?;
        if run.disruptions.is_none() {
            run.disruptions = Some(Disruptions::new(run.plan.cluster_mut(), run.policy.disruption_budgets));
        }
        let disruptions = run.disruptions.as_ref().expect("made above");
        let used = run.plan.groups[ask.group].active_used();
        let (mark, begun) = (run.plan.mark(), run.plan.work());
        let budget = self.budget.for_group(&run.policy.budgets);
        let found = search.solve(&mut run.plan, rules, ask, disruptions, budget, &mut *run.observer);
        self.result = result(&found, registry.generators.is_empty());
        self.filtered = matches!(found, SearchOutcome::Insufficient(_));
        self.budget.spend(run.plan.work() - begun);
        let solution = match found {
            SearchOutcome::Solved(solution) => solution,
            SearchOutcome::Unsolved(tried) => return Err(nothing(&run.plan, ask, &tried)),
            SearchOutcome::NoVictims => return Err(EvictionFailureReason::NoCandidates),
            SearchOutcome::Insufficient(reason) => return Err(reason),
        };
        let group = &run.plan.groups[ask.group];
        if !group.is_gang_satisfied() || group.active_used() <= used {
            run.plan.rollback(mark);
            self.result = SearchResult::Unsolved;
            return Err(EvictionFailureReason::NoValidScenario { tried: 1, all: false, refused: None });
        }
        let groups = run.carry_out(self.cause, ask, &solution);
        run.committed_searches.push(CommittedSearch { cause: self.cause, ask: ask.clone(), solution });
        search.commit(&run.plan, registry, &groups);
        Ok(())
    }
}

/// How a search ended, in the words of metrics.
fn result(found: &SearchOutcome, no_generators: bool) -> SearchResult {
    match found {
        SearchOutcome::Solved(_) => SearchResult::Solved,
        SearchOutcome::Unsolved(tried) if tried.gave_up => SearchResult::DeadlineExhausted,
        SearchOutcome::Unsolved(tried) if tried.refused.is_some() => SearchResult::ValidatorRejected,
        SearchOutcome::Unsolved(tried) if no_generators && tried.played == 0 => SearchResult::NoGenerator,
        SearchOutcome::Unsolved(_) | SearchOutcome::NoVictims | SearchOutcome::Insufficient(_) => {
            SearchResult::GeneratorsExhausted
        }
    }
}

/// What is left to check after a group's like has not failed yet: its failure speaks for others.
fn may_search(
    run: &Run<'_, '_>,
    rules: &Rules<'_>,
    ask: &PendingRequest,
    free: (i64, i64),
) -> Result<(), EvictionFailureReason> {
    let cluster: &Cluster = &run.plan;
    let has_shares = run.policy.registry.builtin.proportion.is_some();
    let fixed = rules.reclaimer.preemptibility == Preemptibility::NonPreemptible;
    match rules.cause {
        Cause::Preempt if has_shares && fixed => {
            let amounts = crate::place::requested(cluster, &ask.pods);
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
        Cause::Consolidation => enough_in_all(cluster, &ask.pods, free),
        Cause::Preempt | Cause::Reclaim | Cause::Stale => Ok(()),
    }
}

/// A search that failed, as a reason.
fn nothing(cluster: &Cluster, ask: &PendingRequest, tried: &SearchStats) -> EvictionFailureReason {
    let pods = ask.pods.len() as u32;
    let fitting = tried.fitting.and_then(|fitting| u32::try_from(fitting).ok());
    match fitting {
        _ if tried.gave_up => {
            EvictionFailureReason::BudgetExhausted { tried: tried.played, steps: tried.steps }
        }
        Some(fitting) if fitting < pods => {
            EvictionFailureReason::NodesTooSmall { pods, fitting, gpus: ask.whole().least_gpus() }
        }
        _ => EvictionFailureReason::NoValidScenario {
            tried: tried.played,
            all: tried.exhausted,
            refused: tried.refused.as_ref().map(|rejection| rejection.named(cluster)),
        },
    }
}

/// Whether a group's queue stays within its fair share, and within its quota if the group is non-preemptible.
fn within_share(cluster: &Cluster, rules: &Rules<'_>) -> Result<(), EvictionFailureReason> {
    let (ledger, reclaimer) = (&cluster.queues[rules.reclaimer.queue].ledger, &rules.reclaimer);
    let asked = &reclaimer.request.amounts;
    if reclaim::may_reclaim(ledger, reclaimer.preemptibility, asked) {
        return Ok(());
    }
    let queue = cluster.text(cluster.queues[reclaimer.queue].display).to_owned();
    let over = RESOURCES.into_iter().find(|&r| ledger.allocated[r] + asked[r] > ledger.fair_share[r]);
    let Some(r) = over else {
        let excess = capacity_policy::over_quota(std::iter::once(ledger), asked);
        let beyond =
            |excess: capacity_policy::Excess| EvictionFailureReason::BeyondQuota(excess.named(queue));
        return Err(excess.map_or(EvictionFailureReason::NoCandidates, beyond));
    };
    Err(EvictionFailureReason::BeyondFairShare {
        queue,
        resource: r,
        fair_share: ledger.fair_share[r],
        used: ledger.allocated[r],
        requested: asked[r],
    })
}

/// Whether what is free or being freed would be enough if it were in one piece.
fn enough_in_all(
    cluster: &Cluster,
    pods: &[PodIdx],
    (gpus, mib): (i64, i64),
) -> Result<(), EvictionFailureReason> {
    let asked: i64 = pods.iter().map(|pod| cluster.asked(*pod, None)[QueueResource::Gpu]).sum();
    let asked_mib: i64 = pods.iter().map(|pod| cluster.shape(*pod).memory_on(0)).sum();
    if gpus >= asked && mib >= asked_mib {
        return Ok(());
    }
    Err(EvictionFailureReason::InsufficientFree {
        resource: QueueResource::Gpu,
        requested: asked,
        free: gpus,
    })
}

/// Lets those keep their places for whom later searches of the cycle made room.
pub(crate) fn reduce_victims(run: &mut Run<'_, '_>) {
    if run.committed_searches.len() < 2 || run.policy.search == SearchDepth::Kai {
        return;
    }
    let ground = RestoreContext { policy: run.policy, seed: run.cycle.seed };
    let back = restore_unneeded_victims(&mut run.plan, ground, run.cycle.now, &run.committed_searches);
    run.withdraw(&back);
}

impl Run<'_, '_> {
    /// SimulationOrder a successful search into decisions; gives back the groups that it changed.
    fn carry_out(&mut self, cause: Cause, ask: &PendingRequest, solution: &Solution) -> Vec<GroupIdx> {
        let preemptor = self.plan.group_key(ask.group);
        let size = solution.before.len();
        let in_order = solution.batches.iter().flat_map(|batch| batch.pods.iter().copied());
        let hit: Vec<PodIdx> =
            in_order.filter(|pod| self.plan.pods[*pod].state != solution.before[pod]).collect();
        let (again, evicted): (Vec<PodIdx>, Vec<PodIdx>) =
            hit.iter().partition(|pod| solution.before[*pod].leaving.is_some());
        self.withdraw(&again);
        let home = |pod: &&PodIdx| {
            let state = &self.plan.pods[**pod].state;
            state.leaving.is_none() && state.status.is_active_allocated()
        };
        let home: Vec<PodIdx> = again.iter().filter(home).copied().collect();
        for &pod in hit.iter().filter(|pod| !home.contains(pod)) {
            let why = self.why(cause, ask, solution, pod);
            self.push_eviction(pod, cause, size, Some(preemptor.clone()), why);
        }
        let moved = hit.iter().filter(|pod| self.plan.pods[**pod].state.leaving.is_some());
        let placed: Vec<PodIdx> = ask.pods.iter().chain(moved).chain(&solution.joined).copied().collect();
        for &pod in &placed {
            self.commit(pod, cause.action());
        }
        for &pod in hit.iter().chain(&placed) {
            let state = self.plan.pods[pod].state.clone();
            self.plan.set_state(pod, PodState { is_virtual: false, ..state });
        }
        if let Some(mut disruptions) = self.disruptions.take() {
            disruptions.draw(&self.plan, &evicted);
            disruptions.give_back(&self.plan, &home);
            self.disruptions = Some(disruptions);
        }
        self.hold(ask.group);
        let mut groups: Vec<GroupIdx> = hit.iter().filter_map(|pod| self.plan.pods[*pod].group).collect();
        for &group in &groups {
            self.hold(group);
        }
        groups.push(ask.group);
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Takes back what was decided for pods that were moved earlier in the cycle: they lose the place they wait for,
    /// get another one, or are home again.
    fn withdraw(&mut self, pods: &[PodIdx]) {
        if pods.is_empty() {
            return;
        }
        let keys: BTreeSet<Key> = pods.iter().map(|pod| self.plan.pod_key(*pod)).collect();
        self.outcome.decisions.retain(|decision| match decision {
            Decision::Pipeline { pod, .. } | Decision::Evict { pod, .. } => !keys.contains(pod),
            Decision::Bind(_) => true,
        });
    }

    /// Decides that a pod is evicted.
    pub(crate) fn push_eviction(
        &mut self,
        pod: PodIdx,
        cause: Cause,
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
            action: cause.action(),
            why: Box::new(why),
        });
    }

    /// The rule that allows the eviction of a pod.
    fn why(&self, cause: Cause, ask: &PendingRequest, solution: &Solution, pod: PodIdx) -> EvictionReason {
        let cluster: &Cluster = &self.plan;
        let p = &cluster.pods[pod];
        if let (Some(_), Some(node)) = (&p.state.leaving, p.state.node()) {
            return EvictionReason::Moved { node: cluster.text(cluster.nodes[node].name).to_owned() };
        }
        let (preemptor, victim) = (&cluster.groups[ask.group], p.group.map(|group| &cluster.groups[group]));
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

//! What consolidation, reclaim and preempt have in common: groups take turns, and each looks for victims.

use crate::alike::{Representatives, Scope, Signatures};
use crate::cluster::pod::PodState;
use crate::cycle::Run;
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::order::evict::preemption_delay;
use crate::order::tree_walk::{Purpose, TreeWalk};
use crate::outcome::{Cause, Decision};
use crate::place::checks;
use crate::search::ask::Ask;
use crate::search::rules::Rules;
use crate::search::simulate::Solution;
use crate::search::{Found, Search};
use crate::share::{Preemptibility, gate, reclaim, root_ledgers};

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
    let mut turn =
        Turn { cause, search: None, signatures: Signatures::default(), failed: Representatives::new(scope) };
    while let Some(group) = walk.pop(&run.plan) {
        run.guarded(group, |run| turn.of_group(run, group));
    }
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
    /// Made when the first group needs it.
    search: Option<Search>,
    signatures: Signatures,
    failed: Representatives,
}

impl Turn {
    /// One group's turn; true when it got places.
    fn of_group(&mut self, run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
        let ask = Ask::of(&run.plan, &run.policy.registry, group);
        if ask.pods.is_empty() {
            return false;
        }
        let cluster: &crate::Cluster = &run.plan;
        let evicted = |decision: &Decision| matches!(decision, Decision::Evict { .. });
        let room = run.outcome.decisions.iter().any(evicted);
        let now = run.cycle.now;
        let Some(rules) = Rules::new(cluster, run.policy, self.cause, now, &ask.whole(), room) else {
            return false;
        };
        if self.cause == Cause::Reclaim && run.policy.registry.builtin.proportion.is_some() {
            let ledger = &cluster.queues[rules.reclaimer.queue].ledger;
            let reclaimer = &rules.reclaimer;
            if !reclaim::may_reclaim(ledger, reclaimer.preemptibility, &reclaimer.request.amounts) {
                return false;
            }
        }
        let use_signatures = run.policy.params.use_signatures;
        if use_signatures && self.failed.prospect(cluster, &mut self.signatures, group).may_skip() {
            return false;
        }
        for &pod in &ask.pods {
            if checks::check_lasting(cluster, run.policy, pod).is_err() {
                return false;
            }
        }
        if self.may_search(run, &rules, &ask) && self.search(run, &rules, &ask) {
            return true;
        }
        if use_signatures {
            self.failed.note(&run.plan, &mut self.signatures, group);
        }
        false
    }

    /// What must hold before victims are looked for.
    fn may_search(&self, run: &Run<'_, '_>, rules: &Rules<'_>, ask: &Ask) -> bool {
        let cluster: &crate::Cluster = &run.plan;
        let has_shares = run.policy.registry.builtin.proportion.is_some();
        match self.cause {
            Cause::Preempt
                if has_shares && rules.reclaimer.preemptibility == Preemptibility::NonPreemptible =>
            {
                let amounts = crate::place::requested(cluster, &ask.pods);
                gate::over_quota(root_ledgers(cluster, rules.reclaimer.queue), &amounts).is_none()
            }
            Cause::Consolidation => enough_in_all(cluster, &ask.pods),
            Cause::Preempt | Cause::Reclaim | Cause::Stale => true,
        }
    }

    fn search(&mut self, run: &mut Run<'_, '_>, rules: &Rules<'_>, ask: &Ask) -> bool {
        let registry = &run.policy.registry;
        let (total, seed) = (run.total, run.cycle.seed);
        let search = self.search.get_or_insert_with(|| Search::new(&run.plan, registry, total, seed));
        if run.disruptions.is_none() {
            run.disruptions = Some(Disruptions::new(run.plan.cluster_mut()));
        }
        let disruptions = run.disruptions.as_ref().expect("made above");
        let used = run.plan.groups[ask.group].active_used();
        let mark = run.plan.mark();
        let found = search.solve(&mut run.plan, rules, ask, disruptions);
        let Found::Solved(solution) = found else {
            return false;
        };
        let group = &run.plan.groups[ask.group];
        if !group.is_gang_satisfied() || group.active_used() <= used {
            run.plan.rollback(mark);
            return false;
        }
        let groups = run.carry_out(self.cause, ask, &solution);
        search.commit(&run.plan, registry, &groups);
        true
    }
}

/// Whether what is free or being freed would be enough if it were in one piece.
fn enough_in_all(cluster: &crate::Cluster, pods: &[PodIdx]) -> bool {
    let (mut gpus, mut mib) = (0, 0);
    for &node in cluster.nodes_by_rank.iter().filter(|node| cluster.nodes[**node].is_ready()) {
        let n = &cluster.nodes[node];
        let (idle, releasing) = (n.idle_gpu_sum(&cluster.dims), n.releasing_gpu_sum(&cluster.dims));
        gpus += idle.0 + releasing.0;
        mib += idle.1 + releasing.1;
    }
    let asked: i64 = pods.iter().map(|pod| cluster.asked(*pod, None)[2]).sum();
    let asked_mib: i64 = pods.iter().map(|pod| cluster.shape(*pod).memory_on(0)).sum();
    gpus >= asked && mib >= asked_mib
}

impl Run<'_, '_> {
    /// Turns a successful search into decisions; gives back the groups that it changed.
    fn carry_out(&mut self, cause: Cause, ask: &Ask, solution: &Solution) -> Vec<GroupIdx> {
        let preemptor = self.plan.group_key(ask.group);
        let size = solution.before.len();
        let in_order = solution.batches.iter().flat_map(|batch| batch.pods.iter().copied());
        let hit: Vec<PodIdx> =
            in_order.filter(|pod| self.plan.pods[*pod].state != solution.before[pod]).collect();
        let (again, evicted): (Vec<PodIdx>, Vec<PodIdx>) =
            hit.iter().partition(|pod| solution.before[*pod].leaving.is_some());
        self.forget_moves(&again);
        for &pod in &evicted {
            self.push_eviction(pod, cause, size, Some(preemptor.clone()));
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
            self.disruptions = Some(disruptions);
        }
        let mut groups: Vec<GroupIdx> = hit.iter().filter_map(|pod| self.plan.pods[*pod].group).collect();
        groups.push(ask.group);
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Pods that were moved earlier in the cycle lose the place they wait for, or get another one.
    fn forget_moves(&mut self, pods: &[PodIdx]) {
        if pods.is_empty() {
            return;
        }
        let keys: Vec<Key> = pods.iter().map(|pod| self.plan.pod_key(*pod)).collect();
        let stale = |decision: &Decision| matches!(decision, Decision::Pipeline { pod, moved: true, .. } if keys.contains(pod));
        self.outcome.decisions.retain(|decision| !stale(decision));
    }

    /// Decides that a pod is evicted.
    pub(crate) fn push_eviction(
        &mut self,
        pod: PodIdx,
        cause: Cause,
        gang_size: usize,
        preemptor: Option<Key>,
    ) {
        let p = &self.plan.pods[pod];
        self.outcome.decisions.push(Decision::Evict {
            pod: self.plan.pod_key(pod),
            uid: self.plan.text(p.uid).to_owned(),
            group: p.group.map(|group| self.plan.group_key(group)),
            gang_size: gang_size as u32,
            preemptor,
            action: cause.action(),
        });
    }
}

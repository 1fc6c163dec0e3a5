//! Runs one scheduling cycle: actions in order, then verdicts; the cluster is rolled back at the end.

mod focus;
mod outcome_hash;
mod verdicts;

use crate::actions;
use crate::carry_over::{self, CarryOver, PastEvictions, PipelinedGroup};
use crate::cluster::Cluster;
use crate::cluster::group::Group;
use crate::cluster::pod::{PodState, Status};
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use crate::input::{GpuRequest, Key, Received};
use crate::observer::{Moment, Observer, Unobserved};
use crate::outcome::{Annotations, Bind, Cause, Cycle, Decision, Outcome, QueueReport};
use crate::plan::Plan;
use crate::policy::{Action, Policy, SearchDepth};
use crate::search::Search;
use crate::search::reduce::CommittedSearch;
use crate::share::{QueueAmounts, division};
use crate::state::ClusterState;
use crate::verdict::Verdict;
pub use focus::{Focus, Focused, Others, plan_focused, refresh};
pub(crate) use outcome_hash::fnv;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Plans one cycle. Derived values of the cluster are refreshed; everything else is unchanged afterwards.
pub fn plan(cluster: &mut ClusterState, policy: &Policy, cycle: Cycle) -> Outcome {
    plan_observed(cluster, policy, cycle, &mut Unobserved)
}

/// Plans one cycle and reports its phases to an observer.
pub fn plan_observed(
    state: &mut ClusterState,
    policy: &Policy,
    cycle: Cycle,
    observer: &mut dyn Observer,
) -> Outcome {
    let mut run = open(state, policy, cycle, observer);
    let start = run.plan.mark();
    run.call_hooks(Moment::Open);
    run.plan.observe(&policy.registry.allocation_handlers);
    actions::time_limit::run(&mut run);
    for action in &policy.actions {
        run.observer.action_begins(action.name());
        act(&mut run, *action);
        run.observer.action_ended(action.name());
    }
    run.end_search();
    act_reduce_victims(&mut run);
    run.outcome.verdicts = verdicts::of_run(&run);
    if policy.search == SearchDepth::Full {
        let carried = carry_over::evictions(&run.plan.carried_over, run.conditions, &run.outcome.decisions);
        run.outcome.carry_over = CarryOver { pipelined: run.pipelined_groups(), ..carried };
    }
    for (report, queue) in run.outcome.queues.iter_mut().zip(&run.plan.queues_by_rank) {
        report.allocated_after = run.plan.queues[*queue].ledger.allocated;
    }
    // The end of the cycle is no change of an allocation.
    run.plan.observe(&[]);
    run.call_hooks(Moment::Close);
    run.observer.cycle_ended(&run.plan);
    run.plan.rollback(start);
    let Run { mut outcome, .. } = run;
    outcome.hash = outcome_hash::hash(&outcome);
    outcome.plugin_failures = policy.registry.guards.iter().flat_map(|guard| guard.take_failures()).collect();
    outcome
}

/// Refreshes derived values and opens a transaction.
fn open<'c, 'p>(
    state: &'c mut ClusterState,
    policy: &'p Policy,
    cycle: Cycle,
    observer: &'p mut dyn Observer,
) -> Run<'c, 'p> {
    for guard in &policy.registry.guards {
        guard.begin_cycle();
    }
    state.refresh(policy, cycle.now);
    let cluster = &mut state.cluster;
    let total = cluster.total(policy.params.restrict_nodes);
    if let Some(proportion) = policy.registry.builtin.proportion {
        let queues = cluster.queues_by_rank.clone();
        division::divide_tree(cluster, &queues, &total, proportion.k_value);
    }
    let queues = queue_reports(cluster);
    observer.opened();
    let outcome = Outcome { queues, total, ..Outcome::default() };
    let conditions = carry_over::conditions(&outcome);
    Run {
        past_evictions: PastEvictions::new(cluster, conditions),
        committed_searches: Vec::new(),
        search: None,
        plan: Plan::new(state),
        policy,
        cycle,
        total,
        outcome,
        obstacles: BTreeMap::new(),
        quarantined: BTreeMap::new(),
        disruptions: None,
        pipelined: Vec::new(),
        capacity_was_freed: false,
        observer,
        conditions,
        focus: None,
    }
}

/// Runs one action. Not inlined: the benches count the instructions of `act*`.
#[inline(never)]
fn act(run: &mut Run<'_, '_>, action: Action) {
    match action {
        Action::Allocate => actions::allocate::run(run),
        Action::Evict(Cause::Stale) => actions::stale_gang_eviction::run(run),
        Action::Evict(cause) => actions::evict::run(run, cause),
        Action::Custom(name) => actions::custom::run(run, name),
    }
}

/// Removes unnecessary victims after all actions.
#[inline(never)]
fn act_reduce_victims(run: &mut Run<'_, '_>) {
    actions::evict::reduce_victims(run);
}

/// A cycle in progress.
pub(crate) struct Run<'c, 'p> {
    pub plan: Plan<'c>,
    pub policy: &'p Policy,
    pub cycle: Cycle,
    pub total: QueueAmounts,
    pub outcome: Outcome,
    /// Obstacles found for each group.
    pub obstacles: BTreeMap<GroupIdx, Vec<Verdict>>,
    /// Groups whose planning panicked, with the message.
    pub quarantined: BTreeMap<GroupIdx, String>,
    /// Remaining disruptions, once an action needs them.
    pub disruptions: Option<Disruptions>,
    /// Groups pipelined to freed capacity, in the order of their evictions.
    pipelined: Vec<GroupIdx>,
    /// Pods were evicted in this cycle.
    pub capacity_was_freed: bool,
    /// Past evictions.
    pub past_evictions: PastEvictions,
    /// Committed searches, in order.
    pub committed_searches: Vec<CommittedSearch>,
    /// State shared by searches, as the last action left it.
    pub search: Option<Search>,
    /// Receives the phases of the cycle.
    pub observer: &'p mut dyn Observer,
    /// Hash of what past evictions depend on.
    conditions: u64,
    /// The group that the plan is about, if it is about one.
    focus: Option<focus::Progress<'p>>,
}

impl Run<'_, '_> {
    /// Groups with pending pods that have their minimum and may be scheduled.
    pub(crate) fn pending_groups(&self) -> Vec<GroupIdx> {
        let pending = self.plan.pending_groups().filter(|(_, g)| is_schedulable(g)).map(|(i, _)| i);
        pending.filter(|group| self.takes_part(*group)).collect()
    }

    /// Records why a group was not placed.
    pub(crate) fn note_obstacles(&mut self, group: GroupIdx, obstacles: Vec<Verdict>) {
        self.obstacles.entry(group).or_default().extend(obstacles);
    }

    /// Records an obstacle that several actions can find.
    pub(crate) fn note_obstacle_once(&mut self, group: GroupIdx, obstacle: Verdict) {
        let list = self.obstacles.entry(group).or_default();
        if !list.contains(&obstacle) {
            list.push(obstacle);
        }
    }

    /// Records the groups beyond the queue depth, until they are visited.
    pub(crate) fn note_beyond_depth(&mut self, pending: &[GroupIdx], depth: Option<usize>) {
        let Some(depth) = depth else { return };
        for &group in pending {
            self.note_obstacles(group, vec![Verdict::BeyondQueueDepth { depth: depth as u32 }]);
        }
    }

    /// Marks a group as visited.
    pub(crate) fn visited(&mut self, group: GroupIdx) {
        if let Some(list) = self.obstacles.get_mut(&group) {
            list.retain(|v| !matches!(v, Verdict::BeyondQueueDepth { .. }));
        }
    }

    /// Plans one group. A panic is caught and rolled back, and the group is quarantined for the cycle.
    pub(crate) fn guarded(&mut self, group: GroupIdx, work: impl FnOnce(&mut Self) -> bool) -> bool {
        let mark = self.plan.mark();
        let decided = self.outcome.decisions.len();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self))) {
            Ok(done) => {
                self.plan.seal();
                done
            }
            Err(panic) => {
                self.outcome.decisions.truncate(decided);
                self.plan.rollback(mark);
                self.plan.invalidate();
                self.quarantined.insert(group, panic_message(&*panic));
                false
            }
        }
    }

    /// Turns a pod's placement into a decision; true for a binding.
    pub(crate) fn commit(&mut self, pod: PodIdx, action: &'static str) -> bool {
        let p = &self.plan.pods[pod];
        let state = p.state.clone();
        let Some(place) = &state.place else { return false };
        let node = self.plan.text(self.plan.nodes[place.node].name).to_owned();
        let gpu_groups: Vec<String> =
            place.gpu_groups.iter().map(|g| self.plan.text(*g).to_owned()).collect();
        let key = self.plan.pod_key(pod);
        if state.status != Status::Allocated {
            self.outcome.decisions.push(Decision::Pipeline {
                pod: key,
                node,
                gpu_groups,
                action,
                moved: state.releasing.is_some(),
            });
            self.plan.set_state(pod, PodState { is_virtual: false, ..state });
            return false;
        }
        let mut bind = self.bind(pod, &state);
        bind.node = node;
        bind.gpu_groups = gpu_groups;
        bind.action = action;
        bind.annotations = self.bind_annotations(pod, place.node);
        self.outcome.decisions.push(Decision::Bind(Box::new(bind)));
        self.plan.set_state(pod, PodState { status: Status::Binding, is_virtual: false, ..state });
        true
    }

    /// What plugins add to the BindRequest; a later plugin's value replaces an earlier one's.
    fn bind_annotations(&self, pod: PodIdx, node: NodeIdx) -> Annotations {
        let mut all = BTreeMap::new();
        for plugin in &self.policy.registry.bind_annotations {
            all.extend(plugin.annotations(&self.plan, pod, node));
        }
        Annotations(all)
    }

    /// Calls the session hooks of plugins in the configured order.
    fn call_hooks(&mut self, moment: Moment) {
        let registry = &self.policy.registry;
        for (at, hook) in registry.sessions.iter().enumerate() {
            self.observer.hook_begins();
            match moment {
                Moment::Open => hook.opened(&self.plan, self.cycle),
                Moment::Close => hook.closed(&self.plan, &self.outcome),
            }
            let plugin = registry.session_plugins.get(at).map_or("", |plugin| plugin);
            self.observer.hook_ended(plugin, moment);
        }
    }

    fn bind(&self, pod: PodIdx, state: &PodState) -> Bind {
        let cluster: &Cluster = &self.plan;
        let p = &cluster.pods[pod];
        let shape = cluster.shape(pod);
        let place = state.place.as_ref().expect("a binding has a place");
        let n = &cluster.nodes[place.node];
        let (received, count, hundredths) = match shape.gpu {
            GpuRequest::Mig => (Received::Mig, 0, 0),
            GpuRequest::Fraction { devices, .. } | GpuRequest::Memory { devices, .. } => {
                (Received::Fraction, devices, shape.hundredths_on(n.gpu_memory.mib) as u32)
            }
            GpuRequest::Whole(count) if count > 0 => (Received::Regular, count, 100),
            GpuRequest::Whole(_) | GpuRequest::None => (Received::Regular, 0, 0),
        };
        let numa = match (&place.numa, &n.ledger.numa) {
            (Some(pipelined), Some(zones)) => pipelined.export(zones, &cluster.dims, &cluster.names),
            _ => Vec::new(),
        };
        let extended = cluster
            .synthetic_claim(pod, place.node)
            .and_then(|claim| cluster.devices.export_extended(p.uid, &claim, &cluster.names))
            .map(Box::new);
        Bind {
            pod: cluster.pod_key(pod),
            uid: cluster.text(p.uid).to_owned(),
            received: Some(received),
            gpu_count: count,
            gpu_hundredths: hundredths,
            claims: cluster.devices.export(p.uid, &cluster.names),
            extended,
            numa,
            ..Bind::default()
        }
    }

    /// Records that capacity was freed for a group.
    pub(crate) fn note_pipelined(&mut self, group: GroupIdx) {
        self.pipelined.push(group);
    }

    /// The reserved nodes of pipelined groups. All pipelined pods of a gang count, not only those placed by eviction.
    fn pipelined_groups(&self) -> Vec<PipelinedGroup> {
        let cluster: &Cluster = &self.plan;
        let place = |pod: &PodIdx| {
            let state = &cluster.pods[*pod].state;
            let node = state.node().filter(|_| state.status == Status::Pipelined)?;
            Some((cluster.pod_key(*pod), cluster.text(cluster.nodes[node].name).to_owned()))
        };
        let entry = |group: &GroupIdx| {
            let pods = cluster.groups[*group].pod_sets().flat_map(|(_, set)| &set.pods);
            let places: Vec<(Key, String)> = pods.filter_map(place).collect();
            (!places.is_empty()).then(|| PipelinedGroup { group: cluster.group_key(*group), places })
        };
        let mut seen = FxHashSet::default();
        self.pipelined.iter().filter(|group| seen.insert(**group)).filter_map(entry).collect()
    }

    /// Ends the shared search state: later steps change the cluster in ways it does not track.
    pub(crate) fn end_search(&mut self) {
        if let Some(search) = self.search.take() {
            search.end(&mut self.plan, &self.policy.registry);
        }
    }

    /// Records that a group started.
    pub(crate) fn started(&mut self, group: GroupIdx) {
        let key = self.plan.group_key(group);
        self.outcome.started.push(key);
    }
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Whether a group has pending pods and its minimum, and may be scheduled.
pub(crate) fn is_schedulable(g: &Group) -> bool {
    g.queue.is_some() && g.invalid_reason.is_none() && g.pending() > 0 && g.is_ready()
}

fn queue_reports(cluster: &Cluster) -> Vec<QueueReport> {
    let report = |queue: &QueueIdx| {
        let q = &cluster.queues[*queue];
        QueueReport {
            name: cluster.text(q.name).to_owned(),
            parent: q.parent.map(|p| cluster.text(cluster.queues[p].name).to_owned()),
            quota: q.ledger.quota,
            limit: q.ledger.limit,
            allocated: q.ledger.allocated,
            allocated_non_preemptible: q.ledger.allocated_np,
            allocated_after: q.ledger.allocated,
            requested: q.ledger.request,
            fair_share: q.ledger.fair_share,
        }
    };
    cluster.queues_by_rank.iter().map(report).collect()
}

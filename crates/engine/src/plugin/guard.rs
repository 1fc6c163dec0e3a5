//! Calls the callbacks of plugins: catches their panics, skips those of a plugin that was cut off, and tells which plugin
//! is running.
//!
//! A rule that restricts fails closed: the pod or group is refused, with a reason that names the plugin. A rule that
//! prefers has no opinion. Observers are skipped. After a panic, the plugin is not asked about the same pod or group
//! again in the cycle; other pods are not affected.
//! Built-in rules are not callbacks, so that a policy without custom plugins has no guards and no cost.

use super::{
    Allocation, AllocationHandler, BindAnnotations, CustomAction, Filter, Generator, GpuOrder, GpuScore,
    GroupCompare, GroupOrder, MemberCompare, MemberOrder, PodCompare, PodOrder, PreFilter, QueueCompare,
    QueueOrder, Registry, ScenarioGenerator, Score, Session, SessionHook, Subsets, Validator, VictimBatch,
    VictimFilter,
};
use crate::cluster::Cluster;
use crate::cycle::panic_message;
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, PodIdx, QueueIdx, Sym};
use crate::outcome::{Cause, Cycle, Outcome, PluginFailure};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which plugin is running. A watchdog on another thread reads it, since the engine reads no clock.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// The id of a guard, or [`Self::ENGINE`].
    guard: AtomicU32,
    /// Number of changes of the value above: an unchanged number means the same call.
    changes: AtomicU64,
}

impl Running {
    /// No plugin.
    pub(crate) const ENGINE: u32 = 0;

    /// Records who runs; returns who ran before.
    pub(crate) fn enter(&self, guard: u32) -> u32 {
        self.changes.fetch_add(1, Relaxed);
        self.guard.swap(guard, Relaxed)
    }

    pub(crate) fn leave(&self, before: u32) {
        self.changes.fetch_add(1, Relaxed);
        self.guard.store(before, Relaxed);
    }

    /// The id of the running guard, and the number of the call.
    pub(crate) fn current(&self) -> Option<(u32, u64)> {
        let guard = self.guard.load(Relaxed);
        (guard != Self::ENGINE).then(|| (guard, self.changes.load(Relaxed)))
    }
}

/// What a callback is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Pod(PodIdx),
    Group(GroupIdx),
    /// The order of queues, groups, members or pods.
    Order,
    /// Hooks, handlers and actions, which share the plugin's state.
    Observer,
}

/// The guard of one plugin.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) plugin: Arc<str>,
    /// Its id in [`Running`].
    pub(crate) id: u32,
    pub(crate) running: Arc<Running>,
    /// Whether `state` has an entry: the common case takes no lock.
    has_failed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the plugin is not called any more.
    cut_off: Option<String>,
    /// Panics of this cycle.
    panics: BTreeMap<Subject, String>,
    /// Messages to report, in order.
    unreported: Vec<String>,
}

impl Guard {
    pub(crate) fn new(plugin: &str, id: u32, running: &Arc<Running>) -> Self {
        Self {
            plugin: plugin.into(),
            id,
            running: Arc::clone(running),
            has_failed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// A new cycle begins: what panicked in the last one is asked again.
    pub(crate) fn begin_cycle(&self) {
        if self.has_failed.load(Relaxed) {
            let mut state = self.state();
            state.panics.clear();
            self.has_failed.store(state.cut_off.is_some(), Relaxed);
        }
    }

    /// The failures since the last call.
    pub(crate) fn take_failures(&self) -> Vec<PluginFailure> {
        if !self.has_failed.load(Relaxed) {
            return Vec::new();
        }
        let messages = std::mem::take(&mut self.state().unreported);
        let failure = |message| PluginFailure { plugin: self.plugin.to_string(), message };
        messages.into_iter().map(failure).collect()
    }

    /// Calls the plugin no more.
    pub(crate) fn cut_off(&self, why: &str) {
        self.state().cut_off = Some(format!("plugin `{}` is cut off: {why}", self.plugin));
        self.has_failed.store(true, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a callback. `otherwise` replaces its result if it panics, or may not be called; it receives the reason.
    fn call<R>(
        &self,
        subject: Subject,
        otherwise: impl FnOnce(String) -> R,
        callback: impl FnOnce() -> R,
    ) -> R {
        if self.has_failed.load(Relaxed) {
            let state = self.state();
            if let Some(why) = state.cut_off.as_ref().or_else(|| state.panics.get(&subject)) {
                let why = why.clone();
                drop(state);
                return otherwise(why);
            }
        }
        let before = self.running.enter(self.id);
        let result = catch_unwind(AssertUnwindSafe(callback));
        self.running.leave(before);
        result.unwrap_or_else(|panic| {
            let why = format!("plugin `{}` panicked: {}", self.plugin, panic_message(&*panic));
            let mut state = self.state();
            state.panics.insert(subject, why.clone());
            state.unreported.push(why.clone());
            drop(state);
            self.has_failed.store(true, Relaxed);
            otherwise(why)
        })
    }
}

/// A callback of a plugin with its guard.
struct Guarded<T: ?Sized> {
    guard: Arc<Guard>,
    inner: Arc<T>,
}

impl Registry {
    /// The same entries, each called through the guard.
    pub(super) fn guarded(mut self, guard: &Arc<Guard>) -> Self {
        macro_rules! wrap {
            ($inner:expr) => {
                Arc::new(Guarded { guard: Arc::clone(guard), inner: $inner })
            };
        }
        macro_rules! each {
            ($($list:ident),*) => { $(for entry in &mut self.$list { *entry = wrap!(Arc::clone(entry)); })* };
        }
        macro_rules! custom {
            ($($list:ident: $order:ident),*) => {
                $(for entry in &mut self.$list {
                    if let $order::Custom(inner) = entry {
                        *entry = $order::Custom(wrap!(Arc::clone(inner)));
                    }
                })*
            };
        }
        each!(pre_filters, subsets, victim_filters, validators);
        each!(sessions, allocation_handlers, bind_annotations, actions);
        custom!(queue_order: QueueOrder, group_order: GroupOrder, member_order: MemberOrder);
        custom!(pod_order: PodOrder, gpu_order: GpuOrder, generators: Generator);
        for (_, filter) in &mut self.filters {
            *filter = wrap!(Arc::clone(filter));
        }
        for (_, score) in &mut self.scores {
            *score = wrap!(Arc::clone(score));
        }
        self.session_plugins = vec![Arc::clone(&guard.plugin); self.sessions.len()];
        if self.has_callbacks() {
            self.guards = vec![Arc::clone(guard)];
        }
        self
    }

    /// The built-in rules alone.
    pub(crate) fn built_in_only(self) -> Self {
        let Self { builtin, mut queue_order, mut group_order, mut member_order, .. } = self;
        let Self { mut pod_order, mut gpu_order, mut generators, .. } = self;
        queue_order.retain(|of| !matches!(of, QueueOrder::Custom(_)));
        group_order.retain(|of| !matches!(of, GroupOrder::Custom(_)));
        member_order.retain(|of| !matches!(of, MemberOrder::Custom(_)));
        pod_order.retain(|of| !matches!(of, PodOrder::Custom(_)));
        gpu_order.retain(|of| !matches!(of, GpuOrder::Custom(_)));
        generators.retain(|of| !matches!(of, Generator::Custom(_)));
        Self {
            builtin,
            queue_order,
            group_order,
            member_order,
            pod_order,
            gpu_order,
            generators,
            ..Self::default()
        }
    }

    /// Whether a cycle calls code outside of the engine, which may read anything.
    pub fn has_callbacks(&self) -> bool {
        let orders = self.queue_order.iter().any(|of| matches!(of, QueueOrder::Custom(_)))
            || self.group_order.iter().any(|of| matches!(of, GroupOrder::Custom(_)))
            || self.member_order.iter().any(|of| matches!(of, MemberOrder::Custom(_)))
            || self.pod_order.iter().any(|of| matches!(of, PodOrder::Custom(_)))
            || self.gpu_order.iter().any(|of| matches!(of, GpuOrder::Custom(_)))
            || self.generators.iter().any(|of| matches!(of, Generator::Custom(_)));
        let lists = [
            self.pre_filters.len(),
            self.filters.len(),
            self.scores.len(),
            self.subsets.len(),
            self.victim_filters.len(),
            self.validators.len(),
            self.sessions.len(),
            self.allocation_handlers.len(),
            self.bind_annotations.len(),
            self.actions.len(),
        ];
        orders || lists.iter().any(|entries| *entries > 0)
    }
}

impl PreFilter for Guarded<dyn PreFilter> {
    fn check(&self, cluster: &Cluster, pod: PodIdx) -> Result<(), String> {
        self.guard.call(Subject::Pod(pod), Err, || self.inner.check(cluster, pod))
    }
}

impl Filter for Guarded<dyn Filter> {
    fn fits(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Result<(), String> {
        self.guard.call(Subject::Pod(pod), Err, || self.inner.fits(cluster, pod, node))
    }
}

impl Score for Guarded<dyn Score> {
    fn score(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Option<f64> {
        self.guard.call(Subject::Pod(pod), |_| Some(0.0), || self.inner.score(cluster, pod, node))
    }
}

impl GpuScore for Guarded<dyn GpuScore> {
    fn score(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx, group: Option<Sym>) -> Option<f64> {
        self.guard.call(Subject::Pod(pod), |_| Some(0.0), || self.inner.score(cluster, pod, node, group))
    }
}

impl Subsets for Guarded<dyn Subsets> {
    fn subsets(
        &self,
        cluster: &Cluster,
        group: GroupIdx,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &[NodeIdx],
    ) -> Result<Vec<Vec<NodeIdx>>, String> {
        let split = || self.inner.subsets(cluster, group, member, pods, nodes);
        self.guard.call(Subject::Group(group), Err, split)
    }
}

impl QueueCompare for Guarded<dyn QueueCompare> {
    fn compare(&self, cluster: &Cluster, left: QueueIdx, right: QueueIdx) -> Ordering {
        self.guard.call(Subject::Order, |_| Ordering::Equal, || self.inner.compare(cluster, left, right))
    }
}

impl GroupCompare for Guarded<dyn GroupCompare> {
    fn compare(&self, cluster: &Cluster, left: GroupIdx, right: GroupIdx) -> Ordering {
        self.guard.call(Subject::Order, |_| Ordering::Equal, || self.inner.compare(cluster, left, right))
    }
}

impl MemberCompare for Guarded<dyn MemberCompare> {
    fn compare(&self, cluster: &Cluster, group: GroupIdx, left: MemberIdx, right: MemberIdx) -> Ordering {
        let compared = || self.inner.compare(cluster, group, left, right);
        self.guard.call(Subject::Order, |_| Ordering::Equal, compared)
    }
}

impl PodCompare for Guarded<dyn PodCompare> {
    fn compare(&self, cluster: &Cluster, left: PodIdx, right: PodIdx) -> Ordering {
        self.guard.call(Subject::Order, |_| Ordering::Equal, || self.inner.compare(cluster, left, right))
    }
}

impl VictimFilter for Guarded<dyn VictimFilter> {
    fn may_be_victim(&self, cluster: &Cluster, cause: Cause, preemptor: GroupIdx, victim: GroupIdx) -> bool {
        let allowed = || self.inner.may_be_victim(cluster, cause, preemptor, victim);
        self.guard.call(Subject::Group(victim), |_| false, allowed)
    }
}

impl Validator for Guarded<dyn Validator> {
    fn accepts(
        &self,
        cluster: &Cluster,
        cause: Cause,
        preemptor: GroupIdx,
        evicted: &[PodIdx],
    ) -> Result<(), String> {
        let accepts = || self.inner.accepts(cluster, cause, preemptor, evicted);
        self.guard.call(Subject::Group(preemptor), Err, accepts)
    }
}

impl ScenarioGenerator for Guarded<dyn ScenarioGenerator> {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn propose(
        &self,
        cluster: &Cluster,
        preemptor: GroupIdx,
        pods: &[PodIdx],
        batches: &[VictimBatch],
    ) -> Vec<Vec<usize>> {
        let proposals = || self.inner.propose(cluster, preemptor, pods, batches);
        self.guard.call(Subject::Group(preemptor), |_| Vec::new(), proposals)
    }
}

impl SessionHook for Guarded<dyn SessionHook> {
    fn opened(&self, cluster: &Cluster, cycle: Cycle) {
        self.guard.call(Subject::Observer, |_| (), || self.inner.opened(cluster, cycle));
    }
    fn closed(&self, cluster: &Cluster, outcome: &Outcome) {
        self.guard.call(Subject::Observer, |_| (), || self.inner.closed(cluster, outcome));
    }
}

impl AllocationHandler for Guarded<dyn AllocationHandler> {
    fn allocated(&self, cluster: &Cluster, change: Allocation) {
        self.guard.call(Subject::Observer, |_| (), || self.inner.allocated(cluster, change));
    }
    fn deallocated(&self, cluster: &Cluster, change: Allocation) {
        self.guard.call(Subject::Observer, |_| (), || self.inner.deallocated(cluster, change));
    }
}

impl BindAnnotations for Guarded<dyn BindAnnotations> {
    fn annotations(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> BTreeMap<String, String> {
        // The binder may depend on them: without them, the group is not bound. The unwinding ends at the group.
        let unbound = |why: String| resume_unwind(Box::new(why));
        self.guard.call(Subject::Pod(pod), unbound, || self.inner.annotations(cluster, pod, node))
    }
}

impl CustomAction for Guarded<dyn CustomAction> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn run(&self, session: &mut Session<'_>) {
        self.guard.call(Subject::Observer, |_| (), || self.inner.run(session));
    }
}

//! Extension points for plugins.
//!
//! A policy is a [`Registry`] filled by plugins in the configured order. Built-in rules are named variants, so that
//! the engine can use its indices; a custom rule is a one-method trait object with a declared dependency class, which
//! bounds what the engine may memoise.

mod action;
pub mod builtin;
pub(crate) mod guard;
mod hooks;

pub use action::{CustomAction, Session};
pub use hooks::{
    Allocation, AllocationHandler, BindAnnotations, HttpHandler, HttpRequest, HttpResponse, SessionHook,
};

pub(crate) use action::Operations;

use crate::cluster::Cluster;
use crate::cycle::panic_message;
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, PodIdx, QueueIdx};
use crate::outcome::Cause;
use crate::policy::{DEFAULT_ACTIONS, PluginConfig, PluginPart};
use crate::share::min_runtime::ReclaimResolution;
use guard::{Guard, Running};
use kai_units::Span;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A plugin: registers its rules under a name.
pub trait Plugin: Send + Sync {
    /// The name in the configuration.
    fn name(&self) -> &str;
    /// Adds entries to the registry. An invalid argument is reported through [`Args`] and replaced by its default.
    fn register(&self, args: &mut Args<'_>, to: &mut Registry);
}

/// What a rule reads, and therefore how long its results stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depends {
    /// The pod's specification and the node's description.
    Static,
    /// The pod's specification and this node's ledger.
    Local,
    /// Anything in the cluster.
    Global,
}

/// Checks a pod before any node is considered.
pub trait PreFilter: Send + Sync {
    /// An error message makes the pod unschedulable in this cycle.
    fn check(&self, cluster: &Cluster, pod: PodIdx) -> Result<(), String>;
}

/// Decides whether a node is feasible for a pod.
pub trait Filter: Send + Sync {
    /// An error message makes the node infeasible.
    fn fits(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Result<(), String>;
}

/// Scores a node for a pod.
pub trait Score: Send + Sync {
    /// More is better; `None` rules the node out.
    fn score(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Option<f64>;
}

/// Scores a GPU of a node for a pod; no group means a whole idle GPU.
pub trait GpuScore: Send + Sync {
    /// More is better; `None` rules the GPU out.
    fn score(
        &self,
        cluster: &Cluster,
        pod: PodIdx,
        node: NodeIdx,
        group: Option<crate::ids::Sym>,
    ) -> Option<f64>;
}

/// Splits the nodes for a member of a group into candidate sets, best first.
pub trait Subsets: Send + Sync {
    /// Candidate sets; an error message makes the group unschedulable.
    fn subsets(
        &self,
        cluster: &Cluster,
        group: GroupIdx,
        member: MemberIdx,
        pods: &[PodIdx],
        nodes: &[NodeIdx],
    ) -> Result<Vec<Vec<NodeIdx>>, String>;
}

/// Compares queues: `Less` goes first.
pub trait QueueCompare: Send + Sync {
    /// Compares two queues.
    fn compare(&self, cluster: &Cluster, left: QueueIdx, right: QueueIdx) -> Ordering;
}

/// Compares groups of one queue: `Less` goes first.
pub trait GroupCompare: Send + Sync {
    /// Compares two groups.
    fn compare(&self, cluster: &Cluster, left: GroupIdx, right: GroupIdx) -> Ordering;
}

/// Compares members of one set: `Less` goes first.
pub trait MemberCompare: Send + Sync {
    /// Compares two members.
    fn compare(&self, cluster: &Cluster, group: GroupIdx, left: MemberIdx, right: MemberIdx) -> Ordering;
}

/// Compares pods of one pod set: `Less` goes first.
pub trait PodCompare: Send + Sync {
    /// Compares two pods.
    fn compare(&self, cluster: &Cluster, left: PodIdx, right: PodIdx) -> Ordering;
}

/// Decides whether a running group may be a victim of a pending one.
pub trait VictimFilter: Send + Sync {
    /// False excludes the group from the search.
    fn may_be_victim(&self, cluster: &Cluster, cause: Cause, preemptor: GroupIdx, victim: GroupIdx) -> bool;
}

/// Validates a scenario before it is committed; the cluster shows the scenario.
pub trait Validator: Send + Sync {
    /// An error message makes the scenario invalid.
    fn accepts(
        &self,
        cluster: &Cluster,
        cause: Cause,
        preemptor: GroupIdx,
        evicted: &[PodIdx],
    ) -> Result<(), String>;
}

/// Pods of one group that are evicted together: one above the group's minimum, or all that remain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VictimBatch {
    /// The group.
    pub group: GroupIdx,
    /// Its pods.
    pub pods: Arc<[PodIdx]>,
}

/// Proposes victims for the pods of a pending group.
pub trait ScenarioGenerator: Send + Sync {
    /// Its name in the configuration of budgets.
    fn name(&self) -> &str;
    /// Sets of batches to try in order, each as positions in the list, which is in victim order. A later batch of a
    /// group requires the earlier ones.
    fn propose(
        &self,
        cluster: &Cluster,
        preemptor: GroupIdx,
        pods: &[PodIdx],
        batches: &[VictimBatch],
    ) -> Vec<Vec<usize>>;
}

/// A scenario generator.
#[derive(Clone)]
pub enum Generator {
    /// Victims on one node.
    NodeLocalGreedy,
    /// Victims on as many nodes as a gang needs, smallest set first.
    MultiNodeGang,
    /// A custom rule.
    Custom(Arc<dyn ScenarioGenerator>),
}

impl Generator {
    /// Its name in the configuration of budgets.
    pub fn name(&self) -> &str {
        match self {
            Self::NodeLocalGreedy => "NodeLocalGreedy",
            Self::MultiNodeGang => "MultiNodeGang",
            Self::Custom(generator) => generator.name(),
        }
    }
}

/// An entry of the queue order.
#[derive(Clone)]
pub enum QueueOrder {
    /// Fair share (KAI's `proportion`).
    Proportion,
    /// A custom rule.
    Custom(Arc<dyn QueueCompare>),
}

/// An entry of the group order.
#[derive(Clone)]
pub enum GroupOrder {
    /// Higher priority first.
    Priority,
    /// Below the minimum first, above it last.
    Elastic,
    /// A custom rule.
    Custom(Arc<dyn GroupCompare>),
}

/// An entry of the member order.
#[derive(Clone)]
pub enum MemberOrder {
    /// Unsatisfied first.
    BySatisfaction,
    /// A custom rule.
    Custom(Arc<dyn MemberCompare>),
}

/// An entry of the pod order.
#[derive(Clone)]
pub enum PodOrder {
    /// Kubeflow leaders first.
    Kubeflow,
    /// Ray heads first.
    Ray,
    /// By the task-priority label.
    TaskPriority,
    /// A custom rule.
    Custom(Arc<dyn PodCompare>),
}

/// An entry of the GPU order.
#[derive(Clone)]
pub enum GpuOrder {
    /// Fuller GPUs first.
    Pack,
    /// Emptier GPUs first.
    Spread,
    /// A custom rule.
    Custom(Arc<dyn GpuScore>),
}

/// Placement strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Fuller nodes first.
    Binpack,
    /// Emptier nodes first.
    Spread,
}

/// Arguments of node placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// For pods that request GPUs.
    pub gpu: Strategy,
    /// For pods that request none.
    pub cpu: Strategy,
}

/// Arguments of fair share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// Weight of historical usage (`kValue`).
    pub k_value: f64,
    /// Saturation multiplier of the reclaimer's queue.
    pub saturation_multiplier: f64,
    /// Fair shares restrict reclaim.
    pub rules_reclaim: bool,
}

/// Arguments of minimum run times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRuntime {
    /// Default before preemption; none when nothing is protected.
    pub preempt: Option<Span>,
    /// Default before reclaim; none when nothing is protected.
    pub reclaim: Option<Span>,
    /// Which queue's minimum run time applies to reclaim.
    pub resolution: ReclaimResolution,
}

/// Arguments of NUMA alignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaArgs {
    /// Resources left out, comma separated.
    pub ignore: String,
    /// Free amounts are computed from pod records instead of the node's report.
    pub reconstruct: bool,
}

/// Enabled built-in rules, with their arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BuiltIns {
    /// Node filters and pod checks.
    pub predicates: bool,
    /// Low-weight scores of Kubernetes preferences (node affinity, taints, spread).
    pub soft_scores: bool,
    /// Fair share: capacity limits, shares, reclaim rules.
    pub proportion: Option<Proportion>,
    /// Score: the nominated node.
    pub nominated_node: bool,
    /// Score: preferred pod affinity.
    pub pod_affinity: bool,
    /// Topology constraints.
    pub topology: bool,
    /// Score: a shared GPU that fits.
    pub gpu_sharing: bool,
    /// Score: fits now.
    pub availability: bool,
    /// Score: CPU-only pods on CPU-only nodes.
    pub resource_type: bool,
    /// Score: pack or spread nodes.
    pub placement: Option<Placement>,
    /// Device claims.
    pub dynamic_resources: bool,
    /// NUMA alignment.
    pub numa: Option<NumaArgs>,
    /// Minimum run times.
    pub min_runtime: Option<MinRuntime>,
}

/// Everything the configured plugins added.
#[derive(Clone, Default)]
pub struct Registry {
    /// Built-in rules.
    pub builtin: BuiltIns,
    /// Queue order.
    pub queue_order: Vec<QueueOrder>,
    /// Group order.
    pub group_order: Vec<GroupOrder>,
    /// Member order.
    pub member_order: Vec<MemberOrder>,
    /// Pod order.
    pub pod_order: Vec<PodOrder>,
    /// GPU order.
    pub gpu_order: Vec<GpuOrder>,
    /// Custom pre-filters.
    pub pre_filters: Vec<Arc<dyn PreFilter>>,
    /// Custom node filters.
    pub filters: Vec<(Depends, Arc<dyn Filter>)>,
    /// Custom node scores.
    pub scores: Vec<(Depends, Arc<dyn Score>)>,
    /// Custom node subsets.
    pub subsets: Vec<Arc<dyn Subsets>>,
    /// Scenario generators, in order.
    pub generators: Vec<Generator>,
    /// Custom victim filters.
    pub victim_filters: Vec<Arc<dyn VictimFilter>>,
    /// Custom scenario validators.
    pub validators: Vec<Arc<dyn Validator>>,
    /// Hooks of the beginning and the end of a cycle.
    pub sessions: Vec<Arc<dyn SessionHook>>,
    /// Handlers of allocations.
    pub allocation_handlers: Vec<Arc<dyn AllocationHandler>>,
    /// Annotations of BindRequests.
    pub bind_annotations: Vec<Arc<dyn BindAnnotations>>,
    /// Actions that the configuration can name.
    pub actions: Vec<Arc<dyn CustomAction>>,
    /// Handlers of the plugin server, with their paths.
    pub http_handlers: Vec<(String, Arc<dyn HttpHandler>)>,
    /// The plugin of each entry of `sessions`.
    pub(crate) session_plugins: Vec<Arc<str>>,
    /// The plugin of each entry of `http_handlers`.
    pub(crate) http_plugins: Vec<Arc<str>>,
    /// Guards of plugins with callbacks.
    pub(crate) guards: Vec<Arc<Guard>>,
    /// Which of them is running.
    pub(crate) running: Arc<Running>,
}

impl Registry {
    /// Appends the entries of another registry.
    fn merge(&mut self, other: Registry) {
        let (mine, its) = (&mut self.builtin, other.builtin);
        mine.predicates |= its.predicates;
        mine.soft_scores |= its.soft_scores;
        mine.proportion = mine.proportion.or(its.proportion);
        mine.nominated_node |= its.nominated_node;
        mine.pod_affinity |= its.pod_affinity;
        mine.topology |= its.topology;
        mine.gpu_sharing |= its.gpu_sharing;
        mine.availability |= its.availability;
        mine.resource_type |= its.resource_type;
        mine.placement = mine.placement.or(its.placement);
        mine.dynamic_resources |= its.dynamic_resources;
        mine.numa = mine.numa.take().or(its.numa);
        mine.min_runtime = mine.min_runtime.or(its.min_runtime);
        self.queue_order.extend(other.queue_order);
        self.group_order.extend(other.group_order);
        self.member_order.extend(other.member_order);
        self.pod_order.extend(other.pod_order);
        self.gpu_order.extend(other.gpu_order);
        self.pre_filters.extend(other.pre_filters);
        self.filters.extend(other.filters);
        self.scores.extend(other.scores);
        self.subsets.extend(other.subsets);
        for generator in other.generators {
            if self.generators.iter().all(|known| known.name() != generator.name()) {
                self.generators.push(generator);
            }
        }
        self.victim_filters.extend(other.victim_filters);
        self.validators.extend(other.validators);
        self.sessions.extend(other.sessions);
        self.allocation_handlers.extend(other.allocation_handlers);
        self.bind_annotations.extend(other.bind_annotations);
        self.actions.extend(other.actions);
        self.http_handlers.extend(other.http_handlers);
        self.session_plugins.extend(other.session_plugins);
        self.http_plugins.extend(other.http_plugins);
        self.guards.extend(other.guards);
    }

    /// Drops actions and paths whose name is taken, with a message for each.
    fn check_names(&mut self, problems: &mut Vec<String>) {
        let mut taken: BTreeSet<&str> = DEFAULT_ACTIONS.into();
        self.actions.retain(|action| {
            let is_free = taken.insert(action.name());
            if !is_free {
                problems.push(format!("action `{}` exists already; the plugin's is skipped", action.name()));
            }
            is_free
        });
        let mut paths: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let entries = std::mem::take(&mut self.http_handlers).into_iter();
        for ((path, handler), plugin) in entries.zip(std::mem::take(&mut self.http_plugins)) {
            if let Some(first) = paths.get(&path) {
                problems.push(format!(
                    "path `{path}` of plugin `{plugin}` belongs to plugin `{first}` and is skipped"
                ));
            } else if path.starts_with('/') {
                paths.insert(path.clone(), Arc::clone(&plugin));
                self.http_handlers.push((path, handler));
                self.http_plugins.push(plugin);
            } else {
                problems.push(format!("path `{path}` of plugin `{plugin}` does not begin with `/`"));
            }
        }
    }

    /// The handlers of the plugin server: plugin, path and handler.
    pub fn http_handlers(&self) -> impl Iterator<Item = (&str, &str, &Arc<dyn HttpHandler>)> {
        let handlers = self.http_handlers.iter().zip(&self.http_plugins);
        handlers.map(|((path, handler), plugin)| (&**plugin, path.as_str(), handler))
    }

    /// Removes one kind of entries, for a `disable…` switch.
    fn without(&mut self, part: PluginPart) {
        match part {
            PluginPart::QueueOrder => self.queue_order.clear(),
            PluginPart::GroupOrder => self.group_order.clear(),
            PluginPart::PodOrder => self.pod_order.clear(),
            PluginPart::Filter => {
                self.filters.clear();
                self.pre_filters.clear();
                self.builtin.predicates = false;
                self.builtin.dynamic_resources = false;
            }
            PluginPart::NodeOrder => {
                self.scores.clear();
                self.builtin = BuiltIns {
                    predicates: self.builtin.predicates,
                    proportion: self.builtin.proportion,
                    topology: self.builtin.topology,
                    dynamic_resources: self.builtin.dynamic_resources,
                    numa: self.builtin.numa.take(),
                    min_runtime: self.builtin.min_runtime,
                    ..BuiltIns::default()
                };
            }
            PluginPart::Preempt => {
                if let Some(min_runtime) = &mut self.builtin.min_runtime {
                    min_runtime.preempt = None;
                }
            }
            PluginPart::Reclaim => {
                if let Some(min_runtime) = &mut self.builtin.min_runtime {
                    min_runtime.reclaim = None;
                }
                if let Some(proportion) = &mut self.builtin.proportion {
                    proportion.rules_reclaim = false;
                }
            }
        }
    }
}

/// Arguments of one plugin, with typed getters. Invalid values are reported and replaced by the default.
pub struct Args<'a> {
    plugin: &'a str,
    values: &'a BTreeMap<String, String>,
    problems: &'a mut Vec<String>,
    /// The keys that the plugin read.
    read: BTreeSet<String>,
}

impl Args<'_> {
    /// A text argument.
    pub fn text(&mut self, key: &str) -> Option<&str> {
        self.read.insert(key.to_owned());
        self.values.get(key).map(String::as_str)
    }
    /// A number.
    pub fn number(&mut self, key: &str, default: f64) -> f64 {
        self.parsed(key, default, |text| text.trim().parse().ok().filter(|n: &f64| n.is_finite()))
    }
    /// A switch.
    pub fn switch(&mut self, key: &str, default: bool) -> bool {
        self.parsed(key, default, |text| match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        })
    }
    /// A duration.
    pub fn span(&mut self, key: &str, default: kai_units::Span) -> kai_units::Span {
        self.parsed(key, default, |text| kai_units::duration::parse_extended(text).ok())
    }
    /// Reports a problem with an argument.
    pub fn problem(&mut self, key: &str, hint: &str) {
        let value = self.text(key).unwrap_or_default().to_owned();
        self.problems.push(format!("plugin `{}`: argument `{key}` is `{value}`; hint: {hint}", self.plugin));
    }
    fn parsed<T>(&mut self, key: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
        let Some(text) = self.text(key).map(str::to_owned) else { return default };
        parse(&text).unwrap_or_else(|| {
            self.problem(key, "it cannot be read; the default is used");
            default
        })
    }
    /// Reports the arguments that the plugin did not read.
    fn report_unknown(self) {
        for key in self.values.keys().filter(|key| !self.read.contains(*key)) {
            let known: Vec<&str> = self.read.iter().map(String::as_str).collect();
            let hint = match known.as_slice() {
                [] => "the plugin has no arguments".to_owned(),
                known => format!("its arguments are {}", known.join(", ")),
            };
            self.problems.push(format!(
                "plugin `{}`: argument `{key}` is not known and has no effect; hint: {hint}",
                self.plugin
            ));
        }
    }
}

/// The plugins that a configuration can name.
#[derive(Clone, Default)]
pub struct PluginSet {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl PluginSet {
    /// KAI's plugins.
    pub fn builtin() -> Self {
        Self { plugins: builtin::all() }
    }
    /// Adds a plugin; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.retain(|p| p.name() != plugin.name());
        self.plugins.push(plugin);
        self
    }
    /// The actions that the configured plugins add.
    pub fn custom_actions(&self, configured: &[PluginConfig]) -> Vec<&'static str> {
        self.resolve(configured).0.actions.iter().map(|action| action.name()).collect()
    }

    /// Registers each configured plugin, in order. Returns messages about unknown names and invalid arguments.
    pub(crate) fn resolve(&self, configured: &[PluginConfig]) -> (Registry, Vec<String>) {
        let mut registry = Registry::default();
        let mut problems = Vec::new();
        for config in configured {
            let Some(plugin) = self.plugins.iter().find(|p| p.name() == config.name) else {
                problems.push(format!("plugin `{}` is not known and is skipped", config.name));
                continue;
            };
            let mut own = Registry::default();
            let mut args = Args {
                plugin: &config.name,
                values: &config.arguments,
                problems: &mut problems,
                read: BTreeSet::new(),
            };
            let registered = catch_unwind(AssertUnwindSafe(|| plugin.register(&mut args, &mut own)));
            if let Err(panic) = registered {
                let message = panic_message(&*panic);
                problems.push(format!("plugin `{}` panicked and is skipped: {message}", config.name));
                continue;
            }
            args.report_unknown();
            for part in &config.disabled {
                own.without(*part);
            }
            let id = registry.guards.len() as u32 + 1;
            let guard = Arc::new(Guard::new(&config.name, id, &registry.running));
            own.http_plugins = vec![Arc::clone(&guard.plugin); own.http_handlers.len()];
            registry.merge(own.guarded(&guard));
        }
        registry.check_names(&mut problems);
        (registry, problems)
    }
}

//! The scheduler loop: keeps the cluster model current, runs cycles on it and submits their decisions as writes.
//!
//! All input arrives through [`SchedulerLoop::handle`], in the order of the event queue. The loop never awaits: writes go
//! to the writer, evictions to tasks, and their results come back as events.

mod audit;
mod cycle;
mod cycle_metrics;
mod direct_binding;
mod hints;
mod implicit_groups;
mod input_diagnostics;
mod obsolete_bind_requests;
mod plugin_watchdog;
mod reload;
mod starts;
mod status;
mod time_limits;
mod usage_ledger;
mod watch_events;
mod write_results;

use crate::assumed_bindings::AssumedBindings;
use crate::cycle_trigger::{CycleTrigger, Impact};
use crate::direct_bindings::DirectBindings;
use crate::effect::evict::{self, Batch, IfDenied};
use crate::event_queue::{AnnotationError, EventQueue, SchedulerEvent};
use crate::group_backoff::GroupBackoff;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::pending_annotations::PendingAnnotations;
use crate::serve::plugin_handlers::PluginHandlers;
use crate::status_reporter::StatusReporter;
use crate::timers::Timers;
use crate::usage::Usage;
use crate::usage::feed::{self, Feed};
use crate::usage::ledger::Ledger;
use kai_cache::{Cache, Kind, Settings};
use kai_clock::Clock;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::Action;
use kai_engine::verdict::GroupVerdict;
use kai_engine::{Outcome, Policy};
use kai_runtime::api::Api;
use kai_runtime::degradation::Degradations;
use kai_runtime::event::Recorder;
use kai_runtime::health::Health;
use kai_runtime::writer::Writer;
use kai_units::Timestamp;
use obsolete_bind_requests::Deletion;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The right to know disruption budgets.
const LIST_BUDGETS: &str = "list poddisruptionbudgets.policy";
/// The right to evict pods through the eviction API.
const EVICT: &str = "create pods/eviction";

pub(crate) struct SchedulerLoop {
    pub(crate) options: Options,
    pub(crate) cache: Cache,
    policies: Policies,
    /// What a configuration may name, to resolve it anew.
    plugins: PluginSet,
    /// Plugins that are not called any more, with the reason.
    cut_off_plugins: BTreeMap<String, String>,
    /// Where the plugins' HTTP handlers are served.
    handlers: PluginHandlers,
    health: Health,
    clock: Clock,
    api: Api,
    writer: Writer,
    recorder: Recorder,
    degradations: Degradations,
    pub(crate) metrics: Metrics,
    events: Arc<EventQueue>,
    assumed: AssumedBindings,
    /// Bindings that this process posts itself.
    direct: DirectBindings,
    /// Obsolete bind requests that are being deleted.
    deleting: BTreeMap<Key, Deletion>,
    annotations: PendingAnnotations,
    backoff: GroupBackoff,
    /// Groups that a maximum run time has made preemptible; none before the first cycle.
    beyond_limits: Option<BTreeSet<Key>>,
    reporter: StatusReporter,
    hints: hints::Hints,
    diagnostics: input_diagnostics::InputDiagnostics,
    timers: Timers,
    pub(crate) trigger: CycleTrigger,
    /// Kinds whose first list has not arrived.
    unsynced: BTreeSet<Kind>,
    undecodable: BTreeSet<(Kind, Key)>,
    /// Whether the ConfigMap with the configuration has not been listed: the options may be older than it.
    awaits_configuration: bool,
    /// Until when cycles wait for the first result of the usage query.
    usage_deadline: Option<Instant>,
    /// Where historical usage comes from this scheduler itself.
    usage_ledger: Option<Arc<Mutex<Ledger>>>,
    usage_feed: Feed,
    /// The verdict of each pending group, of the last cycle that attempted most for it.
    pub(crate) verdicts: BTreeMap<Key, GroupVerdict>,
    /// Requests outside of the writer: evictions and lookups of bind requests.
    tasks: JoinSet<()>,
    cycles: u64,
    last_audit: Instant,
    is_auditing: bool,
    /// Interned names of the cluster model when it was last built.
    initial_names: usize,
}

impl SchedulerLoop {
    pub(crate) fn new(
        options: Options,
        plugins: PluginSet,
        process: &kai_runtime::Process,
        events: Arc<EventQueue>,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> Self {
        let all_actions = Policy::resolve(&options.config.engine, &options.params, &plugins);
        let metrics = Metrics::new(&process.metrics, &options.metrics_namespace);
        metrics.set_configuration(
            &all_actions.budgets,
            options.config.engine.plugins.iter().map(|plugin| plugin.name.as_str()),
        );
        let usage_ledger = feed::ledger(options.usage.as_ref());
        for warning in options.config.warnings.iter().chain(&all_actions.warnings) {
            tracing::warn!(warning, "invalid configuration");
        }
        Self {
            cache: Cache::new(settings(&options)),
            metrics,
            trigger: CycleTrigger::new(options.period),
            policies: Policies::of(all_actions),
            plugins,
            cut_off_plugins: BTreeMap::new(),
            handlers: PluginHandlers::default(),
            health: process.health.clone(),
            clock: process.clock,
            api: process.api.clone(),
            writer: process.writer.clone(),
            recorder: process.recorder.clone(),
            degradations: process.degradations.clone(),
            events,
            assumed: AssumedBindings::default(),
            direct: DirectBindings::default(),
            deleting: BTreeMap::new(),
            annotations: PendingAnnotations::default(),
            backoff: GroupBackoff::default(),
            beyond_limits: None,
            reporter: StatusReporter::default(),
            hints: hints::Hints::default(),
            diagnostics: input_diagnostics::InputDiagnostics::default(),
            timers: Timers::default(),
            unsynced: kinds.into_iter().collect(),
            undecodable: BTreeSet::new(),
            awaits_configuration: options.config_map.is_some(),
            usage_deadline: options.usage.as_ref().map(|source| Instant::now() + source.wait_max()),
            usage_feed: Feed::new(options.usage.clone(), usage_ledger.clone()),
            usage_ledger,
            verdicts: BTreeMap::new(),
            tasks: JoinSet::new(),
            cycles: 0,
            last_audit: Instant::now(),
            is_auditing: false,
            initial_names: 0,
            options,
        }
    }

    /// Whether every informer has synced and usage is known or overdue.
    pub(crate) fn has_synced(&self) -> bool {
        self.is_listed() && self.usage_deadline.is_none_or(|until| until <= Instant::now())
    }

    /// Whether every informer has synced, that of the configuration included.
    fn is_listed(&self) -> bool {
        self.unsynced.is_empty() && !self.awaits_configuration
    }

    /// When [`SchedulerLoop::run_due`] has work if no event arrives before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if !self.is_listed() {
            return None;
        }
        if let Some(until) = self.usage_deadline.filter(|_| !self.has_synced()) {
            return Some(until);
        }
        let cycle = self.trigger.next().map(|(at, _)| at);
        let diagnostics = self.diagnostics.next_report(self.options.report_after);
        let hints = self.next_hints().filter(|_| self.is_idle(Instant::now()));
        [cycle, self.next_report(), diagnostics, hints].into_iter().flatten().min()
    }

    /// Runs a cycle, reports and audits as far as they are due.
    pub(crate) fn run_due(&mut self) {
        let now = Instant::now();
        // Drops finished tasks.
        while self.tasks.try_join_next().is_some() {}
        if !self.has_synced() {
            return;
        }
        let due = self.trigger.next().filter(|(at, _)| *at <= now);
        if let Some((_, scope)) = due {
            self.run_cycle(scope);
        }
        // Verdicts change by cycles only; a group becomes due for a report by time only.
        let has_hints = self.hints.take_unreported();
        if due.is_some() || has_hints || self.next_report().is_some_and(|at| at <= now) {
            self.report_status(now);
        }
        self.report_diagnostics(now);
        if self.has_excess_names() || self.cache.cluster().dims.is_outdated() {
            self.rebuild_cluster();
        }
        let idle = self.is_idle(now);
        if idle && !self.is_auditing && now.duration_since(self.last_audit) >= self.options.audit_every {
            self.audit();
        }
        if idle {
            self.search_hints(now);
        }
    }

    /// Whether no cycle is due soon, so that there is time for other work. Custom actions run all the time.
    fn is_idle(&self, now: Instant) -> bool {
        self.policies.has_custom_actions()
            || self.trigger.next().is_none_or(|(at, _)| at > now + self.options.period)
    }

    /// Whether most interned names of the cluster model belong to deleted objects.
    fn has_excess_names(&self) -> bool {
        let spare = self.initial_names.saturating_add(self.options.stale_names_max);
        self.cache.cluster().names.len() > self.initial_names.saturating_add(spare)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.now().as_microsecond())
    }

    pub(crate) fn handle(&mut self, events: Vec<SchedulerEvent>) {
        for event in events {
            let impact = match event {
                SchedulerEvent::Watch(kind, event) => self.handle_watch_event(kind, event),
                SchedulerEvent::BindResponse(key, response) => self.handle_bind_response(&key, response),
                SchedulerEvent::BindLookup(key, error, found) => self.handle_bind_lookup(&key, &error, found),
                SchedulerEvent::BindingResponse(key, number, response) => {
                    self.handle_binding_response(&key, number, response)
                }
                SchedulerEvent::BindingLookup(key, number, error, found) => {
                    self.handle_binding_lookup(&key, number, error.as_ref(), found.as_ref())
                }
                SchedulerEvent::BindingRetry(key, number) => self.retry_binding(&key, number),
                SchedulerEvent::AssumedLookup(key, exists) => self.handle_assumed_lookup(&key, exists),
                SchedulerEvent::DeletionResponse(key, uid, response) => {
                    self.handle_deletion(key, &uid, response)
                }
                SchedulerEvent::DeletionRetry(key) => self.retry_deletion(&key),
                SchedulerEvent::EvictionResult(result) => self.handle_eviction_result(result),
                SchedulerEvent::EvictionsOverdue(preemptor, victims) => {
                    self.look_up_victims(preemptor, victims);
                    Impact::None
                }
                SchedulerEvent::Usage(usage) => self.handle_usage(usage),
                SchedulerEvent::Configuration(map) => self.handle_configuration(map.as_deref()),
                SchedulerEvent::Audited(result) => self.handle_audit(result),
                SchedulerEvent::HintsFound(found, cycles) => self.handle_hints(found, cycles),
                SchedulerEvent::PodConditionConflict(condition) => {
                    self.reporter.retries.add_pod(condition, Instant::now() + self.options.report_after);
                    Impact::None
                }
                SchedulerEvent::GroupConditionConflict(group) => {
                    self.reporter.retries.add_group(group, Instant::now() + self.options.report_after);
                    Impact::None
                }
                SchedulerEvent::AnnotationsWritten(group, generation, outcome) => {
                    self.annotations.confirm(&group, generation, outcome);
                    Impact::None
                }
            };
            self.trigger.record_event(Instant::now(), impact);
        }
    }

    fn handle_usage(&mut self, usage: Usage) -> Impact {
        self.usage_deadline = None;
        // Sent before the configuration no longer had a source.
        if self.options.usage.is_none() || *self.cache.store().usage() == usage {
            return Impact::None;
        }
        self.cache.store_mut().set_usage(usage);
        Impact::Replan
    }

    /// Sets the timer of the next cycle that time alone makes necessary.
    fn set_timer(&mut self, outcome: &Outcome) {
        let now = self.now();
        let has_candidates =
            !self.verdicts.is_empty() || !outcome.staleness.is_empty() || self.has_stale_groups();
        let is_awaited = has_candidates || self.cache.cluster().has_time_limits();
        // The next cycle evicts groups that end in this one.
        let evicts = (!outcome.time_limits.end.is_empty()).then_some(now);
        let next = [self.timers.next(now).filter(|_| is_awaited), self.backoff.next_expiry(now), evicts]
            .into_iter()
            .flatten()
            .min();
        let instant = Instant::now();
        let next = next.map(|at| instant_of(at, now, instant));
        // A custom action may read the time, so it runs once a period, as every action does in KAI.
        let periodic = self.policies.has_custom_actions().then(|| instant + self.options.period);
        self.trigger.set_timer([next, periodic].into_iter().flatten().min());
    }

    fn has_stale_groups(&self) -> bool {
        self.cache.cluster().stale_groups().next().is_some()
    }

    /// Applies the pending annotations of a group to its stored state, so that they count at once.
    fn apply_annotations(&mut self, group: &Key) {
        if self.is_implicit(group) {
            let annotations = &self.annotations;
            self.cache.store_mut().record_on_implicit(group, |object| {
                annotations.overlay(group, object);
            });
            return;
        }
        if let Some(known) = self.cache.store().objects().pod_groups.get(group) {
            let mut annotated = (**known).clone();
            if self.annotations.overlay(group, &mut annotated) {
                self.set_group_timers(group, &annotated);
                self.cache.store_mut().apply(annotated);
            }
        }
    }

    /// Writes the pending annotations of a group; they count at once.
    fn write_annotations(&mut self, group: &Key) {
        self.apply_annotations(group);
        if self.write_record_of_implicit(group) {
            return;
        }
        let (events, key) = (Arc::clone(&self.events), group.clone());
        let write = self.annotations.patch(group, |generation| {
            Box::new(move |response| {
                let outcome = match response {
                    Ok(_) => Ok(()),
                    Err(error) if error.is_not_found() => Err(AnnotationError::NotFound),
                    Err(_) => Err(AnnotationError::Rejected),
                };
                events.push(SchedulerEvent::AnnotationsWritten(key, generation, outcome));
            })
        });
        if let Some(write) = write {
            self.writer.submit(write);
        }
    }

    fn evict(&mut self, batch: Batch) {
        let (api, events, how) = (self.api.clone(), Arc::clone(&self.events), self.options.eviction_method());
        // Budgets that cannot be read are not honoured by any other way either.
        let denied =
            if self.degradations.is_missing(LIST_BUDGETS) { IfDenied::Delete } else { IfDenied::Refuse };
        self.tasks.spawn(async move {
            let result = evict::run(api, batch, how, denied).await;
            events.push(SchedulerEvent::EvictionResult(result));
        });
    }

    /// Sends requests beside the loop; their result comes back as an event or goes to a client.
    pub(crate) fn run_beside<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        work: impl FnOnce(Api) -> F,
    ) {
        self.tasks.spawn(work(self.api.clone()));
    }

    /// The policy of cycles with every configured action.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policies.all_actions
    }

    /// Serves the HTTP handlers of plugins there.
    pub(crate) fn serve_plugins(&mut self, handlers: PluginHandlers) {
        handlers.set(&self.policies.all_actions.registry, &self.metrics.plugin_failures);
        self.handlers = handlers;
    }

    /// Resolves the configuration anew, so that plugins register new entries.
    fn resolve_policies(&mut self) {
        let (config, params) = (&self.options.config.engine, &self.options.params);
        self.policies = Policies::of(Policy::resolve(config, params, &self.plugins));
        for (plugin, why) in &self.cut_off_plugins {
            self.policies.all_actions.cut_off(plugin, why);
        }
        self.serve_plugins(self.handlers.clone());
    }
}

/// The policies of cycles.
struct Policies {
    all_actions: Arc<Policy>,
    allocate_only: Arc<Policy>,
    /// For audits: plugins would count them as cycles.
    built_in: Policy,
}

impl Policies {
    fn of(all_actions: Policy) -> Self {
        let mut allocate_only = all_actions.clone();
        allocate_only.actions.retain(|action| matches!(action, Action::Allocate));
        let built_in = all_actions.without_callbacks();
        Self { all_actions: Arc::new(all_actions), allocate_only: Arc::new(allocate_only), built_in }
    }

    /// Whether some action may decide without an event: it is the plugin's to say when.
    fn has_custom_actions(&self) -> bool {
        self.all_actions.actions.iter().any(|action| matches!(action, Action::Custom(_)))
    }
}

/// The settings of the cache. Half-lives of queues count only in a ledger.
fn settings(options: &Options) -> Settings {
    Settings {
        usage_half_lives: options.usage.as_ref().is_none_or(|source| source.ledger().is_some()),
        ..options.settings.clone()
    }
}

/// A point in time on the runtime's clock.
fn instant_of(at: Timestamp, now: Timestamp, instant: Instant) -> Instant {
    instant + Duration::from_micros(u64::try_from((at - now).0).unwrap_or(0))
}

#[cfg(test)]
mod tests;

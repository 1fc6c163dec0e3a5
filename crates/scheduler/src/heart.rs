//! The heart: keeps one cluster current, plans on it, and hands on what was decided.
//!
//! It is told everything through [`take`](Heart::take), in one place and in one order, and it never waits: writes go to
//! the writer, evictions to tasks of their own, and their outcomes come back as changes.

mod audit;
mod decide;
mod measure;
mod news;
mod odd;
mod tell;

use crate::aside::Aside;
use crate::effect::evict::{self, Batch};
use crate::flight::Flight;
use crate::inbox::{Change, Inbox, MarkFailure};
use crate::marks::Marks;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::resources::{BIND_REQUEST, api_key};
use crate::rhythm::{Rhythm, Weight};
use crate::timers::Timers;
use crate::told::Told;
use crate::usage::Usage;
use kai_cache::{Cache, Kind};
use kai_clock::Clock;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::Action;
use kai_engine::verdict::GroupVerdict;
use kai_engine::{Outcome, Policy};
use kai_runtime::api::Api;
use kai_runtime::event::Recorder;
use kai_runtime::writer::{Retry, Write, WritePriority, Writer};
use kai_units::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Keeps the cluster and decides.
pub(crate) struct Heart {
    pub(crate) options: Options,
    pub(crate) cache: Cache,
    everything: Policy,
    placing: Policy,
    clock: Clock,
    api: Api,
    writer: Writer,
    recorder: Recorder,
    pub(crate) metrics: Metrics,
    inbox: Arc<Inbox>,
    flight: Flight,
    marks: Marks,
    aside: Aside,
    told: Told,
    odd: odd::Odd,
    timers: Timers,
    pub(crate) rhythm: Rhythm,
    /// Kinds of which nothing is known yet.
    unread: BTreeSet<Kind>,
    unreadable: BTreeSet<(Kind, Key)>,
    /// Until when the first word on past usage is waited for.
    usage_awaited: Option<Instant>,
    /// Why each waiting group waits, by the last cycle that could do everything.
    pub(crate) verdicts: BTreeMap<Key, GroupVerdict>,
    /// What is under way beside the writer: evictions, and looking up what the server has.
    tasks: JoinSet<()>,
    cycles: u64,
    audited: Instant,
    /// How many names the cluster had when it was last built anew.
    names: usize,
}

impl Heart {
    /// A heart that knows nothing yet.
    pub(crate) fn new(
        options: Options,
        plugins: &PluginSet,
        process: &kai_runtime::Process,
        inbox: Arc<Inbox>,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> Self {
        let everything = Policy::resolve(&options.config.engine, &options.params, plugins);
        let metrics = Metrics::new(&process.metrics, &options.metrics_namespace);
        metrics.configured(
            &everything.budgets,
            options.config.engine.plugins.iter().map(|plugin| plugin.name.as_str()),
        );
        for warning in options.config.warnings.iter().chain(&everything.warnings) {
            tracing::warn!(warning, "the configuration is odd");
        }
        let mut placing = everything.clone();
        placing.actions.retain(|action| matches!(action, Action::Allocate));
        Self {
            cache: Cache::new(options.settings.clone()),
            metrics,
            rhythm: Rhythm::new(options.period),
            everything,
            placing,
            clock: process.clock,
            api: process.api.clone(),
            writer: process.writer.clone(),
            recorder: process.recorder.clone(),
            inbox,
            flight: Flight::default(),
            marks: Marks::default(),
            aside: Aside::default(),
            told: Told::default(),
            odd: odd::Odd::default(),
            timers: Timers::default(),
            unread: kinds.into_iter().collect(),
            unreadable: BTreeSet::new(),
            usage_awaited: options.usage.as_ref().map(|source| Instant::now() + source.wait_max()),
            verdicts: BTreeMap::new(),
            tasks: JoinSet::new(),
            cycles: 0,
            audited: Instant::now(),
            names: 0,
            options,
        }
    }

    /// Whether everything has been read, so that a cycle makes sense.
    pub(crate) fn is_informed(&self) -> bool {
        self.unread.is_empty() && self.usage_awaited.is_none_or(|until| until <= Instant::now())
    }

    /// When something is to be done next, if nothing else happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        if !self.unread.is_empty() {
            return None;
        }
        if let Some(until) = self.usage_awaited.filter(|_| !self.is_informed()) {
            return Some(until);
        }
        let cycle = self.rhythm.next().map(|(at, _)| at);
        [cycle, self.next_telling(), self.odd.next(self.options.tell_after)].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn beat(&mut self) {
        let now = Instant::now();
        // What is over is not kept.
        while self.tasks.try_join_next().is_some() {}
        if !self.is_informed() {
            return;
        }
        let due = self.rhythm.next().filter(|(at, _)| *at <= now);
        if let Some((_, scope)) = due {
            self.cycle(scope);
        }
        // What groups wait for changes only by cycles, and who has waited long enough only by time.
        if due.is_some() || self.next_telling().is_some_and(|at| at <= now) {
            self.tell(now);
        }
        self.tell_odd(now);
        if self.has_traces() {
            self.rebuild();
        }
        let idle = self.rhythm.next().is_none_or(|(at, _)| at > now + self.options.period);
        if idle && now.duration_since(self.audited) >= self.options.audit_every {
            self.audit();
        }
    }

    /// Whether much of what the cluster keeps is of what is gone.
    fn has_traces(&self) -> bool {
        let spare = self.names.saturating_add(self.options.traces_max);
        self.cache.cluster().names.len() > self.names.saturating_add(spare)
    }

    /// The time, as the engine counts it.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.now().as_microsecond())
    }

    /// Takes in everything that has been told.
    pub(crate) fn take(&mut self, changes: Vec<Change>) {
        for change in changes {
            let weight = match change {
                Change::WatchEvent(kind, news) => self.take_news(kind, news),
                Change::BindAnswered(key, answer) => self.take_bind_answer(&key, answer),
                Change::BindLookedUp(key, refusal, found) => self.take_looked_up(&key, &refusal, found),
                Change::Evicted(evicted) => self.take_evicted(evicted),
                Change::Usage(usage) => self.take_usage(usage),
                Change::Marked(group, changes, outcome) => {
                    self.marks.written(&group, changes, outcome);
                    Weight::Nothing
                }
            };
            self.rhythm.changed(Instant::now(), weight);
        }
    }

    /// Takes in what queues used in the past.
    fn take_usage(&mut self, usage: Usage) -> Weight {
        self.usage_awaited = None;
        if *self.cache.store().usage() == usage {
            return Weight::Nothing;
        }
        self.cache.store_mut().set_usage(usage);
        Weight::Matters
    }

    /// Sets the next moment at which time alone changes something.
    fn set_timer(&mut self, outcome: &Outcome) {
        let now = self.now();
        let matters = !self.verdicts.is_empty() || !outcome.staleness.is_empty() || self.has_stale_groups();
        let next =
            [self.timers.next(now).filter(|_| matters), self.aside.next(now)].into_iter().flatten().min();
        let instant = Instant::now();
        self.rhythm.set_timer(next.map(|at| until(at, now, instant)));
    }

    fn has_stale_groups(&self) -> bool {
        self.cache.cluster().stale_groups().next().is_some()
    }

    /// Writes the outstanding marks of a group and counts them at once.
    fn write_marks(&mut self, group: &Key) {
        if let Some(known) = self.cache.store().objects().pod_groups.get(group) {
            let mut marked = (**known).clone();
            if self.marks.lay_over(group, &mut marked) {
                self.set_group_timers(group, &marked);
                self.cache.store_mut().apply(marked);
            }
        }
        let (inbox, key) = (Arc::clone(&self.inbox), group.clone());
        let write = self.marks.write(group, |changes| {
            Box::new(move |answer| {
                let outcome = match answer {
                    Ok(_) => Ok(()),
                    Err(error) if error.is_not_found() => Err(MarkFailure::Gone),
                    Err(_) => Err(MarkFailure::Refused),
                };
                inbox.put(Change::Marked(key, changes, outcome));
            })
        });
        if let Some(write) = write {
            self.writer.submit(write);
        }
    }

    /// Lets a batch of pods leave.
    fn evict(&mut self, batch: Batch) {
        let (api, inbox, how) = (self.api.clone(), Arc::clone(&self.inbox), self.options.eviction);
        self.tasks.spawn(async move {
            let evicted = evict::run(api, batch, how).await;
            inbox.put(Change::Evicted(evicted));
        });
    }

    /// Deletes a bind request that is of no more use.
    fn delete_bind(&self, key: &Key) {
        let Some(request) = self.cache.store().objects().bind_requests.get(key) else { return };
        let key = api_key(key);
        self.writer.submit(Write {
            priority: WritePriority::Action,
            path: BIND_REQUEST.path_of(&key),
            object: (BIND_REQUEST, key),
            slot: Some("delete"),
            method: "DELETE",
            content_type: "application/json",
            body: json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {"uid": request.metadata.uid},
            }),
            retry: Retry::UntilAnswered,
            done: None,
        });
    }

    /// The policy of cycles that may do everything.
    pub(crate) fn everything(&self) -> &Policy {
        &self.everything
    }
}

/// When a moment comes, on the runtime's clock.
fn until(at: Timestamp, now: Timestamp, instant: Instant) -> Instant {
    instant + Duration::from_micros(u64::try_from((at - now).0).unwrap_or(0))
}

//! What is measured, under the names and labels that KAI uses.

mod search;

use indexmap::IndexSet;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::policy::SearchBudgets;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry,
    exponential_buckets,
};
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use search::{SearchMetrics, TimedAttempt};

/// All metrics of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) cycle_ms: Gauge,
    pub(crate) open_ms: Gauge,
    pub(crate) close_ms: Gauge,
    pub(crate) action_ms: GaugeVec,
    /// From a pod's creation to the decision where it runs.
    pub(crate) placing_ms: Histogram,
    /// From the decision to the bind request.
    pub(crate) bind_ms: Histogram,
    pub(crate) groups_scheduled: CounterVec,
    evicted_pods: CounterVec,
    /// Whose evicted pods are counted, the oldest first.
    evicted: Arc<Mutex<IndexSet<EvictedLabels, FxBuildHasher>>>,
    pub(crate) search: SearchMetrics,
    plugin_ms: GaugeVec,
    fair_share: [GaugeVec; 3],
    usage: [GaugeVec; 3],
    /// What the two above show.
    shown: Arc<Mutex<BTreeMap<String, Shown>>>,
    /// How reading past usage goes.
    pub(crate) usage_source: UsageSource,
    /// Differences that an audit found; KAI has no such metric.
    pub(crate) audit_differences: IntCounter,
    /// Objects that cannot be read.
    pub(crate) unreadable: IntGauge,
    /// Bindings that were decided and that the server has not shown yet.
    pub(crate) flying: IntGauge,
    /// Names that the cluster keeps.
    pub(crate) names: IntGauge,
    /// Cycles so far.
    pub(crate) cycles: CounterVec,
}

/// How reading past usage goes.
#[derive(Clone, Debug)]
pub(crate) struct UsageSource {
    pub(crate) query_ms: Histogram,
    /// Readings that failed; KAI has no such metric.
    pub(crate) failures: IntCounter,
    /// 1 while what is known is older than it may be; KAI has no such metric.
    pub(crate) stale: IntGauge,
}

/// Group, namespace, uid, node pool and action.
type EvictedLabels = [String; 5];

/// The most groups and actions of which evicted pods are counted: groups come and go for ever.
const EVICTED_MAX: usize = 10_000;

const QUEUE_LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

/// Makes metrics of one namespace and registers them.
struct Maker<'a> {
    registry: &'a Registry,
    namespace: &'a str,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace(self.namespace)
    }

    fn register<M: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect("names and labels are constants that are valid");
        // A second scheduler in the same process, which only tests have, shares no registry.
        self.registry.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }

    fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register(GaugeVec::new(self.opts(name, help), labels))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> CounterVec {
        self.register(CounterVec::new(self.opts(name, help), labels))
    }

    fn milliseconds(&self, name: &str, help: &str) -> Histogram {
        let buckets = exponential_buckets(5.0, 2.0, 10).expect("constants that are valid");
        let opts = HistogramOpts { common_opts: self.opts(name, help), buckets };
        self.register(Histogram::with_opts(opts))
    }
}

impl UsageSource {
    fn new(make: &Maker<'_>) -> Self {
        Self {
            query_ms: make
                .milliseconds("usage_query_latency_milliseconds", "Time to read the past use of all queues"),
            failures: make.register(IntCounter::with_opts(
                make.opts(
                    "usage_query_failures_total",
                    "Times that the past use of queues could not be read",
                ),
            )),
            stale: make.register(IntGauge::with_opts(
                make.opts("usage_is_stale", "Whether the past use of queues that counts is too old"),
            )),
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    pub(crate) fn new(registry: &Registry, namespace: &str) -> Self {
        let make = Maker { registry, namespace };
        let share =
            |name, what| make.gauges(name, &format!("Fair share of {what} of a queue"), &QUEUE_LABELS);
        let usage = |name, what| make.gauges(name, &format!("Past use of {what} by a queue"), &QUEUE_LABELS);
        Self {
            cycle_ms: make.gauge("e2e_scheduling_latency_milliseconds", "Time of the last cycle"),
            open_ms: make.gauge("open_session_latency_milliseconds", "Time to open the last cycle"),
            close_ms: make.gauge("close_session_latency_milliseconds", "Time to hand on what was decided"),
            action_ms: make.gauges(
                "action_scheduling_latency_milliseconds",
                "Time of each action of the last cycle",
                &["action"],
            ),
            placing_ms: make.milliseconds(
                "task_scheduling_latency_milliseconds",
                "Time from the creation of a pod to the decision where it runs",
            ),
            bind_ms: make.milliseconds(
                "task_bind_latency_milliseconds",
                "Time from the decision where a pod runs to its bind request",
            ),
            groups_scheduled: make.counters(
                "podgroups_scheduled_by_action",
                "Pod groups that got places",
                &["action"],
            ),
            evicted_pods: make.counters(
                "pod_group_evicted_pods_total",
                "Pods that were evicted",
                &["podgroup", "namespace", "uid", "nodepool", "action"],
            ),
            evicted: Arc::default(),
            search: SearchMetrics::new(&make),
            plugin_ms: make.gauges(
                "plugin_scheduling_latency_milliseconds",
                "Time of a plugin before and after the actions; plugins have nothing to do then",
                &["plugin", "OnSession"],
            ),
            fair_share: [
                share("queue_fair_share_cpu_cores", "CPU"),
                share("queue_fair_share_memory_gb", "memory"),
                share("queue_fair_share_gpu", "GPUs"),
            ],
            usage: [
                usage("queue_cpu_usage", "CPU"),
                usage("queue_memory_usage", "memory"),
                usage("queue_gpu_usage", "GPUs"),
            ],
            usage_source: UsageSource::new(&make),
            shown: Arc::default(),
            audit_differences: make.register(IntCounter::with_opts(make.opts(
                "audit_differences_total",
                "Audits that found the cluster different from its objects",
            ))),
            unreadable: make.register(IntGauge::with_opts(
                make.opts("unreadable_objects", "Objects that cannot be read and are left out"),
            )),
            flying: make.register(IntGauge::with_opts(make.opts(
                "binds_in_flight",
                "Bindings that were decided and that the server has not shown yet",
            ))),
            names: make.register(IntGauge::with_opts(
                make.opts("kept_names", "Names that the cluster keeps, of what is there and of what is gone"),
            )),
            cycles: make.counters("cycles_total", "Cycles by what they may do", &["scope"]),
        }
    }

    /// Says what is configured.
    pub(crate) fn configured<'a>(&self, budgets: &SearchBudgets, plugins: impl Iterator<Item = &'a str>) {
        self.search.budgets(budgets);
        for plugin in plugins {
            for moment in ["OnSessionOpen", "OnSessionClose"] {
                self.plugin_ms.with_label_values(&[plugin, moment]).set(0.0);
            }
        }
    }

    /// Counts a pod that was evicted.
    pub(crate) fn pod_was_evicted(&self, labels: EvictedLabels) {
        self.evicted_pods.with_label_values(&labels).inc();
        let mut known = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(labels)
            && known.len() > EVICTED_MAX
            && let Some(oldest) = known.shift_remove_index(0)
        {
            // It was counted, so it is there.
            let _ = self.evicted_pods.remove_label_values(&oldest);
        }
    }

    /// Sets what queues are entitled to, and what they used. `display` names a queue for people.
    pub(crate) fn queues<'a>(
        &self,
        outcome: &Outcome,
        display: impl Fn(&str) -> &'a str,
        used: impl Fn(&str) -> [f64; 3],
    ) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *shown);
        for QueueReport { name, fair_share, .. } in &outcome.queues {
            let new = Shown { display: display(name).to_owned(), fair_share: *fair_share, used: used(name) };
            let known = before.remove(name);
            if known.as_ref() != Some(&new) {
                if let Some(known) = known.filter(|known| known.display != new.display) {
                    self.hide(name, &known);
                }
                self.show(name, &new);
            }
            shown.insert(name.clone(), new);
        }
        for (name, gone) in &before {
            self.hide(name, gone);
        }
    }

    fn show(&self, name: &str, queue: &Shown) {
        let units = [1e3, 1e9, 1e6];
        for (at, unit) in units.iter().enumerate() {
            let labels = queue.labels(name);
            self.fair_share[at].with_label_values(&labels).set(queue.fair_share[at] as f64 / unit);
            self.usage[at].with_label_values(&labels).set(queue.used[at]);
        }
    }

    fn hide(&self, name: &str, queue: &Shown) {
        for gauges in self.fair_share.iter().chain(&self.usage) {
            // What was never shown is as good as hidden.
            let _ = gauges.remove_label_values(&queue.labels(name));
        }
    }
}

/// What is shown of a queue. Making labels is what costs, so that only what changes is set.
#[derive(Debug, PartialEq)]
struct Shown {
    display: String,
    fair_share: [i64; 3],
    used: [f64; 3],
}

impl Shown {
    fn labels<'a>(&'a self, name: &'a str) -> [&'a str; 3] {
        let shown = self.display.as_str();
        [if shown.is_empty() { name } else { shown }, name, shown]
    }
}

#[cfg(test)]
mod tests;

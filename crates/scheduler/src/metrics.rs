//! The scheduler's metrics, with the names and labels of KAI.

mod search;

use indexmap::IndexSet;
use kai_engine::observer::Moment;
use kai_engine::outcome::{Outcome, QueueReport};
use kai_engine::policy::SearchBudgets;
use parking_lot::Mutex;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry,
    exponential_buckets,
};
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use search::{SearchMetrics, TimedAttempt};

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
    /// KAI has no such metric.
    pub(crate) max_runtime_reached: CounterVec,
    evicted_pods: CounterVec,
    /// The label sets of `evicted_pods`, oldest first.
    evicted: Arc<Mutex<IndexSet<EvictedLabels, FxBuildHasher>>>,
    pub(crate) search: SearchMetrics,
    plugin_ms: GaugeVec,
    /// KAI has no such metric.
    pub(crate) plugin_failures: CounterVec,
    fair_share: [GaugeVec; 3],
    usage: [GaugeVec; 3],
    /// The values of the two above, by queue.
    published: Arc<Mutex<BTreeMap<String, QueueValues>>>,
    pub(crate) usage_source: UsageSource,
    pub(crate) scheduler_loop: LoopMetrics,
}

/// Metrics of the scheduler loop that KAI does not have.
#[derive(Clone, Debug)]
pub(crate) struct LoopMetrics {
    pub(crate) audit_differences: IntCounter,
    pub(crate) unreadable: IntGauge,
    pub(crate) assumed_bindings: IntGauge,
    pub(crate) names: IntGauge,
    pub(crate) configurations: IntCounter,
    pub(crate) configuration_invalid: IntGauge,
    pub(crate) cycles: CounterVec,
}

/// Metrics of the usage query.
#[derive(Clone, Debug)]
pub(crate) struct UsageSource {
    pub(crate) query_ms: Histogram,
    /// KAI has no such metric.
    pub(crate) failures: IntCounter,
    /// 1 while the known usage is older than the staleness period; KAI has no such metric.
    pub(crate) stale: IntGauge,
}

/// Group, namespace, uid, node pool and action.
type EvictedLabels = [String; 5];

/// The most label sets of `pod_group_evicted_pods_total`: without a limit they grow with the number of groups ever seen.
const EVICTED_MAX: usize = 10_000;

const QUEUE_LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

/// Creates and registers metrics of one namespace.
struct Builder<'a> {
    registry: &'a Registry,
    namespace: &'a str,
}

impl Builder<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace(self.namespace)
    }

    #[expect(clippy::expect_used, reason = "names and labels of metrics are constants")]
    fn register<M: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect("names and labels are valid constants");
        // Each scheduler has a registry of its own, also where tests run several in one process.
        self.registry.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }

    fn fair_shares(&self) -> [GaugeVec; 3] {
        [
            ("queue_fair_share_cpu_cores", "CPU"),
            ("queue_fair_share_memory_gb", "memory"),
            ("queue_fair_share_gpu", "GPUs"),
        ]
        .map(|(name, what)| self.gauges(name, &format!("Fair share of {what} of a queue"), &QUEUE_LABELS))
    }

    fn historical_usage(&self) -> [GaugeVec; 3] {
        [("queue_cpu_usage", "CPU"), ("queue_memory_usage", "memory"), ("queue_gpu_usage", "GPUs")].map(
            |(name, what)| {
                self.gauges(name, &format!("Historical usage of {what} by a queue"), &QUEUE_LABELS)
            },
        )
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
        #[expect(clippy::expect_used, reason = "the arguments are constants")]
        let buckets = exponential_buckets(5.0, 2.0, 10).expect("valid constants");
        let opts = HistogramOpts { common_opts: self.opts(name, help), buckets };
        self.register(Histogram::with_opts(opts))
    }
}

impl UsageSource {
    fn new(builder: &Builder<'_>) -> Self {
        Self {
            query_ms: builder.milliseconds(
                "usage_query_latency_milliseconds",
                "Latency of the query of historical usage in milliseconds",
            ),
            failures: builder.register(IntCounter::with_opts(
                builder.opts("usage_query_failures_total", "Failed queries of historical usage"),
            )),
            stale: builder.register(IntGauge::with_opts(builder.opts(
                "usage_is_stale",
                "1 while the historical usage in effect is older than the staleness period",
            ))),
        }
    }
}

impl LoopMetrics {
    fn new(builder: &Builder<'_>) -> Self {
        Self {
            audit_differences: builder.register(IntCounter::with_opts(builder.opts(
                "audit_differences_total",
                "Audits that found the cluster model different from one rebuilt from the stored objects",
            ))),
            unreadable: builder.register(IntGauge::with_opts(
                builder.opts("unreadable_objects", "Objects that cannot be decoded and are ignored"),
            )),
            assumed_bindings: builder.register(IntGauge::with_opts(builder.opts(
                "binds_in_flight",
                "Assumed bindings: bind requests that were decided and that the watch has not delivered yet",
            ))),
            names: builder.register(IntGauge::with_opts(builder.opts(
                "kept_names",
                "Interned names of the cluster model, of existing and of deleted objects",
            ))),
            configurations: builder.register(IntCounter::with_opts(builder.opts(
                "configuration_reloads_total",
                "Changes of the configuration that were taken over without a restart",
            ))),
            configuration_invalid: builder.register(IntGauge::with_opts(builder.opts(
                "configuration_is_invalid",
                "1 while the latest configuration is invalid and an older one is in effect",
            ))),
            cycles: builder.counters(
                "cycles_total",
                "Scheduling cycles, by the actions they run",
                &["scope"],
            ),
        }
    }
}

impl Metrics {
    pub(crate) fn new(registry: &Registry, namespace: &str) -> Self {
        let builder = Builder { registry, namespace };
        Self {
            cycle_ms: builder.gauge(
                "e2e_scheduling_latency_milliseconds",
                "Latency of the last scheduling cycle in milliseconds",
            ),
            open_ms: builder.gauge(
                "open_session_latency_milliseconds",
                "Latency of opening the last scheduling cycle in milliseconds",
            ),
            close_ms: builder.gauge(
                "close_session_latency_milliseconds",
                "Latency of submitting the decisions of the last scheduling cycle in milliseconds",
            ),
            action_ms: builder.gauges(
                "action_scheduling_latency_milliseconds",
                "Latency of each action of the last scheduling cycle in milliseconds",
                &["action"],
            ),
            placing_ms: builder.milliseconds(
                "task_scheduling_latency_milliseconds",
                "Time from the creation of a pod to its placement decision in milliseconds",
            ),
            bind_ms: builder.milliseconds(
                "task_bind_latency_milliseconds",
                "Time from the placement decision of a pod to its bind request in milliseconds",
            ),
            groups_scheduled: builder.counters(
                "podgroups_scheduled_by_action",
                "Pod groups that were placed, by action",
                &["action"],
            ),
            max_runtime_reached: builder.counters(
                "max_runtime_reached_total",
                "Pod groups that reached their maximum run time, by what followed: preemptible or end",
                &["action"],
            ),
            evicted_pods: builder.counters(
                "pod_group_evicted_pods_total",
                "Evicted pods, by pod group and action",
                &["podgroup", "namespace", "uid", "nodepool", "action"],
            ),
            evicted: Arc::default(),
            search: SearchMetrics::new(&builder),
            plugin_ms: builder.gauges(
                "plugin_scheduling_latency_milliseconds",
                "Latency of a plugin's hook when a session opens or closes; 0 without a hook, as for built-in plugins",
                &["plugin", "OnSession"],
            ),
            plugin_failures: builder.counters(
                "plugin_failures_total",
                "Callbacks of plugins that are not built in and that panicked, or took so long that it was cut off",
                &["plugin", "reason"],
            ),
            fair_share: builder.fair_shares(),
            usage: builder.historical_usage(),
            usage_source: UsageSource::new(&builder),
            published: Arc::default(),
            scheduler_loop: LoopMetrics::new(&builder),
        }
    }

    /// Publishes the configured budgets and plugins.
    pub(crate) fn set_configuration<'a>(
        &self,
        budgets: &SearchBudgets,
        plugins: impl Iterator<Item = &'a str>,
    ) {
        self.search.set_budgets(budgets);
        for plugin in plugins {
            for moment in [Moment::Open, Moment::Close] {
                self.set_plugin_latency(plugin, moment, 0.0);
            }
        }
    }

    pub(crate) fn set_plugin_latency(&self, plugin: &str, moment: Moment, ms: f64) {
        let moment = match moment {
            Moment::Open => "OnSessionOpen",
            Moment::Close => "OnSessionClose",
        };
        self.plugin_ms.with_label_values(&[plugin, moment]).set(ms);
    }

    pub(crate) fn count_evicted_pod(&self, labels: EvictedLabels) {
        self.evicted_pods.with_label_values(&labels).inc();
        let mut known = self.evicted.lock();
        if known.insert(labels)
            && known.len() > EVICTED_MAX
            && let Some(oldest) = known.shift_remove_index(0)
        {
            // It exists: it has been counted.
            let _ = self.evicted_pods.remove_label_values(&oldest);
        }
    }

    /// Sets fair share and usage of all queues. `display` is a queue's display name.
    pub(crate) fn set_queues<'a>(
        &self,
        outcome: &Outcome,
        display: impl Fn(&str) -> &'a str,
        used: impl Fn(&str) -> [f64; 3],
    ) {
        let mut published = self.published.lock();
        let mut before = std::mem::take(&mut *published);
        for QueueReport { name, fair_share, .. } in &outcome.queues {
            let new =
                QueueValues { display: display(name).to_owned(), fair_share: *fair_share, used: used(name) };
            let known = before.remove(name);
            if known.as_ref() != Some(&new) {
                if let Some(known) = known.filter(|known| known.display != new.display) {
                    self.remove_queue(name, &known);
                }
                self.set_queue(name, &new);
            }
            published.insert(name.clone(), new);
        }
        for (name, deleted) in &before {
            self.remove_queue(name, deleted);
        }
    }

    fn set_queue(&self, name: &str, queue: &QueueValues) {
        let labels = queue.labels(name);
        let units = [1e3, 1e9, 1e6];
        for ((gauge, share), unit) in self.fair_share.iter().zip(&queue.fair_share).zip(units) {
            gauge.with_label_values(&labels).set(*share as f64 / unit);
        }
        for (gauge, used) in self.usage.iter().zip(queue.used) {
            gauge.with_label_values(&labels).set(used);
        }
    }

    fn remove_queue(&self, name: &str, queue: &QueueValues) {
        for gauges in self.fair_share.iter().chain(&self.usage) {
            // An error means that the label set does not exist.
            let _ = gauges.remove_label_values(&queue.labels(name));
        }
    }
}

/// The published values of a queue. Building label sets is the expensive part, so only changed queues are set.
#[derive(Debug, PartialEq)]
struct QueueValues {
    display: String,
    fair_share: [i64; 3],
    used: [f64; 3],
}

impl QueueValues {
    fn labels<'a>(&'a self, name: &'a str) -> [&'a str; 3] {
        let display = self.display.as_str();
        [if display.is_empty() { name } else { display }, name, display]
    }
}

#[cfg(test)]
mod tests;

//! Metrics of a work queue: `workqueue_*`.

use super::{counter, gauge, histogram, int_gauge, register};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Registry};
use std::time::Duration;

/// What is counted when it happens.
#[derive(Debug)]
pub(crate) struct WorkQueueMetrics {
    pub(crate) adds: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) queue_seconds: Histogram,
    pub(crate) work_seconds: Histogram,
}

/// What is computed when the metrics are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depth {
    pub(crate) queued: usize,
    /// The time that all keys in progress have taken so far.
    pub(crate) unfinished: Duration,
    /// The longest of these times.
    pub(crate) longest: Duration,
}

impl WorkQueueMetrics {
    /// Registers the metrics of the queue of a controller; `depth` is called when they are read.
    pub(crate) fn register(
        name: &str,
        metrics: &Registry,
        depth: impl Fn() -> Depth + Send + Sync + 'static,
    ) -> Self {
        let labels = [("name", name), ("controller", name)];
        let adds = counter("workqueue_adds_total", "Total number of adds handled by workqueue", &labels);
        let help = "Total number of retries handled by workqueue";
        let retries = counter("workqueue_retries_total", help, &labels);
        // As in controller-runtime: from 10 ns to 1,000 s.
        let buckets = || (-8..4).map(|power| 10_f64.powi(power)).collect();
        let help = "How long in seconds an item stays in workqueue before being requested";
        let queue_seconds = histogram("workqueue_queue_duration_seconds", help, &labels, buckets());
        let help = "How long in seconds processing an item from workqueue takes.";
        let work_seconds = histogram("workqueue_work_duration_seconds", help, &labels, buckets());
        register(metrics, adds.clone());
        register(metrics, retries.clone());
        register(metrics, queue_seconds.clone());
        register(metrics, work_seconds.clone());
        let help = "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. \
                    Large values indicate stuck threads.";
        register(
            metrics,
            DepthCollector {
                depth,
                queued: int_gauge("workqueue_depth", "Current depth of workqueue", &labels),
                unfinished: gauge("workqueue_unfinished_work_seconds", help, &labels),
                longest: gauge(
                    "workqueue_longest_running_processor_seconds",
                    "How many seconds has the longest running processor for workqueue been running.",
                    &labels,
                ),
            },
        );
        Self { adds, retries, queue_seconds, work_seconds }
    }
}

struct DepthCollector<F> {
    depth: F,
    queued: IntGauge,
    unfinished: Gauge,
    longest: Gauge,
}

impl<F: Fn() -> Depth + Send + Sync> Collector for DepthCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        [self.queued.desc(), self.unfinished.desc(), self.longest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Depth { queued, unfinished, longest } = (self.depth)();
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.unfinished.set(unfinished.as_secs_f64());
        self.longest.set(longest.as_secs_f64());
        [self.queued.collect(), self.unfinished.collect(), self.longest.collect()].concat()
    }
}

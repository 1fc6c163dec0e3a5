//! Metrics of reconciliations: `controller_runtime_*`.

use super::{counter, histogram, int_gauge, register};
use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use tokio::time::Instant;

/// The buckets of controller-runtime, in seconds.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// It succeeded, and is repeated after a time.
    RequeueAfter,
    /// It failed, and is repeated with backoff.
    Error,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    active: IntGauge,
    success: IntCounter,
    requeue_after: IntCounter,
    error: IntCounter,
    errors: IntCounter,
    seconds: Histogram,
}

impl ControllerMetrics {
    /// Registers the metrics of a controller that reconciles up to `workers` keys at once.
    pub fn register(name: &str, workers: usize, metrics: &Registry) -> Self {
        let label = [("controller", name)];
        let total = |result| {
            let help = "Total number of reconciliations per controller";
            let labels = [("controller", name), ("result", result)];
            let total = counter("controller_runtime_reconcile_total", help, &labels);
            register(metrics, total.clone());
            total
        };
        let active = int_gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            &label,
        );
        let errors = counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            &label,
        );
        let seconds = histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            &label,
            BUCKETS.to_vec(),
        );
        let max = int_gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            &label,
        );
        max.set(i64::try_from(workers).unwrap_or(i64::MAX));
        register(metrics, active.clone());
        register(metrics, errors.clone());
        register(metrics, seconds.clone());
        register(metrics, max);
        for (name, help) in [
            (
                "terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller",
            ),
            ("reconcile_panics_total", "Total number of reconciliation panics per controller"),
        ] {
            // Always 0: no error is terminal here, and a panic ends the process.
            register(metrics, counter(&format!("controller_runtime_{name}"), help, &label));
        }
        // Always 0: a reconciliation that is repeated at once does not exist here.
        total("requeue");
        Self {
            active,
            success: total("success"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors,
            seconds,
        }
    }

    /// A reconciliation begins; one that is dropped before its end is not counted.
    #[must_use]
    pub fn begin(&self) -> Reconciliation {
        self.active.inc();
        Reconciliation { metrics: self.clone(), began: Instant::now() }
    }
}

/// A reconciliation in progress.
#[derive(Debug)]
pub struct Reconciliation {
    metrics: ControllerMetrics,
    began: Instant,
}

impl Reconciliation {
    pub fn end(self, outcome: Outcome) {
        let metrics = &self.metrics;
        metrics.seconds.observe(self.began.elapsed().as_secs_f64());
        match outcome {
            Outcome::Success => metrics.success.inc(),
            Outcome::RequeueAfter => metrics.requeue_after.inc(),
            Outcome::Error => {
                metrics.error.inc();
                metrics.errors.inc();
            }
        }
    }
}

impl Drop for Reconciliation {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}

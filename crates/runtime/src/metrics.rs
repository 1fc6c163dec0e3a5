//! Metrics that every process has, under the names and labels of client-go, controller-runtime and Prometheus' client
//! libraries, which dashboards and alerts use.

#![expect(clippy::expect_used, reason = "names of metrics and labels are constants")]

pub mod components;
pub mod controller;
pub mod leader_election;
pub mod process;
pub(crate) mod requests;
pub(crate) mod work_queue;

use prometheus::core::Collector;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

const VALID: &str = "names of metrics and labels are valid constants";

type Labels<'a> = &'a [(&'a str, &'a str)];

fn opts(name: &str, help: &str, labels: Labels<'_>) -> Opts {
    labels.iter().fold(Opts::new(name, help), |opts, (label, value)| opts.const_label(*label, *value))
}

fn counter(name: &str, help: &str, labels: Labels<'_>) -> IntCounter {
    IntCounter::with_opts(opts(name, help, labels)).expect(VALID)
}

fn gauge(name: &str, help: &str, labels: Labels<'_>) -> Gauge {
    Gauge::with_opts(opts(name, help, labels)).expect(VALID)
}

fn int_gauge(name: &str, help: &str, labels: Labels<'_>) -> IntGauge {
    IntGauge::with_opts(opts(name, help, labels)).expect(VALID)
}

fn histogram(name: &str, help: &str, labels: Labels<'_>, buckets: Vec<f64>) -> Histogram {
    let opts = HistogramOpts { common_opts: opts(name, help, labels), buckets };
    Histogram::with_opts(opts).expect(VALID)
}

/// Registers a metric; one that is registered already, by an earlier run in the same process, is left alone.
fn register(metrics: &Registry, collector: impl Collector + 'static) {
    let _ = metrics.register(Box::new(collector));
}

//! Metrics of quotas and allocations of queues, with KAI's names and labels.

use super::Options;
use super::ledger::Queue;
use crate::amounts::{Sum, Totals};
use kai_api::queue::QueueResource;
use kai_api::well_known::resource;
use prometheus::{GaugeVec, Opts, Registry};
use std::collections::BTreeMap;

/// Labels that every series has; those of [`Options::metric_labels`] follow.
const LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

#[derive(Debug)]
pub(super) struct Metrics {
    gauges: [GaugeVec; 7],
    /// Labels of queues that become labels of metrics, with the default value.
    mapped: Vec<(String, String)>,
    /// The labels under which each queue is published.
    published: BTreeMap<String, Vec<String>>,
    registry: Registry,
}

const GAUGES: [(&str, &str); 7] = [
    ("queue_info", "1 for each queue"),
    ("queue_deserved_gpus", "GPU quota of the queue"),
    ("queue_quota_cpu_cores", "CPU quota of the queue in cores"),
    ("queue_quota_memory_bytes", "memory quota of the queue in bytes"),
    ("queue_allocated_gpus", "GPUs allocated in the queue"),
    ("queue_allocated_cpu_cores", "CPU cores allocated in the queue"),
    ("queue_allocated_memory_bytes", "memory allocated in the queue in bytes"),
];

impl Metrics {
    #[expect(clippy::expect_used, reason = "the gauges are made from the names, one for each")]
    pub(super) fn new(options: &Options, registry: &Registry) -> Result<Self, prometheus::Error> {
        let mut mapping = options.metric_labels.clone();
        mapping.sort();
        let mut labels = LABELS.to_vec();
        labels.extend(mapping.iter().map(|(_, label)| label.as_str()));
        let mut gauges = Vec::with_capacity(GAUGES.len());
        for (name, help) in GAUGES {
            gauges
                .push(GaugeVec::new(Opts::new(name, help).namespace(&*options.metrics_namespace), &labels)?);
        }
        for gauge in &gauges {
            registry.register(Box::new(gauge.clone()))?;
        }
        let default = |label: &str| {
            let found = options.metric_label_defaults.iter().find(|(known, _)| known == label);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let mapped = mapping.into_iter().map(|(label, _)| (default(&label), label));
        Ok(Self {
            gauges: gauges.try_into().expect("there is one gauge for each name"),
            mapped: mapped.map(|(default, label)| (label, default)).collect(),
            published: BTreeMap::new(),
            registry: registry.clone(),
        })
    }

    /// Publishes one queue and removes its series with earlier labels.
    pub(super) fn publish(&mut self, name: &str, queue: &Queue, totals: &Totals) {
        let mut labels = vec![name.to_owned(), name.to_owned(), queue.display_name.clone()];
        let mapped =
            self.mapped.iter().map(|(label, default)| queue.labels.get(label).unwrap_or(default).clone());
        labels.extend(mapped);
        if self.published.get(name) != Some(&labels) {
            self.remove(name);
        }
        let values: Vec<&str> = labels.iter().map(String::as_str).collect();
        for (gauge, value) in self.gauges.iter().zip(values_of(queue, totals)) {
            gauge.with_label_values(&values).set(value);
        }
        self.published.insert(name.to_owned(), labels);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(labels) = self.published.remove(name) else { return };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        for gauge in &self.gauges {
            // It was published with these labels.
            let _ = gauge.remove_label_values(&labels);
        }
    }
}

/// Unregisters, so that a component can start again in the same process.
impl Drop for Metrics {
    fn drop(&mut self) {
        for gauge in &self.gauges {
            // They were registered there.
            let _ = self.registry.unregister(Box::new(gauge.clone()));
        }
    }
}

/// In the order of [`GAUGES`].
fn values_of(queue: &Queue, totals: &Totals) -> [f64; 7] {
    let quota = |of: Option<QueueResource>| of.and_then(|of| of.quota).unwrap_or(0.0);
    let scaled = |quota: f64, unit: f64| if quota < 0.0 { -1.0 } else { quota * unit };
    let resources = queue.resources.unwrap_or_default();
    let allocated = &totals.allocated;
    [
        1.0,
        quota(resources.gpu),
        scaled(quota(resources.cpu), 1.0 / 1000.0),
        scaled(quota(resources.memory), 1_000_000.0),
        amount(allocated.iter().find(|(name, _)| name.ends_with("/gpu")).map(|(name, _)| name), allocated),
        amount(Some(resource::CPU), allocated),
        amount(Some(resource::MEMORY), allocated),
    ]
}

/// An amount with at most four decimals; 0 where it is missing.
fn amount(name: Option<&str>, allocated: &Sum) -> f64 {
    let nanos = name.and_then(|name| allocated.get(name)).unwrap_or_default().nanos();
    (nanos as f64 / 100_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests;

//! Publishes what queues are entitled to and what they hold, under KAI's names and labels.

use super::Options;
use super::ledger::Queue;
use crate::amounts::{Sum, Totals};
use kai_api::queue::QueueResource;
use kai_api::well_known::resource;
use prometheus::{GaugeVec, Opts, Registry};
use std::collections::BTreeMap;

/// Labels that every series has; those of [`Options::metric_labels`] follow.
const LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

/// The metrics of queues.
#[derive(Debug)]
pub(super) struct Metrics {
    gauges: [GaugeVec; 7],
    /// Labels of queues whose values become labels of metrics, with what stands for an absent one.
    mapped: Vec<(String, String)>,
    /// The labels under which each queue is published.
    published: BTreeMap<String, Vec<String>>,
    registry: Registry,
}

const GAUGES: [(&str, &str); 7] = [
    ("queue_info", "1 for each queue"),
    ("queue_deserved_gpus", "GPUs that the queue is entitled to"),
    ("queue_quota_cpu_cores", "CPU cores that the queue is entitled to"),
    ("queue_quota_memory_bytes", "bytes of memory that the queue is entitled to"),
    ("queue_allocated_gpus", "GPUs that the queue holds"),
    ("queue_allocated_cpu_cores", "CPU cores that the queue holds"),
    ("queue_allocated_memory_bytes", "bytes of memory that the queue holds"),
];

impl Metrics {
    /// Metrics as the options want them, in the registry.
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

    /// Publishes one queue; what it was published as before is taken back.
    pub(super) fn publish(&mut self, name: &str, queue: &Queue, totals: &Totals) {
        let mut labels = vec![name.to_owned(), name.to_owned(), queue.display_name.clone()];
        let mapped =
            self.mapped.iter().map(|(label, default)| queue.labels.get(label).unwrap_or(default).clone());
        labels.extend(mapped);
        if self.published.get(name) != Some(&labels) {
            self.forget(name);
        }
        let values: Vec<&str> = labels.iter().map(String::as_str).collect();
        for (gauge, value) in self.gauges.iter().zip(values_of(queue, totals)) {
            gauge.with_label_values(&values).set(value);
        }
        self.published.insert(name.to_owned(), labels);
    }

    /// Takes a queue back.
    pub(super) fn forget(&mut self, name: &str) {
        let Some(labels) = self.published.remove(name) else { return };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        for gauge in &self.gauges {
            // It was published with these labels.
            let _ = gauge.remove_label_values(&labels);
        }
    }
}

/// A component that starts again in the same process registers its metrics anew.
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
    let held = &totals.allocated;
    [
        1.0,
        quota(resources.gpu),
        scaled(quota(resources.cpu), 1.0 / 1000.0),
        scaled(quota(resources.memory), 1_000_000.0),
        amount(held.iter().find(|(name, _)| name.ends_with("/gpu")).map(|(name, _)| name), held),
        amount(Some(resource::CPU), held),
        amount(Some(resource::MEMORY), held),
    ]
}

/// An amount with at most four decimals; 0 where it is not mentioned.
fn amount(name: Option<&str>, held: &Sum) -> f64 {
    let nanos = name.and_then(|name| held.get(name)).unwrap_or_default().nanos();
    (nanos as f64 / 100_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests;

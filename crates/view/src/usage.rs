//! The usage of queues over time, from the usage ledger.

use crate::reader::ClusterView;
use k8s_openapi::api::core::v1::ConfigMap;
use kai_api::well_known::label;
use kai_runtime::api::{self, Api};
use kai_runtime::url::query_value;
use kai_scheduler::usage::ledger::{self, UsageSample};
use kai_units::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The ledgers of all schedulers of a cluster.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct UsageView {
    pub queues: Vec<QueueUsage>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueUsage {
    pub queue: String,
    /// Node-hours of the samples together: GPU-hours, CPU core-hours and GiB-hours of memory.
    pub gpu_hours: f64,
    pub cpu_hours: f64,
    pub memory_gib_hours: f64,
    /// From the oldest on.
    pub samples: Vec<Sample>,
}

/// The mean of a period that ends where the next one begins, and the last one now.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Sample {
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub from: Timestamp,
    pub gpus: f64,
    pub cpu_cores: f64,
    pub memory_bytes: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// Reads the ledgers. There are none where no scheduler keeps one.
pub async fn read(api: &Api, view: &ClusterView) -> api::Result<UsageView> {
    let selector = format!("labelSelector={}", query_value(label::USAGE_LEDGER));
    let maps = api.list_selected::<ConfigMap>(&selector, "").await?;
    let mut records = BTreeMap::new();
    for map in maps.items {
        records.extend(map.data.unwrap_or_default());
    }
    let mut queues = ledger::history(records, view.now);
    if !queues.is_empty() {
        let holders = view.outcome.queues.iter().map(|queue| (queue.name.as_str(), queue.allocated));
        add_unsaved(&mut queues, holders, view.now);
    }
    let queues = queues.into_iter();
    Ok(UsageView { queues: queues.map(|(queue, samples)| usage_of(queue, &samples, view.now)).collect() })
}

/// Queues that hold something, and of which the scheduler has saved nothing yet: it saves once a minute.
fn add_unsaved<'a>(
    queues: &mut BTreeMap<String, Vec<UsageSample>>,
    holders: impl Iterator<Item = (&'a str, [i64; 3])>,
    now: Timestamp,
) {
    for (queue, allocated) in holders {
        let amounts = ledger::in_units(allocated);
        if amounts.iter().any(|amount| *amount > 0.0) {
            queues.entry(queue.to_owned()).or_insert_with(|| vec![UsageSample { from: now, amounts }]);
        }
    }
}

fn usage_of(queue: String, samples: &[UsageSample], now: Timestamp) -> QueueUsage {
    let ends = samples.iter().skip(1).map(|next| next.from).chain([now]);
    let mut hours = [0.0; 3];
    for (sample, end) in samples.iter().zip(ends) {
        let length = (end - sample.from).0.max(0) as f64 / 3.6e9;
        for (hours, amount) in hours.iter_mut().zip(sample.amounts) {
            *hours += amount * length;
        }
    }
    let [cpu, memory, gpu] = hours;
    let sample = |sample: &UsageSample| {
        let [cpu_cores, memory_bytes, gpus] = sample.amounts;
        Sample { from: sample.from, gpus, cpu_cores, memory_bytes }
    };
    QueueUsage {
        queue,
        gpu_hours: gpu,
        cpu_hours: cpu,
        memory_gib_hours: memory / f64::from(1 << 30),
        samples: samples.iter().map(sample).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp(1_769_860_800_000_000 + minutes * 60_000_000)
    }

    #[test]
    fn hours_are_the_sum_of_all_samples_until_now() {
        let gib = f64::from(1 << 30);
        let samples = [
            UsageSample { from: at(0), amounts: [4.0, 2.0 * gib, 1.0] },
            UsageSample { from: at(30), amounts: [0.0, 2.0 * gib, 8.0] },
        ];
        let usage = usage_of("a".to_owned(), &samples, at(120));
        assert_eq!((usage.cpu_hours, usage.memory_gib_hours, usage.gpu_hours), (2.0, 4.0, 12.5));
        let gpus: Vec<f64> = usage.samples.iter().map(|sample| sample.gpus).collect();
        assert_eq!((usage.queue.as_str(), gpus), ("a", vec![1.0, 8.0]));
        assert!(usage_of("none".to_owned(), &[], at(0)).gpu_hours.abs() < f64::EPSILON);
    }

    #[test]
    fn queue_that_was_not_saved_yet_has_what_it_holds_now() {
        let saved = vec![UsageSample { from: at(0), amounts: [0.0, 0.0, 1.0] }];
        let mut queues = BTreeMap::from([("saved".to_owned(), saved.clone())]);
        let two_gpus = [0, 0, 2 * kai_engine::input::WHOLE_GPU];
        let holders = [("saved", two_gpus), ("new", two_gpus), ("idle", [0; 3])];
        add_unsaved(&mut queues, holders.into_iter(), at(5));
        assert_eq!(queues.keys().collect::<Vec<_>>(), ["new", "saved"]);
        assert_eq!(queues["saved"], saved);
        assert_eq!(queues["new"], [UsageSample { from: at(5), amounts: [0.0, 0.0, 2.0] }]);
    }
}

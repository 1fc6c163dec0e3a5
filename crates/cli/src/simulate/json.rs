//! The report of a simulation as one JSON object: GPUs in devices, CPU in cores, memory in bytes, times in seconds.

use anyhow::Result;
use kai_engine::explain::{is_correction, plain};
use kai_engine::verdict::GroupVerdict;
use kai_replay::{GroupResult, QueueResult, QueueSample, Report, Waits};
use kai_units::{Span, Timestamp};
use kai_view::amounts::{Amount, ByResource, mean, number};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// On one line, with sorted keys.
pub(super) fn text(report: &Report) -> Result<String> {
    let whole = serde_json::to_value(SimulationView::new(report))?;
    Ok(serde_json::to_string(&whole)? + "\n")
}

/// What happened in a simulation.
#[derive(JsonSchema, Serialize)]
pub(crate) struct SimulationView {
    from: String,
    to: String,
    #[schemars(with = "f64")]
    period_s: Value,
    /// All cycles, including those that could not change anything and were skipped.
    cycles: u64,
    planned_cycles: u64,
    /// No event was left that could change anything.
    settled: bool,
    /// Mean capacity.
    #[schemars(with = "ByResource<f64>")]
    capacity: ByResource<Value>,
    /// Mean allocation.
    #[schemars(with = "ByResource<f64>")]
    held: ByResource<Value>,
    /// Part of the capacity; null without any.
    #[schemars(with = "ByResource<Option<f64>>")]
    utilisation: ByResource<Value>,
    waiting: WaitsView,
    queues: Vec<QueueView>,
    groups: Vec<GroupView>,
    evictions: Vec<EvictionView>,
    /// Pod groups that are pending at the end.
    pending: Vec<PendingView>,
    series: SeriesView,
    outcome_hash: String,
}

/// Times from submission until the minimum of a group runs; null where none started.
#[derive(JsonSchema, Serialize)]
struct WaitsView {
    started: usize,
    waiting: usize,
    #[schemars(with = "Option<f64>")]
    mean_s: Value,
    #[schemars(with = "Option<f64>")]
    p50_s: Value,
    #[schemars(with = "Option<f64>")]
    p90_s: Value,
    #[schemars(with = "Option<f64>")]
    max_s: Value,
}

#[derive(JsonSchema, Serialize)]
struct QueueView {
    name: String,
    parent: Option<String>,
    /// Evicted pods.
    evicted: usize,
    waiting: WaitsView,
    resources: ByResource<ShareView>,
}

#[derive(JsonSchema, Serialize)]
struct ShareView {
    /// Null is unlimited.
    quota: Option<Amount>,
    /// Null is unlimited.
    limit: Option<Amount>,
    #[schemars(with = "f64")]
    fair_share: Value,
    #[schemars(with = "f64")]
    requested: Value,
    #[schemars(with = "f64")]
    held: Value,
    held_least: Amount,
    held_most: Amount,
}

#[derive(JsonSchema, Serialize)]
struct GroupView {
    group: String,
    queue: String,
    pods: usize,
    #[schemars(with = "f64")]
    submitted_s: Value,
    /// Its minimum was running when the simulation started.
    ran_before: bool,
    #[schemars(with = "Option<f64>")]
    started_s: Option<Value>,
    #[schemars(with = "Option<f64>")]
    finished_s: Option<Value>,
    #[schemars(with = "Option<f64>")]
    waited_s: Option<Value>,
    /// Time below its minimum after evictions.
    #[schemars(with = "f64")]
    waited_again_s: Value,
    /// It is below its minimum.
    waits: bool,
    /// Evicted pods.
    evicted: usize,
}

#[derive(JsonSchema, Serialize)]
struct EvictionView {
    #[schemars(with = "f64")]
    at_s: Value,
    pod: String,
    group: Option<String>,
    queue: Option<String>,
    #[serde(rename = "for")]
    preemptor: Option<String>,
    #[serde(rename = "by")]
    action: &'static str,
}

#[derive(JsonSchema, Serialize)]
struct PendingView {
    group: String,
    queue: String,
    /// Number of pending pods.
    pods: u32,
    why: String,
    hint: Option<String>,
}

/// Sample times, and a value per sample for each queue and resource.
#[derive(JsonSchema, Serialize)]
struct SeriesView {
    #[schemars(with = "Vec<f64>")]
    at_s: Vec<Value>,
    queues: BTreeMap<String, ByResource<LineView>>,
}

#[derive(JsonSchema, Serialize)]
struct LineView {
    held: Vec<Amount>,
    fair_share: Vec<Amount>,
    requested: Vec<Amount>,
}

impl SimulationView {
    fn new(report: &Report) -> Self {
        let at = |moment: Timestamp| seconds(moment - report.start);
        let evictions = report.evictions.iter().map(|eviction| EvictionView {
            at_s: at(eviction.at),
            pod: eviction.pod.to_string(),
            group: eviction.group.as_ref().map(ToString::to_string),
            queue: eviction.queue.clone(),
            preemptor: eviction.preemptor.as_ref().map(ToString::to_string),
            action: eviction.action,
        });
        Self {
            from: report.start.to_string(),
            to: report.end.to_string(),
            period_s: seconds(report.period),
            cycles: report.cycles,
            planned_cycles: report.planned,
            settled: report.settled,
            capacity: ByResource::from_fn(|resource| mean(resource, report.capacity[resource])),
            held: ByResource::from_fn(|resource| mean(resource, report.held[resource])),
            utilisation: ByResource::from_fn(|resource| {
                utilisation(report.held[resource], report.capacity[resource])
            }),
            waiting: waits(&report.waits),
            queues: report.queues.iter().map(queue).collect(),
            groups: report.groups.iter().map(|of| group(of, report.start)).collect(),
            evictions: evictions.collect(),
            pending: report.pending.iter().map(pending).collect(),
            series: series(report),
            outcome_hash: format!("{:016x}", report.hash),
        }
    }
}

fn queue(queue: &QueueResult) -> QueueView {
    let resources = ByResource::from_fn(|resource| {
        let amount = |value| Amount { resource, value };
        ShareView {
            quota: queue.quota[resource].map(amount),
            limit: queue.limit[resource].map(amount),
            fair_share: mean(resource, queue.fair_share[resource]),
            requested: mean(resource, queue.requested[resource]),
            held: mean(resource, queue.held[resource]),
            held_least: amount(queue.held_least[resource]),
            held_most: amount(queue.held_most[resource]),
        }
    });
    QueueView {
        name: queue.name.clone(),
        parent: queue.parent.clone(),
        evicted: queue.evictions,
        waiting: waits(&queue.waits),
        resources,
    }
}

fn group(group: &GroupResult, start: Timestamp) -> GroupView {
    GroupView {
        group: group.group.to_string(),
        queue: group.queue.clone(),
        pods: group.pods,
        submitted_s: seconds(group.submitted - start),
        ran_before: group.ran_before,
        started_s: group.started.map(|at| seconds(at - start)),
        finished_s: group.finished.map(|at| seconds(at - start)),
        waited_s: group.waited().map(seconds),
        waited_again_s: seconds(group.waited_again),
        waits: group.waits,
        evicted: group.evictions,
    }
}

fn pending(verdict: &GroupVerdict) -> PendingView {
    let sentence = plain(&verdict.leading, &verdict.queue);
    PendingView {
        group: verdict.group.to_string(),
        queue: verdict.queue.clone(),
        pods: verdict.pending,
        why: sentence.text,
        // What else would help is found by planning.
        hint: sentence.hint.filter(|_| is_correction(&verdict.leading)),
    }
}

fn waits(waits: &Waits) -> WaitsView {
    let span = |span: Span| if waits.started > 0 { seconds(span) } else { Value::Null };
    WaitsView {
        started: waits.started,
        waiting: waits.waiting,
        mean_s: span(waits.mean),
        p50_s: span(waits.p50),
        p90_s: span(waits.p90),
        max_s: span(waits.max),
    }
}

fn series(report: &Report) -> SeriesView {
    let queues = report.queues.iter().enumerate().map(|(queue, result)| {
        let lines = ByResource::from_fn(|resource| {
            let line = |read: fn(&QueueSample) -> &[i64; 3]| -> Vec<Amount> {
                let values = report.samples.iter().map(|sample| read(&sample.queues[queue])[resource]);
                values.map(|value| Amount { resource, value }).collect()
            };
            LineView {
                held: line(|sample| &sample.held),
                fair_share: line(|sample| &sample.fair_share),
                requested: line(|sample| &sample.requested),
            }
        });
        (result.name.clone(), lines)
    });
    SeriesView {
        at_s: report.samples.iter().map(|sample| seconds(sample.at - report.start)).collect(),
        queues: queues.collect(),
    }
}

fn utilisation(held: f64, capacity: f64) -> Value {
    if capacity > 0.0 { number(held / capacity) } else { Value::Null }
}

fn seconds(span: Span) -> Value {
    number(span.0 as f64 / 1e6)
}

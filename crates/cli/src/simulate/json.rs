//! The report of a simulation as one JSON object: GPUs in devices, CPU in cores, memory in bytes, times in seconds.

use anyhow::Result;
use kai_engine::explain::plain;
use kai_engine::verdict::GroupVerdict;
use kai_replay::{GroupResult, QueueResult, QueueSample, Report, Waits};
use kai_units::{Span, Timestamp};
use kai_view::amounts::{by_resource, mean, number, unit};
use serde_json::{Map, Value, json};

/// On one line.
pub(super) fn text(report: &Report) -> Result<String> {
    let at = |moment: Timestamp| seconds(moment - report.start);
    let evictions: Vec<Value> = report
        .evictions
        .iter()
        .map(|eviction| {
            json!({
                "at_s": at(eviction.at),
                "pod": eviction.pod.to_string(),
                "group": eviction.group.as_ref().map(ToString::to_string),
                "queue": eviction.queue,
                "for": eviction.preemptor.as_ref().map(ToString::to_string),
                "by": eviction.action,
            })
        })
        .collect();
    let whole = json!({
        "from": report.start.to_string(),
        "to": report.end.to_string(),
        "period_s": seconds(report.period),
        "cycles": report.cycles,
        "planned_cycles": report.planned,
        "settled": report.settled,
        "capacity": by_resource(|resource| mean(resource, report.capacity[resource])),
        "held": by_resource(|resource| mean(resource, report.held[resource])),
        "utilisation": by_resource(|resource| utilisation(report.held[resource], report.capacity[resource])),
        "waiting": waits(&report.waits),
        "queues": report.queues.iter().map(queue).collect::<Vec<_>>(),
        "groups": report.groups.iter().map(|g| group(g, report.start)).collect::<Vec<_>>(),
        "evictions": evictions,
        "pending": report.pending.iter().map(pending).collect::<Vec<_>>(),
        "series": series(report),
        "outcome_hash": format!("{:016x}", report.hash),
    });
    Ok(serde_json::to_string(&whole)? + "\n")
}

fn queue(queue: &QueueResult) -> Value {
    let shares = by_resource(|resource| {
        json!({
            "quota": queue.quota[resource].map(|quota| unit(resource, quota)),
            "limit": queue.limit[resource].map(|limit| unit(resource, limit)),
            "fair_share": mean(resource, queue.fair_share[resource]),
            "requested": mean(resource, queue.requested[resource]),
            "held": mean(resource, queue.held[resource]),
            "held_least": unit(resource, queue.held_least[resource]),
            "held_most": unit(resource, queue.held_most[resource]),
        })
    });
    json!({
        "name": queue.name,
        "parent": queue.parent,
        "evicted": queue.evictions,
        "waiting": waits(&queue.waits),
        "resources": shares,
    })
}

fn group(group: &GroupResult, start: Timestamp) -> Value {
    json!({
        "group": group.group.to_string(),
        "queue": group.queue,
        "pods": group.pods,
        "submitted_s": seconds(group.submitted - start),
        "ran_before": group.ran_before,
        "started_s": group.started.map(|at| seconds(at - start)),
        "finished_s": group.finished.map(|at| seconds(at - start)),
        "waited_s": group.waited().map(seconds),
        "waited_again_s": seconds(group.waited_again),
        "waits": group.waits,
        "evicted": group.evictions,
    })
}

fn pending(verdict: &GroupVerdict) -> Value {
    let sentence = plain(&verdict.leading, &verdict.queue);
    json!({
        "group": verdict.group.to_string(),
        "queue": verdict.queue,
        "pods": verdict.pending,
        "why": sentence.text,
        "hint": sentence.hint,
    })
}

fn waits(waits: &Waits) -> Value {
    let span = |span: Span| (waits.started > 0).then(|| seconds(span));
    json!({
        "started": waits.started,
        "waiting": waits.waiting,
        "mean_s": span(waits.mean),
        "p50_s": span(waits.p50),
        "p90_s": span(waits.p90),
        "max_s": span(waits.max),
    })
}

/// Sample times, and a value per sample for each queue and resource.
fn series(report: &Report) -> Value {
    let times: Vec<Value> = report.samples.iter().map(|sample| seconds(sample.at - report.start)).collect();
    let queues: Map<String, Value> = report
        .queues
        .iter()
        .enumerate()
        .map(|(queue, result)| {
            let line = |resource, read: fn(&QueueSample) -> &[i64; 3]| -> Vec<Value> {
                report.samples.iter().map(|s| unit(resource, read(&s.queues[queue])[resource])).collect()
            };
            let lines = by_resource(|resource| {
                json!({
                    "held": line(resource, |sample| &sample.held),
                    "fair_share": line(resource, |sample| &sample.fair_share),
                    "requested": line(resource, |sample| &sample.requested),
                })
            });
            (result.name.clone(), Value::Object(lines))
        })
        .collect();
    json!({ "at_s": times, "queues": queues })
}

fn utilisation(held: f64, capacity: f64) -> Value {
    if capacity > 0.0 { number(held / capacity) } else { Value::Null }
}

fn seconds(span: Span) -> Value {
    number(span.0 as f64 / 1e6)
}

//! Formats the report of a simulation as tables.

use super::{Simulated, queue_tree, spans};
use crate::render::{self, amount, pending};
use kai_engine::verdict::QueueResource;
use kai_replay::{GroupResult, QueueResult, Report, Waits};
use kai_units::{Span, Timestamp};
use kai_view::amounts::RESOURCES;
use kai_view::verdicts::obstacles;

/// Number of columns of the table over time.
const MOMENTS: usize = 6;

pub(super) fn text(simulated: &Simulated) -> String {
    let report = &simulated.report;
    let mut text = String::new();
    section(&mut text, "Cluster", cluster(report).as_deref(), "The cluster has no resources");
    section(&mut text, "Queues (averages)", queues(report).as_deref(), "No queues found");
    section(
        &mut text,
        "Allocated GPUs and fair share over time",
        over_time(report).as_deref(),
        "No queues found",
    );
    section(&mut text, "Waiting times", waiting(report).as_deref(), "No pod groups were submitted");
    section(&mut text, "Groups", groups(report).as_deref(), "No pod groups were submitted");
    section(
        &mut text,
        "Pending",
        pending::of(&report.pending, kai_view::Names::default(), |verdict| obstacles(verdict, None))
            .as_deref(),
        "No pending pod groups",
    );
    format!("{}\n\n{text}", heading(simulated))
}

fn section(text: &mut String, heading: &str, table: Option<&str>, otherwise: &str) {
    render::section(text, heading, table.unwrap_or(otherwise));
}

fn heading(simulated: &Simulated) -> String {
    let report = &simulated.report;
    let mut text = format!(
        "simulated {} from {} ({})\n{} of {}, {} planned; {} evicted",
        spans::short(report.end - report.start),
        report.start,
        simulated.source,
        count(report.cycles as usize, "cycle"),
        spans::short(report.period),
        report.planned,
        count(report.evictions.len(), "pod"),
    );
    if report.settled {
        text += "; ended because nothing could change any more";
    }
    text
}

/// `1 pod`, `2 pods`.
fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn cluster(report: &Report) -> Option<String> {
    let row = |resource: QueueResource| {
        let capacity = report.capacity[resource];
        (capacity > 0.0).then(|| {
            [
                amount::name(resource).to_owned(),
                mean(resource, capacity),
                mean(resource, report.held[resource]),
                format!("{:.1}%", 100.0 * report.held[resource] / capacity),
            ]
        })
    };
    let rows = RESOURCES.into_iter().filter_map(row).collect();
    render::table(["RESOURCE", "CAPACITY", "ALLOCATED (MEAN)", "UTILISATION"], rows)
}

fn queues(report: &Report) -> Option<String> {
    let mut rows = Vec::new();
    for (at, depth) in queue_tree::walk(report) {
        let queue = &report.queues[at];
        let mut name = format!("{}{}", "  ".repeat(depth), queue.name);
        let mut evictions = queue.evictions.to_string();
        for resource in RESOURCES.into_iter().filter(|resource| is_shown(queue, *resource)) {
            rows.push([
                std::mem::take(&mut name),
                amount::name(resource).to_owned(),
                amount::bound(resource, queue.quota[resource]),
                mean(resource, queue.fair_share[resource]),
                mean(resource, queue.requested[resource]),
                mean(resource, queue.held[resource]),
                amount::text(resource, queue.held_least[resource]),
                amount::text(resource, queue.held_most[resource]),
                std::mem::take(&mut evictions),
            ]);
        }
    }
    render::table(
        ["QUEUE", "RESOURCE", "QUOTA", "FAIR SHARE", "REQUESTED", "ALLOCATED", "MIN", "MAX", "EVICTED"],
        rows,
    )
}

/// CPU and memory are left out where a queue does not limit or not request them.
pub(super) fn is_shown(queue: &QueueResult, resource: QueueResource) -> bool {
    let is_bounded = queue.quota[resource].is_some_and(|quota| quota > 0) || queue.limit[resource].is_some();
    match resource {
        QueueResource::Gpu => true,
        QueueResource::Cpu | QueueResource::Memory => is_bounded && queue.requested[resource] > 0.0,
    }
}

fn over_time(report: &Report) -> Option<String> {
    let step = (report.end - report.start).0 / (MOMENTS as i64 - 1);
    let moments: [Timestamp; MOMENTS] =
        std::array::from_fn(|part| report.start + Span(step.saturating_mul(part as i64)));
    let samples = moments.map(|moment| {
        let before = report.samples.partition_point(|sample| sample.at <= moment);
        before.checked_sub(1).and_then(|last| report.samples.get(last))
    });
    let cell = |queue: usize, moment: usize| {
        let sample = samples[moment].map(|sample| sample.queues[queue]).unwrap_or_default();
        let gpus = |amount: i64| amount::text(QueueResource::Gpu, amount);
        format!(
            "{} of {}",
            gpus(sample.held[QueueResource::Gpu]),
            gpus(sample.fair_share[QueueResource::Gpu])
        )
    };
    let row = |(at, depth): (usize, usize)| -> [String; MOMENTS + 1] {
        let name = format!("{}{}", "  ".repeat(depth), report.queues[at].name);
        std::array::from_fn(|column| {
            column.checked_sub(1).map_or_else(|| name.clone(), |moment| cell(at, moment))
        })
    };
    let rows = queue_tree::walk(report).into_iter().map(row).collect();
    let times = moments.map(|moment| spans::short(moment - report.start));
    let heads: [&str; MOMENTS + 1] =
        std::array::from_fn(|column| column.checked_sub(1).map_or("QUEUE", |moment| &times[moment]));
    render::table(heads, rows)
}

fn waiting(report: &Report) -> Option<String> {
    let row = |name: String, waits: &Waits| {
        let span = |span| if waits.started == 0 { "–".to_owned() } else { spans::short(span) };
        [
            name,
            waits.started.to_string(),
            waits.waiting.to_string(),
            span(waits.mean),
            span(waits.p50),
            span(waits.p90),
            span(waits.max),
        ]
    };
    let has_groups = |waits: &Waits| waits.started + waits.waiting > 0;
    let mut rows: Vec<_> = queue_tree::walk(report)
        .into_iter()
        .map(|(at, depth)| (&report.queues[at], depth))
        .filter(|(queue, _)| has_groups(&queue.waits))
        .map(|(queue, depth)| row(format!("{}{}", "  ".repeat(depth), queue.name), &queue.waits))
        .collect();
    if has_groups(&report.waits) {
        rows.push(row("all".to_owned(), &report.waits));
    }
    render::table(["QUEUE", "STARTED", "PENDING", "MEAN", "P50", "P90", "MAX"], rows)
}

fn groups(report: &Report) -> Option<String> {
    let row = |group: &GroupResult| {
        let since = |at: Timestamp| spans::short(at - report.start);
        let again = match group.waited_again {
            Span(0) => String::new(),
            span => format!(" + {}", spans::short(span)),
        };
        [
            group.group.to_string(),
            group.queue.clone(),
            since(group.submitted),
            format!("{}{again}", waited(group, report.end)),
            group.evictions.to_string(),
            state(group, report.start),
        ]
    };
    let rows = report.groups.iter().map(row).collect();
    render::table(["GROUP", "QUEUE", "SUBMITTED", "WAITED", "EVICTED", "FINAL STATE"], rows)
}

/// How long a group was pending before its first start; `>` where it still is.
pub(super) fn waited(group: &GroupResult, end: Timestamp) -> String {
    match group.waited() {
        Some(span) => spans::short(span),
        None if group.ran_before => "was running".to_owned(),
        None if group.waits => format!("> {}", spans::short(end - group.submitted)),
        None => "–".to_owned(),
    }
}

/// The state of a group at the end of the simulation.
pub(super) fn state(group: &GroupResult, start: Timestamp) -> String {
    match group.finished {
        Some(at) => format!("finished at {}", spans::short(at - start)),
        None if group.waits => "pending".to_owned(),
        None => "running".to_owned(),
    }
}

/// A mean amount, rounded to a few decimals.
pub(super) fn mean(resource: QueueResource, amount: f64) -> String {
    let step = match resource {
        QueueResource::Cpu => 10.0,
        QueueResource::Memory => 1.0,
        QueueResource::Gpu => 10_000.0,
    };
    amount::text(resource, ((amount / step).round() * step) as i64)
}

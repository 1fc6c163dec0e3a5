//! The report of a simulation as a self-contained HTML page with charts, without scripts.

mod chart;

use super::{queue_tree, spans, tables};
use chart::{Line, escape};
use kai_engine::explain::plain;
use kai_engine::input::WHOLE_GPU;
use kai_engine::verdict::QueueResource;
use kai_replay::{QueueResult, Report, Sample, Waits};
use kai_units::{Span, Timestamp};
use kai_view::amounts::RESOURCES;
use std::fmt::Write;

/// Maximum queues with a chart.
const CHARTS_MAX: usize = 24;
/// Maximum rows of a table.
const ROWS_MAX: usize = 500;
/// Bars of the chart of evictions.
const BARS: usize = 60;

pub(super) fn page(file: &str, report: &Report) -> String {
    let mut body = String::new();
    write!(body, "<h1>{}</h1>{}{}", escape(file), numbers(report), utilisation(report))
        .expect("writing to a string");
    body += &shares(report);
    if !report.evictions.is_empty() {
        body += &evictions(report);
    }
    body += &queue_table(report);
    body += &wait_table(report);
    body += &group_table(report);
    body += &pending_table(report);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>kai simulate: {}</title><style>{}</style></head>\n<body><main>{body}</main></body></html>\n",
        escape(file),
        include_str!("html/page.css"),
    )
}

fn numbers(report: &Report) -> String {
    let gpus = report.capacity[QueueResource::Gpu];
    let used = if gpus > 0.0 {
        format!("{:.1}%", 100.0 * report.held[QueueResource::Gpu] / gpus)
    } else {
        "–".to_owned()
    };
    let waits = &report.waits;
    let p90 = if waits.started > 0 { spans::short(waits.p90) } else { "–".to_owned() };
    let tiles = [
        ("virtual time", spans::short(report.end - report.start)),
        ("from", report.start.to_string()),
        ("cycles, planned", format!("{}, {}", report.cycles, report.planned)),
        ("GPU utilisation", used),
        ("waiting time, p90", p90),
        ("groups started, pending", format!("{}, {}", waits.started, waits.waiting)),
        ("evicted pods", report.evictions.len().to_string()),
    ];
    let mut text = "<dl class=\"tiles\">".to_owned();
    for (name, value) in &tiles {
        write!(text, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value))
            .expect("writing to a string");
    }
    text + "</dl>\n"
}

/// Points of a series: seconds since the start, and a value.
fn points(report: &Report, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    report.samples.iter().map(|sample| (seconds(report, sample.at), value(sample))).collect()
}

fn seconds(report: &Report, at: Timestamp) -> f64 {
    (at - report.start).0 as f64 / 1e6
}

fn gpus(amount: i64) -> f64 {
    amount as f64 / WHOLE_GPU as f64
}

fn utilisation(report: &Report) -> String {
    let is_top = |at: &usize| report.queues[*at].parent.is_none();
    let top: Vec<usize> = (0..report.queues.len()).filter(is_top).collect();
    let share = |sample: &Sample, resource: QueueResource| {
        let held: i128 = top.iter().map(|at| i128::from(sample.queues[*at].held[resource])).sum();
        if sample.total[resource] > 0 { 100.0 * held as f64 / sample.total[resource] as f64 } else { 0.0 }
    };
    let lines: Vec<Line<'_>> = [
        ("GPUs", "held", QueueResource::Gpu),
        ("CPU", "second", QueueResource::Cpu),
        ("memory", "third", QueueResource::Memory),
    ]
    .into_iter()
    .filter(|(_, _, resource)| report.held[*resource] > 0.0)
    .map(|(name, class, resource)| Line {
        name,
        class,
        points: points(report, |sample| share(sample, resource)),
    })
    .collect();
    let chart = chart::steps("Cluster utilisation, %", seconds(report, report.end), 100.0, &lines);
    format!("<h2>Utilisation</h2>\n<div class=\"wide\">{chart}</div>\n")
}

/// A chart per leaf queue: allocated GPUs and fair share.
fn shares(report: &Report) -> String {
    let mut leaves = queue_tree::leaves(report);
    let hidden = leaves.len().saturating_sub(CHARTS_MAX);
    if hidden > 0 {
        leaves.sort_by(|a, b| {
            report.queues[*b].held[QueueResource::Gpu].total_cmp(&report.queues[*a].held[QueueResource::Gpu])
        });
        leaves.truncate(CHARTS_MAX);
    }
    let highest = |at: &usize| {
        let queues = report.samples.iter().map(|sample| &sample.queues[*at]);
        queues
            .map(|queue| queue.held[QueueResource::Gpu].max(queue.fair_share[QueueResource::Gpu]))
            .max()
            .unwrap_or(0)
    };
    // One scale for all, so that charts can be compared.
    let top = gpus(leaves.iter().map(highest).max().unwrap_or(0));
    let mut text = "<h2>GPUs of queues over time</h2>\n<div class=\"grid\">".to_owned();
    for at in leaves {
        let lines = [
            Line {
                name: "allocated",
                class: "held",
                points: points(report, |s| gpus(s.queues[at].held[QueueResource::Gpu])),
            },
            Line {
                name: "fair share",
                class: "fair",
                points: points(report, |s| gpus(s.queues[at].fair_share[QueueResource::Gpu])),
            },
        ];
        text += &chart::steps(&report.queues[at].name, seconds(report, report.end), top, &lines);
    }
    text += "</div>\n";
    if hidden > 0 {
        writeln!(text, "<p>{hidden} more queues held less than these.</p>").expect("writing to a string");
    }
    text
}

fn evictions(report: &Report) -> String {
    let span = (report.end - report.start).0.max(1);
    let mut counts = vec![0_usize; BARS];
    for eviction in &report.evictions {
        let at = i128::from((eviction.at - report.start).0) * BARS as i128 / i128::from(span);
        counts[(at.max(0) as usize).min(BARS - 1)] += 1;
    }
    let chart = chart::bars("Evicted pods", seconds(report, report.end), &counts);
    format!("<h2>Evictions</h2>\n<div class=\"wide\">{chart}</div>\n")
}

fn queue_table(report: &Report) -> String {
    let rows = queue_tree::walk(report).into_iter().flat_map(|(at, depth)| {
        let queue = &report.queues[at];
        let shown = RESOURCES.into_iter().filter(|resource| tables::is_shown(queue, *resource));
        shown.map(move |resource| queue_row(queue, depth, resource))
    });
    let heads =
        ["queue", "resource", "quota", "fair share", "requested", "allocated", "min", "max", "evicted pods"];
    table("Queues (averages)", heads, &rows.collect::<Vec<_>>())
}

fn queue_row(queue: &QueueResult, depth: usize, resource: QueueResource) -> [String; 9] {
    use crate::render::amount;
    [
        format!("{}{}", "\u{2003}".repeat(depth), queue.name),
        amount::name(resource).to_owned(),
        amount::bound(resource, queue.quota[resource]),
        tables::mean(resource, queue.fair_share[resource]),
        tables::mean(resource, queue.requested[resource]),
        tables::mean(resource, queue.held[resource]),
        amount::text(resource, queue.held_least[resource]),
        amount::text(resource, queue.held_most[resource]),
        queue.evictions.to_string(),
    ]
}

fn wait_table(report: &Report) -> String {
    let cells = |name: String, waits: &Waits| {
        let span = |span: Span| if waits.started == 0 { "–".to_owned() } else { spans::short(span) };
        let (started, waiting) = (waits.started.to_string(), waits.waiting.to_string());
        [name, started, waiting, span(waits.mean), span(waits.p50), span(waits.p90), span(waits.max)]
    };
    let mut rows: Vec<_> = queue_tree::walk(report)
        .into_iter()
        .map(|(at, depth)| (&report.queues[at], depth))
        .filter(|(queue, _)| queue.waits.started + queue.waits.waiting > 0)
        .map(|(queue, depth)| cells(format!("{}{}", "\u{2003}".repeat(depth), queue.name), &queue.waits))
        .collect();
    rows.push(cells("all".to_owned(), &report.waits));
    let heads = ["queue", "started", "pending", "mean", "p50", "p90", "max"];
    table("Waiting times", heads, &rows)
}

fn group_table(report: &Report) -> String {
    let rows = report.groups.iter().map(|group| {
        [
            group.group.to_string(),
            group.queue.clone(),
            group.pods.to_string(),
            spans::short(group.submitted - report.start),
            tables::waited(group, report.end),
            spans::short(group.waited_again),
            group.evictions.to_string(),
            tables::state(group, report.start),
        ]
    });
    let heads = [
        "group",
        "queue",
        "pods",
        "submitted",
        "waited",
        "waited after evictions",
        "evicted pods",
        "final state",
    ];
    table("Groups", heads, &rows.collect::<Vec<_>>())
}

fn pending_table(report: &Report) -> String {
    if report.pending.is_empty() {
        return String::new();
    }
    let rows = report.pending.iter().map(|verdict| {
        let sentence = plain(&verdict.leading, &verdict.queue);
        let pods = verdict.pending.to_string();
        let hint = sentence.hint.unwrap_or_default();
        [verdict.group.to_string(), verdict.queue.clone(), pods, sentence.text, hint]
    });
    table("Pending at the end", ["group", "queue", "pods", "reason", "hint"], &rows.collect::<Vec<_>>())
}

/// A table with a heading; all text is escaped.
fn table<const N: usize>(heading: &str, heads: [&str; N], rows: &[[String; N]]) -> String {
    let mut text = format!("<h2>{}</h2>\n<div class=\"scroll\"><table><thead>", escape(heading));
    row(&mut text, "th", &heads);
    text += "</thead>\n<tbody>";
    for cells in rows.iter().take(ROWS_MAX) {
        row(&mut text, "td", cells);
    }
    text += "</tbody></table>";
    let hidden = rows.len().saturating_sub(ROWS_MAX);
    if hidden > 0 {
        write!(text, "<p>… and {hidden} more</p>").expect("writing to a string");
    }
    text + "</div>\n"
}

fn row(text: &mut String, tag: &str, cells: &[impl AsRef<str>]) {
    *text += "<tr>";
    for cell in cells {
        write!(text, "<{tag}>{}</{tag}>", escape(cell.as_ref())).expect("writing to a string");
    }
    *text += "</tr>\n";
}

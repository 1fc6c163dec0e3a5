//! The report of a simulation as a self-contained HTML page with charts.
//!
//! The charts are drawn by uPlot, which is part of the page as it was released, with its licence; nothing is loaded.

mod chart;

use super::{queue_tree, spans, tables};
use chart::{Chart, Series, Style, Unit, escape};
use kai_engine::explain::plain;
use kai_engine::input::WHOLE_GPU;
use kai_engine::verdict::QueueResource;
use kai_replay::{QueueResult, QueueSample, Report, Sample, Waits};
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
    let mut charts = Vec::new();
    let mut body = format!("<h1>{}</h1>{}", escape(file), numbers(report));
    body += "<noscript><p>The charts of this page are drawn by a script; the tables are not.</p></noscript>";
    body += &utilisation(report, &mut charts);
    body += &shares(report, &mut charts);
    if !report.evictions.is_empty() {
        body += &evictions(report, &mut charts);
    }
    body += &queue_table(report);
    body += &wait_table(report);
    body += &group_table(report);
    body += &pending_table(report);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>kai simulate: {}</title><style>{}\n{}</style></head>\n<body><main>{body}</main>\n\
         <script type=\"application/json\" id=\"charts\">{}</script>\n\
         <script>/*\n{}*/\n{}\n</script>\n<script>{}</script>\n</body></html>\n",
        escape(file),
        include_str!("html/uplot/uPlot.min.css"),
        include_str!("html/page.css"),
        chart::json(&charts),
        include_str!("html/uplot/LICENSE"),
        include_str!("html/uplot/uPlot.iife.min.js"),
        include_str!("html/page.js"),
    )
}

/// A number that sums up the run, with what belongs to it.
struct Tile {
    name: &'static str,
    value: String,
    detail: String,
}

fn numbers(report: &Report) -> String {
    let gpus = report.capacity[QueueResource::Gpu];
    let used = if gpus > 0.0 {
        format!("{:.1} %", 100.0 * report.held[QueueResource::Gpu] / gpus)
    } else {
        "–".to_owned()
    };
    let waits = &report.waits;
    let span = |span: Span| if waits.started > 0 { spans::short(span) } else { "–".to_owned() };
    let tile = |name, value, detail| Tile { name, value, detail };
    let tiles = [
        tile("Simulated time", spans::short(report.end - report.start), format!("from {}", report.start)),
        tile("GPU utilisation", used, format!("of {} on average", tables::mean(QueueResource::Gpu, gpus))),
        tile("Groups started", waits.started.to_string(), format!("{} still pending", waits.waiting)),
        tile(
            "Waiting time, p90",
            span(waits.p90),
            format!("median {}, maximum {}", span(waits.p50), span(waits.max)),
        ),
        tile("Evicted pods", report.evictions.len().to_string(), String::new()),
        tile(
            "Cycles",
            report.cycles.to_string(),
            format!("{} planned, the others unchanged", report.planned),
        ),
    ];
    let mut text = "<dl class=\"tiles\">".to_owned();
    for Tile { name, value, detail } in &tiles {
        let (name, value, detail) = (escape(name), escape(value), escape(detail));
        write!(text, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"detail\">{detail}</dd></div>")
            .expect("writing to a string");
    }
    text + "</dl>\n"
}

/// The place of a chart on the page; its data are added to those of the others.
fn figure<'a>(title: &str, chart: Chart<'a>, charts: &mut Vec<Chart<'a>>) -> String {
    let title = escape(title);
    let text = format!("<figure data-chart=\"{}\"><figcaption>{title}</figcaption></figure>\n", charts.len());
    charts.push(chart);
    text
}

fn seconds(report: &Report, at: Timestamp) -> f64 {
    (at - report.start).0 as f64 / 1e6
}

fn times(report: &Report) -> Vec<f64> {
    report.samples.iter().map(|sample| seconds(report, sample.at)).collect()
}

fn gpus(amount: i64) -> f64 {
    amount as f64 / WHOLE_GPU as f64
}

fn utilisation<'a>(report: &'a Report, charts: &mut Vec<Chart<'a>>) -> String {
    let is_top = |at: &usize| report.queues[*at].parent.is_none();
    let top: Vec<usize> = (0..report.queues.len()).filter(is_top).collect();
    let share = |sample: &Sample, resource: QueueResource| {
        let held: i128 = top.iter().map(|at| i128::from(sample.queues[*at].held[resource])).sum();
        if sample.total[resource] > 0 { 100.0 * held as f64 / sample.total[resource] as f64 } else { 0.0 }
    };
    let series = [
        ("GPUs", "held", Style::Area, QueueResource::Gpu),
        ("CPU", "fair", Style::Line, QueueResource::Cpu),
        ("memory", "third", Style::Dashed, QueueResource::Memory),
    ];
    let series = series.into_iter().filter(|(.., resource)| report.held[*resource] > 0.0);
    let series = series.map(|(name, colour, style, resource)| Series {
        name,
        colour,
        style,
        values: report.samples.iter().map(|sample| (share(sample, resource) * 10.0).round() / 10.0).collect(),
    });
    let chart = Chart {
        unit: Unit::Percent,
        end: seconds(report, report.end),
        top: 100.0,
        seconds: times(report),
        series: series.collect(),
    };
    format!("<h2>Utilisation</h2>\n{}", figure("Allocated, % of the cluster", chart.thinned(), charts))
}

/// A chart per leaf queue: allocated GPUs, fair share and what is requested.
fn shares<'a>(report: &'a Report, charts: &mut Vec<Chart<'a>>) -> String {
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
    // One scale for all, so that charts can be compared; requests may be far above it.
    let top = gpus(leaves.iter().map(highest).max().unwrap_or(0));
    let mut text = "<h2>GPUs of queues over time</h2>\n<div class=\"grid\">".to_owned();
    for at in leaves {
        let line = |name, colour, style, value: &dyn Fn(&QueueSample) -> i64| {
            let values = report.samples.iter().map(|sample| gpus(value(&sample.queues[at])));
            Series { name, colour, style, values: values.collect() }
        };
        let gpu = QueueResource::Gpu;
        let chart = Chart {
            unit: Unit::Gpus,
            end: seconds(report, report.end),
            top,
            seconds: times(report),
            series: vec![
                line("allocated", "held", Style::Area, &|queue| queue.held[gpu]),
                line("fair share", "fair", Style::Dashed, &|queue| queue.fair_share[gpu]),
                line("requested", "third", Style::Dotted, &|queue| queue.requested[gpu]),
            ],
        };
        text += &figure(&report.queues[at].name, chart.thinned(), charts);
    }
    text += "</div>\n";
    if hidden > 0 {
        writeln!(text, "<p>{hidden} more queues held less than these.</p>").expect("writing to a string");
    }
    text
}

fn evictions(report: &Report, charts: &mut Vec<Chart<'_>>) -> String {
    let span = (report.end - report.start).0.max(1);
    let mut counts = vec![0.0; BARS];
    for eviction in &report.evictions {
        let at = i128::from((eviction.at - report.start).0) * BARS as i128 / i128::from(span);
        counts[(at.max(0) as usize).min(BARS - 1)] += 1.0;
    }
    let end = seconds(report, report.end);
    let part = end / BARS as f64;
    let chart = Chart {
        unit: Unit::Count,
        end,
        top: 1.0,
        seconds: (0..BARS).map(|bar| part * (bar as f64 + 0.5)).collect(),
        series: vec![Series { name: "evicted pods", colour: "fair", style: Style::Bars, values: counts }],
    };
    let title = format!("Evicted pods in each {}", spans::short(Span((part * 1e6) as i64)));
    format!("<h2>Evictions</h2>\n{}", figure(&title, chart, charts))
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
    let numeric: [bool; N] = std::array::from_fn(|column| is_numeric(rows.iter().map(|row| &row[column])));
    row(&mut text, "th", &heads, &numeric);
    text += "</thead>\n<tbody>";
    for cells in rows.iter().take(ROWS_MAX) {
        row(&mut text, "td", cells, &numeric);
    }
    text += "</tbody></table>";
    let hidden = rows.len().saturating_sub(ROWS_MAX);
    if hidden > 0 {
        write!(text, "<p>… and {hidden} more</p>").expect("writing to a string");
    }
    text + "</div>\n"
}

/// Numbers and times are aligned to the right.
fn is_numeric<'a>(mut cells: impl Iterator<Item = &'a String>) -> bool {
    cells.all(|cell| {
        cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit() || "–∞".contains(first))
    })
}

fn row(text: &mut String, tag: &str, cells: &[impl AsRef<str>], numeric: &[bool]) {
    *text += "<tr>";
    for (cell, is_number) in cells.iter().zip(numeric) {
        let class = if *is_number { " class=\"n\"" } else { "" };
        write!(text, "<{tag}{class}>{}</{tag}>", escape(cell.as_ref())).expect("writing to a string");
    }
    *text += "</tr>\n";
}

//! `kai queues --usage`: how much each queue used over time.

use super::connection::Connection;
use super::queues::TYPE;
use super::{Rendered, RowLimit};
use crate::render::table_of;
use anyhow::{Context, Result};
use kai_view::ClusterView;
use kai_view::usage::{self, QueueUsage, Sample, UsageView};

/// Heights of a column in the chart.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const NO_LEDGER: &str = "No scheduler keeps a usage ledger, or nothing has been used yet. `usageDBConfig` with \
                         `clientType: ledger` in the scheduler configuration, or in a SchedulingShard, turns it on.\n";

pub(super) async fn render(view: &ClusterView, connection: &Connection) -> Result<Rendered> {
    let model = usage::read(&connection.api, view).await.context("cannot read the usage ledger")?;
    rendered(&model)
}

fn rendered(model: &UsageView) -> Result<Rendered> {
    if model.queues.is_empty() {
        return Rendered::new(NO_LEDGER.to_owned(), model, Vec::new());
    }
    let most = |queue: &QueueUsage| queue.samples.iter().map(|sample| sample.gpus).fold(0.0, f64::max);
    let top = model.queues.iter().map(most).fold(0.0, f64::max);
    let row = |queue: &QueueUsage| {
        [
            queue.queue.clone(),
            format!("{:.1}", queue.gpu_hours),
            format!("{:.1}", queue.cpu_hours),
            format!("{:.1}", queue.memory_gib_hours),
            queue.samples.iter().map(|sample| bar(*sample, top)).collect(),
        ]
    };
    let headings = ["QUEUE", "GPU HOURS", "CPU HOURS", "GIB HOURS", "GPUS OVER TIME"];
    let rows = model.queues.iter().map(row).collect();
    let table = table_of(headings, rows, RowLimit::Unlimited.max()).unwrap_or_default();
    let since = model.queues.iter().filter_map(|queue| queue.samples.first()).map(|sample| sample.from).min();
    let since = since
        .map_or_else(String::new, |since| format!("\n\nSince {since}; a full column is {top:.1} GPUs.\n"));
    let names = model.queues.iter().map(|queue| format!("{TYPE}/{}", queue.queue)).collect();
    Rendered::new(table + &since, model, names)
}

fn bar(sample: Sample, top: f64) -> char {
    let steps = (BARS.len() - 1) as f64;
    let height = if top > 0.0 { (sample.gpus / top * steps).round() as usize } else { 0 };
    BARS.get(height).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_units::Timestamp;

    fn queue(name: &str, gpus: &[f64]) -> QueueUsage {
        let from = |hour: usize| Timestamp(1_769_860_800_000_000 + hour as i64 * 3_600_000_000);
        let samples = gpus.iter().enumerate().map(|(hour, gpus)| Sample {
            from: from(hour),
            gpus: *gpus,
            cpu_cores: 2.0,
            memory_bytes: 0.0,
        });
        QueueUsage {
            queue: name.to_owned(),
            gpu_hours: gpus.iter().sum(),
            cpu_hours: 2.0 * gpus.len() as f64,
            memory_gib_hours: 0.5,
            samples: samples.collect(),
        }
    }

    #[test]
    fn table_has_hours_and_a_bar_for_each_sample() {
        let model = UsageView { queues: vec![queue("research", &[0.0, 4.0, 8.0]), queue("web", &[1.0])] };
        let text = rendered(&model).unwrap().text;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2], ["research", "12.0", "6.0", "0.5", "▄█"], "{text}");
        assert_eq!(lines[3], ["web", "1.0", "2.0", "0.5", "▁"], "{text}");
        assert!(text.ends_with("\n\nSince 2026-01-31T12:00:00Z; a full column is 8.0 GPUs.\n"), "{text}");
        assert_eq!(rendered(&UsageView::default()).unwrap().text, NO_LEDGER);
    }
}

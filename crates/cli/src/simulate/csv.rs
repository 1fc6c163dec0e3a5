//! The CSV format of KAI's time-based simulator: a row for each queue in each cycle.

use kai_engine::input::WHOLE_GPU;
use kai_engine::verdict::QueueResource;
use kai_replay::{Report, Sample};
use std::fmt::Write;

/// A cycle without a sample repeats the last one.
pub(super) fn rows(report: &Report) -> String {
    let mut text = String::from("Time,QueueID,Allocation,FairShare\n");
    let gpus = |millionths: i64| millionths as f64 / WHOLE_GPU as f64;
    let mut samples = report.samples.iter().peekable();
    let mut current: Option<&Sample> = None;
    let mut by_name: Vec<usize> = (0..report.queues.len()).collect();
    by_name.sort_by_key(|at| &report.queues[*at].name);
    for cycle in 0..report.cycles {
        let elapsed = i64::try_from(cycle).unwrap_or(i64::MAX).saturating_mul(report.period.0);
        while let Some(next) = samples.next_if(|sample| (sample.at - report.start).0 <= elapsed) {
            current = Some(next);
        }
        let Some(sample) = current else { continue };
        for &at in &by_name {
            let (name, queue) = (field(&report.queues[at].name), &sample.queues[at]);
            let (held, fair_share) =
                (gpus(queue.held[QueueResource::Gpu]), gpus(queue.fair_share[QueueResource::Gpu]));
            writeln!(text, "{cycle},{name},{held:.6},{fair_share:.6}").expect("writing to a string");
        }
    }
    text
}

/// Quotes a field where CSV requires it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_separators_are_quoted() {
        assert_eq!(field("team-a"), "team-a");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}

//! The table of a bench, its targets, and the page in `docs/`.

use super::baseline::Scaled;
use super::decisions::Comparison;
use super::measure::Measured;
use kai_testkit::shapes::Shape;
use std::fmt::Write;

/// The size at which targets hold.
const TARGET_NODES: usize = 500;
/// Maximum growth of work for ten times the nodes.
const GROWTH_MAX: f64 = 20.0;
/// Memory below this meets the target regardless of KAI's.
const RSS_MB_FINE: f64 = 40.0;
/// Maximum share of KAI's memory.
const RSS_SHARE_MAX: f64 = 0.2;

/// How many times faster than KAI planning must be, by shape.
const ACTION_TARGETS: [(&str, f64); 12] = [
    ("fill", 50.0),
    ("fill-varied", 50.0),
    ("fractions", 50.0),
    ("anti-affinity", 50.0),
    ("gang", 50.0),
    ("unschedulable", 50.0),
    ("topology", 10.0),
    ("reclaim-large", 100.0),
    ("reclaim-many", 100.0),
    ("reclaim-gangs", 20.0),
    ("preempt", 100.0),
    ("mixed", 100.0),
];
/// The shape that is so short that opening counts in, and its target.
const WHOLE_TARGET: (&str, f64) = ("reclaim-one", 10.0);

pub(super) struct Row {
    pub(super) shape: &'static Shape,
    pub(super) nodes: usize,
    pub(super) ours: Measured,
    pub(super) theirs: Option<Scaled>,
    pub(super) decisions: Option<Comparison>,
    pub(super) growth: Option<Growth>,
    /// Instructions spent on planning, where they were counted.
    pub(super) instructions: Option<u64>,
}

/// How planning grew with ten times the nodes.
#[derive(Clone, Copy)]
pub(super) enum Growth {
    Time(f64),
    Instructions(f64),
}

impl Growth {
    fn factor(self) -> f64 {
        match self {
            Growth::Time(factor) | Growth::Instructions(factor) => factor,
        }
    }
}

const HEADINGS: [&str; 13] = [
    "shape",
    "nodes",
    "load ms",
    "open ms",
    "KAI",
    "ratio",
    "actions ms",
    "KAI",
    "ratio",
    "RSS MB",
    "KAI",
    "decisions",
    "growth",
];

/// The table, aligned, in Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let mut lines: Vec<Vec<String>> = vec![HEADINGS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            write!(text, "| {cell:<width$} ").expect("writing to a string");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                write!(text, "|{:-<1$}", "", width + 2).expect("writing to a string");
            }
            text.push_str("|\n");
        }
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let dash = || "–".to_owned();
    let theirs = |value: fn(&Scaled) -> f64| row.theirs.as_ref().map(value);
    let ratio = |ours: f64, theirs: Option<f64>| match theirs {
        Some(theirs) if theirs > 0.0 => format!("{:.1}×", theirs / ours.max(0.001)),
        Some(_) | None => dash(),
    };
    let number = |value: Option<f64>| value.map_or_else(dash, figure);
    let growth = match row.growth {
        Some(Growth::Time(factor)) => format!("{factor:.1}× (time)"),
        Some(Growth::Instructions(factor)) => format!("{factor:.1}×"),
        None => dash(),
    };
    let decisions = match &row.decisions {
        None => dash(),
        Some(Comparison::Equal(count)) => format!("equal ({count})"),
        Some(Comparison::Different { ours_alone, theirs_alone }) => {
            format!("{} differ", ours_alone.len().max(theirs_alone.len()))
        }
        Some(Comparison::MoreFound(count)) => format!("{count} more"),
        Some(Comparison::Varies(ours, theirs)) => format!(
            "{:+} pods (KAI {:+}), {} lost (KAI {}); {} GPUs placed, {} lost",
            ours.gained, theirs.gained, ours.lost, theirs.lost, row.ours.placed_gpus, row.ours.lost_gpus
        ),
    };
    vec![
        row.shape.name.to_owned(),
        row.nodes.to_string(),
        figure(row.ours.load_ms),
        figure(row.ours.open_ms),
        number(theirs(|t| t.open_ms)),
        ratio(row.ours.open_ms, theirs(|t| t.open_ms)),
        figure(row.ours.total_actions_ms),
        number(theirs(|t| t.actions_ms)),
        ratio(row.ours.total_actions_ms, theirs(|t| t.actions_ms)),
        figure(row.ours.max_rss_mb),
        number(theirs(|t| t.rss_mb)),
        decisions,
        growth,
    ]
}

/// Formats with three significant digits.
fn figure(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Messages about missed targets and differing decisions.
pub(super) fn misses(rows: &[Row]) -> Vec<String> {
    let mut misses = Vec::new();
    for row in rows {
        let case = format!("`{}` at {} nodes", row.shape.name, row.nodes);
        let target = ACTION_TARGETS.iter().find(|(name, _)| *name == row.shape.name);
        if let (Some(theirs), TARGET_NODES) = (&row.theirs, row.nodes) {
            let mut faster = |what: &str, ours: f64, theirs: f64, least: f64| {
                let ratio = theirs / ours.max(0.001);
                if ratio < least {
                    misses.push(format!("{case}: {what} is {ratio:.1} times faster, {least} are wanted"));
                }
            };
            if let Some((_, least)) = target {
                faster("planning", row.ours.total_actions_ms, theirs.actions_ms, *least);
            }
            if row.shape.name == WHOLE_TARGET.0 {
                let ours = row.ours.open_ms + row.ours.total_actions_ms;
                faster("all of it", ours, theirs.open_ms + theirs.actions_ms, WHOLE_TARGET.1);
            }
            let least = if row.shape.name == "fill" { 5.0 } else { 2.0 };
            faster("opening", row.ours.open_ms, theirs.open_ms, least);
            let rss = row.ours.max_rss_mb;
            if rss > RSS_MB_FINE && rss > theirs.rss_mb * RSS_SHARE_MAX {
                misses.push(format!("{case}: {rss:.0} MB of memory, KAI takes {:.0}", theirs.rss_mb));
            }
        }
        if let Some(growth) = row.growth
            && growth.factor() > GROWTH_MAX
        {
            misses.push(format!("{case}: ten times the nodes are {:.1} times the work", growth.factor()));
        }
        if let Some(Comparison::Varies(ours, theirs)) = &row.decisions
            && (ours.gained < theirs.gained || ours.lost > theirs.lost)
        {
            misses.push(format!(
                "{case}: {} more pods have a place and {} lost theirs, KAI {} and {}",
                ours.gained, ours.lost, theirs.gained, theirs.lost
            ));
        }
        if let Some(Comparison::Different { ours_alone, theirs_alone }) = &row.decisions {
            let first = |lines: &[String]| lines.first().cloned().unwrap_or_else(|| "nothing".to_owned());
            misses.push(format!(
                "{case}: decisions differ ({} of ours, {} of KAI's), first `{}` and `{}`",
                ours_alone.len(),
                theirs_alone.len(),
                first(ours_alone),
                first(theirs_alone),
            ));
        }
    }
    misses
}

/// The page in `docs/`.
pub(super) fn page(rows: &[Row], misses: &[String], rounds: usize, calibration_ms: Option<f64>) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut text = format!(
        "# Performance\n\n\
         One cycle of `kai plan` on generated clusters against KAI Scheduler v0.17 on the same files. \
         Written by `cargo xtask bench --write`; do not edit by hand.\n\n\
         - *load* is reading and deserialising the file, *open* building the cluster model from API objects, \
         *actions* the planning itself. RSS is the peak of the process.\n\
         - Times are the best of {rounds} interleaved rounds on {cores} cores. KAI's were recorded on another \
         machine and are scaled by a calibration (SHA-256 of 256 MiB) that both machines ran{}.\n\
         - *growth* compares the planning with that at a tenth of the nodes, by instruction counts where a run is \
         shorter than 20 ms.\n\
         - *decisions* compares every binding and eviction with KAI's if KAI's decisions are deterministic; \
         names of GPU groups are ignored. Otherwise two numbers are compared with the worst of its runs: the net number of \
         placed pods (bound and pipelined, less evicted: KAI evicts pods that it has just bound), and the number of pods \
         that were evicted and not placed again.\n\n",
        calibration_ms.map_or_else(String::new, |ms| format!(" ({ms:.0} ms here)")),
    );
    text.push_str(&table(rows));
    text.push_str(&instructions(rows));
    text.push_str("\n## Shapes\n\n");
    let mut named: Vec<&str> = Vec::new();
    for row in rows {
        if !named.contains(&row.shape.name) {
            named.push(row.shape.name);
            writeln!(text, "- `{}`: {}.", row.shape.name, row.shape.description)
                .expect("writing to a string");
        }
    }
    text.push_str("\n## Targets\n\n");
    if misses.is_empty() {
        text.push_str("All are met.\n");
    }
    for miss in misses {
        writeln!(text, "- Missed: {miss}.").expect("writing to a string");
    }
    text
}

/// Instruction counts, which are the same on every machine of a kind.
fn instructions(rows: &[Row]) -> String {
    let counted: Vec<(&Row, u64)> = rows.iter().filter_map(|row| Some((row, row.instructions?))).collect();
    if counted.is_empty() {
        return String::new();
    }
    let mut text = "\n## Instructions\n\nPlanning alone, counted by callgrind.\n\n".to_owned();
    text.push_str("| shape | nodes | million instructions |\n|---|---|---|\n");
    for (row, count) in counted {
        let millions = figure(count as f64 / 1e6);
        writeln!(text, "| {} | {} | {millions} |", row.shape.name, row.nodes).expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_testkit::shapes;
    fn row(open_ms: f64, actions_ms: f64) -> Row {
        Row {
            shape: shapes::find("fill").expect("the shape exists"),
            nodes: TARGET_NODES,
            ours: Measured {
                load_ms: 1.0,
                open_ms,
                total_actions_ms: actions_ms,
                max_rss_mb: 39.0,
                ..Measured::default()
            },
            theirs: Some(Scaled { open_ms: 84.0, actions_ms: 4_000.0, rss_mb: 664.0 }),
            decisions: None,
            growth: None,
            instructions: None,
        }
    }

    #[test]
    fn targets_are_met_at_their_bound() {
        assert_eq!(misses(&[row(16.8, 80.0)]), Vec::<String>::new());
    }

    #[test]
    fn each_missed_target_is_named() {
        assert_eq!(
            misses(&[row(20.0, 100.0)]),
            [
                "`fill` at 500 nodes: planning is 40.0 times faster, 50 are wanted",
                "`fill` at 500 nodes: opening is 4.2 times faster, 5 are wanted",
            ]
        );
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(&[row(1.0, 2.0), row(10.0, 200.0)]);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}

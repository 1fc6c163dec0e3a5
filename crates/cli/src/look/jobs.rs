//! `kai jobs`: pod groups with their queue, priority, state, pods, age, and why they wait.

use super::age::age;
use super::group::{Facts, all};
use super::{Moment, Rows, View};
use crate::args;
use crate::plan::reasons;
use crate::render::table_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Draws the groups that the filter lets through.
pub(super) fn view(moment: &Moment, filter: &args::Jobs, rows: Rows) -> View {
    let is_wanted = |group: &Facts<'_>| {
        filter.namespace.as_ref().is_none_or(|namespace| group.key.namespace == *namespace)
            && filter.queue.as_ref().is_none_or(|queue| group.queue == queue)
    };
    let groups: Vec<Facts<'_>> = all(moment).into_iter().filter(is_wanted).collect();
    let lines = groups.iter().map(|group| row(group, moment)).collect();
    let headings = ["GROUP", "QUEUE", "PRIORITY", "STATE", "RUN/MIN", "PODS", "AGE", "REASON"];
    let table = table_of(headings, lines, rows.max());
    let text = match table {
        Some(table) => format!("{table}\n\n{}\n", summary(&groups)),
        None if filter.namespace.is_some() || filter.queue.is_some() => {
            "there are no such pod groups\n".to_owned()
        }
        None => "there are no pod groups\n".to_owned(),
    };
    View { text, json: json!({ "groups": groups.iter().map(report).collect::<Vec<_>>() }) }
}

fn row(group: &Facts<'_>, moment: &Moment) -> [String; 8] {
    [
        group.key.to_string(),
        group.queue.to_owned(),
        if group.class.is_empty() { group.priority.to_string() } else { group.class.to_owned() },
        group.state.name().to_owned(),
        format!("{}/{}", group.counts.running, group.min),
        group.counts.pods.to_string(),
        age(group.created, moment.now),
        group.reason().unwrap_or_default(),
    ]
}

/// `2 Running, 1 Pending`.
fn summary(groups: &[Facts<'_>]) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for group in groups {
        *states.entry(group.state.name()).or_default() += 1;
    }
    let states: Vec<String> = states.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    states.join(", ")
}

/// A group for programs.
pub(super) fn report(group: &Facts<'_>) -> Value {
    json!({
        "group": group.key.to_string(),
        "queue": group.queue,
        "priority": group.priority,
        "priority_class": Some(group.class).filter(|class| !class.is_empty()),
        "preemptible": group.preemptible,
        "state": group.state.name(),
        "pods": group.counts.pods,
        "running": group.counts.running,
        "placed": group.counts.placed,
        "pending": group.counts.pending,
        "gated": group.counts.gated,
        "min": group.min,
        "created": group.created.to_string(),
        "reason": group.reason(),
        "verdict": group.verdict.map(reasons::group),
        "loses": group.loses,
    })
}

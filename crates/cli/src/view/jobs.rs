//! `kai jobs`: pod groups with queue, priority, state, pods, age, and why they are pending.

use super::age::age;
use super::{Rendered, RowLimit};
use crate::args;
use crate::render::table_of;
use anyhow::Result;
use kai_view::ClusterView;
use kai_view::groups::{self, GroupView, TimeLimitView};
use std::collections::BTreeMap;

pub(super) fn render(view: &ClusterView, filter: &args::Jobs, limit: RowLimit) -> Result<Rendered> {
    let mut model = groups::all(view);
    model.groups.retain(|group| {
        filter.namespace.as_ref().is_none_or(|namespace| group.key.namespace == *namespace)
            && filter.queue.as_ref().is_none_or(|queue| group.queue == *queue)
    });
    let text = match jobs_table(&model.groups, view, limit) {
        Some(table) => format!("{table}\n\n{}\n", summary(&model.groups)),
        None if filter.namespace.is_some() || filter.queue.is_some() => {
            "No pod groups match the filter\n".to_owned()
        }
        None => "No pod groups found\n".to_owned(),
    };
    Rendered::new(text, &model)
}

/// With a column for maximum run times, if a running group has one.
fn jobs_table(groups: &[GroupView], view: &ClusterView, limit: RowLimit) -> Option<String> {
    let rows = groups.iter().map(|group| row(group, view));
    if groups.iter().all(|group| group.time_limit.is_none()) {
        let headings = ["GROUP", "QUEUE", "PRIORITY", "STATE", "RUN/MIN", "PODS", "AGE", "REASON"];
        return table_of(headings, rows.collect(), limit.max());
    }
    let with_limit = rows.zip(groups).map(|(row, group)| {
        let [name, queue, priority, state, running, pods, age, reason] = row;
        let limit = group.time_limit.as_ref().map_or_else(String::new, TimeLimitView::text);
        [name, queue, priority, state, running, pods, age, limit, reason]
    });
    let headings = ["GROUP", "QUEUE", "PRIORITY", "STATE", "RUN/MIN", "PODS", "AGE", "LIMIT", "REASON"];
    table_of(headings, with_limit.collect(), limit.max())
}

fn row(group: &GroupView, view: &ClusterView) -> [String; 8] {
    [
        group.group.clone(),
        group.queue.clone(),
        group.priority_class.clone().unwrap_or_else(|| group.priority.to_string()),
        group.state.name().to_owned(),
        format!("{}/{}", group.counts.running, group.min),
        group.counts.pods.to_string(),
        age(group.created_at, view.now),
        group.reason.clone().unwrap_or_default(),
    ]
}

/// `2 Running, 1 Pending`.
fn summary(groups: &[GroupView]) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for group in groups {
        *states.entry(group.state.name()).or_default() += 1;
    }
    let states: Vec<String> = states.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    states.join(", ")
}

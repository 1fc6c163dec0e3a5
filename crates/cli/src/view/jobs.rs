//! `kai jobs`: pod groups with queue, priority, state, pods, age, and why they are pending.

use super::age::age;
use super::{Rendered, RowLimit};
use crate::args;
use crate::render::table_of;
use anyhow::Result;
use kai_view::ClusterView;
use kai_view::groups::{self, GroupView};
use std::collections::BTreeMap;

pub(super) fn render(view: &ClusterView, filter: &args::Jobs, limit: RowLimit) -> Result<Rendered> {
    let mut model = groups::all(view);
    model.groups.retain(|group| {
        filter.namespace.as_ref().is_none_or(|namespace| group.key.namespace == *namespace)
            && filter.queue.as_ref().is_none_or(|queue| group.queue == *queue)
    });
    let rows = model.groups.iter().map(|group| row(group, view)).collect();
    let headings = ["GROUP", "QUEUE", "PRIORITY", "STATE", "RUN/MIN", "PODS", "AGE", "REASON"];
    let text = match table_of(headings, rows, limit.max()) {
        Some(table) => format!("{table}\n\n{}\n", summary(&model.groups)),
        None if filter.namespace.is_some() || filter.queue.is_some() => {
            "No pod groups match the filter\n".to_owned()
        }
        None => "No pod groups found\n".to_owned(),
    };
    Rendered::new(text, &model)
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

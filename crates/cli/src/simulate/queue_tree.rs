//! The queues of a report as a tree: children below their parents, both by name.

use kai_replay::Report;
use std::collections::{BTreeMap, BTreeSet};

/// Indices of the queues in the report, with their depth.
pub(super) fn walk(report: &Report) -> Vec<(usize, usize)> {
    let known: BTreeSet<&str> = report.queues.iter().map(|queue| queue.name.as_str()).collect();
    let mut below: BTreeMap<Option<&str>, BTreeMap<&str, usize>> = BTreeMap::new();
    for (at, queue) in report.queues.iter().enumerate() {
        let parent = queue.parent.as_deref().filter(|parent| known.contains(parent));
        below.entry(parent).or_default().insert(&queue.name, at);
    }
    let mut order = Vec::new();
    let mut stack: Vec<(usize, usize)> = Vec::new();
    let mut next = (None, 0);
    loop {
        let children = below.remove(&next.0).unwrap_or_default();
        stack.extend(children.into_values().rev().map(|at| (at, next.1)));
        let Some((at, depth)) = stack.pop() else { return order };
        order.push((at, depth));
        next = (Some(report.queues[at].name.as_str()), depth + 1);
    }
}

/// Indices of the leaf queues.
pub(super) fn leaves(report: &Report) -> Vec<usize> {
    let parents: BTreeSet<&str> = report.queues.iter().filter_map(|queue| queue.parent.as_deref()).collect();
    let walked = walk(report).into_iter().map(|(at, _)| at);
    walked.filter(|at| !parents.contains(report.queues[*at].name.as_str())).collect()
}

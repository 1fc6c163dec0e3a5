//! A prediction as text.

use crate::render::{self, amount, section, table};
use crate::view::why::append_hints;
use kai_engine::Outcome;
use kai_engine::input::Key;
use kai_view::Names;
use kai_view::amounts::RESOURCES;
use kai_view::what_if::{PodPlace, Prediction, QueueChange, Start, WhatIfView};

pub(super) fn render(answer: &WhatIfView, outcome: &Outcome, names: Names<'_>) -> String {
    let mut text = String::new();
    if !answer.changes.is_empty() {
        section(&mut text, "Changes", &answer.changes.join("\n"));
    }
    for group in &answer.submitted {
        let is_one_of_several = answer.submitted.iter().filter(|of| of.name() == group.name()).count() > 1;
        prediction(&mut text, group, is_one_of_several);
    }
    if let Some(evictions) = render::evictions(outcome, names) {
        section(&mut text, "Evictions", &evictions);
    }
    for (heading, groups) in [
        ("Pod groups that would start, and would not without the changes", &answer.starts),
        ("Pod groups that would no longer start", &answer.no_longer_starts),
    ] {
        if !groups.is_empty() {
            let named = |group: &String| match group.split_once('/') {
                Some((namespace, name)) => names.group(&Key::new(namespace, name)),
                None => group.clone(),
            };
            section(&mut text, heading, &groups.iter().map(named).collect::<Vec<_>>().join("\n"));
        }
    }
    let rows: Vec<[String; 7]> = answer.queues.iter().flat_map(queue_rows).collect();
    let headings = ["QUEUE", "RESOURCE", "QUOTA", "LIMIT", "NOW", "WITHOUT", "WITH"];
    if let Some(queues) = table(headings, rows) {
        section(&mut text, "Queues: allocated now, and after a cycle without and with the changes", &queues);
    }
    names.replaced(&text)
}

fn prediction(text: &mut String, group: &Prediction, is_one_of_several: bool) {
    let starts = match group.starts {
        Start::Now => "would start now",
        Start::AfterTerminations => "would start when evicted or terminating pods have ended",
        Start::Not => "would not start",
    };
    let mut lines = vec![format!("in queue `{}`: {starts}", group.queue)];
    if group.pending > 0 && group.starts != Start::Not {
        lines.push(format!("{} of its pods would stay pending", group.pending));
    }
    let never = group.hints.as_ref().and_then(|hints| hints.never.as_deref());
    lines.extend(never.map(str::to_owned));
    if let Some(verdict) = group.verdict.as_ref().filter(|_| group.pending > 0) {
        if never.is_none_or(|never| !never.ends_with(&verdict.leading.why)) {
            lines.push(verdict.leading.why.clone());
        }
        lines.extend(verdict.leading.hint.as_ref().map(|hint| format!("  hint: {hint}")));
        lines.extend(verdict.further.iter().map(|further| format!("also: {}", further.why)));
    }
    let row = |pod: &PodPlace| {
        let what = if pod.waits { "nominated" } else { "bound" };
        [pod.pod.clone(), pod.node.clone(), what.to_owned()]
    };
    lines.extend(table(["POD", "NODE", "HOW"], group.pods.iter().map(row).collect()));
    let mut heading = group.name();
    if is_one_of_several && !group.workload.is_pod_group() {
        heading = format!("{heading}, pod group {}", group.group);
    }
    section(text, &heading, &lines.join("\n"));
    if let Some(hints) = &group.hints {
        append_hints(text, hints);
    }
}

fn queue_rows(queue: &QueueChange) -> Vec<[String; 7]> {
    let shown = RESOURCES.into_iter().filter(|resource| {
        let of = queue.resources.get(*resource);
        *resource == kai_engine::verdict::QueueResource::Gpu || of.without != of.with
    });
    let row = |resource| {
        let of = queue.resources.get(resource);
        let bound = |bound: Option<kai_view::amounts::Amount>| {
            amount::bound(resource, bound.map(|bound| bound.value))
        };
        [
            queue.queue.clone(),
            amount::name(resource).to_owned(),
            bound(of.quota),
            bound(of.limit),
            amount::of(of.now),
            amount::of(of.without),
            amount::of(of.with),
        ]
    };
    shown.map(row).collect()
}

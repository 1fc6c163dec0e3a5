//! `kai why`: the verdict on a pod group with every obstacle, the planned decisions, conditions and events.

use super::Rendered;
use super::age::age;
use super::connection::Connection;
use crate::render::{section, table};
use anyhow::{Context as _, Result, anyhow, bail};
use kai_engine::input::Key;
use kai_units::Timestamp;
use kai_view::ClusterReader;
use kai_view::groups::{GroupState, GroupView};
use kai_view::hints::{HintView, HintsView};
use kai_view::why::{
    self, ConditionView, Error, EventView, ExplainedGroup, GroupExplanation, PodView, Record, WhyView,
};
use std::fmt::Write as _;

pub(crate) async fn render(
    reader: &mut ClusterReader,
    connection: &Connection,
    name: &str,
) -> Result<Rendered> {
    let wanted = key(name, &connection.namespace)?;
    let model = match why::explain(reader, &connection.api, &wanted).await {
        Ok(model) => model,
        Err(Error::NotFound { similar, .. }) => return Err(not_found(&wanted, &similar)),
        Err(error @ Error::Request { .. }) => {
            return Err(error).with_context(|| format!("the cluster at {} cannot be read", connection.url));
        }
    };
    let text = match &model {
        WhyView::Groups { groups, omitted } => groups_text(groups, *omitted, reader.view().now)?,
        WhyView::Pod { pod, why, hint, .. } => {
            let hint = hint.as_ref().map_or_else(String::new, |hint| format!("hint: {hint}\n"));
            format!("pod `{pod}` {why}\n{hint}")
        }
    };
    Rendered::new(text, &model)
}

/// Types that may precede a name as with kubectl. Names are looked up among all kinds.
const TYPES: [&str; 15] = [
    "podgroup",
    "podgroups",
    "pg",
    "pod",
    "pods",
    "po",
    "job",
    "jobs",
    "deployment",
    "deployments",
    "deploy",
    "statefulset",
    "sts",
    "pytorchjob",
    "rayjob",
];

/// Reads `NAMESPACE/NAME`, or a name or `TYPE/NAME` in the namespace of the context.
fn key(name: &str, namespace: &str) -> Result<Key> {
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] if !name.is_empty() => Ok(Key::new(namespace, name)),
        [kind, name] if TYPES.contains(&kind) && !name.is_empty() => Ok(Key::new(namespace, name)),
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(Key::new(namespace, name)),
        _ => bail!("`{name}` is not a name; hint: use NAMESPACE/NAME, such as `default/train`"),
    }
}

fn not_found(wanted: &Key, similar: &[String]) -> anyhow::Error {
    let hint = match similar {
        [] => "`kai jobs` lists all pod groups".to_owned(),
        [only] => format!("did you mean `{only}`?"),
        several => format!("did you mean one of `{}`?", several.join("`, `")),
    };
    anyhow!("pod group, pod or workload `{wanted}` not found; hint: {hint}")
}

fn groups_text(groups: &[GroupExplanation], omitted: usize, now: Timestamp) -> Result<String> {
    let mut text = String::new();
    for group in groups {
        let gap = if text.is_empty() { "" } else { "\n" };
        let explanation = match group {
            GroupExplanation::Group(group) => group_text(group, now),
            GroupExplanation::OtherNodePool { group, why, hint, record } => {
                let mut text = format!("pod group `{group}`: {why}\nhint: {hint}\n");
                append_record(&mut text, record, now);
                text
            }
        };
        write!(text, "{gap}{explanation}")?;
    }
    if omitted > 0 {
        writeln!(text, "\n… and {omitted} more pod groups; hint: `kai why` accepts each by name")?;
    }
    Ok(text)
}

fn group_text(explained: &ExplainedGroup, now: Timestamp) -> String {
    let ExplainedGroup { group, plan, hints, record, pods } = explained;
    let mut text = headline(group, now);
    if let Some(limit) = &group.time_limit {
        text.push_str(&limit.sentence());
        text.push('\n');
    }
    section(&mut text, "Reason", &reasons(group));
    if let Some(hints) = hints {
        append_hints(&mut text, hints);
    }
    let row = |pod: &PodView| {
        let node = pod.node.clone().unwrap_or_else(|| "–".to_owned());
        [pod.name.clone(), pod.status.to_owned(), node, pod.decision.clone().unwrap_or_default()]
    };
    if let Some(pods) = table(["POD", "STATUS", "NODE", "NEXT CYCLE"], pods.iter().map(row).collect()) {
        section(&mut text, "Pods", &pods);
    }
    if !plan.evictions.is_empty() {
        section(&mut text, "Evictions that the next cycle would make for it", &plan.evictions.join("\n"));
    }
    append_record(&mut text, record, now);
    text
}

/// What would run a group, each proven by a plan.
pub(crate) fn append_hints(text: &mut String, hints: &HintsView) {
    let mut lines: Vec<String> = hints.never.iter().cloned().collect();
    lines.extend(hints.hints.iter().enumerate().map(|(index, hint)| hint_text(index + 1, hint)));
    if hints.incomplete {
        lines.push("further changes were not tried, since a plan of this cluster takes long".to_owned());
    }
    if !lines.is_empty() {
        section(text, "What would run it (each planned)", &lines.join("\n"));
    }
}

fn hint_text(number: usize, hint: &HintView) -> String {
    let mut text = format!("{number}. {}", hint.what);
    let evicted: Vec<String> = hint
        .evicts
        .iter()
        .map(|of| {
            if of.pods == 1 {
                format!("1 pod of `{}`", of.group)
            } else {
                format!("{} pods of `{}`", of.pods, of.group)
            }
        })
        .collect();
    if !evicted.is_empty() {
        text += "\n   evicts ";
        text += &evicted.join(", ");
    } else if hint.after_terminations {
        text += "\n   starts when terminating pods have ended, or others were moved";
    }
    if !hint.displaces.is_empty() {
        text += "\n   takes the place of `";
        text += &hint.displaces.join("`, `");
        text.push('`');
    }
    text
}

fn headline(group: &GroupView, now: Timestamp) -> String {
    let preemptibility = if group.preemptible { "preemptible" } else { "non-preemptible" };
    let counts = &group.counts;
    let mut parts = vec![format!("{} running", counts.running)];
    for (count, what) in [
        (counts.placed - counts.running, "starting"),
        (counts.pending, "pending"),
        (counts.gated, "with scheduling gates"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!(
        "pod group `{}` in queue `{}`, priority {}, {preemptibility}\n{}; minMember {} of {} pods: {}; created {} ago\n",
        group.group,
        group.queue,
        group.priority_text(),
        group.state.name(),
        group.min,
        counts.pods,
        parts.join(", "),
        age(group.created_at, now),
    )
}

/// Every obstacle with its hint, or that there is none.
fn reasons(group: &GroupView) -> String {
    let mut lines = Vec::new();
    if group.is_placeable {
        lines.push("no obstacle: the next cycle would place it".to_owned());
    } else if group.verdict.is_some() {
        for obstacle in &group.obstacles {
            let prefix = if obstacle.is_further { "also: " } else { "" };
            lines.push(format!("{prefix}{}", obstacle.sentence.text));
            lines.extend(obstacle.sentence.hint.as_ref().map(|hint| format!("  hint: {hint}")));
        }
    } else {
        lines.push(group.reason.clone().unwrap_or_else(|| not_pending(group.state).to_owned()));
    }
    for eviction in &group.planned_evictions {
        if !lines.contains(eviction) {
            lines.push(eviction.clone());
        }
    }
    lines.join("\n")
}

/// The state of a group without a verdict.
fn not_pending(state: GroupState) -> &'static str {
    match state {
        GroupState::Empty => "it has no pods to schedule",
        GroupState::Pending | GroupState::Gated | GroupState::Partial | GroupState::Stale => {
            "none of its pods can be scheduled now"
        }
        GroupState::Starting => "all pods are placed; their nodes are starting them",
        GroupState::Running => "all pods are running",
        GroupState::Terminating => "its pods are terminating",
        GroupState::Unknown => "its pods are on unreachable nodes",
        GroupState::Completed => "all pods have completed",
    }
}

fn append_record(text: &mut String, record: &Record, now: Timestamp) {
    if !record.conditions.is_empty() {
        let lines: Vec<String> =
            record.conditions.iter().map(|condition| condition_text(condition, now)).collect();
        section(text, "Conditions", &lines.join("\n"));
    }
    if !record.events.is_empty() {
        let lines: Vec<String> = record.events.iter().map(|event| event_text(event, now)).collect();
        section(text, "Events", &lines.join("\n"));
    }
    if let Some(error) = &record.events_error {
        section(text, "Events", &format!("cannot be read: {error}"));
    }
}

fn condition_text(condition: &ConditionView, now: Timestamp) -> String {
    let ConditionView { node_pool, message, reasons, timestamp, .. } = condition;
    let mut lines = vec![format!("{} ago, node pool `{node_pool}`:", age(*timestamp, now))];
    if reasons.is_empty() {
        lines.push(format!("  {message}"));
    }
    for reason in reasons {
        lines.push(format!("  {}: {}", reason.reason, reason.message));
    }
    lines.join("\n")
}

fn event_text(event: &EventView, now: Timestamp) -> String {
    let EventView { about, reason, message, count, timestamp, .. } = event;
    let times = if *count > 1 { format!(" (x{count})") } else { String::new() };
    format!("{} ago{times}, {about}: {reason}: {message}", age(*timestamp, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_of_a_name_is_optional() {
        assert_eq!(key("a/b", "c").expect("it is well-formed"), Key::new("a", "b"));
        assert_eq!(key("b", "c").expect("it is well-formed"), Key::new("c", "b"));
        assert_eq!(key("job/b", "c").expect("it is well-formed"), Key::new("c", "b"));
        for wrong in ["", "/", "a/", "/b", "a/b/c"] {
            let error = key(wrong, "c").expect_err(wrong).to_string();
            assert!(error.contains("hint: "), "{error}");
        }
    }
}

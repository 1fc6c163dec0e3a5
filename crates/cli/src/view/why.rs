//! `kai why`: the verdict on a pod group with every obstacle, the planned decisions, conditions and events.

use super::Rendered;
use super::age::age;
use super::connection::Connection;
use super::selection::{namespace, selected};
use crate::args;
use crate::render::{section, table};
use anyhow::{Context as _, Result, anyhow, bail};
use kai_engine::input::Key;
use kai_scheduler::resources::POD_GROUP;
use kai_units::Timestamp;
use kai_view::groups::{GroupState, GroupView};
use kai_view::hints::{HintView, HintsView};
use kai_view::why::{
    self, ConditionView, Error, EventView, ExplainedGroup, GroupExplanation, PodView, Record, Wanted, WhyView,
};
use kai_view::workload::is_type_of;
use kai_view::{ClusterReader, ClusterView, Names};
use std::fmt::Write as _;

pub(crate) async fn render(
    reader: &mut ClusterReader,
    connection: &Connection,
    args: &args::Why,
) -> Result<Rendered> {
    let wanted = wanted(reader.view(), connection, args).await?;
    explanation(reader, connection, &wanted).await
}

pub(crate) async fn explanation(
    reader: &mut ClusterReader,
    connection: &Connection,
    wanted: &Wanted,
) -> Result<Rendered> {
    let model = match why::explain(reader, &connection.api, wanted).await {
        Ok(model) => model,
        Err(Error::NotFound { wanted, similar }) => return Err(not_found(&wanted, &similar)),
        Err(Error::NoSuchQueue(queue)) => {
            bail!("queue `{queue}` not found; hint: `kai queues` lists all queues")
        }
        Err(error @ Error::Request { .. }) => {
            return Err(error).with_context(|| format!("the cluster at {} cannot be read", connection.url));
        }
    };
    let text = match &model {
        WhyView::Groups { groups, .. } if groups.is_empty() => match wanted {
            Wanted::Queue(queue) => format!("no pod group of queue `{queue}` is pending\n"),
            Wanted::Object { .. } | Wanted::Groups(_) => "no pod groups match the filter\n".to_owned(),
        },
        WhyView::Groups { groups, omitted } => groups_text(groups, *omitted, reader.view().now)?,
        WhyView::Pod { pod, why, hint, .. } => {
            let hint = hint.as_ref().map_or_else(String::new, |hint| format!("hint: {hint}\n"));
            format!("pod `{pod}` {why}\n{hint}")
        }
    };
    let names = match &model {
        WhyView::Groups { groups, .. } => groups.iter().map(type_and_name).collect(),
        WhyView::Pod { pod, .. } => vec![format!("pod/{}", pod.rsplit('/').next().unwrap_or(pod))],
    };
    Rendered::new(Names::of(reader.view().store.objects()).replaced(&text), &model, names)
}

fn type_and_name(group: &GroupExplanation) -> String {
    let key = match group {
        GroupExplanation::Group(group) => &group.group.group,
        GroupExplanation::OtherNodePool { group, .. } => group,
    };
    format!("{}/{}", super::jobs::TYPE, key.rsplit('/').next().unwrap_or(key))
}

/// What the arguments name.
async fn wanted(view: &ClusterView, connection: &Connection, args: &args::Why) -> Result<Wanted> {
    let Some(name) = &args.name else {
        let namespace = namespace(&args.namespace, connection);
        let mut selected = selected(connection, &POD_GROUP, &args.selector).await?.unwrap_or_default();
        selected.retain(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
        return Ok(Wanted::Groups(selected.into_iter().collect()));
    };
    let namespace = args.namespace.namespace.as_deref();
    named(name, namespace, &connection.namespace, |word| why::is_type(view, word))
}

/// Reads `NAME`, `TYPE/NAME` or `NAMESPACE/NAME`. With a namespace of its own, what stands before the slash is a type.
fn named(
    name: &str,
    namespace: Option<&str>,
    default_namespace: &str,
    is_type: impl Fn(&str) -> bool,
) -> Result<Wanted> {
    let key = |name: &str| Key::new(namespace.unwrap_or(default_namespace), name);
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] if !name.is_empty() => Ok(Wanted::Object { kind: None, key: key(name) }),
        [kind, name] if is_type_of(kind, "Queue") && !name.is_empty() => Ok(Wanted::Queue(name.to_owned())),
        [kind, name] if !kind.is_empty() && !name.is_empty() && (namespace.is_some() || is_type(kind)) => {
            Ok(Wanted::Object { kind: Some(kind.to_owned()), key: key(name) })
        }
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Ok(Wanted::Object { kind: None, key: Key::new(namespace, name) })
        }
        _ => bail!(
            "`{name}` is not a name; hint: use TYPE/NAME such as `job/train`, or NAMESPACE/NAME, such as `default/train`"
        ),
    }
}

fn not_found(wanted: &Key, similar: &[String]) -> anyhow::Error {
    let hint = match similar {
        [] => "`kai jobs -A` lists all pod groups".to_owned(),
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
    if let Some(until) = &group.stale_until {
        writeln!(
            text,
            "stale: {} of {} required pods are placed; without the others they are evicted at {until}",
            group.counts.placed, group.min
        )
        .expect("writing to a string");
    }
    let never = hints.as_ref().and_then(|hints| hints.never.as_deref());
    section(&mut text, "Reason", &reasons(group, never));
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

/// What would run a group, each proven by a plan. That it can never fit is a reason, which comes before.
pub(crate) fn append_hints(text: &mut String, hints: &HintsView) {
    let lines = hint_lines(hints);
    if !lines.is_empty() {
        section(text, "What would run it (each planned)", &lines.join("\n"));
    }
}

/// The hints of a group, numbered.
pub(crate) fn hint_lines(hints: &HintsView) -> Vec<String> {
    let of_each = |(index, hint): (usize, &HintView)| hint_text(index + 1, hint);
    let mut lines: Vec<String> = hints.hints.iter().enumerate().map(of_each).collect();
    if hints.incomplete {
        lines.push("further changes were not tried, since a plan of this cluster takes long".to_owned());
    }
    lines
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
    let workload = &group.workload;
    let what = if workload.is_pod_group() {
        format!("pod group `{}`", group.group)
    } else {
        format!(
            "{} `{}/{}`, pod group `{}`,",
            workload.kind, group.key.namespace, workload.name, group.key.name
        )
    };
    let pods = if counts.pods < group.min && group.verdict.is_some() {
        let missing = group.min - counts.pods;
        format!(
            "minMember {min}, {} of {min} pods exist; create {missing} more",
            counts.pods,
            min = group.min
        )
    } else {
        format!("minMember {} of {} pods", group.min, counts.pods)
    };
    format!(
        "{what} in queue `{}`, priority {}, {preemptibility}\n{}; {pods}: {}; created {} ago\n",
        group.queue,
        group.priority_text(),
        group.state.name(),
        parts.join(", "),
        age(group.created_at, now),
    )
}

/// What is invalid, why the group can never run, and every obstacle, or that there is none.
fn reasons(group: &GroupView, never: Option<&str>) -> String {
    let mut lines = Vec::new();
    let (errors, warnings): (Vec<_>, Vec<_>) = group.findings.iter().partition(|finding| finding.prevents);
    for finding in errors {
        lines.push(finding.text());
        lines.push(format!("  hint: {}", finding.hint));
    }
    // Where an object has to be corrected, that says why waiting does not help.
    let is_correction = group.obstacles.first().is_some_and(|first| first.is_correction);
    let never = never.filter(|_| !is_correction);
    lines.extend(never.map(str::to_owned));
    let is_said = |text: &str| never.is_some_and(|never| never.ends_with(text));
    if group.is_placeable {
        lines.push("no obstacle: the next cycle would place it".to_owned());
    } else if group.verdict.is_some() {
        for obstacle in group.obstacles.iter().filter(|obstacle| !is_said(&obstacle.sentence.text)) {
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
    for finding in warnings {
        lines.push(format!("also: {}", finding.text()));
        lines.push(format!("  hint: {}", finding.hint));
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
    fn type_and_namespace_of_a_name_are_optional() {
        let read = |name: &str, namespace: Option<&str>| named(name, namespace, "c", |word| word == "job");
        let object = |kind: Option<&str>, namespace: &str, name: &str| Wanted::Object {
            kind: kind.map(str::to_owned),
            key: Key::new(namespace, name),
        };
        for (name, namespace, expected) in [
            ("a/b", None, object(None, "a", "b")),
            ("b", None, object(None, "c", "b")),
            ("job/b", None, object(Some("job"), "c", "b")),
            ("job/b", Some("n"), object(Some("job"), "n", "b")),
            ("custom/b", Some("n"), object(Some("custom"), "n", "b")),
            ("b", Some("n"), object(None, "n", "b")),
            ("queue/q", None, Wanted::Queue("q".to_owned())),
            ("queues.scheduling.run.ai/q", Some("n"), Wanted::Queue("q".to_owned())),
        ] {
            assert_eq!(read(name, namespace).expect("it is well-formed"), expected, "{name}");
        }
        for wrong in ["", "/", "a/", "/b", "a/b/c"] {
            let error = read(wrong, None).expect_err(wrong).to_string();
            assert!(error.contains("hint: "), "{error}");
        }
    }
}

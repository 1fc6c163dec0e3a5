//! `kai why`: the verdict on a group with every obstacle, what a cycle would do, and what the scheduler wrote.

mod find;
mod record;

use super::connection::Connection;
use super::group::{Facts, State, one};
use super::{Moment, View, age, jobs};
use crate::render::pending::obstacles;
use crate::render::{section, table};
use anyhow::{Context as _, Result, bail};
use find::{Found, Lone};
use kai_engine::cluster::pod::Status;
use kai_engine::input::Key;
use kai_engine::outcome::Decision;
use kai_engine::verdict::{GroupVerdict, Verdict};
use record::Record;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// So many groups of one workload are explained; a deployment may have one for each of its pods.
const GROUPS_MAX: usize = 5;

/// Explains a group, pod or workload.
pub(super) async fn view(moment: &Moment, connection: &Connection, name: &str) -> Result<View> {
    let wanted = key(name, &connection.namespace)?;
    let found = match find::find(moment, &wanted) {
        Some(found) => found,
        None => find::ended(&connection.api, &wanted)
            .await
            .with_context(|| format!("`{wanted}` cannot be looked for at {}", connection.url))?
            .ok_or_else(|| find::missing(moment, &wanted))?,
    };
    match found {
        Found::Groups(groups) => {
            let mut all = View { text: String::new(), json: json!({ "groups": [] }) };
            for group in groups.iter().take(GROUPS_MAX) {
                let record = Record::read(moment, &connection.api, group).await;
                let view = explain(moment, group, &record);
                let gap = if all.text.is_empty() { "" } else { "\n" };
                write!(all.text, "{gap}{}", view.text)?;
                all.json["groups"].as_array_mut().context("it was made as a list")?.push(view.json);
            }
            if groups.len() > GROUPS_MAX {
                let more = groups.len() - GROUPS_MAX;
                writeln!(all.text, "\n… and {more} more groups; hint: `kai why` takes each by its name")?;
            }
            Ok(all)
        }
        Found::Lone(pod, why) => Ok(lone(&pod, &why, moment)),
    }
}

/// Reads `namespace/name`, or a name in the namespace of the context.
fn key(name: &str, namespace: &str) -> Result<Key> {
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] if !name.is_empty() => Ok(Key::new(namespace, name)),
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(Key::new(namespace, name)),
        _ => bail!("`{name}` names nothing; hint: it is NAMESPACE/NAME, such as `default/train`"),
    }
}

/// A pod without a group, about which no cycle says anything.
fn lone(pod: &Key, why: &Lone, moment: &Moment) -> View {
    let sentence = why.sentence(&moment.store.settings().scheduler_name);
    let mut text = format!("pod `{pod}` {}\n", sentence.text);
    if let Some(hint) = &sentence.hint {
        writeln!(text, "hint: {hint}").expect("writing to a string");
    }
    View {
        text,
        json: json!({ "pod": pod.to_string(), "why": sentence.text, "hint": sentence.hint, "groups": [] }),
    }
}

fn explain(moment: &Moment, key: &Key, record: &Record) -> View {
    let Some(group) = one(moment, key) else { return foreign(moment, key, record) };
    let mut text = headline(&group, moment);
    section(&mut text, "Why", &body(&group));
    let plans = plans(moment, key);
    if let Some(pods) = pods(moment, key, &plans) {
        section(&mut text, "Pods", &pods);
    }
    if !plans.evictions.is_empty() {
        section(&mut text, "What a cycle would take for it", &plans.evictions.join("\n"));
    }
    record.append(&mut text, moment.now);
    let mut json = jobs::report(&group);
    json["plan"] = json!({
        "places": plans.places.iter().map(|(pod, what)| json!({ "pod": pod.to_string(), "what": what }))
            .collect::<Vec<_>>(),
        "takes": plans.evictions,
    });
    json["record"] = record.report();
    View { text, json }
}

/// A group that another scheduler's objects belong to.
fn foreign(moment: &Moment, key: &Key, record: &Record) -> View {
    let object = moment.store.objects().pod_groups.get(key);
    let label = &moment.store.settings().node_pool_key;
    let pool = object.and_then(|group| group.metadata.labels.as_ref()?.get(label).cloned());
    let (why, hint) = match pool {
        Some(pool) => (
            format!("it belongs to the node pool `{pool}`, which another scheduler serves"),
            format!("ask with --node-pool {pool}"),
        ),
        None => (
            "it belongs to no node pool, and the scheduler of another one is asked".to_owned(),
            "ask without --node-pool".to_owned(),
        ),
    };
    let mut text = format!("group `{key}`: {why}\nhint: {hint}\n");
    record.append(&mut text, moment.now);
    View {
        text,
        json: json!({ "group": key.to_string(), "why": why, "hint": hint, "record": record.report() }),
    }
}

/// Who it is and how far.
fn headline(group: &Facts<'_>, moment: &Moment) -> String {
    let kind = if group.preemptible { "preemptible" } else { "not preemptible" };
    let counts = &group.counts;
    let mut parts = vec![format!("{} running", counts.running)];
    for (count, what) in [
        (counts.placed - counts.running, "with a place"),
        (counts.pending, "waiting"),
        (counts.gated, "held back by gates"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!(
        "group `{}` in queue `{}`, priority {}, {kind}\n{}; it needs {} of its {} pods: {}; created {} ago\n",
        group.key,
        group.queue,
        group.priority(),
        group.state.name(),
        group.min,
        counts.pods,
        parts.join(", "),
        age::age(group.created, moment.now),
    )
}

/// Every obstacle with what would help; or that there is none.
fn body(group: &Facts<'_>) -> String {
    let mut lines = Vec::new();
    match group.verdict {
        Some(GroupVerdict { leading: Verdict::Placed, .. }) => {
            lines.push("nothing stands in its way: a cycle would place it now".to_owned());
        }
        Some(verdict) => {
            for obstacle in obstacles(verdict) {
                let prefix = if obstacle.is_further { "also: " } else { "" };
                lines.push(format!("{prefix}{}", obstacle.sentence.text));
                lines.extend(obstacle.sentence.hint.map(|hint| format!("  hint: {hint}")));
            }
        }
        None => lines.push(group.reason().unwrap_or_else(|| settled(group.state).to_owned())),
    }
    for loss in &group.loses {
        if !lines.contains(loss) {
            lines.push(loss.clone());
        }
    }
    lines.join("\n")
}

/// What there is to say about a group that waits for nothing.
fn settled(state: State) -> &'static str {
    match state {
        State::Empty => "it has no pods that could be placed",
        State::Pending | State::Gated | State::Partly | State::Stale => "no pod of it waits for a place",
        State::Starting => "all its pods have a place; their nodes are starting them",
        State::Running => "all its pods run",
        State::Leaving => "its pods are leaving their nodes",
        State::Lost => "its pods are on nodes that no longer answer",
        State::Done => "all its pods have ended",
    }
}

/// What a cycle would do for a group.
struct Plans {
    /// Where pods would go, in words.
    places: BTreeMap<Key, String>,
    /// Who would be evicted for it, in words.
    evictions: Vec<String>,
}

fn plans(moment: &Moment, group: &Key) -> Plans {
    let mut places = BTreeMap::new();
    let is_ours = |pod: &Key| {
        let pod = moment.cluster.pod(pod).and_then(|pod| moment.cluster.pods[pod].group);
        pod.is_some_and(|of| moment.cluster.group_key(of) == *group)
    };
    for decision in moment.outcome.decisions.iter().filter(|decision| is_ours(decision.pod())) {
        let (pod, what) = match decision {
            Decision::Bind(bind) => (&bind.pod, format!("would be bound to {}", bind.node)),
            Decision::Pipeline { pod, node, moved: true, .. } => (pod, format!("would be moved to {node}")),
            Decision::Pipeline { pod, node, moved: false, .. } => {
                (pod, format!("would wait for room on {node}"))
            }
            Decision::Evict { pod, action, .. } => (pod, format!("would be evicted by {action}")),
        };
        places.insert(pod.clone(), what);
    }
    let stories = crate::batches::stories(&moment.outcome);
    let ours = stories.iter().filter(|story| story.preemptor == Some(group));
    let told = ours.flat_map(|story| &story.batches).flat_map(|batch| {
        let rule = kai_engine::explain::rule(batch.why);
        batch.pods.iter().map(move |pod| format!("pod `{pod}`: {rule}"))
    });
    Plans { places, evictions: told.collect() }
}

fn pods(moment: &Moment, group: &Key, plans: &Plans) -> Option<String> {
    let cluster = &moment.cluster;
    let mut pods: Vec<(Key, [String; 4])> = cluster.groups[cluster.group(group)?]
        .pods
        .iter()
        .map(|pod| {
            let key = cluster.pod_key(*pod);
            let node = cluster.pods[*pod].state.node().map(|node| cluster.text(cluster.nodes[node].name));
            let what = plans.places.get(&key).cloned().unwrap_or_default();
            let status = status(cluster.observed_status(*pod)).to_owned();
            let name = key.name.clone();
            (key, [name, status, node.unwrap_or("–").to_owned(), what])
        })
        .collect();
    pods.sort_unstable();
    table(["POD", "STATE", "NODE", "IN A CYCLE"], pods.into_iter().map(|(_, row)| row).collect())
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Pending => "Pending",
        Status::Gated => "Gated",
        Status::Allocated | Status::Binding => "Binding",
        Status::Pipelined => "Waiting for room",
        Status::Bound => "Bound",
        Status::Running => "Running",
        Status::Releasing => "Leaving",
        Status::Stuck => "Stuck while leaving",
        Status::Succeeded => "Succeeded",
        Status::Failed => "Failed",
        Status::Unknown => "Lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_namespace() {
        assert_eq!(key("a/b", "c").expect("it is well formed"), Key::new("a", "b"));
        assert_eq!(key("b", "c").expect("it is well formed"), Key::new("c", "b"));
        for wrong in ["", "/", "a/", "/b", "a/b/c"] {
            let error = key(wrong, "c").expect_err(wrong).to_string();
            assert!(error.contains("hint: "), "{error}");
        }
    }
}

//! What the scheduler has reported about a group: the conditions in its status, and events.

use crate::reader::ClusterView;
use kai_engine::input::Key;
use kai_object as object;
use kai_runtime::api::{self, Api};
use kai_units::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Maximum events, the latest ones.
const EVENTS_MAX: usize = 8;
/// Maximum pending pods whose events are read: those of a gang are the same.
const PODS_MAX: usize = 3;

#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Record {
    pub conditions: Vec<ConditionView>,
    pub events: Vec<EventView>,
    /// Why events could not be read.
    #[serde(skip)]
    pub events_error: Option<String>,
}

/// A `schedulingCondition` of a pod group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ConditionView {
    pub node_pool: String,
    pub at: String,
    pub message: String,
    pub reasons: Vec<ConditionReason>,
    #[serde(skip)]
    pub timestamp: Timestamp,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ConditionReason {
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EventView {
    /// When it was last seen.
    pub at: String,
    /// Kind and name of the object.
    pub about: String,
    pub reason: String,
    pub message: String,
    /// The reporting component.
    pub by: String,
    pub count: i64,
    #[serde(skip)]
    pub timestamp: Timestamp,
}

impl Record {
    /// Reads the conditions of a group, and events of it and of its pending pods.
    pub(super) async fn read(view: &ClusterView, api: &Api, group: &Key) -> Self {
        let mut record = Self { conditions: conditions(view, group), ..Self::default() };
        let objects = view.store.objects();
        let uid =
            objects.pod_groups.get(group).and_then(|group| group.metadata.uid.clone()).unwrap_or_default();
        let mut names = vec![("PodGroup", group.name.clone(), uid)];
        names.extend(pending_pods(view, group).into_iter().map(|pod| {
            let object = objects.pods.get(&Key::new(group.namespace.as_str(), pod.as_str()));
            let uid = object.map(|object| object.metadata.uid.to_string()).unwrap_or_default();
            ("Pod", pod, uid)
        }));
        for (kind, name, uid) in names {
            match events_of(api, &group.namespace, kind, &name, &uid).await {
                Ok(events) => record.events.extend(events),
                Err(error) => {
                    record.events_error = Some(error.message());
                    break;
                }
            }
        }
        record.events.sort_by(|one, other| {
            other
                .timestamp
                .cmp(&one.timestamp)
                .then_with(|| (&one.about, &one.reason).cmp(&(&other.about, &other.reason)))
        });
        record.events.truncate(EVENTS_MAX);
        record
    }
}

/// The events of the object with this UID, not those of an earlier one of the same name; of all if the UID is empty.
pub(super) async fn events_of(
    api: &Api,
    namespace: &str,
    kind: &str,
    name: &str,
    uid: &str,
) -> api::Result<Vec<EventView>> {
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}"
    );
    let list = api.send("GET", &path, None).await?;
    let events = list.get("items").and_then(Value::as_array);
    Ok(events.into_iter().flatten().filter(|event| is_about(event, uid)).map(event).collect())
}

fn is_about(event: &Value, uid: &str) -> bool {
    let involved = object::str_at(event, "/involvedObject/uid");
    involved.is_empty() || uid.is_empty() || involved == uid
}

fn conditions(view: &ClusterView, group: &Key) -> Vec<ConditionView> {
    let group = view.store.objects().pod_groups.get(group);
    let all = group.and_then(|group| group.status.as_ref()).map(|status| &status.scheduling_conditions);
    let condition = |of: &kai_api::pod_group::SchedulingCondition| {
        let timestamp = Timestamp(of.last_transition_time.as_ref().map_or(0, |time| time.0.as_microsecond()));
        let reasons = of
            .reasons
            .iter()
            .map(|one| ConditionReason { reason: one.reason.clone(), message: one_line(&one.message) });
        ConditionView {
            node_pool: of.node_pool.clone(),
            at: timestamp.to_string(),
            message: one_line(&of.message),
            reasons: reasons.collect(),
            timestamp,
        }
    };
    all.into_iter().flatten().map(condition).collect()
}

fn pending_pods(view: &ClusterView, group: &Key) -> Vec<String> {
    let cluster = &view.cluster;
    let Some(group) = cluster.group(group) else { return Vec::new() };
    let pods = cluster.groups[group].pods.iter();
    let pending = pods.filter(|pod| cluster.pods[**pod].state.place.is_none());
    let mut names: Vec<String> = pending.map(|pod| cluster.pod_key(*pod).name).collect();
    names.sort_unstable();
    names.truncate(PODS_MAX);
    names
}

fn event(event: &Value) -> EventView {
    let text = |pointer: &str| object::str_at(event, pointer).to_owned();
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let at = times.iter().find_map(|at| object::str_at(event, at).parse::<Timestamp>().ok());
    let by = [text("/reportingComponent"), text("/source/component")];
    let count = ["/series/count", "/count"].iter().find_map(|at| event.pointer(at)?.as_i64());
    let timestamp = at.unwrap_or(Timestamp(0));
    EventView {
        at: timestamp.to_string(),
        timestamp,
        about: format!("{} `{}`", text("/involvedObject/kind"), text("/involvedObject/name")),
        reason: text("/reason"),
        message: one_line(object::str_at(event, "/message")),
        by: by.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        count: count.unwrap_or(1),
    }
}

/// Joins messages of several lines, which KAI writes, and leaves out the second of two full stops at the end.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.strip_suffix("..") {
        Some(sentence) if !sentence.ends_with('.') => format!("{sentence}."),
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_one_line_with_one_full_stop() {
        assert_eq!(one_line("a:\n b.. \n"), "a: b.");
        assert_eq!(one_line("wait..."), "wait...");
    }

    #[test]
    fn events_of_an_earlier_object_of_the_same_name_are_left_out() {
        let event = |uid: &str| json!({"involvedObject": {"kind": "Pod", "name": "a", "uid": uid}});
        assert!(is_about(&event("new"), "new"));
        assert!(!is_about(&event("old"), "new"));
        assert!(is_about(&event(""), "new"), "some reporters leave the UID out");
    }
}

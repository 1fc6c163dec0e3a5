//! What the scheduler itself wrote about a group: the conditions in its status, and events.

use super::super::Moment;
use super::super::age::age;
use crate::render::section;
use kai_engine::input::Key;
use kai_object as object;
use kai_runtime::api::Api;
use kai_units::Timestamp;
use serde_json::{Value, json};

/// So many events are shown.
const EVENTS_MAX: usize = 8;
/// Events of so many waiting pods are asked for: those of a gang say the same.
const PODS_MAX: usize = 3;

/// What was written.
#[derive(Default)]
pub(super) struct Record {
    conditions: Vec<Condition>,
    events: Vec<Event>,
    /// Why events could not be read.
    unread: Option<String>,
}

struct Condition {
    pool: String,
    at: Timestamp,
    message: String,
    /// Code and message of each obstacle.
    reasons: Vec<(String, String)>,
}

struct Event {
    /// When it was last seen.
    at: Timestamp,
    about: String,
    reason: String,
    message: String,
    by: String,
    count: i64,
}

impl Record {
    /// Reads it for a group and its waiting pods.
    pub(super) async fn read(moment: &Moment, api: &Api, group: &Key) -> Self {
        let mut record = Self { conditions: conditions(moment, group), ..Self::default() };
        let mut names = vec![("PodGroup", group.name.clone())];
        names.extend(waiting_pods(moment, group).into_iter().map(|pod| ("Pod", pod)));
        for (kind, name) in names {
            let path = format!(
                "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}",
                group.namespace
            );
            match api.send("GET", &path, None).await {
                Ok(list) => {
                    let events = list.get("items").and_then(Value::as_array);
                    record.events.extend(events.into_iter().flatten().map(event));
                }
                Err(error) => {
                    record.unread = Some(error.told());
                    break;
                }
            }
        }
        record.events.sort_by(|one, other| {
            other.at.cmp(&one.at).then_with(|| (&one.about, &one.reason).cmp(&(&other.about, &other.reason)))
        });
        record.events.truncate(EVENTS_MAX);
        record
    }

    /// Adds it to a text, where there is any.
    pub(super) fn append(&self, text: &mut String, now: Timestamp) {
        if !self.conditions.is_empty() {
            let lines: Vec<String> = self.conditions.iter().map(|condition| condition.text(now)).collect();
            section(text, "What the scheduler wrote on the group", &lines.join("\n"));
        }
        if !self.events.is_empty() {
            let lines: Vec<String> = self.events.iter().map(|event| event.text(now)).collect();
            section(text, "Events", &lines.join("\n"));
        }
        if let Some(why) = &self.unread {
            section(text, "Events", &format!("they cannot be read: {why}"));
        }
    }

    /// The same for programs.
    pub(super) fn report(&self) -> Value {
        let condition = |condition: &Condition| {
            let reason = |(code, message): &(String, String)| json!({ "reason": code, "message": message });
            json!({
                "node_pool": condition.pool, "at": condition.at.to_string(), "message": condition.message,
                "reasons": condition.reasons.iter().map(reason).collect::<Vec<_>>(),
            })
        };
        let event = |event: &Event| {
            json!({
                "at": event.at.to_string(), "about": event.about, "reason": event.reason,
                "message": event.message, "by": event.by, "count": event.count,
            })
        };
        json!({
            "conditions": self.conditions.iter().map(condition).collect::<Vec<_>>(),
            "events": self.events.iter().map(event).collect::<Vec<_>>(),
        })
    }
}

impl Condition {
    fn text(&self, now: Timestamp) -> String {
        let mut lines = vec![format!("{} ago, for the node pool `{}`:", age(self.at, now), self.pool)];
        if self.reasons.is_empty() {
            lines.push(format!("  {}", self.message));
        }
        for (code, message) in &self.reasons {
            lines.push(format!("  {code}: {message}"));
        }
        lines.join("\n")
    }
}

impl Event {
    fn text(&self, now: Timestamp) -> String {
        let times = if self.count > 1 { format!(", {} times", self.count) } else { String::new() };
        format!("{} ago{times}, on {}: {}: {}", age(self.at, now), self.about, self.reason, self.message)
    }
}

fn conditions(moment: &Moment, group: &Key) -> Vec<Condition> {
    let group = moment.store.objects().pod_groups.get(group);
    let all = group.and_then(|group| group.status.as_ref()).map(|status| &status.scheduling_conditions);
    let condition = |of: &kai_api::pod_group::SchedulingCondition| Condition {
        pool: of.node_pool.clone(),
        at: Timestamp(of.last_transition_time.as_ref().map_or(0, |time| time.0.as_microsecond())),
        message: one_line(&of.message),
        reasons: of.reasons.iter().map(|one| (one.reason.clone(), one_line(&one.message))).collect(),
    };
    all.into_iter().flatten().map(condition).collect()
}

fn waiting_pods(moment: &Moment, group: &Key) -> Vec<String> {
    let cluster = &moment.cluster;
    let Some(group) = cluster.group(group) else { return Vec::new() };
    let pods = cluster.groups[group].pods.iter();
    let waiting = pods.filter(|pod| cluster.pods[**pod].state.place.is_none());
    let mut names: Vec<String> = waiting.map(|pod| cluster.pod_key(*pod).name).collect();
    names.sort_unstable();
    names.truncate(PODS_MAX);
    names
}

fn event(event: &Value) -> Event {
    let text = |pointer: &str| object::str_at(event, pointer).to_owned();
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let at = times.iter().find_map(|at| object::str_at(event, at).parse::<Timestamp>().ok());
    let by = [text("/reportingComponent"), text("/source/component")];
    let count = ["/series/count", "/count"].iter().find_map(|at| event.pointer(at)?.as_i64());
    Event {
        at: at.unwrap_or(Timestamp(0)),
        about: format!("{} `{}`", text("/involvedObject/kind"), text("/involvedObject/name")),
        reason: text("/reason"),
        message: one_line(object::str_at(event, "/message")),
        by: by.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        count: count.unwrap_or(1),
    }
}

/// Some messages are written over several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

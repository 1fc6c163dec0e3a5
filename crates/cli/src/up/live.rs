//! Shows what goes on in the cluster: one line that is written over on a terminal, a line for each change elsewhere.

use kai_api::meta::Meta;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::invalid::InvalidObject;
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_units::Quantity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::task::JoinSet;

/// From one look to the next.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Phases in the order of a pod's life, and how they are counted aloud.
const PHASES: [(&str, &str); 5] = [
    ("Pending", "pending"),
    ("Running", "running"),
    ("Succeeded", "succeeded"),
    ("Failed", "failed"),
    ("Unknown", "unknown"),
];

/// Follows nodes and pods, and shows them.
pub(super) struct Live {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
    shown: String,
    is_terminal: bool,
}

/// What is known of each node and pod.
#[derive(Debug, Default)]
struct Seen {
    nodes: BTreeMap<Key, Counts>,
    pods: BTreeMap<Key, Counts>,
}

impl Live {
    /// Starts to follow; everything that is there is known when this returns.
    pub(super) async fn start(api: &Api) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let unread = Arc::new(Sender::new(2));
        let mut tasks = JoinSet::new();
        tasks.spawn(follow::<NodeObject>(api.clone(), Arc::clone(&seen), Arc::clone(&unread)));
        tasks.spawn(follow::<PodObject>(api.clone(), Arc::clone(&seen), Arc::clone(&unread)));
        // The sender lives as long as this.
        let _ = unread.subscribe().wait_for(|unread| *unread == 0).await;
        let is_terminal = std::io::stdout().is_terminal();
        Self { seen, _tasks: tasks, shown: String::new(), is_terminal }
    }

    /// What there is.
    pub(super) fn counts(&self) -> Counts {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Counts::default();
        seen.nodes.values().chain(seen.pods.values()).for_each(|one| counts.add(one));
        counts
    }

    /// Shows what there is, if that is not what was shown last.
    pub(super) fn show(&mut self) {
        let text = self.counts().text();
        if text == self.shown {
            return;
        }
        let mut out = std::io::stdout();
        // Nothing can be done for a terminal or a reader that has gone away; the cluster goes on.
        let _ = if self.is_terminal { write!(out, "\r{text}\x1b[K") } else { writeln!(out, "{text}") };
        let _ = out.flush();
        self.shown = text;
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, text: &str) {
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        let mut out = std::io::stdout();
        // As above: nobody may be listening.
        let _ = writeln!(out, "{start}{text}");
        let _ = out.flush();
        self.shown.clear();
    }

    /// Leaves the last line where it is.
    pub(super) fn end(self) {
        if self.is_terminal {
            let _ = writeln!(std::io::stdout());
        }
    }
}

/// Something that is counted.
trait Counted: DeserializeOwned + Send + 'static {
    const KIND: ResourceKind;
    fn key(&self) -> Key;
    fn counts(&self) -> Counts;
    fn all(seen: &mut Seen) -> &mut BTreeMap<Key, Counts>;
}

async fn follow<T: Counted>(api: Api, seen: Arc<Mutex<Seen>>, unread: Arc<Sender<usize>>) {
    let source = Source { bookmarks: false, ..Source::all(T::KIND) };
    let freshness = Health::default().watch(&T::KIND.plural);
    let mut first = true;
    watch::list_and_watch(&api, &source, &freshness, |news: WatchEvent<T>| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let all = T::all(&mut seen);
        match news {
            WatchEvent::Listed(objects, _) => {
                *all = objects.iter().map(|object| (object.key(), object.counts())).collect();
                if std::mem::take(&mut first) {
                    unread.send_modify(|unread| *unread -= 1);
                }
            }
            WatchEvent::Applied(object) => {
                all.insert(object.key(), object.counts());
            }
            WatchEvent::Deleted(object) => {
                all.remove(&object.key());
            }
            WatchEvent::Invalid(InvalidObject { key, .. }) => {
                all.remove(&key);
            }
        }
    })
    .await;
}

/// A node, as far as it is counted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeObject {
    metadata: Meta,
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Vec<Condition>,
    allocatable: Amounts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Counted for NodeObject {
    const KIND: ResourceKind = kind::NODE;

    fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        let ready = usize::from(self.status.conditions.iter().any(is_ready));
        Counts { nodes: 1, ready, gpus: self.status.allocatable.gpus(), ..Counts::default() }
    }

    fn all(seen: &mut Seen) -> &mut BTreeMap<Key, Counts> {
        &mut seen.nodes
    }
}

/// A pod, as far as it is counted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodObject {
    metadata: Meta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<Amounts>,
    limits: Option<Amounts>,
}

impl Counted for PodObject {
    const KIND: ResourceKind = kind::POD;

    fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let phase = self.status.phase.as_str();
        let index = PHASES.iter().position(|(known, _)| *known == phase).unwrap_or(PHASES.len() - 1);
        let mut counts = Counts::default();
        counts.phases[index] = 1;
        if !self.spec.node_name.is_empty() && !matches!(phase, "Succeeded" | "Failed") {
            // What is limited and not requested is requested as much.
            let wanted = |resources: &Resources| {
                resources.requests.as_ref().or(resources.limits.as_ref()).map_or(0, Amounts::gpus)
            };
            counts.gpus_taken = self.spec.containers.iter().map(|one| wanted(&one.resources)).sum();
        }
        counts
    }

    fn all(seen: &mut Seen) -> &mut BTreeMap<Key, Counts> {
        &mut seen.pods
    }
}

/// The GPUs in a list of amounts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Amounts {
    #[serde(rename = "nvidia.com/gpu")]
    gpus: Value,
}

impl Amounts {
    fn gpus(&self) -> i64 {
        let text = match &self.gpus {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return 0,
        };
        text.parse::<Quantity>().map_or(0, Quantity::units)
    }
}

/// Nodes, pods and GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    ready: usize,
    phases: [usize; PHASES.len()],
    pub(super) gpus: i64,
    gpus_taken: i64,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.nodes += more.nodes;
        self.ready += more.ready;
        for (phase, count) in self.phases.iter_mut().zip(more.phases) {
            *phase += count;
        }
        self.gpus += more.gpus;
        self.gpus_taken += more.gpus_taken;
    }

    fn text(&self) -> String {
        let pods: Vec<String> = PHASES
            .iter()
            .zip(self.phases)
            .filter(|(_, count)| *count > 0)
            .map(|((_, name), count)| format!("{count} {name}"))
            .collect();
        let pods = if pods.is_empty() { "none".to_owned() } else { pods.join(", ") };
        let Self { nodes, ready, gpus, gpus_taken, .. } = self;
        format!("nodes: {ready} of {nodes} ready; GPUs: {gpus_taken} of {gpus} taken; pods: {pods}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_line_counts_nodes_gpus_and_pods() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(), "nodes: 0 of 0 ready; GPUs: 0 of 0 taken; pods: none");
        let node = |ready: &str| {
            json!({"status": {"allocatable": {"nvidia.com/gpu": "8"},
                "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": ready}]}})
        };
        let read = |node: Value| serde_json::from_value::<NodeObject>(node).unwrap().counts();
        counts.add(&read(node("True")));
        counts.add(&read(node("Unknown")));
        let pod = |node: &str, phase: &str| {
            json!({"spec": {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]},
                "status": {"phase": phase}})
        };
        for (node, phase) in [("", "Pending"), ("a", "Pending"), ("a", "Running"), ("a", "Succeeded")] {
            counts.add(&serde_json::from_value::<PodObject>(pod(node, phase)).unwrap().counts());
        }
        assert_eq!(
            counts.text(),
            "nodes: 1 of 2 ready; GPUs: 4 of 16 taken; pods: 2 pending, 1 running, 1 succeeded"
        );
    }
}

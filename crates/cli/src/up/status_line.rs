//! The status line of `kai up`: redrawn in place on a terminal, one line per change elsewhere.

use kai_api::meta::Meta;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::invalid::InvalidObject;
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_units::Quantity;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::task::JoinSet;

pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Pod phases and their names in the status line.
const PHASES: [(&str, &str); 5] = [
    ("Pending", "pending"),
    ("Running", "running"),
    ("Succeeded", "succeeded"),
    ("Failed", "failed"),
    ("Unknown", "unknown"),
];

/// Driver of the GPUs that are published as devices.
const GPU_DRIVER: &str = "gpu.nvidia.com";

/// Watches nodes and pods, and the devices and claims of nodes whose GPUs are devices.
pub(super) struct StatusLine {
    observed: Arc<Mutex<Observed>>,
    _tasks: JoinSet<()>,
    shown: String,
    is_terminal: bool,
}

/// The counts of each object.
#[derive(Debug, Default)]
struct Observed {
    nodes: BTreeMap<Key, Counts>,
    pods: BTreeMap<Key, Counts>,
    slices: BTreeMap<Key, Counts>,
    claims: BTreeMap<Key, Counts>,
}

impl Observed {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let all = [&self.nodes, &self.pods, &self.slices, &self.claims];
        all.into_iter().flat_map(BTreeMap::values).for_each(|one| counts.add(one));
        counts
    }
}

impl StatusLine {
    /// Returns when all existing objects have been listed.
    pub(super) async fn start(api: &Api) -> Self {
        let observed = Arc::new(Mutex::new(Observed::default()));
        let unlisted = Arc::new(Sender::new(4));
        let mut tasks = JoinSet::new();
        tasks.spawn(follow::<NodeObject>(api.clone(), Arc::clone(&observed), Arc::clone(&unlisted)));
        tasks.spawn(follow::<PodObject>(api.clone(), Arc::clone(&observed), Arc::clone(&unlisted)));
        tasks.spawn(follow::<SliceObject>(api.clone(), Arc::clone(&observed), Arc::clone(&unlisted)));
        tasks.spawn(follow::<ClaimObject>(api.clone(), Arc::clone(&observed), Arc::clone(&unlisted)));
        // Cannot fail: the sender is not dropped before.
        let _ = unlisted.subscribe().wait_for(|unlisted| *unlisted == 0).await;
        let is_terminal = crate::is_terminal(&std::io::stdout());
        Self { observed, _tasks: tasks, shown: String::new(), is_terminal }
    }

    pub(super) fn counts(&self) -> Counts {
        self.observed.lock().counts()
    }

    /// Prints the status if it has changed.
    pub(super) fn show(&mut self) {
        let text = self.counts().text();
        if text == self.shown {
            return;
        }
        let mut out = std::io::stdout();
        // A closed output does not stop the cluster.
        let _ = if self.is_terminal { write!(out, "\r{text}\x1b[K") } else { writeln!(out, "{text}") };
        let _ = out.flush();
        self.shown = text;
    }

    /// Prints a line that is not overwritten.
    pub(super) fn print(&mut self, text: &str) {
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        let mut out = std::io::stdout();
        // As above.
        let _ = writeln!(out, "{start}{text}");
        let _ = out.flush();
        self.shown.clear();
    }

    /// Leaves the last status in place.
    pub(super) fn finish(self) {
        if self.is_terminal {
            let _ = writeln!(std::io::stdout());
        }
    }
}

trait Counted: DeserializeOwned + Send + 'static {
    const KIND: ResourceKind;
    fn key(&self) -> Key;
    fn counts(&self) -> Counts;
    fn all(observed: &mut Observed) -> &mut BTreeMap<Key, Counts>;
}

async fn follow<T: Counted>(api: Api, observed: Arc<Mutex<Observed>>, unlisted: Arc<Sender<usize>>) {
    let source = Source { bookmarks: false, ..Source::all(T::KIND) };
    let freshness = Health::default().watch(&T::KIND.plural);
    let mut first = true;
    watch::list_and_watch(&api, &source, &freshness, |event: WatchEvent<T>| {
        let mut observed = observed.lock();
        let all = T::all(&mut observed);
        match event {
            WatchEvent::Listed(objects, _) => {
                *all = objects.iter().map(|object| (object.key(), object.counts())).collect();
                if std::mem::take(&mut first) {
                    unlisted.send_modify(|unlisted| *unlisted -= 1);
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
            WatchEvent::Denied => all.clear(),
        }
    })
    .await;
}

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
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        let ready = usize::from(self.status.conditions.iter().any(is_ready));
        Counts { nodes: 1, ready, gpus: self.status.allocatable.gpus(), ..Counts::default() }
    }

    fn all(observed: &mut Observed) -> &mut BTreeMap<Key, Counts> {
        &mut observed.nodes
    }
}

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
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let phase = self.status.phase.as_str();
        let index = PHASES.iter().position(|(known, _)| *known == phase).unwrap_or(PHASES.len() - 1);
        let mut counts = Counts::default();
        counts.phases[index] = 1;
        if !self.spec.node_name.is_empty() && !kai_object::is_terminal_phase(phase) {
            // Requests default to limits.
            let requested = |resources: &Resources| {
                resources.requests.as_ref().or(resources.limits.as_ref()).map_or(0, Amounts::gpus)
            };
            counts.gpus_allocated = self.spec.containers.iter().map(|one| requested(&one.resources)).sum();
        }
        counts
    }

    fn all(observed: &mut Observed) -> &mut BTreeMap<Key, Counts> {
        &mut observed.pods
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SliceObject {
    metadata: Meta,
    spec: SliceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SliceSpec {
    driver: String,
    devices: Vec<IgnoredAny>,
}

impl Counted for SliceObject {
    const KIND: ResourceKind = kind::RESOURCE_SLICE;

    fn key(&self) -> Key {
        Key::new("", &*self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let gpus = if self.spec.driver == GPU_DRIVER { self.spec.devices.len() as i64 } else { 0 };
        Counts { gpus, ..Counts::default() }
    }

    fn all(observed: &mut Observed) -> &mut BTreeMap<Key, Counts> {
        &mut observed.slices
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimObject {
    metadata: Meta,
    status: ClaimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    allocation: ClaimAllocation,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimAllocation {
    devices: ClaimDevices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimDevices {
    results: Vec<ClaimedDevice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimedDevice {
    driver: String,
}

impl Counted for ClaimObject {
    const KIND: ResourceKind = kind::RESOURCE_CLAIM;

    fn key(&self) -> Key {
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    fn counts(&self) -> Counts {
        let devices = &self.status.allocation.devices.results;
        let gpus_allocated = devices.iter().filter(|device| device.driver == GPU_DRIVER).count() as i64;
        Counts { gpus_allocated, ..Counts::default() }
    }

    fn all(observed: &mut Observed) -> &mut BTreeMap<Key, Counts> {
        &mut observed.claims
    }
}

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

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    ready: usize,
    phases: [usize; PHASES.len()],
    pub(super) gpus: i64,
    gpus_allocated: i64,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.nodes += more.nodes;
        self.ready += more.ready;
        for (phase, count) in self.phases.iter_mut().zip(more.phases) {
            *phase += count;
        }
        self.gpus += more.gpus;
        self.gpus_allocated += more.gpus_allocated;
    }

    fn text(&self) -> String {
        let pods: Vec<String> = PHASES
            .iter()
            .zip(self.phases)
            .filter(|(_, count)| *count > 0)
            .map(|((_, name), count)| format!("{count} {name}"))
            .collect();
        let pods = if pods.is_empty() { "none".to_owned() } else { pods.join(", ") };
        let Self { nodes, ready, gpus, gpus_allocated, .. } = self;
        format!("nodes: {ready} of {nodes} ready; GPUs: {gpus_allocated} of {gpus} allocated; pods: {pods}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_counts_nodes_gpus_and_pods() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(), "nodes: 0 of 0 ready; GPUs: 0 of 0 allocated; pods: none");
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
            "nodes: 1 of 2 ready; GPUs: 4 of 16 allocated; pods: 2 pending, 1 running, 1 succeeded"
        );
    }

    #[test]
    fn gpus_that_are_devices_count_too() {
        let slice =
            |driver: &str| json!({"spec": {"driver": driver, "devices": [{"name": "a"}, {"name": "b"}]}});
        let device = json!({"driver": GPU_DRIVER, "device": "a"});
        let claim = json!({"status": {"allocation": {"devices": {"results": [device]}}}});
        let mut counts = Counts::default();
        for slice in [slice(GPU_DRIVER), slice("other.example.com")] {
            counts.add(&serde_json::from_value::<SliceObject>(slice).unwrap().counts());
        }
        for claim in [claim, json!({"status": {}}), json!({})] {
            counts.add(&serde_json::from_value::<ClaimObject>(claim).unwrap().counts());
        }
        assert_eq!((counts.gpus, counts.gpus_allocated), (2, 1));
    }
}

//! A stand-in for cluster-autoscaler and Karpenter, which reads what they read.
//!
//! Scale-up: pods without a node whose condition `PodScheduled` is `False` with the reason `Unschedulable`, and which have no
//! nominated node. Their requests and node selectors are placed together, on free capacity first; the rest gets new nodes.
//! Annotations and device claims are not read. Scale-down: a node of its own with less than half of its GPUs in use is
//! drained by evictions, unless one of its pods is annotated with `karpenter.sh/do-not-disrupt`, and deleted when it is empty.
//! [`record`] keeps every state of the cluster, so that a test can ask how many nodes a look at any of them would have caused.
//! Not here: prices, node types, daemon sets, disruption budgets of Karpenter's node pools.

use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, NODE, POD, RESOURCE_SLICE};
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_sim::{NodeGroup, node};
use kai_units::{Quantity, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const PERIOD: Duration = Duration::from_secs(5);
/// Time from the decision to a ready node.
const STARTUP: Duration = Duration::from_secs(20);
/// Nodes are not removed before this age: both autoscalers wait until a new node could have been used.
const AGE_MIN: Duration = Duration::from_mins(5);
/// Only its own nodes are removed.
const OWN: &str = "autoscaler";
const RESOURCES: [&str; 3] = ["cpu", "memory", "nvidia.com/gpu"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleDown {
    Enabled,
    Disabled,
}

/// Runs until it is dropped.
pub(crate) fn start(api: &Api, clock: Clock, template: NodeGroup, scale_down: ScaleDown) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let autoscaler = Autoscaler { api: api.clone(), clock, template };
    tasks.spawn(async move {
        let mut made = 0;
        loop {
            tokio::time::sleep(PERIOD).await;
            let wanted = autoscaler.missing_nodes().await;
            if wanted > 0 {
                tokio::time::sleep(STARTUP).await;
            }
            for _ in 0..wanted {
                autoscaler.add_node(made).await;
                made += 1;
            }
            if scale_down == ScaleDown::Enabled {
                autoscaler.remove_nodes().await;
            }
        }
    });
    tasks
}

struct Autoscaler {
    api: Api,
    clock: Clock,
    template: NodeGroup,
}

type Amounts = BTreeMap<&'static str, i128>;

impl Autoscaler {
    async fn pods(&self) -> Vec<Value> {
        let pods = self.api.list_dynamic(&POD, "").await.unwrap().items;
        pods.into_iter().filter(|pod| !object::is_terminal(pod) && !object::is_deleting(pod)).collect()
    }

    async fn missing_nodes(&self) -> usize {
        let nodes = self.api.list_dynamic(&NODE, "").await.unwrap().items;
        missing_nodes(&self.pods().await, &nodes, &self.template)
    }

    async fn add_node(&self, number: usize) {
        let mut new = node::node(&self.template, number, &self.clock.time());
        new["metadata"]["labels"][OWN] = json!("true");
        let new = self.api.create_dynamic(&NODE, "", &new).await.unwrap();
        if self.template.dra {
            let slice = node::slice(&self.template, &new);
            self.api.create_dynamic(&RESOURCE_SLICE, "", &slice).await.unwrap();
        }
    }

    async fn remove_nodes(&self) {
        let pods = self.pods().await;
        for node in self.api.list_dynamic(&NODE, "").await.unwrap().items {
            let created: Timestamp = object::meta_str(&node, "creationTimestamp").parse().unwrap();
            let age = Timestamp(self.clock.now().as_microsecond()) - created;
            let is_new = i128::from(age.0) < i128::try_from(AGE_MIN.as_micros()).unwrap();
            if node["metadata"]["labels"].get(OWN).is_none() || is_new {
                continue;
            }
            let own: Vec<&Value> = on_node(&pods, object::name(&node)).collect();
            if own.is_empty() {
                let key = Key::new("", object::name(&node));
                self.api.delete_dynamic(&NODE, &key, &DeleteOptions::default()).await.unwrap();
                continue;
            }
            let gpus = |pod: &&Value| requests(pod)["nvidia.com/gpu"];
            let used: i128 = own.iter().map(gpus).sum();
            let is_underused = used * 2 < amounts(&node["status"]["allocatable"])["nvidia.com/gpu"];
            if !is_underused || own.iter().any(|pod| must_not_be_disrupted(pod)) {
                continue;
            }
            for pod in own {
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": object::name(pod), "namespace": object::namespace(pod)},
                });
                let path = POD.path_of(&kai_runtime::key_of(pod)) + "/eviction";
                // Refused where a disruption budget protects the pod.
                let _ = self.api.send("POST", &path, Some(("application/json", &eviction))).await;
            }
        }
    }
}

/// How many nodes the unschedulable pods need besides the free capacity.
fn missing_nodes(pods: &[Value], nodes: &[Value], template: &NodeGroup) -> usize {
    // The provider knows the GPUs of a machine, however its node publishes them.
    let new = node::node(&NodeGroup { dra: false, ..template.clone() }, 0, "");
    let (labels, size) = (new["metadata"]["labels"].clone(), amounts(&new["status"]["allocatable"]));
    let capacity = |node: &Value| {
        let is_own = node["metadata"]["labels"].get(OWN).is_some();
        // Until its GPUs are published and used, a node of its own has what was ordered.
        let is_fresh = is_own && on_node(pods, object::name(node)).next().is_none();
        if is_fresh { size.clone() } else { amounts(&node["status"]["allocatable"]) }
    };
    let with_free = |node: &Value| {
        let mut amounts = capacity(node);
        for pod in on_node(pods, object::name(node)) {
            take(&mut amounts, &requests(pod));
        }
        (node["metadata"]["labels"].clone(), amounts)
    };
    let mut free: Vec<(Value, Amounts)> = nodes.iter().map(with_free).collect();
    for pod in pods.iter().filter(|pod| is_unschedulable(pod)) {
        let wanted = requests(pod);
        let fits = |(labels, free): &(Value, Amounts)| selects(pod, labels) && covers(free, &wanted);
        if let Some((_, free)) = free.iter_mut().find(|entry| fits(entry)) {
            take(free, &wanted);
        } else if fits(&(labels.clone(), size.clone())) {
            let mut left = size.clone();
            take(&mut left, &wanted);
            free.push((labels.clone(), left));
        }
    }
    free.len() - nodes.len()
}

/// Every change of pods and nodes while it lives.
pub(crate) struct Recording {
    changes: Arc<Mutex<BTreeMap<u64, Change>>>,
    _watches: JoinSet<()>,
}

struct Change {
    is_node: bool,
    is_deletion: bool,
    object: Value,
}

/// Watches all pods and nodes. The embedded API server counts revisions of all objects together, so that they order the
/// changes of both kinds.
pub(crate) fn record(api: &Api) -> Recording {
    let changes: Arc<Mutex<BTreeMap<u64, Change>>> = Arc::default();
    let mut watches = JoinSet::new();
    for kind in [POD, NODE] {
        let (api, changes, is_node) = (api.clone(), Arc::clone(&changes), kind == NODE);
        watches.spawn(async move {
            let health = Health::default().watch("recorded");
            let store = |object: Value, is_deletion: bool| {
                let revision = object::meta_str(&object, "resourceVersion").parse().unwrap();
                changes.lock().insert(revision, Change { is_node, is_deletion, object });
            };
            let handle = |event: WatchEvent<Value>| match event {
                WatchEvent::Listed(objects, _) => objects.into_iter().for_each(|object| store(object, false)),
                WatchEvent::Applied(object) => store(object, false),
                WatchEvent::Deleted(object) => store(object, true),
                WatchEvent::Invalid(_) | WatchEvent::Denied => panic!("the watch is not readable"),
            };
            watch::list_and_watch_as(&api, &Source::all(kind), &health, |object: Value| object, handle).await;
        });
    }
    Recording { changes, _watches: watches }
}

impl Recording {
    /// The most nodes that there would be if the autoscaler had looked at the cluster after any one of the changes, and
    /// the pods and nodes at that time.
    pub(crate) fn most_nodes(&self, template: &NodeGroup) -> (usize, String) {
        let (mut pods, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        let mut most = (0, String::new());
        for (revision, change) in &*self.changes.lock() {
            let objects = if change.is_node { &mut nodes } else { &mut pods };
            let key = kai_runtime::key_of(&change.object);
            if change.is_deletion {
                objects.remove(&key);
            } else {
                objects.insert(key, change.object.clone());
            }
            let counts = |pod: &&Value| !object::is_terminal(pod) && !object::is_deleting(pod);
            let active: Vec<Value> = pods.values().filter(counts).cloned().collect();
            let existing: Vec<Value> = nodes.values().cloned().collect();
            let wanted = existing.len() + missing_nodes(&active, &existing, template);
            if wanted > most.0 {
                let state = |pod: &Value| {
                    let node = object::str_at(pod, "/spec/nodeName");
                    format!(
                        "\n{} node={node} unschedulable={}",
                        kai_runtime::key_of(pod),
                        is_unschedulable(pod)
                    )
                };
                let pods: String = active.iter().map(state).collect();
                most = (wanted, format!("{} nodes at revision {revision}:{pods}", existing.len()));
            }
        }
        most
    }
}

pub(crate) fn must_not_be_disrupted(pod: &Value) -> bool {
    pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
}

fn on_node<'a>(pods: &'a [Value], node: &'a str) -> impl Iterator<Item = &'a Value> {
    pods.iter().filter(move |pod| object::str_at(pod, "/spec/nodeName") == node)
}

fn is_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let scheduled = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
    object::str_at(pod, "/spec/nodeName").is_empty()
        && object::str_at(pod, "/status/nominatedNodeName").is_empty()
        && scheduled.is_some_and(|found| found["status"] == "False" && found["reason"] == "Unschedulable")
}

fn amount(value: &Value) -> i128 {
    value.as_str().and_then(|text| text.parse::<Quantity>().ok()).map_or(0, Quantity::nanos)
}

fn amounts(list: &Value) -> Amounts {
    RESOURCES.into_iter().map(|name| (name, amount(&list[name]))).collect()
}

/// What the containers request.
fn requests(pod: &Value) -> Amounts {
    let mut total: Amounts = RESOURCES.into_iter().map(|name| (name, 0)).collect();
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        for name in RESOURCES {
            let value = resources["requests"].get(name).unwrap_or(&resources["limits"][name]);
            *total.entry(name).or_default() += amount(value);
        }
    }
    total
}

fn selects(pod: &Value, labels: &Value) -> bool {
    let selector = pod["spec"]["nodeSelector"].as_object();
    selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

fn covers(free: &Amounts, wanted: &Amounts) -> bool {
    wanted.iter().all(|(name, amount)| free[name] >= *amount)
}

fn take(from: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        *from.entry(name).or_default() -= amount;
    }
}

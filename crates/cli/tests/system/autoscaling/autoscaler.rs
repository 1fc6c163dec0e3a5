//! A stand-in for cluster-autoscaler and Karpenter, which reads what they read.
//!
//! Scale-up: pods without a node whose condition `PodScheduled` is `False` with the reason `Unschedulable`, and which have no
//! nominated node. Their requests and node selectors are placed together, on free capacity first; the rest gets new nodes.
//! Annotations and device claims are not read. Scale-down: a node of its own with less than half of its GPUs in use is
//! drained by evictions, unless one of its pods is annotated with `karpenter.sh/do-not-disrupt`, and deleted when it is empty.
//! Not here: prices, node types, daemon sets, disruption budgets of Karpenter's node pools.

use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{Key, NODE, POD};
use kai_sim::{NodeGroup, node};
use kai_units::{Quantity, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

    /// How many nodes the unschedulable pods need besides the free capacity.
    async fn missing_nodes(&self) -> usize {
        let (pods, nodes) = (self.pods().await, self.api.list_dynamic(&NODE, "").await.unwrap().items);
        let mut free: Vec<(Value, Amounts)> = nodes
            .into_iter()
            .map(|node| {
                let mut amounts = amounts(&node["status"]["allocatable"]);
                for pod in on_node(&pods, object::name(&node)) {
                    take(&mut amounts, &requests(pod));
                }
                (node["metadata"]["labels"].clone(), amounts)
            })
            .collect();
        let new = node::node(&self.template, 0, &self.clock.time());
        let (labels, size) = (new["metadata"]["labels"].clone(), amounts(&new["status"]["allocatable"]));
        let existing = free.len();
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
        free.len() - existing
    }

    async fn add_node(&self, number: usize) {
        let mut new = node::node(&self.template, number, &self.clock.time());
        new["metadata"]["labels"][OWN] = json!("true");
        self.api.create_dynamic(&NODE, "", &new).await.unwrap();
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

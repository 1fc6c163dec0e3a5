//! What `kai what-if` predicts and what happens then, on random clusters.
//!
//! A cluster gets ten questions in a row: a submitted group, a changed bound of a queue, or a drained node. Each is asked
//! first and done then, and everything that was predicted is compared: who starts, on which nodes, who is evicted, and what
//! the queues hold. Evicted pods are created again under their names, as a StatefulSet does.
//! `KAI_WHAT_IF_SEEDS=100..200` selects other clusters.

use crate::fault_injection::{in_virtual_time, seeds_from};
use crate::test_cluster::{PodBuilder, TestCluster, json_merge};
use kai_api::well_known::annotation::SHARED_GPU_CONFIG_MAP;
use kai_cache::Object;
use kai_cache::object::{Pod, PodGroup};
use kai_components::ComponentOptions;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_engine::verdict::QueueResource;
use kai_engine::{Cycle, Decision, Outcome};
use kai_object as object;
use kai_runtime::kind::{NODE, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::NodeGroup;
use kai_units::Timestamp;
use kai_view::what_if::{Question, WhatIfView, predict};
use kai_view::{ClusterReader, ClusterView};
use kai_whatif::{Bound, Change};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CASES: usize = 10;
const QUEUES: [&str; 3] = ["red", "green", "blue"];
const SCHEDULER: &str = "kai-scheduler";
const WHOLE_GPU: i64 = 1_000_000;

#[test]
fn predictions_agree_with_what_happens() {
    run_seeds(0..5);
}

#[test]
#[ignore = "takes long: cargo xtask ci runs it; KAI_WHAT_IF_SEEDS=100..200 selects the seeds"]
fn predictions_of_further_seeds_agree_with_what_happens() {
    run_seeds(seeds_from("KAI_WHAT_IF_SEEDS", 5..10));
}

/// At least 99.5 % of the predictions come true.
fn run_seeds(seeds: std::ops::Range<u64>) {
    let (mut cases, mut differing) = (0, Vec::new());
    for seed in seeds {
        let found = in_virtual_time(run(seed));
        cases += CASES;
        differing.extend(found.into_iter().map(|text| format!("seed {seed}: {text}")));
    }
    for text in &differing {
        eprintln!("{text}");
    }
    eprintln!("{cases} predictions, {} did not come true", differing.len());
    assert!(
        1_000 * differing.len() <= 5 * cases,
        "{} of {cases} predictions did not come true",
        differing.len()
    );
}

/// A cluster and what was submitted to it.
struct World {
    cluster: TestCluster,
    state: u64,
    /// The pods that their owner wants, by name.
    pods: BTreeMap<String, Value>,
    /// Groups, the oldest first, with their queues.
    groups: Vec<(String, &'static str)>,
    bounds: BTreeMap<&'static str, (i64, i64)>,
}

async fn run(seed: u64) -> Vec<String> {
    let mut world = World::new(seed).await;
    let mut differing = Vec::new();
    for case in 0..CASES {
        let found = world.case(case).await;
        differing.extend(found.into_iter().map(|text| format!("case {case}: {text}")));
        while world.groups.len() > 6 || (world.drawn(3) == 0 && !world.groups.is_empty()) {
            let (group, _) = world.groups.remove(0);
            world.end(&group).await;
        }
        world.settle().await;
    }
    differing
}

/// What is compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Nodes of the pods that are asked about, by group: its pods are alike, and their uids decide which is first.
    nodes: BTreeMap<String, Vec<String>>,
    evicted: BTreeSet<String>,
    /// Millionths of GPUs by queue, where nothing is evicted.
    allocated: BTreeMap<String, i64>,
}

impl Facts {
    /// The prediction is that of the next cycle. Where pods are evicted, further cycles may start more pods of an elastic
    /// group, and evict for them; else everything is predicted.
    fn came_true(&self, happened: &Self) -> bool {
        if self.evicted.is_empty() {
            return self == happened;
        }
        let all_started = self.nodes.iter().all(|(group, nodes)| {
            let mut left = happened.nodes.get(group).cloned().unwrap_or_default();
            nodes.iter().all(|node| left.iter().position(|of| of == node).map(|at| left.remove(at)).is_some())
        });
        all_started && self.evicted.is_subset(&happened.evicted)
    }
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let nodes = 2 + drawn(&mut state, 3) as usize;
        let gpus = [4, 8][drawn(&mut state, 2) as usize];
        let options = ComponentOptions::simulated();
        let cluster = TestCluster::with_options(seed, [NodeGroup::gpu_nodes(nodes, gpus)], &options).await;
        let mut world =
            Self { cluster, state, pods: BTreeMap::new(), groups: Vec::new(), bounds: BTreeMap::new() };
        for queue in QUEUES {
            let (quota, limit) = (world.drawn(8), [-1, -1, 6, 12][world.drawn(4) as usize]);
            let gpu = json!({"quota": quota, "limit": limit, "overQuotaWeight": 1 + world.drawn(2)});
            world.cluster.create_queue_under(Some("teams"), queue, &gpu, json!({})).await;
            world.bounds.insert(queue, (quota, limit));
        }
        for number in 0..3 {
            let (group, objects) = world.group(&format!("first{number}"));
            world.submit(group, objects).await;
        }
        world.settle().await;
        world
    }

    fn drawn(&mut self, bound: u64) -> i64 {
        drawn(&mut self.state, bound) as i64
    }

    /// A group and its pods, the group first.
    fn group(&mut self, name: &str) -> ((String, &'static str), Vec<Value>) {
        let queue = QUEUES[self.drawn(3) as usize];
        let pods = 1 + self.drawn(3) as usize;
        let class = ["train", "train", "build", "inference"][self.drawn(4) as usize];
        let least = if self.drawn(4) == 0 { 1 } else { pods };
        let (is_shared, gpus) = (self.drawn(4) == 0, 1 + self.drawn(4) as u32);
        let part = ["0.5", "0.3"][self.drawn(2) as usize];
        let mut objects = vec![json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {"minMember": least, "queue": queue, "priorityClassName": class},
        })];
        for number in 0..pods {
            let pod = format!("{name}-{number}");
            let built = if is_shared {
                PodBuilder::unprepared_fraction(&pod, queue, part)
                    .annotation(SHARED_GPU_CONFIG_MAP, &format!("{pod}-shared-gpu"))
            } else {
                PodBuilder::new(&pod, queue, gpus)
            };
            objects.push(built.pod_group(name).object);
        }
        ((name.to_owned(), queue), objects)
    }

    async fn submit(&mut self, group: (String, &'static str), objects: Vec<Value>) {
        let mut objects = objects.into_iter();
        if let Some(object) = objects.next() {
            self.cluster.create(&POD_GROUP, object).await;
        }
        for pod in objects {
            self.cluster.create(&POD, pod.clone()).await;
            self.pods.insert(object::name(&pod).to_owned(), pod);
        }
        self.groups.push(group);
    }

    async fn end(&mut self, group: &str) {
        let prefix = format!("{group}-");
        let pods: Vec<String> = self.pods.keys().filter(|pod| pod.starts_with(&prefix)).cloned().collect();
        for pod in pods {
            self.pods.remove(&pod);
            self.cluster.delete(&POD, &pod).await;
        }
        self.cluster.delete(&POD_GROUP, group).await;
    }

    /// Creates pods again that were deleted, until nothing changes for ten seconds. Returns the pods that were.
    async fn settle(&mut self) -> BTreeSet<String> {
        let (mut deleted, mut quiet, mut before) = (BTreeSet::new(), 0, String::new());
        for _ in 0..600 {
            self.cluster.sleep(Duration::from_millis(500)).await;
            let all = self.cluster.list(&POD).await;
            deleted.extend(self.create_deleted(&all).await);
            let mut lines: Vec<String> = all
                .iter()
                .map(|pod| {
                    let text = |field| object::str_at(pod, field);
                    format!("{} {} {}", object::uid(pod), text("/spec/nodeName"), text("/status/phase"))
                })
                .collect();
            lines.sort();
            let now = lines.join("\n");
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            if quiet == 20 {
                break;
            }
        }
        deleted
    }

    /// Creates the pods that are not among these, and returns their names.
    async fn create_deleted(&self, all: &[Value]) -> Vec<String> {
        let present: BTreeSet<&str> = all.iter().map(object::name).collect();
        let mut created = Vec::new();
        for (name, pod) in self.pods.iter().filter(|(name, _)| !present.contains(name.as_str())) {
            self.cluster.create(&POD, pod.clone()).await;
            created.push(name.clone());
        }
        created
    }

    async fn case(&mut self, case: usize) -> Option<String> {
        match self.drawn(8) {
            6 => self.bound().await,
            7 => self.drain().await,
            _ => self.submission(case).await,
        }
    }

    async fn submission(&mut self, case: usize) -> Option<String> {
        let (group, objects) = self.group(&format!("case{case}"));
        let now = self.cluster.backend.clock().time();
        let (mut changes, mut asked) = (Vec::new(), BTreeSet::new());
        for (at, object) in objects.iter().enumerate() {
            let mut complete = object.clone();
            let name = object::name(object).to_owned();
            let meta =
                json!({"namespace": "default", "uid": format!("what-if-{name}"), "creationTimestamp": now});
            json_merge(&mut complete["metadata"], &meta);
            let put: Object = if at == 0 {
                serde_json::from_value::<PodGroup>(complete).unwrap().into()
            } else {
                complete["status"] = json!({"phase": "Pending"});
                default_requests(&mut complete);
                asked.insert(name);
                serde_json::from_value::<Pod>(complete).unwrap().into()
            };
            changes.push(Change::Put(Box::new(put)));
        }
        let predicted = self.predict(&changes, &[Key::new("default", group.0.as_str())], &asked).await;
        let what = format!("{group:?} {}", json!(objects));
        self.submit(group, objects).await;
        let evicted = self.settle().await;
        self.compare(&what, &asked, predicted, evicted).await
    }

    /// A queue gets another quota or limit.
    async fn bound(&mut self) -> Option<String> {
        let queue = QUEUES[self.drawn(3) as usize];
        let (quota, limit) = self.bounds[queue];
        let (bound, from) = if self.drawn(2) == 0 { (Bound::Quota, quota) } else { (Bound::Limit, limit) };
        let to = self.drawn(16);
        let amount = |gpus: i64| (gpus >= 0).then_some(gpus * WHOLE_GPU);
        let change = Change::QueueBound {
            queue: queue.to_owned(),
            bound,
            resource: QueueResource::Gpu,
            from: amount(from),
            to: amount(to),
        };
        let asked: BTreeSet<String> = self.pods.keys().cloned().collect();
        let what = format!("{change:?}");
        let predicted = self.predict(&[change], &[], &asked).await;
        let field = if bound == Bound::Quota { "quota" } else { "limit" };
        self.cluster.patch(&QUEUE, queue, &json!({"spec": {"resources": {"gpu": {field: to}}}})).await;
        let known = if bound == Bound::Quota { (to, limit) } else { (quota, to) };
        self.bounds.insert(queue, known);
        let evicted = self.settle().await;
        self.compare(&what, &asked, predicted, evicted).await
    }

    /// A node is drained, and can be used again afterwards.
    async fn drain(&mut self) -> Option<String> {
        let node = self.cluster.node_name(1);
        let bound = self.cluster.bound_pods("").await;
        let drained: BTreeSet<String> = bound
            .into_iter()
            .filter(|(pod, on)| *on == node && self.pods.contains_key(pod))
            .map(|(pod, _)| pod)
            .collect();
        // A pod that is created again is younger than a pending one of its group, which may start instead.
        let groups: BTreeSet<String> = drained.iter().map(|pod| group_of(pod)).collect();
        let asked: BTreeSet<String> =
            self.pods.keys().filter(|pod| groups.contains(&group_of(pod))).cloned().collect();
        let change = Change::Drain { node: node.clone() };
        let predicted = self.predict(&[change], &[], &asked).await;
        // The prediction is that of one cycle, so the scheduler sees all pods at once.
        self.cluster.backend.faults().partition(SCHEDULER);
        self.cluster.patch(&NODE, &node, &json!({"spec": {"unschedulable": true}})).await;
        for pod in &drained {
            self.cluster.delete(&POD, pod).await;
        }
        self.cluster.sleep(Duration::from_secs(2)).await;
        self.create_deleted(&self.cluster.list(&POD).await).await;
        self.cluster.backend.faults().heal(SCHEDULER);
        let mut evicted = self.settle().await;
        evicted.retain(|pod| !drained.contains(pod));
        let what = format!("drain of {node} with {drained:?}");
        let found = self.compare(&what, &asked, predicted, evicted).await;
        self.cluster.patch(&NODE, &node, &json!({"spec": {"unschedulable": null}})).await;
        self.settle().await;
        found
    }

    /// What `kai what-if` says.
    async fn predict(&self, changes: &[Change], submitted: &[Key], asked: &BTreeSet<String>) -> Facts {
        let api = self.cluster.api();
        let offered = kai_scheduler::resources::discover(api).await.unwrap();
        let options = ComponentOptions::simulated().scheduler;
        let reader = ClusterReader::open(api, offered, options, &PluginSet::builtin()).await.unwrap();
        let (mut view, policy) = reader.into_parts();
        // The reader has the time of the machine.
        view.now = Timestamp(self.cluster.backend.clock().now().as_microsecond());
        view.outcome = kai_engine::plan(&mut view.cluster, &policy, Cycle { now: view.now, seed: 0 });
        let before = places(&view);
        let question = Question { changes, submitted, policy: None };
        let (answer, outcome) = predict(&mut view, &policy, &question);
        facts(&answer, &outcome, &before, asked)
    }

    async fn compare(
        &self,
        what: &str,
        asked: &BTreeSet<String>,
        predicted: Facts,
        evicted: BTreeSet<String>,
    ) -> Option<String> {
        let mut happened = Facts { evicted, ..Facts::default() };
        for pod in self.cluster.list(&POD).await {
            let (name, node) = (object::name(&pod), object::str_at(&pod, "/spec/nodeName"));
            if node.is_empty() || !self.pods.contains_key(name) {
                continue;
            }
            if asked.contains(name) {
                happened.nodes.entry(group_of(name)).or_default().push(node.to_owned());
            }
            let queue = object::str_at(&pod, "/metadata/labels/kai.scheduler~1queue");
            *happened.allocated.entry(queue.to_owned()).or_insert(0) += gpus(&pod);
        }
        for nodes in happened.nodes.values_mut() {
            nodes.sort();
        }
        (!predicted.came_true(&happened)).then(|| {
            format!("{what}\n  predicted {predicted:?}\n  happened  {happened:?}\n{}", indented(&self.pods))
        })
    }
}

/// What is limited and not requested is requested as well, as the API server sets it.
fn default_requests(pod: &mut Value) {
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    for (name, limit) in limits {
        if resources["requests"][&name].is_null() {
            resources["requests"][&name] = limit;
        }
    }
}

/// A number by seed, below a bound.
fn drawn(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// Nodes of the pods that have one.
fn places(view: &ClusterView) -> BTreeMap<String, String> {
    let pods = view.store.objects().pods.values();
    let placed = pods.filter(|pod| !pod.spec.node_name.is_empty());
    placed.map(|pod| (pod.metadata.name.to_string(), pod.spec.node_name.to_string())).collect()
}

fn facts(
    answer: &WhatIfView,
    outcome: &Outcome,
    before: &BTreeMap<String, String>,
    asked: &BTreeSet<String>,
) -> Facts {
    let mut nodes = BTreeMap::new();
    let mut evicted = BTreeSet::new();
    for decision in &outcome.decisions {
        let name = decision.pod().name.clone();
        match decision {
            Decision::Bind(bind) => nodes.insert(name, bind.node.clone()),
            Decision::Pipeline { node, .. } => nodes.insert(name, node.clone()),
            Decision::Evict { .. } => {
                evicted.insert(name.clone());
                continue;
            }
        };
    }
    let is_drained = |node: &str| answer.changes.iter().any(|change| *change == format!("drain `{node}`"));
    for (pod, node) in before {
        if !evicted.contains(pod) && !is_drained(node) {
            nodes.entry(pod.clone()).or_insert_with(|| node.clone());
        }
    }
    nodes.retain(|pod, _| asked.contains(pod));
    let mut by_group: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pod, node) in nodes {
        by_group.entry(group_of(&pod)).or_default().push(node);
    }
    for nodes in by_group.values_mut() {
        nodes.sort();
    }
    let held = |name: &str| {
        let queue = answer.queues.iter().find(|queue| queue.queue == name);
        queue.map_or(0, |queue| queue.resources.gpu.with.value)
    };
    let allocated = QUEUES.iter().map(|queue| ((*queue).to_owned(), held(queue)));
    Facts { nodes: by_group, evicted, allocated: allocated.filter(|(_, held)| *held > 0).collect() }
}

/// The group of `GROUP-NUMBER`.
fn group_of(pod: &str) -> String {
    pod.rsplit_once('-').map_or(pod, |(group, _)| group).to_owned()
}

/// What a pod requests, in millionths of a GPU.
fn gpus(pod: &Value) -> i64 {
    if let Some(part) = pod["metadata"]["annotations"]["gpu-fraction"].as_str() {
        return (part.parse::<f64>().unwrap_or(0.0) * WHOLE_GPU as f64).round() as i64;
    }
    let limit = &pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"];
    limit.as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0) * WHOLE_GPU
}

fn indented(pods: &BTreeMap<String, Value>) -> String {
    let line = |(name, pod): (&String, &Value)| format!("    {name}: {} millionths of a GPU", gpus(pod));
    pods.iter().map(line).collect::<Vec<_>>().join("\n")
}

//! Builds an engine cluster from recorded jobs, tasks and nodes.
//!
//! Requests, statuses and free amounts of a record are used as they are, even where no Kubernetes object can express
//! them; labels and the like are read from the recorded Kubernetes object.

use super::inputs::{amount_list, numa_topology};
use super::record::{list, map, number, text, whole};

use kai_cache::cel::Selectors;
use kai_cache::object::{self, BindRequest, Kind};
use kai_cache::translate::{self, affinity::Namespaces, device::Slices};
use kai_cache::{Report, Settings};
use kai_engine::ClusterState;
use kai_engine::cluster::node::DeviceUse;
use kai_engine::cluster::node::NodeLedger;
use kai_engine::cluster::pod::Status;
use kai_engine::ids::{GroupIdx, NodeIdx, PodIdx};
use kai_engine::input::{
    self, AmountList, GpuMemory, GpuRequest, GroupInput, Key, MigStrategy, NodeInput, PodInput, PodPhase,
    SubGroupInput, TopologyConstraint, WHOLE_GPU,
};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig, Policy};
use kai_engine::{Cycle, Delta, plan};
use kai_units::{Span, Timestamp, duration};
use serde_json::Value;
use std::collections::BTreeMap;

/// The time of every recorded call.
pub(super) const NOW: Timestamp = Timestamp(2_000_000_000_000_000);
/// Groups and their pods share one namespace, so that names alone order groups.
const NAMESPACE: &str = "recorded";
const GPU_COUNT: &str = "nvidia.com/gpu.count";

pub(super) struct RecordedCluster {
    pub(super) cluster: ClusterState,
    pub(super) policy: Policy,
    pods: Vec<(Key, String, PodOverrides)>,
    nodes: Vec<(String, Value)>,
}

/// Recorded state of a pod that no Kubernetes object can express.
struct PodOverrides {
    status: Option<Status>,
    claim_gpus: Option<i64>,
    is_virtual: bool,
}

impl RecordedCluster {
    /// An empty cluster under a policy with some plugins and their arguments.
    pub(super) fn new(plugins: &[(&str, &Value)]) -> Self {
        let plugins = plugins.iter().map(|(name, arguments)| PluginConfig {
            name: (*name).to_owned(),
            arguments: map(arguments).map(|(k, v)| (k.clone(), text(v).to_owned())).collect(),
            disabled: Vec::new(),
        });
        let config = Config { actions: Vec::new(), plugins: plugins.collect(), ..Config::default() };
        let policy = Policy::resolve(&config, &Params::default(), &PluginSet::builtin());
        Self { cluster: ClusterState::new(), policy, pods: Vec::new(), nodes: Vec::new() }
    }

    pub(super) fn job_key(job: &Value) -> Key {
        let id = [&job["uid"], &job["name"]].map(text).into_iter().find(|id| !id.is_empty()).unwrap_or("job");
        Key::new(NAMESPACE, id)
    }

    /// Adds a recorded job with its tasks; returns its key.
    pub(super) fn add_job(&mut self, job: &Value) -> Key {
        let key = Self::job_key(job);
        self.cluster.apply(Delta::Group(Box::new(group(job, &key))));
        let statuses: BTreeMap<&str, &str> = map(&job["status_index"])
            .flat_map(|(status, tasks)| list(tasks).map(move |task| (text(task), status.as_str())))
            .collect();
        let mut sets = Vec::new();
        pod_sets(tree_of(job), &mut sets);
        for set in sets {
            for task in list(&set["tasks"]) {
                let status = match text(&task["status"]) {
                    "Unknown" | "" => statuses.get(text(&task["uid"])).copied().unwrap_or("Pending"),
                    status => status,
                };
                self.add_task(task, status, Some(&key), text(&set["name"]));
            }
        }
        key
    }

    /// Adds a recorded task with a status; returns its key.
    pub(super) fn add_task(&mut self, task: &Value, status: &str, group: Option<&Key>, pod_set: &str) -> Key {
        let id =
            [&task["uid"], &task["name"]].map(text).into_iter().find(|id| !id.is_empty()).unwrap_or("task");
        let owner = group.map_or("", |key| key.name.as_str());
        let key = Key::new(NAMESPACE, format!("{owner}/{id}/{}", self.pods.len()));
        let mut pod = described(&task["pod"]);
        pod.key = key.clone();
        id.clone_into(&mut pod.uid);
        pod.group = group.map(|key| key.name.clone());
        pod.sub_group = (!pod_set.is_empty()).then(|| pod_set.to_owned());
        pod.phase = phase(status);
        pod.node = task["node"].as_str().map(str::to_owned);
        pod.gpu_groups = list(&task["gpu_groups"]).map(|group| text(group).to_owned()).collect();
        pod.spec.gpu = gpu_request(task);
        pod.spec.request = request(task, pod.spec.gpu);
        pod.spec.legacy_mig = task["legacy_mig"].as_bool() == Some(true);
        pod.claims.clear();
        self.cluster.apply(Delta::Pod(Box::new(pod)));
        let devices: i64 = map(&task["gpu"]["dra"]).map(|(_, count)| whole(count)).sum();
        let overrides = PodOverrides {
            status: (status == "Allocated").then_some(Status::Allocated),
            claim_gpus: Some(devices.saturating_mul(WHOLE_GPU)),
            is_virtual: task["virtual_status"].as_bool() == Some(true),
        };
        self.pods.push((key.clone(), id.to_owned(), overrides));
        key
    }

    /// Adds a pod as its object describes it; returns its key.
    pub(super) fn add_pod(&mut self, mut pod: PodInput) -> Key {
        pod.key = Key::new(NAMESPACE, format!("pod/{}", self.pods.len()));
        let key = pod.key.clone();
        let overrides = PodOverrides { status: None, claim_gpus: None, is_virtual: false };
        self.pods.push((key.clone(), pod.uid.clone(), overrides));
        self.cluster.apply(Delta::Pod(Box::new(pod)));
        key
    }

    /// Adds a recorded device claim.
    pub(super) fn add_claim(&mut self, claim: &Value) {
        let Ok(object) = serde_json::from_value::<object::ResourceClaim>(claim.clone()) else { return };
        let key = Key::default();
        let mut report = Report::on(Kind::ResourceClaim, &key);
        let settings = Settings::default();
        let mut claim = translate::device::claim(
            &object,
            &Slices::default(),
            &mut Selectors::default(),
            &settings,
            &mut report,
        );
        NAMESPACE.clone_into(&mut claim.key.namespace);
        self.cluster.apply(Delta::Claim(Box::new(claim)));
    }

    /// Adds a recorded node, without the pods on it.
    pub(super) fn add_node(&mut self, node: &Value) {
        let name = text(&node["name"]).to_owned();
        self.cluster.apply(Delta::Node(Box::new(node_input(node))));
        self.nodes.push((name, node.clone()));
    }

    /// Refreshes derived state, then applies the recorded state of pods and nodes.
    pub(super) fn settle(&mut self) {
        plan(&mut self.cluster, &self.policy, Cycle { now: NOW, seed: 0 });
        for (key, _, overrides) in &self.pods {
            let Some(pod) = self.cluster.pod(key) else { continue };
            let p = &mut self.cluster.pods[pod];
            p.claim_gpus = overrides.claim_gpus.unwrap_or(p.claim_gpus);
            p.state.is_virtual = overrides.is_virtual;
            let (Some(status), was) = (overrides.status, p.state.status) else { continue };
            p.state.status = status;
            let (group, member) = (p.group, p.member);
            if let (Some(group), Some(member)) = (group, member)
                && let Some(set) = self.cluster.groups[group].members[member].pod_set_mut()
            {
                set.counts[was as usize] -= 1;
                set.counts[status as usize] += 1;
            }
        }
        for (name, recorded) in std::mem::take(&mut self.nodes) {
            let Some(index) = self.cluster.node(&name) else { continue };
            let ledger = self.ledger(index, &recorded);
            let node = &mut self.cluster.nodes[index];
            node.ledger = ledger;
            node.has_dra_gpus |= recorded["has_dra_gpus"].as_bool() == Some(true);
        }
    }

    fn ledger(&mut self, node: NodeIdx, recorded: &Value) -> NodeLedger {
        let mut ledger =
            NodeLedger { numa: self.cluster.nodes[node].ledger.numa.clone(), ..NodeLedger::default() };
        let cluster = &mut *self.cluster;
        let (dims, names) = (&mut cluster.dims, &mut cluster.names);
        let mut read = |key: &str| dims.offer(&amount_list(&recorded[key], &Value::Null), names);
        (ledger.idle, ledger.used, ledger.releasing) = (read("idle"), read("used"), read("releasing"));
        ledger.legacy_mig = list(&recorded["legacy_mig_tasks"]).count() as u32;
        let shared = &recorded["shared_gpus"];
        for (key, amounts) in map(shared) {
            for (group, value) in map(amounts) {
                if key == "dra_shared_device_refs" {
                    let uses = DeviceUse { active: whole(value) as u32, ..DeviceUse::default() };
                    ledger.devices.push((names.intern(group), uses));
                    continue;
                }
                let gpu = ledger.gpus.entry(names.intern(group));
                match key.as_str() {
                    "used_memory_mib" => gpu.used = whole(value),
                    "releasing_memory_mib" => gpu.releasing = whole(value),
                    "allocated_memory_mib" => (gpu.allocated, gpu.backed) = (whole(value), true),
                    "releasing_gpu_groups" => gpu.flagged = value.as_bool() == Some(true),
                    _ => {}
                }
            }
        }
        ledger
    }

    pub(super) fn id(&self, pod: PodIdx) -> String {
        self.cluster.text(self.cluster.pods[pod].uid).to_owned()
    }

    pub(super) fn pod(&self, key: &Key) -> PodIdx {
        self.cluster.pod(key).expect("added before")
    }

    pub(super) fn group(&self, key: &Key) -> GroupIdx {
        self.cluster.group(key).expect("added before")
    }

    pub(super) fn node(&self, name: &str) -> NodeIdx {
        self.cluster.node(name).expect("added before")
    }
}

/// A recorded Kubernetes pod, its times made absolute.
pub(super) fn pod_object(pod: &Value) -> Option<object::Pod> {
    let mut pod = pod.clone();
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(at) = pod["metadata"].get_mut(key) {
            *at = moment(at).map_or(Value::Null, |at| Value::String(at.to_string()));
        }
    }
    serde_json::from_value(pod).ok()
}

/// The input of a recorded Kubernetes pod; empty if there is none.
pub(super) fn described(pod: &Value) -> PodInput {
    described_with(pod, None)
}

/// The input of a recorded Kubernetes pod and its bind request.
pub(super) fn described_with(pod: &Value, bind: Option<&BindRequest>) -> PodInput {
    let Some(object) = pod_object(pod) else { return PodInput::default() };
    let (settings, namespaces, key) = (Settings::default(), Namespaces::default(), Key::default());
    let context = translate::pod::TranslationContext {
        bind,
        evicted: None,
        namespaces: &namespaces,
        settings: &settings,
    };
    translate::pod::translate(&object, context, &mut Report::on(Kind::Pod, &key)).unwrap_or_default()
}

/// The tree of a recorded job, or the pod sets of a job that was built without a tree.
pub(super) fn tree_of(job: &Value) -> &Value {
    if job["pod_sets"].is_null() { &job["pod_group"] } else { job }
}

/// All pod sets of a recorded tree.
pub(super) fn pod_sets<'a>(tree: &'a Value, into: &mut Vec<&'a Value>) {
    into.extend(list(&tree["pod_sets"]));
    for set in list(&tree["sub_group_sets"]) {
        pod_sets(set, into);
    }
}

fn group(job: &Value, key: &Key) -> GroupInput {
    let tree = tree_of(job);
    let mut sub_groups = Vec::new();
    sub_group_inputs(tree, None, &mut sub_groups);
    let spec = &job["pod_group_spec"];
    GroupInput {
        key: key.clone(),
        uid: key.name.clone(),
        queue: text(&job["queue"]).to_owned(),
        priority: whole(&job["priority"]) as i32,
        preemptible: text(&job["preemptibility"]) != "non-preemptible",
        created: moment(&job["created"]).unwrap_or_default(),
        min_sub_group: tree["min_sub_groups"].as_u64().map(|min| min as u32),
        topology: constraint(&tree["topology_constraint"]),
        sub_groups,
        last_start: moment(&job["last_start"]),
        last_eviction: moment(&job["last_eviction"]),
        stale_since: moment(&job["stale_since"]),
        preemption_delay: duration::parse_go(text(&spec["preemptionDelay"])).ok(),
        ..GroupInput::default()
    }
}

fn sub_group_inputs(tree: &Value, parent: Option<&str>, into: &mut Vec<SubGroupInput>) {
    let input = |set: &Value| SubGroupInput {
        name: text(&set["name"]).to_owned(),
        parent: parent.map(str::to_owned),
        min_member: set["min_available"].as_u64().map(|min| min as u32),
        min_sub_group: set["min_sub_groups"].as_u64().map(|min| min as u32),
        topology: constraint(&set["topology_constraint"]),
    };
    for set in list(&tree["sub_group_sets"]) {
        into.push(input(set));
        sub_group_inputs(set, Some(text(&set["name"])), into);
    }
    into.extend(list(&tree["pod_sets"]).map(input));
}

/// A recorded topology constraint.
pub(super) fn constraint(value: &Value) -> Option<TopologyConstraint> {
    let level = |key: &str| value[key].as_str().map(str::to_owned);
    (!value.is_null()).then(|| TopologyConstraint {
        topology: text(&value["topology"]).to_owned(),
        required: level("required_level"),
        preferred: level("preferred_level"),
    })
}

/// A recorded time: absolute, or a number of seconds before the call.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    let micros = |seconds: f64| (seconds * 1e6) as i64;
    let fixed = value["unix_s"].as_f64().map(|at| Timestamp(micros(at)));
    fixed.or_else(|| value["age_s"].as_f64().map(|age| NOW + Span(-micros(age) + whole(&value["rank"]))))
}

fn phase(status: &str) -> PodPhase {
    match status {
        "Gated" => PodPhase::Gated,
        "Pipelined" => PodPhase::Waiting,
        "Binding" => PodPhase::Binding,
        "Allocated" | "Bound" => PodPhase::Bound,
        "Running" => PodPhase::Running,
        "Releasing" => PodPhase::Releasing(NOW),
        "StuckInReleasing" => PodPhase::Releasing(NOW + Span::from_secs(-86_400)),
        "Succeeded" => PodPhase::Succeeded,
        "Failed" | "Deleted" => PodPhase::Failed,
        _ => PodPhase::Pending,
    }
}

fn gpu_request(task: &Value) -> GpuRequest {
    let gpu = &task["gpu"];
    let devices = whole(&gpu["devices"]) as u32;
    let hundredths = (number(&gpu["portion"]) * 100.0).round() as u32;
    let mib = whole(&gpu["memory_mib"]);
    let kind = text(&task["request_type"]);
    if kind == "MigInstance" || map(&gpu["mig"]).next().is_some() {
        GpuRequest::Mig
    } else if kind == "GpuMemory" || mib > 0 {
        GpuRequest::Memory { mib, devices }
    } else if kind == "Fraction" || (1..100).contains(&hundredths) {
        GpuRequest::Fraction { hundredths, devices }
    } else if gpu.is_null() || (devices == 0 && hundredths == 0) {
        let whole_gpus =
            number(&task["request"]["gpu"]) - map(&gpu["dra"]).map(|(_, n)| number(n)).sum::<f64>();
        if whole_gpus > 0.0 { GpuRequest::Whole(whole_gpus as u32) } else { GpuRequest::None }
    } else {
        GpuRequest::Whole(devices * hundredths / 100)
    }
}

fn request(task: &Value, gpu: GpuRequest) -> AmountList {
    let mut request = amount_list(&task["request"], &task["vector_map"]);
    request.retain(|(name, _)| name != input::GPU && name != input::PODS);
    let whole_gpus = match gpu {
        GpuRequest::Whole(count) => i64::from(count),
        GpuRequest::Mig => (number(&task["gpu"]["portion"]) * number(&task["gpu"]["devices"])) as i64,
        GpuRequest::None | GpuRequest::Fraction { .. } | GpuRequest::Memory { .. } => 0,
    };
    if whole_gpus > 0 || matches!(gpu, GpuRequest::Whole(_)) {
        request.push((input::GPU.to_owned(), whole_gpus * WHOLE_GPU));
    }
    request
}

fn node_input(node: &Value) -> NodeInput {
    let label = |key: &str| node["labels"][key].as_str();
    let mut labels: input::Labels =
        map(&node["labels"]).map(|(key, value)| (key.clone(), text(value).to_owned())).collect();
    labels.sort();
    NodeInput {
        name: text(&node["name"]).to_owned(),
        labels,
        allocatable: amount_list(&node["allocatable"], &node["vector_map"]),
        gpu_memory: GpuMemory {
            mib: node["gpu_memory_mib"].as_i64().unwrap_or(GpuMemory::default().mib),
            known: node["gpu_memory_synced"].as_bool() == Some(true),
        },
        gpu_count: label(GPU_COUNT).and_then(|count| count.parse().ok()),
        mig_strategy: match label("nvidia.com/mig.strategy") {
            Some("single") => MigStrategy::Single,
            Some("mixed") => MigStrategy::Mixed,
            _ => MigStrategy::None,
        },
        mig_enabled: label("node-role.kubernetes.io/mig-enabled").map(|value| value == "true"),
        gpu_worker: label("node-role.kubernetes.io/gpu-worker").is_some(),
        cpu_worker: label("node-role.kubernetes.io/cpu-worker").is_some(),
        numa: numa_topology(&node["numa_topology"]),
        ..NodeInput::default()
    }
}

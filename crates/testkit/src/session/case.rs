//! A recorded session: what the scheduler was configured with, what it saw, and what it did.
//!
//! Field names are the record's own; what is absent there has its documented default here.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One recorded session.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// `<area>/<name>`.
    pub id: String,
    /// The folder it lies in.
    pub area: String,
    /// What was run.
    pub run: Run,
    /// The cluster.
    pub input: Input,
    /// What must come out; absent where only the observation counts.
    pub expected: Option<Expected>,
    /// What came out.
    pub observed: Observed,
}

/// What was run.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// How the actions are run.
    pub mode: Mode,
    /// Action names in order.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Rounds before the comparison.
    #[serde(default)]
    pub rounds_until_match: usize,
    /// Rounds after it.
    #[serde(default)]
    pub rounds_after_match: usize,
    /// Device claims are understood.
    #[serde(default)]
    pub dynamic_resources_enabled: bool,
    /// Plugins in order.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// Arguments by plugin.
    #[serde(default)]
    pub plugin_arguments: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// Process parameters.
    pub scheduler_params: Params,
    /// Most groups of a queue per action.
    #[serde(default)]
    pub queue_depth_per_action: BTreeMap<String, usize>,
}

/// How the actions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Once.
    Single,
    /// Again and again, each time from what the last round left.
    Rounds,
    /// Not at all: only the checks of a pod before any node is tried.
    PrePredicate,
}

/// Process parameters.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the record has these switches")]
pub struct Params {
    /// Victims with another place do not count as reclaimed.
    pub allow_consolidating_reclaim: bool,
    /// Grace for gangs below their minimum.
    pub global_default_staleness_grace_period_s: i64,
    /// -1 is unlimited.
    pub max_number_consolidation_preemptees: i64,
    /// Roles separate CPU and GPU pods.
    pub restrict_node_scheduling: bool,
    /// Simulate CSI storage.
    pub schedule_csi_storage: bool,
    /// Skip groups that look like one that failed.
    pub use_scheduling_signatures: bool,
}

/// The cluster.
#[derive(Debug, Deserialize)]
pub struct Input {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Queues.
    pub queues: Vec<Queue>,
    /// Groups.
    pub jobs: Vec<Job>,
    /// Topologies.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// Devices and claims.
    #[serde(default)]
    pub dra: Option<Dra>,
}

/// A node.
#[derive(Debug, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it has.
    pub allocatable: BTreeMap<String, f64>,
    /// Memory of each GPU.
    pub gpu_memory_mib: i64,
    /// The node tells that memory.
    pub gpu_memory_synced: bool,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A queue.
#[derive(Debug, Deserialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its parent.
    #[serde(default)]
    pub parent: Option<String>,
    /// Higher first.
    pub priority: i64,
    /// When it was created.
    pub created_offset_s: i64,
    /// GPUs.
    #[serde(default)]
    pub gpu: Option<Share>,
    /// Millicores.
    #[serde(default)]
    pub cpu_milli: Option<Share>,
    /// Megabytes.
    #[serde(default)]
    pub memory_mb: Option<Share>,
}

/// What a queue is entitled to; -1 is unlimited.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Share {
    /// Guaranteed.
    pub quota: f64,
    /// Ceiling.
    pub limit: f64,
    /// Weight in the surplus.
    pub over_quota_weight: f64,
}

/// A group.
#[derive(Debug, Deserialize)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its namespace, possibly empty.
    #[serde(default)]
    pub namespace: String,
    /// Its queue.
    pub queue: String,
    /// `preemptible` or `non-preemptible`.
    pub preemptibility: String,
    /// When it last started.
    #[serde(default)]
    pub last_start_age_s: Option<i64>,
    /// Its evicted pods stay as they are between rounds.
    #[serde(default)]
    pub delete_in_test: bool,
    /// Its tree.
    pub pod_group: Tree,
    /// Its pods.
    pub tasks: Vec<Task>,
}

/// A set of the tree.
#[derive(Debug, Deserialize)]
pub struct Tree {
    /// How many members it needs; all when absent.
    #[serde(default)]
    pub min_sub_groups: Option<usize>,
    /// Where its pods belong.
    #[serde(default)]
    pub topology_constraint: Option<Constraint>,
    /// Nested sets.
    #[serde(default)]
    pub sub_group_sets: Vec<Tree>,
    /// Leaves.
    #[serde(default)]
    pub pod_sets: Vec<PodSet>,
}

/// A leaf of the tree.
#[derive(Debug, Deserialize)]
pub struct PodSet {
    /// How many pods it needs.
    pub min_available: i64,
    /// Where its pods belong.
    #[serde(default)]
    pub topology_constraint: Option<Constraint>,
}

/// A topology constraint.
#[derive(Debug, Deserialize)]
pub struct Constraint {
    /// Topology name.
    pub topology: String,
    /// Label key.
    #[serde(default)]
    pub required_level: Option<String>,
}

/// A pod.
#[derive(Debug, Deserialize)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// Its node.
    #[serde(default)]
    pub node: Option<String>,
    /// What it wants.
    #[serde(default)]
    pub request: BTreeMap<String, f64>,
    /// GPUs it wants.
    pub gpu: Gpu,
    /// Shared GPUs it sits on.
    #[serde(default)]
    pub gpu_groups: Vec<String>,
    /// A request in the old MIG form.
    #[serde(default)]
    pub legacy_mig: bool,
}

/// GPUs a pod wants.
#[derive(Debug, Deserialize)]
pub struct Gpu {
    /// `Regular`, `Fraction`, `GpuMemory` or `MigInstance`.
    #[serde(rename = "type")]
    pub kind: String,
    /// On how many devices.
    #[serde(default)]
    pub devices: f64,
    /// Part of each.
    #[serde(default)]
    pub portion: f64,
    /// Device class and count.
    #[serde(default)]
    pub dra: BTreeMap<String, f64>,
}

/// A topology.
#[derive(Debug, Deserialize)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// Levels, outermost first.
    pub levels: Vec<Level>,
}

/// A level of a topology.
#[derive(Debug, Deserialize)]
pub struct Level {
    /// Label key.
    #[serde(rename = "nodeLabel")]
    pub node_label: String,
}

/// Devices and claims, as far as rules read them.
#[derive(Debug, Deserialize)]
pub struct Dra {
    /// Class names.
    #[serde(default)]
    pub device_classes: Vec<String>,
}

/// What must come out.
#[derive(Debug, Deserialize)]
pub struct Expected {
    /// By group: holds for each of its pods.
    #[serde(default)]
    pub jobs: BTreeMap<String, Wanted>,
    /// By pod.
    #[serde(default)]
    pub tasks: BTreeMap<String, Wanted>,
    /// By node.
    #[serde(default)]
    pub nodes: BTreeMap<String, WantedNode>,
    /// Most bindings of a round.
    #[serde(default)]
    pub max_binds_per_round: Option<usize>,
    /// Most evictions of a round.
    #[serde(default)]
    pub max_evictions_per_round: Option<usize>,
    /// Most pods that wait at the end of a round.
    #[serde(default)]
    pub max_pipelines_per_round: Option<usize>,
    /// The error of the checks before any node, as a text or `null` for none.
    #[serde(default, deserialize_with = "present")]
    pub pre_predicate_error: Option<Value>,
}

/// A pod's or a group's result.
#[derive(Debug, Deserialize)]
pub struct Wanted {
    /// Status of each pod.
    #[serde(default)]
    pub status: Option<String>,
    /// Node of each pod.
    #[serde(default)]
    pub node: Option<String>,
    /// GPUs asked for.
    #[serde(default)]
    pub gpus_required: Option<f64>,
    /// GPUs held.
    #[serde(default)]
    pub gpus_accepted: Option<f64>,
    /// Millicores asked for.
    #[serde(default)]
    pub cpu_milli_required: Option<f64>,
    /// Bytes asked for.
    #[serde(default)]
    pub memory_bytes_required: Option<f64>,
    /// NUMA zones.
    #[serde(default)]
    pub numa_zones: Option<Vec<usize>>,
    /// The group's explanation.
    #[serde(default)]
    pub job_error_message: Option<String>,
    /// The group's last start is at least this old.
    #[serde(default)]
    pub last_start_older_than_s: Option<i64>,
}

/// A node's result.
#[derive(Debug, Deserialize)]
pub struct WantedNode {
    /// GPUs free.
    #[serde(default)]
    pub idle_gpus: f64,
    /// GPUs being released.
    #[serde(default)]
    pub releasing_gpus: f64,
    /// What is left in NUMA zones, as quantities.
    #[serde(default)]
    pub numa_zones_available: BTreeMap<usize, BTreeMap<String, String>>,
}

/// What came out.
#[derive(Debug, Deserialize)]
pub struct Observed {
    /// One entry per round.
    #[serde(default)]
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Debug, Deserialize)]
pub struct Round {
    /// Queues when the round began.
    #[serde(default)]
    pub open: Option<Open>,
    /// Decisions.
    #[serde(default)]
    pub events: Vec<Event>,
    /// Pods at the end; absent means as in the round before.
    #[serde(default)]
    pub tasks: Option<BTreeMap<String, ObservedTask>>,
    /// Node accounts at the end; absent means as in the round before.
    #[serde(default)]
    pub nodes: Option<BTreeMap<String, ObservedNode>>,
    /// Errors of the checks before any node, by pod.
    #[serde(default)]
    pub pre_predicate_errors: BTreeMap<String, Value>,
}

/// Queues when a round began.
#[derive(Debug, Deserialize)]
pub struct Open {
    /// What there is to share.
    pub total: BTreeMap<String, f64>,
    /// By queue and resource.
    pub queues: BTreeMap<String, BTreeMap<String, OpenShare>>,
}

/// One queue's figures of one resource.
#[derive(Debug, Deserialize)]
pub struct OpenShare {
    /// Held and wanted.
    pub requested: f64,
    /// Held.
    pub allocated: f64,
    /// Held by groups that cannot be evicted.
    pub allocated_non_preemptible: f64,
    /// Fair share.
    pub fair_share: f64,
}

/// A decision.
#[derive(Debug, Deserialize)]
pub struct Event {
    /// `bind`, `evict` or `pipeline`.
    pub event: String,
    /// The deciding action.
    pub action: String,
    /// The pod.
    pub task: String,
    /// The node.
    #[serde(default)]
    pub node: Option<String>,
    /// Pods evicted together.
    #[serde(default)]
    pub gang_size: Option<u32>,
    /// For whom a pod was evicted.
    #[serde(default)]
    pub preemptor: Option<String>,
}

/// A pod at the end of a round.
#[derive(Debug, Deserialize)]
pub struct ObservedTask {
    /// Its status.
    pub status: String,
    /// Its node.
    #[serde(default)]
    pub node: Option<String>,
    /// Shared GPUs it sits on, by an id that means something in this case only.
    #[serde(default)]
    pub gpu_groups: Vec<String>,
}

/// A node's accounts at the end of a round.
#[derive(Debug, Deserialize)]
pub struct ObservedNode {
    /// Free.
    pub idle: BTreeMap<String, f64>,
    /// Being released, less what waits for it.
    pub releasing: BTreeMap<String, f64>,
}

/// Tells an explicit `null` from an absent field.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The head of a file of objects that express a case's cluster.
#[derive(Debug, Deserialize)]
pub struct ObjectsFile {
    /// The clock of the session.
    pub session_time: String,
}

impl Case {
    /// All pods with their groups.
    pub fn tasks(&self) -> impl Iterator<Item = (&Job, &Task)> {
        self.input.jobs.iter().flat_map(|job| job.tasks.iter().map(move |task| (job, task)))
    }
}

impl Tree {
    /// This set and all sets below it.
    pub fn sets(&self) -> Vec<&Tree> {
        let mut sets = vec![self];
        for set in &self.sub_group_sets {
            sets.extend(set.sets());
        }
        sets
    }
}

//! The format `kai-session-case/v1`: configuration, input, expectations and observations of a recorded session.
//!
//! Field names are those of the format; absent fields have its documented defaults.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
#[derive(Debug, Deserialize)]
pub struct Case {
    /// `<area>/<name>`.
    pub id: String,
    /// The folder it lies in.
    pub area: String,
    pub run: Run,
    pub input: Input,
    pub expected: Option<Expected>,
    pub observed: Observed,
}
#[derive(Debug, Deserialize)]
pub struct Run {
    pub mode: Mode,
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
    #[serde(default)]
    pub plugins: Vec<String>,
    #[serde(default)]
    pub plugin_arguments: Option<BTreeMap<String, BTreeMap<String, String>>>,
    pub scheduler_params: Params,
    /// Most groups of a queue per action.
    #[serde(default)]
    pub queue_depth_per_action: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Single,
    /// Repeatedly, each time from the result of the last round.
    Rounds,
    /// No actions, only the pre-filters of every pending pod.
    PrePredicate,
}
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the record has these switches")]
pub struct Params {
    /// Victims that are placed again do not count as reclaimed.
    pub allow_consolidating_reclaim: bool,
    /// Grace period of gangs below their minimum.
    pub global_default_staleness_grace_period_s: i64,
    /// -1 is unlimited.
    pub max_number_consolidation_preemptees: i64,
    /// Roles separate CPU and GPU pods.
    pub restrict_node_scheduling: bool,
    /// Simulate CSI storage.
    pub schedule_csi_storage: bool,
    /// Skips groups with the scheduling signature of an unschedulable one.
    pub use_scheduling_signatures: bool,
}
#[derive(Debug, Deserialize)]
pub struct Input {
    pub nodes: Vec<Node>,
    pub queues: Vec<Queue>,
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// Devices and claims.
    #[serde(default)]
    pub dra: Option<Dra>,
}
#[derive(Debug, Deserialize)]
pub struct Node {
    pub name: String,
    /// Allocatable amounts.
    pub allocatable: BTreeMap<String, f64>,
    /// Memory of each GPU.
    pub gpu_memory_mib: i64,
    /// Whether that memory is known.
    pub gpu_memory_synced: bool,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}
#[derive(Debug, Deserialize)]
pub struct Queue {
    pub name: String,
    #[serde(default)]
    pub parent: Option<String>,
    pub priority: i64,
    /// When it was created.
    pub created_offset_s: i64,
    #[serde(default)]
    pub gpu: Option<Share>,
    #[serde(default)]
    pub cpu_milli: Option<Share>,
    #[serde(default)]
    pub memory_mb: Option<Share>,
}

/// Quota, limit and weight of a queue; -1 is unlimited.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Share {
    pub quota: f64,
    pub limit: f64,
    /// Weight in the surplus.
    pub over_quota_weight: f64,
}
#[derive(Debug, Deserialize)]
pub struct Job {
    pub name: String,
    /// Its namespace, possibly empty.
    #[serde(default)]
    pub namespace: String,
    pub queue: String,
    /// `preemptible` or `non-preemptible`.
    pub preemptibility: String,
    /// When it last started.
    #[serde(default)]
    pub last_start_age_s: Option<i64>,
    /// Whether its evicted pods stay releasing between rounds.
    #[serde(default)]
    pub delete_in_test: bool,
    pub pod_group: Tree,
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
#[derive(Debug, Deserialize)]
pub struct Constraint {
    pub topology: String,
    #[serde(default)]
    pub required_level: Option<String>,
}
#[derive(Debug, Deserialize)]
pub struct Task {
    pub name: String,
    pub status: String,
    #[serde(default)]
    pub node: Option<String>,
    /// Requested amounts.
    #[serde(default)]
    pub request: BTreeMap<String, f64>,
    /// GPU request.
    pub gpu: Gpu,
    /// GPU groups of its shared GPUs.
    #[serde(default)]
    pub gpu_groups: Vec<String>,
    /// A request in the old MIG form.
    #[serde(default)]
    pub legacy_mig: bool,
}

/// The GPU request of a pod.
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
#[derive(Debug, Deserialize)]
pub struct Topology {
    pub name: String,
    /// Levels, outermost first.
    pub levels: Vec<Level>,
}

/// A level of a topology.
#[derive(Debug, Deserialize)]
pub struct Level {
    #[serde(rename = "nodeLabel")]
    pub node_label: String,
}

/// Devices and claims, as far as rules read them.
#[derive(Debug, Deserialize)]
pub struct Dra {
    #[serde(default)]
    pub device_classes: Vec<String>,
}

/// Asserted results.
#[derive(Debug, Deserialize)]
pub struct Expected {
    /// By group: holds for each of its pods.
    #[serde(default)]
    pub jobs: BTreeMap<String, Wanted>,
    #[serde(default)]
    pub tasks: BTreeMap<String, Wanted>,
    #[serde(default)]
    pub nodes: BTreeMap<String, WantedNode>,
    /// Most bindings of a round.
    #[serde(default)]
    pub max_binds_per_round: Option<usize>,
    /// Most evictions of a round.
    #[serde(default)]
    pub max_evictions_per_round: Option<usize>,
    /// Maximum number of pipelined pods at the end of a round.
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
    /// Requested GPUs.
    #[serde(default)]
    pub gpus_required: Option<f64>,
    /// Allocated GPUs.
    #[serde(default)]
    pub gpus_accepted: Option<f64>,
    /// Requested CPU.
    #[serde(default)]
    pub cpu_milli_required: Option<f64>,
    /// Requested memory.
    #[serde(default)]
    pub memory_bytes_required: Option<f64>,
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
#[derive(Debug, Deserialize)]
pub struct Observed {
    /// One entry per round.
    #[serde(default)]
    pub rounds: Vec<Round>,
}
#[derive(Debug, Deserialize)]
pub struct Round {
    /// Queues when the round began.
    #[serde(default)]
    pub open: Option<Open>,
    #[serde(default)]
    pub events: Vec<Event>,
    /// Pods at the end; absent means as in the round before.
    #[serde(default)]
    pub tasks: Option<BTreeMap<String, ObservedTask>>,
    /// Node accounting at the end; absent means as in the round before.
    #[serde(default)]
    pub nodes: Option<BTreeMap<String, ObservedNode>>,
    /// Errors of the checks before any node, by pod.
    #[serde(default)]
    pub pre_predicate_errors: BTreeMap<String, Value>,
}

/// Queues when a round began.
#[derive(Debug, Deserialize)]
pub struct Open {
    /// Total amounts of the cluster.
    pub total: BTreeMap<String, f64>,
    /// By queue and resource.
    pub queues: BTreeMap<String, BTreeMap<String, OpenShare>>,
}

/// Amounts of one queue and resource.
#[derive(Debug, Deserialize)]
pub struct OpenShare {
    /// Requested by running and pending pods.
    pub requested: f64,
    pub allocated: f64,
    /// Allocated to non-preemptible groups.
    pub allocated_non_preemptible: f64,
    pub fair_share: f64,
}
#[derive(Debug, Deserialize)]
pub struct Event {
    /// `bind`, `evict` or `pipeline`.
    pub event: String,
    pub action: String,
    pub task: String,
    #[serde(default)]
    pub node: Option<String>,
    /// Pods evicted together.
    #[serde(default)]
    pub gang_size: Option<u32>,
    /// The preemptor of an eviction.
    #[serde(default)]
    pub preemptor: Option<String>,
}

/// A pod at the end of a round.
#[derive(Debug, Deserialize)]
pub struct ObservedTask {
    pub status: String,
    #[serde(default)]
    pub node: Option<String>,
    /// GPU groups of its shared GPUs, by an id of this case.
    #[serde(default)]
    pub gpu_groups: Vec<String>,
}

/// Accounting of a node at the end of a round.
#[derive(Debug, Deserialize)]
pub struct ObservedNode {
    pub idle: BTreeMap<String, f64>,
    /// Releasing amounts less those of pipelined pods.
    pub releasing: BTreeMap<String, f64>,
}

/// Distinguishes an explicit `null` from an absent field.
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

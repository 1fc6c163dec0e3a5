//! Runs one cycle and records the state of the cluster at its end.

use super::case::{Case, Run};
use kai_engine::ClusterState;
use kai_engine::audit::{Violation, audit};
use kai_engine::cluster::Cluster;
use kai_engine::cluster::pod::{Pod, Status};
use kai_engine::ids::PodIdx;
use kai_engine::input::{GpuRequest, WHOLE_GPU};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig, Policy, SearchDepth};
use kai_engine::resource;
use kai_engine::resource::QueueResource;
use kai_engine::{Cycle, Observer, Outcome, plan_observed};
use kai_units::{Span, Timestamp};
use std::collections::BTreeMap;

pub(super) struct CycleResult {
    pub(super) outcome: Outcome,
    pub(super) end: End,
    pub(super) violations: Vec<Violation>,
}

/// The cluster at the end of a cycle, by name.
#[derive(Default)]
pub(super) struct End {
    pub(super) pods: BTreeMap<String, PodEnd>,
    pub(super) nodes: BTreeMap<String, NodeEnd>,
}

/// A pod at the end of a cycle.
pub(super) struct PodEnd {
    /// Its status, as records name it.
    pub(super) status: &'static str,
    pub(super) node: Option<String>,
    /// GPU groups of its shared GPUs.
    pub(super) gpu_groups: Vec<String>,
    /// NUMA zones of its allocation.
    pub(super) zones: Vec<usize>,
    /// Requested GPUs without those of resource claims.
    pub(super) gpus_required: f64,
    /// Allocated GPUs.
    pub(super) gpus_accepted: f64,
    /// Requested CPU.
    pub(super) cpu_milli: i64,
    /// Requested memory.
    pub(super) memory_bytes: i64,
}

/// A node at the end of a cycle.
pub(super) struct NodeEnd {
    /// Free amounts by resource name.
    pub(super) idle: BTreeMap<String, i64>,
    /// Releasing amounts less those of pipelined pods.
    pub(super) releasing: BTreeMap<String, i64>,
    /// Available amounts of each NUMA zone.
    pub(super) zones: Vec<BTreeMap<String, i64>>,
}

/// The configuration that a case was run with.
pub(super) fn config(run: &Run) -> Config {
    let arguments = run.plugin_arguments.clone().unwrap_or_default();
    let plugin = |name: &String| PluginConfig {
        name: name.clone(),
        arguments: arguments.get(name).cloned().unwrap_or_default(),
        disabled: Vec::new(),
    };
    Config {
        actions: run.actions.clone(),
        plugins: run.plugins.iter().map(plugin).collect(),
        queue_depth: run.queue_depth_per_action.clone(),
        search: SearchDepth::Kai,
        ..Config::default()
    }
}

/// The policy that a case was run with.
pub(super) fn policy(run: &Run, config: &Config) -> Policy {
    let given = &run.scheduler_params;
    let params = Params {
        restrict_nodes: given.restrict_node_scheduling,
        max_consolidation_victims: u32::try_from(given.max_number_consolidation_preemptees).ok(),
        use_signatures: given.use_scheduling_signatures,
        allow_consolidating_reclaim: given.allow_consolidating_reclaim,
        staleness_grace: Span::from_secs(given.global_default_staleness_grace_period_s),
        csi_storage: given.schedule_csi_storage,
        device_claims: run.dynamic_resources_enabled,
        ..Params::default()
    };
    Policy::resolve(config, &params, &PluginSet::builtin())
}

/// The first action of a case that the engine does not have.
pub(super) fn missing_action<'a>(case: &'a Case, policy: &Policy) -> Option<&'a str> {
    let known = |name: &&String| policy.actions.iter().any(|action| action.name() == name.as_str());
    case.run.actions.iter().find(|name| !known(name)).map(String::as_str)
}

/// Runs one cycle and audits it.
pub(super) fn run(cluster: &mut ClusterState, policy: &Policy, now: Timestamp) -> CycleResult {
    let mut observer = EndState(End::default());
    let outcome = plan_observed(cluster, policy, Cycle { now, seed: 1 }, &mut observer);
    let violations = audit(cluster, policy, &outcome);
    CycleResult { outcome, end: observer.0, violations }
}

/// Records the state of the cluster at the end of a cycle.
struct EndState(End);

impl Observer for EndState {
    fn cycle_ended(&mut self, cluster: &Cluster) {
        self.0.pods = cluster
            .present_pods()
            .map(|(index, pod)| (cluster.text(pod.name).to_owned(), pod_end(cluster, index, pod)))
            .collect();
        let nodes = cluster.nodes_by_rank.iter().map(|&node| {
            let node = &cluster.nodes[node];
            let amounts = |amounts: &resource::Amounts| -> BTreeMap<String, i64> {
                amounts.iter().map(|(dim, n)| (cluster.text(cluster.dims.name(dim)).to_owned(), n)).collect()
            };
            let zones = node.ledger.numa.iter().flat_map(|n| &n.zones).map(|z| amounts(&z.available));
            let end = NodeEnd {
                idle: amounts(&node.ledger.idle),
                releasing: amounts(&node.ledger.releasing),
                zones: zones.collect(),
            };
            (cluster.text(node.name).to_owned(), end)
        });
        self.0.nodes = nodes.collect();
    }
}

fn pod_end(cluster: &Cluster, index: PodIdx, pod: &Pod) -> PodEnd {
    let shape = cluster.shape(index);
    let place = pod.state.place.as_ref();
    let accepted = place.map_or(0, |place| cluster.accepted(index, place)[QueueResource::Gpu]);
    PodEnd {
        status: status_name(pod.state.status),
        node: place.map(|p| cluster.text(cluster.nodes[p.node].name).to_owned()),
        gpu_groups: place
            .iter()
            .flat_map(|p| &p.gpu_groups)
            .map(|group| cluster.text(*group).to_owned())
            .collect(),
        zones: place
            .and_then(|p| p.numa.as_ref())
            .map(|placement| placement.iter().map(|(zone, _)| zone).collect())
            .unwrap_or_default(),
        gpus_required: match shape.gpu {
            GpuRequest::None | GpuRequest::Mig | GpuRequest::Memory { .. } => 0.0,
            GpuRequest::Whole(count) => f64::from(count),
            GpuRequest::Fraction { hundredths, devices } => f64::from(hundredths * devices) / 100.0,
        },
        gpus_accepted: accepted as f64 / WHOLE_GPU as f64,
        cpu_milli: shape.request.get(resource::CPU),
        memory_bytes: shape.request.get(resource::MEMORY),
    }
}

/// A status as records name it; a pod that was given a node in the cycle is being bound to it.
fn status_name(status: Status) -> &'static str {
    match status {
        // KAI has no status for it: the pod is pending.
        Status::Pending | Status::InBackoff => "Pending",
        Status::Gated => "Gated",
        Status::Allocated | Status::Binding => "Binding",
        Status::Pipelined => "Pipelined",
        Status::Bound => "Bound",
        Status::Running => "Running",
        Status::Releasing => "Releasing",
        Status::Stuck => "StuckInReleasing",
        Status::Succeeded => "Succeeded",
        Status::Failed => "Failed",
        Status::Unknown => "Unknown",
    }
}

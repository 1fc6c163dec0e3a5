//! Scores that a node earns in full or not at all, each declared once.
//!
//! The plain path adds up the weights of the steps that a node earns. The ranked path visits the combinations of steps
//! from the highest sum down and skips blocks of nodes that cannot earn a combination. KAI's weights make every step
//! larger than the sum of all smaller scores, so that the order of combinations is the order of the scores.

use super::ranked::Summary;
use super::score;
use super::trial::Trial;
use crate::cluster::Cluster;
use crate::cluster::node::When;
use crate::ids::NodeIdx;
use smallvec::SmallVec;

/// A score step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreStep {
    /// A GPU that pods already share has enough free memory for a shared request (KAI plugin `gpusharingorder`).
    GpuSharing,
    /// The request fits idle resources, without waiting for terminating pods (KAI plugin `nodeavailability`).
    Availability,
    /// A CPU-only pod on a CPU-only node (KAI plugin `resourcetype`).
    ResourceType,
}

/// All steps, the highest weight first.
const STEPS: [ScoreStep; 3] = [ScoreStep::GpuSharing, ScoreStep::Availability, ScoreStep::ResourceType];

/// The steps in the order in which checking them is cheapest.
const BY_COST: [ScoreStep; 3] = [ScoreStep::ResourceType, ScoreStep::GpuSharing, ScoreStep::Availability];

impl ScoreStep {
    fn weight(self) -> f64 {
        match self {
            Self::GpuSharing => score::GPU_SHARING,
            Self::Availability => score::AVAILABLE,
            Self::ResourceType => score::RESOURCE_TYPE,
        }
    }

    /// Whether the step distinguishes nodes for a pod.
    #[inline]
    fn applies(self, cluster: &Cluster, trial: &Trial<'_>) -> bool {
        let builtin = &trial.policy.registry.builtin;
        let shape = cluster.shape(trial.pod);
        match self {
            Self::GpuSharing => builtin.gpu_sharing && shape.is_shared(),
            Self::Availability => builtin.availability,
            Self::ResourceType => {
                builtin.resource_type && shape.is_cpu_only() && cluster.pods[trial.pod].claim_gpus == 0
            }
        }
    }

    /// Whether a node earns the step.
    #[inline]
    fn is_earned(self, cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> bool {
        let n = &cluster.nodes[node];
        match self {
            Self::GpuSharing => {
                let mib = cluster.shape(trial.pod).memory_on(n.gpu_memory.mib);
                n.ledger.gpus.iter().any(|g| g.fits(mib, n.gpu_memory.mib))
            }
            Self::Availability => trial.fits(cluster, node, When::Now),
            Self::ResourceType => n.is_cpu_only(),
        }
    }

    /// Whether some node behind a summary may earn the step, or may miss it, as required.
    #[inline]
    fn is_possible(self, required: bool, summary: &Summary, shared_mib: Option<i64>) -> bool {
        match (self, required) {
            (Self::GpuSharing, true) => shared_mib.is_none_or(|mib| summary.shared >= mib),
            // Where nothing is being released, what fits at all fits now.
            (Self::Availability, false) => summary.moving,
            (Self::ResourceType, true) => summary.cpu_only,
            (Self::GpuSharing | Self::ResourceType, false) | (Self::Availability, true) => true,
        }
    }
}

/// The sum of the steps that a node earns.
pub(crate) fn sum(cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> f64 {
    let mut sum = 0.0;
    for step in STEPS {
        if step.applies(cluster, trial) && step.is_earned(cluster, trial, node) {
            sum += step.weight();
        }
    }
    sum
}

/// Which steps a node must earn and which it must miss, by [`ScoreStep`]; none where a step does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepCombination([Option<bool>; 3]);

impl StepCombination {
    /// The combinations that nodes can earn for a pod, the lowest score first.
    pub(crate) fn all(cluster: &Cluster, trial: &Trial<'_>) -> SmallVec<[Self; 4]> {
        let mut all: SmallVec<[Self; 4]> = SmallVec::new();
        all.push(Self([None; 3]));
        for step in STEPS.into_iter().filter(|step| step.applies(cluster, trial)) {
            let missed = all.clone();
            for combination in &mut all {
                combination.0[step as usize] = Some(true);
            }
            all.extend(missed.into_iter().map(|mut combination| {
                combination.0[step as usize] = Some(false);
                combination
            }));
        }
        all.sort_unstable();
        all
    }

    /// Whether a node must fit idle resources.
    pub(crate) fn requires_availability(self) -> bool {
        self.0[ScoreStep::Availability as usize] == Some(true)
    }

    /// Whether a node earns exactly these steps.
    #[inline]
    pub(crate) fn is_earned(self, cluster: &Cluster, trial: &Trial<'_>, node: NodeIdx) -> bool {
        BY_COST.into_iter().all(|step| {
            self.0[step as usize].is_none_or(|required| step.is_earned(cluster, trial, node) == required)
        })
    }

    /// Whether some node behind a summary may earn exactly these steps.
    #[inline]
    pub(crate) fn is_possible(self, summary: &Summary, shared_mib: Option<i64>) -> bool {
        BY_COST.into_iter().all(|step| {
            self.0[step as usize].is_none_or(|required| step.is_possible(required, summary, shared_mib))
        })
    }
}

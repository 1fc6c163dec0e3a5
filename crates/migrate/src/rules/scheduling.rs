//! Decisions that differ, as rules over the input of a scheduling cycle.
//!
//! `docs/differences.md` describes the same table. Predicates read the cluster and the configuration, never a result.

use kai_engine::Delta;
use kai_engine::input::{
    ClaimInput, GpuRequest, GroupInput, NodeInput, PodInput, PodPhase, QueueInput, RequestMode,
    TopologyInput, WHOLE_GPU,
};
use kai_engine::policy::Config;
use std::collections::{BTreeMap, BTreeSet};

/// The input of a cycle.
pub struct Facts<'a> {
    /// The cluster, one delta per object.
    pub deltas: &'a [Delta],
    pub config: &'a Config,
    /// Maximum number of victim groups of a consolidation; `None` is unlimited.
    pub max_consolidation_victims: Option<u32>,
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether the input of a cycle can show the difference.
    pub holds: fn(&Facts<'_>) -> bool,
}

/// All differences that the input of a cycle can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference { id: "D03", holds: some_members_suffice },
    Difference { id: "D04", holds: cpu_pod_beside_shared_gpus },
    Difference { id: "D05", holds: unknown_gpu_resource },
    Difference { id: "D06", holds: device_backed_resource },
    Difference { id: "D08", holds: division_with_a_rest },
    Difference { id: "D09", holds: |facts| facts.config.queue_depth.values().any(|depth| *depth >= 2) },
    Difference { id: "D13", holds: same_name_twice },
    Difference {
        id: "D14",
        holds: |facts| facts.pods().any(|p| p.phase == PodPhase::Unknown && p.node.is_some()),
    },
    Difference { id: "D15", holds: more_candidates_than_may_move },
    Difference { id: "D17", holds: siblings_of_one_age },
    Difference { id: "D19", holds: named_group_on_a_tight_node },
    Difference {
        id: "D20",
        holds: |facts| facts.config.plugins.iter().any(|plugin| !plugin.disabled.is_empty()),
    },
    Difference { id: "D21", holds: required_level_above_a_finer_one },
    Difference { id: "D22", holds: victims_beyond_a_minimum },
    Difference { id: "D24", holds: |facts| facts.groups().any(|group| group.invalid_reason.is_some()) },
    Difference { id: "D28", holds: parts_of_gpus_against_a_bound },
    Difference { id: "D29", holds: spread_beside_a_releasing_pod },
    Difference { id: "D30", holds: evicted_pod_may_change_its_gpu },
    Difference { id: "D31", holds: placed_group_may_be_a_victim },
    Difference { id: "D32", holds: device_count_out_of_range },
];

impl<'a> Facts<'a> {
    fn pods(&self) -> impl Iterator<Item = &'a PodInput> + use<'a> {
        let all = self.deltas.iter();
        all.filter_map(|delta| if let Delta::Pod(pod) = delta { Some(&**pod) } else { None })
    }
    fn nodes(&self) -> impl Iterator<Item = &'a NodeInput> + use<'a> {
        let all = self.deltas.iter();
        all.filter_map(|delta| if let Delta::Node(node) = delta { Some(&**node) } else { None })
    }
    fn groups(&self) -> impl Iterator<Item = &'a GroupInput> + use<'a> {
        let all = self.deltas.iter();
        all.filter_map(|delta| if let Delta::Group(group) = delta { Some(&**group) } else { None })
    }
    fn queues(&self) -> impl Iterator<Item = &'a QueueInput> + use<'a> {
        let all = self.deltas.iter();
        all.filter_map(|delta| if let Delta::Queue(queue) = delta { Some(&**queue) } else { None })
    }
    fn topologies(&self) -> impl Iterator<Item = &'a TopologyInput> + use<'a> {
        let all = self.deltas.iter();
        all.filter_map(|delta| if let Delta::Topology(topology) = delta { Some(topology) } else { None })
    }
}

fn shares_gpus(pod: &PodInput) -> bool {
    matches!(pod.spec.gpu, GpuRequest::Fraction { .. } | GpuRequest::Memory { .. })
}

/// A group, or a set of sub-groups in one, requires fewer members than it has.
fn some_members_suffice(facts: &Facts<'_>) -> bool {
    facts.groups().any(|group| {
        let members =
            |of: Option<&str>| group.sub_groups.iter().filter(|s| s.parent.as_deref() == of).count();
        let loose = |min: Option<u32>, of: Option<&str>| min.is_some_and(|min| (min as usize) < members(of));
        loose(group.min_sub_group, None)
            || group.sub_groups.iter().any(|sub| loose(sub.min_sub_group, Some(&sub.name)))
    })
}

/// A pending pod requests no GPU, another pod shares one, and GPU sharing is part of the scores of several nodes.
fn cpu_pod_beside_shared_gpus(facts: &Facts<'_>) -> bool {
    let requests_none = |pod: &PodInput| {
        pod.phase == PodPhase::Pending
            && pod.claims.is_empty()
            && matches!(pod.spec.gpu, GpuRequest::None | GpuRequest::Whole(0))
    };
    facts.nodes().count() > 1
        && facts.config.plugins.iter().any(|plugin| plugin.name == "gpusharingorder")
        && facts.pods().any(requests_none)
        && facts.pods().any(shares_gpus)
}

/// A resource other than the two known ones ends in `gpu`.
fn unknown_gpu_resource(facts: &Facts<'_>) -> bool {
    let unknown = |(name, _): &(String, i64)| name.ends_with("gpu") && name != "gpu";
    facts.nodes().any(|node| node.allocatable.iter().any(unknown))
        || facts.pods().any(|pod| pod.spec.request.iter().any(unknown))
}

/// A pod requests an extended resource that no node has, and there are device classes.
fn device_backed_resource(facts: &Facts<'_>) -> bool {
    let offered: BTreeSet<&str> =
        facts.nodes().flat_map(|node| node.allocatable.iter().map(|(name, _)| name.as_str())).collect();
    let missing = |pod: &PodInput| {
        pod.spec.request.iter().any(|(name, _)| name.contains('/') && !offered.contains(name.as_str()))
    };
    facts.deltas.iter().any(|delta| matches!(delta, Delta::DeviceClass(_))) && facts.pods().any(missing)
}

/// Siblings share a surplus of GPUs, and their priorities differ or a pod requests a GPU fraction: the
/// remainder of the division may go to another queue.
fn division_with_a_rest(facts: &Facts<'_>) -> bool {
    let mut priorities: BTreeMap<Option<&str>, Vec<i32>> = BTreeMap::new();
    for queue in facts.queues().filter(|queue| queue.gpu.weight > 0.0) {
        priorities.entry(queue.parent.as_deref()).or_default().push(queue.priority);
    }
    let parts = facts.pods().any(shares_gpus);
    let whole = |amount: Option<i64>| amount.is_none_or(|amount| amount % WHOLE_GPU == 0);
    let bounds = facts.queues().any(|queue| !whole(queue.gpu.quota) || !whole(queue.gpu.limit));
    priorities.values().any(|all| {
        let differ = all.iter().any(|priority| *priority != all[0]);
        all.len() > 1 && (differ && all.len() > 2 || parts || bounds)
    })
}

/// The actions that evict victims.
const EVICTING: [&str; 3] = ["consolidation", "reclaim", "preempt"];

fn evicts(facts: &Facts<'_>) -> bool {
    facts.config.actions.iter().any(|action| EVICTING.contains(&action.as_str()))
}

/// Allocated pods of preemptible groups.
fn evictable<'a>(facts: &Facts<'a>) -> Vec<&'a PodInput> {
    let preemptible: BTreeSet<&str> =
        facts.groups().filter(|group| group.preemptible).map(|group| group.key.name.as_str()).collect();
    let holds = |pod: &&PodInput| {
        pod.node.is_some() && pod.group.as_deref().is_some_and(|group| preemptible.contains(group))
    };
    facts.pods().filter(holds).collect()
}

/// Consolidation is limited to fewer groups than are movable.
fn more_candidates_than_may_move(facts: &Facts<'_>) -> bool {
    let groups: BTreeSet<_> = evictable(facts).iter().map(|pod| pod.group.as_deref()).collect();
    facts.config.actions.iter().any(|action| action == "consolidation")
        && facts.max_consolidation_victims.is_some_and(|most| groups.len() > most as usize)
}

/// A group that may be evicted runs more pods than its minimum, so that it is evicted in several steps.
fn victims_beyond_a_minimum(facts: &Facts<'_>) -> bool {
    let mut pods: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in evictable(facts) {
        *pods.entry(pod.group.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let beyond = |group: &GroupInput| {
        let minimum: u32 = if group.sub_groups.is_empty() {
            group.min_member.unwrap_or(1)
        } else {
            group.sub_groups.iter().map(|sub| sub.min_member.unwrap_or(0)).sum()
        };
        pods.get(group.key.name.as_str()).is_some_and(|pods| *pods > minimum)
    };
    evicts(facts) && facts.groups().any(beyond)
}

/// A pod that shares GPUs may be evicted, and may then get another GPU of its node.
fn evicted_pod_may_change_its_gpu(facts: &Facts<'_>) -> bool {
    evicts(facts) && evictable(facts).into_iter().any(shares_gpus)
}

/// Two groups are pending, one of them preemptible, and an evicting action follows another one: the first may place
/// what the second would evict.
fn placed_group_may_be_a_victim(facts: &Facts<'_>) -> bool {
    let waiting: BTreeSet<&str> = facts
        .pods()
        .filter(|pod| pod.phase == PodPhase::Pending)
        .filter_map(|pod| pod.group.as_deref())
        .collect();
    let preemptible = |group: &GroupInput| group.preemptible && waiting.contains(group.key.name.as_str());
    evicts(facts) && facts.config.actions.len() > 1 && waiting.len() > 1 && facts.groups().any(preemptible)
}

/// A claim requests more devices than the range allows.
fn device_count_out_of_range(facts: &Facts<'_>) -> bool {
    let out_of_range = |claim: &ClaimInput| {
        let mut requested = claim.requests.iter().flat_map(|request| &request.alternatives);
        requested.any(|one| matches!(one.mode, RequestMode::Exactly(count) if count > 1_000_000_000))
    };
    facts.deltas.iter().any(|delta| if let Delta::Claim(claim) = delta { out_of_range(claim) } else { false })
}

/// Two groups have the same name in different namespaces.
fn same_name_twice(facts: &Facts<'_>) -> bool {
    let names: BTreeSet<&str> = facts.groups().map(|group| group.key.name.as_str()).collect();
    names.len() < facts.groups().count()
}

/// Two queues with the same parent were created at the same moment.
fn siblings_of_one_age(facts: &Facts<'_>) -> bool {
    let ages: BTreeSet<_> = facts.queues().map(|queue| (queue.parent.as_deref(), queue.created)).collect();
    ages.len() < facts.queues().count()
}

/// A pending pod shares GPUs, some GPU group has no number for a name, and a node is within two slots of full.
fn named_group_on_a_tight_node(facts: &Facts<'_>) -> bool {
    let tight = |node: &NodeInput| {
        let slots = node.allocatable.iter().find(|(name, _)| name == "pods").map_or(0, |(_, n)| *n);
        let used = facts.pods().filter(|pod| pod.node.as_ref() == Some(&node.name)).count() as i64;
        slots - used < 2
    };
    facts.pods().any(|pod| shares_gpus(pod) && pod.phase == PodPhase::Pending)
        && facts.pods().any(|pod| pod.gpu_groups.iter().any(|group| group.parse::<i64>().is_err()))
        && facts.nodes().any(tight)
}

/// Some constraint requires a level below which its topology has a finer one.
fn required_level_above_a_finer_one(facts: &Facts<'_>) -> bool {
    let finer = |topology: &str, level: &str| {
        facts
            .topologies()
            .filter(|t| t.name == topology)
            .any(|t| t.levels.iter().position(|l| l == level).is_some_and(|at| at + 1 < t.levels.len()))
    };
    facts.groups().any(|group| {
        let below = group.sub_groups.iter().filter_map(|sub| sub.topology.as_ref());
        let mut all = group.topology.iter().chain(below);
        all.any(|c| c.required.as_ref().is_some_and(|level| finer(&c.topology, level)))
    })
}

/// Pods share GPUs in queues whose quota or limit is not a whole number of GPUs.
fn parts_of_gpus_against_a_bound(facts: &Facts<'_>) -> bool {
    let part = |bound: Option<i64>| bound.is_some_and(|bound| bound % WHOLE_GPU != 0);
    facts.pods().filter(|pod| shares_gpus(pod)).count() > 1
        && facts.queues().any(|queue| part(queue.gpu.quota) || part(queue.gpu.limit))
}

/// Emptier GPUs are preferred, a pending pod shares GPUs, and another pod is releasing.
fn spread_beside_a_releasing_pod(facts: &Facts<'_>) -> bool {
    let releasing =
        |pod: &PodInput| matches!(pod.phase, PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted);
    facts.config.plugins.iter().any(|plugin| plugin.name == "gpuspread")
        && facts.pods().any(|pod| shares_gpus(pod) && pod.phase == PodPhase::Pending)
        && facts.pods().any(releasing)
}

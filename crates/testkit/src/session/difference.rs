//! Where the engine decides otherwise than KAI on purpose: rules over a case's input.
//!
//! The same table, in words, is `docs/differences.md`. A failing case counts under an id only when the predicate
//! holds for its input and the audit accepts what the engine did.

use super::case::{Case, Job, Task};
use kai_cache::Objects;
use std::collections::{BTreeMap, BTreeSet};

/// One deliberate difference.
pub struct Difference {
    /// Its id in `docs/differences.md`.
    pub id: &'static str,
    /// What changes, in short.
    pub what: &'static str,
    /// Whether a case's input has what it takes.
    pub holds: fn(&Case) -> bool,
}

/// All differences that the input of a recorded session can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "D03",
        what: "a set with a minimum of members counts the satisfied ones, and takes whole members only",
        holds: some_members_suffice,
    },
    Difference {
        id: "D04",
        what: "shared GPUs do not attract pods that want no GPU",
        holds: cpu_pod_beside_shared_gpus,
    },
    Difference {
        id: "D05",
        what: "only the two known GPU resource names count as GPUs",
        holds: odd_gpu_name,
    },
    Difference {
        id: "D06",
        what: "every extended resource that a device class backs can be had",
        holds: device_backed_resource,
    },
    Difference {
        id: "D08",
        what: "the rest of a division stays within request and limit, and with its priority",
        holds: surplus_with_a_rest,
    },
    Difference {
        id: "D09",
        what: "a queue depth keeps the first groups in order",
        holds: |case| case.run.queue_depth_per_action.values().any(|depth| *depth >= 2),
    },
    Difference {
        id: "D10",
        what: "an absent limit is unlimited",
        holds: |case| {
            case.input.queues.iter().any(|q| q.gpu.is_none() || q.cpu_milli.is_none() || q.memory_mb.is_none())
        },
    },
    Difference {
        id: "D13",
        what: "groups are told apart by namespace and name",
        holds: same_name_twice,
    },
    Difference {
        id: "D14",
        what: "a pod that its kubelet has lost keeps its node's room",
        holds: |case| case.tasks().any(|(_, task)| task.status == "Unknown" && task.node.is_some()),
    },
    Difference {
        id: "D17",
        what: "queues of the same age are taken in name order",
        holds: siblings_of_one_age,
    },
    Difference {
        id: "D19",
        what: "joining a shared GPU takes one pod slot, whatever the GPU group is called",
        holds: named_group_on_a_tight_node,
    },
    Difference {
        id: "D21",
        what: "a required level is met by a node set that has shrunk to one finer domain",
        holds: required_level_above_a_finer_one,
    },
];

/// The first difference whose predicate holds for a case.
pub fn explain(case: &Case) -> Option<&'static str> {
    DIFFERENCES.iter().find(|difference| (difference.holds)(case)).map(|difference| difference.id)
}

/// What the rules read of a cluster that is given as objects alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    shared_gpu: bool,
    cpu_pod: bool,
    several_nodes: bool,
    finer_level: bool,
}

impl Traits {
    /// Looks at all objects.
    pub fn of(objects: &Objects) -> Self {
        let _ = objects;
        Self::default()
    }
}

/// The first difference whose predicate holds for a cluster given as objects.
pub fn explain_objects(traits: &Traits) -> Option<&'static str> {
    if traits.finer_level {
        return Some("D21");
    }
    (traits.shared_gpu && traits.cpu_pod && traits.several_nodes).then_some("D04")
}

/// A set asks for fewer members than it has.
fn some_members_suffice(case: &Case) -> bool {
    let loose = |job: &Job| {
        job.pod_group.sets().iter().any(|set| {
            let members = set.sub_group_sets.len() + set.pod_sets.len();
            set.min_sub_groups.is_some_and(|min| min < members)
        })
    };
    case.input.jobs.iter().any(loose)
}

fn wants_no_gpu(task: &Task) -> bool {
    task.gpu.kind == "Regular" && task.gpu.portion <= 0.0 && task.gpu.dra.is_empty()
}

/// A pending pod wants no GPU, some pod shares one, and shared GPUs count in the choice among several nodes.
fn cpu_pod_beside_shared_gpus(case: &Case) -> bool {
    case.input.nodes.len() > 1
        && case.run.plugins.iter().any(|plugin| plugin == "gpusharingorder")
        && case.tasks().any(|(_, task)| task.status == "Pending" && wants_no_gpu(task))
        && case.tasks().any(|(_, task)| task.gpu.kind == "Fraction" || task.gpu.kind == "GpuMemory")
}

/// A resource other than the two known ones ends in `gpu`.
fn odd_gpu_name(case: &Case) -> bool {
    let odd = |name: &String| name.ends_with("gpu") && !["gpu", "nvidia.com/gpu", "amd.com/gpu"].contains(&name.as_str());
    case.input.nodes.iter().any(|node| node.allocatable.keys().any(odd))
        || case.tasks().any(|(_, task)| task.request.keys().any(odd))
}

/// A pod wants an extended resource that no node has while there are device classes.
fn device_backed_resource(case: &Case) -> bool {
    let plain = ["cpu_milli", "memory_bytes", "gpu", "pods"];
    let offered: BTreeSet<&String> = case.input.nodes.iter().flat_map(|node| node.allocatable.keys()).collect();
    case.input.dra.as_ref().is_some_and(|dra| !dra.device_classes.is_empty())
        && case.tasks().any(|(_, task)| {
            task.request.keys().any(|name| !plain.contains(&name.as_str()) && !offered.contains(name))
        })
}

/// Two siblings share a surplus, so that a division may leave a rest.
fn surplus_with_a_rest(case: &Case) -> bool {
    let mut weighted: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for queue in &case.input.queues {
        if queue.gpu.is_some_and(|share| share.over_quota_weight > 0.0) {
            *weighted.entry(queue.parent.as_deref()).or_default() += 1;
        }
    }
    let part = |amount: f64| (amount - amount.round()).abs() > 1e-9;
    weighted.values().any(|count| *count > 1)
        && case.tasks().any(|(_, task)| part(task.request.get("gpu").copied().unwrap_or(0.0)))
}

/// Two groups have the same name in different namespaces.
fn same_name_twice(case: &Case) -> bool {
    let names: BTreeSet<&str> = case.input.jobs.iter().map(|job| job.name.as_str()).collect();
    names.len() < case.input.jobs.len()
}

/// Two queues with the same parent were created at the same moment.
fn siblings_of_one_age(case: &Case) -> bool {
    let ages: BTreeSet<_> =
        case.input.queues.iter().map(|queue| (queue.parent.as_deref(), queue.created_offset_s)).collect();
    ages.len() < case.input.queues.len()
}

/// A pending pod shares GPUs, some GPU group has no number for a name, and a node is within two slots of full.
fn named_group_on_a_tight_node(case: &Case) -> bool {
    let shares = |task: &Task| task.gpu.kind == "Fraction" || task.gpu.kind == "GpuMemory";
    let tight = |name: &str, slots: f64| {
        let used = case.tasks().filter(|(_, task)| task.node.as_deref() == Some(name)).count();
        slots - (used as f64) < 2.0
    };
    case.tasks().any(|(_, task)| shares(task) && task.status == "Pending")
        && case.tasks().any(|(_, task)| task.gpu_groups.iter().any(|group| group.parse::<i64>().is_err()))
        && case
            .input
            .nodes
            .iter()
            .any(|node| tight(&node.name, node.allocatable.get("pods").copied().unwrap_or(0.0)))
}

/// Some constraint requires a level below which its topology has a finer one.
fn required_level_above_a_finer_one(case: &Case) -> bool {
    let finer = |topology: &str, level: &str| {
        case.input.topologies.iter().filter(|t| t.name == topology).any(|t| {
            t.levels.iter().position(|l| l.node_label == level).is_some_and(|at| at + 1 < t.levels.len())
        })
    };
    case.input.jobs.iter().flat_map(|job| job.pod_group.sets()).any(|set| {
        let own = set.topology_constraint.iter();
        let leaves = set.pod_sets.iter().filter_map(|leaf| leaf.topology_constraint.as_ref());
        own.chain(leaves).any(|c| c.required_level.as_ref().is_some_and(|level| finer(&c.topology, level)))
    })
}

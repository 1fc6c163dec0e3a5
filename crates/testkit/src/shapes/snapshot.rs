//! Writes a snapshot file: configuration, parameters, and one list per kind.

use super::catalog::Shape;
use super::object_writer::{ObjectWriter, Section};
use serde::Serialize;
use std::io::{self, Write};

const ACTIONS: &str = "allocate, consolidation, reclaim, preempt, stalegangeviction";

/// Plugins in KAI's order; `nodeplacement` is configured for binpack.
const PLUGINS: [&str; 20] = [
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
];

const PRIORITY_CLASSES: [(&str, i32); 4] =
    [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)];

/// The lists of a snapshot in file order; those without a section are empty in every shape.
const LISTS: [(&str, Option<Section>); 17] = [
    ("pods", Some(Section::Pods)),
    ("nodes", Some(Section::Nodes)),
    ("queues", Some(Section::Queues)),
    ("podGroups", Some(Section::Groups)),
    ("bindRequests", None),
    ("priorityClasses", Some(Section::PriorityClasses)),
    ("configMaps", None),
    ("persistentVolumes", None),
    ("persistentVolumeClaims", None),
    ("csiStorageCapacities", None),
    ("storageClasses", None),
    ("csiDrivers", None),
    ("resourceClaims", None),
    ("resourceSlices", None),
    ("deviceClasses", None),
    ("topologies", Some(Section::Topologies)),
    ("nodeResourceTopologies", None),
];

#[derive(Serialize)]
struct Config {
    actions: &'static str,
    tiers: [Tier; 1],
}

#[derive(Serialize)]
struct Tier {
    plugins: Vec<Plugin>,
}

#[derive(Serialize)]
struct Plugin {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Placement>,
}

#[derive(Serialize)]
struct Placement {
    cpu: &'static str,
    gpu: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, clippy::struct_field_names, reason = "the fields are KAI's")]
struct Params {
    scheduler_name: &'static str,
    partition_params: Partition,
    max_number_consolidation_preemptees: u32,
    use_scheduling_signatures: bool,
    full_hierarchy_fairness: bool,
    allow_consolidating_reclaim: bool,
    num_of_status_recording_workers: u32,
    global_default_staleness_grace_period: u64,
    schedule_period: u64,
    stuck_in_releasing_threshold: u64,
    detailed_fit_errors: bool,
    queue_label_key: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Partition {
    node_pool_label_key: &'static str,
    node_pool_label_value: &'static str,
}

pub(super) fn write(shape: &Shape, nodes: usize, to: &mut dyn Write) -> io::Result<()> {
    to.write_all(b"{\"config\":")?;
    serde_json::to_writer(&mut *to, &config())?;
    to.write_all(b",\"schedulerParams\":")?;
    serde_json::to_writer(&mut *to, &params())?;
    to.write_all(b",\"rawObjects\":{")?;
    for (position, (list, section)) in LISTS.into_iter().enumerate() {
        let comma = if position > 0 { "," } else { "" };
        write!(to, "{comma}\"{list}\":[")?;
        if let Some(section) = section {
            write_section(shape, nodes, ObjectWriter::new(section, to))?;
        }
        to.write_all(b"]")?;
    }
    to.write_all(b"}}")
}

/// One pass over the shape.
fn write_section(shape: &Shape, nodes: usize, mut writer: ObjectWriter<'_>) -> io::Result<()> {
    writer.nodes(nodes);
    (shape.build)(&mut writer, nodes);
    for (name, value) in PRIORITY_CLASSES {
        writer.priority_class(name, value);
    }
    writer.finish()
}

fn config() -> Config {
    let plugins = PLUGINS.into_iter().map(|name| {
        let arguments = (name == "nodeplacement").then_some(Placement { cpu: "binpack", gpu: "binpack" });
        Plugin { name, arguments }
    });
    Config { actions: ACTIONS, tiers: [Tier { plugins: plugins.collect() }] }
}

/// KAI's defaults, spans in nanoseconds.
fn params() -> Params {
    Params {
        scheduler_name: "kai-scheduler",
        partition_params: Partition {
            node_pool_label_key: "kai.scheduler/node-pool",
            node_pool_label_value: "",
        },
        max_number_consolidation_preemptees: 16,
        use_scheduling_signatures: true,
        full_hierarchy_fairness: true,
        allow_consolidating_reclaim: true,
        num_of_status_recording_workers: 5,
        global_default_staleness_grace_period: 60_000_000_000,
        schedule_period: 1_000_000_000,
        stuck_in_releasing_threshold: 120_000_000_000,
        detailed_fit_errors: false,
        queue_label_key: "kai.scheduler/queue",
    }
}

//! Translates nodes: allocatable resources, taints and conditions, and GPU facts from labels.

use super::amount::Totals;
use super::{numa, selector};
use crate::finding::Report;
use crate::object::{CsiNode, Node, NodeResourceTopology};
use crate::settings::Settings;
use kai_api::well_known::label;
use kai_engine::input::{
    self, AmountList, GpuMemory, MigStrategy, NodeCondition, NodeDriverLimit, NodeInput, Taint,
};

/// GPU memory labels from this value on are in bytes instead of MiB.
const BYTES_FROM: i64 = 1_048_576;

/// Whether this scheduler uses a node.
pub fn is_selected(node: &Node, settings: &Settings) -> bool {
    let has = |label: &str| node.metadata.label(label).is_some();
    settings.serves_pool(node.metadata.label(&settings.node_pool_key))
        && (!settings.restrict_nodes || has(&settings.cpu_worker_label) || has(&settings.gpu_worker_label))
}

/// Resources of one node besides the usual ones. All nodes together may have 65,535, and every vector is as long as its last
/// one.
const RESOURCES_MAX: usize = 256;

/// Translates a node together with its NUMA zones and CSI drivers.
pub fn translate(
    node: &Node,
    zones: Option<&NodeResourceTopology>,
    drivers: Option<&CsiNode>,
    settings: &Settings,
    report: &mut Report<'_>,
) -> NodeInput {
    let mut allocatable = Totals::read(&node.status.allocatable, "status.allocatable", report).into_list();
    limit_resources(&mut allocatable, report);
    NodeInput {
        name: node.metadata.name.to_text(),
        labels: selector::labels(&node.metadata.labels),
        taints: taints(node, report),
        unschedulable: node.spec.unschedulable,
        bad_conditions: bad_conditions(node),
        allocatable,
        gpu_memory: gpu_memory(node, report),
        gpu_count: gpu_count(node, report),
        mig_strategy: mig_strategy(node, report),
        mig_enabled: node.metadata.label(&settings.mig_label).map(is_true),
        gpu_worker: node.metadata.label(&settings.gpu_worker_label).is_some(),
        cpu_worker: node.metadata.label(&settings.cpu_worker_label).is_some(),
        numa: zones.and_then(|zones| numa::topology(zones, report)),
        attach_limits: drivers.map(attach_limits).unwrap_or_default(),
    }
}

/// Conditions that make a node unschedulable. A missing Ready condition does not.
pub fn bad_conditions(node: &Node) -> Vec<NodeCondition> {
    let mut bad: Vec<NodeCondition> = node
        .status
        .conditions
        .iter()
        .filter_map(|condition| match &*condition.kind {
            "Ready" => (condition.status != "True").then_some(NodeCondition::NotReady),
            "MemoryPressure" => (condition.status != "False").then_some(NodeCondition::MemoryPressure),
            "DiskPressure" => (condition.status != "False").then_some(NodeCondition::DiskPressure),
            "PIDPressure" => (condition.status != "False").then_some(NodeCondition::PidPressure),
            "NetworkUnavailable" => {
                (condition.status != "False").then_some(NodeCondition::NetworkUnavailable)
            }
            _ => None,
        })
        .collect();
    bad.sort_unstable();
    bad.dedup();
    bad
}

fn limit_resources(allocatable: &mut AmountList, report: &mut Report<'_>) {
    let offered = allocatable.len();
    let is_usual = |name: &str| matches!(name, input::CPU | input::MEMORY | input::GPU | input::PODS);
    let mut others = 0;
    allocatable.retain(|(name, _)| {
        others += usize::from(!is_usual(name));
        is_usual(name) || others <= RESOURCES_MAX
    });
    if allocatable.len() < offered {
        report.warn(
            "status.allocatable",
            format!("there are {offered} resources, of which {} count", allocatable.len()),
            "let the device plugins of the node offer fewer resources",
        );
    }
}

/// Memory of each GPU from its label, in MiB or, for large values, in bytes; floored to a multiple of 100 as in KAI.
pub fn gpu_memory(node: &Node, report: &mut Report<'_>) -> GpuMemory {
    let Some(text) = node.metadata.label(label::GPU_MEMORY) else {
        return GpuMemory::default();
    };
    let mib =
        text.parse().ok().map(|value: i64| if value >= BYTES_FROM { value / BYTES_FROM } else { value });
    match mib.map(|mib| mib - mib % 100) {
        Some(mib) if mib > 0 => GpuMemory { mib, known: true },
        Some(_) | None => {
            report.warn(
                label_field(label::GPU_MEMORY),
                format!(
                    "`{text}` is not a GPU memory of at least 100 MiB, so requests by memory are refused here"
                ),
                "set the label to the MiB of one GPU",
            );
            GpuMemory::default()
        }
    }
}

fn gpu_count(node: &Node, report: &mut Report<'_>) -> Option<u32> {
    let text = node.metadata.label(label::GPU_COUNT)?;
    let count = text.parse().ok();
    if count.is_none() {
        report.warn(
            label_field(label::GPU_COUNT),
            format!("`{text}` is not a number of GPUs, so the allocatable GPUs count instead"),
            "set the label to the number of GPUs",
        );
    }
    count
}

fn mig_strategy(node: &Node, report: &mut Report<'_>) -> MigStrategy {
    match node.metadata.label(label::MIG_STRATEGY) {
        None | Some("" | "none") => MigStrategy::None,
        Some("single") => MigStrategy::Single,
        Some("mixed") => MigStrategy::Mixed,
        Some(other) => {
            report.warn(
                label_field(label::MIG_STRATEGY),
                format!("strategy `{other}` is unsupported and counts as none"),
                "use none, single or mixed",
            );
            MigStrategy::None
        }
    }
}

/// Parses like Go's `strconv.ParseBool`; anything else is false.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn label_field(name: &str) -> String {
    format!("metadata.labels[{name}]")
}

fn taints(node: &Node, report: &mut Report<'_>) -> Vec<Taint> {
    let mut taints = Vec::new();
    for taint in &node.spec.taints {
        match selector::taint_effect(&taint.effect) {
            Some(effect) => {
                taints.push(Taint { key: taint.key.to_string(), value: taint.value.to_string(), effect });
            }
            None => report.warn(
                "spec.taints",
                format!(
                    "the effect `{}` of taint `{}` is unknown and has no effect",
                    taint.effect, taint.key
                ),
                "use NoSchedule, PreferNoSchedule or NoExecute",
            ),
        }
    }
    taints
}

fn attach_limits(drivers: &CsiNode) -> Vec<NodeDriverLimit> {
    let mut limits: Vec<NodeDriverLimit> = drivers
        .spec
        .drivers
        .iter()
        .filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some(NodeDriverLimit { driver: driver.name.to_string(), most: u32::try_from(count).unwrap_or(0) })
        })
        .collect();
    limits.sort();
    limits
}

#[cfg(test)]
mod tests;

//! Reads the changes that options ask for.

use crate::args;
use anyhow::{Context as _, Result, anyhow, bail};
use kai_engine::input::{Key, WHOLE_GPU};
use kai_engine::resource::GPU;
use kai_engine::verdict::QueueResource;
use kai_units::Quantity;
use kai_view::ClusterView;
use kai_whatif::{Bound, Change};

/// Maximum nodes of one `--add-nodes`.
const ADDED_MAX: u32 = 10_000;

pub(super) fn read(args: &args::WhatIf, view: &ClusterView) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for setting in &args.settings {
        changes.push(bound(setting, view)?);
    }
    for nodes in &args.add_nodes {
        changes.push(added(nodes, view)?);
    }
    for node in &args.drain {
        if !view.store.objects().nodes.contains_key(&Key::new("", node.as_str())) {
            bail!("--drain: node `{node}` does not exist; hint: `kai nodes` lists all nodes");
        }
        changes.push(Change::Drain { node: node.clone() });
    }
    Ok(changes)
}

/// Reads `queue/NAME.RESOURCE.BOUND=AMOUNT`. The name of a queue may contain dots.
fn bound(setting: &str, view: &ClusterView) -> Result<Change> {
    let malformed = || {
        anyhow!(
            "--set: `{setting}` is not understood; hint: use queue/NAME.RESOURCE.quota=AMOUNT, such as queue/team-a.gpu.quota=16"
        )
    };
    let (path, amount) = setting.split_once('=').ok_or_else(malformed)?;
    let path = path.strip_prefix("queue/").ok_or_else(malformed)?;
    let mut parts = path.rsplitn(3, '.');
    let (Some(bound), Some(resource), Some(queue)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed());
    };
    let bound = match bound {
        "quota" => Bound::Quota,
        "limit" => Bound::Limit,
        _ => return Err(malformed()),
    };
    let resource = match resource {
        "gpu" => QueueResource::Gpu,
        "cpu" => QueueResource::Cpu,
        "memory" => QueueResource::Memory,
        _ => return Err(malformed()),
    };
    let report = view.outcome.queues.iter().find(|report| report.name == queue);
    let report = report.ok_or_else(|| {
        anyhow!("--set: queue `{queue}` does not exist, or its parent does not; hint: `kai queues` lists all queues")
    })?;
    let from = match bound {
        Bound::Quota => report.quota[resource],
        Bound::Limit => report.limit[resource],
    };
    let to = value(resource, amount).with_context(|| format!("--set: `{setting}`"))?;
    Ok(Change::QueueBound { queue: queue.to_owned(), bound, resource, from, to })
}

/// An amount in base units; `None` is unlimited.
fn value(resource: QueueResource, text: &str) -> Result<Option<i64>> {
    if matches!(text, "-1" | "unlimited") {
        return Ok(None);
    }
    let quantity: Quantity = text.parse().with_context(|| format!("`{text}` is not an amount"))?;
    let amount = match resource {
        QueueResource::Gpu => quantity.milli().saturating_mul(WHOLE_GPU / 1_000),
        QueueResource::Cpu => quantity.milli(),
        QueueResource::Memory => quantity.units(),
    };
    if amount < 0 {
        bail!("`{text}` is negative; hint: -1 is unlimited");
    }
    Ok(Some(amount))
}

/// Reads `COUNTxGPUS`.
fn added(text: &str, view: &ClusterView) -> Result<Change> {
    let numbers = text.split_once('x').and_then(|(count, gpus)| {
        let count: u32 = count.parse().ok().filter(|count| (1..=ADDED_MAX).contains(count))?;
        Some((count, gpus.parse::<u32>().ok().filter(|gpus| *gpus <= 1_024)?))
    });
    let Some((count, gpus)) = numbers else {
        bail!(
            "--add-nodes: `{text}` is not understood; hint: use COUNTxGPUS, such as 4x8 for four nodes of eight GPUs"
        );
    };
    let cluster = &view.cluster;
    let like = cluster.nodes_by_rank.iter().map(|node| &cluster.nodes[*node]).find(|node| {
        node.described.get(GPU) == i64::from(gpus) * WHOLE_GPU
            && node.bad_conditions.is_empty()
            && !node.unschedulable
    });
    Ok(match like {
        Some(node) => Change::AddNodesLike { node: cluster.text(node.name).to_owned(), count },
        None => Change::AddNodes { gpus, count },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_quantities_of_their_resource() {
        assert_eq!(value(QueueResource::Gpu, "1.5").unwrap(), Some(1_500_000));
        assert_eq!(value(QueueResource::Cpu, "500m").unwrap(), Some(500));
        assert_eq!(value(QueueResource::Memory, "1Gi").unwrap(), Some(1 << 30));
        assert_eq!(value(QueueResource::Gpu, "-1").unwrap(), None);
        value(QueueResource::Gpu, "-2").unwrap_err();
        value(QueueResource::Gpu, "many").unwrap_err();
    }
}

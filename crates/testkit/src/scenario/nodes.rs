//! Parses nodes, topologies and queues of a scenario.

use super::syntax::{Entry, listed, pair, range, scaled, span};
use anyhow::{Context, Result, bail};
use kai_engine::Delta;
use kai_engine::input::{
    CPU, GPU, GpuMemory, MEMORY, MigStrategy, NodeCondition, NodeDriverLimit, NodeInput, NumaPolicy,
    NumaScope, NumaTopology, NumaZone, PODS, QueueInput, QueueShare, Taint, TaintEffect, TopologyInput,
    WHOLE_GPU,
};
use kai_units::{Span, Timestamp};

/// Bytes in the unit of `mem=`.
pub(super) const GIBI: i64 = 1 << 30;

/// `n1..n4 gpu=8 cpu=64 mem=256 pods=110 gpumem=80000 KEY=VALUE …`
pub(super) fn nodes(entry: &Entry) -> Result<Vec<Delta>> {
    let mut base = NodeInput::default();
    let mut amounts = vec![(CPU, 64_000), (MEMORY, 256 * GIBI), (GPU, 0), (PODS, 110)];
    let mut more = Vec::new();
    for word in &entry.words[1..] {
        let (key, value) = pair(word);
        match key {
            "cpu" => amounts[0].1 = scaled(value, 1000)?,
            "mem" => amounts[1].1 = scaled(value, GIBI)?,
            "gpu" => amounts[2].1 = scaled(value, WHOLE_GPU)?,
            "pods" => amounts[3].1 = value.parse()?,
            "gpumem" => base.gpu_memory = GpuMemory { mib: value.parse()?, known: true },
            "gpucount" => base.gpu_count = Some(value.parse()?),
            "cordon" => base.unschedulable = true,
            "condition" => base.bad_conditions.push(condition(value)?),
            "taint" => base.taints.push(taint(value)?),
            "mig" => (base.mig_strategy, base.mig_enabled) = (mig(value)?, Some(true)),
            "role" => (base.gpu_worker, base.cpu_worker) = (value.contains("gpu"), value.contains("cpu")),
            "numa" => base.numa = Some(numa(value)?),
            "attach" => base.attach_limits.push(attach(value)?),
            _ => match key.strip_prefix("res:") {
                Some(name) => more.push((name.to_owned(), scaled(value, 1000)?)),
                None => base.labels.push((key.to_owned(), value.to_owned())),
            },
        }
    }
    base.allocatable = amounts.into_iter().map(|(name, n)| (name.to_owned(), n)).chain(more).collect();
    base.labels.sort();
    let names = range(&entry.words[0])?;
    let node = |name: String| Delta::Node(Box::new(NodeInput { name, ..base.clone() }));
    Ok(names.into_iter().map(node).collect())
}

fn condition(text: &str) -> Result<NodeCondition> {
    Ok(match text {
        "not-ready" => NodeCondition::NotReady,
        "memory-pressure" => NodeCondition::MemoryPressure,
        "disk-pressure" => NodeCondition::DiskPressure,
        "pid-pressure" => NodeCondition::PidPressure,
        "no-network" => NodeCondition::NetworkUnavailable,
        _ => bail!("`{text}` is not a node condition"),
    })
}

/// `KEY[:VALUE]:EFFECT`
fn taint(text: &str) -> Result<Taint> {
    let (rest, effect) = text.rsplit_once(':').with_context(|| format!("taint `{text}` has no effect"))?;
    let (key, value) = rest.split_once(':').unwrap_or((rest, ""));
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: self::effect(effect)? })
}

pub(super) fn effect(text: &str) -> Result<TaintEffect> {
    Ok(match text {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => bail!("`{text}` is not a taint effect"),
    })
}

fn mig(text: &str) -> Result<MigStrategy> {
    Ok(match text {
        "single" => MigStrategy::Single,
        "mixed" => MigStrategy::Mixed,
        _ => bail!("`{text}` is not a MIG strategy"),
    })
}

/// `POLICY/SCOPE:{cpu=4,gpu=1}x2`
fn numa(text: &str) -> Result<NumaTopology> {
    let parts =
        text.split_once(':').and_then(|(how, zones)| Some((how.split_once('/')?, zones.rsplit_once('x')?)));
    let ((policy, scope), (zone, count)) =
        parts.with_context(|| format!("`{text}` is not a NUMA topology"))?;
    let mut amounts = Vec::new();
    for word in listed(zone) {
        let (key, value) = pair(word);
        amounts.push(match key {
            "cpu" => (CPU.to_owned(), scaled(value, 1000)?),
            "mem" => (MEMORY.to_owned(), scaled(value, GIBI)?),
            "gpu" => (GPU.to_owned(), scaled(value, WHOLE_GPU)?),
            other => (other.to_owned(), scaled(value, 1000)?),
        });
    }
    let zone = |n: usize| NumaZone {
        name: format!("node-{n}"),
        allocatable: amounts.clone(),
        available: amounts.clone(),
    };
    Ok(NumaTopology {
        policy: match policy {
            "none" => NumaPolicy::None,
            "best-effort" => NumaPolicy::BestEffort,
            "restricted" => NumaPolicy::Restricted,
            "single-numa-node" => NumaPolicy::SingleNumaNode,
            _ => bail!("`{policy}` is not a NUMA policy"),
        },
        scope: match scope {
            "pod" => NumaScope::Pod,
            "container" => NumaScope::Container,
            _ => bail!("`{scope}` is not a NUMA scope"),
        },
        zones: (0..count.parse()?).map(zone).collect(),
    })
}

/// `DRIVER:MOST`
fn attach(text: &str) -> Result<NodeDriverLimit> {
    let (driver, most) = text.rsplit_once(':').with_context(|| format!("`{text}` is not an attach limit"))?;
    Ok(NodeDriverLimit { driver: driver.to_owned(), most: most.parse()? })
}

/// `NAME OUTERMOST … INNERMOST`
pub(super) fn topology(entry: &Entry) -> Delta {
    Delta::Topology(TopologyInput { name: entry.words[0].clone(), levels: entry.words[1..].to_vec() })
}

/// `team/alice quota=4 limit=8 weight=2 priority=100 cpu.quota=10 usage=0.5 reclaimmin=5m …`; plain keys are about GPUs.
pub(super) fn queue(entry: &Entry, position: usize) -> Result<Delta> {
    let name = entry.words[0].clone();
    let free = QueueShare { quota: None, limit: None, weight: 1.0 };
    let mut queue = QueueInput {
        parent: name.rsplit_once('/').map(|(parent, _)| parent.to_owned()),
        priority: 100,
        created: Timestamp(0) + Span::from_secs(position as i64),
        cpu: free,
        memory: free,
        gpu: QueueShare { quota: Some(0), limit: None, weight: 1.0 },
        ..QueueInput::default()
    };
    queue.name = name;
    for word in &entry.words[1..] {
        let (key, value) = pair(word);
        match key {
            "priority" => queue.priority = value.parse()?,
            "created" => queue.created = Timestamp(0) + Span::from_secs(value.parse()?),
            "usage" => queue.usage[2] = value.parse()?,
            "preemptmin" => queue.preempt_min_runtime = Some(span(value)?),
            "maxrun" => queue.time_limit = Some(super::groups::time_limit(value)?),
            "reclaimmin" => queue.reclaim_min_runtime = Some(span(value)?),
            _ => {
                let (share, unit, key) = match key.split_once('.') {
                    Some(("cpu", key)) => (&mut queue.cpu, 1000, key),
                    Some(("mem", key)) => (&mut queue.memory, GIBI, key),
                    _ => (&mut queue.gpu, WHOLE_GPU, key),
                };
                let bound = || if value == "none" { Ok(None) } else { scaled(value, unit).map(Some) };
                match key {
                    "quota" => share.quota = bound()?,
                    "limit" => share.limit = bound()?,
                    "weight" => share.weight = value.parse()?,
                    _ => bail!("line {}: a queue has no `{word}`", entry.line),
                }
            }
        }
    }
    Ok(Delta::Queue(Box::new(queue)))
}

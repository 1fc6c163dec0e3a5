//! Builds the cluster of a case from its objects by the production code, and adds states that no object can express.
//!
//! Three states of the recorded harness have no object: a pod that begins pipelined, a bare old-style MIG flag, and
//! GPUs of 100 MiB or less that count in fair shares. They are put onto the translated inputs, by rule.

use super::case::{Case, ObjectsFile};
use crate::test_cluster::TestCluster;
use anyhow::{Context, Result};
use kai_cache::snapshot::{self, Limits};
use kai_cache::{Settings, Store};
use kai_engine::Delta;
use kai_engine::input::{GpuRequest, PodPhase};
use kai_units::Timestamp;
use std::io::Cursor;
use std::path::Path;

/// The smallest GPU memory that fair shares count, in MiB.
const COUNTED_ABOVE_MIB: i64 = 100;
/// Factor for the memory of small GPUs and for requests of it. Only ratios matter.
const SCALE: i64 = 10;

pub(super) struct Session {
    pub(super) cluster: TestCluster,
    pub(super) now: Timestamp,
}

impl Session {
    pub(super) fn load(case: &Case, objects: &Path) -> Result<Self> {
        let name = objects.display().to_string();
        let bytes = std::fs::read(objects).with_context(|| format!("cannot read `{name}`"))?;
        let header: ObjectsFile =
            serde_json::from_slice(&bytes).with_context(|| format!("`{name}` contains no objects"))?;
        let now = header
            .session_time
            .parse()
            .with_context(|| format!("`{}` is not a session time", header.session_time))?;
        let objects = snapshot::read_objects(&name, Cursor::new(bytes), Limits::default())?;
        let settings = Settings {
            restrict_nodes: case.run.scheduler_params.restrict_node_scheduling,
            device_claims: case.run.dynamic_resources_enabled,
            ..Settings::default()
        };
        let mut cluster = TestCluster::default();
        Store::of(settings, objects).drain(|delta| cluster.deltas.push(delta));
        put_statuses(&mut cluster, case);
        if counts_small_gpus(case) {
            enlarge_gpus(&mut cluster);
        }
        Ok(Self { cluster, now })
    }
}

fn put_statuses(cluster: &mut TestCluster, case: &Case) {
    for (_, task) in case.tasks() {
        let pipelined = task.status == "Pipelined";
        if !pipelined && !task.legacy_mig {
            continue;
        }
        if let Some(pod) = cluster.pod_mut(&task.name) {
            pod.spec.legacy_mig |= task.legacy_mig;
            if pipelined {
                pod.phase = PodPhase::Waiting;
                pod.node.clone_from(&task.node);
                pod.gpu_groups.clone_from(&task.gpu_groups);
            }
        }
    }
}

/// Whether GPUs that production does not count decide how much a request by memory counts.
fn counts_small_gpus(case: &Case) -> bool {
    let small = case.input.nodes.iter().all(|node| node.gpu_memory_mib <= COUNTED_ABOVE_MIB);
    small && case.tasks().any(|(_, task)| task.gpu.kind == "GpuMemory")
}

fn enlarge_gpus(cluster: &mut TestCluster) {
    for delta in &mut cluster.deltas {
        if let Delta::Node(node) = delta
            && node.gpu_memory.known
        {
            node.gpu_memory.mib *= SCALE;
        }
        if let Delta::Pod(pod) = delta
            && let GpuRequest::Memory { mib, .. } = &mut pod.spec.gpu
        {
            *mib *= SCALE;
        }
    }
}

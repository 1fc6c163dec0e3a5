//! The summary of a cycle that `--json` prints: timings, counts of decisions, evictions and pending groups.

use super::hints::PlanHints;
use super::timing::Times;
use kai_cache::Store;
use kai_engine::Cluster;
use kai_engine::input::Key;
use kai_engine::outcome::{Decision, Outcome};
use kai_engine::verdict::QueueResource;
use kai_view::amounts::unit;
use kai_view::evictions::{self, EvictionsView};
use kai_view::verdicts::{self, VerdictView};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Times, counts, evictions and pending pod groups of a cycle.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Summary {
    now: String,
    load_ms: f64,
    open_ms: f64,
    actions_ms: BTreeMap<String, f64>,
    total_actions_ms: f64,
    bind_requests: usize,
    /// Evicted pods, including moved ones.
    evicted: usize,
    /// Evicted pods that are placed elsewhere.
    moved: usize,
    /// Pipelined pods, including moved ones.
    pipelined: usize,
    /// Pending pods that were bound or pipelined.
    placed_pending: usize,
    /// GPUs of these pods.
    #[schemars(with = "f64")]
    placed_gpus: Value,
    /// GPUs of pods that were evicted and not placed elsewhere.
    #[schemars(with = "f64")]
    lost_gpus: Value,
    max_rss_mb: f64,
    outcome_hash: String,
    verdicts: BTreeMap<&'static str, usize>,
    /// The keys are sorted at every level.
    #[schemars(with = "Vec<EvictionsView>")]
    evictions: Vec<Value>,
    /// The keys are sorted at every level.
    #[schemars(with = "Vec<VerdictView>")]
    pending: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) findings: Option<Vec<String>>,
    /// With `--hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<PlanHints>")]
    pub(super) hints: Option<Value>,
}

impl Summary {
    pub(super) fn new(
        outcome: &Outcome,
        (store, cluster): (&Store, &Cluster),
        times: &Times,
        now: String,
    ) -> Self {
        let (mut bound, mut evicted, mut moved, mut pipelined) = (0, 0, 0, 0);
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind(_) => bound += 1,
                Decision::Evict { .. } => evicted += 1,
                Decision::Pipeline { moved: was_running, .. } => {
                    pipelined += 1;
                    moved += usize::from(*was_running);
                }
            }
        }
        let [placed_gpus, lost_gpus] = gpus(outcome, cluster).map(|gpus| unit(QueueResource::Gpu, gpus));
        let mut verdicts = BTreeMap::new();
        for verdict in &outcome.verdicts {
            *verdicts.entry(verdicts::name(&verdict.leading)).or_default() += 1;
        }
        Self {
            now,
            load_ms: round(times.load_ms),
            open_ms: round(times.open_ms),
            actions_ms: times.actions_ms.iter().map(|(action, ms)| (action.clone(), round(*ms))).collect(),
            total_actions_ms: round(times.total_actions_ms),
            bind_requests: bound,
            evicted,
            moved,
            pipelined,
            placed_pending: bound + pipelined - moved,
            placed_gpus,
            lost_gpus,
            max_rss_mb: peak_memory_mb(),
            outcome_hash: format!("{:016x}", outcome.hash),
            verdicts,
            evictions: values(&evictions::view(outcome)),
            pending: values(&verdicts::pending(outcome, store, cluster)),
            findings: None,
            hints: None,
        }
    }
}

/// GPUs of pending pods that were placed, and of evicted pods that were not, in millionths. Requests by GPU memory
/// without a node are converted with the smallest GPU of the cluster.
fn gpus(outcome: &Outcome, cluster: &Cluster) -> [i64; 2] {
    let reference = cluster.figures.gpu_memory_min;
    let of_pod = |key: &Key| {
        let pod = cluster.pod(key)?;
        let place = cluster.pods[pod].state.place.as_ref();
        let amounts =
            place.map_or_else(|| cluster.queue_request(pod, reference), |at| cluster.accepted(pod, at));
        Some(amounts[QueueResource::Gpu])
    };
    let (mut placed, mut lost) = (0, 0);
    for decision in &outcome.decisions {
        match decision {
            Decision::Bind(bind) => placed += of_pod(&bind.pod).unwrap_or(0),
            Decision::Pipeline { pod, moved: false, .. } => placed += of_pod(pod).unwrap_or(0),
            Decision::Pipeline { pod, moved: true, .. } => lost -= of_pod(pod).unwrap_or(0),
            Decision::Evict { pod, .. } => lost += of_pod(pod).unwrap_or(0),
        }
    }
    [placed, lost]
}

/// Plain JSON, whose keys are sorted at every level.
fn values(models: &[impl Serialize]) -> Vec<Value> {
    models.iter().map(|model| serde_json::to_value(model).expect("view models serialise")).collect()
}

/// Microseconds are as fine as a clock can be trusted.
fn round(ms: f64) -> f64 {
    (ms * 1_000.0).round() / 1_000.0
}

/// Peak resident memory of this process; 0 where `/proc` is not available.
fn peak_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    kib.map_or(0.0, |kib| (kib / 1_024.0 * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::verdict::{GroupVerdict, Verdict};

    #[test]
    fn moved_pods_count_as_pipelined_but_not_as_placed() {
        let pipeline = |moved| Decision::Pipeline {
            pod: Key::new("ns", "p"),
            node: "n".to_owned(),
            gpu_groups: vec![],
            action: "reclaim",
            moved,
        };
        let waiting = GroupVerdict {
            group: Key::new("ns", "g"),
            queue: "q".to_owned(),
            pending: 1,
            leading: Verdict::QueueMissing,
            further: vec![],
        };
        let outcome = Outcome {
            decisions: vec![Decision::Bind(Box::default()), pipeline(false), pipeline(true)],
            verdicts: vec![waiting.clone(), waiting],
            hash: 0xab,
            ..Outcome::default()
        };
        let summary =
            Summary::new(&outcome, (&Store::default(), &Cluster::new()), &Times::default(), "now".to_owned());
        assert_eq!(
            (summary.bind_requests, summary.pipelined, summary.moved, summary.placed_pending),
            (1, 2, 1, 2)
        );
        assert_eq!(summary.outcome_hash, "00000000000000ab");
        assert_eq!(summary.verdicts, BTreeMap::from([("queue_missing", 2)]));
    }
}

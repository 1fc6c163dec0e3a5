//! Shows what goes on in the cluster: one line that is written over on a terminal, a line for each change elsewhere.

use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::cache::{Caches, Watched};
use kai_runtime::health::Health;
use kai_runtime::kind;
use kai_units::Quantity;
use serde_json::Value;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// From one look to the next.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The resource that GPUs are.
const GPU: &str = kai_api::well_known::resource::NVIDIA_GPU;
/// Phases in the order of a pod's life, and how they are counted aloud.
const PHASES: [(&str, &str); 5] = [
    ("Pending", "pending"),
    ("Running", "running"),
    ("Succeeded", "succeeded"),
    ("Failed", "failed"),
    ("Unknown", "unknown"),
];

/// Follows nodes and pods, and shows them.
pub(super) struct Live {
    caches: Arc<Caches>,
    _tasks: JoinSet<()>,
    shown: String,
    is_terminal: bool,
}

impl Live {
    /// Starts to follow; everything that is there is known when this returns.
    pub(super) async fn start(api: &Api) -> Self {
        let kinds = [kind::NODE, kind::POD];
        let caches = Arc::new(Caches::new(kinds.clone().map(|kind| Watched::all(kind).without_bookmarks())));
        let mut tasks = JoinSet::new();
        caches.follow(api, &Health::default(), &mut tasks);
        caches.synced(&kinds).await;
        let is_terminal = std::io::stdout().is_terminal();
        Self { caches, _tasks: tasks, shown: String::new(), is_terminal }
    }

    /// What there is.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for node in self.caches.all(&kind::NODE) {
            counts.add_node(&node);
        }
        for pod in self.caches.all(&kind::POD) {
            counts.add_pod(&pod);
        }
        counts
    }

    /// Shows what there is, if that is not what was shown last.
    pub(super) fn show(&mut self) {
        let text = self.counts().text();
        if text == self.shown {
            return;
        }
        let mut out = std::io::stdout();
        // Nothing can be done for a terminal or a reader that has gone away; the cluster goes on.
        let _ = if self.is_terminal { write!(out, "\r{text}\x1b[K") } else { writeln!(out, "{text}") };
        let _ = out.flush();
        self.shown = text;
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, text: &str) {
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        let mut out = std::io::stdout();
        // As above: nobody may be listening.
        let _ = writeln!(out, "{start}{text}");
        let _ = out.flush();
        self.shown.clear();
    }

    /// Leaves the last line where it is.
    pub(super) fn end(self) {
        if self.is_terminal {
            let _ = writeln!(std::io::stdout());
        }
    }
}

/// Nodes, pods and GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    ready: usize,
    phases: [usize; PHASES.len()],
    pub(super) gpus: i64,
    gpus_taken: i64,
}

impl Counts {
    fn add_node(&mut self, node: &Value) {
        self.nodes += 1;
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        self.ready += usize::from(conditions.is_some_and(|all| all.iter().any(is_ready)));
        self.gpus += amount(node.pointer("/status/allocatable"));
    }

    fn add_pod(&mut self, pod: &Value) {
        let phase = object::str_at(pod, "/status/phase");
        let index = PHASES.iter().position(|(known, _)| *known == phase).unwrap_or(PHASES.len() - 1);
        self.phases[index] += 1;
        if object::str_at(pod, "/spec/nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
            return;
        }
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let wanted = containers.into_iter().flatten().map(|container| {
            let resources = &container["resources"];
            // What is limited and not requested is requested as much.
            resources.get("requests").map_or_else(|| amount(resources.get("limits")), |all| amount(Some(all)))
        });
        self.gpus_taken += wanted.sum::<i64>();
    }

    fn text(&self) -> String {
        let pods: Vec<String> = PHASES
            .iter()
            .zip(self.phases)
            .filter(|(_, count)| *count > 0)
            .map(|((_, name), count)| format!("{count} {name}"))
            .collect();
        let pods = if pods.is_empty() { "none".to_owned() } else { pods.join(", ") };
        let Self { nodes, ready, gpus, gpus_taken, .. } = self;
        format!("nodes: {ready} of {nodes} ready; GPUs: {gpus_taken} of {gpus} taken; pods: {pods}")
    }
}

/// The GPUs in a list of amounts.
fn amount(amounts: Option<&Value>) -> i64 {
    let text = match amounts.and_then(|all| all.get(GPU)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return 0,
    };
    text.parse::<Quantity>().map_or(0, Quantity::units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_line_counts_nodes_gpus_and_pods() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(), "nodes: 0 of 0 ready; GPUs: 0 of 0 taken; pods: none");
        let node = |ready: &str| {
            json!({"status": {"allocatable": {"nvidia.com/gpu": "8"},
                "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": ready}]}})
        };
        counts.add_node(&node("True"));
        counts.add_node(&node("Unknown"));
        let pod = |node: &str, phase: &str| {
            json!({"spec": {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]},
                "status": {"phase": phase}})
        };
        for (node, phase) in [("", "Pending"), ("a", "Pending"), ("a", "Running"), ("a", "Succeeded")] {
            counts.add_pod(&pod(node, phase));
        }
        assert_eq!(
            counts.text(),
            "nodes: 1 of 2 ready; GPUs: 4 of 16 taken; pods: 2 pending, 1 running, 1 succeeded"
        );
    }
}

//! The rows of Pods and Events; the Status column follows kubectl's pod printer.

use super::cells::{Cells, since};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn row(pod: &Cells<'_>) -> Vec<Value> {
    let state = State::of(pod);
    let total = pod.count("/spec/containers")
        + pod.list("/spec/initContainers").iter().filter(|one| is_sidecar(one)).count() as i64;
    let mut restarts = state.restarts.count.to_string();
    if let Some(time) = state.restarts.last.filter(|_| state.restarts.count > 0) {
        restarts = format!("{restarts} ({} ago)", super::age::since(time, pod.now));
    }
    let ready = format!("{}/{total}", state.ready);
    vec![
        json!(pod.name()),
        json!(ready),
        json!(state.word),
        json!(restarts),
        json!(pod.age()),
        json!(pod.text_or("/status/podIPs/0/ip", "<none>")),
        json!(pod.text_or("/spec/nodeName", "<none>")),
        json!(pod.text_or("/status/nominatedNodeName", "<none>")),
        json!(readiness_gates(pod)),
    ]
}

/// The row condition by which clients hide finished pods.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str)?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

fn readiness_gates(pod: &Cells<'_>) -> String {
    let gates = pod.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = |gate: &&Value| gate["conditionType"].as_str().is_some_and(|kind| pod.has_condition(kind));
    format!("{}/{}", gates.iter().filter(open).count(), gates.len())
}

/// The number of restarts, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += status["restartCount"].as_i64().unwrap_or_default();
        let finished = status.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
        self.last = self.last.max(finished.and_then(|time| time.parse().ok()));
    }
}

struct State {
    word: String,
    ready: i64,
    restarts: Restarts,
}

impl State {
    fn of(pod: &Cells<'_>) -> Self {
        let mut word = pod.text_or("/status/reason", pod.text("/status/phase")).to_owned();
        let gated = |condition: &Value| condition["reason"] == "SchedulingGated";
        if pod.list("/status/conditions").iter().any(|one| one["type"] == "PodScheduled" && gated(one)) {
            "SchedulingGated".clone_into(&mut word);
        }
        let mut state = Self { word, ready: 0, restarts: Restarts::default() };
        let (initializing, sidecars) = state.init_containers(pod);
        if !initializing || pod.has_condition("Initialized") {
            state.restarts = sidecars;
            state.containers(pod);
        }
        let finished = kai_object::is_terminal_phase(pod.text("/status/phase"));
        if pod.is_deleting() && pod.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut state.word);
        } else if pod.is_deleting() && !finished {
            "Terminating".clone_into(&mut state.word);
        }
        state
    }

    /// Evaluates init containers up to the first one that is not finished; returns whether there is one, and the
    /// restarts of sidecars.
    fn init_containers(&mut self, pod: &Cells<'_>) -> (bool, Restarts) {
        let specs = pod.list("/spec/initContainers");
        let mut sidecars = Restarts::default();
        for (index, status) in pod.list("/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(status);
            let sidecar = specs.iter().any(|spec| spec["name"] == status["name"] && is_sidecar(spec));
            if sidecar {
                sidecars.add(status);
            }
            let terminated = status.pointer("/state/terminated").filter(|state| state.is_object());
            let waiting = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
            if terminated.is_some_and(|state| state["exitCode"] == 0) {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += i64::from(status["ready"] == true);
                continue;
            }
            self.word = match terminated {
                Some(state) => format!("Init:{}", end_of(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", specs.len()),
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: &Cells<'_>) {
        let mut running = false;
        let mut failed = None;
        for status in pod.list("/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waiting = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
            let terminated = status.pointer("/state/terminated").filter(|state| state.is_object());
            let is_running = status.pointer("/state/running").is_some_and(Value::is_object);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.word);
            } else if let Some(state) = terminated {
                self.word = end_of(state);
                if state["exitCode"] != 0 {
                    failed = Some(self.word.clone());
                }
            } else if status["ready"] == true && is_running {
                running = true;
                self.ready += 1;
            }
        }
        if self.word == "Completed" {
            if running && pod.has_condition("Ready") {
                "Running".clone_into(&mut self.word);
            } else if let Some(failed) = failed {
                self.word = failed;
            } else if running {
                "NotReady".clone_into(&mut self.word);
            }
        }
    }
}

/// The termination reason of a container.
fn end_of(state: &Value) -> String {
    let reason = state["reason"].as_str().unwrap_or_default();
    let signal = state["signal"].as_i64().unwrap_or_default();
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or_default())
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

pub(super) fn event_row(event: &Cells<'_>) -> Vec<Value> {
    // The two groups name the same fields differently.
    let either =
        |core: &str, other: &str| if event.get(core).is_some() { core.to_owned() } else { other.to_owned() };
    let object = either("/involvedObject", "/regarding");
    let first_time = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let last_time = either("/lastTimestamp", "/deprecatedLastTimestamp");
    let first =
        if event.get(&first_time).is_some() { event.since(&first_time) } else { event.since("/eventTime") };
    let mut last = if event.get(&last_time).is_some() { event.since(&last_time) } else { first.clone() };
    let mut count = event.number(&either("/count", "/deprecatedCount")).max(1);
    if let Some(time) = event.get("/series/lastObservedTime") {
        last = since(time, event.now);
        count = event.number("/series/count");
    }
    let kind = event.text(&format!("{object}/kind")).to_lowercase();
    let name = event.text(&format!("{object}/name"));
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let source = either("/source", "/deprecatedSource");
    let reporter = event.text_or("/reportingComponent", event.text("/reportingController"));
    let component = event.text_or(&format!("{source}/component"), reporter);
    let host = event.text_or(&format!("{source}/host"), event.text("/reportingInstance"));
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        json!(last),
        json!(event.text("/type")),
        json!(event.text("/reason")),
        json!(target),
        json!(event.text(&format!("{object}/fieldPath"))),
        json!(source),
        json!(event.text(&either("/message", "/note")).trim()),
        json!(first),
        json!(count),
        json!(event.name()),
    ]
}

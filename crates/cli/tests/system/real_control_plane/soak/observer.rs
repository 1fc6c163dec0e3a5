//! Checks the laws from plain watches and the audit log. It shares no code with the components: it reads JSON.
//!
//! At every revision of a pod: no node has more GPUs in use than it has, no GPU is shared beyond one whole, a bound pod
//! keeps its node, and a gang is not partly bound for long. When nothing changes any more: every pod runs, every
//! reservation has a user, and the status of the queues equals their pods.

use super::super::control_plane::{Plane, RESERVATION};
use super::POOL;
use kai_clock::Stopwatch;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// A gang may be partly bound this long: KAI's grace period for stale groups (60 s), a failed leader (20 s), and restarts.
const PARTLY_BOUND_MAX: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(500);

pub(super) struct Observer {
    plane: Arc<Plane>,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    gpus: i64,
    pods: BTreeMap<String, Value>,
    /// Node of every pod that was ever bound, by uid.
    nodes: BTreeMap<String, String>,
    /// Since when a gang is partly bound.
    partly: BTreeMap<String, Stopwatch>,
    violations: BTreeSet<String>,
    events: usize,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn is_active(pod: &Value) -> bool {
    !text(pod, "/spec/nodeName").is_empty() && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn whole_gpus(pod: &Value) -> i64 {
    text(pod, "/spec/containers/0/resources/limits/nvidia.com~1gpu").parse().unwrap_or(0)
}

/// Hundredths of a GPU.
fn fraction(pod: &Value) -> i64 {
    let fraction: f64 = text(pod, "/metadata/annotations/gpu-fraction").parse().unwrap_or(0.0);
    (fraction * 100.0).round() as i64
}

fn gpu_group(pod: &Value) -> &str {
    text(pod, "/metadata/labels/runai-gpu-group")
}

impl State {
    fn apply(&mut self, kind: &str, pod: Value) {
        self.events += 1;
        let uid = text(&pod, "/metadata/uid").to_owned();
        let node = text(&pod, "/spec/nodeName");
        let known = self.nodes.entry(uid.clone()).or_default();
        if !known.is_empty() && known != node {
            self.violations.insert(format!("pod {} was on {known} and is on `{node}`", name(&pod)));
        }
        node.clone_into(known);
        if kind == "DELETED" {
            self.pods.remove(&uid);
        } else {
            self.pods.insert(uid, pod);
        }
        self.check();
    }

    fn check(&mut self) {
        let mut by_node: BTreeMap<&str, i64> = BTreeMap::new();
        let mut by_group: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| is_active(pod)) {
            let node = text(pod, "/spec/nodeName");
            *by_node.entry(node).or_default() += whole_gpus(pod);
            if fraction(pod) > 0 {
                *by_group.entry((node, gpu_group(pod))).or_default() += fraction(pod);
            }
        }
        let gpus = self.gpus;
        let nodes = by_node.iter().filter(|(_, used)| **used > gpus);
        let nodes = nodes.map(|(node, used)| format!("{used} GPUs are in use on {node}, which has {gpus}"));
        let groups = by_group.iter().filter(|(_, used)| **used > 100);
        let groups =
            groups.map(|((node, group), used)| format!("{used} % of GPU `{group}` on {node} are in use"));
        let found: Vec<String> = nodes.chain(groups).collect();
        self.violations.extend(found);
        self.check_gangs();
    }

    /// Pods of a gang have its name and a number; all of them are its minimum.
    fn check_gangs(&mut self) {
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| name(pod).starts_with("gang-")) {
            let deleting = pod.pointer("/metadata/deletionTimestamp").is_some();
            let gang = gangs.entry(text(pod, "/metadata/annotations/pod-group-name").to_owned()).or_default();
            gang.0 += usize::from(is_active(pod) && !deleting);
            gang.1 += usize::from(!deleting);
        }
        let is_partly = |gang: &String| gangs.get(gang).is_some_and(|(bound, all)| *bound > 0 && bound < all);
        self.partly.retain(|gang, _| is_partly(gang));
        for gang in gangs.keys().filter(|gang| is_partly(gang)) {
            let since = self.partly.entry(gang.clone()).or_insert_with(Stopwatch::start);
            if since.elapsed() > PARTLY_BOUND_MAX {
                let (bound, all) = gangs[gang];
                self.violations
                    .insert(format!("{bound} of {all} pods of {gang} are bound for {:?}", since.elapsed()));
            }
        }
    }
}

impl Observer {
    pub(super) fn start(plane: &Arc<Plane>, gpus: i64) -> Self {
        let state = Arc::new(Mutex::new(State {
            gpus,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            partly: BTreeMap::new(),
            violations: BTreeSet::new(),
            events: 0,
        }));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(Arc::clone(plane), Arc::clone(&state)));
        Self { plane: Arc::clone(plane), state, _tasks: tasks }
    }

    pub(super) fn assert_holds(&self) {
        let mut state = self.state.lock();
        state.check();
        assert!(state.violations.is_empty(), "{:#?}", state.violations);
    }

    pub(super) fn summary(&self) -> String {
        let state = self.state.lock();
        format!("{} pods, {} of them bound, {} events", state.nodes.len(), bound(&state), state.events)
    }

    /// Waits until every pod runs, every reservation has a user, and the queues' status equals their pods.
    pub(super) async fn wait_until_quiet(&self, limit: Duration) {
        self.wait(limit, async || {
            let mut wrong = self.pods_that_wait();
            wrong.extend(self.unused_reservations());
            wrong.extend(self.wrong_queues().await);
            wrong
        })
        .await;
    }

    /// Waits until there is no pod and no reservation.
    pub(super) async fn wait_until_empty(&self, limit: Duration) {
        self.wait(limit, async || {
            let state = self.state.lock();
            let ours = |pod: &&Value| matches!(text(pod, "/metadata/namespace"), POOL | RESERVATION);
            state.pods.values().filter(ours).map(|pod| format!("{} remains", name(pod))).collect()
        })
        .await;
    }

    async fn wait(&self, limit: Duration, wrong: impl AsyncFn() -> Vec<String>) {
        let watch = Stopwatch::start();
        loop {
            let wrong = wrong().await;
            if wrong.is_empty() {
                return;
            }
            assert!(watch.elapsed() < limit, "after {limit:?} without faults: {wrong:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    fn pods_that_wait(&self) -> Vec<String> {
        let state = self.state.lock();
        let ours = state.pods.values().filter(|pod| text(pod, "/metadata/namespace") == POOL);
        let waiting = ours.filter(|pod| {
            text(pod, "/status/phase") != "Running" || pod.pointer("/metadata/deletionTimestamp").is_some()
        });
        let condition = |pod: &Value| {
            let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
            let scheduled =
                conditions.into_iter().flatten().find(|condition| text(condition, "/type") == "PodScheduled");
            scheduled.map_or(String::new(), |condition| text(condition, "/message").to_owned())
        };
        waiting
            .map(|pod| format!("{} is {}: {}", name(pod), text(pod, "/status/phase"), condition(pod)))
            .collect()
    }

    fn unused_reservations(&self) -> Vec<String> {
        let state = self.state.lock();
        let used: BTreeSet<&str> = state
            .pods
            .values()
            .filter(|pod| text(pod, "/metadata/namespace") == POOL && is_active(pod))
            .map(gpu_group)
            .collect();
        let reservations = state.pods.values().filter(|pod| text(pod, "/metadata/namespace") == RESERVATION);
        let unused = reservations.filter(|pod| !used.contains(gpu_group(pod)));
        unused.map(|pod| format!("the reservation {} has no user", name(pod))).collect()
    }

    /// GPUs in the status of the queues, against the sum of their bound pods.
    async fn wrong_queues(&self) -> Vec<String> {
        let Ok(response) = self.plane.control().get("/apis/scheduling.run.ai/v2/queues").await else {
            return vec!["the queues cannot be read".to_owned()];
        };
        let list: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let state = self.state.lock();
        let mut wrong = Vec::new();
        for queue in list["items"].as_array().into_iter().flatten() {
            let allocated = queue.pointer("/status/allocated/nvidia.com~1gpu");
            let allocated = allocated.and_then(Value::as_str).map_or(0, hundredths);
            let has_children = queue
                .pointer("/status/childQueues")
                .and_then(Value::as_array)
                .is_some_and(|all| !all.is_empty());
            if has_children {
                continue;
            }
            let pods = state.pods.values().filter(|pod| {
                is_active(pod) && text(pod, "/metadata/labels/kai.scheduler~1queue") == name(queue)
            });
            let used: i64 = pods.map(|pod| 100 * whole_gpus(pod) + fraction(pod)).sum();
            if used != allocated {
                wrong.push(format!(
                    "queue {} has {allocated} % of a GPU allocated, its pods have {used}",
                    name(queue)
                ));
            }
        }
        wrong
    }

    /// Each pod was bound once: the audit log has one successful request for each.
    pub(super) async fn check_audit_log(&self) {
        let log = tokio::fs::read_to_string(self.plane.control().audit_file()).await.unwrap();
        let mut bindings: BTreeMap<String, usize> = BTreeMap::new();
        for line in log.lines() {
            let Ok(request) = serde_json::from_str::<Value>(line) else { continue };
            let succeeded = request.pointer("/responseStatus/code").and_then(Value::as_i64) == Some(201);
            if succeeded && text(&request, "/objectRef/subresource") == "binding" {
                let pod = format!(
                    "{}/{}",
                    text(&request, "/objectRef/namespace"),
                    text(&request, "/objectRef/name")
                );
                *bindings.entry(pod).or_default() += 1;
            }
        }
        assert!(!bindings.is_empty(), "the audit log has no binding");
        let twice: Vec<_> = bindings.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "pods that were bound more than once: {twice:?}");
    }
}

fn bound(state: &State) -> usize {
    state.nodes.values().filter(|node| !node.is_empty()).count()
}

/// A quantity of GPUs in hundredths: `1`, `0.5`, `1500m`.
fn hundredths(quantity: &str) -> i64 {
    let (number, factor) = quantity.strip_suffix('m').map_or((quantity, 100.0), |number| (number, 0.1));
    (number.parse::<f64>().unwrap_or(-1.0) * factor).round() as i64
}

/// Lists and watches all pods, and resumes after every interruption.
async fn watch(plane: Arc<Plane>, state: Arc<Mutex<State>>) {
    loop {
        if let Some(version) = list(&plane, &state).await {
            follow(&plane, &state, version).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn list(plane: &Plane, state: &Mutex<State>) -> Option<String> {
    let response = plane.control().get("/api/v1/pods").await.ok()?;
    let list: Value = serde_json::from_slice(&response.body).ok()?;
    let version = text(&list, "/metadata/resourceVersion").to_owned();
    let items = list.get("items")?.as_array()?.clone();
    let mut state = state.lock();
    state.pods.clear();
    for pod in items {
        state.apply("ADDED", pod);
    }
    (!version.is_empty()).then_some(version)
}

/// Follows a watch and resumes it at the last version, until that has expired.
async fn follow(plane: &Plane, state: &Mutex<State>, mut version: String) {
    loop {
        let path = format!("/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=300");
        let Ok(mut lines) = plane.control().lines(&path).await else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        if lines.status != 200 {
            return;
        }
        while let Ok(Some(line)) = lines.next().await {
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { break };
            let kind = text(&event, "/type").to_owned();
            if kind == "ERROR" {
                return;
            }
            let pod = event["object"].clone();
            text(&pod, "/metadata/resourceVersion").clone_into(&mut version);
            state.lock().apply(&kind, pod);
        }
    }
}

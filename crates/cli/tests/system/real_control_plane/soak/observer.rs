//! Follows the objects by plain watches and applies them to the [`Laws`]. It shares no code with the components.

use super::super::control_plane::{Plane, RESERVATION};
use super::POOL;
use super::laws::{Kind, Laws, name, text};
use kai_clock::Stopwatch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const POLL: Duration = Duration::from_millis(500);
/// How long nothing may be unfinished before the cluster counts as quiet: a decision may be on its way.
const QUIET_FOR: Duration = Duration::from_secs(3);

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const BIND_REQUESTS: &str = "/apis/scheduling.run.ai/v1alpha2/bindrequests";
const POD_GROUPS: &str = "/apis/scheduling.run.ai/v2alpha2/podgroups";
const QUEUES: &str = "/apis/scheduling.run.ai/v2/queues";

pub(super) struct Observer {
    plane: Arc<Plane>,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    laws: Laws,
    watch: Stopwatch,
    /// Every watch event in brief, to understand a violation.
    history: File,
}

impl State {
    fn apply(&mut self, kind: Kind, event: &str, object: Value) {
        let brief = json!({
            "s": self.watch.elapsed().as_secs_f64(), "kind": format!("{kind:?}"), "event": event, "name": name(&object),
            "version": text(&object, "/metadata/resourceVersion"), "node": text(&object, "/spec/nodeName"),
            "phase": text(&object, "/status/phase"), "deleted": text(&object, "/metadata/deletionTimestamp"),
            "gpuGroup": text(&object, "/metadata/labels/runai-gpu-group"),
            "allocation": object.pointer("/status/allocation/devices/results"),
        });
        writeln!(self.history, "{brief}").unwrap();
        self.laws.apply(kind, event, object, self.watch.elapsed());
    }
}

impl Observer {
    /// Observes the workloads of a pool. The events are written to a file in `folder`.
    pub(super) fn start(plane: &Arc<Plane>, folder: &Path, with_claims: bool) -> Self {
        let state = Arc::new(Mutex::new(State {
            laws: Laws::new(POOL, RESERVATION),
            watch: Stopwatch::start(),
            history: File::create(folder.join("observed.jsonl")).unwrap(),
        }));
        let mut tasks = JoinSet::new();
        let kinds = [(Kind::Pod, "/api/v1/pods"), (Kind::Node, "/api/v1/nodes"), (Kind::Claim, CLAIMS)];
        for (kind, path) in kinds.into_iter().filter(|(kind, _)| with_claims || *kind != Kind::Claim) {
            tasks.spawn(watch(Arc::clone(plane), Arc::clone(&state), kind, path));
        }
        Self { plane: Arc::clone(plane), state, _tasks: tasks }
    }

    pub(super) fn assert_holds(&self) {
        let mut state = self.state.lock();
        let now = state.watch.elapsed();
        state.laws.check(now);
        assert!(state.laws.violations.is_empty(), "broken laws: {:#?}", state.laws.violations);
    }

    pub(super) fn progress(&self) -> String {
        let state = self.state.lock();
        let ((seen, bound), (now, running)) = (state.laws.pods_seen(), state.laws.pods_now());
        format!("{now} pods, {running} run; {seen} seen, {bound} bound")
    }

    pub(super) fn summary(&self) -> String {
        let state = self.state.lock();
        let (seen, bound) = state.laws.pods_seen();
        format!(
            "{seen} pods, {bound} of them bound; the laws were checked {} times, after {} watch events",
            state.laws.checks, state.laws.events
        )
    }

    /// Pods of a workload that run.
    pub(super) fn running(&self, workload: &str) -> usize {
        self.state.lock().laws.running(workload)
    }

    /// Waits until everything that fits runs, nothing is leaked, and the status of the queues equals their pods.
    /// `more` returns what else is unfinished.
    pub(super) async fn wait_until_quiet(&self, limit: Duration, more: impl Fn() -> Vec<String>) {
        self.wait(limit, async || {
            let mut wrong = more();
            {
                let state = self.state.lock();
                wrong.extend(state.laws.unfinished());
                wrong.extend(state.laws.leaked_claims());
            }
            match (self.read(QUEUES).await, self.read(BIND_REQUESTS).await) {
                (Some(queues), Some(requests)) => {
                    wrong.extend(self.state.lock().laws.wrong_queues(&queues));
                    let open =
                        requests.iter().filter(|request| text(request, "/status/phase") != "Succeeded");
                    wrong.extend(open.map(|request| format!("the bind request {} is open", name(request))));
                }
                _ => wrong.push("queues and bind requests cannot be read".to_owned()),
            }
            wrong
        })
        .await;
    }

    /// Waits until no pod, reservation, claim, bind request and pod group remains.
    pub(super) async fn wait_until_empty(&self, limit: Duration) {
        self.wait(limit, async || {
            let mut remaining = self.state.lock().laws.remaining();
            for path in [BIND_REQUESTS, POD_GROUPS] {
                let Some(found) = self.read(path).await else { return vec![format!("cannot read {path}")] };
                remaining.extend(found.iter().map(|object| format!("{path}: {} remains", name(object))));
            }
            remaining
        })
        .await;
    }

    /// Waits until nothing is wrong for [`QUIET_FOR`].
    async fn wait(&self, limit: Duration, wrong: impl AsyncFn() -> Vec<String>) {
        let watch = Stopwatch::start();
        let mut quiet_since = None;
        loop {
            self.assert_holds();
            let wrong = wrong().await;
            let now = watch.elapsed();
            if wrong.is_empty() {
                if now >= *quiet_since.get_or_insert(now) + QUIET_FOR {
                    return;
                }
            } else {
                quiet_since = None;
                assert!(now < limit, "after {limit:?} without faults: {wrong:#?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn read(&self, path: &str) -> Option<Vec<Value>> {
        Some(list(&self.plane, path).await?.0)
    }
}

/// Lists and watches all objects of a kind, and resumes after every interruption.
async fn watch(plane: Arc<Plane>, state: Arc<Mutex<State>>, kind: Kind, path: &'static str) {
    loop {
        if let Some((objects, version)) = list(&plane, path).await {
            {
                let mut state = state.lock();
                let now = state.watch.elapsed();
                state.laws.replace(kind, objects, now);
            }
            follow(&plane, &state, kind, path, version).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn list(plane: &Plane, path: &str) -> Option<(Vec<Value>, String)> {
    let response = plane.control().get(path).await.ok()?;
    let mut list: Value = serde_json::from_slice(&response.body).ok()?;
    let version = text(&list, "/metadata/resourceVersion").to_owned();
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else { return None };
    (!version.is_empty()).then_some((items, version))
}

/// Follows a watch and resumes it at the last version, until that has expired.
async fn follow(plane: &Plane, state: &Mutex<State>, kind: Kind, path: &str, mut version: String) {
    loop {
        let path = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=300");
        let Ok(mut lines) = plane.control().lines(&path).await else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        if lines.status != 200 {
            return;
        }
        while let Ok(Some(line)) = lines.next().await {
            let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { break };
            let event_type = text(&event, "/type").to_owned();
            if event_type == "ERROR" {
                return;
            }
            let object = event["object"].take();
            text(&object, "/metadata/resourceVersion").clone_into(&mut version);
            state.lock().apply(kind, &event_type, object);
        }
    }
}

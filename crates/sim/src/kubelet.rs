//! The stand-in for kubelets: it takes the pods that are bound to simulated nodes and lives their lives.
//!
//! Everything it knows of a pod is in the pod's status and annotations, so it can stop and begin again at any time.
//! What a pod does is up to its annotations ([`well_known`]).

mod admission;
mod lanes;
mod life;
mod status;

use crate::connection::Connection;
use crate::controllers::{annotation, pod, set_entry, time};
use crate::event::{self, Source};
use crate::node::heartbeat::{self, Failure, is_simulated};
use crate::well_known;
use jiff::Timestamp;
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, Deletion, Part, Result};
use kai_runtime::cache::{Caches, Interest, Watched};
use kai_runtime::controller::{self, Context, Next};
use kai_runtime::health::Health;
use kai_runtime::kind::{self, Key, Kind};
use lanes::{Lane, Lanes};
use life::{Ending, Stage};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What kubelets call themselves to the server.
pub const CLIENT: &str = "kubelet";

/// How simulated nodes behave where pods do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How often nodes are heard of.
    pub heartbeat: Duration,
    /// How long pods take to start.
    pub start_delay: Duration,
    /// How long containers take to stop.
    pub stop_delay: Duration,
    /// How long containers run; without it until they are stopped.
    pub run_for: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            start_delay: Duration::from_secs(1),
            stop_delay: Duration::from_secs(1),
            run_for: None,
        }
    }
}

/// Runs the kubelets of all simulated nodes. Never returns; when it is dropped they stop.
///
/// They read through one client, and each writes through its own below it, named like its node.
pub async fn run(way: Connection, clock: Clock, options: Options) {
    let api = Api::new(way.client(), CLIENT);
    let caches = Arc::new(Caches::new(KINDS.map(|kind| Watched::all(kind).without_bookmarks())));
    let (send, mut arrivals) = mpsc::unbounded_channel();
    let lanes = Arc::new(Lanes::new(send));
    for kind in &KINDS {
        let (lanes, caches_of) = (Arc::clone(&lanes), Arc::downgrade(&caches));
        let listener = move |kind: &Kind, changed: &Value| {
            let Some(caches) = caches_of.upgrade() else { return Interest::Ended };
            lanes.route(&caches, kind, changed);
            Interest::Stays
        };
        caches.listen(kind, Box::new(listener));
    }
    let mut tasks = JoinSet::new();
    caches.follow(&api, &Health::default(), &mut tasks);
    loop {
        tokio::select! {
            biased;
            arrived = arrivals.recv() => {
                let Some((node, lane)) = arrived else { return };
                let (caches, below) = (Arc::clone(&caches), way.below(&node));
                tasks.spawn(below.supervise(move |way| {
                    let api = Api::new(way.client(), CLIENT);
                    let source = Source { component: CLIENT.to_owned(), host: Some(node.clone()) };
                    let (events, recording) = event::recorder(api.clone(), clock, source);
                    let context =
                        Context { events: Some(Arc::new(events)), ..Context::new(api, Arc::clone(&caches), clock) };
                    let kubelet = Kubelet { options, lane: Arc::clone(&lane) };
                    let running = kubelet.run(context, node.clone());
                    async move {
                        tokio::join!(running, recording.run());
                    }
                }));
            }
            ended = tasks.join_next() => {
                if let Some(Err(error)) = ended
                    && error.is_panic()
                {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
}

/// What kubelets look at.
const KINDS: [Kind; 5] = [kind::NODE, kind::LEASE, kind::POD, kind::VOLUME_CLAIM, kind::RESOURCE_CLAIM];

#[derive(Debug)]
struct Kubelet {
    options: Options,
    lane: Arc<Lane>,
}

impl Kubelet {
    async fn run(self, context: Context, node: String) {
        context.caches.synced(&KINDS).await;
        for pod in context.caches.on_node(&kind::POD, &node) {
            self.lane.queue.add(Key::of(&pod));
        }
        let (kubelet, context) = (&self, &context);
        let work = controller::work(CLIENT, &self.lane.queue, 1, |key| async move {
            kubelet.reconcile(context, &key).await
        });
        tokio::join!(heartbeat::run(context, &node, self.options.heartbeat), work);
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Next> {
        let Some(found) = context.caches.get(&kind::POD, key) else { return Ok(Next::Wait) };
        let node = Key::new("", object::str_at(&found, "/spec/nodeName"));
        let Some(node) = context.caches.get(&kind::NODE, &node) else { return Ok(Next::Wait) };
        let silent = matches!(Failure::of(&node), Some(Failure::Unreachable | Failure::Down));
        if !is_simulated(&node) || silent {
            return Ok(Next::Wait);
        }
        let boot = self.lane.note(&node, Some(context.clock.now()));
        if object::is_deleting(&found) {
            return self.stop(context, &found).await;
        }
        if pod::is_finished(&found) {
            return Ok(Next::Wait);
        }
        match life::stage(&found) {
            Stage::New => self.admit(context, &found, &node).await,
            Stage::Starting { since } => self.start(context, &found, &node, since).await,
            Stage::Running { since } => self.watch_over(context, &found, since, boot).await,
            Stage::Resting { since, restarts } => self.restart(context, &found, since, restarts).await,
        }
    }

    /// Takes a pod in, with its devices, or refuses it.
    async fn admit(&self, context: &Context, pod: &Value, node: &Value) -> Result<Next> {
        let neighbours = context.caches.on_node(&kind::POD, object::name(node));
        let others: Vec<&Value> = neighbours
            .iter()
            .map(|other| &**other)
            .filter(|other| object::uid(other) != object::uid(pod) && admission::holds_resources(other))
            .collect();
        let devices = match admission::admit(pod, node, &others) {
            Ok(devices) => devices,
            Err(refusal) => {
                let mut new = pod.clone();
                status::refuse(&mut new, refusal.reason(), &refusal.to_string(), &context.clock.time());
                context.update(&kind::POD, Part::Status, pod, &new).await?;
                context.warn(pod, refusal.reason(), refusal.to_string());
                return Ok(Next::Wait);
            }
        };
        // Annotations may be written together with the status.
        let mut new = pod.clone();
        if !devices.is_empty() && annotation(pod, well_known::GPU_DEVICES).is_empty() {
            set_entry(&mut new, "annotations", well_known::GPU_DEVICES, &devices.join(","));
        }
        status::creating(&mut new, node, &context.clock.time());
        context.update(&kind::POD, Part::Status, pod, &new).await?;
        Ok(Next::After(self.start_delay(pod)))
    }

    async fn start(&self, context: &Context, pod: &Value, node: &Value, since: Timestamp) -> Result<Next> {
        if admission::waits_for_something(pod, &context.caches) {
            return Ok(Next::Wait);
        }
        let now = context.clock.now();
        let due = time::later(since, self.start_delay(pod));
        if due > now {
            return Ok(Next::After(time::until(now, due)));
        }
        let mut new = pod.clone();
        status::running(&mut new, node, &context.clock.time(), 0);
        context.update(&kind::POD, Part::Status, pod, &new).await?;
        tell_started(context, pod);
        Ok(self.run_for(pod).map_or(Next::Wait, Next::After))
    }

    /// Ends a run whose time is over, or that did not outlive its node.
    async fn watch_over(
        &self,
        context: &Context,
        pod: &Value,
        since: Timestamp,
        boot: Option<Timestamp>,
    ) -> Result<Next> {
        let now = context.clock.now();
        if boot.is_some_and(|boot| since < boot) {
            return self.end(context, pod, Ending { code: 137, reason: "Error" }).await;
        }
        let deadline = pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
        let deadline = deadline.zip(time::at(pod, "/status/startTime"));
        let deadline = deadline.map(|(seconds, started)| time::plus(started, seconds));
        if deadline.is_some_and(|deadline| deadline <= now) {
            let mut new = pod.clone();
            status::over_deadline(&mut new, &context.clock.time());
            context.update(&kind::POD, Part::Status, pod, &new).await?;
            let message = "Pod was active on the node longer than the specified deadline";
            context.tell(pod, "DeadlineExceeded", message);
            return Ok(Next::Wait);
        }
        let mut next = deadline.map_or(Next::Wait, |deadline| Next::After(time::until(now, deadline)));
        if let Some(run_for) = self.run_for(pod) {
            let due = time::later(since, run_for);
            if due <= now {
                return self.end(context, pod, life::ending(pod)).await;
            }
            next = next.or(Next::After(time::until(now, due)));
        }
        if !pod::is_ready(pod) {
            // The node came back, and with it the pod's readiness.
            let mut new = pod.clone();
            status::ready_again(&mut new, &context.clock.time());
            context.update(&kind::POD, Part::Status, pod, &new).await?;
        }
        Ok(next)
    }

    async fn end(&self, context: &Context, pod: &Value, ending: Ending) -> Result<Next> {
        let mut new = pod.clone();
        let time = context.clock.time();
        let restarts = life::restarts_after(pod, ending);
        if restarts {
            status::resting(&mut new, ending, &time);
        } else {
            status::finished(&mut new, ending, &time);
        }
        context.update(&kind::POD, Part::Status, pod, &new).await?;
        if restarts {
            let pod_name = format!("{}_{}({})", object::name(pod), object::namespace(pod), object::uid(pod));
            for name in containers(pod).map(|container| object::str_at(container, "/name")) {
                let message = format!("Back-off restarting failed container {name} in pod {pod_name}");
                context.warn(pod, "BackOff", message);
            }
        }
        Ok(Next::After(Duration::ZERO))
    }

    async fn restart(&self, context: &Context, pod: &Value, since: Timestamp, restarts: i64) -> Result<Next> {
        let now = context.clock.now();
        let due = time::later(since, life::backoff(restarts));
        if due > now {
            return Ok(Next::After(time::until(now, due)));
        }
        let mut new = pod.clone();
        status::restarted(&mut new, &context.clock.time(), restarts + 1);
        context.update(&kind::POD, Part::Status, pod, &new).await?;
        tell_started(context, pod);
        Ok(self.run_for(pod).map_or(Next::Wait, Next::After))
    }

    /// Stops a pod that is to go, and lets it go when it has stopped.
    async fn stop(&self, context: &Context, pod: &Value) -> Result<Next> {
        let now = context.clock.now();
        let last = time::at(pod, "/metadata/deletionTimestamp").unwrap_or(now);
        let asked = time::plus(last, -object::grace_period(pod).unwrap_or(0));
        let alive = matches!(life::stage(pod), Stage::Running { .. }) && !pod::is_finished(pod);
        let delay =
            time::duration(annotation(pod, well_known::STOP_DELAY)).unwrap_or(self.options.stop_delay);
        let due = if alive { time::later(asked, delay).min(last) } else { now };
        if due > now {
            return Ok(Next::After(time::until(now, due)));
        }
        if !pod::is_finished(pod) {
            let mut new = pod.clone();
            status::finished(&mut new, Ending { code: 143, reason: "Error" }, &context.clock.time());
            context.update(&kind::POD, Part::Status, pod, &new).await?;
            for name in containers(pod).map(|container| object::str_at(container, "/name")) {
                context.tell(pod, "Killing", format!("Stopping container {name}"));
            }
        }
        if object::grace_period(pod) != Some(0) {
            context.delete(&kind::POD, pod, Deletion::of(pod).now()).await?;
        }
        Ok(Next::Wait)
    }

    fn start_delay(&self, pod: &Value) -> Duration {
        time::duration(annotation(pod, well_known::START_DELAY)).unwrap_or(self.options.start_delay)
    }

    fn run_for(&self, pod: &Value) -> Option<Duration> {
        time::duration(annotation(pod, well_known::RUN_FOR)).or(self.options.run_for)
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten()
}

/// Tells how the containers of a pod came to run.
fn tell_started(context: &Context, pod: &Value) {
    for container in containers(pod) {
        let (name, image) = (object::str_at(container, "/name"), object::str_at(container, "/image"));
        let pulled = format!("Container image \"{image}\" already present on machine");
        context.tell(pod, "Pulled", pulled);
        context.tell(pod, "Created", format!("Created container: {name}"));
        context.tell(pod, "Started", format!("Started container {name}"));
    }
}

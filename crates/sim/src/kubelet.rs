//! Simulates the kubelets of all simulated nodes, as kwok does: drives bound pods through their lifecycle.
//!
//! The state of a pod is only in its status and annotations, so a kubelet can restart at any time. Annotations control
//! how long a pod runs and how it ends ([`well_known`]).

mod admission;
mod pod_lifecycle;
mod pod_workers;
mod status;

use crate::connection::Connection;
use crate::controllers::{annotation, pod, set_entry, time};
use crate::event::{self, Source};
use crate::node::heartbeat::{self, Failure, is_simulated};
use crate::well_known;
use jiff::Timestamp;
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Part, Result};
use kai_runtime::controller::{self, Action, Context};
use kai_runtime::health::Health;
use kai_runtime::informer::{Informer, Informers, Subscription};
use kai_runtime::kind::{self, Key, ResourceKind};
use pod_lifecycle::{ContainerExit, Stage};
use pod_workers::{NodeWorker, NodeWorkers};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Client name of the kubelets.
pub const CLIENT: &str = "kubelet";

/// Defaults for pods without annotations of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Period of the node heartbeat.
    pub heartbeat: Duration,
    /// Time from the bind to running.
    pub start_delay: Duration,
    /// Time from the deletion to the exit of the containers.
    pub stop_delay: Duration,
    /// How long containers run; until they are stopped without it.
    pub run_for: Option<Duration>,
    /// Whether the API server has `resource.k8s.io/v1`, so that pods can have claims on devices.
    pub device_claims: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            start_delay: Duration::from_secs(1),
            stop_delay: Duration::from_secs(1),
            run_for: None,
            device_claims: true,
        }
    }
}

/// Runs the kubelets of all simulated nodes. Never returns; dropping it stops them.
///
/// They read through one client, and each writes through its own child of it, named after its node.
pub async fn run(connection: Connection, clock: Clock, options: Options) {
    let api = Api::new(connection.client(), CLIENT);
    let kinds = options.kinds();
    let informer = |kind: &ResourceKind| Informer::dynamic(kind.clone()).without_bookmarks();
    let informers = Arc::new(Informers::dynamic_of(kinds.iter().map(informer)));
    let (send, mut arrivals) = mpsc::unbounded_channel();
    let workers = Arc::new(NodeWorkers::new(send));
    for kind in kinds {
        let watched = kind.clone();
        let (workers, weak_informers) = (Arc::clone(&workers), Arc::downgrade(&informers));
        let handler = move |changed: &Value| {
            let Some(informers) = weak_informers.upgrade() else { return Subscription::End };
            workers.route(&informers, &watched, changed);
            Subscription::Continue
        };
        informers.dynamic(&kind).subscribe(Box::new(handler));
    }
    let mut tasks = JoinSet::new();
    informers.start(&api, &Health::default(), &mut tasks);
    loop {
        tokio::select! {
            biased;
            arrived = arrivals.recv() => {
                let Some((node, worker)) = arrived else { return };
                let (informers, child) = (Arc::clone(&informers), connection.child(&node));
                tasks.spawn(child.supervise(move |connection| {
                    let api = Api::new(connection.client(), CLIENT);
                    let source = Source { component: CLIENT.to_owned(), host: Some(node.clone()) };
                    let (events, writer) = event::recorder(api.clone(), clock, source);
                    let context =
                        Context { events: Some(Arc::new(events)), ..Context::new(api, Arc::clone(&informers), clock) };
                    let kubelet = Kubelet { options, worker: Arc::clone(&worker) };
                    let running = kubelet.run(context, node.clone());
                    async move {
                        tokio::join!(running, writer.run());
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

impl Options {
    /// The watched kinds.
    fn kinds(&self) -> Vec<ResourceKind> {
        let claims = self.device_claims.then_some(kind::RESOURCE_CLAIM);
        let always = [kind::NODE, kind::LEASE, kind::POD, kind::PERSISTENT_VOLUME_CLAIM];
        always.into_iter().chain(claims).collect()
    }
}

#[derive(Debug)]
struct Kubelet {
    options: Options,
    worker: Arc<NodeWorker>,
}

impl Kubelet {
    async fn run(self, context: Context, node: String) {
        context.informers.synced(&self.options.kinds()).await;
        for pod in context.informers.dynamic(&kind::POD).on_node(&node) {
            self.worker.queue.add(kai_runtime::key_of(&pod));
        }
        let (kubelet, context) = (&self, &context);
        let work = controller::process(CLIENT, &self.worker.queue, 1, None, |key| async move {
            kubelet.reconcile(context, &key).await
        });
        tokio::join!(heartbeat::run(context, &node, self.options.heartbeat), work);
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(found) = context.informers.dynamic(&kind::POD).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let node = Key::new("", object::str_at(&found, "/spec/nodeName"));
        let Some(node) = context.informers.dynamic(&kind::NODE).get(&node) else {
            return Ok(Action::AwaitChange);
        };
        let offline = matches!(Failure::of(&node), Some(Failure::Unreachable | Failure::Down));
        if !is_simulated(&node) || offline {
            return Ok(Action::AwaitChange);
        }
        let boot = self.worker.observe(&node, Some(context.clock.now()));
        if object::is_deleting(&found) {
            return self.stop(context, &found).await;
        }
        if pod::is_terminal(&found) {
            return Ok(Action::AwaitChange);
        }
        match pod_lifecycle::stage(&found) {
            Stage::New => self.admit(context, &found, &node).await,
            Stage::Starting { since } => self.start(context, &found, &node, since).await,
            Stage::Running { since } => self.sync_running(context, &found, since, boot).await,
            Stage::BackOff { since, restarts } => self.restart(context, &found, since, restarts).await,
        }
    }

    /// Admits a pod and allocates its devices, or rejects it.
    async fn admit(&self, context: &Context, pod: &Value, node: &Value) -> Result<Action> {
        let neighbours = context.informers.dynamic(&kind::POD).on_node(object::name(node));
        let others: Vec<&Value> = neighbours
            .iter()
            .map(|other| &**other)
            .filter(|other| object::uid(other) != object::uid(pod) && admission::holds_resources(other))
            .collect();
        let devices = match admission::admit(pod, node, &others) {
            Ok(devices) => devices,
            Err(rejection) => {
                let mut new = pod.clone();
                status::rejected(&mut new, rejection.reason(), &rejection.to_string(), &context.clock.time());
                context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
                context.warn(pod, rejection.reason(), rejection.to_string());
                return Ok(Action::AwaitChange);
            }
        };
        // The API server accepts annotations in a status update.
        let mut new = pod.clone();
        if !devices.is_empty() && annotation(pod, well_known::GPU_DEVICES).is_empty() {
            set_entry(&mut new, "annotations", well_known::GPU_DEVICES, &devices.join(","));
        }
        status::creating(&mut new, node, &context.clock.time());
        context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
        Ok(Action::RequeueAfter(self.start_delay(pod)))
    }

    async fn start(&self, context: &Context, pod: &Value, node: &Value, since: Timestamp) -> Result<Action> {
        if admission::waits_for_claims(pod, &context.informers) {
            return Ok(Action::AwaitChange);
        }
        let now = context.clock.now();
        let due = time::later(since, self.start_delay(pod));
        if due > now {
            return Ok(Action::RequeueAfter(time::until(now, due)));
        }
        let mut new = pod.clone();
        status::running(&mut new, node, &context.clock.time(), 0);
        context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
        record_started(context, pod);
        Ok(self.run_for(pod).map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// Terminates containers after their run time or deadline, or where the node has rebooted.
    async fn sync_running(
        &self,
        context: &Context,
        pod: &Value,
        since: Timestamp,
        boot: Option<Timestamp>,
    ) -> Result<Action> {
        let now = context.clock.now();
        if boot.is_some_and(|boot| since < boot) {
            return self.terminate(context, pod, ContainerExit { code: 137, reason: "Error" }).await;
        }
        let deadline = pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
        let deadline = deadline.zip(time::at(pod, "/status/startTime"));
        let deadline = deadline.map(|(seconds, started)| time::plus(started, seconds));
        if deadline.is_some_and(|deadline| deadline <= now) {
            let mut new = pod.clone();
            status::deadline_exceeded(&mut new, &context.clock.time());
            context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
            let message = "Pod was active on the node longer than the specified deadline";
            context.record(pod, "DeadlineExceeded", message);
            return Ok(Action::AwaitChange);
        }
        let mut next =
            deadline.map_or(Action::AwaitChange, |deadline| Action::RequeueAfter(time::until(now, deadline)));
        if let Some(run_for) = self.run_for(pod) {
            let due = time::later(since, run_for);
            if due <= now {
                return self.terminate(context, pod, pod_lifecycle::scheduled_exit(pod)).await;
            }
            next = next.or(Action::RequeueAfter(time::until(now, due)));
        }
        if !pod::is_ready(pod) {
            // The node is ready again.
            let mut new = pod.clone();
            status::ready_again(&mut new, &context.clock.time());
            context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
        }
        Ok(next)
    }

    async fn terminate(&self, context: &Context, pod: &Value, exit: ContainerExit) -> Result<Action> {
        let mut new = pod.clone();
        let time = context.clock.time();
        let restarts = pod_lifecycle::restarts_after(pod, exit);
        if restarts {
            status::back_off(&mut new, exit, &time);
        } else {
            status::terminated(&mut new, exit, &time);
        }
        context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
        if restarts {
            let pod_name = format!("{}_{}({})", object::name(pod), object::namespace(pod), object::uid(pod));
            for name in containers(pod).map(|container| object::str_at(container, "/name")) {
                let message = format!("Back-off restarting failed container {name} in pod {pod_name}");
                context.warn(pod, "BackOff", message);
            }
        }
        Ok(Action::RequeueAfter(Duration::ZERO))
    }

    async fn restart(
        &self,
        context: &Context,
        pod: &Value,
        since: Timestamp,
        restarts: i64,
    ) -> Result<Action> {
        let now = context.clock.now();
        let due = time::later(since, pod_lifecycle::backoff(restarts));
        if due > now {
            return Ok(Action::RequeueAfter(time::until(now, due)));
        }
        let mut new = pod.clone();
        status::restarted(&mut new, &context.clock.time(), restarts + 1);
        context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
        record_started(context, pod);
        Ok(self.run_for(pod).map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// Stops the containers of a terminating pod, then deletes it.
    async fn stop(&self, context: &Context, pod: &Value) -> Result<Action> {
        let now = context.clock.now();
        let last = time::at(pod, "/metadata/deletionTimestamp").unwrap_or(now);
        let requested = time::plus(last, -object::grace_period(pod).unwrap_or(0));
        let running = matches!(pod_lifecycle::stage(pod), Stage::Running { .. }) && !pod::is_terminal(pod);
        let delay =
            time::duration(annotation(pod, well_known::STOP_DELAY)).unwrap_or(self.options.stop_delay);
        let due = if running { time::later(requested, delay).min(last) } else { now };
        if due > now {
            return Ok(Action::RequeueAfter(time::until(now, due)));
        }
        if !pod::is_terminal(pod) {
            let mut new = pod.clone();
            status::terminated(&mut new, ContainerExit { code: 143, reason: "Error" }, &context.clock.time());
            context.patch_difference_dynamic(&kind::POD, Part::Status, pod, &new).await?;
            for name in containers(pod).map(|container| object::str_at(container, "/name")) {
                context.record(pod, "Killing", format!("Stopping container {name}"));
            }
        }
        if object::grace_period(pod) != Some(0) {
            context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod).immediately()).await?;
        }
        Ok(Action::AwaitChange)
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

fn record_started(context: &Context, pod: &Value) {
    for container in containers(pod) {
        let (name, image) = (object::str_at(container, "/name"), object::str_at(container, "/image"));
        let pulled = format!("Container image \"{image}\" already present on machine");
        context.record(pod, "Pulled", pulled);
        context.record(pod, "Created", format!("Created container: {name}"));
        context.record(pod, "Started", format!("Started container {name}"));
    }
}

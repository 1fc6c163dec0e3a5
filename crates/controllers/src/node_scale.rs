//! Node scale adjuster: makes GPU requests visible that cluster-autoscaler and Karpenter do not see.
//!
//! Fractions of GPUs are annotations, and devices are claims (DRA): an autoscaler does not add a node for them. For
//! unschedulable pods with such requests the adjuster creates scaling pods, which request whole GPUs, and deletes them when
//! these pods are being bound, gone, or blocked by something that a new node does not remove. [`observed`] reduces the watched objects, [`plan`] decides, [`scaling_pod`] builds a pod;
//! this module watches and writes.
//! A BindRequest ends the need for a node: from then on a reservation pod requests the GPU. The binder creates that pod when
//! the scaling pod is deleted, so that an autoscaler never counts both.
//! Nothing is kept but the time of the last deletion: after one, no pod is created for the cool-down, in which the
//! scheduler places pods on the new node. A start counts as a deletion.

pub mod observed;
pub mod plan;
pub mod scaling_pod;

use kai_api::well_known::{label, label_value, name};
use kai_api::{BindRequest, Pod, PodGroup};
use kai_object as object;
use kai_runtime::api::{self, Api, DeleteOptions, Part};
use kai_runtime::controller::{self, Action};
use kai_runtime::degradation::Degradations;
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, POD, ResourceKind, SERVICE_ACCOUNT};
use kai_runtime::metrics::controller::ControllerMetrics;
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Need, Source, WatchEvent};
use kai_runtime::watch_value::WatchValue;
use kai_runtime::work_queue::WorkQueue;
use observed::{Group, Observed, PendingPod, PendingState, ScalingPod};
use parking_lot::Mutex;
use plan::{Creation, Deletion, HeldBack, Limits, Plan};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// As KAI's controller is called in metrics.
const CONTROLLER: &str = "pod";
/// No scaling pod is created for this time after a deletion, as in KAI.
const COOL_DOWN: Duration = Duration::from_mins(1);
/// Changes are collected for this time; the pods of a gang change together.
const COALESCE: Duration = Duration::from_millis(500);
/// Lists that must have been read before anything is decided: pods, scaling pods, groups, bind requests and claims.
const LISTS: usize = 5;
const BIND_REQUESTS: &str = "bindrequests";
const LIST_BIND_REQUESTS: &str = "list bindrequests.scheduling.run.ai";
const LIST_GROUPS: &str = "list podgroups.scheduling.run.ai";
const LIST_CLAIMS: &str = "list resourceclaims.resource.k8s.io";
const GET_ACCOUNT: &str = "get serviceaccounts";

/// Flags of the node scale adjuster.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `scheduler-name`: only pods of this scheduler count.
    pub scheduler_name: String,
    /// `scale-adjust-namespace`: namespace of scaling pods.
    pub namespace: String,
    /// `scaling-pod-service-account`
    pub service_account: String,
    /// `scaling-pod-app-label`: value of the label `app` of scaling pods.
    pub app_label: String,
    /// `scaling-pod-image`
    pub image: String,
    /// `scaling-pod-image-pull-policy`
    pub image_pull_policy: String,
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            namespace: name::SCALE_ADJUST.to_owned(),
            service_account: name::SCALE_ADJUST.to_owned(),
            app_label: label_value::SCALING_POD.to_owned(),
            image: "registry/local/kai-scheduler/scalingpod".to_owned(),
            image_pull_policy: "IfNotPresent".to_owned(),
            limits: Limits::default(),
        }
    }
}

/// Runs the node scale adjuster. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let claims = super::podgroup::claim_kind(&process.api).await.filter(|_| options.limits.with_claims);
    let adjuster = Adjuster {
        observed: Mutex::new(Observed { groups: Some(BTreeMap::new()), ..Observed::default() }),
        queue: WorkQueue::measured(CONTROLLER, &process.metrics),
        unlisted: WatchValue::new(LISTS - usize::from(claims.is_none())),
        last_deletion: Mutex::new(Instant::now()),
        api: process.api.clone(),
        clock: process.clock,
        recorder: process.recorder.clone(),
        degradations: process.degradations.clone(),
        options,
    };
    let metrics = ControllerMetrics::register(CONTROLLER, 1, &process.metrics);
    let health = process.health.clone();
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = adjuster.watch_pods(&health) => {}
        () = adjuster.watch_scaling_pods(&health) => {}
        () = adjuster.watch_groups(&health) => {}
        () = adjuster.watch_bind_requests(&health) => {}
        () = adjuster.watch_claims(&health, claims) => {}
        () = adjuster.reconcile(&metrics) => {}
    }
}

struct Adjuster {
    observed: Mutex<Observed>,
    queue: WorkQueue,
    /// How many lists have not been read yet.
    unlisted: WatchValue<usize>,
    last_deletion: Mutex<Instant>,
    api: Api,
    clock: kai_clock::Clock,
    recorder: Recorder,
    degradations: Degradations,
    options: Options,
}

impl Adjuster {
    /// Watches the pods without a node; a bound one is reported as deleted.
    async fn watch_pods(&self, health: &Health) {
        let selector =
            format!("fieldSelector=spec.schedulerName%3D{},spec.nodeName%3D", self.options.scheduler_name);
        let source = Source::all(POD).query(selector);
        let convert = |pod: Pod| (key_of(&pod), PendingPod::of(&pod));
        self.watch(health, "pods", source, convert, |observed| Some(&mut observed.pods)).await;
    }

    async fn watch_scaling_pods(&self, health: &Health) {
        let selector = format!("labelSelector={}%3D{}", label::APP, self.options.app_label);
        let source = Source::in_namespace(POD, &self.options.namespace).query(selector);
        let convert = |pod: Pod| (key_of(&pod), ScalingPod::of(&pod));
        self.watch(health, "scaling pods", source, convert, |observed| Some(&mut observed.scaling)).await;
    }

    async fn watch_groups(&self, health: &Health) {
        let source = Source { need: Need::Optional, ..Source::all(ResourceKind::of::<PodGroup>()) };
        let convert = |group: PodGroup| (kai_runtime::key_of_typed(&group), Group::of(&group));
        self.watch(health, "podgroups", source, convert, |observed| observed.groups.as_mut()).await;
    }

    async fn watch_bind_requests(&self, health: &Health) {
        let source = Source { need: Need::Optional, ..Source::all(ResourceKind::of::<BindRequest>()) };
        let convert =
            |request: BindRequest| (kai_runtime::key_of_typed(&request), observed::pod_being_bound(&request));
        self.watch(health, BIND_REQUESTS, source, convert, |observed| Some(&mut observed.binding)).await;
    }

    async fn watch_claims(&self, health: &Health, kind: Option<ResourceKind>) {
        let Some(kind) = kind else { return std::future::pending().await };
        let source = Source { need: Need::Optional, ..Source::all(kind) };
        let convert = |claim: Value| (kai_runtime::key_of(&claim), observed::claimed_devices(&claim));
        self.watch(health, "resourceclaims", source, convert, |observed| Some(&mut observed.claims)).await;
    }

    async fn watch<T: DeserializeOwned, U: PartialEq>(
        &self,
        health: &Health,
        what: &str,
        source: Source,
        convert: impl Fn(T) -> (Key, U),
        store: impl Fn(&mut Observed) -> Option<&mut BTreeMap<Key, U>>,
    ) {
        let watch_health = health.watch(what);
        let mut is_listed = false;
        let handle = |event: WatchEvent<(Key, U)>| {
            let is_list = matches!(event, WatchEvent::Listed(..) | WatchEvent::Denied);
            if self.store(what, event, &store) || (is_list && !is_listed) {
                // The binder waits for the deletion of the scaling pod.
                if what == BIND_REQUESTS && !self.observed.lock().scaling.is_empty() {
                    self.queue.add(whole());
                } else {
                    self.queue.add_after(whole(), COALESCE);
                }
            }
            if is_list && !is_listed {
                is_listed = true;
                self.unlisted.modify(|unlisted| *unlisted = unlisted.saturating_sub(1));
            }
        };
        watch::list_and_watch_as(&self.api, &source, &watch_health, convert, handle).await;
    }

    /// Stores a change; returns whether it is one for the decision.
    fn store<U: PartialEq>(
        &self,
        what: &str,
        event: WatchEvent<(Key, U)>,
        store: impl Fn(&mut Observed) -> Option<&mut BTreeMap<Key, U>>,
    ) -> bool {
        let mut observed = self.observed.lock();
        self.note_rights(what, matches!(event, WatchEvent::Denied), &mut observed);
        let Some(stored) = store(&mut observed) else { return true };
        match event {
            WatchEvent::Listed(objects, _) => {
                *stored = objects.into_iter().collect();
                true
            }
            WatchEvent::Applied((key, object)) => {
                let is_new = stored.get(&key) != Some(&object);
                stored.insert(key, object);
                is_new
            }
            WatchEvent::Deleted((key, _)) => stored.remove(&key).is_some(),
            WatchEvent::Invalid(object) => stored.remove(&object.key).is_some(),
            WatchEvent::Denied => {
                stored.clear();
                true
            }
        }
    }

    /// KAI's role grants neither pod groups nor claims.
    fn note_rights(&self, what: &str, is_denied: bool, observed: &mut Observed) {
        let (right, consequence) = match what {
            "podgroups" => {
                observed.groups =
                    if is_denied { None } else { observed.groups.take().or_else(|| Some(BTreeMap::new())) };
                (LIST_GROUPS, "nodes are also requested for groups that the limit of their queue blocks")
            }
            BIND_REQUESTS => (
                LIST_BIND_REQUESTS,
                "a scaling pod is deleted when its pods are bound, until when an autoscaler may count them twice",
            ),
            "resourceclaims" => (LIST_CLAIMS, "no nodes are requested for pods with device claims"),
            _ => return,
        };
        if is_denied {
            self.degradations.begin(right, consequence);
        } else {
            self.degradations.end(right);
        }
    }

    async fn reconcile(&self, metrics: &ControllerMetrics) {
        self.unlisted.wait_for(|unlisted| unlisted == 0).await;
        self.queue.add(whole());
        controller::process(CONTROLLER, &self.queue, 1, Some(metrics), |_| self.adjust()).await;
    }

    /// One pass over the whole cluster.
    async fn adjust(&self) -> api::Result<Action> {
        let plan = plan::plan(&self.observed.lock(), &self.options.limits);
        self.log(&plan);
        // A failure of one object delays no other; the last one decides when the pass is repeated.
        let mut result = Ok(Action::AwaitChange);
        let mut note = |written: api::Result<()>| {
            if let Err(error) = written {
                result = Err(error);
            }
        };
        for deletion in &plan.delete {
            note(self.delete(deletion).await);
        }
        for key in &plan.mark {
            note(self.mark(key).await);
        }
        if plan.create.is_empty() {
            return result;
        }
        let passed = self.last_deletion.lock().elapsed();
        if let Some(left) = COOL_DOWN.checked_sub(passed).filter(|left| !left.is_zero()) {
            tracing::debug!(pods = plan.create.len(), seconds = left.as_secs(), "cool-down after a deletion");
            return result.and(Ok(Action::RequeueAfter(left)));
        }
        let owner = self.owner().await;
        for creation in &plan.create {
            note(self.create(creation, owner.as_deref()).await);
        }
        result
    }

    fn log(&self, plan: &Plan) {
        for (group, reason) in &plan.held_back {
            match reason {
                HeldBack::Limit => {
                    tracing::warn!(%group, max = self.options.limits.scaling_pods_max, "no scaling pods: there are too many; hint: --max-scaling-pods");
                }
                HeldBack::Incomplete | HeldBack::Queue(_) | HeldBack::UnknownRequest => {
                    tracing::debug!(%group, ?reason, "no scaling pods: a new node would not help");
                }
            }
        }
    }

    async fn delete(&self, deletion: &Deletion) -> api::Result<()> {
        let Deletion { pod, uid, reason } = deletion;
        let options = DeleteOptions { uid: Some(uid.clone()), ..DeleteOptions::default() }.immediately();
        let deleted = self.api.delete_dynamic(&POD, pod, &options).await;
        // The response may be lost although the pod is deleted.
        if deleted.as_ref().err().is_none_or(api::Error::is_transient) {
            *self.last_deletion.lock() = Instant::now();
        }
        match deleted {
            // After a conflict the watch tells whether another pod has the name; until then the deletion is repeated.
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(_) | Err(_) => {}
        }
        tracing::info!(%pod, reason, "deleted a scaling pod");
        let mut observed = self.observed.lock();
        if observed.scaling.get(pod).is_some_and(|known| known.uid == *uid) {
            observed.scaling.remove(pod);
        }
        Ok(())
    }

    async fn create(&self, creation: &Creation, owner: Option<&str>) -> api::Result<()> {
        let source = match self.api.get_dynamic(&POD, &creation.source).await {
            Err(error) if error.is_not_found() => return Ok(()),
            source => source?,
        };
        let is_current = Pod::deserialize(&source).is_ok_and(|pod| {
            let pending = PendingPod::of(&pod);
            pod.spec.node_name.is_empty()
                && pending.uid == creation.source_uid
                && pending.state == PendingState::Unschedulable
        });
        let is_being_bound =
            self.observed.lock().binding.values().flatten().any(|pod| *pod == creation.source);
        if !is_current || is_being_bound {
            return Ok(());
        }
        let name = scaling_pod::pod_name(&self.observed.lock(), &self.options, creation);
        let pod = scaling_pod::build(&self.options, creation, &source, &name, owner);
        match self.api.create_dynamic(&POD, &self.options.namespace, &pod).await {
            Ok(created) => self.remember(&created),
            // After a conflict the pass is repeated: if an earlier response was lost, its watch event is there by then.
            Err(error) if !error.is_transient() && !error.is_permission_denied() && !error.is_conflict() => {
                // Of one object, which must not delay the others. The next change tries again.
                tracing::warn!(pod = %creation.source, error = &error as &dyn std::error::Error, "the scaling pod was rejected");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        tracing::info!(source = %creation.source, pod = name, gpus = creation.gpus, pods = creation.pods, "created a scaling pod");
        self.recorder.record(&Event {
            regarding: Regarding {
                kind: POD,
                key: creation.source.clone(),
                uid: creation.source_uid.clone(),
            },
            type_: EventType::Normal,
            reason: "NodeRequested",
            message: format!(
                "Pod {}/{name} requests {} GPUs from the cluster autoscaler for this pod and {} others",
                self.options.namespace,
                creation.gpus,
                creation.pods.saturating_sub(1)
            ),
            annotations: BTreeMap::new(),
        });
        self.mark(&Key::new(&self.options.namespace, &name)).await
    }

    /// Writes the condition that autoscalers read.
    async fn mark(&self, key: &Key) -> api::Result<()> {
        let patch = scaling_pod::unschedulable(&self.clock.time());
        match self.api.patch_dynamic(&POD, key, Part::Status, &patch).await {
            Ok(marked) => self.remember(&marked),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Stores the response to a write, since the watch delivers it later.
    fn remember(&self, written: &Value) {
        match Pod::deserialize(written) {
            Ok(pod) => {
                self.observed.lock().scaling.insert(key_of(&pod), ScalingPod::of(&pod));
            }
            // The watch delivers the same state and reports it.
            Err(error) => tracing::warn!(%error, "the response is not a valid pod"),
        }
    }

    /// The uid of the service account of scaling pods. It belongs to the installation, so that the garbage collector removes
    /// scaling pods with it, also without the adjuster.
    async fn owner(&self) -> Option<String> {
        let account = Key::new(&self.options.namespace, &self.options.service_account);
        match self.api.get_dynamic(&SERVICE_ACCOUNT, &account).await {
            Ok(found) => {
                self.degradations.end(GET_ACCOUNT);
                Some(object::uid(&found).to_owned()).filter(|uid| !uid.is_empty())
            }
            Err(error) => {
                if error.is_permission_denied() {
                    self.degradations
                        .begin(GET_ACCOUNT, "scaling pods are left behind when the adjuster is removed");
                }
                None
            }
        }
    }
}

/// The only key: every pass is over the whole cluster.
fn whole() -> Key {
    Key::new("", "cluster")
}

fn key_of(pod: &Pod) -> Key {
    Key::new(&*pod.metadata.namespace, &*pod.metadata.name)
}

//! The live pod grouper: pods in, pod groups and assignments out.
//!
//! Terminated and terminating pods are ignored, and so are pods and owners with the skip annotation. A pod that cannot be
//! grouped gets an event and is retried with backoff; its group, if there is one, stays as it is. A stored pod group that
//! does not deserialise is never written: it gets an event, and its pods are retried.

use crate::apply;
use crate::defaults::Defaults;
use crate::error::Error;
use crate::implicit;
use crate::informer_view::{BY_GROUP, BY_OWNER, InformerView, assigned_group, informers};
use crate::keyed_locks::KeyedLocks;
use crate::objects::{MetaExt, PodSummary, is_assigned_without_owners, key_of};
use crate::options::Options;
use crate::owner_chain;
use crate::plan::{self, Inputs};
use crate::reader::Reader;
use crate::stored_group::StoredGroup;
use crate::stored_pod::StoredPod;
use crate::workload::Desired;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kai_api::PodGroup;
use kai_api::well_known::label;
use kai_runtime::api::{self, Part};
use kai_runtime::controller::{self, Action, Context, Controller, Watch};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::informer::Informers;
use kai_runtime::kind::POD;
use kai_runtime::process::Process;
use kai_runtime::work_queue::WorkQueue;
use kai_runtime::{Key, ResourceKind};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Delay of the first retry of a pod that cannot be grouped; it doubles.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest delay.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// How often cached owners are checked for being due for another read.
const REFRESH: Duration = Duration::from_secs(5);

/// How long the annotation of a pod whose group is implied waits for the Binding that carries it, which saves a write. The
/// scheduler does not wait for it.
const ASSIGNMENT_DELAY_MAX: Duration = Duration::from_secs(5);

/// The reason of all events, as in KAI.
const WARNING: &str = "PodGrouperWarning";

/// Runs the pod grouper. Never returns.
pub async fn run(mut process: Process, options: Options) {
    options.own_rules.register_metrics(&process.metrics);
    let informers = Arc::new(informers(&options));
    informers.start(&process.api, &process.health, &mut process.tasks);
    let context = Context::of(&process, informers);
    let grouper = Arc::new(Grouper {
        reader: Reader::new(process.api.clone(), process.recorder.clone(), options.own_rules.is_empty()),
        options,
        recorder: process.recorder.clone(),
        reconciled: Mutex::default(),
        failures: Mutex::default(),
        unassigned: Mutex::default(),
        writing: KeyedLocks::default(),
    });
    let queue = controller::queue::<Grouper>(&context);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = controller::run_on(Arc::clone(&grouper), context.clone(), Arc::clone(&queue)) => {}
        () = grouper.reader.watch_owners() => {}
        () = grouper.follow_owners(&context, &queue) => {}
    }
}

/// Whether a pod is assigned to its group.
enum Assignment {
    /// It is, or has none.
    Settled,
    /// Its binding assigns it, or the next reconciliation after this time.
    Awaited(Duration),
}

struct Grouper {
    options: Options,
    recorder: Recorder,
    reader: Reader,
    /// Fingerprints of pods and their groups for which nothing was left to do, by the hash of the pod's key. A fingerprint
    /// covers the pod's uid, so that two pods of one hash are only computed more often.
    reconciled: Mutex<FxHashMap<u64, u64>>,
    /// How often in a row pods could not be grouped.
    failures: Mutex<FxHashMap<Key, u32>>,
    /// Since when the assignment of pods waits for their binding, which would carry it, by the hash of the pod's key. Such
    /// pods are planned already.
    unassigned: Mutex<FxHashMap<u64, Instant>>,
    /// Groups that are being written: the pods of a gang are reconciled at the same time, and one write is enough.
    writing: KeyedLocks<Key>,
}

impl Controller for Grouper {
    /// As KAI's controller is called in metrics.
    const NAME: &'static str = "pod";

    fn workers(&self) -> usize {
        self.options.max_concurrent_reconciles
    }

    fn watches(&self) -> Vec<Watch<Self>> {
        let mut watches = vec![
            Watch::of(POD, |_: &Self, _, pod: &StoredPod| vec![pod.key()]),
            Watch::of(ResourceKind::of::<PodGroup>(), |_, informers, group: &StoredGroup| {
                // One pod that runs or waits is enough to restore a group.
                let pods = informers.store::<StoredPod>().by_index(BY_GROUP, &group.key().to_string());
                let live = pods.iter().find(|pod| !pod.is_ending());
                live.map(|pod| pod.key()).into_iter().collect()
            }),
            Watch::typed(|grouper: &Self, informers, class: &PriorityClass| {
                grouper.of_priority_class(informers, class.metadata.name_str())
            }),
        ];
        if !self.options.namespace_label_selector.is_empty() {
            watches.push(Watch::typed(|_, informers, namespace: &Namespace| {
                let pods = informers.store::<StoredPod>().in_namespace(namespace.metadata.name_str());
                pods.iter().map(|pod| pod.key()).collect()
            }));
        }
        if self.options.default_priorities.is_some() {
            // Defaults apply to every kind, so that every owner may be affected.
            watches.push(Watch::typed(|grouper: &Self, informers, map: &ConfigMap| {
                grouper.report_defaults(informers, map);
                grouper.pods_of(informers, &grouper.reader.first_owners(|_| true))
            }));
        }
        watches
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let pods = context.informers.store::<StoredPod>();
        let stored = || pods.get(key).map(|pod| pod.summary());
        let Some(mut pod) = stored().filter(|pod| !has_group(&context.informers, pod)) else {
            self.forget(key);
            return Ok(Action::AwaitChange);
        };
        if is_assigned_without_owners(&pod) {
            // Its group was deleted, and the store has only the identity of such pods.
            match context.api.get::<Pod>(key).await {
                Ok(whole) => pod = whole.into(),
                Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
                Err(error) => return Err(error),
            }
        }
        if !is_responsible(&self.options, &context.informers, &pod) {
            self.forget(key);
            return Ok(Action::AwaitChange);
        }
        if self.reconciled.lock().get(&hash_of(key)) == Some(&fingerprint(&context.informers, &pod)) {
            return Ok(Action::AwaitChange);
        }
        match self.group(context, &pod).await {
            Ok(Assignment::Awaited(delay)) => {
                self.failures.lock().remove(key);
                Ok(Action::RequeueAfter(delay))
            }
            Ok(Assignment::Settled) => {
                self.failures.lock().remove(key);
                self.unassigned.lock().remove(&hash_of(key));
                if let Some(pod) = stored().filter(|pod| !is_assigned_without_owners(pod)) {
                    self.reconciled.lock().insert(hash_of(key), fingerprint(&context.informers, &pod));
                }
                Ok(Action::AwaitChange)
            }
            Err(Error::Api(error)) if error.is_conflict() || error.is_transient() => Err(error),
            Err(Error::Owner(owner_chain::Error::Read(error))) if error.is_transient() => Err(error),
            // Its owner may go before it does.
            Err(_) if plan::is_leaving_launcher(&pod) => Ok(Action::AwaitChange),
            Err(error) => {
                self.report(&pod, &error);
                Ok(Action::RequeueAfter(self.backoff(key)))
            }
        }
    }
}

impl Grouper {
    /// Groups the pods of owners again that changed. Never returns.
    async fn follow_owners(&self, context: &Context, queue: &WorkQueue) {
        let pods = context.informers.store::<StoredPod>();
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changed = tokio::select! {
                biased;
                _ = refresh.tick() => self.reader.refresh(|uid| !pods.by_index(BY_OWNER, uid).is_empty()).await,
                () = self.reader.changed() => self.reader.read_changed().await,
            };
            for key in self.pods_of(&context.informers, &changed) {
                queue.add(key);
            }
        }
    }

    /// The pods below these first owners; they are computed anew.
    fn pods_of(&self, informers: &Informers, first_owners: &BTreeSet<String>) -> Vec<Arc<Key>> {
        let pods = informers.store::<StoredPod>();
        let keys: Vec<Arc<Key>> =
            first_owners.iter().flat_map(|uid| pods.by_index(BY_OWNER, uid)).map(|pod| pod.key()).collect();
        let mut reconciled = self.reconciled.lock();
        for key in &keys {
            reconciled.remove(&hash_of(key));
        }
        keys
    }

    /// The pods whose group may get this priority class, or lose it. Classes rarely change, so all pods are looked at.
    fn of_priority_class(&self, informers: &Informers, class: &str) -> Vec<Arc<Key>> {
        let is_default = self.defaults(informers).names_class(class);
        let mut owners = self
            .reader
            .first_owners(|owner| is_default || owner.metadata.label(label::PRIORITY_CLASS) == Some(class));
        for pod in informers.store::<StoredPod>().list() {
            let of_pod =
                pod.label(label::PRIORITY_CLASS) == Some(class) || pod.priority_class() == Some(class);
            if let Some(owner) = pod.first_owner_uid().filter(|_| of_pod) {
                owners.insert(owner.to_owned());
            }
        }
        self.pods_of(informers, &owners)
    }

    fn defaults(&self, informers: &Informers) -> Defaults {
        let map = self.options.default_priorities.as_ref().and_then(|key| informers.get::<ConfigMap>(key));
        Defaults::read(map.as_deref())
    }

    /// Records on the ConfigMap of default priorities that it cannot be read, so that no kind has defaults.
    fn report_defaults(&self, informers: &Informers, map: &ConfigMap) {
        let key = key_of(&map.metadata);
        let is_stored = self.options.default_priorities.as_ref() == Some(&key)
            && informers.get::<ConfigMap>(&key).is_some();
        let Some(problem) = Defaults::parse(map).err().filter(|_| is_stored) else { return };
        tracing::warn!(map = %key, problem, "the ConfigMap of default priorities has no effect");
        self.recorder.record(&Event {
            regarding: Regarding {
                kind: ResourceKind::of::<ConfigMap>(),
                key,
                uid: map.metadata.uid_str().to_owned(),
            },
            type_: EventType::Warning,
            reason: "InvalidInput",
            message: format!(
                "{problem}, so no kind has a default priority class or preemptibility; hint: write a JSON list of \
                 objects with `typeName`, `group`, `priorityName` and `preemptibility`"
            ),
            annotations: BTreeMap::new(),
        });
    }

    fn forget(&self, key: &Key) {
        self.reconciled.lock().remove(&hash_of(key));
        self.failures.lock().remove(key);
        self.unassigned.lock().remove(&hash_of(key));
    }

    /// How long the assignment of a pod may still wait for its binding, which carries it; none if it is due.
    fn remaining_wait(&self, pod: &PodSummary, desired: &Desired) -> Option<Duration> {
        if !self.options.assign_at_binding || !apply::is_implied(pod, desired) || pod.spec.node_name.is_some()
        {
            return None;
        }
        let key = hash_of(&key_of(&pod.metadata));
        let since = *self.unassigned.lock().entry(key).or_insert_with(Instant::now);
        ASSIGNMENT_DELAY_MAX.checked_sub(since.elapsed()).filter(|delay| !delay.is_zero())
    }

    /// The delay before the next attempt at a pod that cannot be grouped.
    fn backoff(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(key.clone()).or_default();
        let delay = RETRY_MIN * 2u32.pow((*count).min(6));
        *count = count.saturating_add(1);
        delay.min(RETRY_MAX)
    }

    async fn group(&self, context: &Context, pod: &PodSummary) -> Result<Assignment, Error> {
        let defaults = self.defaults(&context.informers);
        let view = InformerView(&context.informers);
        let is_planned = self.unassigned.lock().contains_key(&hash_of(&key_of(&pod.metadata)));
        let inputs = Inputs { options: &self.options, defaults: &defaults, cluster: &view, is_planned };
        let Some(desired) = plan::plan(&self.reader, inputs, pod).await? else {
            return Ok(Assignment::Settled);
        };
        if plan::is_leaving_launcher(pod) {
            let key = Key::new(&desired.namespace, &desired.name);
            if context.informers.get::<StoredGroup>(&key).is_none() {
                return Ok(Assignment::Settled);
            }
        }
        let group = Key::new(&desired.namespace, &desired.name);
        if implicit::needs_no_object(&self.options, &view, pod, &desired)
            && context.informers.get::<StoredGroup>(&group).is_none()
        {
            self.report_ignored(&desired, pod);
            return Ok(Assignment::Settled);
        }
        // The group of a pod without owners was made for the pod as it was created: a binding annotates it.
        let is_made = pod.metadata.owners().is_empty()
            && is_planned
            && context.informers.get::<StoredGroup>(&group).is_some();
        let is_written = !is_made && self.apply(context, &desired).await?;
        if is_written {
            self.report_ignored(&desired, pod);
        }
        let Some(patch) = apply::assignment(pod, &desired) else { return Ok(Assignment::Settled) };
        if let Some(delay) = self.remaining_wait(pod, &desired) {
            return Ok(Assignment::Awaited(delay));
        }
        match context.api.patch::<Pod>(&key_of(&pod.metadata), Part::Main, &patch).await {
            Ok(assigned) => {
                context.informers.store::<StoredPod>().update(PodSummary::from(assigned).into());
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Assignment::Settled)
    }

    /// Creates or patches the group; whether it was written.
    async fn apply(&self, context: &Context, desired: &Desired) -> Result<bool, Error> {
        let key = Key::new(&desired.namespace, &desired.name);
        let lock = self.writing.of(&key);
        let _writing = lock.lock().await;
        let groups = context.informers.store::<StoredGroup>();
        if let Some(invalid) = groups.invalid(&key) {
            return Err(Error::InvalidGroup(Box::new(invalid)));
        }
        let stored = groups.get(&key);
        if stored.is_some() && desired.is_shared {
            return Ok(false);
        }
        let mut known = stored.as_ref().and_then(|group| group.to_pod_group());
        if stored.is_none() {
            match context.api.create(&apply::new_group(desired)).await {
                Ok(created) => {
                    groups.update(created.into());
                    return Ok(true);
                }
                // It exists, and the watch has not delivered it yet.
                Err(error) if error.is_conflict() => match read_group(context, &key).await {
                    Ok(found) => known = Some(found),
                    Err(Error::Api(gone)) if gone.is_not_found() => return Err(error.into()),
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error.into()),
            }
        }
        let known = match known {
            Some(known) => known,
            None => read_group(context, &key).await?,
        };
        match apply::updated(&known, desired, &self.options) {
            Some(new) => {
                if let Some(written) = context.api.patch_difference(Part::Main, &known, &new).await? {
                    groups.update(written.into());
                    return Ok(true);
                }
            }
            None => groups.update(known.into()),
        }
        Ok(false)
    }

    /// Records on the workload which of its settings have no effect, and on one of its pods which keys are misspelt: users of
    /// controllers do not see the warnings of admission.
    fn report_ignored(&self, desired: &Desired, pod: &PodSummary) {
        let all: Vec<&str> = desired.ignored.iter().chain(&desired.misspelt).map(String::as_str).collect();
        if all.is_empty() {
            return;
        }
        let warning = |kind: ResourceKind, key: Key, uid: &str, message: String| Event {
            regarding: Regarding { kind, key, uid: uid.to_owned() },
            type_: EventType::Warning,
            reason: WARNING,
            message,
            annotations: BTreeMap::new(),
        };
        let owner = &desired.owner;
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = ResourceKind {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: owner.kind.clone().into(),
            // Events name the kind only.
            plural: String::new().into(),
            namespaced: true,
        };
        let key = Key::new(&desired.namespace, &owner.name);
        self.recorder.record(&warning(kind, key, &owner.uid, all.join("; ")));
        if pod.metadata.uid_str() != owner.uid && !desired.misspelt.is_empty() {
            let key = key_of(&pod.metadata);
            self.recorder.record(&warning(POD, key, pod.metadata.uid_str(), desired.misspelt.join("; ")));
        }
    }

    /// Records why a pod is not grouped: on the pod, and on a pod group that is invalid.
    fn report(&self, pod: &PodSummary, error: &Error) {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        let key = key_of(&pod.metadata);
        tracing::warn!(pod = %key, error = message, "cannot group the pod");
        if let Error::InvalidGroup(group) = error {
            self.recorder.record(&Event {
                regarding: Regarding {
                    kind: ResourceKind::of::<PodGroup>(),
                    key: group.key.clone(),
                    uid: group.uid.clone(),
                },
                type_: EventType::Warning,
                reason: "InvalidInput",
                message: format!("the pod group is invalid and is not changed: {}", group.reason),
                annotations: BTreeMap::new(),
            });
        }
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD, key, uid: pod.metadata.uid_str().to_owned() },
            type_: EventType::Warning,
            reason: WARNING,
            message,
            annotations: BTreeMap::new(),
        });
    }
}

/// Reads a group that the store does not have, or has only the identity of.
async fn read_group(context: &Context, key: &Key) -> Result<PodGroup, Error> {
    match context.api.get::<PodGroup>(key).await {
        Err(api::Error::InvalidObject { object, .. }) => Err(Error::InvalidGroup(object)),
        read => Ok(read?),
    }
}

/// Whether a pod without owners needs no group of ours, or has it.
fn has_group(informers: &Informers, pod: &PodSummary) -> bool {
    let namespace = pod.metadata.namespace_str();
    plan::has_group_without_owners(pod, |group| {
        informers.get::<StoredGroup>(&Key::new(namespace, group)).is_some()
    })
}

fn is_responsible(options: &Options, informers: &Informers, pod: &PodSummary) -> bool {
    if options.namespace_label_selector.is_empty() {
        return plan::is_responsible(options, pod, None);
    }
    let namespace = informers.get::<Namespace>(&Key::new("", pod.metadata.namespace_str()));
    let labels = namespace.as_ref().and_then(|namespace| namespace.metadata.labels.as_ref());
    plan::is_responsible(options, pod, labels)
}

/// A hash of what grouping reads of a pod and its group.
fn fingerprint(informers: &Informers, pod: &PodSummary) -> u64 {
    let mut hasher = FxHasher::default();
    let metadata = &pod.metadata;
    (&metadata.uid, &metadata.labels, &metadata.annotations, &pod.spec.priority_class_name).hash(&mut hasher);
    for of in metadata.owners() {
        (&of.api_version, &of.kind, &of.name, &of.uid, of.controller, of.block_owner_deletion)
            .hash(&mut hasher);
    }
    if let Some(group) = &pod.spec.scheduling_group {
        // It has string keys, so serialisation cannot fail.
        hasher.write(&serde_json::to_vec(group).unwrap_or_default());
    }
    plan::is_leaving_launcher(pod).hash(&mut hasher);
    if metadata.label(label::LWS_WORKER_INDEX) == Some("0") {
        // The group of a leader that starts alone grows when it has a node.
        pod.spec.node_name.is_some().hash(&mut hasher);
    }
    if let Some(group) = assigned_group(pod).and_then(|key| informers.get::<StoredGroup>(&key)) {
        group.hash_read(&mut hasher);
    }
    hasher.finish()
}

fn hash_of(key: &Key) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

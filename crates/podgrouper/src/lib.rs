//! Pod grouper: creates the `PodGroup` of every pod and assigns the pod to it.
//!
//! For a pod, [`owner_chain`] resolves the owners, the module of the topmost owner's kind ([`pod`], [`job`], else
//! [`generic`]) computes the desired group, starting from what all kinds share ([`metadata`]), and [`apply`] computes the
//! writes: one for the group, one for the pod. A further kind is a further module and a line in [`grouping_of`].
//! Terminated and terminating pods are ignored, and so are pods and owners with the skip annotation.
//!
//! A stored pod group that does not deserialise is never written: it gets an event, and its pods are retried.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod apply;
pub mod generic;
pub mod job;
pub mod metadata;
pub mod objects;
pub mod owner_chain;
pub mod pod;

mod defaults;

use defaults::Defaults;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::PodGroup;
use kai_api::well_known::{annotation, label, label_value, name};
use kai_runtime::api::{self, Part};
use kai_runtime::controller::{self, Action, Context, Controller, Watch};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::invalid::InvalidObject;
use kai_runtime::kind::POD;
use kai_runtime::process::Process;
use kai_runtime::url::query_value;
use kai_runtime::{Key, ResourceKind};
use metadata::{Desired, Workload};
use objects::{
    MetaExt, OwnerObject, PodSummary, StoredGroup, group_identity, is_assigned_without_owners, key_of,
    pod_identity, trim_group, trim_pod, trim_to_identity,
};
use owner_chain::Resources;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use serde::Serialize;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Delay after which a pod that cannot be grouped is retried; changes of its owners are not watched.
const RETRY: Duration = Duration::from_secs(30);

/// KAI's flags of the pod grouper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `scheduler-name`: only pods of this scheduler are grouped.
    pub scheduler_name: String,
    /// `queue-label-key`
    pub queue_label_key: String,
    /// `nodepool-label-key`; empty for no node pools.
    pub node_pool_label_key: String,
    /// `pod-label-selector`
    pub pod_label_selector: BTreeMap<String, String>,
    /// `namespace-label-selector`
    pub namespace_label_selector: BTreeMap<String, String>,
    /// `search-legacy-pg`: whether pod groups with the names of older versions are used where they exist.
    pub search_legacy_groups: bool,
    /// `knative-gang-schedule`
    pub knative_gang_schedule: bool,
    /// `generic-karta-fallback`
    pub generic_karta_fallback: bool,
    /// `default-priorities-configmap-name` and `-namespace`
    pub default_priorities: Option<Key>,
    /// `max-concurrent-reconciles`
    pub max_concurrent_reconciles: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
            pod_label_selector: BTreeMap::new(),
            namespace_label_selector: BTreeMap::new(),
            search_legacy_groups: true,
            knative_gang_schedule: true,
            generic_karta_fallback: true,
            default_priorities: None,
            max_concurrent_reconciles: 10,
        }
    }
}

/// Parses `key=value,key=value` as KAI parses its selectors: items that are no pair are ignored.
pub fn parse_selector(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|item| item.trim().split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Why a pod cannot be grouped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Api(#[from] api::Error),
    #[error(transparent)]
    Owner(#[from] owner_chain::Error),
    #[error("{kind} `{name}`: annotation `{annotation}` is `{value}`, which is not {expected}")]
    Annotation { kind: String, name: String, annotation: &'static str, value: String, expected: &'static str },
    #[error("pod group `{}` is invalid and is not changed: {}", .0.key.name, .0.reason)]
    InvalidGroup(Box<InvalidObject>),
}

/// Computes the desired group of a workload of one kind.
pub type Grouping = fn(&Workload<'_>) -> Result<Desired, Error>;

/// The grouping of a topmost owner of this kind.
pub fn grouping_of(group: &str, version: &str, kind: &str) -> Grouping {
    match (group, version, kind) {
        ("", "v1", "Pod") => pod::group,
        ("batch", "v1", "Job") => job::group,
        _ => generic::group,
    }
}

/// Runs the pod grouper. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let mut informers = Informers::default()
        .with(
            Informer::partial(POD, pod_identity)
                .query(pod_query(&options))
                .trim(trim_pod)
                .index(BY_GROUP, |pod: &PodSummary| {
                    assigned_group(pod).map(|key| key.to_string()).into_iter().collect()
                }),
        )
        .with(Informer::partial(ResourceKind::of::<PodGroup>(), group_identity).trim(trim_group))
        .with(Informer::<PriorityClass>::typed().trim(|class| {
            *class =
                PriorityClass { metadata: std::mem::take(&mut class.metadata), ..PriorityClass::default() };
            trim_to_identity(&mut class.metadata);
        }));
    if !options.namespace_label_selector.is_empty() {
        informers = informers.with(Informer::<Namespace>::typed().trim(|namespace| {
            let labels = namespace.metadata.labels.take();
            trim_to_identity(&mut namespace.metadata);
            namespace.metadata.labels = labels;
            namespace.spec = None;
            namespace.status = None;
        }));
    }
    if let Some(key) = &options.default_priorities {
        let selector = format!("metadata.name={},metadata.namespace={}", key.name, key.namespace);
        let query = format!("fieldSelector={}", query_value(&selector));
        informers = informers.with(Informer::<ConfigMap>::typed().query(query));
    }
    let informers = Arc::new(informers);
    informers.start(&process.api, &process.health, &mut process.tasks);
    let context = Context::of(&process, informers);
    let grouper = Grouper {
        options,
        recorder: process.recorder.clone(),
        resources: Resources::default(),
        reconciled: Mutex::default(),
    };
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = controller::run(grouper, context) => {}
    }
}

/// The index of pods by the key of the group that they are assigned to.
const BY_GROUP: &str = "group";

struct Grouper {
    options: Options,
    recorder: Recorder,
    resources: Resources,
    /// Fingerprints of pods and their groups for which nothing was left to do.
    reconciled: Mutex<FxHashMap<Key, u64>>,
}

impl Controller for Grouper {
    /// As KAI's controller is called in metrics.
    const NAME: &'static str = "pod";

    fn workers(&self) -> usize {
        self.options.max_concurrent_reconciles
    }

    fn watches(&self) -> Vec<Watch<Self>> {
        let mut watches = vec![
            Watch::of(POD, |_: &Self, _, pod: &PodSummary| vec![key_of(&pod.metadata)]),
            Watch::of(ResourceKind::of::<PodGroup>(), |_, informers, group: &StoredGroup| {
                // One pod is enough to restore a group.
                let key = key_of(&group.metadata).to_string();
                let pods = informers.store::<PodSummary>().by_index(BY_GROUP, &key);
                pods.first().map(|pod| key_of(&pod.metadata)).into_iter().collect()
            }),
            Watch::typed(|_, _, _: &PriorityClass| Vec::new()),
        ];
        if !self.options.namespace_label_selector.is_empty() {
            watches.push(Watch::typed(|_, informers, namespace: &Namespace| {
                let pods = informers.store::<PodSummary>().in_namespace(namespace.metadata.name_str());
                pods.iter().map(|pod| key_of(&pod.metadata)).collect()
            }));
        }
        if self.options.default_priorities.is_some() {
            watches.push(Watch::typed(|_, _, _: &ConfigMap| Vec::new()));
        }
        watches
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let pods = context.informers.store::<PodSummary>();
        let Some(mut pod) = pods.get(key).filter(|pod| !has_group_without_owners(&context.informers, pod))
        else {
            self.reconciled.lock().remove(key);
            return Ok(Action::AwaitChange);
        };
        if is_assigned_without_owners(&pod) {
            // Its group was deleted, and the store has only the identity of such pods.
            match context.api.get::<Pod>(key).await {
                Ok(whole) => pod = Arc::new(whole.into()),
                Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
                Err(error) => return Err(error),
            }
        }
        if !self.is_responsible(&context.informers, &pod) {
            self.reconciled.lock().remove(key);
            return Ok(Action::AwaitChange);
        }
        if self.reconciled.lock().get(key) == Some(&fingerprint(&context.informers, &pod)) {
            return Ok(Action::AwaitChange);
        }
        match self.group(context, &pod).await {
            Ok(()) => {
                if let Some(pod) = pods.get(key).filter(|pod| !is_assigned_without_owners(pod)) {
                    self.reconciled.lock().insert(key.clone(), fingerprint(&context.informers, &pod));
                }
                Ok(Action::AwaitChange)
            }
            Err(Error::Api(error)) if error.is_conflict() || error.is_transient() => Err(error),
            Err(error) => {
                self.report(&pod, &error);
                match error {
                    Error::Api(error) | Error::Owner(owner_chain::Error::Read(error)) => Err(error),
                    Error::Owner(_) | Error::Annotation { .. } | Error::InvalidGroup(_) => {
                        Ok(Action::RequeueAfter(RETRY))
                    }
                }
            }
        }
    }
}

impl Grouper {
    fn is_responsible(&self, informers: &Informers, pod: &PodSummary) -> bool {
        let is_other = pod.spec.scheduler_name.as_deref().unwrap_or_default() != self.options.scheduler_name;
        let is_terminal = pod.status.phase.as_deref().is_some_and(kai_object::is_terminal_phase);
        let is_terminating = pod.metadata.deletion_timestamp.is_some();
        if is_terminal || is_other || is_terminating || skips(&pod.metadata) {
            return false;
        }
        let selector = &self.options.namespace_label_selector;
        selector.is_empty() || {
            let namespace = informers.get::<Namespace>(&Key::new("", pod.metadata.namespace_str()));
            namespace.is_some_and(|namespace| {
                selector.iter().all(|(key, value)| namespace.metadata.label(key) == Some(value))
            })
        }
    }

    async fn group(&self, context: &Context, pod: &PodSummary) -> Result<(), Error> {
        let owners = owner_chain::resolve(&context.api, &self.resources, pod).await?;
        if owners.iter().any(|owner| skips(&owner.metadata)) {
            return Ok(());
        }
        let desired = self.desired(&context.informers, pod, &owners)?;
        self.apply(context, &desired).await?;
        let Some(patch) = apply::assignment(pod, &desired) else { return Ok(()) };
        match context.api.patch::<Pod>(&key_of(&pod.metadata), Part::Main, &patch).await {
            Ok(assigned) => context.informers.store::<PodSummary>().update(assigned.into()),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn desired(
        &self,
        informers: &Informers,
        pod: &PodSummary,
        owners: &[OwnerObject],
    ) -> Result<Desired, Error> {
        let map = self.options.default_priorities.as_ref().and_then(|key| informers.get::<ConfigMap>(key));
        let groups = informers.store::<StoredGroup>();
        let workload = Workload {
            pod,
            owners,
            options: &self.options,
            defaults: &Defaults::read(map.as_deref()),
            priority_class_exists: &|class| informers.get::<PriorityClass>(&Key::new("", class)).is_some(),
            group_exists: &|group| groups.get(group).is_some() || groups.invalid(group).is_some(),
        };
        let (group, version, kind) = workload.top_kind();
        let mut desired = grouping_of(group, version, kind)(&workload)?;
        let pool = &self.options.node_pool_label_key;
        if !pool.is_empty()
            && let Some(value) = pod.metadata.label(pool)
        {
            desired.labels.entry(pool.clone()).or_insert_with(|| value.to_owned());
        }
        Ok(desired)
    }

    /// Creates or patches the group.
    async fn apply(&self, context: &Context, desired: &Desired) -> Result<(), Error> {
        let key = Key::new(&desired.namespace, &desired.name);
        let groups = context.informers.store::<StoredGroup>();
        if let Some(invalid) = groups.invalid(&key) {
            return Err(Error::InvalidGroup(Box::new(invalid)));
        }
        let stored = groups.get(&key);
        let mut known = stored.as_ref().and_then(|group| {
            Some(PodGroup { metadata: group.metadata.clone(), spec: group.spec.clone()?, status: None })
        });
        if stored.is_none() {
            match context.api.create(&apply::new_group(desired)).await {
                Ok(created) => {
                    groups.update(created.into());
                    return Ok(());
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
                }
            }
            None => groups.update(known.into()),
        }
        Ok(())
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
            reason: "PodGrouperWarning",
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

/// Whether a pod without owners is in a group that its user chose, or in its own group, which exists.
fn has_group_without_owners(informers: &Informers, pod: &PodSummary) -> bool {
    let Some(key) = assigned_group(pod) else { return false };
    let is_own = key.name == metadata::name_of(pod.metadata.name_str(), pod.metadata.uid_str());
    let exists = || informers.get::<StoredGroup>(&key).is_some();
    pod.metadata.owners().is_empty() && (!is_own || exists())
}

fn skips(metadata: &ObjectMeta) -> bool {
    metadata.annotation(annotation::SKIP_GROUPING) == Some(label_value::TRUE)
}

/// The group that a pod is assigned to; an empty name assigns it to none.
fn assigned_group(pod: &PodSummary) -> Option<Key> {
    let name = pod.metadata.annotation(annotation::POD_GROUP).filter(|name| !name.is_empty())?;
    Some(Key::new(pod.metadata.namespace_str(), name))
}

/// A hash of what grouping reads of a pod and its group. Annotations that the scheduler writes are not read.
fn fingerprint(informers: &Informers, pod: &PodSummary) -> u64 {
    const NOT_READ: [&str; 3] = [annotation::STALE_SINCE, annotation::LAST_START, annotation::LAST_EVICTION];
    let mut hasher = FxHasher::default();
    let metadata = &pod.metadata;
    (&metadata.uid, &metadata.labels, &metadata.annotations, &pod.spec.priority_class_name).hash(&mut hasher);
    hash_json(&metadata.owner_references, &mut hasher);
    if let Some(group) = assigned_group(pod).and_then(|key| informers.get::<StoredGroup>(&key)) {
        let metadata = &group.metadata;
        (&metadata.uid, &metadata.labels).hash(&mut hasher);
        hash_json(&metadata.owner_references, &mut hasher);
        hash_json(&group.spec, &mut hasher);
        let annotations = metadata.annotations.iter().flatten();
        annotations
            .filter(|(name, _)| !NOT_READ.contains(&name.as_str()))
            .for_each(|of| of.hash(&mut hasher));
    }
    hasher.finish()
}

/// Hashes a value whose type has no `Hash`.
fn hash_json(value: &impl Serialize, hasher: &mut FxHasher) {
    // Metadata and specs have string keys, so serialisation cannot fail.
    hasher.write(&serde_json::to_vec(value).unwrap_or_default());
}

fn pod_query(options: &Options) -> String {
    let field = query_value(&format!("spec.schedulerName={}", options.scheduler_name));
    let labels: Vec<String> =
        options.pod_label_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() {
        return format!("fieldSelector={field}");
    }
    format!("fieldSelector={field}&labelSelector={}", query_value(&labels.join(",")))
}

#[cfg(test)]
mod tests;

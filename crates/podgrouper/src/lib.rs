//! Makes the pod group of every pod: one write for the group, one for the pod that joins it.
//!
//! For a pod, [`owner_chain`] finds what it belongs to, a module for the kind of the topmost owner ([`pod`], [`job`],
//! else [`other`]) says what group that makes, starting from what all kinds share ([`metadata`]), and [`apply`] says
//! what must be written. A further kind is a further module and a line in [`grouping_of`].
//! Pods that are over or about to go are left alone, and so is whoever asks for it by annotation.

pub mod apply;
pub mod job;
pub mod metadata;
pub mod other;
pub mod owner_chain;
pub mod pod;

mod defaults;
mod keep;
mod kind;

use crate::kind::POD_GROUP;
use apply::Change;
use defaults::Defaults;
use kai_api::well_known::{annotation, label, label_value, name};
use kai_object as object;
use kai_runtime::api::{self, Part};
use kai_runtime::controller::{self, Action, Context, DynamicController};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind::{CONFIG_MAP, Key, NAMESPACE, POD, PRIORITY_CLASS, ResourceKind};
use kai_runtime::process::Process;
use metadata::{Desired, Workload};
use owner_chain::{Chain, Resources};
use rustc_hash::{FxHashMap, FxHasher};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a pod that cannot be grouped waits for its owners to change, which nobody watches.
const RETRY: Duration = Duration::from_secs(30);

/// How the component behaves: KAI's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only pods of this scheduler are grouped (`scheduler-name`).
    pub scheduler_name: String,
    /// Label that names the queue (`queue-label-key`).
    pub queue_label_key: String,
    /// Label that names the node pool; empty for none (`nodepool-label-key`).
    pub node_pool_label_key: String,
    /// Only pods with these labels are grouped (`pod-label-selector`).
    pub pod_label_selector: BTreeMap<String, String>,
    /// Only pods in namespaces with these labels are grouped (`namespace-label-selector`).
    pub namespace_label_selector: BTreeMap<String, String>,
    /// Whether groups with the names of older versions are used where they exist (`search-legacy-pg`).
    pub search_legacy_groups: bool,
    /// Whether a Knative revision is a gang (`knative-gang-schedule`).
    pub knative_gang_schedule: bool,
    /// Whether kinds nobody knows are looked up among Kartas (`generic-karta-fallback`).
    pub generic_karta_fallback: bool,
    /// The map with defaults by kind (`default-priorities-configmap-name` and `-namespace`).
    pub default_priorities: Option<Key>,
    /// How many pods are looked at side by side (`max-concurrent-reconciles`).
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

/// Reads `key=value,key=value` as KAI's selectors are read: what is no pair is left out.
pub fn parse_selector(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|item| item.trim().split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Why a pod cannot be grouped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused something or could not be reached.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// An owner cannot be found out.
    #[error(transparent)]
    Owner(#[from] owner_chain::Error),
    /// The workload asks for something that makes no sense.
    #[error("{kind} `{name}`: annotation `{annotation}` is `{text}`, which is not {wanted}")]
    Annotation {
        /// ResourceKind of the workload.
        kind: String,
        /// Its name.
        name: String,
        /// Which annotation.
        annotation: &'static str,
        /// What it says.
        text: String,
        /// What it could say.
        wanted: &'static str,
    },
}

/// What a kind of workload makes of a pod.
pub type Grouping = fn(&Workload<'_>) -> Result<Desired, Error>;

/// What makes the group of a workload of this kind.
pub fn grouping_of(group: &str, version: &str, kind: &str) -> Grouping {
    match (group, version, kind) {
        ("", "v1", "Pod") => pod::group,
        ("batch", "v1", "Job") => job::group,
        _ => other::group,
    }
}

/// Groups all pods of the scheduler. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let mut watched = vec![
        Informer::dynamic(POD).query(pod_query(&options)).trim(keep_pod).index(BY_GROUP, group_of_pod),
        Informer::dynamic(POD_GROUP).trim(keep_group),
        Informer::dynamic(PRIORITY_CLASS).trim(keep_name),
    ];
    if !options.namespace_label_selector.is_empty() {
        watched.push(Informer::dynamic(NAMESPACE).trim(keep_labels));
    }
    if let Some(key) = &options.default_priorities {
        let selector = format!("metadata.name={},metadata.namespace={}", key.name, key.namespace);
        watched.push(Informer::dynamic(CONFIG_MAP).query(format!("fieldSelector={}", encoded(&selector))));
    }
    let informers = Arc::new(Informers::dynamic_of(watched));
    informers.start(&process.api, &process.health, &mut process.tasks);
    let context = Context::new(process.api.clone(), informers, process.clock);
    let grouper = Grouper {
        options,
        recorder: process.recorder.clone(),
        resources: Resources::default(),
        settled: Mutex::default(),
    };
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = controller::run_dynamic(grouper, context) => {}
    }
}

const BY_GROUP: &str = "group";

struct Grouper {
    options: Options,
    recorder: Recorder,
    resources: Resources,
    /// What pods and their groups looked like when there was nothing left to do.
    settled: Mutex<FxHashMap<Key, u64>>,
}

impl DynamicController for Grouper {
    const NAME: &'static str = "pod-grouper";

    fn workers(&self) -> usize {
        self.options.max_concurrent_reconciles
    }

    fn kinds(&self) -> Vec<ResourceKind> {
        let mut kinds = vec![POD, POD_GROUP, PRIORITY_CLASS];
        if !self.options.namespace_label_selector.is_empty() {
            kinds.push(NAMESPACE);
        }
        if self.options.default_priorities.is_some() {
            kinds.push(CONFIG_MAP);
        }
        kinds
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == POD {
            return vec![Key::of(changed)];
        }
        if *kind == POD_GROUP {
            // One pod is enough to put a group right.
            let pods = informers.dynamic(&POD).by_index(BY_GROUP, &Key::of(changed).to_string());
            return pods.first().map(|pod| Key::of(pod)).into_iter().collect();
        }
        if *kind == NAMESPACE {
            return informers
                .dynamic(&POD)
                .in_namespace(object::name(changed))
                .iter()
                .map(|pod| Key::of(pod))
                .collect();
        }
        Vec::new()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let Some(mut pod) =
            context.informers.dynamic(&POD).get(key).filter(|pod| !is_settled_alone(&context.informers, pod))
        else {
            self.settled().remove(key);
            return Ok(Action::AwaitChange);
        };
        if is_alone_in_group(&pod) {
            // Its group went, and little is kept of such pods.
            match context.api.get_dynamic(&POD, key).await {
                Ok(whole) => pod = Arc::new(whole),
                Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
                Err(error) => return Err(error),
            }
        }
        if !self.is_ours(&context.informers, &pod) {
            self.settled().remove(key);
            return Ok(Action::AwaitChange);
        }
        if self.settled().get(key) == Some(&fingerprint(&context.informers, &pod)) {
            return Ok(Action::AwaitChange);
        }
        match self.group(context, &pod).await {
            Ok(()) => {
                let pod = context.informers.dynamic(&POD).get(key).filter(|pod| !is_alone_in_group(pod));
                if let Some(pod) = pod {
                    self.settled().insert(key.clone(), fingerprint(&context.informers, &pod));
                }
                Ok(Action::AwaitChange)
            }
            Err(Error::Api(error)) if error.is_conflict() || error.is_transient() => Err(error),
            Err(error) => {
                self.complain(&pod, &error);
                match error {
                    Error::Api(error) | Error::Owner(owner_chain::Error::Read(error)) => Err(error),
                    Error::Owner(_) | Error::Annotation { .. } => Ok(Action::RequeueAfter(RETRY)),
                }
            }
        }
    }
}

impl Grouper {
    /// Whether a pod is to be grouped here.
    fn is_ours(&self, informers: &Informers, pod: &Value) -> bool {
        let is_over = matches!(object::str_at(pod, "/status/phase"), "Succeeded" | "Failed");
        let is_other = object::str_at(pod, "/spec/schedulerName") != self.options.scheduler_name;
        if is_over || is_other || object::is_deleting(pod) || skips(pod) {
            return false;
        }
        let selector = &self.options.namespace_label_selector;
        selector.is_empty() || {
            let namespace = informers.dynamic(&NAMESPACE).get(&Key::new("", object::namespace(pod)));
            namespace.is_some_and(|namespace| {
                selector.iter().all(|(key, value)| text(&namespace, "labels", key) == Some(value))
            })
        }
    }

    async fn group(&self, context: &Context, pod: &Value) -> Result<(), Error> {
        let chain = owner_chain::resolve(&context.api, &self.resources, pod).await?;
        if chain.owners.iter().any(skips) {
            return Ok(());
        }
        let desired = self.desired(&context.informers, pod, &chain)?;
        self.apply(context, &desired).await?;
        let Some(patch) = apply::stamp(pod, &desired) else { return Ok(()) };
        match context.api.patch_dynamic(&POD, &Key::of(pod), Part::Main, &patch).await {
            Ok(stamped) => context.informers.update_dynamic(&POD, &stamped),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The group that a pod should be in.
    fn desired(&self, informers: &Informers, pod: &Value, chain: &Chain) -> Result<Desired, Error> {
        let map =
            self.options.default_priorities.as_ref().and_then(|key| informers.dynamic(&CONFIG_MAP).get(key));
        let workload = Workload {
            pod,
            owners: &chain.owners,
            options: &self.options,
            defaults: &Defaults::read(map.as_deref()),
            class_exists: &|class| informers.dynamic(&PRIORITY_CLASS).get(&Key::new("", class)).is_some(),
            group_exists: &|group| informers.dynamic(&POD_GROUP).get(group).is_some(),
        };
        let (group, version, kind) = workload.top_kind();
        let mut desired = grouping_of(group, version, kind)(&workload)?;
        let pool = &self.options.node_pool_label_key;
        if !pool.is_empty()
            && let Some(value) = text(pod, "labels", pool)
        {
            desired.labels.entry(pool.clone()).or_insert_with(|| value.to_owned());
        }
        Ok(desired)
    }

    async fn apply(&self, context: &Context, desired: &Desired) -> Result<(), Error> {
        let key = Key::new(&desired.namespace, &desired.name);
        let mut stored =
            context.informers.dynamic(&POD_GROUP).get(&key).filter(|group| group.get("spec").is_some());
        if context.informers.dynamic(&POD_GROUP).get(&key).is_none() {
            match context.create_dynamic(&POD_GROUP, &key.namespace, &apply::new_group(desired)).await {
                Ok(_) => return Ok(()),
                // Somebody else made it, and the news are still on their way.
                Err(error) if error.is_conflict() => match context.api.get_dynamic(&POD_GROUP, &key).await {
                    Ok(found) => stored = Some(Arc::new(found)),
                    Err(gone) if gone.is_not_found() => return Err(error.into()),
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
        let stored = match stored {
            Some(stored) => stored,
            None => Arc::new(context.api.get_dynamic(&POD_GROUP, &key).await?),
        };
        if let Change::To(new) = apply::change(&stored, desired, &self.options) {
            context.patch_difference_dynamic(&POD_GROUP, Part::Main, &stored, &new).await?;
        } else {
            context.informers.update_dynamic(&POD_GROUP, &stored);
        }
        Ok(())
    }

    fn complain(&self, pod: &Value, error: &Error) {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        tracing::warn!(pod = %Key::of(pod), error = message, "a pod cannot be grouped");
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD, key: Key::of(pod), uid: object::uid(pod).to_owned() },
            type_: EventType::Warning,
            reason: "PodGrouperWarning",
            message,
            annotations: BTreeMap::new(),
        });
    }

    fn settled(&self) -> MutexGuard<'_, FxHashMap<Key, u64>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a pod without owners is in a group: one of its user's, or its own, unless that was deleted.
fn is_settled_alone(informers: &Informers, pod: &Value) -> bool {
    let Some(group) = text(pod, "annotations", annotation::POD_GROUP) else { return false };
    let is_own = group == metadata::name_of(object::name(pod), object::uid(pod));
    let exists = || informers.dynamic(&POD_GROUP).get(&Key::new(object::namespace(pod), group)).is_some();
    owner_chain::owners(pod).is_empty() && (!is_own || exists())
}

/// Whether an object asks to be left alone.
fn skips(of: &Value) -> bool {
    text(of, "annotations", annotation::SKIP_GROUPING) == Some(label_value::TRUE)
}

/// A label or annotation.
fn text<'a>(of: &'a Value, which: &str, key: &str) -> Option<&'a str> {
    of.get("metadata")?.get(which)?.get(key)?.as_str()
}

/// What a pod and its group look like, as far as grouping reads them. What the scheduler notes on groups is not read.
fn fingerprint(informers: &Informers, pod: &Value) -> u64 {
    const NOT_OURS: [&str; 3] = [annotation::STALE_SINCE, annotation::LAST_START, annotation::LAST_EVICTION];
    let mut hasher = FxHasher::default();
    let mut add =
        |part: Option<&Value>| hasher.write(part.map(Value::to_string).unwrap_or_default().as_bytes());
    for field in ["uid", "labels", "annotations", "ownerReferences"] {
        add(object::meta(pod, field));
    }
    add(pod.pointer("/spec/priorityClassName"));
    let group = text(pod, "annotations", annotation::POD_GROUP)
        .and_then(|name| informers.dynamic(&POD_GROUP).get(&Key::new(object::namespace(pod), name)));
    if let Some(group) = group {
        add(group.get("spec"));
        for field in ["uid", "labels", "ownerReferences"] {
            add(object::meta(&group, field));
        }
        let annotations = object::meta(&group, "annotations").and_then(Value::as_object);
        for (name, value) in
            annotations.into_iter().flatten().filter(|(name, _)| !NOT_OURS.contains(&&***name))
        {
            add(Some(&json!([name, value])));
        }
    }
    hasher.finish()
}

fn pod_query(options: &Options) -> String {
    let field = encoded(&format!("spec.schedulerName={}", options.scheduler_name));
    let labels: Vec<String> =
        options.pod_label_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() {
        return format!("fieldSelector={field}");
    }
    format!("fieldSelector={field}&labelSelector={}", encoded(&labels.join(",")))
}

/// Text as it stands in a query.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

fn group_of_pod(pod: &Value) -> Vec<String> {
    let name = text(pod, "annotations", annotation::POD_GROUP);
    name.map(|name| Key::new(object::namespace(pod), name).to_string()).into_iter().collect()
}

/// Whether a pod without owners is in a group: then there is nothing left to do, unless that group goes.
fn is_alone_in_group(pod: &Value) -> bool {
    owner_chain::owners(pod).is_empty() && text(pod, "annotations", annotation::POD_GROUP).is_some()
}

fn keep_pod(pod: &mut Value) {
    keep::metadata(pod, &["labels", "annotations", "ownerReferences"]);
    keep::only_of(pod, "spec", &["schedulerName", "priorityClassName"]);
    keep::only_of(pod, "status", &["phase"]);
    if is_alone_in_group(pod) {
        keep::metadata(pod, &["annotations"]);
        keep::only(pod, &["metadata"]);
        if let Some(metadata) = pod.get_mut("metadata") {
            keep::only_of(metadata, "annotations", &[annotation::POD_GROUP]);
        }
    }
}

/// Of a group that a pod without owners made, little is kept: it is not compared again once the pod is in it.
fn keep_group(group: &mut Value) {
    keep::metadata(group, &["labels", "annotations", "ownerReferences"]);
    keep::only(group, &["metadata", "spec"]);
    if let [owner] = owner_chain::owners(group)
        && owner["kind"] == *POD.kind
    {
        keep::metadata(group, &[]);
        keep::only(group, &["metadata"]);
    }
}

fn keep_labels(object: &mut Value) {
    keep::metadata(object, &["labels"]);
    keep::only(object, &["metadata"]);
}

fn keep_name(object: &mut Value) {
    keep::metadata(object, &[]);
    keep::only(object, &["metadata"]);
}

#[cfg(test)]
mod tests;

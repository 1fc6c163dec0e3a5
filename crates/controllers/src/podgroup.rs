//! Keeps `status.resourcesStatus` of pod groups: what their pods request, and what of it they hold.
//!
//! [`counting`] says what a group amounts to, [`claim`] and [`gpu_memory`] read what it needs of other objects,
//! [`webhook`] says which pod groups are well-formed. The rest here is plumbing: who is looked at when, and when a
//! difference is written. A pod that gets its node soon costs one write, since a group that still waits for pods is
//! not written at once (see [`patience`]).
//! Not here: conditions of pod groups, which the scheduler writes.

pub mod claim;
pub mod counting;
pub mod gpu_memory;
pub mod webhook;

pub use webhook::router;

use crate::amounts::{Sum, Totals};
use crate::kind::POD_GROUP;
use counting::Member;
use kai_api::well_known::{annotation, name};
use kai_api::{Pod, PodGroup};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::cache::{Caches, Watched};
use kai_runtime::controller::{self, Context, Controller, Next};
use kai_runtime::kind::{Key, Kind, NODE, POD, PRIORITY_CLASS, RESOURCE_CLAIM};
use kai_runtime::process::Process;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a group that waits for pods may differ from its status.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a group is not looked at again; a gang's pods change all at once.
const PAUSE: Duration = Duration::from_millis(50);

/// How the component behaves: KAI's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only pods of this scheduler count (`scheduler-name`).
    pub scheduler_name: String,
    /// Whether [`router`] is served (`enable-podgroup-webhook`).
    pub enable_webhook: bool,
    /// How many groups are looked at side by side (`max-concurrent-reconciles`).
    pub max_concurrent_reconciles: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            enable_webhook: true,
            max_concurrent_reconciles: 10,
        }
    }
}

/// Keeps the status of all pod groups. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let claims = claim_kind(&process.api, process.clock).await;
    let mut watched = vec![
        Watched::all(POD)
            .query(format!("fieldSelector=spec.schedulerName%3D{}", options.scheduler_name))
            .keeping(keep_pod)
            .indexed(BY_GROUP, group_of_pod)
            .indexed(BY_CLAIM, claims_of_pod)
            .indexed(BY_MEMORY, memory_node_of_pod),
        Watched::all(POD_GROUP).keeping(keep_group).indexed(BY_CLASS, class_of_group),
        Watched::all(NODE).keeping(keep_labels),
        Watched::all(PRIORITY_CLASS).keeping(keep_class),
    ];
    watched.extend(claims.clone().map(|kind| Watched::all(kind).keeping(keep_claim)));
    let caches = Arc::new(Caches::new(watched));
    caches.follow(&process.api, &process.health, &mut process.tasks);
    let context = Context { api: process.api.clone(), caches, clock: process.clock };
    let keeper = Keeper { options, claims, paces: Mutex::default() };
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = controller::run(keeper, context) => {}
    }
}

const BY_GROUP: &str = "group";
const BY_CLAIM: &str = "claim";
const BY_MEMORY: &str = "memory of node";
const BY_CLASS: &str = "class";

struct Keeper {
    options: Options,
    /// Claims on devices, in the version that the server has; none where it has none.
    claims: Option<Kind>,
    paces: Mutex<FxHashMap<Key, Pace>>,
}

/// When a group was looked at, and since when its status is not what it should be.
#[derive(Clone, Copy, Debug)]
struct Pace {
    looked: Instant,
    differs_since: Option<Instant>,
}

impl Controller for Keeper {
    const NAME: &'static str = "podgroup-controller";

    fn workers(&self) -> usize {
        self.options.max_concurrent_reconciles
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![POD, POD_GROUP, NODE, PRIORITY_CLASS];
        kinds.extend(self.claims.clone());
        kinds
    }

    fn wakes(&self, caches: &Caches, kind: &Kind, changed: &Value) -> Vec<Key> {
        let groups = |pods: Vec<Arc<Value>>| pods.iter().filter_map(|pod| group_key(pod)).collect();
        if *kind == POD {
            group_key(changed).into_iter().collect()
        } else if *kind == POD_GROUP {
            vec![Key::of(changed)]
        } else if *kind == NODE {
            groups(caches.by(&POD, BY_MEMORY, object::name(changed)))
        } else if *kind == PRIORITY_CLASS {
            let is_default = changed["globalDefault"] == true;
            let concerned = if is_default {
                caches.all(&POD_GROUP)
            } else {
                caches.by(&POD_GROUP, BY_CLASS, object::name(changed))
            };
            concerned.iter().map(|group| Key::of(group)).collect()
        } else {
            groups(caches.by(&POD, BY_CLAIM, &Key::of(changed).to_string()))
        }
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Next> {
        let Some(group) = context.caches.get(&POD_GROUP, key) else {
            self.paces().remove(key);
            return Ok(Next::Wait);
        };
        let now = Instant::now();
        if let Some(pace) = self.paces().get(key)
            && now - pace.looked < PAUSE
        {
            return Ok(Next::After(PAUSE - (now - pace.looked)));
        }
        let Ok(typed) = PodGroup::deserialize(&*group) else { return Ok(Next::Wait) };
        let members = self.members(&context.caches, key);
        let preemption = counting::preemption(&typed.spec, class_value(&context.caches, &typed));
        let wanted = counting::totals(&members, preemption);
        let stored = stored(&typed);
        let patch = wanted.patch_from(&stored);
        let wait = self.note(key, now, !patch.is_empty(), members.iter().any(Member::waits));
        if patch.is_empty() {
            return Ok(Next::Wait);
        }
        if let Some(wait) = wait {
            return Ok(Next::After(wait));
        }
        write(context, &group, patch).await?;
        self.paces().insert(key.clone(), Pace { looked: now, differs_since: None });
        Ok(Next::Wait)
    }
}

impl Keeper {
    /// Notes how a group stands, and says how long its difference may still wait.
    fn note(&self, key: &Key, now: Instant, differs: bool, waits: bool) -> Option<Duration> {
        let mut paces = self.paces();
        let since = paces.get(key).and_then(|pace| pace.differs_since);
        let differs_since = differs.then(|| since.unwrap_or(now));
        paces.insert(key.clone(), Pace { looked: now, differs_since });
        patience(now - differs_since?, waits)
    }

    fn paces(&self) -> std::sync::MutexGuard<'_, FxHashMap<Key, Pace>> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self, caches: &Caches, group: &Key) -> Vec<Member> {
        let pods = caches.by(&POD, BY_GROUP, &group.to_string());
        let member = |pod: &Arc<Value>| {
            let pod = Pod::deserialize(&**pod).ok()?;
            let memory = gpu_memory_of(caches, &pod);
            let mut member = Member { pod, devices: Vec::new(), gpu_memory: memory };
            if let Some(kind) = &self.claims
                && member.counts()
            {
                let claims = claim::names(&member.pod)
                    .filter_map(|name| caches.get(kind, &Key::new(&group.namespace, name)));
                member.devices = claims.flat_map(|claim| claim::devices(&claim)).collect();
            }
            Some(member)
        };
        pods.iter().filter_map(member).collect()
    }
}

/// How long a difference that came up a while ago may still wait; none where it is to be written now.
///
/// A group all of whose pods have a node is written at once. One that waits for pods changes with the next of them,
/// and nobody acts on what it requests: its status follows a little later.
pub fn patience(differs_for: Duration, waits: bool) -> Option<Duration> {
    let left = PATIENCE.saturating_sub(differs_for);
    (waits && !left.is_zero()).then_some(left)
}

async fn write(context: &Context, group: &Value, patch: Map<String, Value>) -> api::Result<()> {
    let patch = json!({
        "metadata": {"uid": object::uid(group)},
        "status": {"resourcesStatus": patch},
    });
    match context.api.merge(&POD_GROUP, &Key::of(group), Part::Status, &patch).await {
        Ok(written) => context.caches.note(&POD_GROUP, &written),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn stored(group: &PodGroup) -> Totals {
    let Some(resources) = group.status.as_ref().and_then(|status| status.resources_status.as_ref()) else {
        return Totals::default();
    };
    Totals {
        requested: Sum::read(&resources.requested),
        allocated: Sum::read(&resources.allocated),
        allocated_non_preemptible: Sum::read(&resources.allocated_non_preemptible),
    }
}

/// The value of the group's priority class, else of the cluster's default class.
fn class_value(caches: &Caches, group: &PodGroup) -> Option<i32> {
    let value = |class: &Value| class["value"].as_i64().and_then(|value| i32::try_from(value).ok());
    let named = caches.get(&PRIORITY_CLASS, &Key::new("", &group.spec.priority_class_name));
    if let Some(named) = named {
        return value(&named);
    }
    let classes = caches.all(&PRIORITY_CLASS);
    classes.iter().find(|class| class["globalDefault"] == true).and_then(|class| value(class))
}

/// Memory of a GPU on the pod's node, in MiB, where somebody needs to know.
fn gpu_memory_of(caches: &Caches, pod: &Pod) -> Option<i64> {
    if pod.spec.node_name.is_empty() || pod.metadata.annotation(annotation::GPU_MEMORY).is_none() {
        return None;
    }
    let node = caches.get(&NODE, &Key::new("", &pod.spec.node_name))?;
    match gpu_memory::of_node(&node) {
        Ok(mib) => Some(mib),
        Err(error) => {
            tracing::warn!(node = &*pod.spec.node_name, %error, "GPU memory is not known");
            None
        }
    }
}

/// The version of claims on devices that the server has. Asks until it gets an answer.
async fn claim_kind(api: &Api, clock: Clock) -> Option<Kind> {
    let asked = clock.now();
    loop {
        let mut answered = true;
        for version in ["v1", "v1beta2", "v1beta1"] {
            let kind = Kind { version: version.into(), ..RESOURCE_CLAIM };
            match api.send("GET", &format!("{}?limit=1", kind.path("")), None).await {
                Ok(_) => return Some(kind),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(%asked, error = &error as &dyn std::error::Error, "cannot ask for claims");
                    answered = false;
                }
            }
        }
        if answered {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn group_key(pod: &Value) -> Option<Key> {
    let name = pod.pointer("/metadata/annotations")?.get(annotation::POD_GROUP)?.as_str()?;
    Some(Key::new(object::namespace(pod), name))
}

fn group_of_pod(pod: &Value) -> Vec<String> {
    group_key(pod).iter().map(Key::to_string).collect()
}

fn claims_of_pod(pod: &Value) -> Vec<String> {
    if pod.pointer("/spec/resourceClaims").is_none() {
        return Vec::new();
    }
    let Ok(typed) = Pod::deserialize(pod) else { return Vec::new() };
    claim::names(&typed).map(|name| Key::new(object::namespace(pod), name).to_string()).collect()
}

fn memory_node_of_pod(pod: &Value) -> Vec<String> {
    let by_memory = pod.pointer("/metadata/annotations").and_then(|all| all.get(annotation::GPU_MEMORY));
    let node = object::str_at(pod, "/spec/nodeName");
    if by_memory.is_none() || node.is_empty() { Vec::new() } else { vec![node.to_owned()] }
}

fn class_of_group(group: &Value) -> Vec<String> {
    vec![object::str_at(group, "/spec/priorityClassName").to_owned()]
}

/// Keeps of a pod what decides how it counts: exactly what the typed form reads of it, without what only placing
/// needs.
fn keep_pod(pod: &mut Value) {
    let version = object::meta_str(pod, "resourceVersion").to_owned();
    let Ok(mut typed) = Pod::deserialize(&*pod) else { return keep_labels(pod) };
    typed.compact();
    let spec = &mut typed.spec;
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut()) {
        let resources = std::mem::take(&mut container.resources);
        let restart_policy = std::mem::take(&mut container.restart_policy);
        *container = kai_api::pod::Container { resources, restart_policy, ..Default::default() };
        container.resources.limits = Default::default();
    }
    typed.spec = kai_api::pod::PodSpec {
        node_name: std::mem::take(&mut spec.node_name),
        containers: std::mem::take(&mut spec.containers),
        init_containers: std::mem::take(&mut spec.init_containers),
        overhead: std::mem::take(&mut spec.overhead),
        resources: spec.resources.take(),
        resource_claims: std::mem::take(&mut spec.resource_claims),
        ..Default::default()
    };
    typed.metadata.labels = Default::default();
    typed.metadata.owner_references = Default::default();
    *pod = serde_json::to_value(&typed).unwrap_or_default();
    object::set_meta(pod, "resourceVersion", Some(Value::from(version)));
}

fn keep_group(group: &mut Value) {
    keep_metadata(group, &[]);
    keep_fields(group, "spec", &["priorityClassName", "preemptibility"]);
    keep_fields(group, "status", &["resourcesStatus"]);
}

fn keep_labels(object: &mut Value) {
    keep_metadata(object, &["labels"]);
    keep_only(object, &["metadata"]);
    let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) else { return };
    labels.retain(|label, _| gpu_memory::is_read(label));
}

fn keep_class(class: &mut Value) {
    keep_metadata(class, &[]);
    keep_only(class, &["metadata", "value", "globalDefault"]);
}

fn keep_claim(claim: &mut Value) {
    keep_metadata(claim, &["annotations"]);
    keep_only(claim, &["metadata", "spec"]);
}

/// Leaves of the metadata what tells objects and their versions apart, and what is named.
fn keep_metadata(object: &mut Value, more: &[&str]) {
    const ALWAYS: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp"];
    object::meta_mut(object).retain(|field, _| ALWAYS.contains(&&**field) || more.contains(&&**field));
}

fn keep_only(object: &mut Value, fields: &[&str]) {
    if let Some(all) = object.as_object_mut() {
        all.retain(|field, _| fields.contains(&&**field));
    }
}

fn keep_fields(object: &mut Value, part: &str, fields: &[&str]) {
    if let Some(part) = object.get_mut(part) {
        keep_only(part, fields);
    }
}

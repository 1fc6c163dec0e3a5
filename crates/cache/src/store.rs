//! The object store, and the engine inputs that a change of an object affects.
//!
//! `apply`, `delete` and `reset` mark inputs as stale; `drain` translates stale inputs from the stored objects and emits
//! deltas in a fixed order. Several changes of one object therefore cost one delta, and any sequence of changes ends in
//! the inputs of a full build.

mod derive;
mod implicit;
mod lint;

use crate::cel::Selectors;
use crate::finding::Finding;
use crate::object::{
    BindRequest, Change, Kind, Node, Object, Objects, Pod, PodGroup, PriorityClass, ResourceClaim, Stored,
};
use crate::settings::Settings;
use crate::translate::{self, affinity, device};
use kai_engine::cluster::ObjectCounts;
use kai_engine::input::{Backoff, Key};
use kai_engine::{ClusterState, Delta};
use kai_units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Store {
    settings: Settings,
    objects: Objects,
    /// Historical usage by queue: cpu, memory, gpu.
    usage: BTreeMap<String, [f64; 3]>,
    /// Assumed evictions.
    evictions: BTreeMap<Key, Eviction>,
    /// Groups in backoff.
    backoffs: BTreeMap<Key, Backoff>,
    selectors: Selectors,
    index: Index,
    implicit: implicit::Implicit,
    stale: Stale,
    /// Stored objects without an engine input.
    hidden: BTreeSet<(Kind, Key)>,
    findings: BTreeMap<(Kind, Key), Vec<Finding>>,
    /// Objects with findings that were translated since the last [`Store::take_new_findings`].
    new_findings: BTreeSet<(Kind, Key)>,
}

/// An assumed eviction: decided, but the pod has no deletion timestamp yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub uid: String,
    pub since: Timestamp,
}

#[derive(Debug, Default)]
struct Index {
    binds_by_pod: BTreeMap<Key, BTreeSet<Key>>,
    binds_by_node: BTreeMap<String, BTreeSet<Key>>,
    /// Resource claims by the pods that they are reserved for.
    claims_by_pod: BTreeMap<Key, BTreeSet<Key>>,
    /// Pods whose affinity terms select namespaces by label.
    namespace_readers: BTreeSet<Key>,
}

/// Inputs that must be translated again.
#[derive(Debug, Default)]
enum Stale {
    /// No delta has been drained yet.
    #[default]
    Everything,
    Some(BTreeMap<Kind, BTreeSet<Key>>),
}

impl Stale {
    fn mark(&mut self, kind: Kind, key: Key) {
        match self {
            Self::Everything => {}
            Self::Some(keys) => {
                keys.entry(kind).or_default().insert(key);
            }
        }
    }
}

/// Kinds with engine inputs, in the order of their deltas: kinds that others refer to come first.
const DERIVED: [Kind; 14] = [
    Kind::Topology,
    Kind::Queue,
    Kind::Node,
    Kind::PodGroup,
    Kind::ConfigMap,
    Kind::StorageClass,
    Kind::CsiStorageCapacity,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::ResourceClaim,
    Kind::PodDisruptionBudget,
    Kind::Pod,
];

impl Store {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub fn of(settings: Settings, objects: Objects) -> Self {
        let mut index = Index::default();
        for (key, bind) in &objects.bind_requests {
            index.add_bind(key, bind);
        }
        for (key, claim) in &objects.resource_claims {
            index.add_claim(key, claim);
        }
        for (key, pod) in &objects.pods {
            if affinity::reads_namespaces(pod) {
                index.namespace_readers.insert(key.clone());
            }
        }
        let mut store = Self { settings, objects, index, ..Self::default() };
        store.derive_implicit();
        store
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Assumed evictions.
    pub fn evictions(&self) -> &BTreeMap<Key, Eviction> {
        &self.evictions
    }

    /// Historical usage by queue.
    pub fn usage(&self) -> &BTreeMap<String, [f64; 3]> {
        &self.usage
    }

    pub fn apply(&mut self, object: impl Into<Object>) -> Change {
        let object = object.into();
        let (kind, key) = (object.kind(), object.key());
        if kind == Kind::PodGroup {
            self.take_over(&key);
        }
        let change = self.objects.insert(object);
        match &change {
            Change::None => {}
            Change::Added => self.invalidate(kind, &key, None),
            Change::Replaced(old) => self.invalidate(kind, &key, Some(old)),
        }
        change
    }

    pub fn delete(&mut self, kind: Kind, key: &Key) -> Option<Object> {
        if kind == Kind::PodGroup && self.is_implicit(key) {
            return None;
        }
        let old = self.objects.remove(kind, key)?;
        self.invalidate(kind, key, Some(&old));
        if kind == Kind::PodGroup {
            self.release(key);
        }
        Some(old)
    }

    /// Replaces all objects of a kind, as after a relist.
    pub fn reset(&mut self, kind: Kind, all: Vec<Object>) {
        let present: BTreeSet<Key> = all.iter().filter(|o| o.kind() == kind).map(Object::key).collect();
        for key in self.objects.keys(kind) {
            if !present.contains(&key) {
                self.delete(kind, &key);
            }
        }
        for object in all {
            self.apply(object);
        }
    }

    pub fn set_usage(&mut self, usage: BTreeMap<String, [f64; 3]>) {
        let names: BTreeSet<&String> = self.usage.keys().chain(usage.keys()).collect();
        for name in names {
            if self.usage.get(name) != usage.get(name) {
                self.stale.mark(Kind::Queue, Key::new("", name.as_str()));
            }
        }
        self.usage = usage;
    }

    /// Counts a pod as terminating until its object has a deletion timestamp.
    pub fn assume_eviction(&mut self, pod: Key, eviction: Eviction) {
        if self.objects.pods.get(&pod).is_some_and(|p| p.metadata.uid == eviction.uid.as_str()) {
            self.mark_pod(&pod);
            self.evictions.insert(pod, eviction);
        }
    }

    pub fn forget_eviction(&mut self, pod: &Key) {
        if self.evictions.remove(pod).is_some() {
            self.mark_pod(pod);
        }
    }

    /// Sets the groups in backoff; groups that are not listed leave it.
    pub fn set_backoffs(&mut self, backoffs: BTreeMap<Key, Backoff>) {
        for group in self.backoffs.keys().chain(backoffs.keys()) {
            if self.backoffs.get(group) != backoffs.get(group) && self.objects.pod_groups.contains_key(group)
            {
                self.stale.mark(Kind::PodGroup, group.clone());
            }
        }
        self.backoffs = backoffs;
    }

    /// Translates all stale inputs and passes their deltas to `sink`.
    pub fn drain(&mut self, mut sink: impl FnMut(Delta)) {
        self.settle_implicit();
        match std::mem::replace(&mut self.stale, Stale::Some(BTreeMap::new())) {
            Stale::Everything => self.derive_everything(&mut sink),
            Stale::Some(mut keys) => {
                for kind in DERIVED {
                    for key in keys.remove(&kind).unwrap_or_default() {
                        self.derive_one(kind, &key, &mut sink);
                    }
                }
            }
        }
    }

    /// Applies pending deltas to a cluster model that has all earlier ones.
    pub fn drain_into(&mut self, cluster: &mut ClusterState) {
        if matches!(self.stale, Stale::Everything) {
            let count = |kind| self.objects.count(kind);
            let (nodes, pods, groups) = (count(Kind::Node), count(Kind::Pod), count(Kind::PodGroup));
            cluster.reserve(ObjectCounts { nodes, pods, groups });
        }
        self.drain(|delta| cluster.apply(delta));
    }

    /// Bind requests that should be deleted.
    pub fn obsolete_bind_requests(&self) -> Vec<Key> {
        self.objects.bind_requests.keys().filter(|key| self.is_obsolete_bind(key)).cloned().collect()
    }

    /// Whether a bind request of this node pool should be deleted: it failed for good, its pod was recreated, or its node
    /// does not exist.
    pub fn is_obsolete_bind(&self, key: &Key) -> bool {
        let Some(bind) = self.objects.bind_requests.get(key) else { return false };
        let pod = self.objects.pods.get(&translate::pod::pod_of(bind));
        let is_obsolete = translate::pod::bind_failed(bind)
            || pod.is_some_and(|pod| translate::pod::is_for_another(bind, pod))
            || !self.is_node_selected(&bind.spec.selected_node);
        is_obsolete && self.is_bind_served(bind, pod.map(|pod| &**pod))
    }

    /// Whether a bind request belongs to this node pool; without the label, the group of its pod decides.
    fn is_bind_served(&self, bind: &BindRequest, pod: Option<&Pod>) -> bool {
        let labels = bind.metadata.labels.as_ref();
        let pool = labels.and_then(|l| l.get(&self.settings.node_pool_key)).map(String::as_str);
        let group = || {
            let group = pod.and_then(translate::pod::group_of)?;
            self.objects.pod_groups.get(&group)
        };
        self.settings.serves_pool(pool)
            || (pool.is_none()
                && group().is_some_and(|group| translate::group::is_selected(group, &self.settings)))
    }

    pub fn binds_to(&self, node: &str) -> Vec<Key> {
        self.index.binds_by_node.get(node).into_iter().flatten().cloned().collect()
    }

    pub fn binds_of(&self, pod: &Key) -> Vec<Key> {
        self.index.binds_by_pod.get(pod).into_iter().flatten().cloned().collect()
    }

    /// All findings, sorted by kind, name and field. Call after [`drain`](Self::drain).
    pub fn findings(&self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.findings.values().flatten().cloned().collect();
        lint::across_objects(self, &mut all);
        all.sort();
        all.dedup();
        all
    }

    /// The findings on one object alone. Call after [`drain`](Self::drain).
    pub fn findings_on(&self, kind: Kind, key: &Key) -> &[Finding] {
        // A lookup needs the key by value; most stores have no findings at all.
        if self.findings.is_empty() {
            return &[];
        }
        self.findings.get(&(kind, key.clone())).map_or(&[], Vec::as_slice)
    }

    /// Findings on single objects that were translated since the last call.
    pub fn take_new_findings(&mut self) -> Vec<Finding> {
        let found = std::mem::take(&mut self.new_findings);
        found.iter().filter_map(|id| self.findings.get(id)).flatten().cloned().collect()
    }

    /// Findings on the queue tree.
    pub fn queue_findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        lint::queues(self, &mut findings);
        findings
    }

    /// Whether a group of this node pool names a queue, a priority class or a topology that is not stored.
    pub fn lacks_reference(&self, group: &PodGroup) -> bool {
        translate::group::is_selected(group, &self.settings) && lint::lacks_reference(&self.objects, group)
    }

    /// All findings on some groups. Those that a verdict on pods repeats are left out for groups that have pods, which
    /// `has_pods` tells.
    pub fn group_findings(&self, groups: &BTreeSet<Key>, has_pods: impl Fn(&Key) -> bool) -> Vec<Finding> {
        if groups.is_empty() {
            return Vec::new();
        }
        let stored = groups.iter().filter_map(|key| Some((key, &**self.objects.pod_groups.get(key)?)));
        let mut findings = Vec::new();
        lint::of_groups(self, stored, &mut findings);
        findings.retain(|finding| finding.field == lint::PRIORITY_CLASS_FIELD || !has_pods(&finding.key));
        findings.extend(groups.iter().flat_map(|key| self.findings_on(Kind::PodGroup, key)).cloned());
        findings
    }

    fn is_node_selected(&self, name: &str) -> bool {
        let node = self.objects.nodes.get(&Key::new("", name));
        node.is_some_and(|node| translate::node::is_selected(node, &self.settings))
    }

    /// Marks the inputs that a change of an object affects.
    fn invalidate(&mut self, kind: Kind, key: &Key, old: Option<&Object>) {
        match kind {
            Kind::Pod => self.invalidate_pod(key, old),
            Kind::Node => self.invalidate_node(key, old),
            Kind::BindRequest => self.invalidate_bind(key, old),
            Kind::PriorityClass => self.invalidate_priority_class(key, old),
            Kind::Topology => self.invalidate_topology(key),
            Kind::CsiDriver => self.invalidate_driver(key),
            Kind::ResourceSlice => self.invalidate_slice(key),
            Kind::ResourceClaim => self.invalidate_claim(key, old),
            Kind::NodeResourceTopology | Kind::CsiNode => {
                self.stale.mark(Kind::Node, Key::new("", key.name.as_str()));
            }
            Kind::Namespace => {
                for pod in &self.index.namespace_readers {
                    self.stale.mark(Kind::Pod, pod.clone());
                }
            }
            Kind::Queue
            | Kind::PodGroup
            | Kind::ConfigMap
            | Kind::PersistentVolume
            | Kind::PersistentVolumeClaim
            | Kind::CsiStorageCapacity
            | Kind::StorageClass
            | Kind::DeviceClass
            | Kind::PodDisruptionBudget => self.stale.mark(kind, key.clone()),
        }
    }

    fn invalidate_pod(&mut self, key: &Key, old: Option<&Object>) {
        self.follow_pod(key, as_kind::<Pod>(old));
        let new = self.objects.pods.get(key);
        if new.is_some_and(|pod| affinity::reads_namespaces(pod)) {
            self.index.namespace_readers.insert(key.clone());
        } else {
            self.index.namespace_readers.remove(key);
        }
        let is_observed = |eviction: &Eviction| {
            new.is_none_or(|pod| {
                pod.metadata.uid != eviction.uid.as_str() || pod.metadata.deletion_timestamp.is_some()
            })
        };
        if self.evictions.get(key).is_some_and(is_observed) {
            self.evictions.remove(key);
        }
        self.mark_pod(key);
    }

    /// Marks a pod, and the claims whose devices become free with it.
    fn mark_pod(&mut self, key: &Key) {
        self.stale.mark(Kind::Pod, key.clone());
        for claim in self.index.claims_by_pod.get(key).into_iter().flatten() {
            self.stale.mark(Kind::ResourceClaim, claim.clone());
        }
    }

    fn invalidate_claim(&mut self, key: &Key, old: Option<&Object>) {
        if let Some(old) = as_kind::<ResourceClaim>(old) {
            self.index.remove_claim(key, old);
        }
        if let Some(new) = self.objects.resource_claims.get(key) {
            self.index.add_claim(key, new);
        }
        self.stale.mark(Kind::ResourceClaim, key.clone());
    }

    fn invalidate_node(&mut self, key: &Key, old: Option<&Object>) {
        let seen =
            |node: Option<&Node>| node.is_some_and(|n| translate::node::is_selected(n, &self.settings));
        let old = as_kind::<Node>(old);
        let new = self.objects.nodes.get(key).map(|node| &**node);
        if seen(old) != seen(new) {
            for bind in self.index.binds_by_node.get(&key.name).into_iter().flatten() {
                if let Some(bind) = self.objects.bind_requests.get(bind) {
                    self.stale.mark(Kind::Pod, translate::pod::pod_of(bind));
                }
            }
        }
        self.stale.mark(Kind::Node, key.clone());
    }

    fn invalidate_bind(&mut self, key: &Key, old: Option<&Object>) {
        let old = as_kind::<BindRequest>(old);
        let new = self.objects.bind_requests.get(key);
        if let Some(old) = old {
            self.index.remove_bind(key, old);
            self.stale.mark(Kind::Pod, translate::pod::pod_of(old));
        }
        if let Some(new) = new {
            self.index.add_bind(key, new);
            self.stale.mark(Kind::Pod, translate::pod::pod_of(new));
        }
    }

    fn invalidate_priority_class(&mut self, key: &Key, old: Option<&Object>) {
        let old = as_kind::<PriorityClass>(old);
        let new = self.objects.priority_classes.get(key).map(|class| &**class);
        if old.is_some() != new.is_some() {
            self.implicit.classes_changed();
        }
        // The default class applies to every group whose class is unknown.
        let is_default = |class: Option<&PriorityClass>| class.is_some_and(|c| c.global_default);
        let default = is_default(old) || is_default(new);
        let classes = &self.objects.priority_classes;
        let known =
            |group: &PodGroup| classes.contains_key(&Key::new("", group.spec.priority_class_name.as_str()));
        for (group_key, group) in &self.objects.pod_groups {
            if group.spec.priority_class_name == key.name || (default && !known(group)) {
                self.stale.mark(Kind::PodGroup, group_key.clone());
            }
        }
    }

    fn invalidate_topology(&mut self, key: &Key) {
        self.stale.mark(Kind::Topology, key.clone());
        for (group_key, group) in &self.objects.pod_groups {
            let root = group.spec.topology_constraint.iter();
            let below = group.spec.sub_groups.iter().filter_map(|s| s.topology_constraint.as_ref());
            if root.chain(below).any(|constraint| constraint.topology == key.name) {
                self.stale.mark(Kind::PodGroup, group_key.clone());
            }
        }
    }

    fn invalidate_driver(&mut self, key: &Key) {
        for (class_key, class) in &self.objects.storage_classes {
            if class.provisioner == key.name.as_str() {
                self.stale.mark(Kind::StorageClass, class_key.clone());
            }
        }
    }

    fn invalidate_slice(&mut self, key: &Key) {
        self.selectors.forget(key);
        self.stale.mark(Kind::ResourceSlice, key.clone());
        for (class_key, class) in &self.objects.device_classes {
            if !class.spec.selectors.is_empty() {
                self.stale.mark(Kind::DeviceClass, class_key.clone());
            }
        }
        for (claim_key, claim) in &self.objects.resource_claims {
            if device::reads_devices(claim) {
                self.stale.mark(Kind::ResourceClaim, claim_key.clone());
            }
        }
    }
}

impl Index {
    fn add_bind(&mut self, key: &Key, bind: &BindRequest) {
        self.binds_by_pod.entry(translate::pod::pod_of(bind)).or_default().insert(key.clone());
        self.binds_by_node.entry(bind.spec.selected_node.clone()).or_default().insert(key.clone());
    }

    fn add_claim(&mut self, key: &Key, claim: &ResourceClaim) {
        for pod in device::consumers(claim) {
            self.claims_by_pod.entry(pod).or_default().insert(key.clone());
        }
    }

    fn remove_claim(&mut self, key: &Key, claim: &ResourceClaim) {
        for pod in device::consumers(claim) {
            if let Some(keys) = self.claims_by_pod.get_mut(&pod) {
                keys.remove(key);
                if keys.is_empty() {
                    self.claims_by_pod.remove(&pod);
                }
            }
        }
    }

    fn remove_bind(&mut self, key: &Key, bind: &BindRequest) {
        let pod = translate::pod::pod_of(bind);
        if let Some(keys) = self.binds_by_pod.get_mut(&pod) {
            keys.remove(key);
            if keys.is_empty() {
                self.binds_by_pod.remove(&pod);
            }
        }
        if let Some(keys) = self.binds_by_node.get_mut(&bind.spec.selected_node) {
            keys.remove(key);
            if keys.is_empty() {
                self.binds_by_node.remove(&bind.spec.selected_node);
            }
        }
    }
}

/// Downcasts an object to its type.
trait FromObject: Stored {
    fn of(object: &Object) -> Option<&Self>;
}

fn as_kind<T: FromObject>(object: Option<&Object>) -> Option<&T> {
    object.and_then(T::of)
}

macro_rules! from_object {
    ($($kind:ident)*) => {
        $(impl FromObject for $kind {
            fn of(object: &Object) -> Option<&Self> {
                if let Object::$kind(object) = object { Some(object) } else { None }
            }
        })*
    };
}
from_object! { Node Pod BindRequest PriorityClass ResourceClaim }

#[cfg(test)]
mod tests;

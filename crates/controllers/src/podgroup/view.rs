//! What is known of pods, groups and what they refer to: of each object only what counts here.
//!
//! Objects come and go in any order; every change says which groups it may concern. Invariant: the view depends on
//! what there is alone, not on how it came to be.

use super::claim;
use super::counting::{self, Around, Member, State};
use super::gpu_memory;
use crate::amounts::Totals;
use kai_api::meta::Meta;
use kai_api::pod_group::{PodGroupResources, Preemptibility};
use kai_api::value::null_is_empty;
use kai_api::well_known::annotation;
use kai_api::{Pod, PodGroupSpec};
use kai_object as object;
use kai_runtime::kind::Key;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// A kind of object that the view knows.
pub trait Entry: DeserializeOwned {
    /// Which object it is.
    fn key(&self) -> Key;
    /// All objects of its kind.
    fn known(view: &View) -> Vec<Key>;
    /// Notes an object, or that it is gone, and says which groups that may concern.
    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key>;
}

/// All that is known.
#[derive(Debug, Default)]
pub struct View {
    pods: BTreeMap<Key, (Key, Member)>,
    /// Pods by group, by claim, and by the node the memory of whose GPUs they need to know.
    members: Links,
    by_claim: Links,
    by_memory: Links,
    pub(super) groups: BTreeMap<Key, Group>,
    memory: BTreeMap<Key, i64>,
    classes: BTreeMap<Key, Class>,
    claims: BTreeMap<Key, Vec<(String, i64)>>,
    read: BTreeSet<&'static str>,
}

/// A pod group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) uid: String,
    version: u64,
    class: Key,
    preemptibility: Option<Preemptibility>,
    /// What its status says.
    pub(super) stored: Totals,
    /// Since when that is not what it should say.
    pub(super) differs_since: Option<Instant>,
    /// A write of its status is under way.
    pub(super) is_written: bool,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    value: i32,
    is_default: bool,
}

impl View {
    /// Takes over all objects of a kind, and says which groups that may concern.
    pub fn replace<T: Entry>(&mut self, objects: Vec<T>) -> BTreeSet<Key> {
        let listed: BTreeSet<Key> = objects.iter().map(Entry::key).collect();
        let gone: Vec<Key> = T::known(self).into_iter().filter(|key| !listed.contains(key)).collect();
        let mut concerned = BTreeSet::new();
        for key in gone {
            concerned.extend(T::set(self, &key, None));
        }
        for object in objects {
            concerned.extend(T::set(self, &object.key(), Some(object)));
        }
        concerned
    }

    /// Notes that a kind has been read, and says whether that is the first time.
    pub fn read_first<T: Entry>(&mut self) -> bool {
        self.read.insert(type_name::<T>())
    }

    /// What a group requests and holds, and whether it waits for pods; nothing where there is no such group.
    pub(crate) fn totals(&self, key: &Key) -> Option<(Totals, bool)> {
        let group = self.groups.get(key)?;
        let preemption = counting::preemption(group.preemptibility, self.class_value(&group.class));
        let members = || self.members.of(key).filter_map(|pod| self.pods.get(pod)).map(|(_, member)| member);
        let waits = members().any(|member| member.state == State::Waits);
        let around = members().map(|member| (member, self.around(&key.namespace, member)));
        Some((counting::totals(around, preemption), waits))
    }

    fn around(&self, namespace: &str, member: &Member) -> Around<'_> {
        let claims = member.claims.iter().filter_map(|claim| self.claims.get(&Key::new(namespace, claim)));
        let devices = claims.flatten().map(|(class, count)| (class.as_str(), *count)).collect();
        let needs_memory = member.needs_memory();
        let gpu_memory =
            needs_memory.then(|| self.memory.get(&Key::new("", &member.node)).copied()).flatten();
        Around { devices, gpu_memory }
    }

    /// The value of a priority class, else of the cluster's default class.
    fn class_value(&self, class: &Key) -> Option<i32> {
        let default = || self.classes.values().find(|class| class.is_default);
        self.classes.get(class).or_else(default).map(|class| class.value)
    }

    /// The groups of pods.
    fn groups_of<'a>(&'a self, pods: impl Iterator<Item = &'a Key>) -> BTreeSet<Key> {
        pods.filter_map(|pod| self.pods.get(pod)).map(|(group, _)| group.clone()).collect()
    }
}

/// Pods by something they refer to.
#[derive(Debug, Default)]
struct Links(BTreeMap<Key, BTreeSet<Key>>);

impl Links {
    fn of(&self, to: &Key) -> impl Iterator<Item = &Key> {
        self.0.get(to).into_iter().flatten()
    }

    fn add(&mut self, to: Key, pod: &Key) {
        self.0.entry(to).or_default().insert(pod.clone());
    }

    fn remove(&mut self, to: &Key, pod: &Key) {
        if let Some(pods) = self.0.get_mut(to) {
            pods.remove(pod);
            if pods.is_empty() {
                self.0.remove(to);
            }
        }
    }
}

impl Entry for Pod {
    fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.pods.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let group = object.as_ref().and_then(|pod| pod.metadata.annotation(annotation::POD_GROUP));
        let after = group.map(|name| Key::new(&key.namespace, name)).zip(object.as_ref().map(Member::read));
        if view.pods.get(key) == after.as_ref() {
            return BTreeSet::new();
        }
        let mut concerned = BTreeSet::new();
        if let Some((group, member)) = view.pods.remove(key) {
            view.members.remove(&group, key);
            view.by_memory.remove(&Key::new("", &member.node), key);
            for claim in &member.claims {
                view.by_claim.remove(&Key::new(&key.namespace, claim), key);
            }
            concerned.insert(group);
        }
        if let Some((group, member)) = after {
            view.members.add(group.clone(), key);
            if member.needs_memory() {
                view.by_memory.add(Key::new("", &member.node), key);
            }
            for claim in &member.claims {
                view.by_claim.add(Key::new(&key.namespace, claim), key);
            }
            concerned.insert(group.clone());
            view.pods.insert(key.clone(), (group, member));
        }
        concerned
    }
}

/// A pod group, as far as it counts here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupObject {
    #[serde(deserialize_with = "null_is_empty")]
    metadata: Versioned,
    #[serde(deserialize_with = "null_is_empty")]
    spec: PodGroupSpec,
    #[serde(deserialize_with = "null_is_empty")]
    status: GroupStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Versioned {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupStatus {
    #[serde(deserialize_with = "null_is_empty")]
    resources_status: PodGroupResources,
}

impl Entry for GroupObject {
    fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.groups.keys().cloned().collect()
    }

    /// News that are older than what is known are ignored: the answer to a write comes before the watch has it.
    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let Some(object) = object else {
            view.groups.remove(key);
            return BTreeSet::new();
        };
        let version = object.metadata.resource_version.parse().unwrap_or(0);
        let known = view.groups.get(key).filter(|known| known.uid == object.metadata.uid);
        if known.is_some_and(|known| known.version >= version) {
            return BTreeSet::new();
        }
        let group = Group {
            uid: object.metadata.uid,
            version,
            class: Key::new("", &object.spec.priority_class_name),
            preemptibility: object.spec.preemptibility,
            stored: Totals::read(&object.status.resources_status),
            differs_since: known.and_then(|known| known.differs_since),
            is_written: known.is_some_and(|known| known.is_written),
        };
        view.groups.insert(key.clone(), group);
        BTreeSet::from([key.clone()])
    }
}

/// A node, as far as it counts here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    #[serde(deserialize_with = "null_is_empty")]
    metadata: Meta,
}

impl Entry for NodeObject {
    fn key(&self) -> Key {
        Key::new("", &self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.memory.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let known = view.memory.remove(key);
        let labels =
            object.as_ref().map(|node| node.metadata.labels.iter().map(|(name, value)| (name, &**value)));
        let memory = labels.and_then(|labels| match gpu_memory::read(labels) {
            Ok(mib) => Some(mib),
            Err(gpu_memory::Error::Missing) => None,
            Err(error) => {
                tracing::warn!(node = key.name, %error, "the memory of a node's GPUs is not known");
                None
            }
        });
        view.memory.extend(memory.map(|mib| (key.clone(), mib)));
        if known == memory {
            return BTreeSet::new();
        }
        view.groups_of(view.by_memory.of(key))
    }
}

/// A priority class, as far as it counts here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassObject {
    #[serde(deserialize_with = "null_is_empty")]
    metadata: Meta,
    value: i32,
    global_default: bool,
}

impl Entry for ClassObject {
    fn key(&self) -> Key {
        Key::new("", &self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.classes.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let before = view.classes.remove(key);
        let after = object.map(|class| Class { value: class.value, is_default: class.global_default });
        view.classes.extend(after.map(|class| (key.clone(), class)));
        let is_default = before.into_iter().chain(after).any(|class| class.is_default);
        let concerned = view.groups.iter().filter(|(_, group)| is_default || group.class == *key);
        concerned.map(|(key, _)| key.clone()).collect()
    }
}

/// A claim on devices, in any version.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ClaimObject(Value);

impl Entry for ClaimObject {
    fn key(&self) -> Key {
        Key::new(object::namespace(&self.0), object::name(&self.0))
    }

    fn known(view: &View) -> Vec<Key> {
        view.claims.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let known = view.claims.remove(key);
        let devices = object.map(|claim| claim::devices(&claim.0));
        view.claims.extend(devices.clone().map(|devices| (key.clone(), devices)));
        if known == devices {
            return BTreeSet::new();
        }
        view.groups_of(view.by_claim.of(key))
    }
}

#[cfg(test)]
mod tests;

//! Store of pods, pod groups and the objects they refer to, reduced to the counted fields.
//!
//! Objects are added and removed in any order; every change returns the groups it may affect. Invariant: the contents
//! depend on the current objects alone, not on the order of changes.

use super::claim;
use super::counting::{self, Member, RelatedObjects, State};
use super::gpu_memory;
use crate::amounts::Totals;
use kai_api::meta::Meta;
use kai_api::pod_group::{PodGroupResources, Preemptibility};
use kai_api::value::null_is_empty;
use kai_api::{Pod, PodGroupSpec};
use kai_object as object;
use kai_runtime::kind::Key;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// A kind of object in the view.
pub trait Entry: DeserializeOwned {
    fn key(&self) -> Key;
    /// The keys of all stored objects of the kind.
    fn known(view: &View) -> Vec<Key>;
    /// Called before the objects of a list are stored. A list always holds, even if its versions are lower than the stored
    /// ones: they are after etcd was restored from a backup.
    fn before_list(_view: &mut View) {}
    /// Stores or removes an object; returns the affected groups.
    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key>;
}

#[derive(Debug, Default)]
pub struct View {
    pods: BTreeMap<Key, (Key, Member)>,
    /// Pods by group, by claim, and by node where the memory of its GPUs is needed.
    members: Links,
    by_claim: Links,
    by_memory: Links,
    pub(super) groups: BTreeMap<Key, Group>,
    memory: BTreeMap<Key, i64>,
    classes: BTreeMap<Key, Class>,
    claims: BTreeMap<Key, Vec<(String, i64)>>,
    listed: BTreeSet<&'static str>,
}

/// A pod group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) uid: String,
    /// None while a list is stored.
    version: Option<u64>,
    class: Key,
    preemptibility: Option<Preemptibility>,
    pub(super) stored: Totals,
    /// Since when the status differs from the totals.
    pub(super) differs_since: Option<Instant>,
    pub(super) is_write_in_flight: bool,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    value: i32,
    is_default: bool,
}

impl View {
    /// Replaces all objects of a kind; returns the affected groups.
    pub fn replace<T: Entry>(&mut self, objects: Vec<T>) -> BTreeSet<Key> {
        T::before_list(self);
        let listed: BTreeSet<Key> = objects.iter().map(Entry::key).collect();
        let missing: Vec<Key> = T::known(self).into_iter().filter(|key| !listed.contains(key)).collect();
        let mut affected = BTreeSet::new();
        for key in missing {
            affected.extend(T::set(self, &key, None));
        }
        for object in objects {
            affected.extend(T::set(self, &object.key(), Some(object)));
        }
        affected
    }

    /// Marks a kind as listed; returns whether it is the first list.
    pub fn is_first_list<T: Entry>(&mut self) -> bool {
        self.listed.insert(type_name::<T>())
    }

    /// The totals of a group and whether it has pending pods; none where the group does not exist.
    pub(crate) fn totals(&self, key: &Key) -> Option<(Totals, bool)> {
        let group = self.groups.get(key)?;
        let preemption = counting::preemption(group.preemptibility, self.class_value(&group.class));
        let members = || self.members.of(key).filter_map(|pod| self.pods.get(pod)).map(|(_, member)| member);
        let has_pending = members().any(|member| member.state == State::Pending);
        let members = members().map(|member| (member, self.related(&key.namespace, member)));
        Some((counting::totals(members, preemption), has_pending))
    }

    fn related(&self, namespace: &str, member: &Member) -> RelatedObjects<'_> {
        let claims = member.claims.iter().filter_map(|claim| self.claims.get(&Key::new(namespace, &**claim)));
        let devices = claims.flatten().map(|(class, count)| (class.as_str(), *count)).collect();
        let needs_memory = member.needs_memory();
        let gpu_memory =
            needs_memory.then(|| self.memory.get(&Key::new("", &*member.node)).copied()).flatten();
        RelatedObjects { devices, gpu_memory }
    }

    /// The value of a priority class, else of the cluster's default class.
    fn class_value(&self, class: &Key) -> Option<i32> {
        let default = || self.classes.values().find(|class| class.is_default);
        self.classes.get(class).or_else(default).map(|class| class.value)
    }

    fn groups_of<'a>(&'a self, pods: impl Iterator<Item = &'a Key>) -> BTreeSet<Key> {
        pods.filter_map(|pod| self.pods.get(pod)).map(|(group, _)| group.clone()).collect()
    }
}

/// Pods by the key of an object that they refer to.
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
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.pods.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let group = object.as_ref().and_then(Pod::group_name);
        let after = group.map(|name| Key::new(&key.namespace, name)).zip(object.as_ref().map(Member::read));
        if view.pods.get(key) == after.as_ref() {
            return BTreeSet::new();
        }
        let mut affected = BTreeSet::new();
        if let Some((group, member)) = view.pods.remove(key) {
            view.members.remove(&group, key);
            view.by_memory.remove(&Key::new("", &*member.node), key);
            for claim in &member.claims {
                view.by_claim.remove(&Key::new(&key.namespace, &**claim), key);
            }
            affected.insert(group);
        }
        if let Some((group, member)) = after {
            view.members.add(group.clone(), key);
            if member.needs_memory() {
                view.by_memory.add(Key::new("", &*member.node), key);
            }
            for claim in &member.claims {
                view.by_claim.add(Key::new(&key.namespace, &**claim), key);
            }
            affected.insert(group.clone());
            view.pods.insert(key.clone(), (group, member));
        }
        affected
    }
}

/// The fields of a pod group that are counted.
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
        Key::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.groups.keys().cloned().collect()
    }

    fn before_list(view: &mut View) {
        view.groups.values_mut().for_each(|group| group.version = None);
    }

    /// Events with older states than the stored one are ignored: the response to a write precedes its watch event.
    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let Some(object) = object else {
            view.groups.remove(key);
            return BTreeSet::new();
        };
        let version = Some(object.metadata.resource_version.parse().unwrap_or(0));
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
            is_write_in_flight: known.is_some_and(|known| known.is_write_in_flight),
        };
        view.groups.insert(key.clone(), group);
        BTreeSet::from([key.clone()])
    }
}

/// Whether an object is older than the stored state of the same group.
pub fn is_older(view: &View, key: &Key, object: &GroupObject) -> bool {
    let known = view.groups.get(key).filter(|known| known.uid == object.metadata.uid);
    known.is_some_and(|known| known.version > object.metadata.resource_version.parse().ok())
}

/// The metadata of a node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    #[serde(deserialize_with = "null_is_empty")]
    metadata: Meta,
}

impl Entry for NodeObject {
    fn key(&self) -> Key {
        Key::new("", &*self.metadata.name)
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

/// The counted fields of a priority class.
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
        Key::new("", &*self.metadata.name)
    }

    fn known(view: &View) -> Vec<Key> {
        view.classes.keys().cloned().collect()
    }

    fn set(view: &mut View, key: &Key, object: Option<Self>) -> BTreeSet<Key> {
        let before = view.classes.remove(key);
        let after = object.map(|class| Class { value: class.value, is_default: class.global_default });
        view.classes.extend(after.map(|class| (key.clone(), class)));
        let is_default = before.into_iter().chain(after).any(|class| class.is_default);
        let affected = view.groups.iter().filter(|(_, group)| is_default || group.class == *key);
        affected.map(|(key, _)| key.clone()).collect()
    }
}

/// A resource claim, in any served version of `resource.k8s.io`.
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

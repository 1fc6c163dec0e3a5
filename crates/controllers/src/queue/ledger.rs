//! Sums of the resources of pod groups by queue, over all levels of the queue tree.
//!
//! Input: every pod group and every queue, in any order. Output: the desired status of a queue, and the queues that a
//! change affects. Invariant: the result depends on the current objects alone, not on the order of changes; a group is
//! counted once for each ancestor, even where the parent references form a cycle.

use crate::amounts::{Sum, Totals};
use kai_api::pod_group::PodGroupResources;
use kai_api::queue::{QueueResources, QueueStatus};
use kai_runtime::kind::Key;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The counted fields of a pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    queue: String,
    totals: Totals,
}

impl Group {
    pub fn new(queue: String, resources: &PodGroupResources) -> Self {
        Self { queue, totals: Totals::read(resources) }
    }

    pub(super) fn of(queue: String, totals: Totals) -> Self {
        Self { queue, totals }
    }
}

/// The fields of a queue that status and metrics need, and its current status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    pub uid: String,
    /// Empty for a top-level queue.
    pub parent: String,
    pub display_name: String,
    pub labels: BTreeMap<String, String>,
    pub resources: Option<QueueResources>,
    /// None while a list is stored.
    version: Option<u64>,
    children: Vec<String>,
    totals: Totals,
}

impl Queue {
    pub fn read(object: kai_api::Queue) -> (String, Self) {
        let QueueStatus { child_queues, allocated, allocated_non_preemptible, requested, .. } =
            object.status.unwrap_or_default();
        let version = object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let queue = Self {
            uid: object.metadata.uid.unwrap_or_default(),
            parent: object.spec.parent_queue,
            display_name: object.spec.display_name,
            labels: object.metadata.labels.unwrap_or_default(),
            resources: object.spec.resources,
            version: Some(version.unwrap_or(0)),
            children: child_queues,
            totals: Totals {
                requested: Sum::read(&requested),
                allocated: Sum::read(&allocated),
                allocated_non_preemptible: Sum::read(&allocated_non_preemptible),
            },
        };
        (object.metadata.name.unwrap_or_default(), queue)
    }
}

/// The desired status of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Names of the child queues, sorted.
    pub(crate) children: Vec<String>,
    /// Of its groups and those of all descendants.
    pub(crate) totals: Totals,
}

impl Desired {
    /// The merge patch of the status of `queue`; empty where nothing differs.
    pub(crate) fn patch_from(&self, queue: &Queue) -> Map<String, Value> {
        let mut patch = self.totals.patch_from(&queue.totals);
        if self.children != queue.children {
            let children =
                if self.children.is_empty() { Value::Null } else { Value::from(self.children.clone()) };
            patch.insert("childQueues".to_owned(), children);
        }
        patch
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    queues: BTreeMap<String, Queue>,
    children: BTreeMap<String, BTreeSet<String>>,
    queue_of: FxHashMap<Key, String>,
    accounts: BTreeMap<String, Account>,
    /// None where every group has an object.
    implicit: Option<Implicit>,
}

/// Groups with and without an object, where there are both.
#[derive(Clone, Debug, Default)]
struct Implicit {
    objects: BTreeMap<Key, Group>,
    pods: BTreeMap<Key, Group>,
}

impl Implicit {
    /// What counts of a group. An object wins, but its resources are counted some time after it was created.
    fn counted(&self, key: &Key) -> Option<Group> {
        match (self.objects.get(key), self.pods.get(key)) {
            (Some(object), Some(pod)) if object.totals == Totals::default() => {
                Some(Group { queue: object.queue.clone(), totals: pod.totals.clone() })
            }
            (Some(group), _) | (None, Some(group)) => Some(group.clone()),
            (None, None) => None,
        }
    }
}

/// The groups that name one queue, whether it exists or not.
#[derive(Clone, Debug, Default)]
struct Account {
    groups: BTreeMap<Key, Totals>,
    /// Their sum, computed on demand.
    sum: Option<Totals>,
}

impl Ledger {
    /// Counts groups without an object, too.
    pub(super) fn with_implicit_groups() -> Self {
        Self { implicit: Some(Implicit::default()), ..Self::default() }
    }

    /// Stores or removes the object of a group; returns the affected queues.
    pub(super) fn set_object(&mut self, key: Key, group: Option<Group>) -> Vec<String> {
        let Some(implicit) = &mut self.implicit else { return self.set_group(key, group) };
        match group {
            Some(group) => implicit.objects.insert(key.clone(), group),
            None => implicit.objects.remove(&key),
        };
        let counted = implicit.counted(&key);
        self.set_group(key, counted)
    }

    /// Stores or removes a group that has no object; returns the affected queues.
    pub(super) fn set_implicit(&mut self, key: Key, group: Option<Group>) -> Vec<String> {
        let Some(implicit) = &mut self.implicit else { return Vec::new() };
        match group {
            Some(group) => implicit.pods.insert(key.clone(), group),
            None => implicit.pods.remove(&key),
        };
        let counted = implicit.counted(&key);
        self.set_group(key, counted)
    }

    /// Stores or removes what counts of a group; returns the affected queues.
    pub fn set_group(&mut self, key: Key, group: Option<Group>) -> Vec<String> {
        let before = self.queue_of.get(&key).cloned();
        if let (Some(queue), Some(group)) = (&before, &group)
            && *queue == group.queue
            && self.accounts.get(queue).and_then(|account| account.groups.get(&key)) == Some(&group.totals)
        {
            return Vec::new();
        }
        let mut affected = BTreeSet::new();
        if let Some(queue) = before {
            self.queue_of.remove(&key);
            affected.extend(self.ancestry(&queue));
            if let Some(account) = self.accounts.get_mut(&queue) {
                account.groups.remove(&key);
                account.sum = None;
                if account.groups.is_empty() {
                    self.accounts.remove(&queue);
                }
            }
        }
        if let Some(Group { queue, totals }) = group {
            affected.extend(self.ancestry(&queue));
            let account = self.accounts.entry(queue.clone()).or_default();
            account.groups.insert(key.clone(), totals);
            account.sum = None;
            self.queue_of.insert(key, queue);
        }
        affected.into_iter().collect()
    }

    /// Replaces the objects of all groups; returns the affected queues.
    pub fn replace_groups(&mut self, groups: impl Iterator<Item = (Key, Group)>) -> Vec<String> {
        let mut groups: BTreeMap<Key, Group> = groups.collect();
        if let Some(implicit) = &mut self.implicit {
            implicit.objects = groups;
            let all = implicit.objects.keys().chain(implicit.pods.keys());
            groups = all.filter_map(|key| Some((key.clone(), implicit.counted(key)?))).collect();
        }
        let known = self.accounts.values().flat_map(|account| account.groups.keys());
        let missing: Vec<Key> = known.filter(|key| !groups.contains_key(*key)).cloned().collect();
        let mut affected = BTreeSet::new();
        for key in missing {
            affected.extend(self.set_group(key, None));
        }
        for (key, group) in groups {
            affected.extend(self.set_group(key, Some(group)));
        }
        affected.into_iter().collect()
    }

    /// Stores or removes a queue; returns the affected queues. Events with older states than the stored one are ignored.
    pub fn set_queue(&mut self, name: &str, queue: Option<Queue>) -> Vec<String> {
        let known = self.queues.get(name);
        if let (Some(known), Some(queue)) = (known, &queue)
            && known.uid == queue.uid
            && known.version >= queue.version
        {
            return Vec::new();
        }
        let mut affected: BTreeSet<String> = self.ancestry(name).into_iter().collect();
        affected.insert(name.to_owned());
        if let Some(known) = self.queues.remove(name)
            && let Some(siblings) = self.children.get_mut(&known.parent)
        {
            siblings.remove(name);
            if siblings.is_empty() {
                self.children.remove(&known.parent);
            }
        }
        if let Some(queue) = queue {
            if !queue.parent.is_empty() {
                self.children.entry(queue.parent.clone()).or_default().insert(name.to_owned());
            }
            self.queues.insert(name.to_owned(), queue);
            affected.extend(self.ancestry(name));
        }
        affected.into_iter().collect()
    }

    /// Replaces all queues; returns the affected ones. A list always holds, even if its versions are lower than the stored
    /// ones: they are after etcd was restored from a backup.
    pub fn replace_queues(&mut self, queues: impl Iterator<Item = (String, Queue)>) -> Vec<String> {
        let queues: BTreeMap<String, Queue> = queues.collect();
        self.queues.values_mut().for_each(|queue| queue.version = None);
        let missing: Vec<String> =
            self.queues.keys().filter(|name| !queues.contains_key(*name)).cloned().collect();
        let mut affected = BTreeSet::new();
        for name in missing {
            affected.extend(self.set_queue(&name, None));
        }
        for (name, queue) in queues {
            affected.extend(self.set_queue(&name, Some(queue)));
        }
        affected.into_iter().collect()
    }

    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// The desired status of a queue; none where it does not exist.
    pub(crate) fn desired(&mut self, name: &str) -> Option<Desired> {
        self.queues.get(name)?;
        let children = self.children.get(name).into_iter().flatten().cloned().collect();
        let mut totals = Totals::default();
        for queue in self.subtree(name) {
            if let Some(account) = self.accounts.get_mut(&queue) {
                totals.add_all(account.sum());
            }
        }
        Some(Desired { children, totals })
    }

    /// A queue and its descendants, each once.
    fn subtree(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut next = vec![name];
        while let Some(queue) = next.pop() {
            if seen.insert(queue.to_owned()) {
                next.extend(self.children.get(queue).into_iter().flatten().map(String::as_str));
            }
        }
        seen
    }

    /// A queue and its existing ancestors, each once.
    fn ancestry(&self, name: &str) -> Vec<String> {
        let mut ancestry: Vec<String> = Vec::new();
        let mut at = name;
        while let Some((known, queue)) = self.queues.get_key_value(at) {
            if ancestry.contains(known) {
                break;
            }
            ancestry.push(known.clone());
            at = &queue.parent;
        }
        ancestry
    }
}

#[cfg(test)]
impl Ledger {
    /// What the groups of a queue use.
    pub(super) fn totals_of(&mut self, queue: &str) -> Totals {
        self.accounts.get_mut(queue).map(|account| account.sum().clone()).unwrap_or_default()
    }
}

impl Account {
    fn sum(&mut self) -> &Totals {
        self.sum.get_or_insert_with(|| {
            let mut sum = Totals::default();
            for totals in self.groups.values() {
                sum.add_all(totals);
            }
            sum
        })
    }
}

#[cfg(test)]
mod tests;

//! Adds up what pod groups request and hold, by queue, over all levels of the tree.
//!
//! Input: every pod group and every queue, one by one, in any order. Output: what the status of a queue should be, and
//! which queues a change concerns. Invariant: the result depends on what there is alone, not on how it came to be; a
//! group counts once for each queue above it, even where queues are their own ancestors.

use crate::amounts::{Sum, Totals};
use kai_api::pod_group::PodGroupResources;
use kai_api::queue::{QueueResources, QueueStatus};
use kai_runtime::kind::Key;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A pod group, as far as it counts here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    queue: String,
    totals: Totals,
}

impl Group {
    /// A group of a queue, with what its status says.
    pub fn new(queue: String, resources: &PodGroupResources) -> Self {
        Self { queue, totals: Totals::read(resources) }
    }
}

/// A queue, and what its status says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// Its uid.
    pub uid: String,
    /// The queue that it is part of; empty for a top-level one.
    pub parent: String,
    /// What it is called in metrics, besides its name.
    pub display_name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it is entitled to.
    pub resources: Option<QueueResources>,
    version: u64,
    children: Vec<String>,
    totals: Totals,
}

impl Queue {
    /// Name and content of a queue.
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
            version: version.unwrap_or(0),
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

/// What the status of a queue should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Names of the queues that are part of it, sorted.
    pub(crate) children: Vec<String>,
    /// What its groups, and those of all queues below it, request and hold.
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

/// All groups and queues.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    queues: BTreeMap<String, Queue>,
    children: BTreeMap<String, BTreeSet<String>>,
    queue_of: FxHashMap<Key, String>,
    accounts: BTreeMap<String, Account>,
}

/// The groups that name one queue, whether it exists or not.
#[derive(Clone, Debug, Default)]
struct Account {
    groups: BTreeMap<Key, Totals>,
    /// Their sum, once somebody asked for it.
    sum: Option<Totals>,
}

impl Ledger {
    /// Notes a group, or that it is gone, and says which queues that may concern.
    pub fn set_group(&mut self, key: Key, group: Option<Group>) -> Vec<String> {
        let before = self.queue_of.get(&key).cloned();
        if let (Some(queue), Some(group)) = (&before, &group)
            && *queue == group.queue
            && self.accounts.get(queue).and_then(|account| account.groups.get(&key)) == Some(&group.totals)
        {
            return Vec::new();
        }
        let mut concerned = BTreeSet::new();
        if let Some(queue) = before {
            self.queue_of.remove(&key);
            concerned.extend(self.line(&queue));
            if let Some(account) = self.accounts.get_mut(&queue) {
                account.groups.remove(&key);
                account.sum = None;
                if account.groups.is_empty() {
                    self.accounts.remove(&queue);
                }
            }
        }
        if let Some(Group { queue, totals }) = group {
            concerned.extend(self.line(&queue));
            let account = self.accounts.entry(queue.clone()).or_default();
            account.groups.insert(key.clone(), totals);
            account.sum = None;
            self.queue_of.insert(key, queue);
        }
        concerned.into_iter().collect()
    }

    /// Takes over all groups there are, and says which queues that may concern.
    pub fn replace_groups(&mut self, groups: impl Iterator<Item = (Key, Group)>) -> Vec<String> {
        let groups: BTreeMap<Key, Group> = groups.collect();
        let known = self.accounts.values().flat_map(|account| account.groups.keys());
        let gone: Vec<Key> = known.filter(|key| !groups.contains_key(*key)).cloned().collect();
        let mut concerned = BTreeSet::new();
        for key in gone {
            concerned.extend(self.set_group(key, None));
        }
        for (key, group) in groups {
            concerned.extend(self.set_group(key, Some(group)));
        }
        concerned.into_iter().collect()
    }

    /// Notes a queue, or that it is gone, and says which queues that may concern. Older news than known are ignored.
    pub fn set_queue(&mut self, name: &str, queue: Option<Queue>) -> Vec<String> {
        let known = self.queues.get(name);
        if let (Some(known), Some(queue)) = (known, &queue)
            && known.uid == queue.uid
            && known.version >= queue.version
        {
            return Vec::new();
        }
        let mut concerned: BTreeSet<String> = self.line(name).into_iter().collect();
        concerned.insert(name.to_owned());
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
            concerned.extend(self.line(name));
        }
        concerned.into_iter().collect()
    }

    /// Takes over all queues there are, and says which of them that may concern.
    pub fn replace_queues(&mut self, queues: impl Iterator<Item = (String, Queue)>) -> Vec<String> {
        let queues: BTreeMap<String, Queue> = queues.collect();
        let gone: Vec<String> =
            self.queues.keys().filter(|name| !queues.contains_key(*name)).cloned().collect();
        let mut concerned = BTreeSet::new();
        for name in gone {
            concerned.extend(self.set_queue(&name, None));
        }
        for (name, queue) in queues {
            concerned.extend(self.set_queue(&name, Some(queue)));
        }
        concerned.into_iter().collect()
    }

    /// A queue as it was last seen.
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// What the status of a queue should be; nothing where there is no such queue.
    pub(crate) fn desired(&mut self, name: &str) -> Option<Desired> {
        self.queues.get(name)?;
        let children = self.children.get(name).into_iter().flatten().cloned().collect();
        let mut totals = Totals::default();
        for queue in self.below(name) {
            if let Some(account) = self.accounts.get_mut(&queue) {
                totals.add_all(account.sum());
            }
        }
        Some(Desired { children, totals })
    }

    /// A queue and everything below it, each once.
    fn below(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut next = vec![name];
        while let Some(queue) = next.pop() {
            if seen.insert(queue.to_owned()) {
                next.extend(self.children.get(queue).into_iter().flatten().map(String::as_str));
            }
        }
        seen
    }

    /// A queue and everything above it that exists, each once.
    fn line(&self, name: &str) -> Vec<String> {
        let mut line: Vec<String> = Vec::new();
        let mut at = name;
        while let Some((known, queue)) = self.queues.get_key_value(at) {
            if line.contains(known) {
                break;
            }
            line.push(known.clone());
            at = &queue.parent;
        }
        line
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

//! Pods whose groups have no object: what they use of their queues.
//!
//! Input: pods and priority classes. Output: the group of each such pod, as the pod group controller would count it.
//! Parts of GPUs and resource claims do not occur here, since pods that request them have a `PodGroup`.

use super::ledger::Group;
use crate::amounts::Totals;
use crate::podgroup::counting::{self, Member, RelatedObjects};
use kai_api::Pod;
use kai_api::implicit_group::{self, LabelKeys, NodePools};
use kai_api::meta::Meta;
use kai_api::pod_group::Preemptibility;
use kai_api::value::null_is_empty;
use kai_api::well_known::{label, name};
use kai_runtime::kind::Key;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Which pods have implicit groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `implicit-groups`; empty where the mode is off.
    pub node_pools: NodePools,
    /// `scheduler-name`: only pods of this scheduler are counted.
    pub scheduler_name: String,
    /// `queue-label-key`
    pub queue_label_key: String,
    /// `nodepool-label-key`; empty for no node pools.
    pub node_pool_label_key: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node_pools: NodePools::default(),
            scheduler_name: name::SCHEDULER.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
        }
    }
}

/// The counted fields of a priority class.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClassObject {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) metadata: Meta,
    value: i32,
    global_default: bool,
}

/// A pod whose group has no object.
#[derive(Clone, Debug, PartialEq)]
struct Counted {
    group: Key,
    queue: String,
    /// The priority class that the pod names, and the one where that does not exist.
    class: String,
    default_class: String,
    preemptibility: Option<Preemptibility>,
    member: Member,
}

/// Groups that have changed; none in place of one that has gone.
pub(super) type Changes = Vec<(Key, Option<Group>)>;

#[derive(Debug)]
pub(super) struct ImplicitPods {
    options: Options,
    pods: BTreeMap<Key, Counted>,
    classes: BTreeMap<String, (i32, bool)>,
}

impl ImplicitPods {
    pub(super) fn new(options: Options) -> Self {
        Self { options, pods: BTreeMap::new(), classes: BTreeMap::new() }
    }

    pub(super) fn set_pod(&mut self, key: &Key, pod: Option<&Pod>) -> Changes {
        let after = pod.and_then(|pod| self.read(pod));
        let before = match after.clone() {
            Some(counted) => self.pods.insert(key.clone(), counted),
            None => self.pods.remove(key),
        };
        if before == after {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if let Some(before) = before
            && after.as_ref().is_none_or(|after| after.group != before.group)
        {
            changes.push((before.group, None));
        }
        changes.extend(after.map(|after| (after.group.clone(), Some(self.group(&after)))));
        changes
    }

    pub(super) fn replace_pods(&mut self, pods: &[Pod]) -> Changes {
        let key = |pod: &Pod| Key::new(&*pod.metadata.namespace, &*pod.metadata.name);
        let listed: BTreeMap<Key, &Pod> = pods.iter().map(|pod| (key(pod), pod)).collect();
        let gone: Vec<Key> = self.pods.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        let mut changes: Changes = gone.iter().flat_map(|key| self.set_pod(key, None)).collect();
        for (key, pod) in listed {
            changes.extend(self.set_pod(&key, Some(pod)));
        }
        changes
    }

    /// Whether allocations are preemptible follows from the priority classes; they rarely change.
    pub(super) fn set_class(&mut self, name: &str, class: Option<&ClassObject>) -> Changes {
        let before = self.classes.remove(name);
        let after = class.map(|class| (class.value, class.global_default));
        self.classes.extend(after.map(|after| (name.to_owned(), after)));
        if before == after { Vec::new() } else { self.all() }
    }

    pub(super) fn replace_classes(&mut self, classes: &[ClassObject]) -> Changes {
        let read =
            |class: &ClassObject| (class.metadata.name.to_string(), (class.value, class.global_default));
        self.classes = classes.iter().map(read).collect();
        self.all()
    }

    fn all(&self) -> Changes {
        self.pods.values().map(|counted| (counted.group.clone(), Some(self.group(counted)))).collect()
    }

    fn read(&self, pod: &Pod) -> Option<Counted> {
        let options = &self.options;
        let keys = LabelKeys { queue: &options.queue_label_key, node_pool: &options.node_pool_label_key };
        let is_implicit = pod.spec.scheduler_name == options.scheduler_name.as_str()
            && options.node_pools.have(pod, keys)
            && implicit_group::is_candidate(pod, keys);
        if !is_implicit {
            return None;
        }
        let spec = implicit_group::spec(pod, keys, |_| true);
        Some(Counted {
            group: Key::new(&*pod.metadata.namespace, implicit_group::group_name(pod)),
            queue: spec.queue,
            class: spec.priority_class_name,
            default_class: implicit_group::spec(pod, keys, |_| false).priority_class_name,
            preemptibility: spec.preemptibility,
            member: Member::read(pod),
        })
    }

    fn group(&self, counted: &Counted) -> Group {
        let named = self.classes.get(&counted.class).or_else(|| self.classes.get(&counted.default_class));
        let class = named.or_else(|| self.classes.values().find(|(_, is_default)| *is_default));
        let preemption = counting::preemption(counted.preemptibility, class.map(|(value, _)| *value));
        let members = std::iter::once((&counted.member, RelatedObjects::default()));
        let totals: Totals = counting::totals(members, preemption);
        Group::of(counted.queue.clone(), totals)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Ledger;
    use super::*;
    use kai_api::pod_group::PodGroupResources;
    use serde_json::{from_value, json};

    fn pods() -> ImplicitPods {
        ImplicitPods::new(Options { node_pools: NodePools::parse("default"), ..Options::default() })
    }

    fn pod(queue: &str, node: &str) -> Pod {
        from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"kai.scheduler/queue": queue}},
            "spec": {
                "schedulerName": "kai-scheduler", "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
            },
        }))
        .unwrap()
    }

    fn class(name: &str, value: i32) -> ClassObject {
        from_value(json!({"metadata": {"name": name}, "value": value})).unwrap()
    }

    fn apply(ledger: &mut Ledger, changes: Changes) {
        for (group, change) in changes {
            ledger.set_implicit(group, change);
        }
    }

    fn used(ledger: &mut Ledger, queue: &str) -> serde_json::Value {
        let totals = ledger.totals_of(queue);
        json!(totals.patch_from(&Totals::default()))
    }

    #[test]
    fn pod_counts_in_its_queue_until_an_object_of_its_group_does() {
        let (mut pods, key) = (pods(), Key::new("n", "p"));
        let mut ledger = Ledger::with_implicit_groups();
        apply(&mut ledger, pods.set_pod(&key, Some(&pod("a", ""))));
        assert_eq!(used(&mut ledger, "a"), json!({"requested": {"cpu": "2"}}));
        apply(&mut ledger, pods.set_pod(&key, Some(&pod("a", "n1"))));
        let bound = json!({"requested": {"cpu": "2"}, "allocated": {"cpu": "2"}});
        assert_eq!(used(&mut ledger, "a"), bound);

        // The pod grouper has created the group, and its resources are not counted yet.
        let group = Key::new("n", "pg-p-u");
        let resources = PodGroupResources::default();
        ledger.set_object(group.clone(), Some(Group::new("a".to_owned(), &resources)));
        assert_eq!(used(&mut ledger, "a"), bound);
        let counted: PodGroupResources = from_value(json!({"requested": {"cpu": "3"}})).unwrap();
        ledger.set_object(group.clone(), Some(Group::new("a".to_owned(), &counted)));
        assert_eq!(used(&mut ledger, "a"), json!({"requested": {"cpu": "3"}}));
        ledger.set_object(group, None);
        assert_eq!(used(&mut ledger, "a"), bound);

        apply(&mut ledger, pods.set_pod(&key, Some(&pod("b", "n1"))));
        assert_eq!((used(&mut ledger, "a"), used(&mut ledger, "b")), (json!({}), bound));
        apply(&mut ledger, pods.replace_pods(&[]));
        assert_eq!(used(&mut ledger, "b"), json!({}));
    }

    #[test]
    fn list_of_objects_leaves_the_other_groups() {
        let mut pods = pods();
        let mut ledger = Ledger::with_implicit_groups();
        apply(&mut ledger, pods.set_pod(&Key::new("n", "p"), Some(&pod("a", ""))));
        ledger.replace_groups(std::iter::empty());
        assert_eq!(used(&mut ledger, "a"), json!({"requested": {"cpu": "2"}}));
    }

    #[test]
    fn priority_class_decides_whether_the_allocation_is_preemptible() {
        let (mut pods, key) = (pods(), Key::new("n", "p"));
        let mut ledger = Ledger::with_implicit_groups();
        let mut named = pod("a", "n1");
        named.spec.priority_class_name = "high".into();
        apply(&mut ledger, pods.set_pod(&key, Some(&named)));
        assert_eq!(used(&mut ledger, "a").get("allocatedNonPreemptible"), None);
        apply(&mut ledger, pods.set_class("high", Some(&class("high", 200))));
        assert_eq!(used(&mut ledger, "a")["allocatedNonPreemptible"], json!({"cpu": "2"}));
        apply(&mut ledger, pods.replace_classes(&[class("train", 50)]));
        assert_eq!(used(&mut ledger, "a").get("allocatedNonPreemptible"), None);
    }

    #[test]
    fn pods_with_a_group_of_another_scheduler_or_node_pool_do_not_count() {
        let mut pods = pods();
        let changes = [
            json!({"metadata": {"annotations": {"pod-group-name": "g"}}}),
            json!({"spec": {"schedulerName": "default-scheduler"}}),
            json!({"metadata": {"labels": {"kai.scheduler/node-pool": "gold"}}}),
            json!({"status": {"phase": "Succeeded"}}),
        ];
        for change in changes {
            let mut value = json!(pod("a", ""));
            for (path, part) in [("/metadata", "metadata"), ("/spec", "spec"), ("/status", "status")] {
                if let (Some(changed), Some(fields)) = (change.get(part), value.pointer_mut(path)) {
                    let fields = fields.as_object_mut().unwrap();
                    fields.extend(changed.as_object().unwrap().clone());
                }
            }
            let changed: Pod = from_value(value).unwrap();
            assert_eq!(pods.set_pod(&Key::new("n", "p"), Some(&changed)), [], "{change}");
        }
    }
}

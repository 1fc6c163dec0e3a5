//! Findings across objects: references to missing objects, and cycles.

use super::Store;
use crate::finding::{Finding, Report};
use crate::object::{Kind, Objects, Pod, PodGroup};
use crate::translate::{gpu, group, queue};
use kai_api::well_known::annotation;
use kai_engine::input::Key;
use std::collections::{BTreeMap, BTreeSet};

const QUEUE_FIELD: &str = "spec.queue";
pub(super) const PRIORITY_CLASS_FIELD: &str = "spec.priorityClassName";

pub(super) fn across_objects(store: &Store, findings: &mut Vec<Finding>) {
    queues(store, findings);
    groups(store, findings);
    pods(store, findings);
    claims(&store.objects, findings);
}

pub(super) fn queues(store: &Store, findings: &mut Vec<Finding>) {
    let objects = &store.objects;
    let cycles = queues_in_cycles(objects);
    for (key, queue) in objects.queues.iter().filter(|(_, q)| queue::is_selected(q, &store.settings)) {
        let mut report = Report::on(Kind::Queue, key);
        let parent = &queue.spec.parent_queue;
        let seen = |name: &str| {
            let queue = objects.queues.get(&Key::new("", name));
            queue.is_some_and(|q| queue::is_selected(q, &store.settings))
        };
        if store.settings.full_hierarchy_fairness && !parent.is_empty() && !seen(parent) {
            let is_elsewhere = objects.queues.contains_key(&Key::new("", parent.as_str()));
            let problem = if is_elsewhere { "is of another node pool" } else { "does not exist" };
            report.warn(
                "spec.parentQueue",
                format!(
                    "the parent queue `{parent}` {problem}, so this queue and its descendants are ignored"
                ),
                "create the parent in the same node pool, or name another one",
            );
        }
        if cycles.contains(key.name.as_str()) {
            report.warn(
                "spec.parentQueue",
                "the queue is its own ancestor, so it is ignored",
                "make one queue of the cycle a top-level queue",
            );
        }
        findings.append(&mut report.into_findings());
    }
}

/// Queues that are their own ancestor. Visits every queue once.
fn queues_in_cycles(objects: &Objects) -> BTreeSet<&str> {
    let parents: BTreeMap<&str, &str> = objects
        .queues
        .iter()
        .map(|(key, queue)| (key.name.as_str(), queue.spec.parent_queue.as_str()))
        .collect();
    let mut cycles = BTreeSet::new();
    let mut walked: BTreeSet<&str> = BTreeSet::new();
    for start in parents.keys() {
        let mut path: BTreeSet<&str> = BTreeSet::new();
        let mut at = *start;
        while !walked.contains(at) && path.insert(at) {
            let Some((next, _)) = parents.get(at).and_then(|above| parents.get_key_value(above)) else {
                break;
            };
            at = next;
        }
        // The walk ended at a visited queue: the cycle starts there.
        while path.contains(at)
            && let Some(above) = parents.get(at)
            && parents.contains_key(above)
            && cycles.insert(at)
        {
            at = above;
        }
        walked.append(&mut path);
    }
    cycles
}

/// Queues that are ignored: their ancestors end at a missing parent or form a cycle. Visits every queue once.
fn disconnected_queues(store: &Store) -> BTreeSet<&str> {
    let queues = &store.objects.queues;
    let mut rootless = BTreeSet::new();
    if !store.settings.full_hierarchy_fairness {
        return rootless;
    }
    let mut rooted = BTreeSet::new();
    for start in queues.keys() {
        let mut path: BTreeSet<&str> = BTreeSet::new();
        let mut at = start.name.as_str();
        let is_rooted = loop {
            if rooted.contains(at) {
                break true;
            }
            let queue = queues.get(&Key::new("", at)).filter(|q| queue::is_selected(q, &store.settings));
            let Some(queue) = queue else { break false };
            if rootless.contains(at) || !path.insert(at) {
                break false;
            }
            at = &queue.spec.parent_queue;
            if at.is_empty() {
                break true;
            }
        };
        if is_rooted { rooted.append(&mut path) } else { rootless.append(&mut path) }
    }
    rootless
}

fn groups(store: &Store, findings: &mut Vec<Finding>) {
    of_groups(store, store.objects.pod_groups.iter().map(|(key, group)| (key, &**group)), findings);
}

/// References of some groups. Looks at every queue.
pub(super) fn of_groups<'a>(
    store: &Store,
    groups: impl Iterator<Item = (&'a Key, &'a PodGroup)>,
    findings: &mut Vec<Finding>,
) {
    let objects = &store.objects;
    let parents: BTreeSet<&str> = objects.queues.values().map(|q| q.spec.parent_queue.as_str()).collect();
    let disconnected = disconnected_queues(store);
    for (key, group) in groups.filter(|(_, group)| group::is_selected(group, &store.settings)) {
        let mut report = Report::on(Kind::PodGroup, key);
        let name = group.spec.queue.as_str();
        match objects.queues.get(&Key::new("", name)) {
            None => report.warn(
                QUEUE_FIELD,
                format!("the queue `{name}` does not exist, so the group is not scheduled"),
                "create the queue, or name an existing one",
            ),
            Some(_) if disconnected.contains(name) => report.warn(
                QUEUE_FIELD,
                format!("the queue `{name}` is ignored, so the group is not scheduled"),
                "see the findings on the queue and its ancestors, or name another queue",
            ),
            Some(_) if parents.contains(name) && store.settings.full_hierarchy_fairness => report.warn(
                QUEUE_FIELD,
                format!("the queue `{name}` has children, so the group is not scheduled"),
                "name a queue without children",
            ),
            Some(_) => {}
        }
        if let Some(class) = missing_class(objects, group) {
            let value = group::priority(class, &objects.priority_classes);
            report.warn(
                PRIORITY_CLASS_FIELD,
                format!("the priority class `{class}` does not exist, so the priority is {value}"),
                "create the class, or name an existing one",
            );
        }
        for topology in missing_topologies(objects, group) {
            report.warn(
                "spec.topologyConstraint.topology",
                format!("the topology `{topology}` does not exist, so the group cannot be placed"),
                "create the topology, or name an existing one",
            );
        }
        findings.append(&mut report.into_findings());
    }
}

/// Whether a group names a queue, a priority class or a topology that does not exist.
pub(super) fn lacks_reference(objects: &Objects, group: &PodGroup) -> bool {
    !objects.queues.contains_key(&Key::new("", group.spec.queue.as_str()))
        || missing_class(objects, group).is_some()
        || !missing_topologies(objects, group).is_empty()
}

fn missing_class<'a>(objects: &Objects, group: &'a PodGroup) -> Option<&'a str> {
    let class = Some(group.spec.priority_class_name.as_str()).filter(|class| !class.is_empty());
    class.filter(|class| !objects.priority_classes.contains_key(&Key::new("", *class)))
}

fn missing_topologies<'a>(objects: &Objects, group: &'a PodGroup) -> BTreeSet<&'a str> {
    let below = group.spec.sub_groups.iter().filter_map(|s| s.topology_constraint.as_ref());
    let named = group.spec.topology_constraint.iter().chain(below).map(|c| c.topology.as_str());
    named.filter(|name| !name.is_empty() && !objects.topologies.contains_key(&Key::new("", *name))).collect()
}

fn pods(store: &Store, findings: &mut Vec<Finding>) {
    let objects = &store.objects;
    let mut shared: BTreeMap<String, &str> = BTreeMap::new();
    for (key, pod) in &objects.pods {
        let mut report = Report::on(Kind::Pod, key);
        if let Some(node) = pod.spec.node_name.some() {
            let known = objects.nodes.get(&Key::new("", node));
            let finished = pod.status.phase == "Succeeded" || pod.status.phase == "Failed";
            // Nodes of other pools may be missing from a snapshot.
            let is_of_pool = store.settings.node_pool_key.is_empty() || is_of_selected_group(key, pod, store);
            if !finished {
                for group in gpu::groups_from_labels(pod) {
                    let first = *shared.entry(group.clone()).or_insert(node);
                    if first != node {
                        report.warn(
                            "metadata.labels",
                            format!("another pod has the shared GPU `{group}` on node `{first}`, so it counts on both"),
                            "delete one of the pods",
                        );
                    }
                }
            }
            if known.is_none() && is_of_pool && !finished {
                report.warn(
                    "spec.nodeName",
                    format!("the node `{node}` does not exist, so the pod's request is not counted"),
                    "delete the pod if its node is gone",
                );
            }
        }
        if let Some(name) = pod.named_group() {
            let group = Key::new(key.namespace.as_str(), name);
            let ours = pod.spec.scheduler_name == store.settings.scheduler_name.as_str();
            if ours && pod.spec.node_name.is_empty() && !objects.pod_groups.contains_key(&group) {
                report.warn(
                    format!("metadata.annotations[{}]", annotation::POD_GROUP),
                    format!("the group `{name}` does not exist in the pod's namespace, so the pod is not scheduled"),
                    "create the group in the same namespace",
                );
            }
        }
        findings.append(&mut report.into_findings());
    }
}

/// Whether a pod belongs to a group of this node pool.
fn is_of_selected_group(key: &Key, pod: &Pod, store: &Store) -> bool {
    let name = pod.group_name().unwrap_or_default();
    let group = store.objects.pod_groups.get(&Key::new(key.namespace.as_str(), name));
    group.is_some_and(|group| group::is_selected(group, &store.settings))
}

fn claims(objects: &Objects, findings: &mut Vec<Finding>) {
    for (key, claim) in &objects.resource_claims {
        let mut report = Report::on(Kind::ResourceClaim, key);
        for request in &claim.spec.devices.requests {
            for way in request.exactly.iter().chain(&request.first_available) {
                let class = &*way.device_class_name;
                if !objects.device_classes.contains_key(&Key::new("", class)) {
                    report.warn(
                        format!("spec.devices.requests[{}].deviceClassName", request.name),
                        format!(
                            "the device class `{class}` does not exist, so the claim cannot be satisfied"
                        ),
                        "create the class, or name an existing one",
                    );
                }
            }
        }
        findings.append(&mut report.into_findings());
    }
}

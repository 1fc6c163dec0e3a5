//! Computes what must be written so that a pod group is as desired and a pod is assigned to it.
//!
//! A stored group keeps what is decided elsewhere: its queue, its node pool, how it is marked and its scheduling backoff.
//! Labels and annotations are added and never removed. A group without a difference is not written.

use crate::objects::{MetaExt, PodSummary};
use crate::options::Options;
use crate::workload::Desired;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::pod_group::{TopologyConstraint, name_of};
use kai_api::well_known::{annotation, label};
use kai_api::{PodGroup, PodGroupSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A group that does not exist yet.
pub fn new_group(desired: &Desired) -> PodGroup {
    PodGroup {
        metadata: ObjectMeta {
            name: Some(desired.name.clone()),
            namespace: Some(desired.namespace.clone()),
            labels: Some(desired.labels.clone()),
            annotations: Some(desired.annotations.clone()),
            owner_references: Some(vec![owner(desired)]),
            ..ObjectMeta::default()
        },
        spec: spec(desired),
        status: None,
    }
}

/// The state that a stored group should have; none where it has it.
pub fn updated(stored: &PodGroup, desired: &Desired, options: &Options) -> Option<PodGroup> {
    if desired.is_shared {
        return None;
    }
    let known = normalized(stored.spec.clone());
    let mut wanted = normalized(spec(desired));
    wanted.queue.clone_from(&known.queue);
    wanted.mark_unschedulable = known.mark_unschedulable;
    wanted.scheduling_backoff = known.scheduling_backoff;
    if desired.topology.topology.is_empty() {
        wanted.topology_constraint.clone_from(&known.topology_constraint);
    }
    let mut labels = desired.labels.clone();
    labels.remove(&options.node_pool_label_key);
    if stored.metadata.label(&options.queue_label_key).is_some() {
        labels.remove(&options.queue_label_key);
    }
    let mut new = stored.clone();
    if wanted != known {
        new.spec = wanted;
    }
    if !has_owner(stored, desired) {
        new.metadata.owner_references = Some(vec![owner(desired)]);
    }
    add_missing(&mut new.metadata.labels, &labels);
    add_missing(&mut new.metadata.annotations, &desired.annotations);
    (new != *stored).then_some(new)
}

/// The merge patch that assigns a pod to its group; none where it is assigned.
pub fn assignment(pod: &PodSummary, desired: &Desired) -> Option<Value> {
    let mut metadata = Map::new();
    if pod.metadata.annotation(annotation::POD_GROUP) != Some(&desired.name) {
        metadata.insert("annotations".to_owned(), json!({annotation::POD_GROUP: desired.name}));
    }
    if let Some(sub_group) = &desired.sub_group
        && pod.metadata.label(label::SUBGROUP) != Some(sub_group)
    {
        metadata.insert("labels".to_owned(), json!({label::SUBGROUP: sub_group}));
    }
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), Value::from(pod.metadata.uid_str()));
    Some(json!({"metadata": metadata}))
}

/// Whether the scheduler knows the group of a pod without its annotation ([`kai_api::Pod::group_name`]).
pub fn is_implied(pod: &PodSummary, desired: &Desired) -> bool {
    if desired.sub_group.is_some()
        || pod.metadata.annotation(annotation::POD_GROUP).is_some_and(|of| !of.is_empty())
    {
        return false;
    }
    let metadata = &pod.metadata;
    match metadata.owners() {
        [] => desired.name == name_of(metadata.name_str(), metadata.uid_str()),
        [owner] => {
            owner.kind == "Job"
                && owner.api_version == "batch/v1"
                && desired.name == name_of(&owner.name, &owner.uid)
        }
        _ => false,
    }
}

fn spec(desired: &Desired) -> PodGroupSpec {
    let topology = (desired.topology != TopologyConstraint::default()).then(|| desired.topology.clone());
    PodGroupSpec {
        min_member: desired.min_sub_group.is_none().then_some(desired.min_member),
        min_sub_group: desired.min_sub_group,
        queue: desired.queue.clone(),
        priority_class_name: desired.priority_class.clone(),
        preemptibility: desired.preemptibility,
        topology_constraint: topology,
        sub_groups: desired.sub_groups.clone(),
        mark_unschedulable: None,
        scheduling_backoff: None,
        preemption_delay: desired.preemption_delay.clone(),
        staleness_grace_period: desired.staleness_grace_period.clone(),
    }
}

/// Absent and empty mean the same.
fn normalized(mut spec: PodGroupSpec) -> PodGroupSpec {
    spec.topology_constraint = spec.topology_constraint.filter(|of| *of != TopologyConstraint::default());
    for group in &mut spec.sub_groups {
        group.topology_constraint =
            group.topology_constraint.take().filter(|of| *of != TopologyConstraint::default());
        group.parent = group.parent.take().filter(|parent| !parent.is_empty());
    }
    spec
}

fn owner(desired: &Desired) -> OwnerReference {
    let owner = &desired.owner;
    OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        ..OwnerReference::default()
    }
}

fn has_owner(stored: &PodGroup, desired: &Desired) -> bool {
    stored.metadata.owners() == [owner(desired)]
}

fn add_missing(known: &mut Option<BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) {
    let is_known =
        |(key, value): (&String, &String)| known.as_ref().and_then(|known| known.get(key)) == Some(value);
    if wanted.iter().all(is_known) {
        return;
    }
    known.get_or_insert_default().extend(wanted.clone());
}

#[cfg(test)]
mod tests;

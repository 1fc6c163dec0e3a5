//! Says what must be written so that a group is as it should be and a pod is in it.
//!
//! A stored group keeps what others decide about it: its queue, its node pool, how it is marked and how it backs off.
//! Labels and annotations are added and never removed. A group that differs in nothing is not written.

use super::metadata::Desired;
use super::{Options, text};
use crate::kind::POD_GROUP;
use kai_api::PodGroupSpec;
use kai_api::pod_group::TopologyConstraint;
use kai_api::well_known::{annotation, label};
use kai_object as object;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What becomes of a stored group.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It stays as it is.
    Nothing,
    /// It should be this.
    To(Value),
}

/// A group that does not exist yet.
pub fn new_group(desired: &Desired) -> Value {
    json!({
        "apiVersion": POD_GROUP.api_version(), "kind": POD_GROUP.kind,
        "metadata": {
            "name": desired.name, "namespace": desired.namespace,
            "labels": desired.labels, "annotations": desired.annotations,
            "ownerReferences": owners(desired),
        },
        "spec": spec(desired),
    })
}

/// What becomes of a stored group.
pub fn change(stored: &Value, desired: &Desired, options: &Options) -> Change {
    let known = normal(PodGroupSpec::deserialize(&stored["spec"]).unwrap_or_default());
    let mut wanted = normal(spec(desired));
    wanted.queue.clone_from(&known.queue);
    wanted.mark_unschedulable = known.mark_unschedulable;
    wanted.scheduling_backoff = known.scheduling_backoff;
    if desired.topology.topology.is_empty() {
        wanted.topology_constraint.clone_from(&known.topology_constraint);
    }
    let mut labels = desired.labels.clone();
    labels.remove(&options.node_pool_label_key);
    if text(stored, "labels", &options.queue_label_key).is_some() {
        labels.remove(&options.queue_label_key);
    }
    let mut new = stored.clone();
    if wanted != known {
        new["spec"] = json!(wanted);
    }
    if !has_owner(stored, desired) {
        object::set_meta(&mut new, "ownerReferences", Some(owners(desired)));
    }
    add_texts(&mut new, "labels", &labels);
    add_texts(&mut new, "annotations", &desired.annotations);
    if new == *stored { Change::Nothing } else { Change::To(new) }
}

/// The patch that puts a pod into its group; nothing where it is in it.
pub fn stamp(pod: &Value, desired: &Desired) -> Option<Value> {
    let mut metadata = Map::new();
    if text(pod, "annotations", annotation::POD_GROUP) != Some(&desired.name) {
        metadata.insert("annotations".to_owned(), json!({annotation::POD_GROUP: desired.name}));
    }
    if let Some(sub_group) = &desired.sub_group
        && text(pod, "labels", label::SUBGROUP) != Some(sub_group)
    {
        metadata.insert("labels".to_owned(), json!({label::SUBGROUP: sub_group}));
    }
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), Value::from(object::uid(pod)));
    Some(json!({"metadata": metadata}))
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
fn normal(mut spec: PodGroupSpec) -> PodGroupSpec {
    spec.topology_constraint = spec.topology_constraint.filter(|of| *of != TopologyConstraint::default());
    for group in &mut spec.sub_groups {
        group.topology_constraint =
            group.topology_constraint.take().filter(|of| *of != TopologyConstraint::default());
        group.parent = group.parent.take().filter(|parent| !parent.is_empty());
    }
    spec
}

fn owners(desired: &Desired) -> Value {
    let owner = &desired.owner;
    json!([{"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}])
}

fn has_owner(stored: &Value, desired: &Desired) -> bool {
    let [known] = super::owner_chain::owners(stored) else { return false };
    let wanted = owners(desired);
    ["apiVersion", "kind", "name", "uid"].iter().all(|field| known[*field] == wanted[0][*field])
}

fn add_texts(object: &mut Value, which: &str, texts: &BTreeMap<String, String>) {
    let differing: Vec<_> =
        texts.iter().filter(|(key, value)| text(object, which, key) != Some(value)).collect();
    if differing.is_empty() {
        return;
    }
    object::meta_mut(object);
    let known = object::map_mut(&mut object["metadata"], which);
    for (key, value) in texts {
        known.insert(key.clone(), Value::from(value.as_str()));
    }
}

#[cfg(test)]
mod tests;

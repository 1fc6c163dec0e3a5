//! Groups without an object: which pods have one, and its specification.
//!
//! With implicit groups a pod whose group would have one pod and no setting beyond queue, priority and preemptibility gets no
//! `PodGroup`. The pod grouper, the scheduler and the queue controller decide it by these functions of the pod alone, so that
//! they agree without a message between them. The specification is what the pod grouper would write.
//! Not here: whether the mode is on, and whether a `PodGroup` of that name exists, which always wins.

use crate::pod_group::{PodGroupSpec, Preemptibility, name_of};
use crate::well_known::{annotation, label, label_value, name, priority_class};
use crate::{Meta, Pod};
use std::collections::BTreeSet;

/// The owner references of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners<'a> {
    /// None.
    None,
    /// Exactly one.
    One {
        /// Its group and version.
        api_version: &'a str,
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// More than one.
    Several,
}

/// What the rules read of a pod, in any form that a component keeps it in.
pub trait PodFacts {
    /// Its name.
    fn name(&self) -> &str;
    /// Its uid.
    fn uid(&self) -> &str;
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Its owner references.
    fn owners(&self) -> Owners<'_>;
    /// `spec.priorityClassName`; empty where it has none.
    fn priority_class(&self) -> &str;
    /// Whether it has resource claims.
    fn has_claims(&self) -> bool;
    /// Whether it names a group of Kubernetes in `spec.schedulingGroup`.
    fn has_scheduling_group(&self) -> bool;
    /// Whether it has succeeded or failed.
    fn has_ended(&self) -> bool;
}

/// The configured keys of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelKeys<'a> {
    /// Of the queue.
    pub queue: &'a str,
    /// Of the node pool; empty where there are no node pools.
    pub node_pool: &'a str,
}

/// The node pools whose pods have implicit groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePools(BTreeSet<String>);

/// Annotations of settings that only a `PodGroup` has. Parts of GPUs and devices are prepared by the binder and counted with
/// their nodes, so that pods that request them keep their `PodGroup`.
const OF_GROUPS: [&str; 12] = [
    annotation::PREEMPTION_DELAY,
    annotation::STALENESS_GRACE_PERIOD,
    annotation::MAX_RUNTIME,
    annotation::MAX_RUNTIME_ACTION,
    annotation::MAX_RUNTIME_GRACE_PERIOD,
    annotation::TOPOLOGY,
    annotation::TOPOLOGY_REQUIRED,
    annotation::TOPOLOGY_PREFERRED,
    annotation::BATCH_MIN_MEMBER,
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::GPU_FRACTION_NUM_DEVICES,
];

impl NodePools {
    /// Parses `POOL,POOL`; `default` are pods without the label of a node pool.
    pub fn parse(text: &str) -> Self {
        let pools = text.split(',').map(str::trim).filter(|pool| !pool.is_empty());
        Self(pools.map(str::to_owned).collect())
    }

    /// Whether no node pool has implicit groups.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pod is in one of them.
    pub fn have(&self, pod: &impl PodFacts, keys: LabelKeys<'_>) -> bool {
        let label = if keys.node_pool.is_empty() { None } else { pod.label(keys.node_pool) };
        self.0.contains(label.unwrap_or(label_value::DEFAULT_NODE_POOL))
    }
}

/// The name of the group of a pod, with or without an object.
pub fn group_name(pod: &impl PodFacts) -> String {
    name_of(pod.name(), pod.uid())
}

/// Whether a pod needs no `PodGroup`: it is alone in its group, and the group has no settings of its own.
///
/// Pods without owners are, and those of Deployments that name their queue themselves: the owner is not read.
pub fn is_candidate(pod: &impl PodFacts, keys: LabelKeys<'_>) -> bool {
    let is_grouped = pod.annotation(annotation::POD_GROUP).is_some_and(|group| !group.is_empty());
    let is_alone = match pod.owners() {
        Owners::None => true,
        owner @ Owners::One { .. } => is_of_deployment(pod, owner) && pod.label(keys.queue).is_some(),
        Owners::Several => false,
    };
    is_alone
        && !is_grouped
        && !pod.name().is_empty()
        && !pod.uid().is_empty()
        && pod.annotation(annotation::SKIP_GROUPING) != Some(label_value::TRUE)
        && pod.label(label::SUBGROUP).is_none()
        && pod.label(label::SPARK_APP_NAME).and(pod.label(label::SPARK_APP_SELECTOR)).is_none()
        && !pod.has_claims()
        && !pod.has_scheduling_group()
        && !pod.has_ended()
        && OF_GROUPS.iter().all(|key| pod.annotation(key).is_none())
}

/// Whether a pod belongs to the ReplicaSet of a Deployment, whose name ends with the hash of the pod's template.
pub fn is_of_deployment(pod: &impl PodFacts, owner: Owners<'_>) -> bool {
    let Owners::One { api_version: "apps/v1", kind: "ReplicaSet", name } = owner else { return false };
    let hash = pod.label(label::POD_TEMPLATE_HASH).filter(|hash| !hash.is_empty());
    let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
    deployment.is_some_and(|deployment| !deployment.is_empty())
}

/// The specification of the group of a pod that is a candidate, as the pod grouper forms it; `class_exists` tells whether
/// there is a priority class of a name.
pub fn spec(pod: &impl PodFacts, keys: LabelKeys<'_>, class_exists: impl Fn(&str) -> bool) -> PodGroupSpec {
    let default =
        if pod.owners() == Owners::None { priority_class::TRAIN } else { priority_class::INFERENCE };
    let named = pod.label(label::PRIORITY_CLASS).unwrap_or(pod.priority_class());
    let class = if !named.is_empty() && class_exists(named) { named } else { default };
    PodGroupSpec {
        min_member: Some(1),
        queue: queue(pod, keys),
        priority_class_name: class.to_owned(),
        preemptibility: match pod.label(label::PREEMPTIBILITY) {
            Some("preemptible") => Some(Preemptibility::Preemptible),
            Some("non-preemptible") => Some(Preemptibility::NonPreemptible),
            _ => None,
        },
        ..PodGroupSpec::default()
    }
}

/// The queue of a pod that has no owner with a label of its own.
pub fn queue(pod: &impl PodFacts, keys: LabelKeys<'_>) -> String {
    if let Some(queue) = pod.label(keys.queue) {
        return queue.to_owned();
    }
    let pool = if keys.node_pool.is_empty() { None } else { pod.label(keys.node_pool) };
    match (pod.label(label::PROJECT).filter(|project| !project.is_empty()), pool) {
        (Some(project), Some(pool)) => format!("{project}-{pool}"),
        (Some(project), None) => project.to_owned(),
        (None, _) => name::DEFAULT_QUEUE.to_owned(),
    }
}

/// Whether the scheduler has placed a pod on an implicit group, which counts until a `PodGroup` replaces it, even where the
/// mode is off by now.
pub fn is_marked(metadata: &Meta) -> bool {
    metadata.annotation(annotation::IMPLICIT_GROUP) == Some(label_value::TRUE)
}

impl PodFacts for Pod {
    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotation(key)
    }

    fn owners(&self) -> Owners<'_> {
        match &*self.metadata.owner_references {
            [] => Owners::None,
            [owner] => Owners::One { api_version: &owner.api_version, kind: &owner.kind, name: &owner.name },
            _ => Owners::Several,
        }
    }

    fn priority_class(&self) -> &str {
        &self.spec.priority_class_name
    }

    fn has_claims(&self) -> bool {
        !self.spec.resource_claims.is_empty()
    }

    fn has_scheduling_group(&self) -> bool {
        self.spec.scheduling_group.is_some()
    }

    fn has_ended(&self) -> bool {
        kai_object::is_terminal_phase(&self.status.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    const KEYS: LabelKeys<'_> = LabelKeys { queue: label::QUEUE, node_pool: label::NODE_POOL };

    fn pod(mut changes: Value) -> Pod {
        kai_object::set(&mut changes, &["metadata", "name"], "p");
        kai_object::set(&mut changes, &["metadata", "uid"], "u");
        from_value(changes).unwrap()
    }

    fn replica(hash: &str, labels: Value) -> Pod {
        let mut labels = labels;
        labels[label::POD_TEMPLATE_HASH] = json!(hash);
        pod(json!({"metadata": {
            "labels": labels,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "r"}],
        }}))
    }

    #[test]
    fn pod_that_is_alone_in_a_group_without_settings_is_a_candidate() {
        let annotated = |key: &str| pod(json!({"metadata": {"annotations": {key: "x"}}}));
        let labelled = |labels: Value| pod(json!({"metadata": {"labels": labels}}));
        let owner = |kind: &str| json!({"apiVersion": "batch/v1", "kind": kind, "name": "o", "uid": "o"});
        let table = [
            (pod(json!({})), true),
            (labelled(json!({label::QUEUE: "a", label::PREEMPTIBILITY: "preemptible"})), true),
            (annotated("gpu-fraction"), false),
            (annotated("gpu-memory"), false),
            (annotated(annotation::POD_GROUP), false),
            (annotated(annotation::TOPOLOGY), false),
            (annotated(annotation::MAX_RUNTIME), false),
            (annotated(annotation::PREEMPTION_DELAY), false),
            (annotated(annotation::IMPLICIT_GROUP), true),
            (pod(json!({"metadata": {"annotations": {annotation::POD_GROUP: ""}}})), true),
            (pod(json!({"metadata": {"annotations": {annotation::SKIP_GROUPING: "true"}}})), false),
            (labelled(json!({label::SUBGROUP: "s"})), false),
            (labelled(json!({label::SPARK_APP_NAME: "s"})), true),
            (labelled(json!({label::SPARK_APP_NAME: "s", label::SPARK_APP_SELECTOR: "t"})), false),
            (pod(json!({"spec": {"resourceClaims": [{"name": "c"}]}})), false),
            (pod(json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}})), false),
            (pod(json!({"status": {"phase": "Succeeded"}})), false),
            (pod(json!({"status": {"phase": "Failed"}})), false),
            (pod(json!({"status": {"phase": "Running"}})), true),
            (pod(json!({"metadata": {"ownerReferences": [owner("Job")]}})), false),
            (pod(json!({"metadata": {"ownerReferences": [owner("A"), owner("B")]}})), false),
            (replica("5d9", json!({label::QUEUE: "a"})), true),
            (replica("5d9", json!({})), false),
            (replica("other", json!({label::QUEUE: "a"})), false),
            (replica("", json!({label::QUEUE: "a"})), false),
        ];
        for (pod, expected) in table {
            assert_eq!(is_candidate(&pod, KEYS), expected, "{pod:?}");
        }
    }

    #[test]
    fn specification_comes_from_the_pod() {
        let pod = pod(json!({
            "metadata": {"labels": {label::QUEUE: "a", label::PREEMPTIBILITY: "non-preemptible"}},
            "spec": {"priorityClassName": "high"},
        }));
        let known = spec(&pod, KEYS, |class| class == "high");
        assert_eq!((known.queue.as_str(), known.priority_class_name.as_str()), ("a", "high"));
        assert_eq!((known.min_member, known.preemptibility), (Some(1), Some(Preemptibility::NonPreemptible)));
        assert_eq!(spec(&pod, KEYS, |_| false).priority_class_name, "train");
        let replica = replica("5d9", json!({label::QUEUE: "b"}));
        assert_eq!(spec(&replica, KEYS, |_| true).priority_class_name, "inference");
    }

    #[test]
    fn project_names_the_queue_where_no_label_does() {
        let queue_of = |labels: Value| queue(&pod(json!({"metadata": {"labels": labels}})), KEYS);
        assert_eq!(queue_of(json!({})), name::DEFAULT_QUEUE);
        assert_eq!(queue_of(json!({"project": "p"})), "p");
        assert_eq!(queue_of(json!({"project": "p", label::NODE_POOL: "gold"})), "p-gold");
    }

    #[test]
    fn node_pool_without_a_label_is_the_default_one() {
        let pools = NodePools::parse("default, gold");
        let has = |labels: Value| pools.have(&pod(json!({"metadata": {"labels": labels}})), KEYS);
        assert!(has(json!({})) && has(json!({label::NODE_POOL: "gold"})));
        assert!(!has(json!({label::NODE_POOL: "silver"})));
        assert!(NodePools::parse("").is_empty());
        let without = LabelKeys { node_pool: "", ..KEYS };
        assert!(pools.have(&pod(json!({"metadata": {"labels": {"": "silver"}}})), without));
    }
}

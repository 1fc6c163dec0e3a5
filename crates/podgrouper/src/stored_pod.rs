//! Pods as the pod grouper keeps them: what pods have in common is stored once.
//!
//! The pods of a workload have the same labels, owners and group. A rule gets a [`PodSummary`], which is made when it runs.

use crate::objects::{PodSpecSummary, PodStatusSummary, PodSummary, trim_pod};
use crate::plan;
use crate::pool::{OfPods, Text, pool};
use k8s_openapi::api::core::v1::PodSchedulingGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kai_api::pod::Empty;
use kai_api::value::List;
use kai_api::well_known::annotation;
use kai_runtime::Key;
use kai_runtime::informer::store::{Identity, ObjectKey};
use serde::Deserialize;
use std::sync::Arc;

/// A stored pod, reduced to what grouping reads.
#[derive(Debug, Deserialize)]
#[serde(from = "PodSummary")]
pub(crate) struct StoredPod {
    /// The informer's store and the work queue have the same one.
    key: Arc<Key>,
    uid: Box<str>,
    resource_version: Box<str>,
    common: Arc<OfPods>,
    node: Option<Text>,
    /// What few pods have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug)]
struct Rare {
    deleted: Option<Time>,
    group: Option<PodSchedulingGroup>,
    claims: List<Empty>,
}

impl From<PodSummary> for StoredPod {
    fn from(mut pod: PodSummary) -> Self {
        trim_pod(&mut pod);
        let PodSummary { metadata, spec, status } = pod;
        let mut pool = pool();
        let has_rare = metadata.deletion_timestamp.is_some()
            || spec.scheduling_group.is_some()
            || !spec.resource_claims.is_empty();
        let rare = Rare {
            deleted: metadata.deletion_timestamp,
            group: spec.scheduling_group,
            claims: spec.resource_claims,
        };
        let common = OfPods {
            labels: pool.map(metadata.labels),
            annotations: pool.map(metadata.annotations),
            owners: pool.owners(metadata.owner_references),
            scheduler: spec.scheduler_name.map(|text| pool.text(&text)),
            priority_class: spec.priority_class_name.map(|text| pool.text(&text)),
            phase: status.phase.map(|text| pool.text(&text)),
        };
        Self {
            key: pool.key(metadata.namespace, metadata.name),
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            common: pool.of_pods(common),
            node: spec.node_name.map(|text| pool.text(&text)),
            rare: has_rare.then(|| Box::new(rare)),
        }
    }
}

impl StoredPod {
    pub(crate) fn key(&self) -> Arc<Key> {
        Arc::clone(&self.key)
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            key: ObjectKey::Shared(&self.key),
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.common.labels.get(key)
    }

    pub(crate) fn priority_class(&self) -> Option<&str> {
        self.common.priority_class.as_deref()
    }

    /// The uid of its first owner, or its own where it has none and a group of Kubernetes.
    pub(crate) fn owner_uid(&self) -> Option<&str> {
        let is_upstream = self.rare.as_ref().is_some_and(|rare| rare.group.is_some());
        let own = (is_upstream && !self.uid.is_empty()).then_some(&*self.uid);
        self.first_owner_uid().or(own)
    }

    pub(crate) fn first_owner_uid(&self) -> Option<&str> {
        self.common.owners.first().map(|owner| &*owner.uid)
    }

    /// The group that it is assigned to; an empty name assigns it to none.
    pub(crate) fn group(&self) -> Option<Key> {
        let name = self.common.annotations.get(annotation::POD_GROUP).filter(|name| !name.is_empty())?;
        Some(Key::new(self.namespace(), name))
    }

    /// As [`plan::is_ending`].
    pub(crate) fn is_ending(&self) -> bool {
        // Whether it was a launcher counts only where it is deleted.
        self.rare.is_some() && plan::is_ending(&self.summary())
            || self.common.phase.as_deref().is_some_and(kai_object::is_terminal_phase)
    }

    /// The pod for a rule.
    pub(crate) fn summary(&self) -> PodSummary {
        let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let text = |text: &Option<Text>| text.as_deref().map(str::to_owned);
        let (common, rare) = (&*self.common, self.rare.as_deref());
        PodSummary {
            metadata: ObjectMeta {
                namespace: own(&self.key.namespace),
                name: own(&self.key.name),
                uid: own(&self.uid),
                resource_version: own(&self.resource_version),
                labels: common.labels.to_map(),
                annotations: common.annotations.to_map(),
                owner_references: common.owners.to_references(),
                deletion_timestamp: rare.and_then(|rare| rare.deleted.clone()),
                ..ObjectMeta::default()
            },
            spec: PodSpecSummary {
                scheduler_name: text(&common.scheduler),
                priority_class_name: text(&common.priority_class),
                node_name: text(&self.node),
                scheduling_group: rare.and_then(|rare| rare.group.clone()),
                resource_claims: rare.map(|rare| rare.claims.clone()).unwrap_or_default(),
            },
            status: PodStatusSummary { phase: text(&common.phase) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Bytes;
    use serde_json::{Value, json};

    /// A pod of a Job as its controller creates it.
    fn pod(job: usize, number: usize) -> Value {
        let (name, uid) = (format!("train-{job}"), format!("01234567-89ab-cdef-0123-{job:012}"));
        let labels = json!({
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
            "controller-uid": uid, "job-name": name, "kai.scheduler/queue": "research",
        });
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true,
            "blockOwnerDeletion": true,
        });
        json!({
            "metadata": {
                "name": format!("{name}-{number:05}"), "namespace": "research", "generateName": "train-",
                "uid": format!("76543210-89ab-cdef-{job:04}-{number:012}"),
                "resourceVersion": (job * 1_000 + number).to_string(), "labels": labels, "ownerReferences": [owner],
                "annotations": {annotation::POD_GROUP: format!("pg-{name}-{uid}")},
                "managedFields": [{"manager": "kube-controller-manager"}],
            },
            "spec": {"schedulerName": "kai-scheduler", "nodeName": format!("node-{number}"), "containers": []},
            "status": {"phase": "Running"},
        })
    }

    fn stored(pod: Value) -> StoredPod {
        serde_json::from_value(pod).unwrap()
    }

    fn bytes(pods: &[StoredPod]) -> usize {
        let mut bytes = Bytes::default();
        for pod in pods {
            bytes.object(pod, &[&pod.uid, &pod.resource_version]);
            bytes.key(&pod.key);
            if bytes.add(&pod.common) {
                let of = &*pod.common;
                bytes.texts(&of.labels);
                bytes.texts(&of.annotations);
                bytes.owners(&of.owners);
                for text in [&of.scheduler, &of.priority_class, &of.phase].into_iter().flatten() {
                    bytes.add(text);
                }
            }
            pod.node.iter().for_each(|text| _ = bytes.add(text));
        }
        bytes.total
    }

    #[test]
    fn pods_of_jobs_take_a_few_hundred_bytes_each() {
        let all: Vec<StoredPod> =
            (0..100).flat_map(|job| (0..10).map(move |number| stored(pod(job, number)))).collect();
        let each = bytes(&all) / all.len();
        println!("{each} bytes for each pod");
        assert!(each <= 300, "{each} bytes for each of {} pods", all.len());
    }

    #[test]
    fn rules_get_what_was_read() {
        let mut written = pod(1, 2);
        written["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        written["spec"]["priorityClassName"] = json!("train");
        written["spec"]["schedulingGroup"] = json!({"podGroupName": "workers"});
        let mut read: PodSummary = serde_json::from_value(written.clone()).unwrap();
        trim_pod(&mut read);
        assert_eq!(stored(written).summary(), read);
        assert_eq!(stored(json!({"metadata": {"name": "a"}})).summary().metadata.labels, None);
    }
}

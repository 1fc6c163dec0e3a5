//! Pod groups as the pod grouper keeps them: what groups have in common is stored once.
//!
//! A group is compared with the desired one as a whole [`PodGroup`], which is made when a pod of it is reconciled.

use crate::pool::{Owners, Texts, pool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::annotation;
use kai_api::{PodGroup, PodGroupSpec};
use kai_runtime::Key;
use kai_runtime::informer::store::{Identity, ObjectKey};
use serde::Deserialize;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Annotations that the scheduler writes and grouping does not read.
const NOT_READ: [&str; 3] = [annotation::STALE_SINCE, annotation::LAST_START, annotation::LAST_EVICTION];

/// A stored pod group. The group of a pod without owners is not compared again once the pod is assigned, so only its identity
/// is stored.
#[derive(Debug, Deserialize)]
#[serde(from = "Received")]
pub(crate) struct StoredGroup {
    key: Arc<Key>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: Texts,
    annotations: Texts,
    owners: Owners,
    /// None where only the identity is stored, or the object has none; it is never replaced by a default.
    spec: Option<Arc<PodGroupSpec>>,
}

/// What is read of a pod group that the server sends.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Received {
    metadata: ObjectMeta,
    spec: Option<PodGroupSpec>,
}

impl From<PodGroup> for StoredGroup {
    fn from(group: PodGroup) -> Self {
        Received { metadata: group.metadata, spec: Some(group.spec) }.into()
    }
}

impl From<Received> for StoredGroup {
    fn from(Received { metadata, spec }: Received) -> Self {
        let ObjectMeta { namespace, name, uid, resource_version, .. } = metadata;
        let annotations = metadata.annotations.as_ref();
        let top_owner = annotations.and_then(|all| all.get(annotation::TOP_OWNER));
        let is_of_pod = top_owner.is_some_and(|top| top.ends_with("\nkind: Pod\n"));
        let (labels, annotations, owners, spec) = if is_of_pod {
            (None, None, None, None)
        } else {
            (metadata.labels, metadata.annotations, metadata.owner_references, spec)
        };
        let mut pool = pool();
        Self {
            key: pool.key(namespace, name),
            uid: uid.unwrap_or_default().into(),
            resource_version: resource_version.unwrap_or_default().into(),
            labels: pool.map(labels),
            annotations: pool.map(annotations),
            owners: pool.owners(owners),
            spec: spec.map(|spec| pool.spec(spec)),
        }
    }
}

impl StoredGroup {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            key: ObjectKey::Shared(&self.key),
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    pub(crate) fn owner_kind(&self) -> Option<&str> {
        self.owners.first().map(|owner| &*owner.kind)
    }

    pub(crate) fn spec(&self) -> Option<&PodGroupSpec> {
        self.spec.as_deref()
    }

    /// Hashes what grouping reads.
    pub(crate) fn hash_read(&self, hasher: &mut impl Hasher) {
        (&self.uid, &self.labels, &self.owners, &self.spec).hash(hasher);
        self.annotations.iter().filter(|(name, _)| !NOT_READ.contains(name)).for_each(|of| of.hash(hasher));
    }

    /// The group without its status; none where only its identity is stored.
    pub(crate) fn to_pod_group(&self) -> Option<PodGroup> {
        let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let spec = self.spec()?.clone();
        let metadata = ObjectMeta {
            namespace: own(&self.key.namespace),
            name: own(&self.key.name),
            uid: own(&self.uid),
            resource_version: own(&self.resource_version),
            labels: self.labels.to_map(),
            annotations: self.annotations.to_map(),
            owner_references: self.owners.to_references(),
            ..ObjectMeta::default()
        };
        Some(PodGroup { metadata, spec, status: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Bytes;
    use rustc_hash::FxHasher;
    use serde_json::{Value, json};

    /// The group of a Job as the pod grouper creates it and the server returns it.
    fn group(job: usize) -> Value {
        let (name, uid) = (format!("train-{job}"), format!("01234567-89ab-cdef-0123-{job:012}"));
        let top =
            format!("uid: {uid}\nname: {name}\nnamespace: research\ngroup: batch\nversion: v1\nkind: Job\n");
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid});
        json!({
            "metadata": {
                "name": format!("pg-{name}-{uid}"), "namespace": "research", "generation": 1,
                "uid": format!("76543210-89ab-cdef-0123-{job:012}"), "resourceVersion": (1_000 + job).to_string(),
                "labels": {"job-name": name, "kai.scheduler/queue": "research"},
                "annotations": {annotation::TOP_OWNER: top}, "ownerReferences": [owner],
                "managedFields": [{"manager": "pod-grouper"}],
            },
            "spec": {"minMember": 1, "queue": "research", "priorityClassName": "train"},
            "status": {"schedulingConditions": []},
        })
    }

    fn stored(group: &Value) -> StoredGroup {
        StoredGroup::deserialize(group).unwrap()
    }

    fn fingerprint(group: &Value) -> u64 {
        let mut hasher = FxHasher::default();
        stored(group).hash_read(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn groups_of_jobs_take_less_than_a_kilobyte_each() {
        let all: Vec<StoredGroup> = (0..1_000).map(|job| stored(&group(job))).collect();
        let mut bytes = Bytes::default();
        for group in &all {
            bytes.object(group, &[&group.uid, &group.resource_version]);
            bytes.key(&group.key);
            bytes.texts(&group.labels);
            bytes.texts(&group.annotations);
            bytes.owners(&group.owners);
            group.spec.iter().for_each(|spec| _ = bytes.add(spec));
        }
        let each = bytes.total / all.len();
        println!("{each} bytes for each group");
        assert!(each <= 750, "{each} bytes for each of {} groups", all.len());
        assert!(Arc::ptr_eq(all[0].spec.as_ref().unwrap(), all[1].spec.as_ref().unwrap()));
    }

    #[test]
    fn group_is_compared_as_it_was_read() {
        let mut written = group(1);
        written["spec"]["subGroups"] = json!([{"name": "workers", "minMember": 2}]);
        let read: PodGroup = serde_json::from_value(json!({
            "metadata": written["metadata"], "spec": written["spec"],
        }))
        .unwrap();
        let expected = PodGroup {
            metadata: ObjectMeta { generation: None, managed_fields: None, ..read.metadata.clone() },
            ..read.clone()
        };
        assert_eq!(stored(&written).to_pod_group().as_ref(), Some(&expected));
        assert_eq!(StoredGroup::from(read).to_pod_group(), Some(expected));
        written["spec"] = Value::Null;
        assert_eq!(stored(&written).to_pod_group(), None, "a missing spec is no default");
    }

    #[test]
    fn only_the_identity_of_the_group_of_a_pod_is_stored() {
        let mut of_pod = group(1);
        of_pod["metadata"]["annotations"][annotation::TOP_OWNER] = json!("name: a\nkind: Pod\n");
        let stored = stored(&of_pod);
        assert_eq!((stored.to_pod_group(), stored.owner_kind()), (None, None));
        assert_eq!(stored.identity().uid, "76543210-89ab-cdef-0123-000000000001");
    }

    #[test]
    fn fingerprint_follows_what_grouping_reads() {
        let group = group(1);
        let changed = |pointer: &str, value: Value| {
            let mut changed = group.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            fingerprint(&changed) != fingerprint(&group)
        };
        for pointer in ["/metadata/uid", "/metadata/labels/job-name", "/spec/queue"] {
            assert!(changed(pointer, json!("other")), "{pointer}");
        }
        assert!(changed("/metadata/ownerReferences/0/uid", json!("other")));
        assert!(changed("/metadata/annotations", json!({annotation::TOP_OWNER: "other"})));
        assert!(!changed("/metadata/resourceVersion", json!("7")));
        let mut annotations = group["metadata"]["annotations"].clone();
        annotations[annotation::LAST_START] = json!("2026-01-01T00:00:00Z");
        assert!(!changed("/metadata/annotations", annotations), "the scheduler writes it");
    }
}

//! Pods as the pod grouper keeps them: what pods have in common is stored once.
//!
//! The pods of a workload have the same labels, owners and group. A rule gets a [`PodSummary`], which is made when it runs.

use crate::objects::{PodSpecSummary, PodStatusSummary, PodSummary, trim_pod};
use crate::plan;
use k8s_openapi::api::core::v1::PodSchedulingGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kai_api::pod::Empty;
use kai_api::value::List;
use kai_api::well_known::annotation;
use kai_runtime::Key;
use kai_runtime::informer::store::Identity;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde::Deserialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

/// Values without a user are removed when there are twice as many as the last time, and more than this.
const UNUSED_MIN: usize = 1_024;

/// A text that other pods may have, too.
type Text = Arc<str>;
type Texts = Arc<[(Text, Text)]>;
type Owners = Arc<[Owner]>;

/// A stored pod, reduced to what grouping reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PodSummary")]
pub(crate) struct StoredPod {
    namespace: Text,
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: Texts,
    annotations: Texts,
    owners: Owners,
    /// What few pods have.
    rare: Option<Box<Rare>>,
    scheduler: Option<Text>,
    priority_class: Option<Text>,
    node: Option<Text>,
    phase: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owner {
    api_version: Text,
    kind: Text,
    name: Text,
    uid: Text,
    is_controller: Option<bool>,
    blocks_deletion: Option<bool>,
}

#[derive(Clone, Debug)]
struct Rare {
    deleted: Option<Time>,
    group: Option<PodSchedulingGroup>,
    claims: List<Empty>,
}

impl From<PodSummary> for StoredPod {
    fn from(mut pod: PodSummary) -> Self {
        trim_pod(&mut pod);
        let PodSummary { metadata, spec, status } = pod;
        let mut pool = POOL.lock();
        let has_rare = metadata.deletion_timestamp.is_some()
            || spec.scheduling_group.is_some()
            || !spec.resource_claims.is_empty();
        let rare = Rare {
            deleted: metadata.deletion_timestamp,
            group: spec.scheduling_group,
            claims: spec.resource_claims,
        };
        Self {
            namespace: pool.text(&metadata.namespace.unwrap_or_default()),
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            labels: pool.map(metadata.labels),
            annotations: pool.map(metadata.annotations),
            owners: pool.owners(metadata.owner_references),
            rare: has_rare.then(|| Box::new(rare)),
            scheduler: spec.scheduler_name.map(|text| pool.text(&text)),
            priority_class: spec.priority_class_name.map(|text| pool.text(&text)),
            node: spec.node_name.map(|text| pool.text(&text)),
            phase: status.phase.map(|text| pool.text(&text)),
        }
    }
}

impl StoredPod {
    pub(crate) fn key(&self) -> Key {
        Key::new(&*self.namespace, &*self.name)
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }

    pub(crate) fn priority_class(&self) -> Option<&str> {
        self.priority_class.as_deref()
    }

    /// The uid of its first owner, or its own where it has none and a group of Kubernetes.
    pub(crate) fn owner_uid(&self) -> Option<&str> {
        let is_upstream = self.rare.as_ref().is_some_and(|rare| rare.group.is_some());
        let own = (is_upstream && !self.uid.is_empty()).then_some(&*self.uid);
        self.first_owner_uid().or(own)
    }

    pub(crate) fn first_owner_uid(&self) -> Option<&str> {
        self.owners.first().map(|owner| &*owner.uid)
    }

    /// The group that it is assigned to; an empty name assigns it to none.
    pub(crate) fn group(&self) -> Option<Key> {
        let name = find(&self.annotations, annotation::POD_GROUP).filter(|name| !name.is_empty())?;
        Some(Key::new(self.namespace(), name))
    }

    /// As [`plan::is_ending`].
    pub(crate) fn is_ending(&self) -> bool {
        // Whether it was a launcher counts only where it is deleted.
        self.rare.is_some() && plan::is_ending(&self.summary())
            || self.phase.as_deref().is_some_and(kai_object::is_terminal_phase)
    }

    /// The pod for a rule.
    pub(crate) fn summary(&self) -> PodSummary {
        let owner = |of: &Owner| OwnerReference {
            api_version: of.api_version.to_string(),
            kind: of.kind.to_string(),
            name: of.name.to_string(),
            uid: of.uid.to_string(),
            controller: of.is_controller,
            block_owner_deletion: of.blocks_deletion,
        };
        let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let text = |text: &Option<Text>| text.as_deref().map(str::to_owned);
        let rare = self.rare.as_deref();
        let owners: Vec<OwnerReference> = self.owners.iter().map(owner).collect();
        PodSummary {
            metadata: ObjectMeta {
                namespace: own(&self.namespace),
                name: own(&self.name),
                uid: own(&self.uid),
                resource_version: own(&self.resource_version),
                labels: map(&self.labels),
                annotations: map(&self.annotations),
                owner_references: (!owners.is_empty()).then_some(owners),
                deletion_timestamp: rare.and_then(|rare| rare.deleted.clone()),
                ..ObjectMeta::default()
            },
            spec: PodSpecSummary {
                scheduler_name: text(&self.scheduler),
                priority_class_name: text(&self.priority_class),
                node_name: text(&self.node),
                scheduling_group: rare.and_then(|rare| rare.group.clone()),
                resource_claims: rare.map(|rare| rare.claims.clone()).unwrap_or_default(),
            },
            status: PodStatusSummary { phase: text(&self.phase) },
        }
    }
}

fn find<'a>(texts: &'a Texts, key: &str) -> Option<&'a str> {
    texts.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
}

fn map(texts: &Texts) -> Option<BTreeMap<String, String>> {
    let all = texts.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    (!texts.is_empty()).then(|| all.collect())
}

/// What stored pods have in common.
static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    texts: Shared<str>,
    maps: Shared<[(Text, Text)]>,
    owners: Shared<[Owner]>,
}

impl Pool {
    fn text(&mut self, text: &str) -> Text {
        self.texts.share(text)
    }

    fn map(&mut self, map: Option<BTreeMap<String, String>>) -> Texts {
        let all = map.unwrap_or_default();
        let all: Vec<_> = all.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        self.maps.share(all)
    }

    fn owners(&mut self, owners: Option<Vec<OwnerReference>>) -> Owners {
        let owner = |of: OwnerReference| Owner {
            api_version: self.text(&of.api_version),
            kind: self.text(&of.kind),
            name: self.text(&of.name),
            uid: self.text(&of.uid),
            is_controller: of.controller,
            blocks_deletion: of.block_owner_deletion,
        };
        let all: Vec<Owner> = owners.unwrap_or_default().into_iter().map(owner).collect();
        self.owners.share(all)
    }
}

/// Equal values in one place, for as long as someone uses them.
struct Shared<T: ?Sized> {
    values: FxHashSet<Arc<T>>,
    /// How many were in use when unused ones were removed.
    used: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { values: FxHashSet::default(), used: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(known) = self.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.values.len() >= UNUSED_MIN.max(self.used.saturating_mul(2)) {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.used = self.values.len();
        }
        let new = value.into();
        self.values.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// The memory that the allocator is asked for; what pods share counts once.
    fn bytes(pods: &[StoredPod]) -> usize {
        const COUNTS: usize = 16;
        let mut seen = FxHashSet::default();
        let mut once =
            |address: *const u8, bytes: usize| if seen.insert(address) { bytes + COUNTS } else { 0 };
        let mut total = 0;
        for pod in pods {
            total +=
                size_of::<StoredPod>() + COUNTS + pod.name.len() + pod.uid.len() + pod.resource_version.len();
            for map in [&pod.labels, &pod.annotations] {
                total += once(map.as_ptr().cast(), size_of_val(&**map));
                let texts = map.iter().flat_map(|(key, value)| [key, value]);
                total += texts.map(|text| once(text.as_ptr(), text.len())).sum::<usize>();
            }
            total += once(pod.owners.as_ptr().cast(), size_of_val(&*pod.owners));
            let owners = pod.owners.iter().flat_map(|of| [&of.api_version, &of.kind, &of.name, &of.uid]);
            let spec = [&pod.scheduler, &pod.priority_class, &pod.node, &pod.phase].into_iter().flatten();
            let texts = owners.chain(spec).chain([&pod.namespace]);
            total += texts.map(|text| once(text.as_ptr(), text.len())).sum::<usize>();
        }
        total
    }

    #[test]
    fn pods_of_jobs_take_a_few_hundred_bytes_each() {
        let all: Vec<StoredPod> =
            (0..100).flat_map(|job| (0..10).map(move |number| stored(pod(job, number)))).collect();
        let each = bytes(&all) / all.len();
        println!("{each} bytes for each pod");
        assert!(each <= 400, "{each} bytes for each of {} pods", all.len());
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

    #[test]
    fn texts_without_a_user_are_removed() {
        let mut texts = Shared::<str>::default();
        let used = texts.share("used");
        for number in 0..100_000 {
            texts.share(number.to_string().as_str());
        }
        assert!(texts.values.len() <= UNUSED_MIN, "{}", texts.values.len());
        assert!(Arc::ptr_eq(&used, &texts.share("used")));
    }
}

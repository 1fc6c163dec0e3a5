//! Entries of the cache of owners.

use super::{INTERVAL_MIN, Id, has_rule_of_metadata};
use crate::objects::OwnerObject;
use crate::pool::{Owners, Text, Texts, pool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_runtime::kind::ResourceKind;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) struct Cached {
    state: State,
    pub(super) resource: Arc<ResourceKind>,
    pub(super) read_at: Instant,
    pub(super) next_at: Instant,
    pub(super) interval: Duration,
    /// Whether it changed and could not be read since.
    pub(super) is_outdated: bool,
    /// Uids of the first owners of the pods that need the object, sorted; mostly one.
    pub(super) first_owners: Vec<Text>,
}

/// The last state that was read.
enum State {
    /// Of an object whose rule reads labels, annotations and owners only, as most do.
    Metadata(Box<Metadata>),
    Whole(Arc<OwnerObject>),
}

struct Metadata {
    uid: Text,
    resource_version: Box<str>,
    generation: Option<i64>,
    labels: Texts,
    annotations: Texts,
    owners: Owners,
}

impl Cached {
    pub(super) fn new(object: &Arc<OwnerObject>, resource: Arc<ResourceKind>, now: Instant) -> Self {
        Self {
            state: State::of(object),
            resource,
            read_at: now,
            next_at: now,
            interval: INTERVAL_MIN,
            is_outdated: false,
            first_owners: Vec::with_capacity(1),
        }
    }

    pub(super) fn set(&mut self, object: &Arc<OwnerObject>) {
        self.state = State::of(object);
    }

    pub(super) fn need_for(&mut self, first_owner: &str) {
        if let Err(at) = self.first_owners.binary_search_by(|known| (**known).cmp(first_owner)) {
            self.first_owners.insert(at, pool().text(first_owner));
        }
    }

    /// The object that is cached under this ID.
    pub(super) fn object(&self, id: &Id) -> Arc<OwnerObject> {
        match &self.state {
            State::Whole(object) => Arc::clone(object),
            State::Metadata(of) => {
                let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                Arc::new(OwnerObject {
                    api_version: id.api_version.to_string(),
                    kind: id.kind.to_string(),
                    metadata: ObjectMeta {
                        namespace: own(&id.namespace).filter(|_| self.resource.namespaced),
                        name: own(&id.name),
                        uid: own(&of.uid),
                        resource_version: own(&of.resource_version),
                        generation: of.generation,
                        labels: of.labels.to_map(),
                        annotations: of.annotations.to_map(),
                        owner_references: of.owners.to_references(),
                        ..ObjectMeta::default()
                    },
                    data: Value::Object(Map::new()),
                })
            }
        }
    }
}

impl State {
    fn of(object: &Arc<OwnerObject>) -> Self {
        let is_trimmed = object.data.as_object().is_some_and(Map::is_empty);
        if !is_trimmed || !has_rule_of_metadata(object) {
            return Self::Whole(Arc::clone(object));
        }
        let metadata = object.metadata.clone();
        let mut pool = pool();
        Self::Metadata(Box::new(Metadata {
            uid: pool.text(&metadata.uid.unwrap_or_default()),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            generation: metadata.generation,
            labels: pool.map(metadata.labels),
            annotations: pool.map(metadata.annotations),
            owners: pool.owners(metadata.owner_references),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_runtime::kind::JOB;
    use serde_json::json;

    #[test]
    fn rules_get_what_was_read() {
        let owner = json!({"apiVersion": "example.com/v1", "kind": "Run", "name": "a", "uid": "u0"});
        let metadata = json!({
            "namespace": "x", "name": "train", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [owner],
        });
        let id = Id::new("x", "batch/v1", "Job", "train");
        for (data, is_whole) in [(json!({}), false), (json!({"spec": {"parallelism": 1}}), true)] {
            let mut object = data;
            (object["apiVersion"], object["kind"]) = (json!("batch/v1"), json!("Job"));
            object["metadata"] = metadata.clone();
            let object: Arc<OwnerObject> = Arc::new(serde_json::from_value(object).unwrap());
            let cached = Cached::new(&object, Arc::new(JOB), Instant::now());
            assert_eq!(matches!(cached.state, State::Whole(_)), is_whole);
            assert_eq!(cached.object(&id), object);
        }
    }

    #[test]
    fn first_owners_are_sorted_and_named_once() {
        let mut cached = Cached::new(&Arc::default(), Arc::new(JOB), Instant::now());
        for uid in ["b", "a", "c", "a"] {
            cached.need_for(uid);
        }
        assert_eq!(cached.first_owners, ["a", "b", "c"].map(Text::from));
    }
}

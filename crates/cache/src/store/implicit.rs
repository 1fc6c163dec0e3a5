//! Groups that have no object: a `PodGroup` for each pod that needs none, kept beside those of the API server.
//!
//! Whether a pod has one, and its specification, follows from the pod ([`kai_api::implicit_group`]); a stored object of its
//! name always wins. What reads groups therefore does not differ between both, and only what writes them asks
//! [`Store::is_implicit`].

use super::Store;
use crate::object::{Change, Kind, Object, Pod, PodGroup};
use crate::settings::ImplicitGroups;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff;
use kai_api::implicit_group::{self, LabelKeys};
use kai_api::well_known::annotation;
use kai_engine::input::Key;
use std::collections::{BTreeMap, BTreeSet};

/// What the scheduler records on groups. It is kept when the pod changes, and read from the pod that carries it.
const RECORDED: [&str; 3] =
    [annotation::LAST_START, annotation::MAX_RUNTIME_WARNING, annotation::MAX_RUNTIME_ENDED];
/// Of these, what only counts once it has been compared with the clock.
const COMPARED: &str = annotation::LAST_START;

#[derive(Debug, Default)]
pub(super) struct Implicit {
    /// The pods that need no object, by the name of their group.
    candidates: BTreeMap<Key, Candidate>,
    /// Groups that have appeared, changed or gone since [`Store::take_changed_implicit`].
    changed: BTreeSet<Key>,
    /// Priority classes have appeared or gone, on which the specifications depend.
    classes_changed: bool,
}

impl Implicit {
    /// A priority class has appeared or gone.
    pub(super) fn classes_changed(&mut self) {
        self.classes_changed = true;
    }
}

#[derive(Debug)]
struct Candidate {
    pod: Key,
    /// Whether its group has no object.
    is_implicit: bool,
}

impl Store {
    /// A store of the same objects, with other settings.
    #[must_use]
    pub fn copy_with(&self, settings: crate::Settings) -> Self {
        let mut objects = self.objects.clone();
        objects.pod_groups.retain(|key, _| !self.is_implicit(key));
        let mut copy = Self::of(settings, objects);
        for (key, _) in self.implicit_groups() {
            if let Some(known) = self.objects.pod_groups.get(key) {
                copy.record_on_implicit(key, |group| keep_record(known, group));
            }
        }
        copy
    }

    /// Whether a stored group has no object on the API server.
    pub fn is_implicit(&self, group: &Key) -> bool {
        self.implicit.candidates.get(group).is_some_and(|candidate| candidate.is_implicit)
    }

    /// The pod of an implicit group.
    pub fn pod_of_implicit(&self, group: &Key) -> Option<&Key> {
        let candidate = self.implicit.candidates.get(group)?;
        candidate.is_implicit.then_some(&candidate.pod)
    }

    /// Implicit groups with their pods.
    pub fn implicit_groups(&self) -> impl Iterator<Item = (&Key, &Key)> {
        let implicit = self.implicit.candidates.iter().filter(|(_, candidate)| candidate.is_implicit);
        implicit.map(|(group, candidate)| (group, &candidate.pod))
    }

    /// Implicit groups that have appeared, changed or gone since the last call.
    pub fn take_changed_implicit(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.implicit.changed)
    }

    /// Whether [`Store::take_changed_implicit`] would return any.
    pub fn has_changed_implicit(&self) -> bool {
        !self.implicit.changed.is_empty()
    }

    /// Changes what is recorded on an implicit group; returns whether the group is one.
    pub fn record_on_implicit(&mut self, key: &Key, record: impl FnOnce(&mut PodGroup)) -> bool {
        if !self.is_implicit(key) {
            return false;
        }
        if let Some(known) = self.objects.pod_groups.get(key) {
            let mut group = (**known).clone();
            record(&mut group);
            self.put_implicit(key, group);
        }
        true
    }

    /// All pods are new.
    pub(super) fn derive_implicit(&mut self) {
        let pods = self.objects.pods.iter();
        let candidates = pods.filter_map(|(key, pod)| Some((self.implicit_key(key, pod)?, key.clone())));
        for (group, pod) in candidates.collect::<Vec<(Key, Key)>>() {
            self.update_candidate(&group, &pod);
        }
        self.implicit.changed.clear();
    }

    /// A pod has appeared, changed or gone.
    pub(super) fn follow_pod(&mut self, key: &Key, old: Option<&Pod>) {
        let group = self.objects.pods.get(key).and_then(|pod| self.implicit_key(key, pod));
        if let Some(old) = old {
            let before = Key::new(&key.namespace, implicit_group::group_name(old));
            if group.as_ref() != Some(&before)
                && self.implicit.candidates.get(&before).is_some_and(|candidate| candidate.pod == *key)
            {
                self.drop_candidate(&before);
            }
        }
        if let Some(group) = group {
            self.update_candidate(&group, key);
        }
    }

    /// An object has appeared under the name of a group.
    pub(super) fn take_over(&mut self, group: &Key) {
        if let Some(candidate) = self.implicit.candidates.get_mut(group)
            && candidate.is_implicit
        {
            candidate.is_implicit = false;
            self.implicit.changed.insert(group.clone());
        }
    }

    /// The object of a group has gone.
    pub(super) fn release(&mut self, group: &Key) {
        if let Some(candidate) = self.implicit.candidates.get(group) {
            let pod = candidate.pod.clone();
            self.update_candidate(group, &pod);
        }
    }

    /// Forms the specifications again that depend on the priority classes there are.
    pub(super) fn settle_implicit(&mut self) {
        if !std::mem::take(&mut self.implicit.classes_changed) {
            return;
        }
        let all: Vec<(Key, Key)> =
            self.implicit_groups().map(|(group, pod)| (group.clone(), pod.clone())).collect();
        for (group, pod) in all {
            self.update_candidate(&group, &pod);
        }
    }

    fn implicit_key(&self, key: &Key, pod: &Pod) -> Option<Key> {
        let settings = &self.settings;
        let is_in_mode = settings.implicit_groups == ImplicitGroups::OfAllPods
            || (implicit_group::is_marked(&pod.metadata) && !pod.spec.node_name.is_empty());
        let is_ours = || {
            pod.spec.scheduler_name == settings.scheduler_name.as_str()
                && settings.serves_pool(pod.metadata.label(&settings.node_pool_key))
        };
        (is_in_mode && is_ours() && implicit_group::is_candidate(pod, self.label_keys()))
            .then(|| Key::new(&key.namespace, implicit_group::group_name(pod)))
    }

    fn label_keys(&self) -> LabelKeys<'_> {
        LabelKeys { queue: &self.settings.queue_label_key, node_pool: &self.settings.node_pool_key }
    }

    fn update_candidate(&mut self, group: &Key, pod: &Key) {
        let has_object = !self.is_implicit(group) && self.objects.pod_groups.contains_key(group);
        let candidate = Candidate { pod: pod.clone(), is_implicit: !has_object };
        self.implicit.candidates.insert(group.clone(), candidate);
        if has_object {
            return;
        }
        let Some(object) = self.objects.pods.get(pod) else { return };
        let mut formed = self.form(group, object);
        if let Some(known) = self.objects.pod_groups.get(group) {
            keep_record(known, &mut formed);
        }
        self.put_implicit(group, formed);
    }

    fn put_implicit(&mut self, key: &Key, group: PodGroup) {
        let (spec, annotations) = (group.spec.clone(), group.metadata.annotations.clone());
        let decides_alike = match self.objects.insert(Object::from(group)) {
            Change::None => true,
            Change::Replaced(Object::PodGroup(old)) => {
                old.spec == spec
                    && old.metadata.annotations.unwrap_or_default() == annotations.unwrap_or_default()
            }
            Change::Added | Change::Replaced(_) => false,
        };
        if !decides_alike {
            self.stale.mark(Kind::PodGroup, key.clone());
            self.implicit.changed.insert(key.clone());
        }
    }

    fn drop_candidate(&mut self, group: &Key) {
        if self.implicit.candidates.remove(group).is_some_and(|candidate| candidate.is_implicit) {
            self.objects.remove(Kind::PodGroup, group);
            self.stale.mark(Kind::PodGroup, group.clone());
            self.implicit.changed.insert(group.clone());
        }
    }

    /// The group of a pod, as the pod grouper would create it.
    fn form(&self, key: &Key, pod: &Pod) -> PodGroup {
        let metadata = &pod.metadata;
        let classes = &self.objects.priority_classes;
        let exists = |class: &str| classes.keys().any(|known| known.name == class);
        let owned = |texts: &kai_api::value::Labels| -> BTreeMap<String, String> {
            texts.iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
        };
        let mut annotations = owned(&metadata.annotations);
        annotations.retain(|name, _| RECORDED.contains(&name.as_str()) && name != COMPARED);
        let created = metadata.creation_timestamp.map(|at| at.0.0);
        let created = created.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        PodGroup {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: Some(metadata.uid.to_string()),
                creation_timestamp: created.map(Time),
                labels: Some(owned(&metadata.labels)),
                annotations: Some(annotations),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: metadata.name.to_string(),
                    uid: metadata.uid.to_string(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: implicit_group::spec(pod, self.label_keys(), exists),
            status: None,
        }
    }
}

/// Copies what the scheduler has recorded on a group.
fn keep_record(known: &PodGroup, formed: &mut PodGroup) {
    let Some(recorded) = &known.metadata.annotations else { return };
    let of_formed = formed.metadata.annotations.get_or_insert_default();
    for name in RECORDED {
        if let Some(value) = recorded.get(name) {
            of_formed.insert(name.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests;

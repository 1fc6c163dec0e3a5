//! Finds the group that somebody means: by its own name, by a pod of it, or by the workload that owns its pods.

use super::super::Moment;
use super::super::near::near;
use anyhow::anyhow;
use kai_api::meta::Owner;
use kai_cache::object::Pod;
use kai_cache::translate::pod::group_of;
use kai_engine::explain::Sentence;
use kai_engine::input::Key;
use kai_object as object;
use kai_runtime::api::{self, Api};
use kai_runtime::kind;
use std::collections::BTreeSet;

/// What was meant.
pub(super) enum Found {
    /// One group, or several of one workload.
    Groups(Vec<Key>),
    /// A pod without a group.
    Lone(Key, Lone),
}

/// Why a pod has no group.
pub(super) enum Lone {
    /// Another scheduler places it.
    Foreign(String),
    /// Nobody has put it into a group.
    Ungrouped,
    /// The group that it names does not exist.
    Missing(Key),
    /// It has failed, and counts for nothing.
    Failed(String),
}

impl Lone {
    /// It in words, with what would help.
    pub(super) fn sentence(&self, scheduler: &str) -> Sentence {
        let (text, hint) = match self {
            Self::Foreign(name) => (
                format!("is placed by the scheduler `{name}`, not by `{scheduler}`"),
                Some(format!("`spec.schedulerName: {scheduler}` makes it ours; it is set when a pod is created")),
            ),
            Self::Ungrouped => (
                "is in no group, and only groups are placed".to_owned(),
                Some("the pod grouper gives it one when it runs; or name one in the annotation `pod-group-name`".to_owned()),
            ),
            Self::Missing(group) => (
                format!("is in the group `{group}`, which does not exist"),
                Some("create the PodGroup, or correct the annotation `pod-group-name`".to_owned()),
            ),
            Self::Failed(why) => (format!("has failed{why}"), None),
        };
        Sentence { text, hint }
    }
}

/// Finds it among what was read.
pub(super) fn find(moment: &Moment, wanted: &Key) -> Option<Found> {
    let objects = moment.store.objects();
    if objects.pod_groups.contains_key(wanted) {
        return Some(Found::Groups(vec![wanted.clone()]));
    }
    if let Some(pod) = objects.pods.get(wanted) {
        return Some(of_pod(moment, wanted, pod));
    }
    let owned = objects.pod_groups.iter().filter(|(key, _)| key.namespace == wanted.namespace);
    let owned = owned.filter(|(_, group)| {
        let owners = group.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| owner.name == wanted.name)
    });
    let mut groups: BTreeSet<Key> = owned.map(|(key, _)| key.clone()).collect();
    let mut lone = None;
    for (key, pod) in objects.pods.iter().filter(|(key, _)| key.namespace == wanted.namespace) {
        if !is_of(pod, &wanted.name) {
            continue;
        }
        match of_pod(moment, key, pod) {
            Found::Groups(of_pod) => groups.extend(of_pod),
            Found::Lone(pod, why) => lone = lone.or(Some(Found::Lone(pod, why))),
        }
    }
    if groups.is_empty() { lone } else { Some(Found::Groups(groups.into_iter().collect())) }
}

/// Failed pods are not read with the others, as they count for nothing; but people ask about them.
pub(super) async fn ended(api: &Api, wanted: &Key) -> api::Result<Option<Found>> {
    let key = kai_runtime::Key::new(&wanted.namespace, &wanted.name);
    match api.get(&kind::POD, &key).await {
        Ok(pod) => {
            let why = [object::str_at(&pod, "/status/reason"), object::str_at(&pod, "/status/message")];
            let why: Vec<&str> = why.into_iter().filter(|text| !text.is_empty()).collect();
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(": ")) };
            Ok(Some(Found::Lone(wanted.clone(), Lone::Failed(why))))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says that there is no such thing, and what may have been meant.
pub(super) fn missing(moment: &Moment, wanted: &Key) -> anyhow::Error {
    let objects = moment.store.objects();
    let groups = objects.pod_groups.keys().map(|key| (key.namespace.as_str(), key.name.as_str()));
    let pods = objects.pods.iter().flat_map(|(key, pod)| {
        let owners = pod.metadata.owner_references.iter().map(|owner| (key.namespace.as_str(), &*owner.name));
        owners.chain([(key.namespace.as_str(), key.name.as_str())])
    });
    let near = near((&wanted.namespace, &wanted.name), groups.chain(pods));
    let hint = match near.as_slice() {
        [] => "`kai jobs` lists all groups".to_owned(),
        [only] => format!("did you mean `{only}`?"),
        several => format!("did you mean one of `{}`?", several.join("`, `")),
    };
    anyhow!("there is no PodGroup, pod or workload with pods `{wanted}`; hint: {hint}")
}

fn of_pod(moment: &Moment, key: &Key, pod: &Pod) -> Found {
    let ours = &moment.store.settings().scheduler_name;
    match group_of(pod) {
        _ if pod.spec.scheduler_name != ours.as_str() => {
            Found::Lone(key.clone(), Lone::Foreign(pod.spec.scheduler_name.to_string()))
        }
        Some(group) if moment.store.objects().pod_groups.contains_key(&group) => Found::Groups(vec![group]),
        Some(group) => Found::Lone(key.clone(), Lone::Missing(group)),
        None => Found::Lone(key.clone(), Lone::Ungrouped),
    }
}

/// Whether a workload of this name has the pod. A deployment has it through a replica set, whose name ends in the hash
/// that the pod has as a label.
fn is_of(pod: &Pod, workload: &str) -> bool {
    let hash = pod.metadata.label("pod-template-hash");
    let is_it = |owner: &Owner| {
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
        &*owner.name == workload || deployment == Some(workload)
    };
    pod.metadata.owner_references.iter().any(is_it)
}

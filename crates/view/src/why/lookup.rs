//! Finds the pod groups of a name: of a group, of one of its pods, or of the workload that owns its pods.

use super::record;
use crate::reader::ClusterView;
use crate::suggestions::suggestions;
use crate::workload::is_type_of;
use kai_api::meta::Owner;
use kai_cache::object::Pod;
use kai_cache::translate::pod::group_of;
use kai_engine::explain::Sentence;
use kai_engine::input::Key;
use kai_engine::verdict::Verdict;
use kai_object as object;
use kai_runtime::api::{self, Api};
use kai_runtime::kind;
use std::collections::{BTreeMap, BTreeSet};

pub(super) enum Found {
    /// One group, or several of one workload.
    Groups(Vec<Key>),
    Ungrouped(Key, Ungrouped),
}

/// Why a pod has no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ungrouped {
    /// Its `schedulerName` is another one.
    OtherScheduler(String),
    NotGrouped,
    /// The pod grouper reported why it has none.
    Refused(String),
    /// The group that it names does not exist.
    MissingGroup(Key),
    /// It has failed, for this reason.
    Failed(String),
}

impl Ungrouped {
    pub(super) fn sentence(&self, scheduler: &str) -> Sentence {
        let (text, hint) = match self {
            Self::OtherScheduler(name) => (
                format!("is scheduled by `{name}`, not by `{scheduler}`"),
                Some(format!("set `spec.schedulerName: {scheduler}` when the pod is created")),
            ),
            Self::NotGrouped => (
                "has no pod group, and only pod groups are scheduled".to_owned(),
                Some(
                    "run the pod grouper, which creates one, or set the annotation `pod-group-name`"
                        .to_owned(),
                ),
            ),
            Self::Refused(why) => (format!("has no pod group: {why}"), None),
            Self::MissingGroup(group) => (
                format!("names the pod group `{group}`, which does not exist"),
                Some("create the PodGroup, or correct the annotation `pod-group-name`".to_owned()),
            ),
            Self::Failed(why) => (format!("has failed{why}"), None),
        };
        Sentence { text, hint }
    }
}

/// Kinds that are known also where no object is of them.
const KINDS: [&str; 12] = [
    "PodGroup",
    "Pod",
    "Job",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "CronJob",
    "PyTorchJob",
    "RayJob",
    "RayCluster",
    "JobSet",
    "LeaderWorkerSet",
];

/// Whether a word is a type, as before the slash of `job/train`: a kind that groups or pods can belong to.
pub fn is_type(view: &ClusterView, word: &str) -> bool {
    let objects = view.store.objects();
    let of_groups =
        objects.pod_groups.values().flat_map(|group| group.metadata.owner_references.iter().flatten());
    let of_pods = objects.pods.values().flat_map(|pod| pod.metadata.owner_references.iter());
    KINDS.iter().any(|kind| is_type_of(word, kind))
        || of_groups.map(|owner| owner.kind.as_str()).any(|kind| is_type_of(word, kind))
        || of_pods.map(|owner| &*owner.kind).any(|kind| is_type_of(word, kind))
}

/// Finds a name among the objects of the view, of any type or of one.
pub(super) fn find(view: &ClusterView, kind: Option<&str>, wanted: &Key) -> Option<Found> {
    let objects = view.store.objects();
    let is_wanted = |of: &str| kind.is_none_or(|kind| is_type_of(kind, of));
    if is_wanted("PodGroup") && objects.pod_groups.contains_key(wanted) {
        return Some(Found::Groups(vec![wanted.clone()]));
    }
    if let Some(pod) = objects.pods.get(wanted).filter(|_| is_wanted("Pod")) {
        return Some(of_pod(view, wanted, pod));
    }
    let owned = objects.pod_groups.iter().filter(|(key, _)| key.namespace == wanted.namespace);
    let owned = owned.filter(|(_, group)| {
        let mut owners = group.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.name == wanted.name && is_wanted(&owner.kind))
    });
    let mut groups: BTreeSet<Key> = owned.map(|(key, _)| key.clone()).collect();
    let mut ungrouped = None;
    for (key, pod) in objects.pods.iter().filter(|(key, _)| key.namespace == wanted.namespace) {
        if !is_owned_by(pod, &wanted.name, is_wanted) {
            continue;
        }
        match of_pod(view, key, pod) {
            Found::Groups(of_pod) => groups.extend(of_pod),
            Found::Ungrouped(pod, why) => ungrouped = ungrouped.or(Some(Found::Ungrouped(pod, why))),
        }
    }
    if groups.is_empty() { ungrouped } else { Some(Found::Groups(groups.into_iter().collect())) }
}

/// The pending groups of a queue and of those below it; `None` where there is no such queue.
pub(super) fn pending_of_queue(view: &ClusterView, queue: &str) -> Option<Vec<Key>> {
    if !view.store.objects().queues.contains_key(&Key::new("", queue)) {
        return None;
    }
    let reports = view.outcome.queues.iter();
    let parents: BTreeMap<&str, &str> =
        reports.filter_map(|report| Some((report.name.as_str(), report.parent.as_deref()?))).collect();
    let is_below = |name: &str| {
        // A report is a tree by contract; more levels than queues would be a cycle.
        let mut path = std::iter::successors(Some(name), |name| parents.get(name).copied());
        path.by_ref().take(parents.len() + 1).any(|name| name == queue)
    };
    let pending =
        view.outcome.verdicts.iter().filter(|of| of.leading != Verdict::Placed && is_below(&of.queue));
    Some(pending.map(|verdict| verdict.group.clone()).collect())
}

/// Looks up a failed pod; the scheduler does not list them, as they hold no resources.
pub(super) async fn failed_pod(api: &Api, wanted: &Key) -> api::Result<Option<Found>> {
    let key = kai_runtime::Key::new(&wanted.namespace, &wanted.name);
    match api.get_dynamic(&kind::POD, &key).await {
        Ok(pod) => {
            let why = [object::str_at(&pod, "/status/reason"), object::str_at(&pod, "/status/message")];
            let why: Vec<&str> = why.into_iter().filter(|text| !text.is_empty()).collect();
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(": ")) };
            Ok(Some(Found::Ungrouped(wanted.clone(), Ungrouped::Failed(why))))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks up why a pod is not grouped, in the events of the pod grouper.
pub(super) async fn with_cause(view: &ClusterView, api: &Api, pod: &Key, why: Ungrouped) -> Ungrouped {
    const REASON: &str = "PodGrouperWarning";
    if why != Ungrouped::NotGrouped {
        return why;
    }
    // Without events it is still known that the pod has no group.
    let known = view.store.objects().pods.get(pod);
    let uid = known.map(|known| known.metadata.uid.to_string()).unwrap_or_default();
    let events = record::events_of(api, &pod.namespace, "Pod", &pod.name, &uid).await.unwrap_or_default();
    let reported = events.into_iter().filter(|event| event.reason == REASON);
    let last = reported.max_by_key(|event| event.timestamp);
    last.map_or(why, |event| Ungrouped::Refused(event.message))
}

/// Names that resemble the wanted one.
pub(super) fn similar(view: &ClusterView, wanted: &Key) -> Vec<String> {
    let objects = view.store.objects();
    let groups = objects.pod_groups.keys().map(|key| (key.namespace.as_str(), key.name.as_str()));
    let pods = objects.pods.iter().flat_map(|(key, pod)| {
        let owners = pod.metadata.owner_references.iter().map(|owner| (key.namespace.as_str(), &*owner.name));
        owners.chain([(key.namespace.as_str(), key.name.as_str())])
    });
    suggestions((&wanted.namespace, &wanted.name), groups.chain(pods))
}

fn of_pod(view: &ClusterView, key: &Key, pod: &Pod) -> Found {
    let scheduler = &view.store.settings().scheduler_name;
    match group_of(pod) {
        _ if pod.spec.scheduler_name != scheduler.as_str() => {
            Found::Ungrouped(key.clone(), Ungrouped::OtherScheduler(pod.spec.scheduler_name.to_string()))
        }
        Some(group) if view.store.objects().pod_groups.contains_key(&group) => Found::Groups(vec![group]),
        Some(group) if pod.named_group().is_some() => {
            Found::Ungrouped(key.clone(), Ungrouped::MissingGroup(group))
        }
        // The group that is implied has not been made.
        Some(_) | None => Found::Ungrouped(key.clone(), Ungrouped::NotGrouped),
    }
}

/// Whether a workload owns the pod. A `Deployment` owns it through a `ReplicaSet`, whose name ends in the value of the label
/// `pod-template-hash`.
fn is_owned_by(pod: &Pod, workload: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let hash = pod.metadata.label("pod-template-hash");
    let is_owner = |owner: &Owner| {
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
        *owner.name == *workload && is_wanted(&owner.kind)
            || deployment == Some(workload) && is_wanted("Deployment")
    };
    pod.metadata.owner_references.iter().any(is_owner)
}

//! Tells objects what is odd about them: by an event each, and a pod that is not placed for it by its condition too.
//!
//! What follows for a group that waits is its verdict's to say; here is what no verdict says, such as an annotation
//! that has no effect, queues that go in a circle, or a pod of a group that is not there.

use super::Heart;
use crate::effect::condition;
use crate::resources::{api_key, of};
use kai_api::well_known::annotation;
use kai_cache::object::Objects;
use kai_cache::translate::pod as pods;
use kai_cache::{Finding, Gravity, Kind};
use kai_engine::input::Key;
use kai_runtime::event::{Event, EventType, Regarding};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The reason of events about what is odd.
const REASON: &str = "OddInput";

/// What objects have been told, and whom something is to be told of.
#[derive(Debug, Default)]
pub(super) struct Odd {
    /// What each object was told, with its uid.
    told: BTreeMap<(Kind, Key), (String, Vec<String>)>,
    /// Pods that name a group that was not there, and since when; those that were told are not looked at again.
    groupless: BTreeMap<Key, Option<Instant>>,
    queues_changed: bool,
}

impl Odd {
    /// Notes whether a pod waits for a group that is not there.
    pub(super) fn groupless(&mut self, pod: &Key, groupless: bool) {
        if groupless {
            self.groupless.entry(pod.clone()).or_insert_with(|| Some(Instant::now()));
        } else {
            self.groupless.remove(pod);
        }
    }

    pub(super) fn queues_changed(&mut self) {
        self.queues_changed = true;
    }

    pub(super) fn forget(&mut self, kind: Kind, key: &Key) {
        self.told.remove(&(kind, key.clone()));
        if kind == Kind::Pod {
            self.groupless.remove(key);
        }
    }

    /// When somebody is to be told something that time alone makes odd.
    pub(super) fn next(&self, after: Duration) -> Option<Instant> {
        self.groupless.values().flatten().min().map(|since| *since + after)
    }
}

impl Heart {
    /// Tells what is odd about objects that were read, and about pods that have waited for a group for long enough.
    pub(super) fn tell_odd(&mut self, now: Instant) {
        let mut findings = self.cache.store_mut().take_found();
        if std::mem::take(&mut self.odd.queues_changed) {
            findings.append(&mut self.cache.store().odd_queues());
        }
        findings.append(&mut self.lost_pods(now));
        let mut by_object: BTreeMap<(Kind, Key), Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            by_object.entry((finding.kind, finding.key.clone())).or_default().push(finding);
        }
        for (id, findings) in by_object {
            self.tell_object(id, &findings);
        }
    }

    /// Pods that have waited for their group for long enough.
    fn lost_pods(&mut self, now: Instant) -> Vec<Finding> {
        let after = self.options.tell_after;
        let due = |since: &Option<Instant>| since.is_some_and(|since| now.duration_since(since) >= after);
        let due: Vec<Key> =
            self.odd.groupless.iter().filter(|(_, since)| due(since)).map(|(pod, _)| pod.clone()).collect();
        let mut findings = Vec::new();
        for pod in due {
            let objects = self.cache.store().objects();
            let group = objects.pods.get(&pod).and_then(|pod| pods::group_of(pod));
            match group.filter(|group| !objects.pod_groups.contains_key(group)) {
                Some(group) => {
                    findings.push(group_missing(&pod, &group));
                    self.odd.groupless.insert(pod, None);
                }
                None => {
                    self.odd.groupless.remove(&pod);
                }
            }
        }
        findings
    }

    fn tell_object(&mut self, (kind, key): (Kind, Key), findings: &[Finding]) {
        let objects = self.cache.store().objects();
        let Some(uid) = uid(objects, kind, &key, &self.options.settings.scheduler_name) else { return };
        let mut texts: Vec<String> = findings.iter().map(words).collect();
        texts.sort();
        texts.dedup();
        let known = self.odd.told.insert((kind, key.clone()), (uid.clone(), texts.clone()));
        let said = |text: &String| known.as_ref().is_some_and(|(of, said)| *of == uid && said.contains(text));
        for text in texts.iter().filter(|text| !said(text)) {
            self.recorder.record(&Event {
                regarding: Regarding { kind: of(kind), key: api_key(&key), uid: uid.clone() },
                type_: EventType::Warning,
                reason: REASON,
                message: text.clone(),
                annotations: BTreeMap::new(),
            });
        }
        let refusal = findings.iter().find(|finding| finding.gravity == Gravity::Refusal).map(words);
        if let Some(refusal) = refusal.filter(|text| kind == Kind::Pod && !said(text)) {
            let time = self.clock.time();
            self.writer.submit(condition::write_pod(&key, &uid, "Unschedulable", &refusal, &time));
        }
    }
}

fn words(finding: &Finding) -> String {
    format!("`{}`: {}; hint: {}", finding.field, finding.problem, finding.hint)
}

fn group_missing(pod: &Key, group: &Key) -> Finding {
    Finding {
        kind: Kind::Pod,
        key: pod.clone(),
        field: format!("metadata.annotations[{}]", annotation::POD_GROUP),
        problem: format!(
            "the group `{}` is not in the pod's namespace, so the pod is not placed",
            group.name
        ),
        hint: "create the group in the same namespace, or remove the annotation".to_owned(),
        gravity: Gravity::Refusal,
    }
}

/// The uid of an object that may be told something: it is there, and a pod is ours and not over.
fn uid(objects: &Objects, kind: Kind, key: &Key, scheduler: &str) -> Option<String> {
    match kind {
        Kind::Pod => {
            let pod = objects.pods.get(key).filter(|pod| pod.spec.scheduler_name == scheduler)?;
            let over = matches!(&*pod.status.phase, "Succeeded" | "Failed");
            (!over).then(|| pod.metadata.uid.to_string())
        }
        Kind::Node => objects.nodes.get(key).map(|node| node.metadata.uid.to_string()),
        Kind::Queue => objects.queues.get(key).map(|queue| queue.metadata.uid.clone().unwrap_or_default()),
        Kind::PodGroup => {
            objects.pod_groups.get(key).map(|group| group.metadata.uid.clone().unwrap_or_default())
        }
        Kind::ResourceClaim
        | Kind::ResourceSlice
        | Kind::DeviceClass
        | Kind::PersistentVolume
        | Kind::PersistentVolumeClaim
        | Kind::StorageClass
        | Kind::CsiStorageCapacity
        | Kind::PodDisruptionBudget
        | Kind::Topology
        | Kind::NodeResourceTopology => objects.contains(kind, key).then(String::new),
        Kind::Namespace
        | Kind::ConfigMap
        | Kind::PriorityClass
        | Kind::CsiDriver
        | Kind::CsiNode
        | Kind::BindRequest => None,
    }
}

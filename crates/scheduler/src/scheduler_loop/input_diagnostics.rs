//! Reports invalid and unsupported input on its object: by an event, and on a pod that is therefore not placed also by
//! its condition.
//!
//! Verdicts explain pending groups. This module reports what no verdict covers, such as an annotation without effect, a
//! cycle among queues, a pod whose group does not exist, or a group that names a missing priority class.

#![expect(clippy::indexing_slicing, reason = "by the indices of the cluster model")]

use super::SchedulerLoop;
use crate::effect::condition::PodCondition;
use crate::resources::of;
use kai_api::well_known::annotation;
use kai_cache::object::Objects;
use kai_cache::translate::pod as pods;
use kai_cache::{Finding, Kind, Severity};
use kai_engine::input::Key;
use kai_runtime::event::{Event, EventType, Regarding};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The reason of the events.
const REASON: &str = "InvalidInput";

#[derive(Debug, Default)]
pub(super) struct InputDiagnostics {
    /// The messages reported on each object, with its uid.
    reported: BTreeMap<(Kind, Key), (String, Vec<String>)>,
    /// Pods whose group does not exist, and since when; `None` once that is reported.
    group_missing: BTreeMap<Key, Option<Instant>>,
    /// Groups that name a queue, a priority class or a topology that did not exist, and since when.
    lack_reference: BTreeMap<Key, Instant>,
    /// Since when all groups may name objects that do not exist.
    references_changed: Option<Instant>,
    queues_changed: bool,
}

impl InputDiagnostics {
    /// Records whether the group of a pending pod is missing.
    pub(super) fn set_group_missing(&mut self, pod: &Key, is_missing: bool) {
        if is_missing {
            self.group_missing.entry(pod.clone()).or_insert_with(|| Some(Instant::now()));
        } else {
            self.group_missing.remove(pod);
        }
    }

    /// Records whether a group names an object that does not exist. What it names often follows at once.
    pub(super) fn set_lacks_reference(&mut self, group: &Key, lacks: bool) {
        if lacks {
            self.lack_reference.entry(group.clone()).or_insert_with(Instant::now);
        } else {
            self.lack_reference.remove(group);
        }
    }

    /// Looks at the references of all groups later: an object that groups may name is gone, or not all are listed yet.
    pub(super) fn references_changed(&mut self) {
        self.references_changed.get_or_insert_with(Instant::now);
    }

    pub(super) fn queues_changed(&mut self) {
        self.queues_changed = true;
    }

    pub(super) fn forget(&mut self, kind: Kind, key: &Key) {
        self.reported.remove(&(kind, key.clone()));
        if kind == Kind::Pod {
            self.group_missing.remove(key);
        } else if kind == Kind::PodGroup {
            self.lack_reference.remove(key);
        } else if matches!(kind, Kind::Queue | Kind::PriorityClass | Kind::Topology) {
            self.references_changed();
        }
    }

    /// When the next missing object is due to be reported.
    pub(super) fn next_report(&self, after: Duration) -> Option<Instant> {
        let groups = self.group_missing.values().flatten();
        let all = groups.chain(self.lack_reference.values()).chain(&self.references_changed);
        all.min().map(|since| *since + after)
    }
}

impl SchedulerLoop {
    /// Reports the findings on objects that were translated since the last call, and pods whose group has been missing
    /// for long enough.
    pub(super) fn report_diagnostics(&mut self, now: Instant) {
        let mut findings = self.cache.store_mut().take_new_findings();
        if std::mem::take(&mut self.diagnostics.queues_changed) {
            findings.append(&mut self.cache.store().queue_findings());
        }
        findings.append(&mut self.pods_missing_group(now));
        findings.append(&mut self.groups_lacking_references(now, &findings));
        let mut by_object: BTreeMap<(Kind, Key), Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            by_object.entry((finding.kind, finding.key.clone())).or_default().push(finding);
        }
        for (id, findings) in by_object {
            self.report_object(id, &findings);
        }
    }

    fn pods_missing_group(&mut self, now: Instant) -> Vec<Finding> {
        let after = self.options.report_after;
        let due = |since: &Option<Instant>| since.is_some_and(|since| now.duration_since(since) >= after);
        let due: Vec<Key> = self
            .diagnostics
            .group_missing
            .iter()
            .filter(|(_, since)| due(since))
            .map(|(pod, _)| pod.clone())
            .collect();
        let mut findings = Vec::new();
        for pod in due {
            let objects = self.cache.store().objects();
            let group = objects.pods.get(&pod).and_then(|pod| pods::named_group(pod));
            match group.filter(|group| !objects.pod_groups.contains_key(group)) {
                Some(group) => {
                    findings.push(missing_group(&pod, &group));
                    self.diagnostics.group_missing.insert(pod, None);
                }
                None => {
                    self.diagnostics.group_missing.remove(&pod);
                }
            }
        }
        findings
    }

    /// The findings on groups that have named missing objects for long enough. They come with all other findings on the same
    /// groups, since what was reported on an object is replaced as a whole.
    fn groups_lacking_references(&mut self, now: Instant, found: &[Finding]) -> Vec<Finding> {
        let after = self.options.report_after;
        let is_due = |since: &Instant| now.duration_since(*since) >= after;
        let lacking = self.diagnostics.lack_reference.extract_if(.., |_, since| is_due(since));
        let mut groups: BTreeSet<Key> = lacking.map(|(group, _)| group).collect();
        let store = self.cache.store();
        if self.diagnostics.references_changed.take_if(|since| is_due(since)).is_some() {
            let all = store.objects().pod_groups.iter();
            groups.extend(
                all.filter(|(_, group)| store.lacks_reference(group)).map(|(group, _)| group.clone()),
            );
        }
        let reported = &self.diagnostics.reported;
        let of_group = found.iter().filter(|finding| finding.kind == Kind::PodGroup);
        let again = of_group.filter(|of| reported.contains_key(&(Kind::PodGroup, of.key.clone())));
        groups.extend(again.map(|finding| finding.key.clone()));
        let cluster = self.cache.cluster();
        store.group_findings(&groups, |key| {
            cluster.group(key).is_some_and(|group| !cluster.groups[group].pods.is_empty())
        })
    }

    fn report_object(&mut self, (kind, key): (Kind, Key), findings: &[Finding]) {
        if kind == Kind::PodGroup && self.is_implicit(&key) {
            return;
        }
        let objects = self.cache.store().objects();
        let Some(uid) = uid(objects, kind, &key, &self.options.settings.scheduler_name) else { return };
        let mut messages: Vec<String> = findings.iter().map(message).collect();
        messages.sort();
        messages.dedup();
        let reported = self.diagnostics.reported.insert((kind, key.clone()), (uid.clone(), messages.clone()));
        let is_reported = |message: &String| {
            reported.as_ref().is_some_and(|(of, messages)| *of == uid && messages.contains(message))
        };
        for message in messages.iter().filter(|message| !is_reported(message)) {
            self.recorder.record(&Event {
                regarding: Regarding { kind: of(kind), key: key.clone(), uid: uid.clone() },
                type_: EventType::Warning,
                reason: REASON,
                message: message.clone(),
                annotations: BTreeMap::new(),
            });
        }
        let error = findings.iter().find(|finding| finding.severity == Severity::Error).map(message);
        // The condition of a pod that has a node stays: it was placed before it became invalid.
        let is_unplaced = kind == Kind::Pod
            && self.cache.store().objects().pods.get(&key).is_some_and(|pod| pod.spec.node_name.is_empty());
        if let Some(error) = error.filter(|error| is_unplaced && !is_reported(error)) {
            self.write_pod_condition(&PodCondition {
                pod: key,
                uid,
                reason: "Unschedulable",
                message: error,
            });
        }
    }
}

fn message(finding: &Finding) -> String {
    format!("`{}`: {}; hint: {}", finding.field, finding.problem, finding.hint)
}

fn missing_group(pod: &Key, group: &Key) -> Finding {
    Finding {
        kind: Kind::Pod,
        key: pod.clone(),
        field: format!("metadata.annotations[{}]", annotation::POD_GROUP),
        problem: format!(
            "the group `{}` does not exist in the pod's namespace, so the pod is not placed",
            group.name
        ),
        hint: "create the group in the same namespace, or remove the annotation".to_owned(),
        severity: Severity::Error,
    }
}

/// The uid of an object that is reported on: it exists, and a pod belongs to this scheduler and is not terminal.
fn uid(objects: &Objects, kind: Kind, key: &Key, scheduler: &str) -> Option<String> {
    match kind {
        Kind::Pod => {
            let pod = objects.pods.get(key).filter(|pod| pod.spec.scheduler_name == scheduler)?;
            let is_terminal = kai_object::is_terminal_phase(&pod.status.phase);
            (!is_terminal).then(|| pod.metadata.uid.to_string())
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

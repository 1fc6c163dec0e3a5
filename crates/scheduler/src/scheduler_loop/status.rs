//! Reports why groups and pods are pending, in their conditions and by events.

#![expect(clippy::indexing_slicing, reason = "by the indices of the cluster model")]

use super::SchedulerLoop;
use crate::effect::condition::{self, PodCondition};
use crate::event_queue::SchedulerEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_api::pod_group::SchedulingCondition;
use kai_engine::cluster::pod::Status;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::verdict::{GroupVerdict, PodRejection, Verdict};
use kai_runtime::api;
use kai_runtime::event::{Event, EventType, Regarding};
use kai_runtime::kind::POD;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

impl SchedulerLoop {
    /// When the next group has been pending for long enough to be reported.
    pub(super) fn next_report(&self) -> Option<Instant> {
        let unreported = self.reporter.pending.values().filter(|status| status.message.is_none());
        let unreported = unreported.map(|status| status.pending_since + self.options.report_after);
        unreported.chain(self.reporter.retries.next()).min()
    }

    /// Reports changed verdicts of groups that have been pending for long enough, and clears the conditions of groups
    /// that are no longer pending.
    pub(super) fn report_status(&mut self, now: Instant) {
        self.retry_conditions(now);
        let due: Vec<Key> = self
            .reporter
            .pending
            .iter()
            .filter(|(_, status)| now.duration_since(status.pending_since) >= self.options.report_after)
            .map(|(group, _)| group.clone())
            .collect();
        for group in due {
            let Some(verdict) = self.verdicts.get(&group) else { continue };
            let cluster = self.cache.cluster();
            let stamp = cluster.group(&group).map(|group| cluster.groups[group].stamp);
            // Most verdicts are those of the cycle before.
            let Some(status) = self.reporter.pending.get_mut(&group) else { continue };
            if status.source.as_ref().is_some_and(|(known, at)| known == verdict && *at == stamp) {
                continue;
            }
            let verdict = verdict.clone();
            status.source = Some((verdict.clone(), stamp));
            let (message, hint) = (self.message(&verdict), self.hints.of(&verdict));
            let known = self.reporter.pending.get(&group);
            let is_new = known.is_none_or(|status| status.message.as_deref() != Some(message.as_str()));
            if is_new || known.is_some_and(|status| status.hint != hint) {
                if is_new {
                    self.record_pending(&group, &verdict, &message);
                }
                self.report_group(&group, &verdict, with_hint(&message, hint.as_deref()));
                if let Some(status) = self.reporter.pending.get_mut(&group) {
                    (status.message, status.hint) = (Some(message), hint);
                }
            }
            self.report_pods(&group, &verdict);
        }
        for group in self.reporter.take_resolved() {
            self.write_group_conditions(&group, &[]);
        }
    }

    /// Writes the conditions again that conflicted, where they still hold.
    fn retry_conditions(&mut self, now: Instant) {
        let (pods, groups) = self.reporter.retries.take_due(now);
        for condition in pods {
            let store = self.cache.store();
            let pod = store.objects().pods.get(&condition.pod);
            let holds = pod.is_some_and(|pod| *pod.metadata.uid == *condition.uid)
                && store.binds_of(&condition.pod).is_empty();
            if holds {
                self.write_pod_condition(&condition);
            }
        }
        for group in groups {
            self.reporter.report_again(group);
        }
    }

    /// Writes the condition of a pod that has no node.
    pub(super) fn write_pod_condition(&mut self, condition: &PodCondition) {
        self.reporter.retries.forget_pod(&condition.pod);
        // Versions of pods with a node are not kept.
        let Some(version) = self.reporter.versions.pods.get(&condition.pod).copied() else { return };
        let (events, conflicting) = (Arc::clone(&self.events), condition.clone());
        let done = Box::new(move |response: api::Result<Value>| {
            if response.is_err_and(|error| error.is_conflict()) {
                events.push(SchedulerEvent::PodConditionConflict(conflicting));
            }
        });
        self.writer.submit(condition::write_pod(condition, version, &self.clock.time(), done));
    }

    fn write_group_conditions(&self, group: &Key, conditions: &[SchedulingCondition]) {
        let Some(version) = self.reporter.versions.groups.get(group).copied() else { return };
        let (events, conflicting) = (Arc::clone(&self.events), group.clone());
        let done = Box::new(move |response: api::Result<Value>| {
            if response.is_err_and(|error| error.is_conflict()) {
                events.push(SchedulerEvent::GroupConditionConflict(conflicting));
            }
        });
        self.writer.submit(condition::write_group(group, conditions, version, done));
    }

    fn message(&self, verdict: &GroupVerdict) -> String {
        let has_no_fit_error = matches!(
            verdict.leading,
            Verdict::InBackoff { .. } | Verdict::WaitingForVictims { .. } | Verdict::TimeLimitReached { .. }
        );
        let text = if matches!(verdict.leading, Verdict::NotReady { .. }) {
            explain::not_ready_message(self.cache.cluster(), &verdict.group)
        } else if has_no_fit_error {
            explain::plain(&verdict.leading, &verdict.queue).text
        } else if self.options.detailed_fit_errors {
            explain::detailed(verdict)
        } else {
            explain::condition_message(verdict)
        };
        self.in_pool(&verdict.group, text)
    }

    /// With `schedulingBackoff: 1` a group is attempted in one node pool after the other, and messages name the pool.
    fn in_pool(&self, group: &Key, text: String) -> String {
        let known = self.cache.store().objects().pod_groups.get(group);
        if known.is_some_and(|group| group.spec.scheduling_backoff == Some(1)) {
            explain::in_node_pool(&self.options.params.node_pool, &text)
        } else {
            text
        }
    }

    /// Records why a group is pending as an event.
    fn record_pending(&self, group: &Key, verdict: &GroupVerdict, message: &str) {
        let Some(regarding) = self.regarding(group) else { return };
        if matches!(verdict.leading, Verdict::WaitingForVictims { .. }) {
            return;
        }
        let not_ready = matches!(verdict.leading, Verdict::NotReady { .. });
        if !not_ready && self.is_implicit(group) {
            // Its pod gets an event of its own.
            return;
        }
        let reason = if not_ready { "NotReady" } else { "Unschedulable" };
        self.recorder.record(&Event {
            regarding,
            type_: EventType::Normal,
            reason,
            message: message.to_owned(),
            annotations: BTreeMap::new(),
        });
    }

    /// Writes the condition of a group.
    fn report_group(&mut self, group: &Key, verdict: &GroupVerdict, message: String) {
        if self.is_implicit(group) {
            return;
        }
        let Some(known) = self.cache.store().objects().pod_groups.get(group) else { return };
        let stored = known.status.as_ref().map(|s| s.scheduling_conditions.clone()).unwrap_or_default();
        let has_no_condition =
            matches!(verdict.leading, Verdict::NotReady { .. } | Verdict::WaitingForVictims { .. });
        let active = self.cache.cluster().group(group);
        let active = active.is_some_and(|group| self.cache.cluster().groups[group].active_allocated() > 0);
        if has_no_condition || active {
            return;
        }
        let pool = &self.options.params.node_pool;
        let new = condition::of_group(verdict, pool, message, Some(Time(self.clock.now())));
        if let Some(conditions) = self.reporter.update_conditions(group, &stored, new) {
            self.write_group_conditions(group, &conditions);
        }
    }

    /// Records that a group runs below its minimum.
    pub(super) fn report_stale(&self, group: &Key) {
        let Some(regarding) = self.regarding(group) else { return };
        self.recorder.record(&Event {
            regarding,
            type_: EventType::Normal,
            reason: "StaleJob",
            message: explain::stale_message(self.cache.cluster(), group),
            annotations: BTreeMap::new(),
        });
    }

    /// Reports on the pods of a group that are still pending.
    fn report_pods(&mut self, group: &Key, verdict: &GroupVerdict) {
        let cluster = self.cache.cluster();
        let Some(index) = cluster.group(group) else { return };
        let is_reported_on_group_only =
            matches!(verdict.leading, Verdict::NotReady { .. } | Verdict::WaitingForVictims { .. });
        let stored = self.cache.store().objects();
        let marks_pods =
            stored.pod_groups.get(group).is_none_or(|group| group.spec.mark_unschedulable != Some(false));
        // Autoscalers add nodes for pods that are marked, and no node helps an ended group.
        let marks_pods = marks_pods && !matches!(verdict.leading, Verdict::TimeLimitReached { .. });
        let mut pending: Vec<(Key, String, bool)> = Vec::new();
        for pod in &cluster.groups[index].pods {
            let key = cluster.pod_key(*pod);
            let is_invalid = names_unknown_sub_group(verdict, &key);
            let is_pending = matches!(cluster.pods[*pod].state.status, Status::Pending | Status::InBackoff)
                && !is_reported_on_group_only;
            if !is_pending && !is_invalid {
                continue;
            }
            let Some(uid) = stored.pods.get(&key).map(|pod| pod.metadata.uid.to_string()) else { continue };
            pending.push((key, uid, marks_pods || is_invalid));
        }
        let pods: Vec<Key> = pending.iter().map(|(pod, ..)| pod.clone()).collect();
        let messages = self.pod_messages(verdict, &pods);
        // The condition of the pod is that of its group, too.
        let hint = if self.is_implicit(group) { self.hints.of(verdict) } else { None };
        for ((pod, uid, marks_pod), message) in pending.into_iter().zip(messages) {
            let message = with_hint(&self.in_pool(group, message), hint.as_deref());
            let Some(status) = self.reporter.pending.get_mut(group) else { return };
            let known = status.pods.insert((pod.clone(), uid.clone()), message.clone());
            if known.as_deref() == Some(message.as_str()) {
                continue;
            }
            self.recorder.record(&Event {
                regarding: Regarding { kind: POD, key: pod.clone(), uid: uid.clone() },
                type_: EventType::Warning,
                reason: "Unschedulable",
                message: message.clone(),
                annotations: BTreeMap::new(),
            });
            if marks_pod {
                self.write_pod_condition(&PodCondition { pod, uid, reason: "Unschedulable", message });
            }
        }
    }

    /// The messages of pending pods of a group, in their order.
    fn pod_messages(&mut self, verdict: &GroupVerdict, pods: &[Key]) -> Vec<String> {
        if matches!(verdict.leading, Verdict::InBackoff { .. } | Verdict::TimeLimitReached { .. }) {
            let text = explain::plain(&verdict.leading, &verdict.queue).text;
            return vec![text; pods.len()];
        }
        if self.options.detailed_fit_errors {
            let (policy, verdict, pods) = (Arc::clone(self.policy()), verdict.clone(), pods.to_vec());
            let detailed = self.with_plugins(&policy, move |cluster, policy| {
                let message = |pod| explain::detailed_pod_message(cluster, policy, &verdict, pod);
                pods.iter().map(message).collect()
            });
            if let Some(detailed) = detailed {
                return detailed;
            }
        }
        pods.iter().map(|pod| explain::pod_message(verdict, pod)).collect()
    }
}

/// The message of a condition: what KAI would write, then the hint.
fn with_hint(message: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{} Hint: {hint}.", message.trim_end()),
        None => message.to_owned(),
    }
}

/// Whether a pod names a sub-group that its group does not have.
fn names_unknown_sub_group(verdict: &GroupVerdict, pod: &Key) -> bool {
    std::iter::once(&verdict.leading).chain(&verdict.further).any(|verdict| {
        matches!(verdict, Verdict::PodUnschedulable { pod: of, reason: PodRejection::UnknownSubGroup(_), .. } if of == pod)
    })
}

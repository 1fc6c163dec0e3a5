//! Tells groups and pods why they wait: in their conditions, and by events.

use super::Heart;
use crate::effect::condition;
use crate::resources::{POD_GROUP, api_key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_engine::cluster::pod::Status;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::verdict::{GroupVerdict, PodRejection, Verdict};
use kai_runtime::event::{Event, EventType, Regarding};
use kai_runtime::kind::POD;
use std::collections::BTreeMap;
use tokio::time::Instant;

impl Heart {
    /// When somebody is to be told something.
    pub(super) fn next_telling(&self) -> Option<Instant> {
        let untold = self.told.waiting.values().filter(|telling| telling.message.is_none());
        untold.map(|telling| telling.since + self.options.tell_after).min()
    }

    /// Tells everybody who has waited long enough what is new, and clears what is over.
    pub(super) fn tell(&mut self, now: Instant) {
        let due: Vec<Key> = self
            .told
            .waiting
            .iter()
            .filter(|(_, telling)| now.duration_since(telling.since) >= self.options.tell_after)
            .map(|(group, _)| group.clone())
            .collect();
        for group in due {
            let Some(verdict) = self.verdicts.get(&group) else { continue };
            let cluster = self.cache.cluster();
            let stamp = cluster.group(&group).map(|group| cluster.groups[group].stamp);
            // Most of those who wait wait for the same as before.
            let Some(telling) = self.told.waiting.get_mut(&group) else { continue };
            if telling.about.as_ref().is_some_and(|(told, at)| told == verdict && *at == stamp) {
                continue;
            }
            let verdict = verdict.clone();
            telling.about = Some((verdict.clone(), stamp));
            let message = self.message(&verdict);
            let known = self.told.waiting.get(&group).and_then(|telling| telling.message.clone());
            if known.as_deref() != Some(message.as_str()) {
                self.tell_group(&group, &verdict, &message);
                if let Some(telling) = self.told.waiting.get_mut(&group) {
                    telling.message = Some(message);
                }
            }
            self.tell_pods(&group, &verdict);
        }
        for group in self.told.over() {
            self.writer.submit(condition::write_group(&group, &[]));
        }
    }

    fn message(&self, verdict: &GroupVerdict) -> String {
        let has_no_obstacle = matches!(
            verdict.leading,
            Verdict::NotReady { .. } | Verdict::InBackoff { .. } | Verdict::WaitingForVictims { .. }
        );
        let text = if has_no_obstacle {
            explain::plain(&verdict.leading, &verdict.queue).text
        } else if self.options.detailed_fit_errors {
            explain::detailed(verdict)
        } else {
            explain::condition_message(verdict)
        };
        self.in_pool(&verdict.group, text)
    }

    /// Groups that are tried in one pool after the other say which one it was.
    fn in_pool(&self, group: &Key, text: String) -> String {
        let known = self.cache.store().objects().pod_groups.get(group);
        if known.is_some_and(|group| group.spec.scheduling_backoff == Some(1)) {
            explain::in_node_pool(&self.options.params.node_pool, &text)
        } else {
            text
        }
    }

    fn tell_group(&mut self, group: &Key, verdict: &GroupVerdict, message: &str) {
        let Some(known) = self.cache.store().objects().pod_groups.get(group) else { return };
        let regarding = Regarding {
            kind: POD_GROUP,
            key: api_key(group),
            uid: known.metadata.uid.clone().unwrap_or_default(),
        };
        let stored = known.status.as_ref().map(|s| s.scheduling_conditions.clone()).unwrap_or_default();
        let not_ready = matches!(verdict.leading, Verdict::NotReady { .. });
        let waits = matches!(verdict.leading, Verdict::WaitingForVictims { .. });
        let reason = if not_ready { "NotReady" } else { "Unschedulable" };
        if !waits {
            self.recorder.record(&Event {
                regarding,
                type_: EventType::Normal,
                reason,
                message: message.to_owned(),
                annotations: BTreeMap::new(),
            });
        }
        let active = self.cache.cluster().group(group);
        let active = active.is_some_and(|group| self.cache.cluster().groups[group].active_allocated() > 0);
        if not_ready || waits || active {
            return;
        }
        let pool = &self.options.params.node_pool;
        let new = condition::of_group(verdict, pool, message.to_owned(), Some(Time(self.clock.now())));
        if let Some(conditions) = self.told.condition(group, &stored, new) {
            self.writer.submit(condition::write_group(group, &conditions));
        }
    }

    /// Tells the pods of a group that still have no place.
    fn tell_pods(&mut self, group: &Key, verdict: &GroupVerdict) {
        let cluster = self.cache.cluster();
        let Some(index) = cluster.group(group) else { return };
        let silent = matches!(verdict.leading, Verdict::NotReady { .. } | Verdict::WaitingForVictims { .. });
        let stored = self.cache.store().objects();
        let marks =
            stored.pod_groups.get(group).is_none_or(|group| group.spec.mark_unschedulable != Some(false));
        let mut news: Vec<(Key, String, String, bool)> = Vec::new();
        for pod in &cluster.groups[index].pods {
            let key = cluster.pod_key(*pod);
            let stranger = is_stranger(verdict, &key);
            let waits = cluster.pods[*pod].state.status == Status::Pending && !silent;
            if !waits && !stranger {
                continue;
            }
            let Some(uid) = stored.pods.get(&key).map(|pod| pod.metadata.uid.to_string()) else { continue };
            let message = if matches!(verdict.leading, Verdict::InBackoff { .. }) {
                explain::plain(&verdict.leading, &verdict.queue).text
            } else {
                explain::pod_message(verdict, &key)
            };
            news.push((key, uid, self.in_pool(group, message), marks || stranger));
        }
        let time = self.clock.time();
        let Some(telling) = self.told.waiting.get_mut(group) else { return };
        for (pod, uid, message, marks) in news {
            let known = telling.pods.insert((pod.clone(), uid.clone()), message.clone());
            if known.as_deref() == Some(message.as_str()) {
                continue;
            }
            self.recorder.record(&Event {
                regarding: Regarding { kind: POD, key: api_key(&pod), uid: uid.clone() },
                type_: EventType::Warning,
                reason: "Unschedulable",
                message: message.clone(),
                annotations: BTreeMap::new(),
            });
            if marks {
                self.writer.submit(condition::write_pod(&pod, &uid, "Unschedulable", &message, &time));
            }
        }
    }
}

/// Whether a pod names a sub-group that its group does not have.
fn is_stranger(verdict: &GroupVerdict, pod: &Key) -> bool {
    std::iter::once(&verdict.leading).chain(&verdict.further).any(|verdict| {
        matches!(verdict, Verdict::PodUnschedulable { pod: of, reason: PodRejection::UnknownSubGroup(_), .. } if of == pod)
    })
}

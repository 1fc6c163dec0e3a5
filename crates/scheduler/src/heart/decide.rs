//! One cycle: the cluster is brought up to date, a plan is made, and what it decides is handed on.

use super::Heart;
use super::measure::Measure;
use crate::effect::bind;
use crate::effect::evict::{Batch, Leaving};
use crate::inbox::Change;
use crate::marks::Mark;
use crate::resources::{POD_GROUP, api_key};
use crate::rhythm::Scope;
use kai_api::well_known::annotation;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Cause};
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{Cycle, Decision, Outcome};
use kai_runtime::event::{Event, EventType, Regarding};
use kai_runtime::kind::POD;
use kai_runtime::writer::{Retry, Write, WritePriority};
use kai_units::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A cycle that takes longer is a defect, or a cluster far beyond what was measured.
const CYCLE_MAX: Duration = Duration::from_mins(5);

impl Heart {
    /// Plans once and hands on what was decided.
    pub(super) fn cycle(&mut self, scope: Scope) {
        let now = self.now();
        let set_aside = self.aside.now(now);
        self.cache.store_mut().set_aside(set_aside);
        self.cycles += 1;
        let cycle = Cycle { now, seed: self.options.seed.wrapping_add(self.cycles) };
        let mut measure = Measure::start();
        let outcome = {
            let policy = match scope {
                Scope::Placing => &self.placing,
                Scope::Everything => &self.everything,
            };
            let cluster = self.cache.cluster_mut();
            let outcome = kai_engine::plan_observed(cluster, policy, cycle, &mut measure);
            cluster.carry_over(outcome.carry_over.clone());
            outcome
        };
        measure.planned();
        self.carry_out(&outcome, now);
        self.note_verdicts(scope, &outcome, now);
        self.show(scope, &measure, &outcome);
        let wanting = self.verdicts.values().any(may_evict) || self.has_stale_groups();
        self.rhythm.planned(Instant::now(), scope, wanting);
        self.set_timer(&outcome);
        if outcome.verdicts.iter().any(|verdict| matches!(verdict.leading, Verdict::Quarantined(_))) {
            // A panic may have left the cluster in any state.
            self.rebuild();
        }
    }

    /// How long a cycle may take.
    pub(crate) const CYCLE_MAX: Duration = CYCLE_MAX;

    /// Hands on everything that a cycle decided.
    fn carry_out(&mut self, outcome: &Outcome, now: Timestamp) {
        let mut batches: BTreeMap<(Option<Key>, Option<Key>), Batch> = BTreeMap::new();
        let mut marked: BTreeSet<Key> = BTreeSet::new();
        let mut scheduled: BTreeSet<(&'static str, Key)> = BTreeSet::new();
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind(bind) => {
                    let group = self.bind(bind, now);
                    scheduled.extend(group.map(|group| (bind.action, group)));
                }
                Decision::Pipeline { pod, node, .. } => self.pipelined(pod, node),
                Decision::Evict { group, preemptor, action, .. } => {
                    let leaving = self.assume_eviction(decision, now);
                    let stale = *action == Cause::Stale.action();
                    let of = (preemptor.clone(), group.clone().filter(|_| stale));
                    let batch = batches.entry(of).or_insert_with(|| Batch {
                        preemptor: preemptor.clone(),
                        pods: Vec::new(),
                        time: self.clock.time(),
                    });
                    batch.pods.push(leaving);
                    if let Some(group) = group {
                        self.marks.set(group, Mark::Evicted, Some(now));
                        marked.insert(group.clone());
                    }
                }
            }
        }
        for group in &outcome.started {
            self.marks.set(group, Mark::Started, Some(now));
            marked.insert(group.clone());
        }
        for (group, since) in &outcome.staleness {
            self.marks.set(group, Mark::StaleSince, *since);
            marked.insert(group.clone());
        }
        for group in marked {
            self.write_marks(&group);
        }
        for (_, batch) in batches {
            self.evict(batch);
        }
        for (action, _) in scheduled {
            self.metrics.groups_scheduled.with_label_values(&[action]).inc();
        }
    }

    /// Counts a binding and orders it; says the pod's group.
    fn bind(&mut self, bind: &Bind, now: Timestamp) -> Option<Key> {
        let objects = self.cache.store().objects();
        let pod = objects.pods.get(&bind.pod);
        let group = pod.and_then(|pod| kai_cache::translate::pod::group_of(pod));
        let created = pod.and_then(|pod| pod.metadata.creation_timestamp).map(|at| at.0);
        let request = bind::request(bind, &self.options, objects);
        self.stamp_pool(&bind.pod);
        let key = bind.pod.clone();
        self.flight.begin(key.clone(), request.clone(), group.clone(), created, now, self.cache.store_mut());
        self.told.pipelined.remove(&key);
        self.writer.cancel(&(POD, api_key(&key)), crate::effect::condition::POD_SLOT);
        let inbox = Arc::clone(&self.inbox);
        let done = Box::new(move |answer| inbox.put(Change::BindAnswered(key, answer)));
        self.writer.submit(bind::write(&request, done));
        tracing::info!(pod = %bind.pod, node = bind.node, action = bind.action, "placed");
        group
    }

    /// A pod that is placed by the scheduler of a pool belongs to the pool.
    fn stamp_pool(&self, pod: &Key) {
        let settings = &self.options.settings;
        if settings.node_pool_key.is_empty() || settings.node_pool_value.is_empty() {
            return;
        }
        let known = self.cache.store().objects().pods.get(pod);
        let label = known.and_then(|pod| pod.metadata.label(&settings.node_pool_key));
        if label == Some(settings.node_pool_value.as_str()) {
            return;
        }
        let key = api_key(pod);
        self.writer.submit(Write {
            priority: WritePriority::Status,
            path: POD.path_of(&key),
            object: (POD, key),
            slot: Some("pool"),
            method: "PATCH",
            content_type: "application/merge-patch+json",
            body: json!({"metadata": {"labels": {&settings.node_pool_key: settings.node_pool_value}}}),
            retry: Retry::UntilAnswered,
            done: None,
        });
    }

    /// Tells a pod that it waits for room on a node, once for each node.
    fn pipelined(&mut self, pod: &Key, node: &str) {
        let known = self.told.pipelined.insert(pod.clone(), node.to_owned());
        if known.as_deref() == Some(node) {
            return;
        }
        let Some(uid) = self.cache.store().objects().pods.get(pod).map(|pod| pod.metadata.uid.to_string())
        else {
            return;
        };
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD, key: api_key(pod), uid },
            type_: EventType::Normal,
            reason: "Pipelined",
            message: format!("Pod {pod} was pipelined to node {node}: it starts there when room is freed"),
            annotations: BTreeMap::new(),
        });
    }

    /// Counts a pod as leaving.
    fn assume_eviction(&mut self, decision: &Decision, now: Timestamp) -> Leaving {
        let Decision::Evict { pod, uid, group, gang_size, preemptor, action, .. } = decision else {
            unreachable!("only evictions are assumed")
        };
        let message = explain::eviction_message(self.cache.cluster(), decision).unwrap_or_default();
        let eviction = kai_cache::Eviction { uid: uid.clone(), since: now };
        self.cache.assume_eviction(pod.clone(), eviction);
        tracing::info!(%pod, action, preemptor = ?preemptor, "evicted");
        Leaving {
            pod: pod.clone(),
            uid: uid.clone(),
            group: group.clone(),
            gang_size: *gang_size,
            action,
            message,
        }
    }

    /// Tells the group of a pod that it leaves.
    pub(super) fn tell_eviction(&self, leaving: &Leaving, preemptor: Option<&Key>) {
        let Leaving { group, gang_size, action, message, .. } = leaving;
        let Some(group) = group else { return };
        let known = self.cache.store().objects().pod_groups.get(group);
        let uid = known.and_then(|known| known.metadata.uid.clone()).unwrap_or_default();
        let pool = &self.options.params.node_pool;
        let labels = [group.name.as_str(), &group.namespace, &uid, pool, action];
        self.metrics.pod_was_evicted(labels.map(str::to_owned));
        let mut annotations = BTreeMap::from([
            (annotation::EVENT_EVICTED_PODS.to_owned(), gang_size.to_string()),
            (annotation::EVENT_EVICTOR_ACTION.to_owned(), (*action).to_owned()),
        ]);
        if let Some(preemptor) = preemptor {
            annotations.insert(annotation::EVENT_EVICTOR_GROUP.to_owned(), preemptor.name.clone());
            annotations
                .insert(annotation::EVENT_EVICTOR_GROUP_NAMESPACE.to_owned(), preemptor.namespace.clone());
        }
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD_GROUP, key: api_key(group), uid },
            type_: EventType::Normal,
            reason: "Evict",
            message: message.clone(),
            annotations,
        });
    }

    /// Keeps why groups wait. A cycle that may not evict knows less than one that may, so it does not overrule it; but a
    /// group for which nobody could be evicted, such as one that lacked pods, may have come to be one for which somebody
    /// can.
    fn note_verdicts(&mut self, scope: Scope, outcome: &Outcome, now: Timestamp) {
        let mut before = std::mem::take(&mut self.verdicts);
        for verdict in &outcome.verdicts {
            let knows_more = match scope {
                Scope::Everything => None,
                Scope::Placing => {
                    before.remove(&verdict.group).filter(|known| may_evict(known) && may_evict(verdict))
                }
            };
            let mut kept = knows_more.unwrap_or_else(|| verdict.clone());
            kept.pending = verdict.pending;
            if let Some(aside) = self.aside.verdict(&verdict.group, now) {
                kept = GroupVerdict { leading: aside, further: Vec::new(), ..kept };
            }
            self.verdicts.insert(verdict.group.clone(), kept);
        }
        // Whoever got a place waits no longer, though the cluster shows it only now.
        let placed: BTreeSet<&Key> = outcome
            .verdicts
            .iter()
            .filter(|verdict| verdict.leading == Verdict::Placed)
            .map(|verdict| &verdict.group)
            .collect();
        self.verdicts.retain(|group, _| !placed.contains(group));
        let waiting = self.verdicts.keys().cloned().collect();
        self.told.note(waiting, Instant::now());
    }
}

/// Whether somebody might be evicted for a group that waits like this.
fn may_evict(verdict: &GroupVerdict) -> bool {
    verdict.pending > 0
        && match &verdict.leading {
            Verdict::OverLimit(_)
            | Verdict::NonPreemptibleOverQuota(_)
            | Verdict::BeyondQueueDepth { .. }
            | Verdict::GangNotSatisfied { .. }
            | Verdict::NoNode(_)
            | Verdict::Topology(_)
            | Verdict::PodUnschedulable { .. }
            | Verdict::PreemptionDelay { .. }
            | Verdict::NoVictims(_)
            | Verdict::WaitingForVictims { .. }
            | Verdict::NotAttempted => true,
            Verdict::Placed
            | Verdict::QueueMissing
            | Verdict::QueueNotLeaf
            | Verdict::InvalidGroup(_)
            | Verdict::NotReady { .. }
            | Verdict::InBackoff { .. }
            | Verdict::Quarantined(_) => false,
        }
}

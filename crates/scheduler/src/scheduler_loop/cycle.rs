//! One scheduling cycle: applies pending deltas, plans, submits the decisions and keeps the verdicts.

use super::SchedulerLoop;
use super::cycle_metrics::CycleTimings;
use crate::cycle_trigger::Scope;
use crate::effect::bind;
use crate::effect::evict::{Batch, Victim};
use crate::event_queue::SchedulerEvent;
use crate::pending_annotations::GroupTimestamp;
use crate::resources::POD_GROUP;
use kai_api::BindRequest;
use kai_api::well_known::annotation;
use kai_engine::explain;
use kai_engine::input::Key;
use kai_engine::outcome::Bind;
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

/// Far beyond the longest cycle that was measured.
const CYCLE_MAX: Duration = Duration::from_mins(5);

/// How a decision is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BindingWay {
    /// By a Binding.
    Direct,
    /// By a bind request, which the binder executes.
    Request,
}

impl SchedulerLoop {
    pub(super) fn run_cycle(&mut self, scope: Scope) {
        let now = self.now();
        let backoffs = self.backoff.active(now);
        self.cache.store_mut().set_backoffs(backoffs);
        self.cycles += 1;
        let cycle = Cycle { now, seed: self.options.seed.wrapping_add(self.cycles) };
        let policy = match scope {
            Scope::AllocateOnly => Arc::clone(&self.policies.allocate_only),
            Scope::AllActions => Arc::clone(&self.policies.all_actions),
        };
        let Some((outcome, mut timings)) = self.plan(&policy, cycle, CycleTimings::start()) else { return };
        self.cache.cluster_mut().carry_over(outcome.carry_over.clone());
        self.report_plugin_failures(&outcome);
        timings.planned();
        self.submit_decisions(&outcome, now);
        self.keep_verdicts(scope, &outcome);
        self.publish_metrics(scope, &timings, &outcome);
        self.observe_usage(&outcome, now);
        let has_preemptors = self.verdicts.values().any(may_evict) || self.has_stale_groups();
        self.trigger.record_cycle(Instant::now(), scope, has_preemptors);
        self.set_timer(&outcome);
        if outcome.verdicts.iter().any(|verdict| matches!(verdict.leading, Verdict::Quarantined(_))) {
            // The engine caught a panic, which may have left the cluster model inconsistent.
            self.rebuild_cluster();
        }
    }

    /// The health check fails when a cycle takes longer.
    pub(crate) const CYCLE_MAX: Duration = CYCLE_MAX;

    fn submit_decisions(&mut self, outcome: &Outcome, now: Timestamp) {
        let mut batches: BTreeMap<(Option<Key>, Option<Key>), Batch> = BTreeMap::new();
        let mut annotated: BTreeSet<Key> = BTreeSet::new();
        let mut scheduled: BTreeSet<(&'static str, Key)> = BTreeSet::new();
        for group in &outcome.started {
            if self.record_start(group, now) {
                annotated.insert(group.clone());
            }
        }
        let started: BTreeSet<&Key> = outcome.started.iter().collect();
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind(bind) => {
                    let Some((group, way)) = self.bind(bind, now) else { continue };
                    if way == BindingWay::Request && (started.contains(&group) || self.is_implicit(&group)) {
                        // Nothing carries its start.
                        annotated.insert(group.clone());
                    }
                    scheduled.insert((bind.action, group));
                }
                Decision::Pipeline { pod, node, .. } => self.report_pipelined(pod, node),
                Decision::Evict { group, preemptor, .. } => {
                    let victim = self.assume_eviction(decision, now);
                    let id = (preemptor.clone(), group.clone().filter(|_| preemptor.is_none()));
                    let batch = batches.entry(id).or_insert_with(|| Batch {
                        preemptor: preemptor.clone(),
                        victims: Vec::new(),
                        time: self.clock.time(),
                    });
                    batch.victims.push(victim);
                    if let Some(group) = group.as_ref().filter(|group| !self.is_implicit(group)) {
                        self.annotations.set(group, GroupTimestamp::LastEviction, Some(now));
                        annotated.insert(group.clone());
                    }
                }
            }
        }
        for (group, since) in &outcome.staleness {
            self.annotations.set(group, GroupTimestamp::StaleSince, *since);
            if since.is_some() {
                self.report_stale(group);
            }
            annotated.insert(group.clone());
        }
        annotated.extend(self.handle_time_limits(&outcome.time_limits, now));
        for group in annotated {
            self.write_annotations(&group);
        }
        for (_, batch) in batches {
            self.evict(batch);
        }
        for (action, _) in scheduled {
            self.metrics.groups_scheduled.with_label_values(&[action]).inc();
        }
    }

    /// Assumes a binding and submits it, or its bind request; returns the pod's group, and which of them.
    fn bind(&mut self, bind: &Bind, now: Timestamp) -> Option<(Key, BindingWay)> {
        let objects = self.cache.store().objects();
        let pod = objects.pods.get(&bind.pod);
        let group = pod.and_then(|pod| kai_cache::translate::pod::group_of(pod));
        let created = pod.and_then(|pod| pod.metadata.creation_timestamp).map(|at| at.0);
        let request = bind::request(bind, &self.options, objects);
        let way = if self.binds_directly(bind) { BindingWay::Direct } else { BindingWay::Request };
        self.label_node_pool(&bind.pod);
        let key = bind.pod.clone();
        self.assumed.assume(
            key.clone(),
            request.clone(),
            group.clone(),
            created,
            now,
            self.cache.store_mut(),
        );
        self.reporter.pipelined.remove(&key);
        self.writer.cancel(&(POD, key.clone()), crate::effect::condition::POD_SLOT);
        self.reporter.retries.forget_pod(&key);
        match way {
            BindingWay::Direct => {
                let added =
                    group.as_ref().map(|group| self.annotations_of_binding(group)).unwrap_or_default();
                self.post_binding(key, &request, added, created, now);
            }
            BindingWay::Request => self.create_bind_request(key, &request),
        }
        tracing::info!(pod = %bind.pod, node = bind.node, action = bind.action, "bound");
        group.map(|group| (group, way))
    }

    /// Submits the bind request of an assumed binding.
    pub(super) fn create_bind_request(&self, key: Key, request: &BindRequest) {
        let events = Arc::clone(&self.events);
        let done = Box::new(move |response| events.push(SchedulerEvent::BindResponse(key, response)));
        self.writer.submit(bind::write(request, done));
    }

    /// Labels a pod with the node pool of the scheduler that places it, as KAI does.
    fn label_node_pool(&self, pod: &Key) {
        let settings = &self.options.settings;
        if settings.node_pool_key.is_empty() || settings.node_pool_value.is_empty() {
            return;
        }
        let known = self.cache.store().objects().pods.get(pod);
        let label = known.and_then(|pod| pod.metadata.label(&settings.node_pool_key));
        if label == Some(settings.node_pool_value.as_str()) {
            return;
        }
        let key = pod.clone();
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

    /// Records an event on a pod that is pipelined to a node, once for each node.
    fn report_pipelined(&mut self, pod: &Key, node: &str) {
        let known = self.reporter.pipelined.insert(pod.clone(), node.to_owned());
        if known.as_deref() == Some(node) {
            return;
        }
        let Some(uid) = self.cache.store().objects().pods.get(pod).map(|pod| pod.metadata.uid.to_string())
        else {
            return;
        };
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD, key: pod.clone(), uid },
            type_: EventType::Normal,
            reason: "Pipelined",
            message: format!("Pod {pod} was pipelined to node {node}"),
            annotations: BTreeMap::new(),
        });
    }

    /// Counts a pod as terminating before the API server confirms its eviction.
    #[expect(clippy::unreachable, reason = "the caller has selected the evictions")]
    fn assume_eviction(&mut self, decision: &Decision, now: Timestamp) -> Victim {
        let Decision::Evict { pod, uid, group, gang_size, preemptor, action, .. } = decision else {
            unreachable!("only evictions are assumed")
        };
        let message = explain::eviction_message(self.cache.cluster(), decision).unwrap_or_default();
        let eviction = kai_cache::Eviction { uid: uid.clone(), since: now };
        self.cache.assume_eviction(pod.clone(), eviction);
        tracing::info!(%pod, action, preemptor = ?preemptor, "evicted");
        let is_implicit = group.as_ref().is_some_and(|group| self.is_implicit(group));
        Victim {
            is_implicit,
            pod: pod.clone(),
            uid: uid.clone(),
            group: group.clone(),
            gang_size: *gang_size,
            action,
            message,
        }
    }

    /// Counts an eviction and records it as an event on the victim's group, or on the victim where the group has no object.
    pub(super) fn report_eviction(&self, victim: &Victim, preemptor: Option<&Key>) {
        let Victim { is_implicit, group, gang_size, action, message, .. } = victim;
        let Some(group) = group else { return };
        let known = self.cache.store().objects().pod_groups.get(group);
        let uid = known.and_then(|known| known.metadata.uid.clone()).unwrap_or_default();
        let regarding = if *is_implicit {
            Regarding { kind: POD, key: victim.pod.clone(), uid: victim.uid.clone() }
        } else {
            Regarding { kind: POD_GROUP.clone(), key: group.clone(), uid }
        };
        let pool = &self.options.params.node_pool;
        let labels = [group.name.as_str(), &group.namespace, &regarding.uid, pool, action];
        self.metrics.count_evicted_pod(labels.map(str::to_owned));
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
            regarding,
            type_: EventType::Normal,
            reason: "Evict",
            message: message.clone(),
            annotations,
        });
    }

    /// Keeps the verdicts of pending groups. The verdict of a cycle that only allocates does not replace that of a cycle
    /// with all actions, unless the group could not cause evictions then, for example because pods were missing.
    fn keep_verdicts(&mut self, scope: Scope, outcome: &Outcome) {
        let mut before = std::mem::take(&mut self.verdicts);
        for verdict in &outcome.verdicts {
            let of_full_cycle = match scope {
                Scope::AllActions => None,
                Scope::AllocateOnly => {
                    before.remove(&verdict.group).filter(|known| may_evict(known) && may_evict(verdict))
                }
            };
            let mut kept = of_full_cycle.unwrap_or_else(|| verdict.clone());
            kept.pending = verdict.pending;
            self.verdicts.insert(verdict.group.clone(), kept);
        }
        // A group that was placed is not pending, although the cluster model shows it only in the next cycle.
        let placed: BTreeSet<&Key> = outcome
            .verdicts
            .iter()
            .filter(|verdict| verdict.leading == Verdict::Placed)
            .map(|verdict| &verdict.group)
            .collect();
        self.verdicts.retain(|group, _| !placed.contains(group));
        let pending = self.verdicts.keys().cloned().collect();
        self.reporter.set_pending(pending, Instant::now());
        self.queue_hints();
    }
}

/// Whether a group with this verdict may cause evictions.
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
            | Verdict::EvictionBackoff { .. }
            | Verdict::NoVictims(_)
            | Verdict::WaitingForVictims { .. }
            | Verdict::NotAttempted => true,
            Verdict::Placed
            | Verdict::QueueMissing
            | Verdict::QueueNotLeaf
            | Verdict::InvalidGroup(_)
            | Verdict::NotReady { .. }
            | Verdict::InBackoff { .. }
            | Verdict::TimeLimitReached { .. }
            | Verdict::Quarantined(_) => false,
        }
}

//! Handles the results of writes: bind requests and evictions.

use super::{EVICT, LIST_BUDGETS, SchedulerLoop};
use crate::cycle_trigger::Impact;
use crate::effect::condition::PodCondition;
use crate::effect::evict::{self, EvictionResult, Victim};
use crate::effect::look_up::look_up;
use crate::event_queue::SchedulerEvent;
use crate::resources::BIND_REQUEST;
use kai_api::BindRequest;
use kai_engine::input::{BackoffScope, Key};
use kai_runtime::api;
use kai_runtime::event::{Event, EventType, Regarding};
use kai_runtime::kind::POD;
use kai_units::{Span, Timestamp};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the watch may take to deliver a deletion before the server is asked for the pod.
const DELETION_DELAY_MAX: Duration = Duration::from_mins(1);

impl SchedulerLoop {
    pub(super) fn handle_bind_response(&mut self, key: &Key, response: api::Result<Value>) -> Impact {
        match response {
            Ok(created) => {
                let now = self.now();
                if let Some(binding) = self.assumed.confirm(key, &created, self.cache.store_mut()) {
                    let binding = binding.clone();
                    self.report_bind(key, &binding.request, binding.pod_created, binding.decided, now);
                    // A request that exists already may have failed, and the watch has delivered that before.
                    return self.handle_bind_request(key);
                } else if let Ok(request) = serde_json::from_value::<BindRequest>(created) {
                    self.report_bind(key, &request, None, now, now);
                }
                Impact::None
            }
            Err(error) => {
                // The response to an earlier attempt may have been lost, and the request exist: the binding stays
                // assumed until a lookup shows what the server has.
                if self.assumed.contains(key) {
                    let (api, events, key) = (self.api.clone(), Arc::clone(&self.events), key.clone());
                    self.tasks.spawn(async move {
                        let found = look_up(&api, &BIND_REQUEST, &key).await;
                        events.push(SchedulerEvent::BindLookup(key, error, found));
                    });
                }
                Impact::None
            }
        }
    }

    /// The creation of a bind request failed, and the server has `found` under its name.
    pub(super) fn handle_bind_lookup(
        &mut self,
        key: &Key,
        error: &api::Error,
        found: Option<Value>,
    ) -> Impact {
        if let Some(found) = found
            && let Ok(request) = BindRequest::deserialize(&found)
        {
            if self.assumed.is_assumed(key, &request) {
                return self.handle_bind_response(key, Ok(found));
            }
            // Another binding's request, which its owner is about to finish or delete.
            self.assumed.observe_applied(key, &request);
        }
        let Some(binding) = self.assumed.reject(key, self.cache.store_mut()) else { return Impact::None };
        tracing::warn!(pod = %key, error = error as &dyn std::error::Error, "cannot create a bind request");
        if !error.is_conflict() {
            self.report_bind_rejected(key, &binding.request, &error.message());
        }
        if let Some(group) = &binding.group {
            let cause = format!("the API server rejected the bind request of pod {key}: {}", error.message());
            self.backoff.record_failure(group, BackoffScope::Placement, cause, self.now());
        }
        self.handle_bind_request(key).max(Impact::FreesCapacity)
    }

    /// Asks the server for an assumed request that a list lacks.
    pub(super) fn look_up_assumed(&mut self, key: Key) {
        let (api, events) = (self.api.clone(), Arc::clone(&self.events));
        self.tasks.spawn(async move {
            let found = look_up(&api, &BIND_REQUEST, &key).await;
            events.push(SchedulerEvent::AssumedLookup(key, found.is_some()));
        });
    }

    /// The server does not have an assumed request that it had created: it was restored from a backup.
    pub(super) fn handle_assumed_lookup(&mut self, key: &Key, exists: bool) -> Impact {
        if exists || self.assumed.reject(key, self.cache.store_mut()).is_none() {
            return Impact::None;
        }
        tracing::warn!(pod = %key, "the bind request is gone");
        Impact::FreesCapacity
    }

    pub(super) fn report_bind(
        &self,
        pod: &Key,
        request: &BindRequest,
        created: Option<Timestamp>,
        decided: Timestamp,
        now: Timestamp,
    ) {
        let ms = |span: Span| span.0.max(0) as f64 / 1e3;
        self.metrics.bind_ms.observe(ms(now - decided));
        if let Some(created) = created {
            self.metrics.placing_ms.observe(ms(decided - created));
        }
        let pool = &self.options.params.node_pool;
        let message = format!(
            "Successfully assigned pod {pod} to node {} at node-pool {pool}",
            request.spec.selected_node
        );
        self.record_on_pod(pod, request, EventType::Normal, "Scheduled", message);
    }

    fn report_bind_rejected(&mut self, pod: &Key, request: &BindRequest, error: &str) {
        let message = format!("Failed to create a bind request for pod {pod}: {error}");
        self.record_on_pod(pod, request, EventType::Warning, "FailedBinding", message.clone());
        let (pod, uid) = (pod.clone(), pod_uid(request).to_owned());
        self.write_pod_condition(&PodCondition { pod, uid, reason: "BindingError", message });
    }

    fn record_on_pod(
        &self,
        pod: &Key,
        request: &BindRequest,
        type_: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.recorder.record(&Event {
            regarding: Regarding { kind: POD, key: pod.clone(), uid: pod_uid(request).to_owned() },
            type_,
            reason,
            message,
            annotations: BTreeMap::new(),
        });
    }

    pub(super) fn handle_eviction_result(&mut self, result: EvictionResult) -> Impact {
        let EvictionResult { preemptor, evicted, kept, rejection, may_evict } = result;
        match may_evict {
            Some(true) => self.degradations.end(EVICT),
            Some(false) if self.degradations.is_missing(LIST_BUDGETS) => self.degradations.begin(
                EVICT,
                "pods are deleted regardless of disruption budgets, as in KAI; grant this right and those to list and \
                 watch poddisruptionbudgets to honour them",
            ),
            Some(false) => self.degradations.begin(
                EVICT,
                "no pod is evicted, since a deletion would bypass disruption budgets; grant the right, or set \
                 `disruptionBudgets: ignore`",
            ),
            None => {}
        }
        for victim in &evicted {
            self.report_eviction(victim, preemptor.as_ref());
        }
        self.expect_deletions(preemptor.clone(), evicted);
        let Some(cause) = rejection else { return Impact::None };
        tracing::warn!(preemptor = ?preemptor, cause, "eviction rejected");
        for victim in &kept {
            self.cache.store_mut().forget_eviction(&victim.pod);
        }
        // Without its victims the preemptor lacks capacity. It evicts nothing for a while, and is placed if capacity becomes
        // free meanwhile.
        if let Some(preemptor) = &preemptor {
            let now = self.now();
            self.cache.cluster_mut().forget_evictions(preemptor, kept.iter().map(|victim| &victim.pod));
            self.backoff.record_failure(preemptor, BackoffScope::Evictions, cause, now);
        }
        Impact::Replan
    }

    /// Looks at victims again when the watch should have delivered their deletions.
    fn expect_deletions(&mut self, preemptor: Option<Key>, victims: Vec<Victim>) {
        if victims.is_empty() {
            return;
        }
        let events = Arc::clone(&self.events);
        self.tasks.spawn(async move {
            tokio::time::sleep(DELETION_DELAY_MAX).await;
            events.push(SchedulerEvent::EvictionsOverdue(preemptor, victims));
        });
    }

    /// Asks the server for victims whose deletion the watch has not delivered. A server that was restored from a backup may
    /// have lost it; without the lookup the pod would count as terminating for as long as it runs.
    pub(super) fn look_up_victims(&mut self, preemptor: Option<Key>, mut victims: Vec<Victim>) {
        let assumed = self.cache.store().evictions();
        victims.retain(|victim| assumed.get(&victim.pod).is_some_and(|eviction| eviction.uid == victim.uid));
        if victims.is_empty() {
            return;
        }
        let (api, events) = (self.api.clone(), Arc::clone(&self.events));
        self.tasks.spawn(async move {
            let (kept, deleted) = evict::lost_deletions(&api, victims).await;
            if let Some(victim) = kept.first() {
                let cause = format!("the API server has lost the deletion of pod {}", victim.pod);
                let (evicted, rejection) = (Vec::new(), Some(cause));
                let preemptor = preemptor.clone();
                let result = EvictionResult { preemptor, evicted, kept, rejection, may_evict: None };
                events.push(SchedulerEvent::EvictionResult(result));
            }
            if !deleted.is_empty() {
                tokio::time::sleep(DELETION_DELAY_MAX).await;
                events.push(SchedulerEvent::EvictionsOverdue(preemptor, deleted));
            }
        });
    }
}

fn pod_uid(request: &BindRequest) -> &str {
    let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
    owners.first().map_or("", |owner| owner.uid.as_str())
}

//! Binds pods without a bind request, where the binder has nothing to prepare.
//!
//! The binding is assumed like any other, by a bind request in the store that the server does not get. A Binding that fails
//! transiently is retried with backoff while it is still wanted. One that the server rejects is handed to the binder as a bind
//! request, which retries, reports and counts it. Nothing needs to survive a restart: a pod has its node or it has none.

use super::SchedulerLoop;
use crate::cycle_trigger::Impact;
use crate::direct_bindings::DirectBinding;
use crate::effect::direct_bind::{self, NodeGpus};
use crate::effect::look_up::look_up;
use crate::event_queue::SchedulerEvent;
use crate::options::Binding;
use kai_api::BindRequest;
use kai_api::well_known::{annotation, label_value};
use kai_cache::translate::pod as pods;
use kai_engine::cluster::Cluster;
use kai_engine::ids::PodIdx;
use kai_engine::input::{Key, Utility};
use kai_engine::outcome::Bind;
use kai_runtime::api;
use kai_runtime::backoff::BackoffPolicy;
use kai_runtime::kind::POD;
use kai_units::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The right to bind pods, which KAI's role does not grant.
const BIND: &str = "create pods/binding";
const WITHOUT_BIND: &str = "every pod gets a bind request and is bound by the binder, as in KAI";
/// How long no Binding is posted after the right was missing.
const DENIED_FOR: Duration = Duration::from_mins(1);
/// Transient failures before the binder takes over.
const FAILURES_MAX: u32 = 4;
/// Delay before a failed Binding is posted again.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(5));

impl SchedulerLoop {
    pub(super) fn binds_directly(&self, bind: &Bind) -> bool {
        match self.options.binding {
            Binding::Requests => false,
            Binding::Direct => {
                let node = node_gpus(self.cache.cluster(), &bind.node);
                self.direct.is_permitted(Instant::now())
                    && self.reserves_no_gpu(&bind.node)
                    && direct_bind::needs_no_binder(bind, node, self.cache.store().objects())
            }
        }
    }

    /// Whether no bind request in flight shares a GPU of a node.
    fn reserves_no_gpu(&self, node: &str) -> bool {
        let store = self.cache.store();
        let requests = &store.objects().bind_requests;
        store
            .binds_to(node)
            .iter()
            .filter_map(|key| requests.get(key))
            .all(|request| request.spec.selected_gpu_groups.is_empty())
    }

    /// What a Binding adds to the annotations of a pod of this group: the group, where the grouper leaves that to the
    /// Binding, or that it has no object, and its start.
    pub(super) fn annotations_of_binding(&self, group: &Key) -> BTreeMap<&'static str, String> {
        let mut added = if self.is_implicit(group) {
            BTreeMap::from([(annotation::IMPLICIT_GROUP, label_value::TRUE.to_owned())])
        } else {
            BTreeMap::from([(annotation::POD_GROUP, group.name.clone())])
        };
        let start = self.annotations.deferred_start(group);
        added.extend(start.map(|start| (annotation::LAST_START, start.to_owned())));
        added
    }

    /// Posts the Binding of an assumed pod.
    pub(super) fn post_binding(
        &mut self,
        pod: Key,
        request: &BindRequest,
        added: BTreeMap<&'static str, String>,
        created: Option<Timestamp>,
        decided: Timestamp,
    ) {
        let binding = DirectBinding::new(request.clone(), added, created, decided);
        let number = self.direct.add(pod.clone(), binding.clone());
        self.submit_binding(pod, number, &binding);
    }

    fn submit_binding(&self, pod: Key, number: u64, binding: &DirectBinding) {
        let events = Arc::clone(&self.events);
        let done =
            Box::new(move |response| events.push(SchedulerEvent::BindingResponse(pod, number, response)));
        self.writer.submit(direct_bind::write(binding, pod_uid(&binding.request), done));
    }

    pub(super) fn handle_binding_response(
        &mut self,
        pod: &Key,
        number: u64,
        response: api::Result<Value>,
    ) -> Impact {
        let Some(binding) = self.direct.get(pod, number) else { return Impact::None };
        match response {
            Ok(_) => self.confirm_binding(pod),
            Err(error) if error.is_permission_denied() => {
                self.degradations.begin(BIND, WITHOUT_BIND);
                self.direct.deny_until(Instant::now() + DENIED_FOR);
                self.hand_to_binder(pod);
            }
            Err(error) if error.is_transient() && binding.failures < FAILURES_MAX => {
                binding.failures += 1;
                let delay = BACKOFF.delay(binding.failures);
                let (events, pod) = (Arc::clone(&self.events), pod.clone());
                self.tasks.spawn(async move {
                    tokio::time::sleep(delay).await;
                    events.push(SchedulerEvent::BindingRetry(pod, number));
                });
            }
            // The response to an earlier attempt may have been lost, or another client has bound or deleted the pod.
            Err(error) => self.look_up_pod(pod, number, Some(error)),
        }
        Impact::None
    }

    /// The server has bound the pod. Its assumed bind request stays until the watch has delivered the node.
    fn confirm_binding(&mut self, pod: &Key) {
        self.degradations.end(BIND);
        let now = self.now();
        let Some(binding) = self.direct.of_pod(pod).cloned() else { return };
        self.report_bind(pod, &binding.request, binding.pod_created, binding.decided, now);
        if self.assumed.contains(pod) {
            if let Some(binding) = self.direct.get(pod, binding.number) {
                binding.is_confirmed = true;
            }
        } else {
            self.direct.remove(pod);
        }
    }

    fn look_up_pod(&mut self, pod: &Key, number: u64, error: Option<api::Error>) {
        let (api, events, pod) = (self.api.clone(), Arc::clone(&self.events), pod.clone());
        self.tasks.spawn(async move {
            let found = look_up(&api, &POD, &pod).await;
            events.push(SchedulerEvent::BindingLookup(pod, number, error, found));
        });
    }

    /// A Binding failed with this error, or a list shows the pod of a confirmed one unbound; the server has `found`.
    pub(super) fn handle_binding_lookup(
        &mut self,
        pod: &Key,
        number: u64,
        error: Option<&api::Error>,
        found: Option<&Value>,
    ) -> Impact {
        let Some(binding) = self.direct.get(pod, number) else { return Impact::None };
        let uid = pod_uid(&binding.request);
        let found = found.filter(|found| kai_object::uid(found) == uid);
        let text = |path: &str| found.and_then(|found| found.pointer(path)).and_then(Value::as_str);
        let node = text("/spec/nodeName").unwrap_or_default();
        if node == binding.request.spec.selected_node {
            if !binding.is_confirmed {
                self.confirm_binding(pod);
            }
            return Impact::None;
        }
        let is_unbound = found.is_some() && node.is_empty() && text("/metadata/deletionTimestamp").is_none();
        if let Some(error) = error.filter(|_| is_unbound) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(%pod, error, "cannot bind the pod; the binder tries");
            self.hand_to_binder(pod);
            return Impact::None;
        }
        // It is gone or bound elsewhere, or the server was restored from a backup.
        tracing::warn!(%pod, node, "the pod is not bound as decided");
        self.withdraw_binding(pod);
        Impact::FreesCapacity
    }

    /// Creates the bind request that the pod is assumed by. The binder retries, reports failures and counts them.
    fn hand_to_binder(&mut self, pod: &Key) {
        let Some(binding) = self.direct.remove(pod) else { return };
        if self.assumed.contains(pod) {
            let known = self.cache.store().objects().pods.get(pod);
            if binding.annotations.contains_key(annotation::LAST_START)
                && let Some(group) = known.and_then(|known| pods::group_of(known))
            {
                self.write_annotations(&group);
            }
            self.create_bind_request(pod.clone(), &binding.request);
        }
    }

    /// Posts a Binding again after its backoff, unless it is obsolete.
    pub(super) fn retry_binding(&mut self, pod: &Key, number: u64) -> Impact {
        let Some(binding) = self.direct.get(pod, number) else { return Impact::None };
        let binding = binding.clone();
        let known = self.cache.store().objects().pods.get(pod);
        let is_ending = known.is_none_or(|known| known.metadata.deletion_timestamp.is_some());
        if is_ending || !self.assumed.contains(pod) {
            self.look_up_pod(pod, number, None);
            return Impact::None;
        }
        self.submit_binding(pod.clone(), number, &binding);
        Impact::None
    }

    /// Drops a binding that this process has posted or is about to post; returns whether there was one. A Binding in flight
    /// may still take effect: the watch delivers the pod with its node then.
    pub(super) fn withdraw_binding(&mut self, pod: &Key) -> bool {
        if self.direct.remove(pod).is_none() {
            return false;
        }
        self.writer.cancel(&(POD, pod.clone()), direct_bind::SLOT);
        self.assumed.reject(pod, self.cache.store_mut());
        true
    }

    /// The watch has delivered a pod: one with a node needs no assumed bind request.
    pub(super) fn release_if_bound(&mut self, pod: &Key) {
        let Some(binding) = self.direct.of_pod(pod) else { return };
        let known = self.cache.store().objects().pods.get(pod);
        if known.is_none_or(|known| known.spec.node_name.is_empty()) {
            return;
        }
        // Before the response arrives, the entry is kept for it.
        if binding.is_confirmed {
            self.direct.remove(pod);
        }
        self.assumed.reject(pod, self.cache.store_mut());
    }

    /// All pods were listed. A confirmed binding that a list lacks was made after the list, or lost by a server that was
    /// restored from a backup; only a lookup tells which.
    pub(super) fn check_bindings_after_list(&mut self) {
        let pods: Vec<(Key, u64, bool)> = self
            .direct
            .iter()
            .map(|(pod, binding)| (pod.clone(), binding.number, binding.is_confirmed))
            .collect();
        for (pod, number, is_confirmed) in pods {
            self.release_if_bound(&pod);
            if is_confirmed && self.direct.get(&pod, number).is_some() {
                self.look_up_pod(&pod, number, None);
            }
        }
    }
}

#[expect(clippy::indexing_slicing, reason = "by the indices of the cluster model")]
fn node_gpus(cluster: &Cluster, node: &str) -> NodeGpus {
    let Some(node) = cluster.node(node).map(|node| &cluster.nodes[node]) else { return NodeGpus::Shared };
    let shares = |pod: &PodIdx| {
        let pod = &cluster.pods[*pod];
        pod.utility == Some(Utility::Reservation) || !pod.observed_gpu_groups.is_empty()
    };
    if node.pods.iter().any(shares) { NodeGpus::Shared } else { NodeGpus::Whole }
}

fn pod_uid(request: &BindRequest) -> &str {
    let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
    owners.first().map_or("", |owner| owner.uid.as_str())
}

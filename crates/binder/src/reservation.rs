//! Reserves shared GPUs: a reservation pod requests the whole GPU of a GPU group while pods share it.
//!
//! Every decision to create or delete a reservation pod reads the API server, not the informers, and holds the lock of
//! the GPU group. The name of a reservation pod is derived from node and group, so that a repeated attempt, in this or
//! another process, finds the pod of an earlier one. A reservation pod that ends while pods use its GPU is renewed
//! (`renewal`).

mod decision;
mod drained;
mod gpu_group_controller;
mod locks;
mod pod;
mod renewal;

pub(crate) use gpu_group_controller::GpuGroupController;

use crate::attempt;
use crate::bind_target::{BindTarget, StoredRequest};
use crate::concurrency_limit::Permit;
use crate::error::{ApiContext as _, Error, Result};
use crate::informers::{BY_GROUP, SHARING_ON};
use crate::objects::{
    annotation, gpu_groups, is_bound, is_terminal, is_terminating, key, name, namespace, node_name, phase,
    shares_gpus, uid,
};
use crate::options::Options;
use decision::{Decision, decide};
use k8s_openapi::api::core::v1::Pod;
use kai_api::well_known::{annotation as annotations, label, name as names};
use kai_api::{BindRequest, bind_request};
use kai_runtime::api::{self, DeleteOptions};
use kai_runtime::backoff::{Backoff, BackoffPolicy};
use kai_runtime::controller::Context;
use kai_runtime::event::Recorder;
use kai_runtime::informer::Subscription;
use kai_runtime::url::query_value;
use kai_runtime::{Key, ResourceKind};
use locks::Locks;
use renewal::Renewals;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Intervals at which a deleted reservation pod is polled until it is gone.
const DELETION_POLL: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(2));

/// How long a bind attempt waits for the node scale adjuster to delete the scaling pods of pods that are being bound.
const SCALING_POD_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Reservations {
    context: Context,
    options: Arc<Options>,
    recorder: Recorder,
    /// Locks of GPU groups. They are acquired before those of nodes.
    locks: Locks,
    /// Locks of nodes: shared while a pod is sent there that occupies whole GPUs, exclusive during a renewal.
    nodes: Locks,
    renewals: Renewals,
    /// Signals changes of reservation pods and of scaling pods. `Notify` wakes waiters in the order of their registration,
    /// so that a seeded simulation is deterministic.
    changed: Notify,
}

/// The state of a reservation pod.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// It holds the GPU with this UUID.
    Reported(String),
    Pending,
    /// It will not hold a GPU, for this reason.
    Failed(String),
}

fn progress(pod: &Pod) -> Progress {
    if is_terminal(pod) {
        let status = pod.status.as_ref();
        let text = |field: Option<&String>| field.filter(|text| !text.is_empty()).cloned();
        let reason = status.and_then(|status| text(status.message.as_ref()).or(text(status.reason.as_ref())));
        return Progress::Failed(reason.unwrap_or_else(|| format!("its phase is {}", phase(pod))));
    }
    if is_terminating(pod) {
        return Progress::Failed("it is being deleted".to_owned());
    }
    let renewed = annotation(pod, annotations::RENEWED_GPU);
    match annotation(pod, annotations::RESERVED_GPU) {
        "" => Progress::Pending,
        other if !renewed.is_empty() && other != renewed => {
            Progress::Failed(format!("it holds GPU `{other}`, and its users have `{renewed}`"))
        }
        uuid => Progress::Reported(uuid.to_owned()),
    }
}

impl Reservations {
    pub(crate) fn new(context: Context, options: Arc<Options>, recorder: Recorder) -> Arc<Self> {
        let reservations = Arc::new(Self {
            context,
            options,
            recorder,
            locks: Locks::default(),
            nodes: Locks::default(),
            renewals: Renewals::default(),
            changed: Notify::new(),
        });
        let weak = Arc::downgrade(&reservations);
        reservations.context.informers.store::<Pod>().subscribe(Box::new(move |pod| {
            let Some(reservations) = weak.upgrade() else { return Subscription::End };
            let options = &reservations.options;
            if [&*options.reservation_namespace, &*options.scale_adjust_namespace].contains(&namespace(pod)) {
                reservations.changed.notify_waiters();
            }
            Subscription::Continue
        }));
        reservations
    }

    /// Reserves the GPU of a group on the node of a pod; returns the UUID of the GPU.
    pub(crate) async fn reserve(
        &self,
        target: &BindTarget,
        pod: &Pod,
        group: &str,
        permit: &mut Permit,
    ) -> Result<String> {
        let _lock = permit.release_during(self.locks.lock(group)).await;
        let reservation = self.ensure(target, pod, group, permit).await?;
        let key = key(&reservation);
        match permit.release_during(self.wait_for_gpu(&reservation)).await {
            Ok(uuid) => Ok(uuid),
            Err(error) => {
                if let Err(failed) = self.abandon(target, group, &reservation).await {
                    let failed = &failed as &dyn std::error::Error;
                    tracing::warn!(%key, %group, error = failed, "cannot delete a failed reservation pod");
                }
                Err(error)
            }
        }
    }

    /// The reservation pod of the group, found or created.
    async fn ensure(&self, target: &BindTarget, pod: &Pod, group: &str, permit: &mut Permit) -> Result<Pod> {
        let (context, node) = (&self.context, target.node());
        let own_name = pod::name(node, group);
        // Older versions of the binder used other names.
        let other = context.informers.store::<Pod>().by_index(BY_GROUP, group).into_iter().find(|pod| {
            namespace(&**pod) == self.options.reservation_namespace
                && node_name(pod) == node
                && name(&**pod) != own_name
                && progress(pod) != Progress::Pending
        });
        let names = [Some(own_name.clone()), other.map(|pod| name(&*pod).to_owned())];
        for name in names.iter().flatten() {
            let key = Key::new(&self.options.reservation_namespace, name);
            let found: Pod = match context.api.get(&key).await {
                Err(error) if error.is_not_found() => continue,
                found => found.during(|| format!("read reservation pod `{key}`"))?,
            };
            context.informers.store().update(found.clone());
            let Progress::Failed(_) = progress(&found) else { return Ok(found) };
            self.check_unused(target, group).await?;
            self.delete_reservation(&found).await?;
            permit.release_during(self.wait_for_deletion(&found)).await?;
        }
        self.check_new_reservation(target, group).await?;
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        let reservation = pod::build(&self.options, node, group, tolerations);
        self.create(target, &reservation, permit).await
    }

    /// Creates a reservation pod, or finds the one that has its name.
    async fn create(&self, target: &BindTarget, reservation: &Pod, permit: &mut Permit) -> Result<Pod> {
        let _node = permit.release_during(self.share_node(node_name(reservation))).await;
        self.check_wanted(target)?;
        self.create_or_get(reservation).await
    }

    /// Fails once the request or its pod is being deleted: the scheduler has given the GPU back.
    fn check_wanted(&self, target: &BindTarget) -> Result<()> {
        let informers = &self.context.informers;
        let request = informers.get::<StoredRequest>(&target.key);
        if request.is_none_or(|request| request.is_terminating() || request.identity().uid != target.uid) {
            return Err(Error::NotFound { kind: "bind request", name: target.key.to_string() });
        }
        let pod = informers.get::<Pod>(&target.pod);
        if pod.is_some_and(|pod| is_terminating(&*pod)) {
            return Err(Error::NotFound { kind: "pod", name: target.pod.to_string() });
        }
        Ok(())
    }

    async fn create_or_get(&self, reservation: &Pod) -> Result<Pod> {
        let (context, key) = (&self.context, key(reservation));
        match context.create(reservation).await {
            // Another client created it, or the response to an earlier request was lost.
            Err(error) if error.is_conflict() => {
                let found: Pod = match context.api.get(&key).await {
                    Err(error) if error.is_not_found() => {
                        return Err(Error::Conflict { kind: "reservation pod", name: key.to_string() });
                    }
                    found => found.during(|| format!("read reservation pod `{key}`"))?,
                };
                context.informers.store().update(found.clone());
                Ok(found)
            }
            created => created.during(|| format!("create reservation pod `{key}`")),
        }
    }

    /// Waits until no reservation of the node is being renewed. While the result lives, none will be.
    pub(crate) async fn share_node(&self, node: &str) -> impl Sized + use<> {
        self.nodes.share(node).await
    }

    /// Waits until no scaling pod stands for a pod that is being bound: an autoscaler would count both its request and the
    /// new reservation, or both it and the claimed device. The node scale adjuster deletes it at the BindRequest; where it
    /// does not, the wait has a limit.
    pub(crate) async fn wait_for_scaling_pods(&self, target: &BindTarget) {
        let deadline = Instant::now() + SCALING_POD_WAIT;
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the store is read, so that no change is missed.
            changed.as_mut().enable();
            let Some(scaling) = self.obsolete_scaling_pod(target) else { return };
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                tracing::warn!(pod = %scaling, "a pod is bound while a scaling pod requests its GPUs: an autoscaler may count both; hint: is the node scale adjuster running, and may it list bindrequests?");
                return;
            }
        }
    }

    /// A pending scaling pod of a pod that is being bound.
    fn obsolete_scaling_pod(&self, target: &BindTarget) -> Option<Key> {
        let informers = &self.context.informers;
        let mut scaling = informers.store::<Pod>().in_namespace(&self.options.scale_adjust_namespace);
        scaling.retain(|pod| !is_bound(pod) && !is_terminal(pod) && !is_terminating(&**pod));
        if scaling.is_empty() {
            return None;
        }
        let requests = informers.store::<StoredRequest>().list();
        let targets = requests.iter().filter(|request| !request.is_terminating());
        let targets = targets.filter_map(|request| request.target.as_ref().ok());
        let open = targets.filter(|other| attempt::is_open(&other.status, other.spec.backoff_limit));
        let being_bound: BTreeSet<String> =
            open.map(|other| &other.pod).chain([&target.pod]).map(ToString::to_string).collect();
        let obsolete =
            scaling.iter().find(|pod| being_bound.contains(annotation(&***pod, annotations::SCALING_FOR)));
        obsolete.map(|pod| key(&**pod))
    }

    /// Whether a new GPU may be reserved for the group.
    async fn check_new_reservation(&self, target: &BindTarget, group: &str) -> Result<()> {
        let scaling =
            self.context.informers.store::<Pod>().in_namespace(&self.options.scale_adjust_namespace);
        // Those that no scheduler places take no GPU from a new reservation; KAI's do.
        let takes_gpu = |pod: &&Arc<Pod>| {
            let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
            !is_bound(pod) && !is_terminal(pod) && scheduler != Some(names::SCALING_POD_SCHEDULER)
        };
        if let Some(pod) = scaling.iter().find(takes_gpu) {
            return Err(Error::ScalingUp { pod: key(&**pod).to_string() });
        }
        self.check_unused(target, group).await
    }

    /// Fails while other pods use the GPU of the group: a new reservation may get another GPU than they were given.
    async fn check_unused(&self, target: &BindTarget, group: &str) -> Result<()> {
        match self.active_users(target, group).await?.first() {
            Some(pod) => {
                Err(Error::ReservationLost { group: group.to_owned(), pod: key(&**pod).to_string() })
            }
            None => Ok(()),
        }
    }

    /// The bound pods of the group besides the pod of the request, as the server has them.
    async fn active_users(&self, target: &BindTarget, group: &str) -> Result<Vec<Arc<Pod>>> {
        let mut pods = self.list_pods(group).await?;
        pods.retain(|pod| {
            namespace(&**pod) != self.options.reservation_namespace
                && key(&**pod) != target.pod
                && shares_gpus(pod)
                && is_bound(pod)
                && !is_terminal(pod)
        });
        Ok(pods)
    }

    /// Waits until the reservation pod has reported its GPU.
    async fn wait_for_gpu(&self, reservation: &Pod) -> Result<String> {
        let key = key(reservation);
        let limit = self.options.reservation_timeout;
        let deadline = Instant::now() + limit;
        let failed = |reason: String| Error::ReservationFailed { pod: key.to_string(), reason };
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the store is read, so that no change is missed.
            changed.as_mut().enable();
            let known = self.context.informers.get::<Pod>(&key);
            let Some(known) = known.filter(|pod| uid(&**pod) == uid(reservation)) else {
                return Err(failed("it was deleted".to_owned()));
            };
            match progress(&known) {
                Progress::Reported(uuid) => return Ok(uuid),
                Progress::Failed(reason) => return Err(failed(reason)),
                Progress::Pending => {}
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                break;
            }
        }
        // The informer may lag behind.
        let current = self.context.api.get::<Pod>(&key).await;
        let current = current.during(|| format!("read reservation pod `{key}`"))?;
        self.context.informers.store().update(current.clone());
        match progress(&current) {
            Progress::Reported(uuid) => Ok(uuid),
            Progress::Failed(reason) => Err(failed(reason)),
            Progress::Pending => Err(Error::ReservationTimeout { pod: key.to_string(), waited: limit }),
        }
    }

    /// Deletes a reservation pod that holds no GPU, unless bound pods depend on it.
    async fn abandon(&self, target: &BindTarget, group: &str, reservation: &Pod) -> Result<()> {
        if self.active_users(target, group).await?.is_empty() {
            self.delete_reservation(reservation).await
        } else {
            Ok(())
        }
    }

    async fn wait_for_deletion(&self, pod: &Pod) -> Result<()> {
        let key = key(pod);
        let deadline = Instant::now() + self.options.reservation_timeout;
        let mut poll = Backoff::new(DELETION_POLL);
        loop {
            match self.context.api.get::<Pod>(&key).await {
                Err(error) if error.is_not_found() => return Ok(()),
                Ok(found) if uid(&found) != uid(pod) => return Ok(()),
                found => found.during(|| format!("read reservation pod `{key}`"))?,
            };
            if Instant::now() >= deadline {
                let waited = self.options.reservation_timeout;
                return Err(Error::ReservationTimeout { pod: key.to_string(), waited });
            }
            tokio::time::sleep(poll.next_delay()).await;
        }
    }

    /// Synchronises the GPU groups of a node before another pod is bound to it (KAI: `SyncForNode`).
    ///
    /// Does nothing on nodes without shared GPUs. For a pod with whole GPUs the decision reads the server: the kubelet
    /// rejects the pod if an unused reservation still holds a GPU.
    pub(crate) async fn sync_node(&self, target: &BindTarget, permit: &mut Permit) -> Result<()> {
        let sharing = self.context.informers.store::<Pod>().by_index(SHARING_ON, target.node());
        if sharing.is_empty() {
            return Ok(());
        }
        let whole_gpus = target.gpu_count() > 0 && !target.is_fraction();
        let current = if whole_gpus { Some(self.groups_in_use(target.node()).await?) } else { None };
        let groups: BTreeSet<&str> = sharing.iter().flat_map(|pod| gpu_groups(pod)).collect();
        for group in groups {
            let settled = match self.cached_decision(group, None) {
                Decision::Keep => true,
                Decision::DeleteReservations(_) => false,
                // Otherwise the kubelet might give the GPU to this pod, or to a reservation pod for it.
                Decision::Renew(_) => target.gpu_count() == 0 || !self.renewals.is_due(group),
            };
            if !settled || current.as_ref().is_some_and(|used| !used.contains(group)) {
                let _lock = permit.release_during(self.locks.lock(group)).await;
                permit.release_during(self.sync_locked(group, None)).await?;
            }
        }
        Ok(())
    }

    /// The GPU groups that pods of a node use, as the server has them.
    async fn groups_in_use(&self, node: &str) -> Result<BTreeSet<String>> {
        let query =
            format!("labelSelector={}&fieldSelector=spec.nodeName%3D{}", label::GPU_GROUP, query_value(node));
        let pods = self.context.api.list_selected::<Pod>(&query, "").await;
        let pods = pods.during(|| format!("list the pods of node `{node}`"))?.items;
        let users = pods
            .iter()
            .filter(|pod| namespace(*pod) != self.options.reservation_namespace)
            .filter(|pod| !is_terminal(pod) && shares_gpus(pod));
        Ok(users.flat_map(gpu_groups).map(str::to_owned).collect())
    }

    /// Does what the decision about a group says. The request `over` counts as closed.
    pub(crate) async fn sync_group(&self, group: &str, over: Option<&Key>) -> Result<()> {
        let nothing_to_do = match self.cached_decision(group, over) {
            Decision::Keep => {
                self.renewals.forget(group);
                self.record_reserved(group).await?;
                over.is_none()
            }
            Decision::Renew(_) => !self.renewals.is_due(group),
            Decision::DeleteReservations(_) => false,
        };
        if nothing_to_do {
            return Ok(());
        }
        let _lock = self.locks.lock(group).await;
        self.sync_locked(group, over).await
    }

    fn cached_decision(&self, group: &str, over: Option<&Key>) -> Decision {
        let informers = &self.context.informers;
        let pods = informers.store::<Pod>().by_index(BY_GROUP, group);
        let requests = informers.store::<StoredRequest>().by_index(BY_GROUP, group);
        decide(&self.options.reservation_namespace, group, &pods, &requests, over)
    }

    /// Decides by the state of the server, and acts. The caller holds the lock of the group.
    async fn sync_locked(&self, group: &str, over: Option<&Key>) -> Result<()> {
        let pods = self.list_pods(group).await?;
        let mut requests = self.context.informers.store::<StoredRequest>().by_index(BY_GROUP, group);
        let nodes: BTreeSet<&str> = pods.iter().map(|pod| node_name(pod)).collect();
        for node in nodes.into_iter().filter(|node| !node.is_empty()) {
            let current = self.list_requests(node).await?;
            let selects = |request: &StoredRequest| request.gpu_groups().iter().any(|known| known == group);
            requests.extend(current.into_iter().filter(selects).map(Arc::new));
        }
        let namespace = &self.options.reservation_namespace;
        match decide(namespace, group, &pods, &requests, over) {
            Decision::Keep => Ok(()),
            Decision::DeleteReservations(_) => {
                // A request that was completed after the pods were read no longer protects the reservation, but its pod
                // has the label by now.
                let pods = self.list_pods(group).await?;
                let Decision::DeleteReservations(pods) = decide(namespace, group, &pods, &requests, over)
                else {
                    return Ok(());
                };
                for pod in pods {
                    tracing::info!(pod = %key(&*pod), %group, "delete a reservation pod that is not used");
                    self.delete_reservation(&pod).await?;
                }
                Ok(())
            }
            // Rare, and large: it would enlarge every binding.
            Decision::Renew(lost) => Box::pin(self.renew(group, &lost)).await,
        }
    }

    /// Deletes exactly this reservation pod, without a grace period.
    async fn delete_reservation(&self, pod: &Pod) -> Result<()> {
        let deleted = self.delete_pod(pod, DeleteOptions::of_typed(pod).immediately()).await;
        deleted.during(|| format!("delete reservation pod `{}`", key(pod)))
    }

    /// Deletes a pod and updates the store; succeeds if the pod is gone already.
    async fn delete_pod(&self, pod: &Pod, options: DeleteOptions) -> api::Result<()> {
        let store = self.context.informers.store::<Pod>();
        match self.context.api.delete::<Pod>(&key(pod), &options).await {
            Ok(response) => {
                let terminating = Pod::deserialize(response).ok().filter(|pod| {
                    let finalizers = pod.metadata.finalizers.as_ref();
                    is_terminating(pod)
                        && (finalizers.is_some_and(|finalizers| !finalizers.is_empty())
                            || pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0)
                });
                match terminating {
                    Some(terminating) => store.update(terminating),
                    None => store.remove(pod),
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                store.remove(pod);
                Ok(())
            }
            // The uid precondition failed: another pod has the name.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All pods of a group, as the server has them.
    async fn list_pods(&self, group: &str) -> Result<Vec<Arc<Pod>>> {
        let value = query_value(group);
        let single = format!("labelSelector={}%3D{value}", label::GPU_GROUP);
        let several = format!("labelSelector={}{value}%3D{value}", query_value(label::GPU_GROUP_PREFIX));
        let mut pods = Vec::new();
        for query in [single, several] {
            let listed = self.context.api.list_selected::<Pod>(&query, "").await;
            let listed = listed.during(|| format!("list the pods of GPU group `{group}`"))?;
            // An unread pod may be a user of the group.
            if let Some(invalid) = listed.invalid.first() {
                let (name, reason) = (invalid.key.to_string(), invalid.reason.clone());
                return Err(Error::Invalid { kind: "pod", name, reason });
            }
            pods.extend(listed.items);
        }
        for pod in &pods {
            self.context.informers.store().update(pod.clone());
        }
        Ok(pods.into_iter().map(Arc::new).collect())
    }

    /// The BindRequests for a node, and for all nodes that no label can name, as the server has them.
    async fn list_requests(&self, node: &str) -> Result<Vec<StoredRequest>> {
        let operation = || format!("list the bind requests for node `{node}`");
        let query = match bind_request::selected_node_label(node) {
            Some(node) => format!("labelSelector={}%3D{}", label::SELECTED_NODE, query_value(node)),
            None => format!("labelSelector=%21{}", label::SELECTED_NODE),
        };
        let path = format!("{}?{query}", ResourceKind::of::<BindRequest>().path(""));
        let mut list = self.context.api.send("GET", &path, None).await.during(operation)?;
        let malformed = || Err(api::Error::Malformed { path: path.clone(), field: "items" });
        match list.get_mut("items").map(Value::take).map(Vec::<StoredRequest>::deserialize) {
            Some(Ok(requests)) => Ok(requests),
            Some(Err(_)) | None => malformed().during(operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reservation_pod_reports_its_gpu_or_fails() {
        let pod = |annotation: &str, phase: &str, message: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"annotations": {annotations::RESERVED_GPU: annotation}},
                "status": {"phase": phase, "message": message},
            }))
            .unwrap()
        };
        let failed = |reason: &str| Progress::Failed(reason.to_owned());
        assert_eq!(progress(&pod("", "Pending", "")), Progress::Pending);
        assert_eq!(progress(&pod("GPU-1", "Running", "")), Progress::Reported("GPU-1".to_owned()));
        assert_eq!(progress(&pod("", "Failed", "no GPU")), failed("no GPU"));
        assert_eq!(progress(&pod("GPU-1", "Succeeded", "")), failed("its phase is Succeeded"));
    }
}

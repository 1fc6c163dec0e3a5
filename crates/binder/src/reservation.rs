//! Shared GPUs: a reservation pod holds each from everybody else, for as long as pods use parts of it.
//!
//! Whatever is made or dropped here is first looked up at the server, not in what the watches have told so far, and
//! everything about one group happens under its lock. The name of a reservation pod follows from node and group, so
//! that an attempt that begins again, here or in another process, finds what an earlier one made.

mod decision;
mod gpu_group_controller;
mod locks;
mod pod;

pub(crate) use gpu_group_controller::GpuGroupController;

use crate::bind_target::BindTarget;
use crate::concurrency_limit::Permit;
use crate::error::{Doing, Error, Result};
use crate::informers::{BIND_REQUEST, BY_GROUP, SHARING_ON, annotation_of, groups_of, selected_groups};
use crate::options::Options;
use decision::{Decision, decide, is_over};
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::controller::Context;
use kai_runtime::informer::Subscription;
use kai_runtime::kind::{self, ResourceKind};
use kai_runtime::{Key, api};
use locks::Locks;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Keeps shared GPUs reserved.
#[derive(Debug)]
pub(crate) struct Reservations {
    context: Context,
    options: Arc<Options>,
    locks: Locks,
    /// Wakes whoever waits for a reservation pod; in the order of waiting, so that the same events give the same work.
    news: Notify,
}

/// How far a reservation pod is.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// It holds this GPU.
    Reported(String),
    /// Nothing is known yet.
    Waiting,
    /// It will never hold one.
    Over(String),
}

fn progress(pod: &Value) -> Progress {
    if is_over(pod) {
        let reason = object::str_at(pod, "/status/message");
        let reason = if reason.is_empty() { object::str_at(pod, "/status/reason") } else { reason };
        let phase = object::str_at(pod, "/status/phase");
        let reason = if reason.is_empty() { format!("its phase is {phase}") } else { reason.to_owned() };
        return Progress::Over(reason);
    }
    if object::is_deleting(pod) {
        return Progress::Over("it is being deleted".to_owned());
    }
    match annotation_of(pod, annotation::RESERVED_GPU) {
        "" => Progress::Waiting,
        uuid => Progress::Reported(uuid.to_owned()),
    }
}

impl Reservations {
    pub(crate) fn new(context: Context, options: Arc<Options>) -> Arc<Self> {
        let own = Arc::new(Self { context, options, locks: Locks::default(), news: Notify::new() });
        let listener = Arc::downgrade(&own);
        own.context.informers.dynamic(&kind::POD).subscribe(Box::new(move |pod| {
            let Some(own) = listener.upgrade() else { return Subscription::End };
            if object::namespace(pod) == own.options.reservation_namespace {
                own.news.notify_waiters();
            }
            Subscription::Continue
        }));
        own
    }

    /// Reserves the GPU of a group on a node for a pod, and says which GPU it is.
    pub(crate) async fn reserve(
        &self,
        target: &BindTarget,
        pod: &Value,
        group: &str,
        permit: &mut Permit,
    ) -> Result<String> {
        let _turn = permit.release_during(self.locks.lock(group)).await;
        let reservation = self.ensure(target, pod, group, permit).await?;
        let key = Key::of(&reservation);
        match permit.release_during(self.device(&reservation)).await {
            Ok(uuid) => Ok(uuid),
            Err(error) => {
                if let Err(failed) = self.abandon(target, group, &reservation).await {
                    tracing::warn!(%key, %group, error = &failed as &dyn std::error::Error, "a useless reservation stays");
                }
                Err(error)
            }
        }
    }

    /// The reservation pod of the group, found or made.
    async fn ensure(
        &self,
        target: &BindTarget,
        pod: &Value,
        group: &str,
        permit: &mut Permit,
    ) -> Result<Value> {
        let (context, node) = (&self.context, &target.node);
        let name = pod::name(node, group);
        // One under another name was made by an older binder.
        let cached =
            context.informers.dynamic(&kind::POD).by_index(BY_GROUP, group).into_iter().find(|pod| {
                object::namespace(pod) == self.options.reservation_namespace
                    && object::str_at(pod, "/spec/nodeName") == node
                    && object::name(pod) != name
                    && progress(pod) != Progress::Waiting
            });
        let names = [Some(name.clone()), cached.map(|pod| object::name(&pod).to_owned())];
        for name in names.iter().flatten() {
            let key = Key::new(&self.options.reservation_namespace, name);
            let found = match context.api.get_dynamic(&kind::POD, &key).await {
                Err(error) if error.is_not_found() => continue,
                found => found.doing(|| format!("read reservation pod `{key}`"))?,
            };
            context.informers.update_dynamic(&kind::POD, &found);
            let Progress::Over(_) = progress(&found) else { return Ok(found) };
            self.drop_pod(&found).await?;
            permit.release_during(self.gone(&found)).await?;
        }
        self.check_room_for_new(target, group).await?;
        let wanted = pod::build(&self.options, node, group, pod.pointer("/spec/tolerations"));
        let namespace = &self.options.reservation_namespace;
        match context.create_dynamic(&kind::POD, namespace, &wanted).await {
            // Somebody made it since, or an earlier request did and its answer was lost.
            Err(error) if error.is_conflict() => {
                let key = Key::new(namespace, &name);
                let found = match context.api.get_dynamic(&kind::POD, &key).await {
                    Err(error) if error.is_not_found() => {
                        return Err(Error::Contended { kind: "reservation pod", name: key.to_string() });
                    }
                    found => found.doing(|| format!("read reservation pod `{key}`"))?,
                };
                context.informers.update_dynamic(&kind::POD, &found);
                Ok(found)
            }
            made => made.doing(|| format!("create reservation pod `{name}`")),
        }
    }

    /// Whether a GPU may be taken for the group now.
    async fn check_room_for_new(&self, target: &BindTarget, group: &str) -> Result<()> {
        let scaling =
            self.context.informers.dynamic(&kind::POD).in_namespace(&self.options.scale_adjust_namespace);
        let waits = |pod: &&Arc<Value>| object::str_at(pod, "/spec/nodeName").is_empty() && !is_over(pod);
        if let Some(pod) = scaling.iter().find(waits) {
            return Err(Error::ScalingUp { pod: Key::of(pod).to_string() });
        }
        // A new reservation may get another GPU than the one that these pods were told.
        let users = self.live_pods(group).await?;
        let lost = users.iter().find(|pod| {
            object::namespace(pod) != self.options.reservation_namespace
                && Key::of(pod) != target.pod
                && !object::str_at(pod, "/spec/nodeName").is_empty()
                && !is_over(pod)
        });
        match lost {
            Some(pod) => {
                Err(Error::ReservationLost { group: group.to_owned(), pod: Key::of(pod).to_string() })
            }
            None => Ok(()),
        }
    }

    /// Waits until the reservation pod has said which GPU it holds.
    async fn device(&self, reservation: &Value) -> Result<String> {
        let key = Key::of(reservation);
        let limit = self.options.reservation_timeout;
        let deadline = Instant::now() + limit;
        let failed = |reason: String| Error::ReservationFailed { pod: key.to_string(), reason };
        loop {
            let mut news = pin!(self.news.notified());
            // What happens from here on is not missed.
            news.as_mut().enable();
            let known = self.context.informers.dynamic(&kind::POD).get(&key);
            let Some(known) = known.filter(|pod| object::uid(pod) == object::uid(reservation)) else {
                return Err(failed("it was deleted".to_owned()));
            };
            match progress(&known) {
                Progress::Reported(uuid) => return Ok(uuid),
                Progress::Over(reason) => return Err(failed(reason)),
                Progress::Waiting => {}
            }
            if tokio::time::timeout_at(deadline, news).await.is_err() {
                break;
            }
        }
        // The watch may be behind.
        let live = self.context.api.get_dynamic(&kind::POD, &key).await;
        let live = live.doing(|| format!("read reservation pod `{key}`"))?;
        self.context.informers.update_dynamic(&kind::POD, &live);
        match progress(&live) {
            Progress::Reported(uuid) => Ok(uuid),
            Progress::Over(reason) => Err(failed(reason)),
            Progress::Waiting => Err(Error::ReservationTimeout { pod: key.to_string(), waited: limit }),
        }
    }

    /// Drops a reservation that never came to hold a GPU, unless pods count on it all the same.
    async fn abandon(&self, target: &BindTarget, group: &str, reservation: &Value) -> Result<()> {
        let users = self.live_pods(group).await?;
        let used = users.iter().any(|pod| {
            object::namespace(pod) != self.options.reservation_namespace
                && Key::of(pod) != target.pod
                && !object::str_at(pod, "/spec/nodeName").is_empty()
                && !is_over(pod)
        });
        if used { Ok(()) } else { self.drop_pod(reservation).await }
    }

    /// Waits until a pod that was deleted is gone.
    async fn gone(&self, pod: &Value) -> Result<()> {
        let key = Key::of(pod);
        let deadline = Instant::now() + self.options.reservation_timeout;
        let mut pause = std::time::Duration::from_millis(100);
        loop {
            match self.context.api.get_dynamic(&kind::POD, &key).await {
                Err(error) if error.is_not_found() => return Ok(()),
                Ok(found) if object::uid(&found) != object::uid(pod) => return Ok(()),
                found => found.doing(|| format!("read reservation pod `{key}`"))?,
            };
            if Instant::now() >= deadline {
                let waited = self.options.reservation_timeout;
                return Err(Error::ReservationTimeout { pod: key.to_string(), waited });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(2));
        }
    }

    /// Brings the groups in use on a node to what they should be, before one more pod comes to it.
    ///
    /// Nodes without shared GPUs cost nothing. Where the pod wants whole GPUs, the server is asked who still shares
    /// one: a reservation that should be gone would make the node refuse the pod.
    pub(crate) async fn settle_node(&self, target: &BindTarget, permit: &mut Permit) -> Result<()> {
        let sharing = self.context.informers.dynamic(&kind::POD).by_index(SHARING_ON, &target.node);
        if sharing.is_empty() {
            return Ok(());
        }
        let wants_whole = target.gpu_count > 0 && !target.is_fraction();
        let live = if wants_whole { Some(self.sharing_now(&target.node).await?) } else { None };
        let groups: BTreeSet<&str> = sharing.iter().flat_map(|pod| groups_of(pod)).collect();
        for group in groups {
            let looks_used = match &live {
                Some(used) => used.contains(group),
                None => self.cached_decision(group, None) == Decision::Keep,
            };
            if !looks_used {
                let _turn = permit.release_during(self.locks.lock(group)).await;
                self.settle_locked(group, None).await?;
            }
        }
        Ok(())
    }

    /// The groups that pods on a node use one of at this moment.
    async fn sharing_now(&self, node: &str) -> Result<BTreeSet<String>> {
        let query =
            format!("labelSelector={}&fieldSelector=spec.nodeName%3D{}", label::GPU_GROUP, encoded(node));
        let pods = self.live(&kind::POD, &query).await?;
        let users = pods
            .iter()
            .filter(|pod| object::namespace(pod) != self.options.reservation_namespace && !is_over(pod));
        Ok(users.flat_map(|pod| groups_of(pod)).map(str::to_owned).collect())
    }

    /// Brings a group to what it should be. The request `over` counts as given up.
    pub(crate) async fn settle(&self, group: &str, over: Option<&Key>) -> Result<()> {
        if self.cached_decision(group, over) == Decision::Keep && over.is_none() {
            return Ok(());
        }
        let _turn = self.locks.lock(group).await;
        self.settle_locked(group, over).await
    }

    fn cached_decision(&self, group: &str, over: Option<&Key>) -> Decision {
        let informers = &self.context.informers;
        let pods = informers.dynamic(&kind::POD).by_index(BY_GROUP, group);
        let requests = informers.dynamic(&BIND_REQUEST).by_index(BY_GROUP, group);
        decide(&self.options.reservation_namespace, &pods, &requests, over)
    }

    /// Decides by what the server says, and acts.
    async fn settle_locked(&self, group: &str, over: Option<&Key>) -> Result<()> {
        let pods = self.live_pods(group).await?;
        let mut requests = self.context.informers.dynamic(&BIND_REQUEST).by_index(BY_GROUP, group);
        let nodes: BTreeSet<&str> = pods.iter().map(|pod| object::str_at(pod, "/spec/nodeName")).collect();
        for node in nodes.into_iter().filter(|node| !node.is_empty()) {
            let query = format!("labelSelector={}%3D{}", label::SELECTED_NODE, encoded(node));
            let live = self.live(&BIND_REQUEST, &query).await?;
            let names = |request: &Value| selected_groups(request).contains(&group);
            requests.extend(live.into_iter().filter(|request| names(request)).map(Arc::new));
        }
        let namespace = &self.options.reservation_namespace;
        match decide(namespace, &pods, &requests, over) {
            Decision::Keep => Ok(()),
            Decision::DropReservations(pods) => {
                for pod in pods {
                    tracing::info!(pod = %Key::of(&pod), %group, "nobody shares the GPU any more");
                    self.drop_pod(&pod).await?;
                }
                Ok(())
            }
            Decision::DropUsers(pods) => {
                for pod in pods {
                    tracing::warn!(pod = %Key::of(&pod), %group, "the pod shares a GPU that nothing reserves");
                    let deleted =
                        self.context.delete_dynamic(&kind::POD, &pod, DeleteOptions::of(&pod)).await;
                    deleted.doing(|| format!("delete pod `{}`", Key::of(&pod)))?;
                }
                Ok(())
            }
        }
    }

    /// Deletes exactly this reservation pod, at once.
    async fn drop_pod(&self, pod: &Value) -> Result<()> {
        let deleted =
            self.context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod).immediately()).await;
        deleted.doing(|| format!("delete reservation pod `{}`", Key::of(pod)))
    }

    /// All pods of a group, as the server has them.
    async fn live_pods(&self, group: &str) -> Result<Vec<Arc<Value>>> {
        let value = encoded(group);
        let single = format!("labelSelector={}%3D{value}", label::GPU_GROUP);
        let several = format!("labelSelector={}{value}%3D{value}", encoded(label::GPU_GROUP_PREFIX));
        let mut pods = self.live(&kind::POD, &single).await?;
        pods.extend(self.live(&kind::POD, &several).await?);
        for pod in &pods {
            self.context.informers.update_dynamic(&kind::POD, pod);
        }
        Ok(pods.into_iter().map(Arc::new).collect())
    }

    /// The objects that a selector picks, as the server has them.
    async fn live(&self, kind: &ResourceKind, query: &str) -> Result<Vec<Value>> {
        let path = format!("{}?{query}", kind.path(""));
        let mut list = self.context.api.send("GET", &path, None).await.doing(|| format!("list {path}"))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(mut items)) => {
                for item in &mut items {
                    // Lists leave out what every item is.
                    item["kind"] = Value::from(&*kind.kind);
                    item["apiVersion"] = Value::from(kind.api_version());
                }
                Ok(items)
            }
            _ => Err(api::Error::Malformed { path: path.clone(), field: "items" })
                .doing(|| format!("list {path}")),
        }
    }
}

/// A piece of a query as it must be written there.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("text can be written to");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reservation_reports_its_gpu_or_fails() {
        let pod = |annotation: &str, phase: &str, message: &str| {
            json!({
                "metadata": {"annotations": {annotation::RESERVED_GPU: annotation}},
                "status": {"phase": phase, "message": message},
            })
        };
        let over = |reason: &str| Progress::Over(reason.to_owned());
        assert_eq!(progress(&pod("", "Pending", "")), Progress::Waiting);
        assert_eq!(progress(&pod("GPU-1", "Running", "")), Progress::Reported("GPU-1".to_owned()));
        assert_eq!(progress(&pod("", "Failed", "no room")), over("no room"));
        assert_eq!(progress(&pod("GPU-1", "Succeeded", "")), over("its phase is Succeeded"));
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encoded("runai-gpu-group/"), "runai-gpu-group%2F");
        assert_eq!(encoded("a b=ü"), "a%20b%3D%C3%BC");
    }
}

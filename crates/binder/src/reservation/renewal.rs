//! Renews the reservation of a GPU that pods use: its reservation pod failed, was evicted or deleted.
//!
//! The kubelet chooses the GPU of a pod. Reservation pods are therefore created one after another, each holding its GPU,
//! until one holds the GPU that the users were given; the others are deleted. Meanwhile no pod that occupies whole GPUs is
//! sent to the node: the kubelet would reject it. If no pod gets the GPU, the users keep running and the group is
//! drained: no further pod is bound to it, and the renewal is repeated with backoff.
//!
//! Each step is idempotent: the next call continues after a crash. The annotation of the reservation pods, else the config
//! maps of the users, say which GPU it is.

use super::decision::{Lost, User};
use super::{Progress, Reservations, pod, progress};
use crate::error::{Error, Result};
use crate::objects::{annotation, is_terminal, key, name};
use crate::plugin::gpu_sharing;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::well_known::annotation as annotations;
use kai_runtime::Key;
use kai_runtime::backoff::{Backoff, BackoffPolicy};
use kai_runtime::event::{Event, EventType, Regarding};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Delays between renewals that found another pod on the GPU.
const RENEWAL: BackoffPolicy = BackoffPolicy::new(Duration::from_mins(1), Duration::from_mins(16));
/// Number of reservation pods that a renewal creates at most: more than any node has GPUs.
const PODS_MAX: usize = 32;
/// Number of users whose config maps are read for the GPU.
const USERS_READ_MAX: usize = 8;

/// The groups whose last renewal failed. It is only an optimisation: after a restart they are due at once.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    failed: Mutex<BTreeMap<String, (Backoff, Instant)>>,
}

impl Renewals {
    pub(super) fn is_due(&self, group: &str) -> bool {
        self.failed.lock().get(group).is_none_or(|(_, due)| *due <= Instant::now())
    }

    pub(super) fn forget(&self, group: &str) {
        self.failed.lock().remove(group);
    }

    fn delay(&self, group: &str) {
        let mut failed = self.failed.lock();
        let (backoff, due) =
            failed.entry(group.to_owned()).or_insert_with(|| (Backoff::new(RENEWAL), Instant::now()));
        *due = Instant::now() + backoff.next_delay();
    }
}

impl Reservations {
    /// Renews the reservation of a GPU. The caller holds the lock of the group.
    pub(super) async fn renew(&self, group: &str, lost: &Lost) -> Result<()> {
        if !self.renewals.is_due(group) {
            return Ok(());
        }
        if self.context.informers.get::<Node>(&Key::new("", &lost.node)).is_none() {
            return Ok(());
        }
        let wanted = match recorded_gpu(&lost.reservations) {
            Some(uuid) => Some(uuid.to_owned()),
            None => self.gpu_of_users(&lost.users).await?,
        };
        let outcome = match &wanted {
            Some(wanted) => self.acquire(group, lost, wanted).await?,
            None => {
                Err("neither the reservation pod nor the config maps of the pods say which GPU it is"
                    .to_owned())
            }
        };
        match outcome {
            Ok(pod) => {
                tracing::info!(pod = %key(&pod), %group, node = %lost.node, "renewed the reservation of a GPU");
                self.renewals.forget(group);
                self.record_reserved(group).await?;
            }
            Err(reason) => {
                self.record_drained(group, &lost.users).await?;
                self.renewals.delay(group);
                self.report_lost(group, lost, wanted.as_deref().unwrap_or("unknown"), &reason);
            }
        }
        Ok(())
    }

    /// Creates reservation pods until one holds the GPU `wanted`, and deletes the others. The inner error says why none does.
    async fn acquire(&self, group: &str, lost: &Lost, wanted: &str) -> Result<Result<Pod, String>> {
        let _node = self.nodes.lock(&lost.node).await;
        let first_name = pod::name(&lost.node, group);
        let mut tried: Vec<Pod> = Vec::new();
        let mut outcome = Err(format!("no reservation pod got it within {PODS_MAX} attempts"));
        for ordinal in 0..PODS_MAX {
            let own_name = if ordinal == 0 { first_name.clone() } else { format!("{first_name}-{ordinal}") };
            let known = lost.reservations.iter().find(|pod| name(&***pod) == own_name);
            let reservation = match known {
                Some(ended) if is_terminal(ended) => continue,
                Some(known) => (**known).clone(),
                None => self.create_or_get(&self.renewal(group, lost, own_name, wanted)).await?,
            };
            let waited = self.wait_for_gpu(&reservation).await;
            // What it reported meanwhile.
            let latest = self.context.informers.get::<Pod>(&key(&reservation));
            let reservation = latest.map_or(reservation, |pod| (*pod).clone());
            let holds_other =
                !is_terminal(&reservation) && !annotation(&reservation, annotations::RESERVED_GPU).is_empty();
            tried.push(reservation);
            match waited {
                Ok(_) => {
                    outcome = Ok(());
                    break;
                }
                Err(Error::ReservationFailed { .. }) if holds_other => {}
                Err(Error::ReservationFailed { reason, .. }) => {
                    outcome = Err(reason);
                    break;
                }
                // It stays, and may report later.
                Err(error @ Error::ReservationTimeout { .. }) => {
                    tried.pop();
                    outcome = Err(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let renewed = if outcome.is_ok() { tried.pop() } else { None };
        let surplus = lost.reservations.iter().map(|pod| &**pod).chain(&tried);
        for pod in surplus {
            let kept = match &renewed {
                Some(renewed) => key(renewed) == key(pod),
                // The pod that held the GPU records which one it was; a pending one may still get it.
                None => {
                    annotation(pod, annotations::RESERVED_GPU) == wanted || progress(pod) == Progress::Pending
                }
            };
            if !kept {
                self.delete_reservation(pod).await?;
            }
        }
        Ok(outcome.and(renewed.ok_or_else(String::new)))
    }

    fn renewal(&self, group: &str, lost: &Lost, name: String, wanted: &str) -> Pod {
        let user = lost.users.first().and_then(|user| user.pod.spec.as_ref());
        let tolerations = user.and_then(|spec| spec.tolerations.clone());
        let mut renewal = pod::build(&self.options, &lost.node, group, tolerations);
        renewal.metadata.name = Some(name);
        renewal.annotations_mut().insert(annotations::RENEWED_GPU.to_owned(), wanted.to_owned());
        renewal
    }

    /// The GPU that the users were given, if the config maps that say so agree.
    async fn gpu_of_users(&self, users: &[User]) -> Result<Option<String>> {
        let mut found: Option<String> = None;
        for user in users.iter().take(USERS_READ_MAX) {
            let devices = gpu_sharing::visible_devices(&self.context.api, &user.pod).await?;
            let Some(device) = devices.get(user.position).filter(|_| devices.len() == user.gpus) else {
                continue;
            };
            if found.as_ref().is_some_and(|known| known != device) {
                return Ok(None);
            }
            found = Some(device.clone());
        }
        Ok(found)
    }

    fn report_lost(&self, group: &str, lost: &Lost, uuid: &str, reason: &str) {
        tracing::warn!(%group, node = %lost.node, uuid, reason, "cannot renew the reservation of a GPU in use");
        for user in &lost.users {
            self.recorder.record(&Event {
                regarding: Regarding::of(&*user.pod),
                type_: EventType::Warning,
                reason: "GPUReservationLost",
                message: format!(
                    "The reservation of GPU {uuid} on node {} ended and cannot be renewed: {reason}. The pod keeps running, \
                     but another pod may get the GPU as a whole; no further pod shares it",
                    lost.node
                ),
                annotations: BTreeMap::new(),
            });
        }
    }
}

/// The GPU that the reservation pods of a group held, or had to hold.
fn recorded_gpu(reservations: &[std::sync::Arc<Pod>]) -> Option<&str> {
    let of = |name: &'static str| reservations.iter().map(move |pod| annotation(&**pod, name));
    of(annotations::RENEWED_GPU).chain(of(annotations::RESERVED_GPU)).find(|uuid| !uuid.is_empty())
}

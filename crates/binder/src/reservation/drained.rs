//! Records which shared GPUs are drained, for the scheduler: it sends no further pod there.
//!
//! The record is the `reason` in the status of the bind requests that put the users on the GPU. It ends with the pods, and
//! their owners have no right to write it.

use super::Reservations;
use super::decision::User;
use crate::bind_target::{BindTarget, StoredRequest};
use crate::error::{ApiContext as _, Result};
use crate::informers::BY_GROUP;
use crate::objects::key;
use kai_api::{BindRequest, BindRequestStatus};
use kai_runtime::ResourceKind;
use kai_runtime::api::Part;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Whether a reservation pod holds the GPU of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reservation {
    Lost,
    Held,
}

impl Reservations {
    pub(super) async fn record_drained(&self, group: &str, users: &[User]) -> Result<()> {
        let is_user = |target: &BindTarget| users.iter().any(|user| key(&*user.pod) == target.pod);
        self.record(group, Reservation::Lost, is_user).await
    }

    /// Removes what an earlier failed renewal has recorded, also in another process.
    pub(super) async fn record_reserved(&self, group: &str) -> Result<()> {
        self.record(group, Reservation::Held, |_| true).await
    }

    async fn record(&self, group: &str, now: Reservation, of: impl Fn(&BindTarget) -> bool) -> Result<()> {
        let store = self.context.informers.store::<StoredRequest>();
        for request in store.by_index(BY_GROUP, group) {
            let Ok(target) = &request.target else { continue };
            if request.is_terminating() || !of(target) {
                continue;
            }
            let Some(reason) = changed_reason(&target.status, group, now) else { continue };
            let reason = if reason.is_empty() { Value::Null } else { Value::from(reason) };
            // Another group of the same request may change at the same time.
            let version = request.identity().resource_version.to_owned();
            let patch = json!({
                "metadata": {"uid": target.uid, "resourceVersion": version}, "status": {"reason": reason},
            });
            let kind = ResourceKind::of::<BindRequest>();
            let written = self.context.api.patch_dynamic(&kind, &target.key, Part::Status, &patch).await;
            let written = match written {
                Err(error) if error.is_not_found() => continue,
                written => written.during(|| format!("record the state of GPU group `{group}`"))?,
            };
            if let Ok(written) = StoredRequest::deserialize(written) {
                store.update(written);
            }
        }
        Ok(())
    }
}

/// The reason of a succeeded request after a change of one of its groups; `None` where it stays.
fn changed_reason(status: &BindRequestStatus, group: &str, now: Reservation) -> Option<String> {
    if status.phase != BindRequestStatus::SUCCEEDED {
        return None;
    }
    let mut groups: BTreeSet<&str> = status.drained_gpu_groups().collect();
    let is_changed = match now {
        Reservation::Lost => groups.insert(group),
        Reservation::Held => groups.remove(group),
    };
    is_changed.then(|| BindRequestStatus::drained_reason(groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_lists_the_drained_groups_of_a_succeeded_request() {
        let status = |phase: &str, reason: &str| BindRequestStatus {
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            failed_attempts: None,
        };
        let none = status("Succeeded", "");
        assert_eq!(changed_reason(&none, "g", Reservation::Held), None);
        let one = changed_reason(&none, "g", Reservation::Lost).unwrap();
        assert_eq!(one, "GPUReservationLost: g");
        let one = status("Succeeded", &one);
        assert_eq!(changed_reason(&one, "g", Reservation::Lost), None);
        let two = changed_reason(&one, "f", Reservation::Lost).unwrap();
        assert_eq!(two, "GPUReservationLost: f, g");
        assert_eq!(changed_reason(&status("Succeeded", &two), "f", Reservation::Held).unwrap(), one.reason);
        assert_eq!(changed_reason(&one, "g", Reservation::Held).unwrap(), "");
        // The reason of a failed request is that of its last attempt.
        assert_eq!(changed_reason(&status("Failed", "x"), "g", Reservation::Lost), None);
    }
}

//! Decides about one GPU group, from its pods and the BindRequests that select it.
//!
//! Invariant: a reservation pod is deleted only when no pod uses the group and no open request selects it.

use crate::attempt;
use crate::bind_target::{BindTarget, StoredRequest};
use crate::objects::{is_bound, is_terminal, is_terminating, key, namespace, phase};
use k8s_openapi::api::core::v1::Pod;
use kai_runtime::Key;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    Keep,
    /// These reservation pods have no user.
    DeleteReservations(Vec<Arc<Pod>>),
    /// These pods use a GPU without a reservation, which the scheduler may allocate to other pods.
    DeleteUsers(Vec<Arc<Pod>>),
}

/// `pods` are all pods with the label of the group, `requests` all BindRequests that select it. The request `over`
/// counts as closed, regardless of its status. Invalid requests count as closed too: they are never bound.
pub(crate) fn decide(
    reservation_namespace: &str,
    pods: &[Arc<Pod>],
    requests: &[Arc<StoredRequest>],
    over: Option<&Key>,
) -> Decision {
    let (reservations, others): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        pods.iter().partition(|pod| namespace(&***pod) == reservation_namespace);
    let open: Vec<&BindTarget> = requests
        .iter()
        .filter(|request| !request.is_terminating())
        .filter_map(|request| request.target.as_deref().ok())
        .filter(|target| {
            attempt::is_open(&target.status, target.spec.backoff_limit) && Some(&target.key) != over
        })
        .collect();
    // An unbound pod without an open request has the label of an earlier attempt.
    let uses =
        |pod: &Pod| !is_terminal(pod) && (is_bound(pod) || open.iter().any(|target| target.pod == key(pod)));
    let users: Vec<&Arc<Pod>> = others.into_iter().filter(|pod| uses(pod)).collect();
    if users.is_empty() {
        let unused = open.is_empty() && !reservations.is_empty();
        return if unused {
            Decision::DeleteReservations(reservations.into_iter().map(Arc::clone).collect())
        } else {
            Decision::Keep
        };
    }
    if reservations.iter().any(|pod| !is_terminal(pod)) {
        return Decision::Keep;
    }
    let running = |pod: &Pod| phase(pod) == "Running" && !is_terminating(pod);
    let unreserved: Vec<Arc<Pod>> = users.into_iter().filter(|pod| running(pod)).map(Arc::clone).collect();
    if unreserved.is_empty() { Decision::Keep } else { Decision::DeleteUsers(unreserved) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RESERVED: &str = "kai-resource-reservation";

    fn pod(namespace: &str, name: &str, phase: &str, node: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name}, "spec": {"nodeName": node}, "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn reservation(phase: &str) -> Arc<Pod> {
        pod(RESERVED, "reservation", phase, "n")
    }

    fn request(pod: &str, phase: &str, failed: i32, limit: Option<i32>) -> Arc<StoredRequest> {
        let request = json!({
            "metadata": {"namespace": "x", "name": pod},
            "spec": {"podName": pod, "backoffLimit": limit}, "status": {"phase": phase, "failedAttempts": failed},
        });
        Arc::new(serde_json::from_value(request).unwrap())
    }

    fn names(decision: Decision) -> (&'static str, Vec<String>) {
        let names = |pods: Vec<Arc<Pod>>| pods.iter().map(|pod| key(&**pod).name).collect();
        match decision {
            Decision::Keep => ("keep", Vec::new()),
            Decision::DeleteReservations(pods) => ("delete reservations", names(pods)),
            Decision::DeleteUsers(pods) => ("delete users", names(pods)),
        }
    }

    #[track_caller]
    fn check(pods: &[Arc<Pod>], requests: &[Arc<StoredRequest>], expected: &str, of: &[&str]) {
        let (decision, pods) = names(decide(RESERVED, pods, requests, None));
        assert_eq!((decision, pods), (expected, of.iter().map(|name| (*name).to_owned()).collect()));
    }

    #[test]
    fn reservation_with_users_is_kept() {
        check(&[reservation("Running"), pod("x", "a", "Running", "n")], &[], "keep", &[]);
        check(&[reservation("Pending"), pod("x", "a", "Pending", "n")], &[], "keep", &[]);
    }

    #[test]
    fn reservation_without_active_users_is_deleted() {
        check(
            &[reservation("Running"), pod("x", "a", "Succeeded", "n"), pod("x", "b", "Failed", "n")],
            &[],
            "delete reservations",
            &["reservation"],
        );
        check(&[reservation("Running")], &[], "delete reservations", &["reservation"]);
        check(&[reservation("Failed")], &[], "delete reservations", &["reservation"]);
    }

    #[test]
    fn running_users_without_a_reservation_are_deleted_and_pending_ones_kept() {
        let pods = [pod("x", "a", "Running", "n"), pod("x", "b", "Pending", "n")];
        check(&pods, &[], "delete users", &["a"]);
        check(&pods[1..], &[], "keep", &[]);
        let [a, b] = pods;
        check(&[a, b, reservation("Failed")], &[], "delete users", &["a"]);
    }

    #[test]
    fn open_request_keeps_the_reservation() {
        let table = [
            (request("a", "", 0, None), "keep"),
            (request("a", "Pending", 0, None), "keep"),
            (request("a", "Failed", 1, Some(3)), "keep"),
            (request("a", "Failed", 0, None), "delete reservations"),
            (request("a", "Failed", 3, Some(3)), "delete reservations"),
            (request("a", "Succeeded", 0, None), "delete reservations"),
        ];
        for (request, expected) in table {
            let (decision, _) = names(decide(RESERVED, &[reservation("Running")], &[request], None));
            assert_eq!(decision, expected);
        }
    }

    #[test]
    fn request_of_a_rollback_counts_as_closed() {
        let requests = [request("a", "", 0, None)];
        let pods = [reservation("Running"), pod("x", "a", "Pending", "")];
        let decision = decide(RESERVED, &pods, &requests, Some(&Key::new("x", "a")));
        assert_eq!(names(decision).0, "delete reservations");
        let others = [request("a", "", 0, None), request("b", "", 0, None)];
        assert_eq!(decide(RESERVED, &pods, &others, Some(&Key::new("x", "a"))), Decision::Keep);
    }

    #[test]
    fn label_of_an_earlier_attempt_does_not_keep_the_reservation() {
        let pods = [reservation("Running"), pod("x", "a", "Pending", "")];
        check(&pods, &[], "delete reservations", &["reservation"]);
        check(&pods, &[request("a", "", 0, None)], "keep", &[]);
    }

    #[test]
    fn invalid_request_does_not_keep_the_reservation() {
        let invalid = json!({
            "metadata": {"namespace": "x", "name": "a"}, "spec": {"podName": "a", "backoffLimit": "three"},
        });
        let invalid: StoredRequest = serde_json::from_value(invalid).unwrap();
        check(&[reservation("Running")], &[Arc::new(invalid)], "delete reservations", &["reservation"]);
    }

    #[test]
    fn group_without_pods_needs_no_action() {
        check(&[], &[], "keep", &[]);
        check(&[pod("x", "a", "Succeeded", "n")], &[], "keep", &[]);
    }
}

//! Decides what is to be done about one GPU group, from its pods and the bind requests that name it.
//!
//! Invariant: a reservation goes only when nobody uses it and nobody is about to.

use crate::attempt;
use crate::bind_target::BindTarget;
use kai_object as object;
use kai_runtime::Key;
use serde_json::Value;
use std::sync::Arc;

/// What is to be done about a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing.
    Keep,
    /// Nobody uses what these pods reserve.
    DropReservations(Vec<Arc<Value>>),
    /// These pods use a GPU that nothing reserves, so that others may be given it too.
    DropUsers(Vec<Arc<Value>>),
}

/// Whether a pod is over, so that it holds no device.
pub(crate) fn is_over(pod: &Value) -> bool {
    matches!(object::str_at(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// What is to be done about a group.
///
/// `pods` are all that carry the group's label, `requests` all that name the group. The request `over` counts as given
/// up, whatever it says.
pub(crate) fn decide(
    namespace: &str,
    pods: &[Arc<Value>],
    requests: &[Arc<Value>],
    over: Option<&Key>,
) -> Decision {
    let (reservations, others): (Vec<&Arc<Value>>, Vec<&Arc<Value>>) =
        pods.iter().partition(|pod| object::namespace(pod) == namespace);
    let orders: Vec<BindTarget> = requests
        .iter()
        .filter(|request| !object::is_deleting(request))
        .map(BindTarget::of)
        .filter(|target| attempt::is_open(&target.status, target.limit) && Some(&target.key) != over)
        .collect();
    // A pod that waits without a request carries the label of an attempt that is over.
    let uses = |pod: &Value| {
        let bound = !object::str_at(pod, "/spec/nodeName").is_empty();
        !is_over(pod) && (bound || orders.iter().any(|target| target.pod == Key::of(pod)))
    };
    let users: Vec<&Arc<Value>> = others.into_iter().filter(|pod| uses(pod)).collect();
    if users.is_empty() {
        let free = orders.is_empty() && !reservations.is_empty();
        return if free {
            Decision::DropReservations(reservations.into_iter().map(Arc::clone).collect())
        } else {
            Decision::Keep
        };
    }
    if reservations.iter().any(|pod| !is_over(pod)) {
        return Decision::Keep;
    }
    let running =
        |pod: &Value| object::str_at(pod, "/status/phase") == "Running" && !object::is_deleting(pod);
    let lost: Vec<Arc<Value>> = users.into_iter().filter(|pod| running(pod)).map(Arc::clone).collect();
    if lost.is_empty() { Decision::Keep } else { Decision::DropUsers(lost) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RESERVED: &str = "kai-resource-reservation";

    fn pod(namespace: &str, name: &str, phase: &str, node: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"namespace": namespace, "name": name}, "spec": {"nodeName": node}, "status": {"phase": phase},
        }))
    }

    fn reservation(phase: &str) -> Arc<Value> {
        pod(RESERVED, "reservation", phase, "n")
    }

    fn request(pod: &str, phase: &str, failed: i32, limit: Option<i32>) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"namespace": "x", "name": pod},
            "spec": {"podName": pod, "backoffLimit": limit}, "status": {"phase": phase, "failedAttempts": failed},
        }))
    }

    fn names(decision: Decision) -> (&'static str, Vec<String>) {
        let names = |pods: Vec<Arc<Value>>| pods.iter().map(|pod| object::name(pod).to_owned()).collect();
        match decision {
            Decision::Keep => ("keep", Vec::new()),
            Decision::DropReservations(pods) => ("drop reservations", names(pods)),
            Decision::DropUsers(pods) => ("drop users", names(pods)),
        }
    }

    #[track_caller]
    fn check(pods: &[Arc<Value>], requests: &[Arc<Value>], wanted: &str, of: &[&str]) {
        let (what, who) = names(decide(RESERVED, pods, requests, None));
        assert_eq!((what, who), (wanted, of.iter().map(|name| (*name).to_owned()).collect()));
    }

    #[test]
    fn a_reservation_with_users_stays() {
        check(&[reservation("Running"), pod("x", "a", "Running", "n")], &[], "keep", &[]);
        check(&[reservation("Pending"), pod("x", "a", "Pending", "n")], &[], "keep", &[]);
    }

    #[test]
    fn a_reservation_whose_users_are_over_goes() {
        check(
            &[reservation("Running"), pod("x", "a", "Succeeded", "n"), pod("x", "b", "Failed", "n")],
            &[],
            "drop reservations",
            &["reservation"],
        );
        check(&[reservation("Running")], &[], "drop reservations", &["reservation"]);
        check(&[reservation("Failed")], &[], "drop reservations", &["reservation"]);
    }

    #[test]
    fn running_pods_without_a_reservation_go_and_waiting_ones_stay() {
        let pods = [pod("x", "a", "Running", "n"), pod("x", "b", "Pending", "n")];
        check(&pods, &[], "drop users", &["a"]);
        check(&pods[1..], &[], "keep", &[]);
        let [a, b] = pods;
        check(&[a, b, reservation("Failed")], &[], "drop users", &["a"]);
    }

    #[test]
    fn a_request_that_is_open_keeps_the_reservation() {
        let table = [
            (request("a", "", 0, None), "keep"),
            (request("a", "Pending", 0, None), "keep"),
            (request("a", "Failed", 1, Some(3)), "keep"),
            (request("a", "Failed", 0, None), "drop reservations"),
            (request("a", "Failed", 3, Some(3)), "drop reservations"),
            (request("a", "Succeeded", 0, None), "drop reservations"),
        ];
        for (request, wanted) in table {
            let (what, _) = names(decide(RESERVED, &[reservation("Running")], &[request], None));
            assert_eq!(what, wanted);
        }
    }

    #[test]
    fn the_request_that_is_being_undone_keeps_nothing() {
        let requests = [request("a", "", 0, None)];
        let pods = [reservation("Running"), pod("x", "a", "Pending", "")];
        let decision = decide(RESERVED, &pods, &requests, Some(&Key::new("x", "a")));
        assert_eq!(names(decision).0, "drop reservations");
        let others = [request("a", "", 0, None), request("b", "", 0, None)];
        assert_eq!(decide(RESERVED, &pods, &others, Some(&Key::new("x", "a"))), Decision::Keep);
    }

    #[test]
    fn a_label_left_on_a_waiting_pod_keeps_nothing() {
        let pods = [reservation("Running"), pod("x", "a", "Pending", "")];
        check(&pods, &[], "drop reservations", &["reservation"]);
        check(&pods, &[request("a", "", 0, None)], "keep", &[]);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        check(&[], &[], "keep", &[]);
        check(&[pod("x", "a", "Succeeded", "n")], &[], "keep", &[]);
    }
}

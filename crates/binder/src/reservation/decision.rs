//! Decides about one GPU group, from its pods and the BindRequests that select it.
//!
//! Invariants: pods that use a GPU are never deleted here. The reservation pod that holds a GPU is deleted only when no pod
//! uses the group and no open request selects it.

use super::{Progress, progress};
use crate::attempt;
use crate::bind_target::{BindTarget, StoredRequest};
use crate::objects::{is_bound, is_terminal, is_terminating, key, namespace, node_name, shares_gpus, uid};
use k8s_openapi::api::core::v1::Pod;
use kai_api::well_known::annotation;
use kai_runtime::Key;
use kube::ResourceExt as _;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    Keep,
    /// These reservation pods have no user, or another one holds the GPU.
    DeleteReservations(Vec<Arc<Pod>>),
    /// No reservation pod holds the GPU that pods use.
    Renew(Lost),
}

/// A GPU that lost its reservation while pods use it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lost {
    pub(crate) node: String,
    /// The pods that a BindRequest put on the GPU, with the position of the GPU among those of the pod and their number.
    /// Other pods with the label of the group have no right to a reservation.
    pub(crate) users: Vec<User>,
    /// The reservation pods of the group, in any state.
    pub(crate) reservations: Vec<Arc<Pod>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct User {
    pub(crate) pod: Arc<Pod>,
    pub(crate) position: usize,
    pub(crate) gpus: usize,
}

/// `pods` are all pods with the label of the group, `requests` all BindRequests that select it. The request `over`
/// counts as closed, regardless of its status. Invalid requests count as closed too: they are never bound.
pub(crate) fn decide(
    reservation_namespace: &str,
    group: &str,
    pods: &[Arc<Pod>],
    requests: &[Arc<StoredRequest>],
    over: Option<&Key>,
) -> Decision {
    let (reservations, others): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
        pods.iter().map(Arc::clone).partition(|pod| namespace(&**pod) == reservation_namespace);
    let targets: Vec<&BindTarget> = requests
        .iter()
        .filter(|request| !request.is_terminating())
        .filter_map(|request| request.target.as_deref().ok())
        .collect();
    let is_open = |target: &BindTarget| {
        attempt::is_open(&target.status, target.spec.backoff_limit) && Some(&target.key) != over
    };
    let open: Vec<&BindTarget> = targets.iter().copied().filter(|target| is_open(target)).collect();
    // An unbound pod without an open request has the label of an earlier attempt.
    let is_target = |targets: &[&BindTarget], pod: &Pod| targets.iter().any(|target| target.pod == key(pod));
    let holds = |pod: &Pod| is_bound(pod) && (shares_gpus(pod) || is_target(&targets, pod));
    let uses = |pod: &Pod| !is_terminal(pod) && (holds(pod) || is_target(&open, pod));
    let users: Vec<Arc<Pod>> = others.into_iter().filter(|pod| uses(pod)).collect();
    if users.is_empty() {
        let unused = open.is_empty() && !reservations.is_empty();
        return if unused { Decision::DeleteReservations(reservations) } else { Decision::Keep };
    }
    // A terminating pod holds its GPU until it is gone.
    let is_renewal = |pod: &Pod| pod.annotations().contains_key(annotation::RENEWED_GPU);
    if reservations.iter().any(|pod| !is_terminal(pod) && (!is_renewal(pod) || is_terminating(&**pod))) {
        return Decision::Keep;
    }
    if let Some(renewed) = reservations.iter().find(|pod| matches!(progress(pod), Progress::Reported(_))) {
        let surplus: Vec<Arc<Pod>> =
            reservations.iter().filter(|pod| !Arc::ptr_eq(pod, renewed)).map(Arc::clone).collect();
        return if surplus.is_empty() { Decision::Keep } else { Decision::DeleteReservations(surplus) };
    }
    match lost(group, users, &targets, reservations) {
        Some(lost) => Decision::Renew(lost),
        None => Decision::Keep,
    }
}

/// The GPU of the group, if a bound pod has a right to it.
fn lost(
    group: &str,
    users: Vec<Arc<Pod>>,
    targets: &[&BindTarget],
    reservations: Vec<Arc<Pod>>,
) -> Option<Lost> {
    let user = |pod: Arc<Pod>| {
        let target = targets.iter().find(|target| {
            target.pod == key(&*pod)
                && target.node() == node_name(&pod)
                && target.pod_uid.as_ref().is_none_or(|known| known == uid(&*pod))
        })?;
        let position = target.gpu_groups().iter().position(|selected| selected == group)?;
        Some(User { pod, position, gpus: target.gpu_groups().len() })
    };
    let bound = users.into_iter().filter(|pod| is_bound(pod) && !is_terminating(&**pod));
    let mut users: Vec<User> = bound.filter_map(user).collect();
    let node = node_name(&users.first()?.pod).to_owned();
    users.retain(|user| node_name(&user.pod) == node);
    Some(Lost { node, users, reservations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RESERVED: &str = "kai-resource-reservation";

    fn pod(namespace: &str, name: &str, phase: &str, node: &str) -> Arc<Pod> {
        let annotations = json!({annotation::GPU_FRACTION: "0.5"});
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
            "spec": {"nodeName": node}, "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn reservation(phase: &str) -> Arc<Pod> {
        pod(RESERVED, "reservation", phase, "n")
    }

    fn request(pod: &str, phase: &str, failed: i32, limit: Option<i32>) -> Arc<StoredRequest> {
        let request = json!({
            "metadata": {"namespace": "x", "name": pod},
            "spec": {
                "podName": pod, "selectedNode": "n", "selectedGPUGroups": ["f", "g"], "backoffLimit": limit,
            },
            "status": {"phase": phase, "failedAttempts": failed},
        });
        Arc::new(serde_json::from_value(request).unwrap())
    }

    fn names(decision: Decision) -> (&'static str, Vec<String>) {
        let names = |pods: Vec<Arc<Pod>>| pods.iter().map(|pod| key(&**pod).name).collect();
        match decision {
            Decision::Keep => ("keep", Vec::new()),
            Decision::DeleteReservations(pods) => ("delete reservations", names(pods)),
            Decision::Renew(lost) => ("renew", names(lost.users.into_iter().map(|user| user.pod).collect())),
        }
    }

    #[track_caller]
    fn check(pods: &[Arc<Pod>], requests: &[Arc<StoredRequest>], expected: &str, of: &[&str]) {
        let (decision, pods) = names(decide(RESERVED, "g", pods, requests, None));
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
    fn pod_that_shares_no_gpu_does_not_keep_the_reservation_by_its_label() {
        let mut labelled = (*pod("x", "a", "Running", "n")).clone();
        labelled.metadata.annotations = None;
        check(&[reservation("Running"), Arc::new(labelled)], &[], "delete reservations", &["reservation"]);
    }

    #[test]
    fn lost_reservation_of_bound_users_is_renewed_and_no_user_is_deleted() {
        let requests = ["a", "b"].map(|pod| request(pod, "Succeeded", 0, None));
        let users = [pod("x", "a", "Running", "n"), pod("x", "b", "Pending", "n")];
        for phase in ["Failed", "Succeeded"] {
            let pods = [&[reservation(phase)], &users[..]].concat();
            check(&pods, &requests, "renew", &["a", "b"]);
        }
        check(&users, &requests, "renew", &["a", "b"]);
        let Decision::Renew(lost) = decide(RESERVED, "g", &users, &requests, None) else { panic!() };
        assert_eq!((lost.node.as_str(), lost.users[0].position, lost.users[0].gpus), ("n", 1, 2));
        let mut terminating = serde_json::to_value(&*reservation("Running")).unwrap();
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let terminating: Pod = serde_json::from_value(terminating).unwrap();
        let pods = [&[Arc::new(terminating)], &users[..]].concat();
        check(&pods, &requests, "keep", &[]);
    }

    #[test]
    fn pod_that_no_request_put_on_the_gpu_gets_no_reservation() {
        let labelled = [pod("x", "a", "Running", "n")];
        check(&labelled, &[], "keep", &[]);
        check(&labelled, &[request("b", "Succeeded", 0, None)], "keep", &[]);
        let elsewhere = [pod("x", "a", "Running", "other")];
        check(&elsewhere, &[request("a", "Succeeded", 0, None)], "keep", &[]);
    }

    #[test]
    fn renewed_reservation_must_hold_the_gpu_of_its_users() {
        let renewal = |name: &str, holds: &str| -> Arc<Pod> {
            let mut pod = (*pod(RESERVED, name, "Running", "n")).clone();
            let annotations = [(annotation::RENEWED_GPU, "GPU-1"), (annotation::RESERVED_GPU, holds)];
            let set = annotations.iter().filter(|(_, value)| !value.is_empty());
            pod.metadata.annotations = Some(set.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
            Arc::new(pod)
        };
        let requests = [request("a", "Succeeded", 0, None)];
        let user = pod("x", "a", "Running", "n");
        for holds in ["", "GPU-0"] {
            check(&[renewal("r", holds), Arc::clone(&user)], &requests, "renew", &["a"]);
        }
        check(&[renewal("r", "GPU-1"), Arc::clone(&user)], &requests, "keep", &[]);
        let all = [renewal("r-0", "GPU-0"), renewal("r-1", "GPU-1"), reservation("Failed"), user];
        check(&all, &requests, "delete reservations", &["r-0", "reservation"]);
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
            let (decision, _) = names(decide(RESERVED, "g", &[reservation("Running")], &[request], None));
            assert_eq!(decision, expected);
        }
    }

    #[test]
    fn request_of_a_rollback_counts_as_closed() {
        let requests = [request("a", "", 0, None)];
        let pods = [reservation("Running"), pod("x", "a", "Pending", "")];
        let decision = decide(RESERVED, "g", &pods, &requests, Some(&Key::new("x", "a")));
        assert_eq!(names(decision).0, "delete reservations");
        let others = [request("a", "", 0, None), request("b", "", 0, None)];
        assert_eq!(decide(RESERVED, "g", &pods, &others, Some(&Key::new("x", "a"))), Decision::Keep);
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

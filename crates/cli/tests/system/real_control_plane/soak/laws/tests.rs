//! Every law is broken once, and reported.

use super::*;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

fn laws() -> Laws {
    let mut laws = Laws::new("work", "reserved");
    let allocatable = json!({"cpu": "4", "pods": "10", "nvidia.com/gpu": "2"});
    let node = json!({"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": allocatable}});
    laws.apply(Kind::Node, "ADDED", node, Duration::ZERO);
    laws
}

/// A running pod with whole GPUs.
fn pod(name: &str, node: &str, gpus: u32) -> Value {
    let requests = json!({"cpu": "1", "nvidia.com/gpu": gpus.to_string()});
    json!({
        "metadata": {
            "name": name, "namespace": "work", "uid": name, "labels": {"kai.scheduler/queue": "q"}, "annotations": {},
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }},
    })
}

fn half(name: &str, group: &str) -> Value {
    let mut pod = pod(name, "n", 0);
    pod["metadata"]["annotations"]["gpu-fraction"] = json!("0.5");
    pod["metadata"]["labels"]["runai-gpu-group"] = json!(group);
    pod
}

fn reservation(group: &str) -> Value {
    let mut pod = pod(&format!("reservation-{group}"), "n", 1);
    pod["metadata"]["namespace"] = json!("reserved");
    pod["metadata"]["labels"] = json!({"runai-gpu-group": group});
    pod
}

fn member(name: &str, node: &str, minimum: usize) -> Value {
    let mut pod = pod(name, node, 0);
    pod["metadata"]["annotations"] = json!({GANG: "gang", MINIMUM: minimum.to_string()});
    pod
}

fn claim(name: &str, user: &str) -> Value {
    let result = json!({"driver": "d", "pool": "p", "device": "gpu-0"});
    let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": user}]});
    json!({"metadata": {"name": name, "uid": name}, "status": status})
}

/// Applies objects at the start, and returns the violations.
fn violations(objects: impl IntoIterator<Item = (Kind, Value)>) -> Vec<String> {
    let mut laws = laws();
    for (kind, object) in objects {
        laws.apply(kind, "MODIFIED", object, Duration::ZERO);
    }
    laws.violations.into_iter().collect()
}

#[test]
fn node_with_more_in_use_than_it_has_is_reported() {
    let full = [(Kind::Pod, pod("a", "n", 1)), (Kind::Pod, reservation("g"))];
    assert_eq!(violations(full.clone()), Vec::<String>::new());
    let more = full.clone().into_iter().chain([(Kind::Pod, pod("b", "n", 1))]);
    assert_eq!(violations(more), ["n has 2 nvidia.com/gpu, and 3 are in use"]);
    let mut ended = pod("b", "n", 1);
    ended["status"]["phase"] = json!("Succeeded");
    assert_eq!(violations(full.into_iter().chain([(Kind::Pod, ended)])), Vec::<String>::new());
    let many = (0..5).map(|number| (Kind::Pod, pod(&format!("p-{number}"), "n", 0)));
    assert_eq!(violations(many), ["n has 4 cpu, and 5 are in use"]);
}

#[test]
fn gpu_that_is_shared_beyond_one_whole_is_reported() {
    let mut halves: Vec<_> = ["a", "b"].map(|name| (Kind::Pod, half(name, "g"))).into();
    assert_eq!(violations(halves.clone()), Vec::<String>::new());
    halves.push((Kind::Pod, half("c", "g")));
    assert_eq!(violations(halves), ["1500 ‰ of GPU `g` on n are in use"]);
    assert_eq!(violations([(Kind::Pod, half("d", ""))]), ["pod d is bound and shares no known GPU"]);
}

#[test]
fn device_of_two_claims_is_reported() {
    let claims = ["c", "d"].map(|name| (Kind::Claim, claim(name, "a")));
    assert_eq!(violations(claims), [r#"the device ("d", "p", "gpu-0") is allocated to ["c", "d"]"#]);
}

#[test]
fn pod_that_changes_its_node_or_is_rejected_is_reported() {
    let moved = [pod("a", "", 0), pod("a", "n", 0), pod("a", "m", 0)].map(|pod| (Kind::Pod, pod));
    assert_eq!(violations(moved), ["pod a was on n and is on `m`"]);
    let mut rejected = pod("a", "n", 0);
    rejected["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "full"});
    assert_eq!(violations([(Kind::Pod, rejected)]), ["n rejected pod a: OutOfcpu: full"]);
}

#[test]
fn gang_that_is_partly_bound_for_long_is_reported() {
    let mut laws = laws();
    laws.apply(Kind::Pod, "ADDED", member("a", "n", 2), Duration::ZERO);
    laws.apply(Kind::Pod, "ADDED", member("b", "", 2), Duration::ZERO);
    laws.check(PARTLY_BOUND_MAX);
    assert!(laws.violations.is_empty(), "{:?}", laws.violations);
    // The time starts anew when the gang was whole.
    laws.apply(Kind::Pod, "MODIFIED", member("b", "n", 2), PARTLY_BOUND_MAX);
    laws.apply(Kind::Pod, "DELETED", member("b", "n", 2), PARTLY_BOUND_MAX + SECOND);
    laws.check(PARTLY_BOUND_MAX + PARTLY_BOUND_MAX);
    assert!(laws.violations.is_empty(), "{:?}", laws.violations);
    laws.check(PARTLY_BOUND_MAX + PARTLY_BOUND_MAX + 2 * SECOND);
    assert_eq!(laws.violations.len(), 1, "{:?}", laws.violations);
    assert!(laws.unfinished().is_empty(), "a gang without enough pods cannot run: {:?}", laws.unfinished());
}

#[test]
fn reservation_without_a_user_is_reported() {
    let mut laws = laws();
    laws.apply(Kind::Pod, "ADDED", reservation("g"), Duration::ZERO);
    laws.check(UNUSED_MAX);
    assert!(laws.violations.is_empty(), "{:?}", laws.violations);
    assert_eq!(laws.unfinished(), ["the reservation reservation-g has no user"]);
    laws.check(UNUSED_MAX + SECOND);
    assert_eq!(laws.violations.len(), 1, "{:?}", laws.violations);
    laws.apply(Kind::Pod, "ADDED", half("a", "g"), UNUSED_MAX);
    assert!(laws.unfinished().is_empty(), "{:?}", laws.unfinished());
    laws.apply(Kind::Pod, "DELETED", reservation("g"), UNUSED_MAX);
    assert_eq!(laws.unfinished(), ["no reservation holds the GPU of pod a"]);
}

#[test]
fn pods_that_wait_are_named_with_their_condition() {
    let mut laws = laws();
    let mut waiting = pod("a", "", 1);
    waiting["status"]["conditions"] = json!([{"type": "PodScheduled", "message": "no node fits"}]);
    laws.apply(Kind::Pod, "ADDED", waiting, Duration::ZERO);
    laws.apply(Kind::Pod, "ADDED", pod("b-1", "n", 1), Duration::ZERO);
    assert_eq!(laws.unfinished(), ["pod a is Pending on ``: no node fits"]);
    assert_eq!(
        (laws.running("a"), laws.running("b"), laws.pods_now(), laws.pods_seen()),
        (0, 1, (2, 1), (2, 1))
    );
}

#[test]
fn status_of_queues_that_differs_from_their_pods_is_reported() {
    let mut laws = laws();
    for pod in [pod("a", "n", 1), pod("b", "", 1), half("c", "g")] {
        laws.apply(Kind::Pod, "ADDED", pod, Duration::ZERO);
    }
    let queue = |name: &str, parent: &str, allocated: &str| {
        let amounts = |gpus: &str, cpus: &str| json!({"nvidia.com/gpu": gpus, "cpu": cpus});
        json!({
            "metadata": {"name": name}, "spec": {"parentQueue": parent},
            "status": {"requested": amounts("2500m", "3"), "allocated": amounts(allocated, "2")},
        })
    };
    assert_eq!(
        laws.wrong_queues(&[queue("q", "top", "1500m"), queue("top", "", "1.5")]),
        Vec::<String>::new()
    );
    assert_eq!(
        laws.wrong_queues(&[queue("q", "top", "1500m"), queue("top", "", "2")]),
        ["allocated nvidia.com/gpu of queue top is 2, that of its pods 1.5"]
    );
}

#[test]
fn gpu_memory_is_allocated_as_a_part_of_a_gpu_and_not_requested_as_one() {
    let mut laws = laws();
    let mut shared = half("a", "g");
    shared["metadata"]["annotations"] = json!({"gpu-memory": (GPU_MEMORY_MIB / 4).to_string()});
    shared["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("64Mi");
    laws.apply(Kind::Pod, "ADDED", shared, Duration::ZERO);
    let queue = |allocated: &str, memory: &str| {
        json!({"metadata": {"name": "q"}, "status": {
            "requested": {"nvidia.com/gpu": "0", "cpu": "1", "memory": memory},
            "allocated": {"nvidia.com/gpu": allocated, "cpu": "1", "memory": memory},
        }})
    };
    assert_eq!(laws.wrong_queues(&[queue("250m", "64Mi")]), Vec::<String>::new());
    assert_eq!(
        laws.wrong_queues(&[queue("0", "64Mi")]),
        ["allocated nvidia.com/gpu of queue q is 0, that of its pods 0.25"]
    );
    assert_eq!(laws.wrong_queues(&[queue("250m", "32Mi")]).len(), 2, "requested and allocated memory");
}

#[test]
fn claim_of_a_pod_that_is_gone_is_reported() {
    let mut laws = laws();
    laws.apply(Kind::Pod, "ADDED", pod("a", "n", 0), Duration::ZERO);
    laws.apply(Kind::Claim, "ADDED", claim("c", "a"), Duration::ZERO);
    assert_eq!(
        (laws.leaked_claims(), laws.remaining()),
        (vec![], vec!["a remains".to_owned(), "c remains".to_owned()])
    );
    laws.apply(Kind::Pod, "DELETED", pod("a", "n", 0), Duration::ZERO);
    assert_eq!(laws.leaked_claims(), ["the claim c is reserved for a pod that is gone"]);
}

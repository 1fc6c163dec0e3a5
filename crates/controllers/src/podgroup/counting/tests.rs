//! Totals of pod groups, as tables.

use super::*;
use serde_json::{Value, json};

fn member(pod: Value) -> Member {
    Member::read(&serde_json::from_value(pod).unwrap())
}

/// A pod with one GPU and one core, in a phase, with or without a node.
fn gpu_pod(phase: &str, node: &str) -> Value {
    json!({
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]},
        "status": {"phase": phase},
    })
}

fn shared_pod(annotations: &Value) -> Value {
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{}]}, "status": {"phase": "Running"},
    })
}

fn written(sum: &Sum) -> String {
    let all: Vec<String> = sum.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    all.join(" ")
}

fn count(members: &[Member], related: &RelatedObjects<'_>, preemption: Preemption) -> Totals {
    totals(members.iter().map(|member| (member, related.clone())), preemption)
}

fn both_related(members: &[Member], related: &RelatedObjects<'_>) -> (String, String) {
    let totals = count(members, related, Preemption::Allowed);
    (written(&totals.requested), written(&totals.allocated))
}

fn both(members: &[Member]) -> (String, String) {
    both_related(members, &RelatedObjects::default())
}

#[test]
fn pods_are_counted_until_terminal_and_allocated_once_bound() {
    let one = "cpu=1 nvidia.com/gpu=1";
    let cases = [
        ("", "", one, ""),
        ("Pending", "", one, ""),
        ("Pending", "n1", one, one),
        ("Running", "n1", one, one),
        ("Succeeded", "n1", "", ""),
        ("Failed", "n1", "", ""),
        ("Unknown", "n1", "", ""),
    ];
    for (phase, node, requested, allocated) in cases {
        let found = both(&[member(gpu_pod(phase, node))]);
        assert_eq!(found, (requested.to_owned(), allocated.to_owned()), "`{phase}` on `{node}`");
    }
    let gang =
        [member(gpu_pod("Pending", "")), member(gpu_pod("Running", "n1")), member(gpu_pod("Failed", "n1"))];
    assert_eq!(both(&gang), ("cpu=2 nvidia.com/gpu=2".to_owned(), one.to_owned()));
}

#[test]
fn requests_follow_kubernetes() {
    let pod = json!({
        "spec": {
            "nodeName": "n1", "overhead": {"cpu": "250m"},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"resources": {"requests": {"cpu": "4"}}},
            ],
        },
        "status": {"phase": "Running"},
    });
    assert_eq!(both(&[member(pod)]), ("cpu=5250m".to_owned(), "cpu=5250m".to_owned()));
}

#[test]
fn gpu_fractions_are_counted_per_device() {
    let fraction = "Fraction";
    let cases = [
        (json!({"gpu-fraction": "0.5"}), "nvidia.com/gpu=500m", ""),
        (
            json!({"gpu-fraction": "0.5", "received-resource-type": fraction}),
            "nvidia.com/gpu=500m",
            "nvidia.com/gpu=500m",
        ),
        (
            json!({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3", "received-resource-type": fraction}),
            "nvidia.com/gpu=750m",
            "nvidia.com/gpu=750m",
        ),
        (json!({"gpu-fraction": "0.5", "received-resource-type": "Regular"}), "nvidia.com/gpu=500m", ""),
        (
            json!({"gpu-memory": "1000", "received-resource-type": fraction}),
            "run.ai/gpu.memory=1k",
            "nvidia.com/gpu=250m",
        ),
        (
            json!({"gpu-memory": "1000", "gpu-fraction-num-devices": "2", "received-resource-type": fraction}),
            "run.ai/gpu.memory=2k",
            "nvidia.com/gpu=500m",
        ),
        (json!({"gpu-fraction": "much", "received-resource-type": fraction}), "", ""),
    ];
    for (annotations, requested, allocated) in cases {
        let related = RelatedObjects { gpu_memory: Some(4000), ..RelatedObjects::default() };
        assert_eq!(
            both_related(&[member(shared_pod(&annotations))], &related),
            (requested.to_owned(), allocated.to_owned()),
            "{annotations}"
        );
    }
}

#[test]
fn gpu_memory_without_known_capacity_is_requested_and_not_allocated() {
    let pod = shared_pod(&json!({"gpu-memory": "1000", "received-resource-type": "Fraction"}));
    assert_eq!(both(&[member(pod)]), ("run.ai/gpu.memory=1k".to_owned(), String::new()));
}

#[test]
fn claimed_devices_are_counted_by_class_and_saturate() {
    let pods = [member(gpu_pod("Running", "n1")), member(gpu_pod("Succeeded", "n1"))];
    let related = RelatedObjects { devices: vec![("gpu.nvidia.com", 2)], ..RelatedObjects::default() };
    let expected = "cpu=1 gpu.nvidia.com=2 nvidia.com/gpu=1".to_owned();
    assert_eq!(both_related(&pods, &related), (expected.clone(), expected));
    let related =
        RelatedObjects { devices: vec![("gpu", i64::MAX), ("gpu", i64::MAX)], ..RelatedObjects::default() };
    let requested = count(&pods, &related, Preemption::Allowed).requested;
    assert_eq!(requested.get("gpu"), Some(Quantity::from_units(i64::MAX)));
}

#[test]
fn allocated_non_preemptible_equals_allocated_or_is_empty() {
    let pods = [member(gpu_pod("Running", "n1")), member(gpu_pod("Pending", ""))];
    let excluded = count(&pods, &RelatedObjects::default(), Preemption::Excluded);
    assert_eq!(excluded.allocated_non_preemptible, excluded.allocated);
    let allowed = count(&pods, &RelatedObjects::default(), Preemption::Allowed);
    assert!(allowed.allocated_non_preemptible.is_empty());
    let patch = allowed.patch_from(&excluded);
    assert_eq!(Value::from(patch), json!({"allocatedNonPreemptible": null}), "it is cleared");
}

#[test]
fn preemptibility_is_explicit_or_by_priority_class() {
    let (yes, no) = (Some(Preemptibility::Preemptible), Some(Preemptibility::NonPreemptible));
    let cases = [
        (None, None, Preemption::Allowed),
        (None, Some(99), Preemption::Allowed),
        (None, Some(100), Preemption::Excluded),
        (yes, Some(125), Preemption::Allowed),
        (no, Some(50), Preemption::Excluded),
    ];
    for (explicit, value, expected) in cases {
        assert_eq!(preemption(explicit, value), expected, "{explicit:?} {value:?}");
    }
}

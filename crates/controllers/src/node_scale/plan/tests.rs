//! Which scaling pods are created, kept and deleted, by small clusters and by a property over random ones.

use super::*;
use crate::node_scale::observed::{claimed_devices, pod_being_bound};
use kai_api::{BindRequest, Pod, PodGroup};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A cluster with unschedulable pods, built by tests.
#[derive(Default)]
struct World(Observed);

fn key(name: &str) -> Key {
    let (namespace, name) = name.split_once('/').unwrap_or(("team", name));
    Key::new(namespace, name)
}

impl World {
    fn new() -> Self {
        Self(Observed { groups: Some(BTreeMap::new()), ..Observed::default() })
    }

    /// Adds an unschedulable pod; `more` is merged into it.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    fn pod(mut self, name: &str, annotations: &Value, more: Value) -> Self {
        let key = key(name);
        let mut pod = json!({
            "metadata": {
                "name": key.name, "namespace": key.namespace, "uid": format!("uid-{}", key.name),
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            for (inner, value) in value.as_object().into_iter().flatten() {
                pod[field][inner] = value.clone();
            }
        }
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.0.pods.insert(key, PendingPod::of(&pod));
        self
    }

    fn fraction(self, name: &str, fraction: &str) -> Self {
        self.pod(name, &json!({"gpu-fraction": fraction}), json!({}))
    }

    fn member(self, name: &str, group: &str, fraction: &str) -> Self {
        self.pod(name, &json!({"gpu-fraction": fraction, "pod-group-name": group}), json!({}))
    }

    fn group(mut self, name: &str, min: i32, reasons: &[&str]) -> Self {
        let reasons: Vec<Value> = reasons.iter().map(|reason| json!({"reason": reason})).collect();
        let group: PodGroup = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team"}, "spec": {"minMember": min},
            "status": {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "reasons": reasons}]},
        }))
        .unwrap();
        self.0.groups.get_or_insert_default().insert(key(name), Group::of(&group));
        self
    }

    /// A BindRequest for a pod, with this status.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    fn bind_request(mut self, pod: &str, status: Value) -> Self {
        let request: BindRequest = serde_json::from_value(json!({
            "metadata": {"name": format!("{pod}-request"), "namespace": "team"},
            "spec": {"podName": pod, "backoffLimit": 2}, "status": status,
        }))
        .unwrap();
        self.0.binding.insert(key(&format!("{pod}-request")), pod_being_bound(&request));
        self
    }

    fn scaling(mut self, source: &str, gpus: u32, phase: &str) -> Self {
        let from = key(source);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "s", "labels": {
                "shared-gpu-pod-name": from.name, "shared-gpu-pod-namespace": from.namespace,
            }},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {
                "nvidia.com/gpu": gpus.to_string(), "cpu": "4", "memory": "2Gi",
            }}}]},
            "status": {"phase": phase, "conditions": [{"type": "PodScheduled", "reason": "Unschedulable"}]},
        }))
        .unwrap();
        let name = format!("{}-{}", from.namespace, from.name);
        self.0.scaling.insert(Key::new("kai-scale-adjust", &name), ScalingPod::of(&pod));
        self
    }

    fn plan(&self) -> Plan {
        plan(&self.0, &Limits::default())
    }

    /// Sources and GPUs of the scaling pods to create.
    fn created(&self) -> Vec<(String, u32)> {
        self.plan().create.iter().map(|made| (made.source.name.clone(), made.gpus)).collect()
    }

    fn held_back(&self) -> Vec<HeldBack> {
        self.plan().held_back.into_iter().map(|(_, reason)| reason).collect()
    }
}

fn made(list: &[(&str, u32)]) -> Vec<(String, u32)> {
    list.iter().map(|(name, gpus)| ((*name).to_owned(), *gpus)).collect()
}

#[test]
fn pods_that_fit_on_one_gpu_share_a_scaling_pod() {
    let world = World::new().fraction("a", "0.5").fraction("b", "0.5");
    assert_eq!(world.created(), made(&[("a", 1)]));
    let made_for_both = &world.plan().create[0];
    assert_eq!((made_for_both.cpu_milli, made_for_both.memory, made_for_both.pods), (4_000, 2 << 30, 2));
    // 1.8 GPUs in sum, but no two of them share a GPU.
    let world = World::new().fraction("a", "0.6").fraction("b", "0.6").fraction("c", "0.6");
    assert_eq!(world.created(), made(&[("a", 1), ("b", 1), ("c", 1)]));
}

#[test]
fn memory_requests_count_as_a_tenth_of_a_gpu() {
    let world = (0..11).fold(World::new(), |world, at| {
        world.pod(&format!("m{at:02}"), &json!({"gpu-memory": "1024"}), json!({}))
    });
    assert_eq!(world.created(), made(&[("m00", 1), ("m10", 1)]));
}

#[test]
fn devices_of_one_pod_are_requested_from_one_node() {
    let two = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"});
    let world = World::new().fraction("a", "0.5").pod("b", &two, json!({})).pod("c", &two, json!({}));
    assert_eq!(world.created(), made(&[("a", 1), ("b", 2)]));
}

#[test]
fn claimed_devices_are_whole_gpus() {
    let claims = json!([{"name": "g", "resourceClaimName": "gpus"}]);
    let mut world =
        World::new().fraction("a", "0.1").pod("d", &json!({}), json!({"spec": {"resourceClaims": claims}}));
    assert_eq!(world.held_back(), [HeldBack::UnknownRequest], "the claim is not known");
    let claim = |class: &str| json!({"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": class, "count": 3}}]}}});
    world.0.claims.insert(key("gpus"), claimed_devices(&claim("gpu.nvidia.com")));
    assert_eq!(world.created(), made(&[("a", 1), ("d", 3)]));
    let without = Limits { with_claims: false, ..Limits::default() };
    assert_eq!(plan(&world.0, &without).create.len(), 1);
    world.0.claims.insert(key("gpus"), claimed_devices(&claim("nic.example.com")));
    assert_eq!(world.created(), made(&[("a", 1)]));
}

#[test]
fn pods_with_different_placement_do_not_share_a_scaling_pod() {
    let zone = json!({"spec": {"nodeSelector": {"zone": "b"}}});
    let world = World::new().fraction("a", "0.5").pod("b", &json!({"gpu-fraction": "0.5"}), zone);
    assert_eq!(world.created(), made(&[("a", 1), ("b", 1)]));
}

#[test]
fn scaling_pod_combines_requests_only_up_to_the_size_of_a_node() {
    let large = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "20"}}}]}});
    let tenth = json!({"gpu-fraction": "0.1"});
    let world = World::new().pod("a", &tenth, large.clone()).pod("b", &tenth, large);
    assert_eq!(world.created(), made(&[("a", 1), ("b", 1)]));
}

#[test]
fn only_unschedulable_pods_with_hidden_requests_count() {
    let half = json!({"gpu-fraction": "0.5"});
    let status =
        |reason: &str| json!({"status": {"conditions": [{"type": "PodScheduled", "reason": reason}]}});
    let world = World::new()
        .pod("whole-gpu", &json!({}), json!({}))
        .pod("new", &half, json!({"status": {"conditions": []}}))
        .pod("error", &half, status("SchedulerError"))
        .pod("gated", &half, json!({"spec": {"schedulingGates": [{"name": "g"}]}}))
        .pod("nominated", &half, json!({"status": {"nominatedNodeName": "n"}}))
        .pod("leaving", &half, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .pod("invalid", &json!({"gpu-fraction": "half"}), json!({}));
    assert_eq!(world.plan().create, []);
}

#[test]
fn gang_gets_scaling_pods_for_all_its_pods_or_for_none() {
    let gang = || World::new().group("g", 2, &[]).member("g-0", "g", "0.6");
    assert_eq!(gang().held_back(), [HeldBack::Incomplete], "one of two pods exists");
    assert_eq!(gang().member("g-1", "g", "0.6").created(), made(&[("g-0", 1), ("g-1", 1)]));
    // The scheduler has not reported on one of them.
    let unreported = json!({"status": {"conditions": []}});
    let annotations = json!({"gpu-fraction": "0.6", "pod-group-name": "g"});
    assert_eq!(gang().pod("g-1", &annotations, unreported).held_back(), [HeldBack::Incomplete]);
    // One of them can never run.
    let invalid = json!({"gpu-fraction": "2", "pod-group-name": "g"});
    assert_eq!(gang().pod("g-1", &invalid, json!({})).held_back(), [HeldBack::UnknownRequest]);
    // There may be one scaling pod, and the gang needs two.
    let few = Limits { scaling_pods_max: 1, ..Limits::default() };
    let plan = plan(&gang().member("g-1", "g", "0.6").0, &few);
    assert_eq!((plan.create, plan.held_back), (vec![], vec![(key("g"), HeldBack::Limit)]));
}

#[test]
fn group_that_its_queue_blocks_gets_no_scaling_pod() {
    for reason in ["OverLimit", "NonPreemptibleOverQuota", "QueueDoesNotExist"] {
        let world = World::new().group("g", 1, &[reason]).member("g-0", "g", "0.5");
        assert_eq!(world.held_back(), [HeldBack::Queue(reason.to_owned())]);
        // One that was created before is deleted.
        let reasons: Vec<_> =
            world.scaling("g-0", 1, "").plan().delete.iter().map(|gone| gone.reason).collect();
        assert_eq!(reasons, ["a new node would not help its pod"]);
    }
    let delayed = World::new().group("g", 1, &["PreemptionDelayNotElapsed"]).member("g-0", "g", "0.5");
    assert_eq!(delayed.created().len(), 1);
    assert_eq!(World::new().member("g-0", "g", "0.5").held_back(), [HeldBack::Incomplete], "no such group");
    let mut unknown = World::new().member("g-0", "g", "0.5");
    unknown.0.groups = None;
    assert_eq!(unknown.created().len(), 1, "without the right to list groups");
}

#[test]
fn existing_scaling_pods_count_and_unneeded_ones_are_deleted() {
    let kept = World::new().fraction("a", "0.5").fraction("b", "0.5").scaling("b", 1, "Pending");
    assert_eq!(kept.plan(), Plan::default());
    let ended = |phase: &str| World::new().fraction("a", "0.5").scaling("a", 1, phase).plan().delete.len();
    assert_eq!([ended("Succeeded"), ended("Failed"), ended("Running"), ended("Pending")], [1, 1, 0, 0]);
    let gone = World::new().scaling("a", 1, "Pending").plan();
    assert_eq!(gone.delete[0].reason, "its pod is bound or gone");
    let half = json!({"gpu-fraction": "0.5"});
    let unreported = World::new().pod("a", &half, json!({"status": {"conditions": []}}));
    let plan = unreported.scaling("a", 1, "").plan();
    assert_eq!((plan.delete, plan.create), (vec![], vec![]), "the scheduler may still be at it");
    let mut recreated = World::new().fraction("a", "0.5").scaling("a", 1, "");
    recreated.0.scaling.values_mut().for_each(|pod| pod.source_uid = Some("other".to_owned()));
    assert_eq!(recreated.plan().delete[0].reason, "its pod is bound or gone");
}

#[test]
fn pod_that_is_being_bound_needs_no_node() {
    let pair =
        || World::new().fraction("a", "0.9").fraction("b", "0.9").scaling("a", 1, "").scaling("b", 1, "");
    assert_eq!(pair().plan(), Plan::default());
    for status in [
        json!({}),
        json!({"phase": "Pending"}),
        json!({"phase": "Succeeded"}),
        json!({"phase": "Failed", "failedAttempts": 1}),
    ] {
        let plan = pair().bind_request("a", status.clone()).plan();
        let deleted: Vec<_> = plan.delete.iter().map(|gone| (&*gone.pod.name, gone.reason)).collect();
        assert_eq!(deleted, [("team-a", "its pod is being bound")], "{status}");
        assert_eq!(plan.create, [], "{status}");
    }
    assert_eq!(World::new().fraction("a", "0.9").bind_request("a", json!({})).created(), []);
    let failed = pair().bind_request("a", json!({"phase": "Failed", "failedAttempts": 2}));
    assert_eq!(failed.plan(), Plan::default(), "no attempt follows");
}

#[test]
fn pods_of_a_gang_that_are_being_bound_count_towards_its_minimum() {
    let gang = World::new()
        .group("g", 2, &[])
        .member("g-0", "g", "0.9")
        .member("g-1", "g", "0.9")
        .member("g-2", "g", "0.9");
    let two = gang.bind_request("g-0", json!({})).bind_request("g-1", json!({}));
    assert_eq!(two.created(), made(&[("g-2", 1)]), "the third one has no GPU");
    assert_eq!(two.held_back(), []);
}

/// A pod with a part of a GPU and no group of its own is given a group by its name, which may never exist.
#[test]
fn implied_group_that_does_not_exist_keeps_no_pod_from_scaling() {
    let implied = |world: World, name: &str| {
        world.pod(
            name,
            &json!({"gpu-fraction": "0.9"}),
            json!({"metadata": {"labels": {"kai.scheduler/queue": "a"}}}),
        )
    };
    let world = implied(World::new(), "alone");
    let pod = &world.0.pods[&key("alone")];
    let group = pod.group.clone().unwrap();
    assert!(!pod.names_group, "the group is implied");
    assert_eq!(world.created(), made(&[("alone", 1)]));
    // Where it exists, it counts: its queue blocks the pod.
    let blocked = implied(World::new(), "alone").group(&group.name, 1, &["OverLimit"]);
    assert_eq!(blocked.held_back(), [HeldBack::Queue("OverLimit".to_owned())]);
    // One that the pod names, and that does not exist, holds it back.
    assert_eq!(World::new().member("alone", &group.name, "0.9").held_back(), [HeldBack::Incomplete]);
}

#[test]
fn one_namespace_causes_at_most_half_of_the_scaling_pods() {
    let world =
        World::new().fraction("a", "1").fraction("b", "1").fraction("c", "1").fraction("other/d", "1");
    let limits = Limits { scaling_pods_max: 4, ..Limits::default() };
    let plan = plan(&world.0, &limits);
    let names: Vec<&str> = plan.create.iter().map(|made| &*made.source.name).collect();
    assert_eq!(names, ["d", "a", "b"]);
    assert_eq!(plan.held_back, [(key("c"), HeldBack::Limit)]);
}

proptest! {
    /// After the plan is carried out, the next one changes nothing; GPUs suffice for all pods; groups are complete.
    #[test]
    fn plan_is_stable_and_sufficient(
        pods in prop::collection::vec((0..6_usize, 1..=100_u32, 1..3_u32, 0..3_u8), 0..24),
        limit in 1..12_usize,
    ) {
        let mut world = (0..6).fold(World::new(), |world, group| world.group(&format!("g{group}"), 1, &[]));
        for (at, (group, portion, devices, zone)) in pods.iter().enumerate() {
            let annotations = json!({
                "gpu-fraction": format!("{:.2}", f64::from(*portion) / 100.0),
                "gpu-fraction-num-devices": devices.to_string(), "pod-group-name": format!("g{group}"),
            });
            let zone = json!({"spec": {"nodeSelector": {"zone": zone.to_string()}}});
            world = world.pod(&format!("p{at:02}"), &annotations, zone);
        }
        let limits = Limits { scaling_pods_max: limit, ..Limits::default() };
        let first = plan(&world.0, &limits);
        prop_assert!(first.create.len() <= limit);
        prop_assert!(first.delete.is_empty());
        let held: BTreeSet<&Key> = first.held_back.iter().map(|(group, _)| group).collect();
        for made in &first.create {
            let group = world.0.pods[&made.source].group.clone().unwrap();
            prop_assert!(!held.contains(&group), "{group} is held back as a whole");
        }
        let needed: u32 = world.0.pods.values().zip(&pods)
            .filter(|(pod, _)| !held.contains(pod.group.as_ref().unwrap()))
            .map(|(_, (_, portion, devices, _))| portion * devices)
            .sum();
        prop_assert!(first.create.iter().map(|made| made.gpus).sum::<u32>() * WHOLE >= needed);
        for made in first.create {
            let pod = ScalingPod {
                uid: "s".to_owned(), source: Some(made.source.clone()), source_uid: Some(made.source_uid),
                gpus: made.gpus, cpu_milli: made.cpu_milli, memory: made.memory, has_condition: true,
                ..ScalingPod::default()
            };
            world.0.scaling.insert(made.source, pod);
        }
        let second = plan(&world.0, &limits);
        prop_assert_eq!((second.delete, second.create), (vec![], vec![]));
    }
}

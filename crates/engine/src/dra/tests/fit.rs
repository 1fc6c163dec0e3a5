//! Checks of a pod's claims before and on a node.

use super::*;
use crate::input::{NodeTerm, Requirement, RequirementOp};

fn check(world: &mut World, pod: Sym) -> Result<(), PodRejection> {
    let queue = world.sym("queue");
    world.devices.precheck(pod, queue, Served::Yes, &world.names)
}

#[test]
fn pods_without_claims_pass_and_fit_anywhere() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    world.node("bare", &[]);
    let pod = world.sym("p");
    let queue = world.sym("queue");
    assert_eq!(world.devices.precheck(pod, queue, Served::No, &world.names), Ok(()));
    assert_eq!(world.fit(pod, "bare"), Ok(Fit::default()));
}

#[test]
fn claims_need_a_cluster_that_serves_them() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    world.claim(&claim("c", &[exactly("gpus", 1)]));
    let pod = world.pod("p", &["c"]);
    let queue = world.sym("queue");
    let checked = world.devices.precheck(pod, queue, Served::No, &world.names);
    assert_eq!(checked, Err(PodRejection::ClaimsUnavailable));
    assert_eq!(check(&mut world, pod), Ok(()));
}

#[test]
fn missing_claims_and_templates_not_made_yet_are_reported() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    let pod = world.pod("p", &["lost"]);
    assert_eq!(check(&mut world, pod), Err(PodRejection::ClaimMissing("lost".into())));
    let unmade = PodClaim { name: "mine".into(), from_template: true, ..PodClaim::default() };
    let ns = world.sym("ns");
    world.devices.set_pod((pod, ns), &[unmade], &[], &mut world.names);
    assert_eq!(check(&mut world, pod), Err(PodRejection::ClaimMissing("mine".into())));
}

#[test]
fn a_claim_takes_256_consumers_and_no_more() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    let crowded = |others: usize| ClaimInput {
        reserved_for: (0..others).map(|i| format!("other-{i}")).collect(),
        allocation: Some(given(&[id("n0", "0")])),
        ..claim("c", &[exactly("gpus", 1)])
    };
    let pods: Vec<Sym> = (0..2).map(|i| world.pod(&format!("p{i}"), &["c"])).collect();
    world.claim(&crowded(255));
    world.settle();
    assert_eq!(check(&mut world, pods[0]), Ok(()));
    let found = world.fit(pods[0], "n0").expect("the claim is allocated there");
    let _undo = world.devices.reserve(pods[0], &found);
    assert_eq!(check(&mut world, pods[1]), Err(PodRejection::ClaimFull("c".into())));
    assert_eq!(check(&mut world, pods[0]), Ok(()), "a consumer is not refused its own claim");
    world.claim(&ClaimInput { other_consumers: 1, ..crowded(255) });
    assert_eq!(check(&mut world, pods[1]), Err(PodRejection::ClaimFull("c".into())));
}

#[test]
fn shared_gpu_claims_need_their_queues_label() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    world.class("nic.example.com");
    let pod = world.pod("p", &["c"]);
    for label in [None, Some("other".to_owned())] {
        world.claim(&ClaimInput { queue_label: label.clone(), ..claim("c", &[exactly("gpus", 1)]) });
        assert_eq!(check(&mut world, pod), Err(PodRejection::ClaimQueueLabel("c".into(), label)));
    }
    let from_template = PodClaim { from_template: true, ..reference("c") };
    let ns = world.sym("ns");
    world.devices.set_pod((pod, ns), &[from_template], &[], &mut world.names);
    assert_eq!(check(&mut world, pod), Ok(()), "a claim made for the pod needs none");
    let pod = world.pod("p", &["c"]);
    let mut nic = exactly("nic", 1);
    nic.alternatives[0].class = "nic.example.com".into();
    world.claim(&ClaimInput { queue_label: None, ..claim("c", &[nic]) });
    assert_eq!(check(&mut world, pod), Ok(()), "only GPU claims need one");
}

#[test]
fn classes_must_exist_until_devices_have_been_given() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    world.devices.remove_class(GPU_CLASS, &mut world.names);
    let pod = world.pod("p", &["c"]);
    world.claim(&claim("c", &[exactly("gpus", 1)]));
    assert_eq!(check(&mut world, pod), Err(PodRejection::DeviceClassMissing(GPU_CLASS.into())));
    world.claim(&ClaimInput {
        allocation: Some(given(&[id("n0", "0")])),
        ..claim("c", &[exactly("gpus", 1)])
    });
    assert_eq!(check(&mut world, pod), Ok(()));
}

#[test]
fn an_allocated_claim_is_usable_only_where_its_selector_says() {
    let mut world = World::with_gpus(&[("n0", 1), ("n1", 1)]);
    let named = Requirement { key: "metadata.name".into(), op: RequirementOp::In(vec!["n1".into()]) };
    let mut allocation = given(&[id("n1", "0")]);
    allocation.node_terms = vec![NodeTerm { labels: Vec::new(), names: vec![named] }];
    let allocation = Some(allocation);
    world.claim(&ClaimInput { allocation, ..claim("c", &[exactly("gpus", 1)]) });
    let pod = world.pod("p", &["c"]);
    world.settle();
    assert_eq!(world.fit(pod, "n0"), Err(ClaimRejection::ElsewhereAllocated));
    assert_eq!(world.fit(pod, "n1"), Ok(Fit::default()));
}

#[test]
fn claims_of_one_pod_are_met_together_and_bind_others_to_the_node() {
    let mut world = World::with_gpus(&[("n0", 1), ("n1", 2)]);
    for name in ["a", "b"] {
        world.claim(&claim(name, &[exactly("gpus", 1)]));
    }
    let both = world.pod("p", &["a", "b"]);
    let one = world.pod("q", &["b"]);
    world.settle();
    assert_eq!(world.fit(both, "n0"), Err(ClaimRejection::NoDevices));
    let found = world.fit(both, "n1").expect("two are free");
    let undo = world.devices.reserve(both, &found);
    assert_eq!(undo.len(), 2);
    assert_eq!(world.fit(one, "n0"), Err(ClaimRejection::ElsewhereAllocated));
    assert!(world.fit(one, "n1").is_ok());
}

//! Checks of a pod's claims before and on a node.

use super::*;
use crate::input::{NodeTerm, Requirement, RequirementOp};

fn check(fixture: &mut TestCluster, pod: Sym) -> Result<(), PodRejection> {
    let queue = fixture.sym("queue");
    fixture.devices.precheck(pod, queue, Served::Yes, &fixture.names)
}

#[test]
fn pods_without_claims_pass_and_fit_anywhere() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    fixture.node("bare", &[]);
    let pod = fixture.sym("p");
    let queue = fixture.sym("queue");
    assert_eq!(fixture.devices.precheck(pod, queue, Served::No, &fixture.names), Ok(()));
    assert_eq!(fixture.fit(pod, "bare"), Ok(Fit::default()));
}

#[test]
fn claims_require_dynamic_resource_allocation() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    fixture.claim(&claim("c", &[exactly("gpus", 1)]));
    let pod = fixture.pod("p", &["c"]);
    let queue = fixture.sym("queue");
    assert_eq!(check(&mut fixture, pod), Ok(()));
    let unmade = PodClaim { name: "from-template".into(), from_template: true, ..PodClaim::default() };
    let ns = fixture.sym("ns");
    fixture.devices.set_pod((pod, ns), &[reference("c"), unmade], &[], &mut fixture.names);
    let checked = fixture.devices.precheck(pod, queue, Served::No, &fixture.names);
    let named = vec![reference("c").name, "from-template".to_owned()];
    assert_eq!(checked, Err(PodRejection::ClaimsUnavailable(named)));
}

#[test]
fn missing_claims_and_templates_not_made_yet_are_reported() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let pod = fixture.pod("p", &["lost"]);
    assert_eq!(check(&mut fixture, pod), Err(PodRejection::ClaimMissing("lost".into())));
    let unmade = PodClaim { name: "mine".into(), from_template: true, ..PodClaim::default() };
    let ns = fixture.sym("ns");
    fixture.devices.set_pod((pod, ns), &[unmade], &[], &mut fixture.names);
    assert_eq!(check(&mut fixture, pod), Err(PodRejection::ClaimUnmade("mine".into())));
}

#[test]
fn claim_accepts_at_most_256_consumers() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let crowded = |others: usize| ClaimInput {
        reserved_for: (0..others).map(|i| format!("other-{i}")).collect(),
        allocation: Some(allocated(&[id("n0", "0")])),
        ..claim("c", &[exactly("gpus", 1)])
    };
    let pods: Vec<Sym> = (0..2).map(|i| fixture.pod(&format!("p{i}"), &["c"])).collect();
    fixture.claim(&crowded(255));
    fixture.refresh();
    assert_eq!(check(&mut fixture, pods[0]), Ok(()));
    let found = fixture.fit(pods[0], "n0").expect("the claim is allocated there");
    let _undo = fixture.devices.reserve(pods[0], &found);
    assert_eq!(check(&mut fixture, pods[1]), Err(PodRejection::ClaimFull("c".into())));
    assert_eq!(check(&mut fixture, pods[0]), Ok(()), "a consumer is not refused its own claim");
    fixture.claim(&ClaimInput { other_consumers: 1, ..crowded(255) });
    assert_eq!(check(&mut fixture, pods[1]), Err(PodRejection::ClaimFull("c".into())));
}

#[test]
fn shared_gpu_claims_need_their_queues_label() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    fixture.class("nic.example.com");
    let pod = fixture.pod("p", &["c"]);
    for label in [None, Some("other".to_owned())] {
        fixture.claim(&ClaimInput { queue_label: label.clone(), ..claim("c", &[exactly("gpus", 1)]) });
        assert_eq!(check(&mut fixture, pod), Err(PodRejection::ClaimQueueLabel("c".into(), label)));
    }
    let from_template = PodClaim { from_template: true, ..reference("c") };
    let ns = fixture.sym("ns");
    fixture.devices.set_pod((pod, ns), &[from_template], &[], &mut fixture.names);
    assert_eq!(check(&mut fixture, pod), Ok(()), "a claim made for the pod needs none");
    let pod = fixture.pod("p", &["c"]);
    let mut nic = exactly("nic", 1);
    nic.alternatives[0].class = "nic.example.com".into();
    fixture.claim(&ClaimInput { queue_label: None, ..claim("c", &[nic]) });
    assert_eq!(check(&mut fixture, pod), Ok(()), "only GPU claims need one");
}

#[test]
fn classes_must_exist_until_devices_are_allocated() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    fixture.devices.remove_class(GPU_CLASS, &mut fixture.names);
    let pod = fixture.pod("p", &["c"]);
    fixture.claim(&claim("c", &[exactly("gpus", 1)]));
    assert_eq!(
        check(&mut fixture, pod),
        Err(PodRejection::DeviceClassMissing {
            class: GPU_CLASS.into(),
            claim: "c".into(),
            request: "gpus".into(),
        })
    );
    fixture.claim(&ClaimInput {
        allocation: Some(allocated(&[id("n0", "0")])),
        ..claim("c", &[exactly("gpus", 1)])
    });
    assert_eq!(check(&mut fixture, pod), Ok(()));
}

#[test]
fn allocated_claim_is_usable_only_on_selected_nodes() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1), ("n1", 1)]);
    let named = Requirement { key: "metadata.name".into(), op: RequirementOp::In(vec!["n1".into()]) };
    let mut allocation = allocated(&[id("n1", "0")]);
    allocation.node_terms = vec![NodeTerm { labels: Vec::new(), names: vec![named] }];
    let allocation = Some(allocation);
    fixture.claim(&ClaimInput { allocation, ..claim("c", &[exactly("gpus", 1)]) });
    let pod = fixture.pod("p", &["c"]);
    fixture.refresh();
    assert_eq!(fixture.fit(pod, "n0"), Err(ClaimRejection::ElsewhereAllocated));
    assert_eq!(fixture.fit(pod, "n1"), Ok(Fit::default()));
}

#[test]
fn claims_of_one_pod_are_met_together_and_bind_others_to_the_node() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1), ("n1", 2)]);
    for name in ["a", "b"] {
        fixture.claim(&claim(name, &[exactly("gpus", 1)]));
    }
    let both = fixture.pod("p", &["a", "b"]);
    let one = fixture.pod("q", &["b"]);
    fixture.refresh();
    assert_eq!(fixture.fit(both, "n0"), Err(ClaimRejection::NoDevices));
    let found = fixture.fit(both, "n1").expect("two are free");
    let undo = fixture.devices.reserve(both, &found);
    assert_eq!(undo.len(), 2);
    assert_eq!(fixture.fit(one, "n0"), Err(ClaimRejection::ElsewhereAllocated));
    assert!(fixture.fit(one, "n1").is_ok());
}

#[test]
fn device_of_a_claim_that_is_being_released_is_given_last_and_later() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    let held = ClaimInput {
        allocation: Some(allocated(&[id("n0", "0")])),
        reserved_for: vec!["gone".into()],
        releasing: true,
        ..claim("held", &[exactly("gpus", 1)])
    };
    fixture.claim(&held);
    let own: Vec<ClaimIdx> =
        ["a", "b", "c"].iter().map(|name| fixture.claim(&claim(name, &[exactly("gpus", 1)]))).collect();
    let pods: Vec<Sym> = ["a", "b", "c"].iter().map(|name| fixture.pod(name, &[name])).collect();
    fixture.refresh();
    let first = fixture.fit(pods[0], "n0").expect("a device is free");
    assert_eq!((first.waits, first.claims[0].0), (false, own[0]));
    let _undo = fixture.devices.reserve(pods[0], &first);
    let second = fixture.fit(pods[1], "n0").expect("a device becomes free");
    assert!(second.waits);
    let undo = fixture.devices.reserve(pods[1], &second);
    assert_eq!(fixture.fit(pods[2], "n0"), Err(ClaimRejection::NoDevices), "it is given once");
    undo.into_iter().rev().for_each(|undo| fixture.devices.undo(undo));
    // A pod that joins the consumers of the claim keeps the device.
    let joined = fixture.pod("joined", &["held"]);
    let found = fixture.fit(joined, "n0").expect("the claim is allocated");
    assert!(!found.waits);
    let undo = fixture.devices.reserve(joined, &found);
    assert_eq!(fixture.fit(pods[1], "n0"), Err(ClaimRejection::NoDevices));
    undo.into_iter().rev().for_each(|undo| fixture.devices.undo(undo));
    assert!(fixture.fit(pods[1], "n0").is_ok());
    fixture.claim(&ClaimInput { other_consumers: 1, ..held });
    fixture.refresh();
    assert_eq!(fixture.fit(pods[1], "n0"), Err(ClaimRejection::NoDevices), "another object uses it");
}

//! Claim state, GPU counts of pods, and undo.

use super::*;
use crate::resource::{AMOUNT_MAX, WHOLE_GPU};
use proptest::prelude::*;

impl TestCluster {
    fn uses(&self) -> Vec<u32> {
        let devices = (0..self.devices.inventory.len()).map(crate::ids::Idx::new);
        devices.map(|d| self.devices.claims.times_in_use(d)).collect()
    }
    fn place(&mut self, pod: Sym, node: &str) -> Option<SmallVec<[Undo; 2]>> {
        let found = self.fit(pod, node).ok()?;
        Some(self.devices.reserve(pod, &found))
    }
    fn take_back(&mut self, undo: impl IntoIterator<Item = Undo, IntoIter: DoubleEndedIterator>) {
        for undo in undo.into_iter().rev() {
            self.devices.undo(undo);
        }
    }
}

#[test]
fn plain_gpu_requests_count_and_everything_else_does_not() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let mut nic = exactly("nic", 7);
    nic.alternatives[0].class = "nic.example.com".into();
    let mut choice = exactly("choice", 3);
    choice.alternatives[0].name = "first".into();
    let mut admin = exactly("admin", 5);
    admin.alternatives[0].admin_access = true;
    let requests = [
        exactly("two", 2),
        exactly("zero", 0),
        request("all", RequestMode::All),
        request("unknown", RequestMode::Unknown),
        nic,
        choice,
        admin,
    ];
    let index = fixture.claim(&claim("c", &requests));
    assert_eq!(claim_gpus(&fixture.devices.claims[index]), 4);
    let pod = fixture.pod("p", &["c", "c"]);
    assert_eq!(fixture.devices.gpu_demand(pod), 4 * WHOLE_GPU, "a claim named twice counts once");
    let made =
        ClaimInput { synthetic: true, owner_pod: Some("p".into()), ..claim("made", &[exactly("x", 1)]) };
    fixture.claim(&made);
    assert_eq!(fixture.devices.gpu_demand(pod), 4 * WHOLE_GPU);
}

#[test]
fn huge_requests_saturate() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    for name in ["a", "b"] {
        fixture.claim(&claim(name, &[exactly("x", u64::MAX)]));
    }
    let pod = fixture.pod("p", &["a", "b"]);
    assert_eq!(fixture.devices.gpu_demand(pod), AMOUNT_MAX);
    assert!(fixture.fit(pod, "n0").is_err());
}

#[test]
fn claims_are_related_to_pods_that_name_own_or_first_reserve_them() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    fixture.claim(&claim("named", &[exactly("x", 1)]));
    fixture.claim(&ClaimInput { owner_pod: Some("p".into()), ..claim("owned", &[exactly("x", 1)]) });
    let reserved = |name: &str, pods: &[&str]| ClaimInput {
        reserved_for: pods.iter().map(|p| (*p).to_owned()).collect(),
        ..claim(name, &[exactly("x", 1)])
    };
    fixture.claim(&reserved("first", &["p", "q"]));
    fixture.claim(&reserved("second", &["q", "p"]));
    let pod = fixture.pod("p", &["named", "unknown"]);
    assert_eq!(fixture.devices.gpu_demand(pod), 3 * WHOLE_GPU);
    fixture.devices.remove_claim(&Key::new("ns", "owned"), &fixture.names);
    assert_eq!(fixture.devices.gpu_demand(pod), 2 * WHOLE_GPU);
    fixture.claim(&reserved("first", &["q"]));
    assert_eq!(fixture.devices.gpu_demand(pod), WHOLE_GPU);
    fixture.devices.remove_pod(pod, &fixture.names);
    assert_eq!(fixture.devices.gpu_demand(pod), 0);
}

#[test]
fn gpu_devices_are_those_of_counted_requests() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 3)]);
    let mut nic = exactly("nic", 1);
    nic.alternatives[0].class = "nic.example.com".into();
    let mut allocation = allocated(&[id("n0", "0"), id("n0", "1"), id("n0", "2")]);
    allocation.devices[1].request = "nic".into();
    allocation.devices[2].request = "not a request".into();
    let allocation = Some(allocation);
    fixture.claim(&ClaimInput { allocation, ..claim("c", &[exactly("gpus", 1), nic]) });
    let pod = fixture.pod("p", &["c"]);
    let ids: Vec<&str> = fixture.devices.gpu_devices(pod).iter().map(|d| fixture.names.text(*d)).collect();
    assert_eq!(ids, vec!["gpu.example.com/n0/0", "gpu.example.com/n0/2"]);
}

#[test]
fn releasing_the_last_consumer_deallocates_the_claim() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let index = fixture.claim(&claim("c", &[exactly("gpus", 1)]));
    let (first, second) = (fixture.pod("p", &["c"]), fixture.pod("q", &["c"]));
    fixture.refresh();
    let before = fixture.uses();
    let mut undo: Vec<Undo> = fixture.place(first, "n0").expect("free").into_vec();
    undo.extend(fixture.place(second, "n0").expect("shared"));
    assert_eq!(fixture.devices.claims[index].consumers(), 2);
    undo.extend(fixture.devices.release(first));
    assert!(fixture.devices.claims[index].state.allocation.is_some());
    undo.extend(fixture.devices.release(second));
    assert!(fixture.devices.claims[index].state.allocation.is_none());
    assert_eq!(fixture.uses(), before);
    fixture.take_back(undo);
    assert_eq!(fixture.devices.claims[index].state, ClaimState::default());
    assert_eq!(fixture.uses(), before);
}

#[test]
fn others_than_pods_keep_an_allocation_alive() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let input = ClaimInput {
        allocation: Some(allocated(&[id("n0", "0")])),
        reserved_for: vec!["p".into()],
        other_consumers: 1,
        ..claim("c", &[exactly("gpus", 1)])
    };
    let index = fixture.claim(&input);
    let pod = fixture.pod("p", &["c"]);
    let _undo = fixture.devices.release(pod);
    assert!(fixture.devices.claims[index].state.allocation.is_some());
}

#[test]
fn devices_of_bind_requests_are_assumed_until_the_request_is_gone() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    let index = fixture.claim(&claim("c", &[exactly("gpus", 1)]));
    let (pod, ns) = (fixture.sym("p"), fixture.sym("ns"));
    let chosen = PodClaim { chosen: vec![id("n0", "0")], ..reference("c") };
    fixture.devices.set_pod((pod, ns), &[chosen], &[id("n0", "1")], &mut fixture.names);
    for _ in 0..2 {
        fixture.refresh();
        assert_eq!(fixture.uses(), vec![1, 1]);
        assert_eq!(fixture.devices.claims[index].state.reserved_for.as_slice(), &[pod]);
    }
    let made = ClaimInput {
        owner_pod: Some("p".into()),
        synthetic: true,
        allocation: Some(allocated(&[id("n0", "1")])),
        ..claim("made", &[])
    };
    fixture.claim(&made);
    let observed =
        ClaimInput { allocation: Some(allocated(&[id("n0", "0")])), ..claim("c", &[exactly("gpus", 1)]) };
    fixture.claim(&observed);
    fixture.refresh();
    assert_eq!(fixture.uses(), vec![1, 1], "objects have caught up; nothing counts twice");
    fixture.devices.remove_claim(&Key::new("ns", "made"), &fixture.names);
    fixture.claim(&claim("c", &[exactly("gpus", 1)]));
    fixture.pod("p", &["c"]);
    fixture.refresh();
    assert_eq!(fixture.uses(), vec![0, 0]);
    assert_eq!(fixture.devices.claims[index].state, ClaimState::default());
}

#[test]
fn a_claim_slot_is_reused_after_its_claim_is_gone() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let first =
        fixture.claim(&ClaimInput { allocation: Some(allocated(&[id("n0", "0")])), ..claim("a", &[]) });
    fixture.devices.remove_claim(&Key::new("ns", "a"), &fixture.names);
    assert_eq!(fixture.uses(), vec![0]);
    assert_eq!(fixture.claim(&claim("b", &[])), first);
}

/// Pods are placed on, and removed from, two nodes in random order.
#[derive(Clone, Debug)]
enum Step {
    Place(usize, usize),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6usize, 0..2usize).prop_map(|(pod, node)| Step::Place(pod, node)),
        (0..6usize).prop_map(Step::Leave)
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #[test]
    fn no_device_is_given_twice_and_undoing_restores_everything(
        counts in prop::collection::vec(1..3u64, 4), shared in 0..4usize, steps in steps(),
    ) {
        let mut fixture = TestCluster::with_gpus(&[("n0", 3), ("n1", 2)]);
        for (i, count) in counts.iter().enumerate() {
            fixture.claim(&claim(&format!("c{i}"), &[exactly("gpus", *count)]));
        }
        // The last two pods use a claim of another pod as well as none of their own.
        let pods: Vec<Sym> = (0..6)
            .map(|i| fixture.pod(&format!("p{i}"), &[&format!("c{}", if i < 4 { i } else { shared })]))
            .collect();
        fixture.refresh();
        let before: Vec<ClaimState> = (0..4).map(|i| fixture.devices.claims[crate::ids::Idx::new(i)].state.clone()).collect();
        let mut undo = Vec::new();
        for step in steps {
            match step {
                Step::Place(pod, node) => {
                    let node = ["n0", "n1"][node];
                    undo.extend(fixture.place(pods[pod], node).into_iter().flatten());
                }
                Step::Leave(pod) => undo.extend(fixture.devices.release(pods[pod])),
            }
            prop_assert!(fixture.uses().iter().all(|uses| *uses <= 1));
            let held: usize = (0..4)
                .filter_map(|i| fixture.devices.claims[crate::ids::Idx::new(i)].state.allocation.as_ref().map(|a| a.devices.len()))
                .sum();
            prop_assert_eq!(fixture.uses().iter().sum::<u32>() as usize, held);
        }
        fixture.take_back(undo);
        for (i, state) in before.iter().enumerate() {
            prop_assert_eq!(&fixture.devices.claims[crate::ids::Idx::new(i)].state, state);
        }
        prop_assert!(fixture.uses().iter().all(|uses| *uses == 0));
    }
}

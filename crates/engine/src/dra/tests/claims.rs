//! What claims hold, what pods count for, and taking everything back.

use super::*;
use crate::resource::{AMOUNT_MAX, WHOLE_GPU};
use proptest::prelude::*;

impl World {
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
    let mut world = World::with_gpus(&[("n0", 1)]);
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
        request("odd", RequestMode::Unknown),
        nic,
        choice,
        admin,
    ];
    let index = world.claim(&claim("c", &requests));
    assert_eq!(claim_gpus(&world.devices.claims[index]), 4);
    let pod = world.pod("p", &["c", "c"]);
    assert_eq!(world.devices.gpu_demand(pod), 4 * WHOLE_GPU, "a claim named twice counts once");
    let made =
        ClaimInput { synthetic: true, owner_pod: Some("p".into()), ..claim("made", &[exactly("x", 1)]) };
    world.claim(&made);
    assert_eq!(world.devices.gpu_demand(pod), 4 * WHOLE_GPU);
}

#[test]
fn giant_demands_saturate() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    for name in ["a", "b"] {
        world.claim(&claim(name, &[exactly("x", u64::MAX)]));
    }
    let pod = world.pod("p", &["a", "b"]);
    assert_eq!(world.devices.gpu_demand(pod), AMOUNT_MAX);
    assert!(world.fit(pod, "n0").is_err());
}

#[test]
fn claims_relate_to_pods_that_name_own_or_lead_them() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    world.claim(&claim("named", &[exactly("x", 1)]));
    world.claim(&ClaimInput { owner_pod: Some("p".into()), ..claim("owned", &[exactly("x", 1)]) });
    let reserved = |name: &str, pods: &[&str]| ClaimInput {
        reserved_for: pods.iter().map(|p| (*p).to_owned()).collect(),
        ..claim(name, &[exactly("x", 1)])
    };
    world.claim(&reserved("first", &["p", "q"]));
    world.claim(&reserved("second", &["q", "p"]));
    let pod = world.pod("p", &["named", "unknown"]);
    assert_eq!(world.devices.gpu_demand(pod), 3 * WHOLE_GPU);
    world.devices.remove_claim(&Key::new("ns", "owned"), &world.names);
    assert_eq!(world.devices.gpu_demand(pod), 2 * WHOLE_GPU);
    world.claim(&reserved("first", &["q"]));
    assert_eq!(world.devices.gpu_demand(pod), WHOLE_GPU);
    world.devices.remove_pod(pod, &world.names);
    assert_eq!(world.devices.gpu_demand(pod), 0);
}

#[test]
fn gpu_devices_are_those_of_counted_requests() {
    let mut world = World::with_gpus(&[("n0", 3)]);
    let mut nic = exactly("nic", 1);
    nic.alternatives[0].class = "nic.example.com".into();
    let mut allocation = given(&[id("n0", "0"), id("n0", "1"), id("n0", "2")]);
    allocation.devices[1].request = "nic".into();
    allocation.devices[2].request = "not a request".into();
    let allocation = Some(allocation);
    world.claim(&ClaimInput { allocation, ..claim("c", &[exactly("gpus", 1), nic]) });
    let pod = world.pod("p", &["c"]);
    let ids: Vec<&str> = world.devices.gpu_devices(pod).iter().map(|d| world.names.text(*d)).collect();
    assert_eq!(ids, vec!["gpu.example.com/n0/0", "gpu.example.com/n0/2"]);
}

#[test]
fn the_last_consumer_takes_the_allocation_with_it() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    let index = world.claim(&claim("c", &[exactly("gpus", 1)]));
    let (first, second) = (world.pod("p", &["c"]), world.pod("q", &["c"]));
    world.settle();
    let before = world.uses();
    let mut undo: Vec<Undo> = world.place(first, "n0").expect("free").into_vec();
    undo.extend(world.place(second, "n0").expect("shared"));
    assert_eq!(world.devices.claims[index].consumers(), 2);
    undo.extend(world.devices.release(first));
    assert!(world.devices.claims[index].state.allocation.is_some());
    undo.extend(world.devices.release(second));
    assert!(world.devices.claims[index].state.allocation.is_none());
    assert_eq!(world.uses(), before);
    world.take_back(undo);
    assert_eq!(world.devices.claims[index].state, ClaimState::default());
    assert_eq!(world.uses(), before);
}

#[test]
fn others_than_pods_keep_an_allocation_alive() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    let input = ClaimInput {
        allocation: Some(given(&[id("n0", "0")])),
        reserved_for: vec!["p".into()],
        other_consumers: 1,
        ..claim("c", &[exactly("gpus", 1)])
    };
    let index = world.claim(&input);
    let pod = world.pod("p", &["c"]);
    let _undo = world.devices.release(pod);
    assert!(world.devices.claims[index].state.allocation.is_some());
}

#[test]
fn choices_of_bind_requests_are_assumed_until_they_are_gone() {
    let mut world = World::with_gpus(&[("n0", 2)]);
    let index = world.claim(&claim("c", &[exactly("gpus", 1)]));
    let (pod, ns) = (world.sym("p"), world.sym("ns"));
    let chosen = PodClaim { chosen: vec![id("n0", "0")], ..reference("c") };
    world.devices.set_pod((pod, ns), &[chosen], &[id("n0", "1")], &mut world.names);
    for _ in 0..2 {
        world.settle();
        assert_eq!(world.uses(), vec![1, 1]);
        assert_eq!(world.devices.claims[index].state.reserved_for.as_slice(), &[pod]);
    }
    let made = ClaimInput {
        owner_pod: Some("p".into()),
        synthetic: true,
        allocation: Some(given(&[id("n0", "1")])),
        ..claim("made", &[])
    };
    world.claim(&made);
    let told = ClaimInput { allocation: Some(given(&[id("n0", "0")])), ..claim("c", &[exactly("gpus", 1)]) };
    world.claim(&told);
    world.settle();
    assert_eq!(world.uses(), vec![1, 1], "objects have caught up; nothing counts twice");
    world.devices.remove_claim(&Key::new("ns", "made"), &world.names);
    world.claim(&claim("c", &[exactly("gpus", 1)]));
    world.pod("p", &["c"]);
    world.settle();
    assert_eq!(world.uses(), vec![0, 0]);
    assert_eq!(world.devices.claims[index].state, ClaimState::default());
}

#[test]
fn a_claim_slot_is_reused_after_its_claim_is_gone() {
    let mut world = World::with_gpus(&[("n0", 1)]);
    let first = world.claim(&ClaimInput { allocation: Some(given(&[id("n0", "0")])), ..claim("a", &[]) });
    world.devices.remove_claim(&Key::new("ns", "a"), &world.names);
    assert_eq!(world.uses(), vec![0]);
    assert_eq!(world.claim(&claim("b", &[])), first);
}

/// Pods place themselves on, and leave, two nodes in random order.
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
        let mut world = World::with_gpus(&[("n0", 3), ("n1", 2)]);
        for (i, count) in counts.iter().enumerate() {
            world.claim(&claim(&format!("c{i}"), &[exactly("gpus", *count)]));
        }
        // The last two pods use a claim of another pod as well as none of their own.
        let pods: Vec<Sym> = (0..6)
            .map(|i| world.pod(&format!("p{i}"), &[&format!("c{}", if i < 4 { i } else { shared })]))
            .collect();
        world.settle();
        let before: Vec<ClaimState> = (0..4).map(|i| world.devices.claims[crate::ids::Idx::new(i)].state.clone()).collect();
        let mut undo = Vec::new();
        for step in steps {
            match step {
                Step::Place(pod, node) => {
                    let node = ["n0", "n1"][node];
                    undo.extend(world.place(pods[pod], node).into_iter().flatten());
                }
                Step::Leave(pod) => undo.extend(world.devices.release(pods[pod])),
            }
            prop_assert!(world.uses().iter().all(|uses| *uses <= 1));
            let held: usize = (0..4)
                .filter_map(|i| world.devices.claims[crate::ids::Idx::new(i)].state.allocation.as_ref().map(|a| a.devices.len()))
                .sum();
            prop_assert_eq!(world.uses().iter().sum::<u32>() as usize, held);
        }
        world.take_back(undo);
        for (i, state) in before.iter().enumerate() {
            prop_assert_eq!(&world.devices.claims[crate::ids::Idx::new(i)].state, state);
        }
        prop_assert!(world.uses().iter().all(|uses| *uses == 0));
    }
}

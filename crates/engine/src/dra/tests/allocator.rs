//! Device allocation.

use super::*;
use crate::input::{DeviceTaint, TaintEffect, Toleration, TolerationOp};

/// One node with devices that have a `numa` attribute each.
fn numa_cluster(zones: &[&str]) -> TestCluster {
    let mut slice = gpu_slice("n0", zones.len());
    for (device, zone) in slice.devices.iter_mut().zip(zones) {
        device.attributes = vec![("d/numa".into(), (*zone).into())];
    }
    let mut fixture = TestCluster::with_gpus(&[("n0", 0)]);
    fixture.slice(slice);
    fixture.refresh();
    fixture
}

fn constrained(requests: &[ClaimRequest], constraint: ClaimConstraint) -> ClaimInput {
    ClaimInput { constraints: vec![constraint], ..claim("c", requests) }
}

fn same(requests: &[&str]) -> ClaimConstraint {
    let requests = requests.iter().map(|r| (*r).to_owned()).collect();
    ClaimConstraint::Match { requests, attribute: "d/numa".into() }
}

#[test]
fn the_first_free_devices_are_taken_in_order() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 4)]);
    let taken = ClaimInput { allocation: Some(allocated(&[id("n0", "1")])), ..claim("held", &[]) };
    fixture.claim(&taken);
    let claims = [claim("a", &[exactly("x", 1)]), claim("b", &[exactly("y", 2)])];
    assert_eq!(fixture.allocate("n0", &claims), Some(texts(&[&["0"], &["2", "3"]])));
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 4)])]), None);
}

#[test]
fn a_count_of_zero_means_one_and_a_giant_count_fails_at_once() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 0)])]), Some(texts(&[&["0"]])));
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", u64::MAX)])]), None);
    let mut large = TestCluster::with_gpus(&[("n0", 40)]);
    assert_eq!(large.allocate("n0", &[claim("a", &[exactly("x", 33)])]), None, "a result holds 32 devices");
    assert!(
        large.allocate("n0", &[claim("a", &[exactly("x", 32)]), claim("b", &[exactly("y", 8)])]).is_some()
    );
    assert_eq!(large.allocate("n0", &[claim("a", &[exactly("x", 30), exactly("y", 3)])]), None);
}

#[test]
fn all_means_every_matching_device_and_at_least_one() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 3), ("n1", 0)]);
    let all = claim("a", &[request("x", RequestMode::All)]);
    assert_eq!(fixture.allocate("n0", std::slice::from_ref(&all)), Some(texts(&[&["0", "1", "2"]])));
    assert_eq!(fixture.allocate("n1", std::slice::from_ref(&all)), None);
    fixture.claim(&ClaimInput { allocation: Some(allocated(&[id("n0", "2")])), ..claim("held", &[]) });
    assert_eq!(fixture.allocate("n0", &[all]), None);
    assert_eq!(fixture.allocate("n0", &[claim("a", &[request("x", RequestMode::Unknown)])]), None);
}

#[test]
fn an_incomplete_pool_serves_counts_but_not_all() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    fixture.slice(SliceInput { slice_count: 2, ..gpu_slice("n0", 2) });
    fixture.refresh();
    assert_eq!(fixture.allocate("n0", &[claim("a", &[request("x", RequestMode::All)])]), None);
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), Some(texts(&[&["0"]])));
}

#[test]
fn pool_with_a_duplicate_device_is_not_used() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    fixture.slice(SliceInput { name: "again".into(), ..gpu_slice("n0", 1) });
    fixture.refresh();
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), None);
}

#[test]
fn own_selectors_and_the_class_must_both_accept() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 4)]);
    let class = DeviceClassInput {
        name: GPU_CLASS.into(),
        accepts: vec![id("n0", "1"), id("n0", "3")],
        ..DeviceClassInput::default()
    };
    fixture.devices.set_class(&class, &mut fixture.names);
    let mut picky = exactly("x", 1);
    picky.alternatives[0].accepts = Some(vec![id("n0", "2"), id("n0", "3")]);
    assert_eq!(fixture.allocate("n0", &[claim("a", &[picky])]), Some(texts(&[&["3"]])));
    fixture.devices.remove_class(GPU_CLASS, &mut fixture.names);
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), None);
}

#[test]
fn alternatives_are_tried_in_order() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    let alternative = |name: &str, count| RequestAlternative {
        name: name.into(),
        class: GPU_CLASS.into(),
        mode: RequestMode::Exactly(count),
        ..RequestAlternative::default()
    };
    let choice = ClaimRequest {
        name: "x".into(),
        alternatives: vec![alternative("many", 3), alternative("two", 2), alternative("one", 1)],
    };
    assert_eq!(
        fixture.allocate("n0", &[claim("a", std::slice::from_ref(&choice))]),
        Some(texts(&[&["0", "1"]]))
    );
    let with_more = [claim("a", &[choice, exactly("y", 1)])];
    assert_eq!(
        fixture.allocate("n0", &with_more),
        Some(texts(&[&["0", "1"]])),
        "the second falls back to one"
    );
}

#[test]
fn labels_of_alternatives_name_the_request_too() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1)]);
    let mut choice = exactly("x", 1);
    choice.alternatives[0].name = "small".into();
    fixture.claim(&claim("c", &[choice]));
    let pod = fixture.pod("p", &["c"]);
    fixture.refresh();
    let found = fixture.fit(pod, "n0").expect("a device is free");
    let _undo = fixture.devices.reserve(pod, &found);
    let exported = fixture.devices.export(pod, &fixture.names);
    let device = ClaimDevice { request: "x/small".into(), device: id("n0", "0"), admin_access: false };
    assert_eq!(exported, vec![("my-c".to_owned(), vec![device])]);
}

#[test]
fn administration_shares_devices_but_not_twice_in_one_claim() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    fixture.claim(&ClaimInput {
        allocation: Some(allocated(&[id("n0", "0"), id("n0", "1")])),
        ..claim("held", &[])
    });
    let admin = |name: &str, mode| {
        let mut request = request(name, mode);
        request.alternatives[0].admin_access = true;
        request
    };
    let all = claim("a", &[admin("x", RequestMode::All)]);
    assert_eq!(fixture.allocate("n0", &[all]), Some(texts(&[&["0", "1"]])));
    let two = claim("a", &[admin("x", RequestMode::Exactly(1)), admin("y", RequestMode::Exactly(1))]);
    assert_eq!(fixture.allocate("n0", &[two]), Some(texts(&[&["0", "1"]])));
    let three = claim("a", &[admin("x", RequestMode::Exactly(2)), admin("y", RequestMode::Exactly(1))]);
    assert_eq!(fixture.allocate("n0", &[three]), None);
}

#[test]
fn matching_attributes_make_the_search_backtrack() {
    let mut fixture = numa_cluster(&["a", "b", "a", "b", "b"]);
    let three = constrained(&[exactly("x", 3)], same(&[]));
    assert_eq!(fixture.allocate("n0", &[three]), Some(texts(&[&["1", "3", "4"]])));
    let across = constrained(&[exactly("x", 1), exactly("y", 2)], same(&["x", "y"]));
    assert_eq!(fixture.allocate("n0", &[across]), Some(texts(&[&["1", "3", "4"]])));
    let only_one = constrained(&[exactly("x", 1), exactly("y", 2)], same(&["y"]));
    assert_eq!(fixture.allocate("n0", &[only_one]), Some(texts(&[&["0", "1", "3"]])));
}

#[test]
fn distinct_attributes_differ_and_missing_ones_disqualify() {
    let mut fixture = numa_cluster(&["a", "a", "b"]);
    let distinct =
        |attribute: &str| ClaimConstraint::Distinct { requests: Vec::new(), attribute: attribute.into() };
    let two = constrained(&[exactly("x", 2)], distinct("d/numa"));
    assert_eq!(fixture.allocate("n0", &[two]), Some(texts(&[&["0", "2"]])));
    let three = constrained(&[exactly("x", 3)], distinct("d/numa"));
    assert_eq!(fixture.allocate("n0", &[three]), None);
    let unknown = constrained(&[exactly("x", 1)], distinct("d/other"));
    assert_eq!(fixture.allocate("n0", &[unknown]), None);
}

#[test]
fn tainted_devices_need_a_toleration() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 0)]);
    let mut slice = gpu_slice("n0", 3);
    let taint = |effect| DeviceTaint { key: "sick".into(), value: "yes".into(), effect };
    slice.devices[0].taints = vec![taint(Some(TaintEffect::NoSchedule))];
    slice.devices[1].taints = vec![taint(None)];
    fixture.slice(slice);
    fixture.refresh();
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), Some(texts(&[&["1"]])));
    assert_eq!(fixture.allocate("n0", &[claim("a", &[request("x", RequestMode::All)])]), None);
    let tolerating = |key: &str, op: TolerationOp, effect| {
        let mut request = exactly("x", 1);
        request.alternatives[0].tolerations = vec![Toleration { key: key.into(), op, effect }];
        claim("a", &[request])
    };
    let equal = |value: &str| TolerationOp::Equal(value.into());
    for (toleration, first) in [
        (tolerating("sick", equal("yes"), None), "0"),
        (tolerating("", TolerationOp::Exists, None), "0"),
        (tolerating("sick", equal("no"), None), "1"),
        (tolerating("sick", TolerationOp::Exists, Some(TaintEffect::NoExecute)), "1"),
        (tolerating("other", TolerationOp::Exists, None), "1"),
        (tolerating("sick", TolerationOp::Gt(0), None), "1"),
    ] {
        assert_eq!(fixture.allocate("n0", &[toleration]), Some(texts(&[&[first]])));
    }
}

#[test]
fn partitions_share_the_counters_of_their_pool() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 0), ("n1", 0)]);
    let memory = |amount| vec![CounterSet { name: "card".into(), counters: vec![("memory".into(), amount)] }];
    let mut slice = gpu_slice("n0", 0);
    slice.counters = memory(80);
    slice.nodes = SliceNodes::PerDevice;
    for (name, amount, node) in
        [("whole", 80, "n0"), ("half-0", 40, "n0"), ("half-1", 40, "n0"), ("far", 40, "n1")]
    {
        slice.devices.push(DeviceInput {
            consumes: memory(amount),
            nodes: Some(SliceNodes::Node(node.into())),
            ..device(name)
        });
    }
    fixture.slice(slice);
    fixture.refresh();
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), Some(texts(&[&["whole"]])));
    assert_eq!(
        fixture.allocate("n0", &[claim("a", &[exactly("x", 2)])]),
        Some(texts(&[&["half-0", "half-1"]]))
    );
    fixture.claim(&ClaimInput { allocation: Some(allocated(&[id("n0", "far")])), ..claim("held", &[]) });
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 1)])]), Some(texts(&[&["half-0"]])));
    assert_eq!(fixture.allocate("n0", &[claim("a", &[exactly("x", 2)])]), None);
}

#[test]
fn unsatisfiable_search_ends_after_a_fixed_number_of_steps() {
    let zones: Vec<String> = (0..33).map(|i| format!("z{}", i / 3)).collect();
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
    let mut fixture = numa_cluster(&zones);
    let claims: Vec<ClaimInput> =
        (0..12).map(|i| constrained(&[exactly(&format!("x{i}"), 2)], same(&[]))).collect();
    assert_eq!(fixture.allocate("n0", &claims), None);
}

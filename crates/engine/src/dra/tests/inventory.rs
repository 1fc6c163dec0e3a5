//! Which devices a node can use.

use super::*;
use crate::input::{NodeTerm, Requirement, RequirementOp};

fn labelled(key: &str, op: RequirementOp) -> SliceNodes {
    let requirement = Requirement { key: key.into(), op };
    SliceNodes::Selector(vec![NodeTerm { labels: vec![requirement], names: Vec::new() }])
}

#[test]
fn only_slices_of_the_newest_generation_count() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 4)]);
    let newer = SliceInput { name: "newer".into(), generation: 2, ..gpu_slice("n0", 2) };
    fixture.slice(newer);
    fixture.refresh();
    assert_eq!(fixture.on("n0"), vec!["0", "1"]);
    fixture.devices.remove_slice("newer");
    fixture.refresh();
    assert_eq!(fixture.on("n0"), vec!["0", "1", "2", "3"]);
}

#[test]
fn pools_come_by_driver_and_name_and_devices_as_listed() {
    let mut fixture = TestCluster::default();
    fixture.node("n0", &[]);
    for (slice, driver, pool, devices) in
        [("s1", "b", "p", ["x"]), ("s2", "a", "q", ["10"]), ("s3", "a", "q", ["9"]), ("s4", "a", "p", ["z"])]
    {
        fixture.slice(SliceInput {
            name: slice.into(),
            driver: driver.into(),
            pool: pool.into(),
            nodes: SliceNodes::Node("n0".into()),
            devices: devices.iter().map(|d| device(d)).collect(),
            ..SliceInput::default()
        });
    }
    fixture.refresh();
    assert_eq!(fixture.on("n0"), vec!["z", "10", "9", "x"]);
}

#[test]
fn devices_reach_nodes_by_name_by_selector_everywhere_or_each_for_itself() {
    let mut fixture = TestCluster::default();
    fixture.node("n0", &[("rack", "r0"), ("size", "8")]);
    fixture.node("n1", &[("rack", "r1")]);
    let slice = |name: &str, nodes: SliceNodes| SliceInput {
        name: name.into(),
        driver: "d".into(),
        pool: name.into(),
        nodes,
        devices: vec![device(name)],
        ..SliceInput::default()
    };
    fixture.slice(slice("a-own", SliceNodes::Node("n0".into())));
    fixture.slice(slice("b-rack", labelled("rack", RequirementOp::In(vec!["r1".into()]))));
    fixture.slice(slice("c-all", SliceNodes::All));
    fixture.slice(slice("d-large", labelled("size", RequirementOp::Gt(4))));
    fixture.slice(slice("e-nothing", SliceNodes::Selector(vec![NodeTerm::default()])));
    let mut own = slice("f-each", SliceNodes::PerDevice);
    own.devices = vec![
        DeviceInput { nodes: Some(SliceNodes::Node("n1".into())), ..device("f1") },
        DeviceInput { nodes: Some(SliceNodes::All), ..device("f2") },
        device("f3"),
    ];
    fixture.slice(own);
    fixture.refresh();
    assert_eq!(fixture.on("n0"), vec!["a-own", "c-all", "d-large", "f2"]);
    assert_eq!(fixture.on("n1"), vec!["b-rack", "c-all", "f1", "f2"]);
}

#[test]
fn a_change_touches_only_the_nodes_it_reaches() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 1), ("n1", 1)]);
    let (n0, n1) = (fixture.sym("n0"), fixture.sym("n1"));
    fixture.slice(gpu_slice("n1", 2));
    let touched = fixture.refresh();
    assert!(touched.has(n1) && !touched.has(n0));
    assert!(fixture.refresh().is_empty());
    let everywhere =
        SliceInput { name: "all".into(), pool: "all".into(), nodes: SliceNodes::All, ..gpu_slice("n0", 1) };
    fixture.slice(everywhere);
    assert!(fixture.refresh().has(n0));
}

#[test]
fn gpus_are_counted_where_a_gpu_driver_binds_them_to_the_node() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 3)]);
    let nics = SliceInput { name: "nics".into(), driver: "nic.example.com".into(), ..gpu_slice("n0", 2) };
    fixture.slice(nics);
    let shared = SliceInput {
        name: "shared".into(),
        driver: "GPU.other.com".into(),
        pool: "shared".into(),
        nodes: SliceNodes::All,
        ..gpu_slice("n0", 4)
    };
    fixture.slice(shared);
    fixture.refresh();
    let n0 = fixture.sym("n0");
    assert_eq!(fixture.devices.gpus_on(n0), 3);
    assert_eq!(fixture.on("n0").len(), 9);
}

#[test]
fn a_device_that_draws_from_a_missing_counter_is_left_out() {
    let mut fixture = TestCluster::with_gpus(&[("n0", 2)]);
    let mut slice = gpu_slice("n0", 2);
    slice.devices[0].consumes =
        vec![CounterSet { name: "memory".into(), counters: vec![("bytes".into(), 1000)] }];
    fixture.slice(slice);
    fixture.refresh();
    assert_eq!(fixture.on("n0"), vec!["1"]);
}

#[test]
fn classes_back_extended_resources_by_name_and_by_prefix() {
    let mut fixture = TestCluster::default();
    let class = |name: &str, resource: Option<&str>| DeviceClassInput {
        name: name.into(),
        extended_resource: resource.map(Into::into),
        ..DeviceClassInput::default()
    };
    for class in [class("b", Some("example.com/tpu")), class("a", Some("example.com/tpu")), class("c", None)]
    {
        fixture.devices.set_class(&class, &mut fixture.names);
    }
    let (a, c, tpu) = (fixture.sym("a"), fixture.sym("c"), fixture.sym("example.com/tpu"));
    let implicit = fixture.sym("deviceclass.resource.kubernetes.io/c");
    assert_eq!(fixture.devices.inventory.class_backing(tpu), Some(a));
    assert_eq!(fixture.devices.inventory.class_backing(implicit), Some(c));
    fixture.devices.set_class(&class("g", Some("nvidia.com/gpu")), &mut fixture.names);
    let gpu = fixture.sym(crate::input::GPU);
    assert!(fixture.devices.backs(gpu));
    fixture.devices.remove_class("g", &mut fixture.names);
    assert!(!fixture.devices.backs(gpu));
}

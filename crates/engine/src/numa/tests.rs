//! NUMA alignment on small nodes, and a brute-force check of every policy.

use super::*;
use crate::input::{ContainerRequest, GPU as GPU_NAME, NumaZone, SpecInput, WHOLE_GPU};
use crate::resource::{CPU, GPU, MEMORY};
use proptest::prelude::*;

/// Interned names and dimensions.
struct TestCluster {
    names: Interner,
    dims: Dims,
}

impl TestCluster {
    fn new() -> Self {
        let mut names = Interner::default();
        let dims = Dims::new(&mut names);
        Self { names, dims }
    }
    fn node(&mut self, policy: NumaPolicy, scope: NumaScope, zones: &[AmountList]) -> NumaNode {
        let zones = zones.iter().enumerate().map(|(i, amounts)| NumaZone {
            name: format!("node-{i}"),
            allocatable: amounts.clone(),
            available: amounts.clone(),
        });
        let topology = NumaTopology { policy, scope, zones: zones.collect() };
        NumaNode::build(&topology, &mut self.dims, &mut self.names).expect("zones are given")
    }
    fn requests(&mut self, guaranteed: bool, containers: &[ContainerRequest]) -> NumaRequests {
        let spec = SpecInput { guaranteed, containers: containers.to_vec(), ..SpecInput::default() };
        NumaRequests::build(&spec, &mut self.dims, &mut self.names)
    }
    fn dim(&mut self, name: &str) -> Dim {
        self.dims.requested(name, &mut self.names)
    }
}

fn cpu(cores: i64) -> (String, i64) {
    ("cpu".into(), cores * 1000)
}
fn memory(bytes: i64) -> (String, i64) {
    ("memory".into(), bytes)
}
fn gpu(devices: i64) -> (String, i64) {
    (GPU_NAME.into(), devices * WHOLE_GPU)
}
fn app(request: &[(String, i64)]) -> ContainerRequest {
    ContainerRequest { request: request.to_vec(), ..ContainerRequest::default() }
}
fn init(request: &[(String, i64)]) -> ContainerRequest {
    ContainerRequest { init: true, ..app(request) }
}
fn sidecar(request: &[(String, i64)]) -> ContainerRequest {
    ContainerRequest { sidecar: true, ..init(request) }
}
/// Amounts of one resource in a placement, per zone of the node.
fn drawn(placement: Option<&Placement>, dim: Dim, zones: usize) -> Option<Vec<i64>> {
    let mut drawn = vec![0; zones];
    for (zone, amounts) in placement?.iter() {
        drawn[zone] = amounts.get(dim);
    }
    Some(drawn)
}

#[test]
fn a_node_without_zones_has_no_numa_side() {
    let mut fixture = TestCluster::new();
    assert_eq!(NumaNode::build(&NumaTopology::default(), &mut fixture.dims, &mut fixture.names), None);
}

#[test]
fn resources_count_as_reported_when_any_zone_lists_them() {
    let mut fixture = TestCluster::new();
    let node = fixture.node(
        NumaPolicy::Restricted,
        NumaScope::Container,
        &[vec![cpu(4), gpu(2)], vec![cpu(8), memory(16)], vec![("hugepages-2Mi".into(), 0)]],
    );
    let huge = fixture.dim("hugepages-2Mi");
    let reported: Vec<(Dim, bool)> = node.reported.iter().map(|r| (r.dim, r.device)).collect();
    assert_eq!(reported, vec![(CPU, false), (MEMORY, false), (GPU, true), (huge, false)]);
    assert_eq!(node.zones[0].allocatable.get(MEMORY), 0);
}

#[test]
fn pod_scope_takes_the_larger_of_running_together_and_any_init_moment() {
    let mut fixture = TestCluster::new();
    let requests = fixture.requests(
        true,
        &[init(&[cpu(3)]), sidecar(&[cpu(1)]), init(&[cpu(10)]), app(&[cpu(2)]), app(&[cpu(2)])],
    );
    assert_eq!(requests.pod_scope.get(CPU), 11_000);
    let concurrent: Vec<i64> = requests.concurrent.iter().map(|r| r.get(CPU)).collect();
    assert_eq!(concurrent, vec![1000, 2000, 2000]);
    let serial: Vec<i64> = requests.serial.iter().map(|r| r.get(CPU)).collect();
    assert_eq!(serial, vec![3000, 10_000]);
}

#[test]
fn only_whole_cores_of_guaranteed_pods_are_pinned() {
    let mut fixture = TestCluster::new();
    let half = ("cpu".to_owned(), 4500);
    let containers = [app(&[cpu(44), memory(16)]), app(&[half, memory(2)])];
    let requests = fixture.requests(true, &containers);
    assert_eq!((requests.pod_scope.get(CPU), requests.pod_scope.get(MEMORY)), (44_000, 18));
    assert_eq!(requests.concurrent[1].get(CPU), 0);
    let burstable = fixture.requests(false, &containers);
    assert_eq!((burstable.pod_scope.get(CPU), burstable.pod_scope.get(MEMORY)), (0, 18));
}

#[test]
fn pod_that_fits_only_across_zones_is_rejected_by_single_and_split_by_restricted() {
    let mut fixture = TestCluster::new();
    let zones = [vec![cpu(4)], vec![cpu(4)]];
    let requests = fixture.requests(true, &[app(&[cpu(6)])]);
    let single = fixture.node(NumaPolicy::SingleNumaNode, NumaScope::Pod, &zones);
    assert!(!single.admits(&requests, &Ignored::none()));
    let restricted = fixture.node(NumaPolicy::Restricted, NumaScope::Pod, &zones);
    let placement = restricted.place(&requests, &Ignored::none());
    assert_eq!(drawn(placement.as_ref(), CPU, 2), Some(vec![4000, 2000]));
}

#[test]
fn third_pod_stays_pending_once_two_fill_both_zones() {
    let mut fixture = TestCluster::new();
    let mut node = fixture.node(NumaPolicy::SingleNumaNode, NumaScope::Pod, &[vec![cpu(4)], vec![cpu(4)]]);
    let requests = fixture.requests(true, &[app(&[cpu(3)])]);
    for zone in 0..2 {
        let placement = node.place(&requests, &Ignored::none()).expect("a zone is free");
        assert_eq!(placement.iter().map(|(z, _)| z).collect::<Vec<_>>(), vec![zone]);
        node.charge(&placement);
    }
    assert!(!node.admits(&requests, &Ignored::none()));
}

#[test]
fn a_burstable_pod_without_zone_devices_ignores_zones() {
    let mut fixture = TestCluster::new();
    let node = fixture.node(NumaPolicy::SingleNumaNode, NumaScope::Pod, &[vec![cpu(1), gpu(1)]]);
    let requests = fixture.requests(false, &[app(&[cpu(64)])]);
    assert!(node.admits(&requests, &Ignored::none()));
    assert_eq!(node.place(&requests, &Ignored::none()), None);
    let device = fixture.requests(false, &[app(&[cpu(64), gpu(2)])]);
    assert!(!node.admits(&device, &Ignored::none()), "devices are aligned for every QoS class");
}

#[test]
fn ignored_resources_are_neither_checked_nor_charged() {
    let mut fixture = TestCluster::new();
    let node = fixture.node(NumaPolicy::SingleNumaNode, NumaScope::Pod, &[vec![cpu(4), memory(0), gpu(1)]]);
    let requests = fixture.requests(true, &[app(&[cpu(2), memory(8)])]);
    assert!(!node.admits(&requests, &Ignored::none()));
    let ignored = Ignored::parse("memory, nvidia.com/gpu ,unheard.of/thing", &fixture.dims, &fixture.names);
    assert_eq!(ignored, Ignored::none().with(MEMORY).with(GPU));
    let placement = node.place(&requests, &ignored).expect("only CPU is aligned");
    assert_eq!(placement.iter().map(|(_, a)| a.get(MEMORY)).collect::<Vec<_>>(), vec![0]);
}

#[test]
fn restricted_refuses_when_resources_need_different_widths() {
    let mut fixture = TestCluster::new();
    let zones = [vec![cpu(16), gpu(4)], vec![cpu(16), gpu(4)]];
    let node = fixture.node(NumaPolicy::Restricted, NumaScope::Pod, &zones);
    let uneven = fixture.requests(true, &[app(&[cpu(10), gpu(6)])]);
    assert!(!node.admits(&uneven, &Ignored::none()));
    let even = fixture.requests(true, &[app(&[cpu(24), gpu(6)])]);
    assert!(node.admits(&even, &Ignored::none()));
}

#[test]
fn restricted_judges_width_by_what_zones_have_and_fit_by_what_is_free() {
    let mut fixture = TestCluster::new();
    let mut node = fixture.node(NumaPolicy::Restricted, NumaScope::Pod, &[vec![gpu(4)], vec![gpu(4)]]);
    for zone in &mut node.zones {
        zone.available.set(GPU, 3 * WHOLE_GPU);
    }
    let requests = fixture.requests(false, &[app(&[gpu(4)])]);
    assert!(!node.admits(&requests, &Ignored::none()), "one empty zone would do, but none is empty");
}

#[test]
fn best_effort_prefers_the_zone_that_covers_most_and_never_rejects() {
    let mut fixture = TestCluster::new();
    let zones = [vec![gpu(1)], vec![gpu(3)], vec![gpu(2)]];
    let node = fixture.node(NumaPolicy::BestEffort, NumaScope::Pod, &zones);
    let some = fixture.requests(false, &[app(&[gpu(5)])]);
    let placement = node.place(&some, &Ignored::none());
    assert_eq!(drawn(placement.as_ref(), GPU, 3), Some(vec![0, 3 * WHOLE_GPU, 2 * WHOLE_GPU]));
    let many = fixture.requests(false, &[app(&[gpu(7)])]);
    assert!(node.admits(&many, &Ignored::none()));
    assert_eq!(node.place(&many, &Ignored::none()), None);
}

#[test]
fn container_scope_places_sidecars_with_apps_and_inits_alone() {
    let mut fixture = TestCluster::new();
    let node = fixture.node(NumaPolicy::SingleNumaNode, NumaScope::Container, &[vec![cpu(4)], vec![cpu(4)]]);
    let together = fixture.requests(true, &[init(&[cpu(4)]), sidecar(&[cpu(3)]), app(&[cpu(3)])]);
    let placement = node.place(&together, &Ignored::none());
    assert_eq!(drawn(placement.as_ref(), CPU, 2), Some(vec![3000, 3000]));
    let large_init = fixture.requests(true, &[init(&[cpu(5)]), app(&[cpu(1)])]);
    assert!(!node.admits(&large_init, &Ignored::none()));
}

#[test]
fn accounting_opens_from_pod_records_or_from_the_report() {
    let mut fixture = TestCluster::new();
    let mut node = fixture.node(NumaPolicy::Restricted, NumaScope::Pod, &[vec![cpu(4)], vec![cpu(4)]]);
    node.zones[1].reported_free.set(CPU, 500);
    let record = |zone: &str| vec![NumaAmount { zone: zone.into(), amounts: vec![cpu(3), memory(9)] }];
    let held = node.placement(&record("node-1"), &fixture.dims, &fixture.names).expect("the zone is known");
    assert_eq!(held.export(&node, &fixture.dims, &fixture.names)[0].amounts, vec![cpu(3)]);
    assert_eq!(node.placement(&record("node-7"), &fixture.dims, &fixture.names), None);
    let free = |node: &NumaNode| node.zones.iter().map(|z| z.available.get(CPU)).collect::<Vec<_>>();
    node.open_accounting(ZoneAccounting::FromPods, [&held]);
    assert_eq!(free(&node), vec![4000, 1000]);
    node.open_accounting(ZoneAccounting::FromReport, [&held]);
    assert_eq!(free(&node), vec![4000, 500]);
}

#[test]
fn scores_fall_with_the_number_of_zones() {
    let mut fixture = TestCluster::new();
    let one = fixture.requests(true, &[app(&[gpu(1)])]);
    let two = fixture.requests(true, &[app(&[gpu(2)])]);
    let idle = fixture.requests(false, &[app(&[])]);
    let zones = [vec![gpu(1)], vec![gpu(1)]];
    let restricted = fixture.node(NumaPolicy::Restricted, NumaScope::Container, &zones);
    let none = fixture.node(NumaPolicy::None, NumaScope::Container, &zones);
    let other = fixture.node(NumaPolicy::Restricted, NumaScope::Container, &[vec![cpu(8)], vec![cpu(8)]]);
    let span = |node: Option<&NumaNode>, requests| super::span(node, requests, &Ignored::none(), 4);
    assert_eq!(span(Some(&restricted), &one), Some(1));
    assert_eq!(span(Some(&restricted), &two), Some(2));
    assert_eq!(span(Some(&none), &one), Some(2), "no policy: the worst is assumed");
    assert_eq!(span(Some(&other), &one), Some(2), "nothing of the pod is tied to a zone");
    assert_eq!(span(None, &one), Some(4));
    assert_eq!(span(Some(&restricted), &idle), None);
    assert!((score(None, &one, &Ignored::none(), 4) - 25.0).abs() < 1e-9);
    assert!(score(None, &one, &Ignored::none(), 0).abs() < 1e-9);
    assert_eq!(max_zones([&restricted, &other]), 2);
}

/// Zones with (cpu, gpu) sizes and the part of each that is in use.
fn zones() -> impl Strategy<Value = Vec<(i64, i64, i64, i64)>> {
    prop::collection::vec((0..6i64, 0..5i64, 0..6i64, 0..5i64), 1..6)
}

fn policies() -> impl Strategy<Value = NumaPolicy> {
    prop_oneof![Just(NumaPolicy::SingleNumaNode), Just(NumaPolicy::Restricted), Just(NumaPolicy::BestEffort)]
}

/// All sets of zones, by size, then lexicographically.
fn subsets(zones: usize, width: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (0u32..1 << zones)
        .map(|bits| (0..zones).filter(|z| bits >> z & 1 == 1).collect())
        .filter(|set: &Vec<usize>| set.len() == width)
        .collect();
    all.sort();
    all
}

/// The zones a policy assigns to one request, by trying all sets.
fn expected_mask(node: &NumaNode, request: &Amounts) -> Option<Vec<usize>> {
    let holds = |set: &Vec<usize>, of: fn(&Zone) -> &Amounts, dim: Dim| {
        set.iter().map(|z| of(&node.zones[*z]).get(dim)).sum::<i64>() >= request.get(dim)
    };
    let request: Vec<Dim> = request.iter().map(|(dim, _)| dim).collect();
    if request.is_empty() {
        return Some(Vec::new());
    }
    let zones = node.zones.len();
    let width = match node.policy {
        NumaPolicy::SingleNumaNode => 1,
        NumaPolicy::Restricted | NumaPolicy::None | NumaPolicy::BestEffort => {
            let width = |dim: &Dim| {
                (1..=zones).find(|w| subsets(zones, *w).iter().any(|s| holds(s, |z| &z.allocatable, *dim)))
            };
            let widths: Vec<Option<usize>> = request.iter().map(width).collect();
            if widths.iter().any(|w| *w != widths[0]) {
                return None;
            }
            widths[0]?
        }
    };
    subsets(zones, width).into_iter().find(|set| request.iter().all(|d| holds(set, |z| &z.available, *d)))
}

proptest! {
    #[test]
    fn single_and_restricted_find_the_lowest_set_of_zones(
        zones in zones(), strict in any::<bool>(), cores in 0..10i64, devices in 0..8i64,
    ) {
        let mut fixture = TestCluster::new();
        let policy = if strict { NumaPolicy::SingleNumaNode } else { NumaPolicy::Restricted };
        let sizes: Vec<AmountList> = zones.iter().map(|z| vec![cpu(z.0), gpu(z.1)]).collect();
        let mut node = fixture.node(policy, NumaScope::Pod, &sizes);
        for (zone, size) in node.zones.iter_mut().zip(&zones) {
            zone.available.set(CPU, (size.0 - size.2).max(0) * 1000);
            zone.available.set(GPU, (size.1 - size.3).max(0) * WHOLE_GPU);
        }
        let requests = fixture.requests(true, &[app(&[cpu(cores), gpu(devices)])]);
        let expected = expected_mask(&node, &requests.pod_scope);
        let found = evaluate(&node, &requests, &Ignored::none());
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, expected) {
            prop_assert!(found.iter().all(|(zone, _)| expected.contains(&zone)));
            for dim in [CPU, GPU] {
                let sum: i64 = found.iter().map(|(_, amounts)| amounts.get(dim)).sum();
                prop_assert_eq!(sum, requests.pod_scope.get(dim));
            }
        }
    }

    #[test]
    fn charging_never_overdraws_and_releasing_restores(
        zones in zones(), policy in policies(), container in any::<bool>(),
        pods in prop::collection::vec((1..4i64, 0..3i64), 1..8),
    ) {
        let mut fixture = TestCluster::new();
        let scope = if container { NumaScope::Container } else { NumaScope::Pod };
        let sizes: Vec<AmountList> = zones.iter().map(|z| vec![cpu(z.0), gpu(z.1)]).collect();
        let mut node = fixture.node(policy, scope, &sizes);
        let before = node.clone();
        let mut held = Vec::new();
        for (cores, devices) in pods {
            let requests = fixture.requests(true, &[app(&[cpu(cores)]), app(&[gpu(devices)])]);
            if let Some(placement) = node.place(&requests, &Ignored::none()) {
                node.charge(&placement);
                held.push(placement);
            }
            for zone in &node.zones {
                prop_assert!(zone.available.as_slice().iter().all(|v| *v >= 0));
            }
        }
        let mut reopened = before.clone();
        reopened.open_accounting(ZoneAccounting::FromPods, &held);
        prop_assert_eq!(&reopened, &node);
        for placement in &held {
            node.release(placement);
        }
        prop_assert_eq!(node, before);
    }
}

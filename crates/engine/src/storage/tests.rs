//! Storage on small clusters, one rule per test.

use super::*;
use crate::ids::{Idx, NodeIdx};
use crate::input::{LabelSelector, NodeTerm, Requirement, RequirementOp, SelectorOp};
use crate::terms::Presence;
use crate::verdict::{NodeRejection, VolumeRejection};
use proptest::prelude::*;

const GIB: i64 = 1 << 30;

#[derive(Default)]
struct TestCluster {
    names: Interner,
    storage: Storage,
    nodes: Vec<(Sym, Vec<(Sym, Sym)>)>,
    limits: Vec<(Sym, u32)>,
    /// Claims of pods on the checked node.
    others: Vec<Vec<Sym>>,
}

impl TestCluster {
    fn new(nodes: &[(&str, &[(&str, &str)])]) -> Self {
        let mut fixture = Self::default();
        for (name, labels) in nodes {
            let names = &mut fixture.names;
            let mut labels: Vec<_> = labels.iter().map(|(k, v)| (names.intern(k), names.intern(v))).collect();
            labels.sort_unstable();
            fixture.nodes.push((names.intern(name), labels));
        }
        fixture
    }
    fn syms(&mut self, texts: &[&str]) -> Vec<Sym> {
        texts.iter().map(|text| self.names.intern(text)).collect()
    }
    fn class(&mut self, name: &str, edit: impl FnOnce(&mut StorageClassInput)) {
        let mut class = StorageClassInput {
            name: name.into(),
            provisioner: "csi.example".into(),
            wait_for_consumer: true,
            ..StorageClassInput::default()
        };
        edit(&mut class);
        self.storage.set_class(&class, &mut self.names);
    }
    fn claim(&mut self, name: &str, edit: impl FnOnce(&mut VolumeClaimInput)) {
        let mut claim = VolumeClaimInput {
            key: Key::new("ns", name),
            class: "fast".into(),
            bytes: GIB,
            ..VolumeClaimInput::default()
        };
        edit(&mut claim);
        self.storage.set_claim(&claim, &mut self.names);
    }
    fn bound(&mut self, name: &str, volume: &str) {
        self.claim(name, |c| {
            c.phase = ClaimPhase::Bound;
            c.volume = Some(volume.into());
        });
    }
    fn volume(&mut self, name: &str, edit: impl FnOnce(&mut VolumeInput)) {
        let mut volume =
            VolumeInput { name: name.into(), class: "fast".into(), bytes: GIB, ..VolumeInput::default() };
        edit(&mut volume);
        self.storage.set_volume(&volume, &mut self.names);
    }
    fn capacity(&mut self, name: &str, bytes: i64, host: Option<&str>) {
        let nodes = host.map(|host| LabelSelector {
            requirements: vec![("host".into(), SelectorOp::In(vec![host.into()]))],
        });
        let input = CapacityInput { key: Key::new("sys", name), class: "fast".into(), bytes, nodes };
        self.storage.set_capacity(&input, &mut self.names);
    }
    fn prefilter(&mut self, claims: &[&str]) -> Result<(), PodRejection> {
        let claims = self.syms(claims);
        let namespace = self.names.intern("ns");
        self.storage.prefilter(namespace, &claims, &self.names)
    }
    fn filter_with(
        &mut self,
        claims: &[&str],
        node: usize,
        capacity: CapacityCheck,
    ) -> Result<(), NodeRejection> {
        let claims = self.syms(claims);
        let namespace = self.names.intern("ns");
        let (name, labels) = &self.nodes[node];
        let node = VolumeNode { name: *name, labels, attach_limits: &self.limits };
        let others = self.others.iter().map(|claims| (namespace, claims.as_slice()));
        self.storage.filter(namespace, &claims, &node, others, capacity, &self.names)
    }
    fn filter(&mut self, claims: &[&str], node: usize) -> Result<(), NodeRejection> {
        self.filter_with(claims, node, CapacityCheck::Reported)
    }
    /// The result for each node.
    fn misses(&mut self, claims: &[&str]) -> Vec<Option<VolumeRejection>> {
        (0..self.nodes.len())
            .map(|node| match self.filter(claims, node) {
                Ok(()) => None,
                Err(NodeRejection::Volume(miss)) => Some(miss),
                Err(other) => panic!("not about volumes: {other:?}"),
            })
            .collect()
    }
}

fn on(key: &str, value: &str) -> NodeTerm {
    let op = RequirementOp::In(vec![value.into()]);
    NodeTerm { labels: vec![Requirement { key: key.into(), op }], names: Vec::new() }
}

const HOSTS: [(&str, &[(&str, &str)]); 2] = [("n0", &[("host", "h0")]), ("n1", &[("host", "h1")])];

#[test]
fn claims_must_exist_and_be_neither_lost_nor_terminating() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |_| {});
    fixture.claim("fine", |_| {});
    fixture.claim("lost", |c| (c.phase, c.volume) = (ClaimPhase::Lost, Some("gone".into())));
    fixture.claim("going", |c| c.deleting = true);
    assert_eq!(fixture.prefilter(&["fine"]), Ok(()));
    let problems = [
        ("missing", VolumeClaimProblem::Missing),
        ("lost", VolumeClaimProblem::Lost("gone".into())),
        ("going", VolumeClaimProblem::Deleting),
    ];
    for (bad, problem) in problems {
        assert_eq!(fixture.prefilter(&["fine", bad]), Err(PodRejection::VolumeClaim(bad.into(), problem)));
    }
}

#[test]
fn claims_with_immediate_binding_must_be_bound() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |_| {});
    fixture.class("eager", |c| c.wait_for_consumer = false);
    fixture.claim("eager", |c| c.class = "eager".into());
    fixture.claim("classless", |c| c.class = String::new());
    fixture.claim("chosen", |c| c.volume = Some("v".into()));
    fixture.bound("bound", "v");
    assert_eq!(fixture.prefilter(&["bound"]), Ok(()));
    for early in ["eager", "classless", "chosen"] {
        assert_eq!(fixture.prefilter(&[early]), Err(PodRejection::UnboundImmediate(early.into())));
    }
}

#[test]
fn a_bound_volume_is_used_from_its_nodes_only() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.bound("data", "v");
    fixture.volume("v", |v| v.node_terms = vec![on("host", "h1")]);
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::NodeConflict), None]);
    fixture.storage.remove_volume("v", &mut fixture.names);
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::NodeConflict); 2]);
}

#[test]
fn bound_volume_is_usable_in_its_zones_only() {
    let mut fixture = TestCluster::new(&[
        ("n0", &[("topology.kubernetes.io/zone", "a")]),
        ("n1", &[("topology.kubernetes.io/zone", "b")]),
        ("n2", &[]),
    ]);
    fixture.bound("data", "v");
    for key in ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"] {
        fixture.volume("v", |v| v.zones = vec![(key.into(), vec!["b".into(), "c".into()])]);
        assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Zone), None, None], "{key}");
    }
}

#[test]
fn unbound_claim_matches_a_free_volume_that_the_node_can_use() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.no_provisioner = true);
    fixture.claim("data", |_| {});
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Unbound); 2]);
    let local = |v: &mut VolumeInput| {
        v.available = true;
        v.node_terms = vec![on("host", "h1")];
    };
    fixture.volume("v", local);
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Unbound), None]);
    fixture.volume("v", |v| {
        local(v);
        v.bytes = GIB - 1;
    });
    assert_eq!(
        fixture.filter(&["data"], 1),
        Err(NodeRejection::Volume(VolumeRejection::Unbound)),
        "too small"
    );
    fixture.volume("v", |v| {
        local(v);
        v.claim = Some(Key::new("ns", "other"));
    });
    assert_eq!(
        fixture.filter(&["data"], 1),
        Err(NodeRejection::Volume(VolumeRejection::Unbound)),
        "reserved"
    );
    fixture.volume("v", |v| {
        local(v);
        v.class = "slow".into();
    });
    assert_eq!(
        fixture.filter(&["data"], 1),
        Err(NodeRejection::Volume(VolumeRejection::Unbound)),
        "of another class"
    );
}

#[test]
fn each_claim_takes_a_volume_of_its_own_and_small_ones_choose_first() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.no_provisioner = true);
    fixture.claim("large", |c| c.bytes = 2 * GIB);
    fixture.claim("small", |_| {});
    fixture.volume("v2", |v| {
        v.available = true;
        v.bytes = 2 * GIB;
    });
    assert!(fixture.filter(&["large"], 0).is_ok());
    assert!(fixture.filter(&["large", "small"], 0).is_err());
    fixture.volume("v1", |v| v.available = true);
    assert!(fixture.filter(&["large", "small"], 0).is_ok());
}

#[test]
fn a_volume_reserved_for_a_claim_is_the_one_it_gets() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.no_provisioner = true);
    fixture.claim("data", |_| {});
    fixture.volume("free", |v| v.available = true);
    fixture.volume("mine", |v| {
        v.available = true;
        v.bytes = 4 * GIB;
        v.claim = Some(Key::new("ns", "data"));
        v.node_terms = vec![on("host", "h1")];
    });
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Unbound), None]);
}

#[test]
fn volumes_are_provisioned_in_allowed_topologies_only() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.allowed = vec![on("host", "h1")]);
    fixture.claim("data", |_| {});
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Unbound), None]);
}

#[test]
fn claim_with_a_selected_node_is_restricted_to_it() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |_| {});
    fixture.claim("data", |c| c.selected_node = Some("n1".into()));
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::NodeConflict), None]);
}

#[test]
fn reported_capacity_must_hold_each_claim_unless_it_is_simulated() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.tracks_capacity = true);
    fixture.claim("data", |_| {});
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Capacity); 2]);
    fixture.capacity("c0", GIB - 1, Some("h0"));
    fixture.capacity("c1", GIB, Some("h1"));
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Capacity), None]);
    assert!(fixture.filter_with(&["data"], 0, CapacityCheck::Simulated).is_ok());
    fixture.storage.remove_capacity(&Key::new("sys", "c1"), &mut fixture.names);
    assert_eq!(fixture.misses(&["data"]), [Some(VolumeRejection::Capacity); 2]);
}

#[test]
fn a_driver_attaches_so_many_distinct_volumes() {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |_| {});
    for name in ["a", "b", "c"] {
        fixture.bound(name, &format!("v-{name}"));
        fixture.volume(&format!("v-{name}"), |v| v.driver = Some("csi.example".into()));
    }
    fixture.claim("new", |_| {});
    let driver = fixture.names.intern("csi.example");
    fixture.limits = vec![(driver, 2)];
    fixture.others = vec![fixture.syms(&["a"]), fixture.syms(&["a"])];
    assert!(fixture.filter(&["b"], 0).is_ok());
    assert_eq!(fixture.filter(&["b", "c"], 0), Err(NodeRejection::Volume(VolumeRejection::AttachLimit)));
    assert_eq!(fixture.filter(&["b", "new"], 0), Err(NodeRejection::Volume(VolumeRejection::AttachLimit)));
    fixture.others = vec![fixture.syms(&["a", "b", "c"])];
    assert!(fixture.filter(&["a"], 0).is_ok(), "it is attached already");
    fixture.limits.clear();
    assert!(fixture.filter(&["new"], 0).is_ok());
}

/// A cluster with simulated storage: 10 GiB on each host.
fn simulated() -> TestCluster {
    let mut fixture = TestCluster::new(&HOSTS);
    fixture.class("fast", |c| c.tracks_capacity = true);
    fixture.capacity("c0", 10 * GIB, Some("h0"));
    fixture.capacity("c1", 10 * GIB, Some("h1"));
    fixture
}

impl TestCluster {
    fn open(&mut self, pods: &[(&str, &[&str], Option<usize>, Presence)]) {
        if self.storage.needs_link() {
            let nodes =
                self.nodes.iter().enumerate().map(|(n, (_, labels))| (NodeIdx::new(n), labels.as_slice()));
            self.storage.link(nodes);
        }
        let namespace = self.names.intern("ns");
        let resolved: Vec<_> = pods
            .iter()
            .map(|(uid, claims, node, presence)| {
                (self.names.intern(uid), self.syms(claims), *node, *presence)
            })
            .collect();
        self.storage.open_accounting(resolved.iter().map(|(uid, claims, node, presence)| {
            (VolumePod { namespace, uid: *uid, claims }, node.map(NodeIdx::new), *presence)
        }));
    }
    fn with<T>(
        &mut self,
        uid: &str,
        claims: &[&str],
        f: impl FnOnce(&mut Storage, &VolumePod<'_>) -> T,
    ) -> T {
        let (namespace, uid, claims) = (self.names.intern("ns"), self.names.intern(uid), self.syms(claims));
        f(&mut self.storage, &VolumePod { namespace, uid, claims: &claims })
    }
    /// Whether a pod fits a node now and eventually.
    fn fits(&mut self, uid: &str, claims: &[&str], node: usize, owned: OwnedClaims) -> (bool, bool) {
        self.with(uid, claims, |storage, pod| {
            let node = NodeIdx::new(node);
            (storage.fits_now(pod, node, owned), storage.fits_eventually(pod, node, owned))
        })
    }
    fn sized(&mut self, name: &str, gib: i64) {
        self.claim(name, |c| c.bytes = gib * GIB);
    }
}

#[test]
fn without_accounting_everything_fits() {
    let mut fixture = simulated();
    fixture.sized("huge", 100);
    assert_eq!(fixture.fits("p", &["huge"], 0, OwnedClaims::AsObserved), (true, true));
}

#[test]
fn unbound_claims_together_must_fit_what_is_left() {
    let mut fixture = simulated();
    fixture.sized("six", 6);
    fixture.sized("five", 5);
    fixture.sized("four", 4);
    fixture.open(&[]);
    assert_eq!(fixture.fits("p", &["six", "four"], 0, OwnedClaims::AsObserved), (true, true));
    assert_eq!(fixture.fits("p", &["six", "five"], 0, OwnedClaims::AsObserved), (false, false));
    fixture.with("q", &["six"], |storage, pod| storage.place(pod, NodeIdx::new(0), Presence::Active));
    assert_eq!(fixture.fits("p", &["five"], 0, OwnedClaims::AsObserved), (false, false));
    assert_eq!(fixture.fits("p", &["five"], 1, OwnedClaims::AsObserved), (true, true));
    fixture.with("q", &["six"], |storage, pod| storage.unplace(pod, NodeIdx::new(0), Presence::Active));
    assert_eq!(fixture.fits("p", &["five"], 0, OwnedClaims::AsObserved), (true, true));
}

#[test]
fn bound_claims_are_in_the_reported_figure_already() {
    let mut fixture = simulated();
    fixture.bound("old", "v");
    fixture.sized("ten", 10);
    fixture.open(&[("q", &["old"], Some(0), Presence::Active)]);
    assert_eq!(fixture.fits("p", &["ten"], 0, OwnedClaims::AsObserved), (true, true));
}

#[test]
fn claim_used_by_two_pods_is_charged_once() {
    let mut fixture = simulated();
    fixture.sized("six", 6);
    fixture.sized("four", 4);
    fixture.open(&[("q", &["six"], Some(0), Presence::Active), ("r", &["six"], Some(0), Presence::Active)]);
    assert_eq!(fixture.fits("p", &["four"], 0, OwnedClaims::AsObserved), (true, true));
    fixture.with("q", &["six"], |storage, pod| storage.unplace(pod, NodeIdx::new(0), Presence::Active));
    assert_eq!(fixture.fits("p", &["six"], 0, OwnedClaims::AsObserved), (false, false));
}

#[test]
fn a_class_without_capacity_on_the_node_does_not_fit() {
    let mut fixture = simulated();
    fixture.storage.remove_capacity(&Key::new("sys", "c0"), &mut fixture.names);
    fixture.sized("one", 1);
    fixture.open(&[]);
    assert_eq!(fixture.fits("p", &["one"], 0, OwnedClaims::AsObserved), (false, false));
    assert_eq!(fixture.fits("p", &["one"], 1, OwnedClaims::AsObserved), (true, true));
}

#[test]
fn node_with_two_capacities_of_a_class_counts_as_having_none() {
    let mut fixture = simulated();
    fixture.capacity("everywhere", 50 * GIB, None);
    fixture.sized("one", 1);
    fixture.open(&[]);
    assert_eq!(fixture.fits("p", &["one"], 0, OwnedClaims::AsObserved), (false, false));
}

#[test]
fn claims_of_other_classes_take_no_part() {
    let mut fixture = simulated();
    fixture.class("plain", |_| {});
    fixture.claim("plain", |c| {
        c.class = "plain".into();
        c.bytes = 99 * GIB;
    });
    fixture.open(&[]);
    assert_eq!(fixture.fits("p", &["plain"], 0, OwnedClaims::AsObserved), (true, true));
}

#[test]
fn claims_owned_by_a_releasing_pod_are_freed_eventually() {
    let mut fixture = simulated();
    fixture.claim("mine", |c| {
        c.phase = ClaimPhase::Bound;
        c.volume = Some("v".into());
        c.owner_pod = Some("q".into());
        c.bytes = 5 * GIB;
    });
    fixture.sized("twelve", 12);
    fixture.open(&[("q", &["mine"], Some(0), Presence::Releasing)]);
    assert_eq!(fixture.fits("p", &["twelve"], 0, OwnedClaims::AsObserved), (false, true));
    assert_eq!(fixture.fits("p", &["twelve"], 1, OwnedClaims::AsObserved), (false, false));
}

#[test]
fn evicted_pod_needs_capacity_for_the_claims_it_owns() {
    let mut fixture = simulated();
    fixture.claim("mine", |c| {
        c.phase = ClaimPhase::Bound;
        c.volume = Some("v".into());
        c.owner_pod = Some("q".into());
        c.bytes = 12 * GIB;
    });
    fixture.open(&[("q", &["mine"], Some(0), Presence::Active)]);
    assert_eq!(fixture.fits("q", &["mine"], 1, OwnedClaims::AsObserved), (true, true));
    assert_eq!(fixture.fits("q", &["mine"], 1, OwnedClaims::Remade), (false, false));
}

#[test]
fn a_claim_whose_owner_is_gone_keeps_a_pod_from_fitting_now() {
    let mut fixture = simulated();
    fixture.claim("orphan", |c| c.owner_pod = Some("gone".into()));
    fixture.open(&[("p", &["orphan"], None, Presence::Active)]);
    assert_eq!(fixture.fits("p", &["orphan"], 0, OwnedClaims::AsObserved), (false, true));
    fixture.open(&[("gone", &["orphan"], None, Presence::Active)]);
    assert_eq!(fixture.fits("gone", &["orphan"], 0, OwnedClaims::AsObserved), (true, true));
}

proptest! {
    #[test]
    fn accounting_after_any_moves_equals_accounting_opened_on_the_result(
        moves in prop::collection::vec((0..5usize, 0..2usize, any::<bool>(), any::<bool>()), 0..30),
    ) {
        let mut fixture = simulated();
        let pods: [(&str, &[&str]); 5] =
            [("p0", &["a"]), ("p1", &["a", "b"]), ("p2", &["c", "c"]), ("p3", &["b", "d"]), ("p4", &[])];
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            fixture.claim(name, |c| {
                c.bytes = (at as i64 + 1) * GIB;
                c.owner_pod = Some(format!("p{at}"));
                c.phase = if at == 2 { ClaimPhase::Bound } else { ClaimPhase::Pending };
            });
        }
        let waiting: Vec<_> = pods.iter().map(|(uid, claims)| (*uid, *claims, None, Presence::Active)).collect();
        fixture.open(&waiting);
        let mut placed: Vec<(usize, usize, Presence)> = Vec::new();
        for (pod, node, leaves, out) in moves {
            let (uid, claims) = pods[pod];
            if out && !placed.is_empty() {
                let (pod, node, presence) = placed.swap_remove(pod % placed.len());
                let (uid, claims) = pods[pod];
                fixture.with(uid, claims, |storage, pod| storage.unplace(pod, NodeIdx::new(node), presence));
            } else {
                let presence = if leaves { Presence::Releasing } else { Presence::Active };
                fixture.with(uid, claims, |storage, pod| storage.place(pod, NodeIdx::new(node), presence));
                placed.push((pod, node, presence));
            }
        }
        let kept = fixture.storage.csi.clone();
        let result: Vec<_> =
            placed.iter().map(|&(pod, node, presence)| (pods[pod].0, pods[pod].1, Some(node), presence)).collect();
        fixture.open(&[waiting, result].concat());
        prop_assert_eq!(kept, fixture.storage.csi);
    }
}

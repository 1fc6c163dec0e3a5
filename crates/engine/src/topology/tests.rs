//! Topology candidates on small clusters, one rule per test; `tests/properties.rs` checks all rules on random ones.

mod properties;

use super::*;
use crate::cluster::group::Constraint;
use crate::delta::Delta;
use crate::ids::PodIdx;
use crate::input::{
    DeviceClassInput, GpuMemory, GpuRequest, Key, NodeInput, PodInput, PodPhase, SpecInput, WHOLE_GPU,
};
use crate::node_set::NodeSet;
use crate::plugin::PluginSet;
use crate::policy::{Config, Params, Policy};
use crate::state::ClusterState;
use crate::verdict::{Measured, TopologyReason};
use kai_units::Timestamp;

const TOPOLOGY: &str = "place";

/// A cluster with one topology.
struct TestCluster {
    cluster: ClusterState,
    pods: usize,
}

/// A spec with whole GPUs.
fn gpus(count: u32) -> SpecInput {
    let request = vec![("cpu".into(), 1000), ("gpu".into(), i64::from(count) * WHOLE_GPU)];
    SpecInput { request, gpu: GpuRequest::Whole(count), ..SpecInput::default() }
}
fn cores(count: i64) -> SpecInput {
    SpecInput { request: vec![("cpu".into(), count * 1000)], ..SpecInput::default() }
}
fn share(hundredths: u32, devices: u32) -> SpecInput {
    SpecInput { gpu: GpuRequest::Fraction { hundredths, devices }, ..cores(1) }
}

impl TestCluster {
    fn new(levels: &[&str]) -> Self {
        let mut fixture = Self { cluster: ClusterState::new(), pods: 0 };
        let levels = levels.iter().map(ToString::to_string).collect();
        fixture.cluster.apply(Delta::Topology(TopologyInput { name: TOPOLOGY.into(), levels }));
        fixture
    }

    /// A node with 64 cores; labels as `zone=a rack=r1`.
    fn node(&mut self, name: &str, labels: &str, gpus: i64) {
        let labels = labels.split_whitespace().filter_map(|label| label.split_once('='));
        self.cluster.apply(Delta::Node(Box::new(NodeInput {
            name: name.into(),
            labels: labels.map(|(key, value)| (key.into(), value.into())).collect(),
            allocatable: vec![
                ("cpu".into(), 64_000),
                ("memory".into(), 1 << 38),
                ("gpu".into(), gpus * WHOLE_GPU),
                ("pods".into(), 110),
            ],
            gpu_memory: GpuMemory { mib: 100, known: true },
            ..NodeInput::default()
        })));
    }

    fn pod(&mut self, input: PodInput) -> PodIdx {
        self.pods += 1;
        let key = Key::new("ns", format!("pod-{}", self.pods));
        let uid = key.name.clone();
        self.cluster.apply(Delta::Pod(Box::new(PodInput { key: key.clone(), uid, ours: true, ..input })));
        self.cluster.pod(&key).expect("the pod was just added")
    }
    fn pending(&mut self, count: usize, spec: &SpecInput) -> Vec<PodIdx> {
        (0..count).map(|_| self.pod(PodInput { spec: spec.clone().into(), ..PodInput::default() })).collect()
    }
    /// A pod on a node, on the named shared GPUs.
    fn placed(&mut self, node: &str, phase: PodPhase, spec: SpecInput, gpu_groups: &[&str]) {
        let gpu_groups = gpu_groups.iter().map(ToString::to_string).collect();
        self.pod(PodInput {
            node: Some(node.into()),
            phase,
            spec: spec.into(),
            gpu_groups,
            ..PodInput::default()
        });
    }
    fn running(&mut self, node: &str, spec: SpecInput) {
        self.placed(node, PodPhase::Running, spec, &[]);
    }

    fn find(&self, node: &str) -> NodeIdx {
        self.cluster.node(node).expect("the node exists")
    }
    fn set(&self, nodes: &str) -> NodeSet {
        NodeSet::Some(nodes.split_whitespace().map(|node| self.find(node)).collect())
    }
    fn names(&self, set: &NodeSet) -> String {
        let names =
            set.nodes(&self.cluster).iter().map(|node| self.cluster.text(self.cluster.nodes[*node].name));
        names.collect::<Vec<_>>().join(" ")
    }
    fn topology(&self) -> &Topology {
        let name = self.cluster.names.find(TOPOLOGY).expect("it was set");
        self.cluster.topologies.get(name).expect("it was set")
    }

    fn refresh(&mut self) {
        let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
        self.cluster.refresh(&policy, Timestamp(0));
    }

    fn candidates(&mut self, query: &Query<'_>) -> Result<Sets, TopologyReason> {
        self.refresh();
        let mut level = |name: &str| (!name.is_empty()).then(|| self.cluster.names.intern(name));
        let (required, preferred) = (level(query.required), level(query.preferred));
        let topology = self.cluster.names.intern(TOPOLOGY);
        let nodes = if query.nodes.is_empty() { NodeSet::All } else { self.set(query.nodes) };
        let held: Vec<_> = query.held.split_whitespace().map(|node| self.find(node)).collect();
        let constraint = Constraint { topology, required, preferred };
        let request = Request { constraint: &constraint, nodes: &nodes, pods: query.pods, held: &held };
        let found = candidates(&self.cluster, &request)?;
        let score = |node: &NodeIdx| found.scores.as_ref().map(|scores| scores.score(*node));
        Ok(Sets {
            sets: found.sets.iter().map(|set| self.names(set)).collect(),
            scores: self.cluster.nodes_by_rank.iter().filter_map(score).collect(),
        })
    }
    fn measure(&mut self, query: &Query<'_>, refusal: &mut TopologyReason) {
        let required = Some(self.cluster.names.intern(query.required));
        let topology = self.cluster.names.intern(TOPOLOGY);
        let constraint = Constraint { topology, required, preferred: None };
        let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: query.pods, held: &[] };
        measure(&self.cluster, &request, refusal);
    }
    /// The sets in order, separated by ` | `.
    fn sets(&mut self, query: &Query<'_>) -> String {
        self.candidates(query).expect("there are candidates").sets.join(" | ")
    }
    fn rejection(&mut self, query: &Query<'_>) -> TopologyReason {
        self.candidates(query).expect_err("there are no candidates")
    }
    /// The domain named in a rejection, the pods it holds, and the pods requested.
    fn too_small(&mut self, query: &Query<'_>) -> (String, Option<u32>, u32) {
        match self.rejection(query) {
            TopologyReason::TooSmall { domain, pods, wanted, .. } => (domain, pods, wanted),
            reason @ (TopologyReason::Unknown | TopologyReason::BadLevel) => panic!("refused for {reason:?}"),
        }
    }
}

/// A request by names; empty texts mean none, or all nodes.
#[derive(Clone, Copy, Default)]
struct Query<'a> {
    required: &'a str,
    preferred: &'a str,
    pods: &'a [PodIdx],
    nodes: &'a str,
    held: &'a str,
}

#[derive(Debug, PartialEq)]
struct Sets {
    sets: Vec<String>,
    scores: Vec<Option<f64>>,
}

fn require<'a>(required: &'a str, pods: &'a [PodIdx]) -> Query<'a> {
    Query { required, pods, ..Query::default() }
}
fn prefer<'a>(preferred: &'a str, pods: &'a [PodIdx]) -> Query<'a> {
    Query { preferred, pods, ..Query::default() }
}

/// Two zones of two racks of two nodes with four GPUs each.
fn two_zones() -> TestCluster {
    let mut fixture = TestCluster::new(&["zone", "rack"]);
    for (i, place) in ["a.1", "a.2", "b.1", "b.2"].iter().enumerate() {
        let (zone, rack) = place.split_once('.').expect("written above");
        for k in 0..2 {
            fixture.node(&format!("n{i}{k}"), &format!("zone={zone} rack={rack}"), 4);
        }
    }
    fixture
}

#[test]
fn only_nodes_with_every_level_label_take_part() {
    let mut fixture = TestCluster::new(&["zone", "rack"]);
    fixture.node("n1", "zone=a rack=1", 1);
    fixture.node("n2", "zone=a", 1);
    fixture.node("n3", "rack=1", 1);
    fixture.node("n4", "rack=1 zone=b", 1);
    fixture.refresh();
    let ids: Vec<_> = fixture.topology().domains().map(|(_, d)| (d.depth, &*d.id, d.nodes.len())).collect();
    assert_eq!(ids, [(0, "root", 2), (1, "a", 1), (1, "b", 1), (2, "a.1", 1), (2, "b.1", 1)]);
    assert_eq!(fixture.topology().innermost(fixture.find("n2")), None);
}

#[test]
fn domains_follow_labels_nodes_and_topologies() {
    let mut fixture = two_zones();
    fixture.refresh();
    assert_eq!(fixture.topology().domains().count(), 7);
    fixture.node("n00", "zone=c rack=1", 4);
    fixture.refresh();
    assert_eq!(fixture.topology().domains().count(), 9);
    fixture
        .cluster
        .apply(Delta::Topology(TopologyInput { name: TOPOLOGY.into(), levels: vec!["zone".into()] }));
    fixture.refresh();
    let ids: Vec<_> = fixture.topology().domains().map(|(_, d)| &*d.id).collect();
    assert_eq!(ids, ["root", "a", "b", "c"]);
    fixture.cluster.apply(Delta::TopologyGone(TOPOLOGY.into()));
    let pods = fixture.pending(1, &gpus(1));
    assert_eq!(fixture.rejection(&require("zone", &pods)), TopologyReason::Unknown);
}

#[test]
fn label_that_no_node_has_is_named() {
    let measured = |levels: &[&str], nodes: &[(&str, &str)]| {
        let mut fixture = TestCluster::new(levels);
        for (name, labels) in nodes {
            fixture.node(name, labels, 4);
        }
        let pods = fixture.pending(1, &gpus(1));
        let query = require("zone", &pods);
        let mut refusal = fixture.rejection(&query);
        fixture.measure(&query, &mut refusal);
        match refusal {
            TopologyReason::TooSmall { measured, .. } => measured,
            reason @ (TopologyReason::Unknown | TopologyReason::BadLevel) => panic!("refused for {reason:?}"),
        }
    };
    let nodes = [("n1", "zone=a"), ("n2", "zone=b")];
    assert_eq!(measured(&["zone", "rack"], &nodes), Measured::Unlabelled("rack".into()));
    let apart = [("n1", "zone=a"), ("n2", "rack=b")];
    assert_eq!(measured(&["zone", "rack"], &apart), Measured::Unlabelled(String::new()));
}

#[test]
fn a_dot_inside_a_value_does_not_join_two_domains() {
    let mut fixture = TestCluster::new(&["zone", "rack"]);
    fixture.node("n1", "zone=a.b rack=c", 1);
    fixture.node("n2", "zone=a rack=b.c", 1);
    let pods = fixture.pending(1, &gpus(1));
    assert_eq!(fixture.sets(&require("rack", &pods)), "n2 | n1");
}

#[test]
fn without_a_usable_level_there_are_no_candidates() {
    let mut fixture = two_zones();
    let pods = fixture.pending(1, &gpus(1));
    for (required, preferred) in [("", ""), ("row", ""), ("", "row"), ("zone", "row"), ("rack", "zone")] {
        let query = Query { required, preferred, pods: &pods, ..Query::default() };
        assert_eq!(fixture.rejection(&query), TopologyReason::BadLevel, "{required:?} {preferred:?}");
    }
}

#[test]
fn a_step_without_pods_keeps_its_nodes() {
    let mut fixture = two_zones();
    let query = Query { required: "zone", nodes: "n00 n20", ..Query::default() };
    assert_eq!(fixture.candidates(&query).map(|a| a.sets), Ok(vec!["n00 n20".to_owned()]));
}

#[test]
fn the_tightest_fitting_domain_comes_first_then_the_first_id() {
    let mut fixture = two_zones();
    fixture.running("n30", gpus(3));
    let pods = fixture.pending(3, &gpus(1));
    assert_eq!(fixture.sets(&require("rack", &pods)), "n30 n31 | n20 n21 | n00 n01 | n10 n11");
    assert_eq!(fixture.sets(&require("zone", &pods)), "n20 n21 n30 n31 | n00 n01 n10 n11");
}

#[test]
fn a_tighter_parent_comes_before_a_tighter_domain() {
    let mut fixture = TestCluster::new(&["spine", "rack"]);
    for (node, spine, gpus) in [("n1", "s1", 1), ("n2", "s1", 1), ("n3", "s1", 1), ("n4", "s2", 2)] {
        fixture.node(node, &format!("spine={spine} rack={node}"), gpus);
    }
    let pods = fixture.pending(1, &gpus(1));
    assert_eq!(fixture.sets(&prefer("rack", &pods)), "n4 | n1 | n2 | n3 | n4 | n1 n2 n3 | n1 n2 n3 n4");
}

#[test]
fn candidates_go_from_the_preferred_level_up_to_the_required_one() {
    let mut fixture = two_zones();
    fixture.running("n00", gpus(4));
    fixture.running("n10", gpus(2));
    let pods = fixture.pending(7, &gpus(1));
    let query = Query { required: "zone", ..prefer("rack", &pods) };
    // Rack a.1 holds four and rack a.2 six, so that no rack of zone a fits.
    assert_eq!(fixture.sets(&query), "n20 n21 | n30 n31 | n00 n01 n10 n11 | n20 n21 n30 n31");
    let everywhere = "n00 n01 n10 n11 n20 n21 n30 n31";
    let query = prefer("rack", &pods);
    let expected = format!("n20 n21 | n30 n31 | n00 n01 n10 n11 | n20 n21 n30 n31 | {everywhere}");
    assert_eq!(fixture.sets(&query), expected);
}

#[test]
fn an_unmet_preference_falls_back_to_a_wider_domain() {
    let mut fixture = two_zones();
    let pods = fixture.pending(9, &gpus(1));
    assert_eq!(
        fixture.sets(&Query { required: "zone", ..prefer("rack", &pods) }),
        "n00 n01 n10 n11 | n20 n21 n30 n31"
    );
}

#[test]
fn the_emptiest_domain_scores_highest_and_the_last_id_among_equals() {
    let mut fixture = TestCluster::new(&["zone", "rack"]);
    for (node, zone, gpus) in [("n1", "a", 2), ("n2", "a", 1), ("n3", "a", 1), ("n4", "a", 1)] {
        fixture.node(node, &format!("zone={zone} rack={node}"), gpus);
    }
    for node in ["n5", "n6", "n7"] {
        fixture.node(node, &format!("zone=b rack={node}"), 2);
    }
    let pods = fixture.pending(3, &gpus(1));
    let query = Query { required: "zone", ..prefer("rack", &pods) };
    let sets = fixture.candidates(&query).expect("both zones fit");
    assert_eq!(sets.sets, ["n1 n2 n3 n4", "n5 n6 n7"]);
    // In order: n2 n3 n4 n1 (the tighter zone a), then n5 n6 n7.
    let steps = [5.0, 1.0, 2.0, 4.0, 7.0, 8.0, 10.0];
    assert_eq!(sets.scores, steps.map(|step| Some(step * 100_000.0)));
    assert_eq!(fixture.candidates(&require("zone", &pods)).map(|a| a.scores), Ok(vec![]));
}

#[test]
fn nodes_outside_the_start_domain_have_no_score() {
    let mut fixture = two_zones();
    fixture.node("n4", "zone=b", 4);
    let pods = fixture.pending(1, &gpus(1));
    let query = Query { nodes: "n20 n30 n4", ..prefer("rack", &pods) };
    let sets = fixture.candidates(&query).expect("zone b fits");
    assert_eq!(sets.sets, ["n20", "n30", "n20 n30"]);
    let (low, high) = (Some(500_000.0), Some(1_000_000.0));
    assert_eq!(sets.scores, [None, None, None, None, low, low, high, high, None]);
}

#[test]
fn sets_hold_usable_nodes_only_and_empty_ones_are_left_out() {
    let mut fixture = two_zones();
    let pods = fixture.pending(1, &gpus(1));
    let query = Query { nodes: "n00 n11 n20", ..require("rack", &pods) };
    assert_eq!(fixture.sets(&query), "n00 | n11 | n20");
    let query = Query { nodes: "n01 n20", required: "zone", ..prefer("rack", &pods) };
    assert_eq!(fixture.sets(&query), "n01 | n20 | n01 | n20");
}

#[test]
fn a_required_level_works_when_one_finer_domain_is_left() {
    let mut fixture = TestCluster::new(&["rack", "host"]);
    fixture.node("n1", "rack=r1 host=n1", 2);
    fixture.node("n2", "rack=r2 host=n2", 2);
    let pods = fixture.pending(2, &gpus(1));
    for preferred in ["", "rack", "host"] {
        let query = Query { nodes: "n1", preferred, ..require("rack", &pods) };
        assert_eq!(fixture.sets(&query).split(" | ").next(), Some("n1"), "{preferred:?}");
    }
    let mut alone = TestCluster::new(&["rack", "host"]);
    alone.node("n1", "rack=r1 host=n1", 2);
    let pods = alone.pending(2, &gpus(1));
    assert_eq!(alone.sets(&require("rack", &pods)), "n1");
}

#[test]
fn pods_that_have_a_place_bind_the_others_to_their_domain() {
    let mut fixture = two_zones();
    fixture.running("n00", gpus(4));
    let pods = fixture.pending(2, &gpus(1));
    let query = Query { held: "n30", ..require("rack", &pods) };
    assert_eq!(fixture.sets(&query), "n30 n31");
    let query = Query { held: "n30 n00", preferred: "rack", ..require("zone", &pods) };
    assert_eq!(
        fixture.sets(&query),
        "n00 n01 | n10 n11 | n20 n21 | n30 n31 | n00 n01 n10 n11 | n20 n21 n30 n31"
    );
    let query = Query { held: "n00", nodes: "n20 n21", ..require("rack", &pods) };
    assert_eq!(fixture.too_small(&query), ("a.1".into(), Some(0), 2));
    let many = fixture.pending(5, &gpus(1));
    let query = Query { held: "n00", ..require("rack", &many) };
    assert_eq!(fixture.too_small(&query), ("a.1".into(), Some(4), 5));
    // A preference is not required.
    let query = Query { held: "n30", ..prefer("zone", &pods) };
    assert_eq!(fixture.sets(&query), "n00 n01 n10 n11 | n20 n21 n30 n31 | n00 n01 n10 n11 n20 n21 n30 n31");
}

#[test]
fn rejection_names_the_domain_with_the_most_free_capacity() {
    let mut fixture = two_zones();
    fixture.running("n00", gpus(3));
    fixture.running("n20", gpus(1));
    let pods = fixture.pending(9, &gpus(1));
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("a.2".into(), Some(8), 9));
    let pods = fixture.pending(30, &gpus(1));
    assert_eq!(fixture.too_small(&require("zone", &pods)), ("b".into(), Some(15), 30));
    assert_eq!(fixture.too_small(&prefer("rack", &pods)), ("root".into(), Some(28), 30));
    fixture.node("n9", "", 4);
    let query = Query { nodes: "n9", ..require("rack", &pods) };
    assert_eq!(fixture.too_small(&query), ("root".into(), Some(0), 30));
}

#[test]
fn pods_of_one_kind_are_counted_by_the_largest_on_each_node() {
    let mut fixture = two_zones();
    let mut pods = fixture.pending(3, &gpus(3));
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("a.1".into(), Some(2), 3));
    pods.truncate(1);
    pods.extend(fixture.pending(2, &gpus(1)));
    // Five GPUs are requested of a rack's eight, but each node fits one pod of three GPUs.
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("a.1".into(), Some(2), 3));
}

#[test]
fn pods_of_several_kinds_are_measured_by_their_sum() {
    let mut fixture = two_zones();
    let mut pods = fixture.pending(2, &gpus(3));
    pods.extend(fixture.pending(1, &cores(2)));
    assert_eq!(fixture.sets(&require("rack", &pods)), "n00 n01 | n10 n11 | n20 n21 | n30 n31");
    pods.extend(fixture.pending(1, &gpus(3)));
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("a.1".into(), None, 4));
    // Nothing of what is requested is free.
    let mut none = TestCluster::new(&["rack"]);
    none.node("n1", "rack=r1", 0);
    let mut pods = none.pending(1, &cores(1));
    pods.extend(none.pending(1, &gpus(1)));
    assert_eq!(none.too_small(&require("rack", &pods)), ("r1".into(), None, 2));
}

#[test]
fn releasing_capacity_counts() {
    let mut fixture = two_zones();
    for node in ["n00", "n01", "n10", "n11"] {
        fixture.running(node, gpus(4));
    }
    fixture.placed("n20", PodPhase::Releasing(Timestamp(0)), gpus(4), &[]);
    fixture.running("n30", gpus(1));
    let pods = fixture.pending(8, &gpus(1));
    assert_eq!(fixture.sets(&require("rack", &pods)), "n20 n21");
}

#[test]
fn free_memory_of_shared_gpus_counts_for_requests_below_one_gpu() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    fixture.node("n2", "rack=r2", 2);
    fixture.placed("n1", PodPhase::Running, share(30, 1), &["g1"]);
    fixture.placed("n2", PodPhase::Running, share(80, 1), &["g2"]);
    fixture.placed("n2", PodPhase::Running, share(80, 1), &["g3"]);
    let pods = fixture.pending(2, &share(30, 1));
    assert_eq!(fixture.sets(&require("rack", &pods)), "n1");
    let one = fixture.pending(1, &share(30, 1));
    // Twenty hundredths on each of two GPUs count as forty.
    assert_eq!(fixture.sets(&require("rack", &one)), "n1 | n2");
    let wide = fixture.pending(1, &share(50, 2));
    assert_eq!(fixture.too_small(&require("rack", &wide)).1, Some(0));
}

#[test]
fn shared_gpu_with_only_releasing_pods_counts_once() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    fixture.placed("n1", PodPhase::Releasing(Timestamp(0)), share(30, 1), &["g1"]);
    let pods = fixture.pending(3, &share(50, 1));
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("r1".into(), Some(2), 3));
}

#[test]
fn gpu_memory_requests_are_not_measured_per_domain() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    let memory = SpecInput { gpu: GpuRequest::Memory { mib: 90, devices: 1 }, ..cores(32) };
    let pods = fixture.pending(2, &memory);
    assert_eq!(fixture.sets(&require("rack", &pods)), "n1");
    let pods = fixture.pending(3, &memory);
    assert_eq!(fixture.too_small(&require("rack", &pods)).1, Some(2));
}

#[test]
fn device_class_resources_are_not_measured_per_domain() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    let class =
        DeviceClassInput { extended_resource: Some("example.com/nic".into()), ..DeviceClassInput::default() };
    fixture.cluster.apply(Delta::DeviceClass(DeviceClassInput { name: "nics".into(), ..class }));
    let mut spec = cores(1);
    spec.request.push(("example.com/nic".into(), 1000));
    let pods = fixture.pending(64, &spec);
    assert_eq!(fixture.sets(&require("rack", &pods)), "n1");
    let mixed = [&pods[..1], &fixture.pending(1, &cores(1))].concat();
    assert_eq!(fixture.sets(&require("rack", &mixed)), "n1");
    fixture.cluster.apply(Delta::DeviceClassGone("nics".into()));
    assert_eq!(fixture.too_small(&require("rack", &pods)).1, Some(0));
}

#[test]
fn pods_that_request_only_a_slot_fit_everywhere() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    fixture.running("n1", cores(64));
    let pods = fixture.pending(200, &SpecInput::default());
    assert_eq!(fixture.sets(&require("rack", &pods)), "n1");
}

#[test]
fn overcommitted_node_accepts_no_pod() {
    let mut fixture = TestCluster::new(&["rack"]);
    fixture.node("n1", "rack=r1", 1);
    fixture.node("n2", "rack=r1", 0);
    fixture.running("n1", gpus(1));
    fixture.running("n1", gpus(1));
    let pods = fixture.pending(100, &cores(1));
    assert_eq!(fixture.too_small(&require("rack", &pods)), ("r1".into(), Some(64), 100));
}

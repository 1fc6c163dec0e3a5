//! Small made-up clusters, one rule at a time; `tests/laws.rs` checks all rules together on random ones.

mod laws;

use super::*;
use crate::cluster::Cluster;
use crate::cluster::group::Constraint;
use crate::cluster::pod::Status;
use crate::delta::Delta;
use crate::ids::PodIdx;
use crate::input::{GpuMemory, GpuRequest, Key, NodeInput, PodInput, PodPhase, SpecInput, WHOLE_GPU};
use crate::node_set::NodeSet;
use crate::verdict::TopologyReason;
use kai_units::Timestamp;

const TOPOLOGY: &str = "place";

/// A cluster with one topology.
struct World {
    cluster: Cluster,
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

impl World {
    fn new(levels: &[&str]) -> Self {
        let mut world = Self { cluster: Cluster::new(), pods: 0 };
        let levels = levels.iter().map(ToString::to_string).collect();
        world.cluster.apply(Delta::Topology(TopologyInput { name: TOPOLOGY.into(), levels }));
        world
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
        (0..count).map(|_| self.pod(PodInput { spec: spec.clone(), ..PodInput::default() })).collect()
    }
    /// A pod on a node, on the named shared GPUs.
    fn placed(&mut self, node: &str, phase: PodPhase, spec: SpecInput, gpu_groups: &[&str]) {
        let gpu_groups = gpu_groups.iter().map(ToString::to_string).collect();
        self.pod(PodInput { node: Some(node.into()), phase, spec, gpu_groups, ..PodInput::default() });
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
        let names = set.nodes(&self.cluster).iter().map(|node| self.cluster.text(self.cluster.nodes[*node].name));
        names.collect::<Vec<_>>().join(" ")
    }
    fn topology(&self) -> &Topology {
        let name = self.cluster.names.find(TOPOLOGY).expect("it was set");
        self.cluster.topologies.get(name).expect("it was set")
    }

    /// Derives ranks, ledgers and domains.
    fn settle(&mut self) {
        let cluster = &mut self.cluster;
        let mut order: Vec<_> = cluster.nodes.indices().filter(|node| cluster.nodes[*node].present).collect();
        order.sort_by_key(|node| cluster.text(cluster.nodes[*node].name).to_owned());
        for (rank, &index) in order.iter().enumerate() {
            let mut node = cluster.nodes[index].clone();
            node.rank = rank as u32;
            node.reset_ledger();
            for &pod in &node.pods.clone() {
                let status = Status::of_phase(cluster.pods[pod].phase, Timestamp(i64::MIN));
                node.add(&cluster.load(pod, &cluster.pods[pod].told_groups), status);
            }
            cluster.nodes[index] = node;
        }
        cluster.nodes_by_rank = order;
        cluster.topologies.rebuild(&cluster.nodes, &cluster.nodes_by_rank, &cluster.names);
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Result<Answer, TopologyReason> {
        self.settle();
        let mut level = |name: &str| (!name.is_empty()).then(|| self.cluster.names.intern(name));
        let (required, preferred) = (level(ask.required), level(ask.preferred));
        let topology = self.cluster.names.intern(TOPOLOGY);
        let nodes = if ask.nodes.is_empty() { NodeSet::All } else { self.set(ask.nodes) };
        let held: Vec<_> = ask.held.split_whitespace().map(|node| self.find(node)).collect();
        let constraint = Constraint { topology, required, preferred };
        let request = Request { constraint: &constraint, nodes: &nodes, pods: ask.pods, held: &held };
        let found = candidates(&self.cluster, &request)?;
        let score = |node: &NodeIdx| found.scores.as_ref().map(|scores| scores.score(*node));
        Ok(Answer {
            sets: found.sets.iter().map(|set| self.names(set)).collect(),
            scores: self.cluster.nodes_by_rank.iter().filter_map(score).collect(),
        })
    }
    /// The sets in order, separated by ` | `.
    fn sets(&mut self, ask: &Ask<'_>) -> String {
        self.ask(ask).expect("there are candidates").sets.join(" | ")
    }
    fn refusal(&mut self, ask: &Ask<'_>) -> TopologyReason {
        self.ask(ask).expect_err("there are no candidates")
    }
    /// The domain named in a refusal, the pods it holds, and the pods wanted.
    fn too_small(&mut self, ask: &Ask<'_>) -> (String, Option<u32>, u32) {
        match self.refusal(ask) {
            TopologyReason::TooSmall { domain, pods, wanted } => (domain, pods, wanted),
            reason @ (TopologyReason::Unknown | TopologyReason::BadLevel) => panic!("refused for {reason:?}"),
        }
    }
}

/// A request by names; empty texts mean none, or all nodes.
#[derive(Clone, Copy, Default)]
struct Ask<'a> {
    required: &'a str,
    preferred: &'a str,
    pods: &'a [PodIdx],
    nodes: &'a str,
    held: &'a str,
}

#[derive(Debug, PartialEq)]
struct Answer {
    sets: Vec<String>,
    scores: Vec<Option<f64>>,
}

fn require<'a>(required: &'a str, pods: &'a [PodIdx]) -> Ask<'a> {
    Ask { required, pods, ..Ask::default() }
}
fn prefer<'a>(preferred: &'a str, pods: &'a [PodIdx]) -> Ask<'a> {
    Ask { preferred, pods, ..Ask::default() }
}

/// Two zones of two racks of two nodes with four GPUs each.
fn two_zones() -> World {
    let mut world = World::new(&["zone", "rack"]);
    for (i, place) in ["a.1", "a.2", "b.1", "b.2"].iter().enumerate() {
        let (zone, rack) = place.split_once('.').expect("written above");
        for k in 0..2 {
            world.node(&format!("n{i}{k}"), &format!("zone={zone} rack={rack}"), 4);
        }
    }
    world
}

#[test]
fn only_nodes_with_every_level_label_take_part() {
    let mut world = World::new(&["zone", "rack"]);
    world.node("n1", "zone=a rack=1", 1);
    world.node("n2", "zone=a", 1);
    world.node("n3", "rack=1", 1);
    world.node("n4", "rack=1 zone=b", 1);
    world.settle();
    let ids: Vec<_> = world.topology().domains().map(|(_, d)| (d.depth, &*d.id, d.nodes.len())).collect();
    assert_eq!(ids, [(0, "root", 2), (1, "a", 1), (1, "b", 1), (2, "a.1", 1), (2, "b.1", 1)]);
    assert_eq!(world.topology().innermost(world.find("n2")), None);
}

#[test]
fn domains_follow_labels_nodes_and_topologies() {
    let mut world = two_zones();
    world.settle();
    assert_eq!(world.topology().domains().count(), 7);
    world.node("n00", "zone=c rack=1", 4);
    world.settle();
    assert_eq!(world.topology().domains().count(), 9);
    world.cluster.apply(Delta::Topology(TopologyInput { name: TOPOLOGY.into(), levels: vec!["zone".into()] }));
    world.settle();
    let ids: Vec<_> = world.topology().domains().map(|(_, d)| &*d.id).collect();
    assert_eq!(ids, ["root", "a", "b", "c"]);
    world.cluster.apply(Delta::TopologyGone(TOPOLOGY.into()));
    let pods = world.pending(1, &gpus(1));
    assert_eq!(world.refusal(&require("zone", &pods)), TopologyReason::Unknown);
}

#[test]
fn a_dot_inside_a_value_does_not_join_two_domains() {
    let mut world = World::new(&["zone", "rack"]);
    world.node("n1", "zone=a.b rack=c", 1);
    world.node("n2", "zone=a rack=b.c", 1);
    let pods = world.pending(1, &gpus(1));
    assert_eq!(world.sets(&require("rack", &pods)), "n2 | n1");
}

#[test]
fn without_a_usable_level_there_is_no_answer() {
    let mut world = two_zones();
    let pods = world.pending(1, &gpus(1));
    for (required, preferred) in [("", ""), ("row", ""), ("", "row"), ("zone", "row"), ("rack", "zone")] {
        let ask = Ask { required, preferred, pods: &pods, ..Ask::default() };
        assert_eq!(world.refusal(&ask), TopologyReason::BadLevel, "{required:?} {preferred:?}");
    }
}

#[test]
fn a_step_without_pods_keeps_its_nodes() {
    let mut world = two_zones();
    let ask = Ask { required: "zone", nodes: "n00 n20", ..Ask::default() };
    assert_eq!(world.ask(&ask).map(|a| a.sets), Ok(vec!["n00 n20".to_owned()]));
}

#[test]
fn the_tightest_fitting_domain_comes_first_then_the_first_id() {
    let mut world = two_zones();
    world.running("n30", gpus(3));
    let pods = world.pending(3, &gpus(1));
    assert_eq!(world.sets(&require("rack", &pods)), "n30 n31 | n00 n01 | n10 n11 | n20 n21".replace("n30 n31 | n00 n01 | n10 n11 | n20 n21", "n00 n01 | n10 n11 | n30 n31 | n20 n21"));
    assert_eq!(world.sets(&require("zone", &pods)), "n20 n21 n30 n31 | n00 n01 n10 n11");
}

//! Placement with the example plugin.

use kai_engine::input::{
    GpuRequest, GroupInput, Key, NodeInput, PodInput, QueueInput, QueueShare, SpecInput, WHOLE_GPU,
};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig, Policy};
use kai_engine::verdict::{NodeRejection, Verdict};
use kai_engine::{ClusterState, Cycle, Decision, Delta, Outcome, plan};
use kai_units::Timestamp;
use std::sync::Arc;
use team_nodes_plugin::TeamNodes;

fn node(name: &str, team: Option<&str>) -> Delta {
    let labels = team.map(|t| ("team".to_owned(), t.to_owned())).into_iter().collect();
    let allocatable = [("cpu", 64_000), ("memory", 1 << 38), ("gpu", 4 * WHOLE_GPU), ("pods", 100)];
    let allocatable = allocatable.map(|(n, a)| (n.to_owned(), a)).to_vec();
    Delta::Node(Box::new(NodeInput { name: name.into(), labels, allocatable, ..NodeInput::default() }))
}

fn queue(name: &str) -> Delta {
    let share = QueueShare { quota: None, limit: None, weight: 1.0 };
    let queue =
        QueueInput { name: name.into(), cpu: share, memory: share, gpu: share, ..QueueInput::default() };
    Delta::Queue(Box::new(queue))
}

fn job(name: &str, queue: &str, gpus: u32) -> [Delta; 2] {
    let group = GroupInput { key: Key::new("default", name), queue: queue.into(), ..GroupInput::default() };
    let request = vec![("cpu".to_owned(), 1000), ("gpu".to_owned(), i64::from(gpus) * WHOLE_GPU)];
    let spec = SpecInput { request, gpu: GpuRequest::Whole(gpus), ..SpecInput::default() };
    let pod = PodInput {
        key: Key::new("default", format!("{name}-0")),
        uid: name.into(),
        group: Some(name.into()),
        ours: true,
        spec: spec.into(),
        ..PodInput::default()
    };
    [Delta::Group(Box::new(group)), Delta::Pod(Box::new(pod))]
}

fn cycle(deltas: impl IntoIterator<Item = Delta>) -> Outcome {
    let mut cluster = ClusterState::new();
    deltas.into_iter().for_each(|delta| cluster.apply(delta));
    let mut config = Config { actions: vec!["allocate".into()], ..Config::default() };
    config.plugins.push(PluginConfig { name: "teamnodes".into(), ..PluginConfig::default() });
    let plugins = PluginSet::builtin().with(Arc::new(TeamNodes));
    let policy = Policy::resolve(&config, &Params::default(), &plugins);
    assert_eq!(policy.warnings, Vec::<String>::new());
    plan(&mut cluster, &policy, Cycle { now: Timestamp(0), seed: 0 })
}

fn bound(outcome: &Outcome) -> Vec<(&str, &str)> {
    outcome
        .decisions
        .iter()
        .filter_map(|d| match d {
            Decision::Bind(bind) => Some((bind.pod.name.as_str(), bind.node.as_str())),
            Decision::Pipeline { .. } | Decision::Evict { .. } => None,
        })
        .collect()
}

#[test]
fn pods_of_a_team_are_placed_on_its_nodes_first() {
    let mut deltas = vec![queue("vision"), node("a-shared", None), node("b-vision", Some("vision"))];
    deltas.extend(job("train", "vision", 1));
    assert_eq!(bound(&cycle(deltas)), [("train-0", "b-vision")]);
}

#[test]
fn nodes_of_another_team_are_rejected_with_a_reason() {
    let mut deltas = vec![queue("speech"), node("n", Some("vision"))];
    deltas.extend(job("train", "speech", 1));
    let outcome = cycle(deltas);
    assert_eq!(bound(&outcome), []);
    let Verdict::NoNode(fit) = &outcome.verdicts[0].leading else { panic!("{:?}", outcome.verdicts) };
    assert_eq!(fit.reasons, [(NodeRejection::Plugin("the node belongs to team `vision`".into()), 1)]);
}

//! Simulations of small clusters.

use super::*;
use crate::options::{UsageOptions, Window};
use crate::script::{AfterEviction, PodScript};
use kai_engine::input::{
    GpuRequest, GroupInput, Key, NodeInput, PodInput, PodPhase, QueueInput, QueueShare, SpecInput, WHOLE_GPU,
};
use kai_engine::outcome::EvictionReason;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig};

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

fn secs(seconds: i64) -> Span {
    Span::from_secs(seconds)
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn node(name: &str, gpus: i64) -> Delta {
    let allocatable = [("cpu", 64_000), ("memory", 1 << 40), ("pods", 110), ("gpu", gpus * WHOLE_GPU)];
    Delta::Node(Box::new(NodeInput {
        name: name.to_owned(),
        allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount)).to_vec(),
        ..NodeInput::default()
    }))
}

fn queue(name: &str, quota: i64) -> Delta {
    let free = QueueShare { quota: None, limit: None, weight: 1.0 };
    Delta::Queue(Box::new(QueueInput {
        name: name.to_owned(),
        cpu: free,
        memory: free,
        gpu: QueueShare { quota: Some(quota * WHOLE_GPU), limit: None, weight: 1.0 },
        ..QueueInput::default()
    }))
}

fn group(name: &str, queue: &str, min: u32) -> Delta {
    Delta::Group(Box::new(GroupInput {
        key: key(name),
        queue: queue.to_owned(),
        priority: 50,
        preemptible: true,
        min_member: Some(min),
        ..GroupInput::default()
    }))
}

fn pod(name: &str, group: &str, gpus: u32) -> PodInput {
    PodInput {
        key: key(name),
        uid: name.to_owned(),
        group: Some(group.to_owned()),
        ours: true,
        spec: SpecInput {
            request: vec![("cpu".to_owned(), 1_000), ("gpu".to_owned(), i64::from(gpus) * WHOLE_GPU)],
            gpu: GpuRequest::Whole(gpus),
            ..SpecInput::default()
        }
        .into(),
        ..PodInput::default()
    }
}

fn of_pod(pod: PodInput) -> Delta {
    Delta::Pod(Box::new(pod))
}

fn policy() -> Policy {
    let plugin = |name: &str| PluginConfig { name: name.to_owned(), ..PluginConfig::default() };
    let config = Config {
        actions: vec!["allocate".to_owned()],
        plugins: ["predicates", "proportion", "priority", "nodeplacement"].map(plugin).to_vec(),
        ..Config::default()
    };
    Policy::resolve(&config, &Params::default(), &PluginSet::builtin())
}

/// KAI's default actions and plugins.
fn evicting_policy() -> Policy {
    Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin())
}

/// A queue that uses all four GPUs, and one whose group is submitted later and is entitled to half of them.
fn two_that_share() -> (Vec<Delta>, Script) {
    let mut deltas = vec![node("n", 4), queue("a", 2), queue("b", 2), group("a", "a", 1), group("b", "b", 2)];
    deltas.extend((0..4).map(|at| of_pod(pod(&format!("a-{at}"), "a", 1))));
    deltas.extend((0..2).map(|at| of_pod(pod(&format!("b-{at}"), "b", 1))));
    let mut script = script(&[("a-0", runs(300)), ("b-0", runs(60)), ("b-1", runs(90))]);
    script.groups.insert(key("b"), secs(40));
    (deltas, script)
}

fn runs(span: i64) -> PodScript {
    PodScript { runs_for: Some(secs(span)), ..PodScript::default() }
}

fn script(pods: &[(&str, PodScript)]) -> Script {
    Script { pods: pods.iter().map(|(name, script)| (key(name), *script)).collect(), ..Script::default() }
}

fn run(deltas: Vec<Delta>, script: &Script, options: Options, until: i64) -> Report {
    let mut simulation = Simulation::new(deltas, script, policy(), options);
    while simulation.step(at(until)) {}
    let end = (!simulation.is_settled()).then_some(at(until));
    simulation.finish(end)
}

/// One node of two GPUs, and two gangs of one pod that request both.
fn two_in_a_row() -> Vec<Delta> {
    vec![
        node("n", 2),
        queue("q", 2),
        group("a", "q", 1),
        group("b", "q", 1),
        of_pod(pod("a-0", "a", 2)),
        of_pod(pod("b-0", "b", 2)),
    ]
}

#[test]
fn second_gang_starts_when_the_first_has_completed() {
    let script = script(&[("a-0", runs(100)), ("b-0", runs(50))]);
    let report = run(two_in_a_row(), &script, Options::default(), 10_000);
    let times = |name: &str| {
        let group = report.groups.iter().find(|group| group.group == key(name)).expect("the group had pods");
        (group.started, group.finished)
    };
    assert_eq!(times("a"), (Some(at(1)), Some(at(101))));
    assert_eq!(times("b"), (Some(at(102)), Some(at(152))));
    assert!(report.settled);
    assert_eq!(report.end, at(152));
    assert_eq!(report.waits.max, secs(102));
    assert_eq!(report.waits.started, 2);
    assert!(report.pending.is_empty());
    // Of 151 cycles only a few can change anything.
    assert!(report.planned < 10, "{}", report.planned);
}

#[test]
fn utilisation_is_the_mean_allocation() {
    let script = script(&[("a-0", runs(100)), ("b-0", runs(50))]);
    let mut simulation = Simulation::new(two_in_a_row(), &script, policy(), Options::default());
    while simulation.step(at(1_000)) {}
    let report = simulation.finish(Some(at(300)));
    assert_eq!(report.capacity[2] as i64, 2_000_000);
    // Both GPUs for the 150 seconds of work and a second of starting each, of 300.
    let share = report.held[2] / report.capacity[2];
    assert!((share - 0.5).abs() < 0.01, "{share}");
    assert_eq!(report.queues[0].held_most[2], 2_000_000);
    assert_eq!(report.queues[0].held_least[2], 0);
}

#[test]
fn group_behind_an_endless_pod_is_pending_with_a_verdict() {
    let report = run(two_in_a_row(), &Script::default(), Options::default(), 1_000);
    assert_eq!((report.waits.started, report.waits.waiting), (1, 1));
    assert_eq!(report.pending.len(), 1);
    assert_eq!(report.pending[0].group, key("b"));
    assert!(report.settled);
    assert_eq!(report.samples.len(), 1);
}

#[test]
fn groups_and_pods_are_submitted_at_the_scripted_time() {
    let mut script = script(&[("a-0", runs(10))]);
    script.groups.insert(key("a"), secs(60));
    script.pods.insert(key("b-0"), PodScript { submitted_after: Some(secs(30)), ..runs(10) });
    let report = run(two_in_a_row(), &script, Options::default(), 1_000);
    let started: Vec<_> = report.groups.iter().map(|g| (g.submitted, g.started)).collect();
    assert_eq!(started, [(at(60), Some(at(61))), (at(30), Some(at(31)))]);
    assert_eq!(report.waits.max, secs(1));
}

#[test]
fn run_time_of_running_pods_counts_from_the_start_of_their_group() {
    let mut deltas = two_in_a_row();
    if let Delta::Group(group) = &mut deltas[2] {
        group.last_start = Some(at(-40));
    }
    if let Delta::Pod(pod) = &mut deltas[4] {
        (pod.phase, pod.node) = (PodPhase::Running, Some("n".to_owned()));
    }
    let report = run(deltas, &script(&[("a-0", runs(100))]), Options::default(), 1_000);
    assert!(report.groups[0].ran_before);
    assert_eq!(report.groups[0].finished, Some(at(60)));
    assert_eq!(report.groups[1].started, Some(at(61)));
    assert_eq!((report.waits.started, report.waits.max), (1, secs(61)));
}

/// An outcome that evicts a pod.
fn eviction(name: &str, uid: &str, action: &'static str) -> Outcome {
    let evict = Decision::Evict {
        pod: key(name),
        uid: uid.to_owned(),
        group: Some(key("a")),
        gang_size: 1,
        preemptor: None,
        action,
        why: Box::new(EvictionReason::Priority { preemptor: 75, victim: 50 }),
    };
    Outcome { decisions: vec![evict], ..Outcome::default() }
}

#[test]
fn evicted_pod_is_recreated_and_runs_its_whole_time() {
    let script = script(&[("a-0", runs(100)), ("b-0", runs(10))]);
    let mut simulation = Simulation::new(two_in_a_row(), &script, policy(), Options::default());
    while simulation.step(at(50)) {}
    simulation.now = at(50);
    let outcome = eviction("a-0", "a-0", "reclaim");
    simulation.record_evictions(&outcome);
    assert!(simulation.cluster.apply_outcome(&outcome, at(50)));
    while simulation.step(at(1_000)) {}
    let report = simulation.finish(None);
    let a = &report.groups[0];
    assert_eq!(a.evictions, 1);
    assert_eq!(report.queues[0].evictions, 1);
    assert_eq!(report.evictions[0].queue.as_deref(), Some("q"));
    // Terminated and recreated at 51; it runs its whole time again.
    let finished = a.finished.expect("it completes");
    assert!(finished >= at(152), "{finished:?}");
    assert!(a.waited_again > Span(0));
    assert_eq!(report.groups[1].finished.is_some(), report.settled);
}

#[test]
fn stale_gang_eviction_sets_the_last_eviction() {
    let mut simulation = Simulation::new(two_in_a_row(), &Script::default(), policy(), Options::default());
    while simulation.step(at(5)) {}
    simulation.cluster.apply_outcome(&eviction("a-0", "a-0", "stalegangeviction"), at(5));
    let cluster = &simulation.cluster.cluster;
    let group = cluster.group(&key("a")).expect("the group exists");
    assert_eq!(cluster.groups[group].last_eviction, Some(at(5)));
}

#[test]
fn group_ends_when_its_deleted_pod_is_not_recreated() {
    let stays = PodScript { after_eviction: AfterEviction::Deleted, ..PodScript::default() };
    let script = script(&[("a-0", stays), ("b-0", runs(10))]);
    let mut simulation = Simulation::new(two_in_a_row(), &script, policy(), Options::default());
    while simulation.step(at(50)) {}
    assert!(simulation.cluster.apply_outcome(&eviction("a-0", "a-0", "preempt"), at(50)));
    while simulation.step(at(1_000)) {}
    let report = simulation.finish(None);
    assert_eq!(report.groups[0].finished, Some(at(51)));
    assert!(report.groups[1].finished.is_some());
}

#[test]
fn usage_of_queues_lowers_their_next_share() {
    let deltas = vec![
        node("n", 4),
        queue("a", 0),
        queue("b", 0),
        group("a", "a", 1),
        group("b", "b", 1),
        of_pod(pod("a-0", "a", 3)),
        of_pod(pod("b-0", "b", 3)),
    ];
    let usage =
        UsageOptions { window: Window::Sliding(secs(100)), half_life: Some(secs(20)), fetch_every: secs(5) };
    let options = Options { usage: Some(usage), ..Options::default() };
    let report = run(deltas, &Script::default(), options, 200);
    assert!(!report.settled);
    let share = |sample: &crate::Sample, at: usize| sample.queues[at].fair_share[2];
    let (first, last) = (report.samples.first().expect("samples"), report.samples.last().expect("samples"));
    assert_eq!((share(first, 0), share(first, 1)), (2_000_000, 2_000_000));
    // The running queue has used three quarters, so most of the next division goes to the other.
    let runner = usize::from(last.queues[1].held[2] > 0);
    assert!(share(last, runner) < share(last, 1 - runner), "{last:?}");
}

#[test]
fn same_input_gives_the_same_report() {
    let script = script(&[("a-0", runs(100)), ("b-0", runs(50))]);
    let once = || run(two_in_a_row(), &script, Options::default(), 500);
    assert_eq!(once(), once());
}

#[test]
fn timers_trigger_cycles() {
    let mut deltas = two_in_a_row();
    if let Delta::Group(group) = &mut deltas[3] {
        group.preemption_delay = Some(secs(300));
    }
    let mut simulation = Simulation::new(deltas, &Script::default(), policy(), Options::default());
    while simulation.step(at(299)) {}
    assert!(!simulation.is_settled());
    while simulation.step(at(400)) {}
    assert_eq!(simulation.progress().now, at(300));
    assert!(simulation.is_settled());
}

#[test]
fn empty_cluster_plans_one_cycle() {
    let report = run(vec![queue("q", 1)], &Script::default(), Options::default(), 100);
    assert!(report.settled && report.groups.is_empty());
    assert_eq!(report.planned, 1);
}

#[test]
fn queue_reclaims_its_quota() {
    let (deltas, script) = two_that_share();
    let mut simulation = Simulation::new(deltas, &script, evicting_policy(), Options::default());
    while simulation.step(at(600)) {}
    let report = simulation.finish(None);
    let b = report.groups.iter().find(|group| group.queue == "b").expect("the group had pods");
    // Evicted in one cycle, terminated and bound in the next, running a second later.
    assert_eq!(b.waited(), Some(secs(2)));
    assert_eq!(report.evictions.len(), 2);
    assert!(report.evictions.iter().all(|e| e.action == "reclaim" && e.preemptor == Some(key("b"))));
    assert_eq!(report.queues.iter().map(|queue| queue.evictions).collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn skipped_cycles_change_nothing() {
    let (deltas, script) = two_that_share();
    let run = |skip: bool| {
        let mut simulation = Simulation::new(deltas.clone(), &script, evicting_policy(), Options::default());
        while simulation.step(at(599)) {
            simulation.changed |= !skip;
        }
        simulation.changed = false;
        let planned = simulation.planned;
        let mut report = simulation.finish(Some(at(600)));
        (report.planned, report.hash) = (0, 0);
        (planned, report)
    };
    let ((few, skipping), (all, plain)) = (run(true), run(false));
    assert_eq!(skipping, plain);
    assert!(few < 20 && all == 600, "{few} of {all}");
}

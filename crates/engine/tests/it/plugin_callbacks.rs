//! Session hooks, allocation handlers, annotations and custom actions of plugins, and plugins that panic.

use kai_engine::audit::audit;
use kai_engine::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use kai_engine::outcome::{Annotations, EvictionReason, PluginFailure};
use kai_engine::plugin::{
    Allocation, AllocationHandler, Args, BindAnnotations, CustomAction, Depends, Filter, Plugin, PluginSet,
    QueueCompare, QueueOrder, Registry, Score, Session, SessionHook,
};
use kai_engine::policy::{Config, Params, PluginConfig, Policy};
use kai_engine::verdict::{NodeRejection, Verdict};
use kai_engine::{Cluster, Cycle, Decision, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const CYCLE: Cycle = Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 };

/// What a test plugin registers.
type Register = fn(&Arc<Recorder>, &mut Registry);

/// A plugin that records its calls.
struct TestPlugin {
    name: &'static str,
    register: Register,
    recorder: Arc<Recorder>,
}

impl Plugin for TestPlugin {
    fn name(&self) -> &str {
        self.name
    }
    fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
        (self.register)(&self.recorder, to);
    }
}

/// Every entry in one type.
#[derive(Default)]
struct Recorder {
    name: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn record(&self, call: impl Into<String>) {
        self.calls.lock().expect("no test panics with the lock").push(call.into());
    }
}

impl SessionHook for Recorder {
    fn opened(&self, cluster: &Cluster, cycle: Cycle) {
        assert_eq!(cycle, CYCLE);
        self.record(format!("{} opened with {} nodes", self.name, cluster.nodes.len()));
    }
    fn closed(&self, _: &Cluster, outcome: &Outcome) {
        self.record(format!("{} closed with {} decisions", self.name, outcome.decisions.len()));
    }
}

impl AllocationHandler for Recorder {
    fn allocated(&self, cluster: &Cluster, change: Allocation) {
        let pod = &cluster.pods[change.pod];
        assert_eq!(pod.state.node(), Some(change.node));
        self.record(format!("+{}", cluster.pod_key(change.pod).name));
    }
    fn deallocated(&self, cluster: &Cluster, change: Allocation) {
        self.record(format!("-{}", cluster.pod_key(change.pod).name));
    }
}

impl BindAnnotations for Recorder {
    fn annotations(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> BTreeMap<String, String> {
        let node = cluster.text(cluster.nodes[node].name);
        let own = format!("{}/{}", cluster.pod_key(pod).name, node);
        BTreeMap::from([(self.name.to_owned(), own), ("last".to_owned(), self.name.to_owned())])
    }
}

struct Planned {
    outcome: Outcome,
    calls: Vec<String>,
    policy: Policy,
}

/// Plans a scenario with plugins of these names, which record into one list.
fn planned(text: &str, actions: &[&str], plugins: &[(&'static str, Register)]) -> Planned {
    let scenario = Scenario::parse(text).expect("the scenario is valid");
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut config =
        Config { actions: actions.iter().map(ToString::to_string).collect(), ..Config::default() };
    let mut set = PluginSet::builtin();
    for (name, register) in plugins {
        let recorder = Arc::new(Recorder { name, calls: Arc::clone(&calls) });
        set = set.with(Arc::new(TestPlugin { name, register: *register, recorder }));
        config.plugins.push(PluginConfig { name: (*name).to_owned(), ..PluginConfig::default() });
    }
    let policy = Policy::resolve(&config, &Params::default(), &set);
    assert_eq!(policy.warnings, Vec::<String>::new());
    let mut cluster = scenario.cluster.build();
    let outcome = plan(&mut cluster, &policy, CYCLE);
    assert_eq!(audit(&cluster, &policy, &outcome), Vec::new());
    let calls = calls.lock().expect("no test panics with the lock").clone();
    Planned { outcome, calls, policy }
}

fn bound(outcome: &Outcome) -> Vec<&str> {
    let bindings = outcome.decisions.iter().filter(|decision| matches!(decision, Decision::Bind(_)));
    bindings.map(|decision| decision.pod().name.as_str()).collect()
}

const TWO_JOBS: &str = "nodes n1 gpu=2\nqueues q quota=2\n\
    groups a queue=q pods=1x{gpu=1}\n b queue=q pods=1x{gpu=1}";

#[test]
fn session_hooks_run_in_the_configured_order_around_the_actions() {
    let register: Register = |recorder, to| {
        to.sessions.push(Arc::<Recorder>::clone(recorder));
        to.allocation_handlers.push(Arc::<Recorder>::clone(recorder));
    };
    let Planned { calls, .. } = planned(TWO_JOBS, &["allocate"], &[("one", register), ("two", register)]);
    assert_eq!(
        calls,
        [
            "one opened with 1 nodes",
            "two opened with 1 nodes",
            "+a-0",
            "+a-0",
            "+b-0",
            "+b-0",
            "one closed with 2 decisions",
            "two closed with 2 decisions",
        ]
    );
}

#[test]
fn rolled_back_gang_gives_balanced_allocation_events() {
    let gang = "nodes n1 gpu=2\nqueues q quota=4\ngroups gang queue=q min=3 pods=3x{gpu=1}";
    let register: Register = |recorder, to| to.allocation_handlers.push(Arc::<Recorder>::clone(recorder));
    let Planned { outcome, calls, .. } = planned(gang, &["allocate"], &[("audit", register)]);
    assert!(outcome.decisions.is_empty());
    assert_eq!(calls, ["+gang-0", "+gang-1", "-gang-1", "-gang-0"]);
}

#[test]
fn events_of_a_preemption_add_up_to_its_decisions() {
    let text = "nodes n1 gpu=1\nqueues q quota=1\n\
        groups low queue=q priority=50 pods=1x{gpu=1} running@n1\n high queue=q priority=75 pods=1x{gpu=1}";
    let register: Register = |recorder, to| to.allocation_handlers.push(Arc::<Recorder>::clone(recorder));
    let actions = ["allocate", "consolidation", "reclaim", "preempt"];
    let Planned { outcome, calls, .. } = planned(text, &actions, &[("audit", register)]);
    assert!(
        outcome.decisions.iter().any(|d| matches!(d, Decision::Evict { pod, .. } if pod.name == "low-0"))
    );
    let sum = |pod: &str| {
        let of = |sign: &str| calls.iter().filter(|call| **call == format!("{sign}{pod}")).count() as i64;
        of("+") - of("-")
    };
    // The victim loses its node, the preemptor is pipelined to it.
    assert_eq!((sum("low-0"), sum("high-0")), (-1, 1), "{calls:?}");
}

#[test]
fn bind_request_annotations_are_merged_and_the_later_plugin_wins() {
    let register: Register = |recorder, to| to.bind_annotations.push(Arc::<Recorder>::clone(recorder));
    let planned = planned(TWO_JOBS, &["allocate"], &[("one", register), ("two", register)]);
    let Decision::Bind(bind) = &planned.outcome.decisions[0] else { panic!("{:?}", planned.outcome) };
    let expected = [("one", "a-0/n1"), ("two", "a-0/n1"), ("last", "two")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(bind.annotations, Annotations(expected.into()));
}

#[test]
fn observing_plugins_do_not_change_the_outcome() {
    let without = planned(TWO_JOBS, &["allocate"], &[]);
    let with = planned(
        TWO_JOBS,
        &["allocate"],
        &[("audit", |recorder, to| {
            to.sessions.push(Arc::<Recorder>::clone(recorder));
            to.allocation_handlers.push(Arc::<Recorder>::clone(recorder));
        })],
    );
    assert_eq!(with.outcome, without.outcome);
    assert!(with.policy.has_callbacks() && !without.policy.has_callbacks());
}

/// Evicts everything that runs, then places the smallest pending group.
struct Replace;

impl CustomAction for Replace {
    fn name(&self) -> &'static str {
        "replace"
    }
    fn run(&self, session: &mut Session<'_>) {
        let running: Vec<PodIdx> = session
            .pods
            .indices()
            .filter(|pod| session.pods[*pod].state.status == kai_engine::cluster::pod::Status::Running)
            .collect();
        session.evict(&running, "it was here first").expect("they run");
        assert!(
            session.evict(&running, "again").expect_err("they are evicted already").contains("does not run")
        );
        let pending = session.pending_groups();
        let smallest = pending.into_iter().min_by_key(|group| session.groups[*group].pods.len());
        assert!(session.place(smallest.expect("a group is pending")));
    }
}

#[test]
fn custom_action_evicts_and_places_under_its_name() {
    let text = "nodes n1 gpu=1\nqueues q quota=4\ngroups old queue=q pods=1x{gpu=1} running@n1\n \
        big queue=q min=2 pods=2x{gpu=1}\n small queue=q pods=1x{gpu=1}";
    let register: Register = |_, to| to.actions.push(Arc::new(Replace));
    let planned = planned(text, &["replace", "allocate"], &[("replacing", register)]);
    let [Decision::Evict { pod, why, action: "replace", .. }, Decision::Pipeline { pod: placed, action, .. }] =
        planned.outcome.decisions.as_slice()
    else {
        panic!("{:?}", planned.outcome.decisions)
    };
    assert_eq!((pod.name.as_str(), placed.name.as_str(), *action), ("old-0", "small-0", "replace"));
    assert_eq!(**why, EvictionReason::Custom { message: "it was here first".to_owned() });
    assert_eq!(planned.outcome.plugin_failures, []);
}

/// Panics for pods of group `a`, and whenever it compares.
struct Faulty;

impl Filter for Faulty {
    fn fits(&self, cluster: &Cluster, pod: PodIdx, _: NodeIdx) -> Result<(), String> {
        assert!(cluster.pod_key(pod).name != "a-0", "cannot judge a-0");
        Ok(())
    }
}

impl Score for Faulty {
    fn score(&self, cluster: &Cluster, pod: PodIdx, _: NodeIdx) -> Option<f64> {
        assert!(cluster.pod_key(pod).name != "a-0", "cannot score a-0");
        Some(1.0)
    }
}

impl QueueCompare for Faulty {
    fn compare(&self, _: &Cluster, _: QueueIdx, _: QueueIdx) -> Ordering {
        panic!("cannot compare")
    }
}

impl CustomAction for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn run(&self, session: &mut Session<'_>) {
        let groups: Vec<GroupIdx> = session.pending_groups();
        assert!(session.place(groups[0]));
        panic!("cannot go on");
    }
}

impl SessionHook for Faulty {
    fn opened(&self, _: &Cluster, _: Cycle) {
        panic!("cannot open")
    }
}

fn failures(outcome: &Outcome) -> Vec<&str> {
    let message = |failure: &'_ PluginFailure| failure.message.len();
    assert!(outcome.plugin_failures.iter().all(|failure| message(failure) > 0 && failure.plugin == "faulty"));
    outcome.plugin_failures.iter().map(|failure| failure.message.as_str()).collect()
}

#[test]
fn filter_that_panics_refuses_the_pod_once_and_the_verdict_names_the_plugin() {
    let text = TWO_JOBS.replace("nodes n1 gpu=2", "nodes n1 gpu=2 | n2 gpu=2");
    let register: Register = |_, to| to.filters.push((Depends::Global, Arc::new(Faulty)));
    let Planned { outcome, .. } = planned(&text, &["allocate"], &[("faulty", register)]);
    assert_eq!(bound(&outcome), ["b-0"], "other pods are not affected");
    let why = "plugin `faulty` panicked: cannot judge a-0";
    assert_eq!(failures(&outcome), [why], "it is asked about the pod once, not for every node");
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group.name == "a").expect("it is pending");
    let Verdict::NoNode(fit) = &verdict.leading else { panic!("{verdict:?}") };
    assert_eq!(fit.reasons, [(NodeRejection::Plugin(why.to_owned()), 2)]);
}

#[test]
fn score_order_and_hook_that_panic_have_no_effect() {
    let text = "nodes n1 gpu=2\nqueues q quota=2 | r quota=2\n\
        groups a queue=q pods=1x{gpu=1}\n b queue=r pods=1x{gpu=1}";
    let register: Register = |_, to| {
        to.scores.push((Depends::Global, Arc::new(Faulty)));
        to.queue_order.push(QueueOrder::Custom(Arc::new(Faulty)));
        to.sessions.push(Arc::new(Faulty));
    };
    let Planned { outcome, .. } = planned(text, &["allocate"], &[("faulty", register)]);
    assert_eq!(bound(&outcome).len(), 2);
    let messages = failures(&outcome).join("; ");
    for expected in ["cannot open", "cannot score a-0"] {
        assert!(messages.contains(&format!("plugin `faulty` panicked: {expected}")), "{messages}");
    }
}

#[test]
fn action_that_panics_keeps_its_decisions_and_the_next_action_runs() {
    let register: Register = |_, to| to.actions.push(Arc::new(Faulty));
    let Planned { outcome, .. } = planned(TWO_JOBS, &["faulty", "allocate"], &[("faulty", register)]);
    assert_eq!(bound(&outcome), ["a-0", "b-0"]);
    assert_eq!(failures(&outcome), ["plugin `faulty` panicked: cannot go on"]);
}

#[test]
fn plugin_that_is_cut_off_refuses_with_the_reason_until_the_policy_is_resolved_anew() {
    let register: Register = |_, to| to.filters.push((Depends::Global, Arc::new(Faulty)));
    let Planned { policy, .. } = planned(TWO_JOBS, &["allocate"], &[("faulty", register)]);
    policy.cut_off("faulty", "a call took 10 s");
    let outcome = plan(&mut Scenario::parse(TWO_JOBS).unwrap().cluster.build(), &policy, CYCLE);
    assert!(outcome.decisions.is_empty());
    for verdict in &outcome.verdicts {
        let Verdict::NoNode(fit) = &verdict.leading else { panic!("{verdict:?}") };
        let why = "plugin `faulty` is cut off: a call took 10 s".to_owned();
        assert_eq!(fit.reasons, [(NodeRejection::Plugin(why), 1)]);
    }
}

#[test]
fn plugin_that_panics_while_it_registers_is_skipped_with_a_warning() {
    let recorder = Arc::new(Recorder::default());
    let plugin = TestPlugin { name: "faulty", register: |_, _| panic!("no configuration"), recorder };
    let config = PluginConfig { name: "faulty".to_owned(), ..PluginConfig::default() };
    let config = Config { plugins: vec![config], ..Config::default() };
    let policy = Policy::resolve(&config, &Params::default(), &PluginSet::builtin().with(Arc::new(plugin)));
    assert_eq!(policy.warnings, ["plugin `faulty` panicked and is skipped: no configuration"]);
}

#[test]
fn taken_action_names_and_paths_are_refused_with_a_warning() {
    struct Allocate;
    impl CustomAction for Allocate {
        fn name(&self) -> &'static str {
            "allocate"
        }
        fn run(&self, _: &mut Session<'_>) {}
    }
    let recorder = Arc::new(Recorder::default());
    let register: Register = |_, to| to.actions.push(Arc::new(Allocate));
    let plugin = TestPlugin { name: "rival", register, recorder };
    let config = PluginConfig { name: "rival".to_owned(), ..PluginConfig::default() };
    let config = Config { plugins: vec![config], ..Config::default() };
    let policy = Policy::resolve(&config, &Params::default(), &PluginSet::builtin().with(Arc::new(plugin)));
    assert_eq!(policy.warnings, ["action `allocate` exists already; the plugin's is skipped"]);
}

//! The hints of clusters that are built for them.

use crate::random_objects::{Gang, class, gang, node, objects, queue, topology, weighted_queue};
use kai_cache::{Object, Settings, Store};
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_engine::verdict::QueueResource;
use kai_engine::{ClusterState, Config, Cycle, Params, Policy};
use kai_units::Timestamp;
use kai_whatif::{Bound, Change, Hints, Model, Never, hints};
use serde_json::{Value, json};

fn hints_for(group: &str, all: Vec<Object>) -> Hints {
    let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
    let (mut store, mut cluster) = (Store::of(Settings::default(), objects(all)), ClusterState::new());
    let cycle = Cycle { now: Timestamp(1_798_761_600_000_000), seed: 1 };
    let mut model = Model { store: &mut store, cluster: &mut cluster, policy: &policy, cycle };
    let base = model.plan();
    let effort = hints::Effort::of(model.cluster);
    hints::find(&mut model, &base, &Key::new("a", group), effort)
}

fn pending(name: &str, pods: usize, gpus: &str, spec: Value) -> Vec<Object> {
    gang(&Gang { name, queue: "team", gpus, spec, pods: vec![None; pods], created: 9, ..Gang::default() })
}

fn running(name: &str, queue: &str, gpus: &str, nodes: &[&str]) -> Vec<Object> {
    let pods = nodes.iter().map(|node| Some((*node).to_owned())).collect();
    gang(&Gang { name, queue, gpus, spec: json!({}), pods, created: 1, ..Gang::default() })
}

fn changes(hints: &Hints) -> Vec<Vec<Change>> {
    hints.hints.iter().map(|hint| hint.changes.clone()).collect()
}

fn gpu(queue: &str, bound: Bound, from: i64, to: i64) -> Change {
    let (resource, queue) = (QueueResource::Gpu, queue.to_owned());
    Change::QueueBound { queue, bound, resource, from: Some(from * 1_000_000), to: Some(to * 1_000_000) }
}

#[test]
fn limit_is_raised_by_exactly_what_is_missing_in_the_queue_and_its_parent() {
    let mut all = vec![node("n1", 8, 0), queue("dept", None, -1, 5), queue("team", Some("dept"), -1, 4)];
    all.extend(running("old", "team", "3", &["n1"]));
    all.extend(pending("new", 1, "3", json!({})));
    let found = changes(&hints_for("new", all));
    let wait = vec![Change::Finish { groups: vec![Key::new("a", "old")] }];
    assert_eq!(found, [wait, vec![gpu("team", Bound::Limit, 4, 6), gpu("dept", Bound::Limit, 5, 6)]]);
}

#[test]
fn quota_is_raised_until_the_queue_may_reclaim_and_the_victims_are_named() {
    let mut all = vec![node("n1", 8, 0), weighted_queue("team", None, 0, -1, 0), queue("other", None, 4, -1)];
    all.extend(running("old", "other", "4", &["n1", "n1"]));
    all.extend(pending("new", 1, "2", json!({})));
    all.push(class("train", 50));
    let found = hints_for("new", all);
    let raised = found.hints.iter().find(|hint| hint.changes == [gpu("team", Bound::Quota, 0, 2)]);
    let raised = raised.unwrap_or_else(|| panic!("no quota: {:?}", changes(&found)));
    assert!(!raised.evicted.is_empty() && raised.is_pipelined, "{raised:?}");
}

#[test]
fn gang_minimum_is_lowered_to_the_pods_that_fit_and_missing_nodes_are_counted() {
    let mut all = vec![node("n1", 8, 0), node("n2", 8, 0), queue("team", None, -1, -1)];
    all.extend(pending("new", 4, "8", json!({})));
    let found = hints_for("new", all);
    assert_eq!(
        found.never,
        Some(Never::TooLarge { resource: QueueResource::Gpu, needed: 32_000_000, total: 16_000_000 })
    );
    let minimum = Change::MinMember { group: Key::new("a", "new"), sub_group: None, from: 4, to: 2 };
    let nodes = Change::AddNodesLike { node: "n1".to_owned(), count: 2 };
    assert_eq!(changes(&found), [vec![minimum], vec![nodes]]);
}

#[test]
fn topology_level_is_relaxed_to_the_next_one_that_fits() {
    let nodes = (0..4).map(|number| node(&format!("n{number}"), 2, number));
    let mut all: Vec<Object> = nodes.chain([queue("team", None, -1, -1), topology()]).collect();
    let constraint = json!({"topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"}});
    all.extend(pending("new", 2, "2", constraint));
    let found = hints_for("new", all);
    let relaxed = Change::TopologyLevel {
        group: Key::new("a", "new"),
        sub_group: None,
        from: "rack".to_owned(),
        to: Some("zone".to_owned()),
    };
    assert!(changes(&found).contains(&vec![relaxed]), "{:?}", changes(&found));
    assert!(matches!(found.never, Some(Never::Alone(_))), "waiting does not help: {:?}", found.never);
}

#[test]
fn preemptible_class_is_proposed_where_the_quota_is_for_preemptible_pods_only() {
    let mut all = vec![node("n1", 8, 0), queue("team", None, 0, -1), class("train", 50), class("build", 100)];
    all.extend(pending("new", 1, "1", json!({"priorityClassName": "build"})));
    let found = changes(&hints_for("new", all));
    let class = Change::PriorityClass {
        group: Key::new("a", "new"),
        from: "build".to_owned(),
        to: "train".to_owned(),
    };
    assert_eq!(found, [vec![class], vec![gpu("team", Bound::Quota, 0, 1)]]);
}

#[test]
fn only_the_groups_that_are_in_the_way_are_waited_for() {
    let mut all = vec![node("n1", 4, 0), node("n2", 4, 0), queue("team", None, -1, -1)];
    all.extend(running("big", "team", "4", &["n1"]));
    all.extend(running("first", "team", "2", &["n2"]));
    all.extend(running("second", "team", "1", &["n2"]));
    all.extend(pending("new", 1, "4", json!({})));
    let found = changes(&hints_for("new", all));
    assert_eq!(found[0], [Change::Finish { groups: vec![Key::new("a", "big")] }]);
}

#[test]
fn group_that_is_placed_or_has_no_queue_gets_no_hints() {
    let mut all = vec![node("n1", 4, 0), queue("team", None, -1, -1)];
    all.extend(pending("new", 1, "4", json!({})));
    all.extend(gang(&Gang {
        name: "lost",
        queue: "none",
        gpus: "1",
        spec: json!({}),
        pods: vec![None],
        created: 2,
        ..Gang::default()
    }));
    assert_eq!(hints_for("new", all.clone()), Hints::default());
    assert_eq!(hints_for("lost", all), Hints::default());
}

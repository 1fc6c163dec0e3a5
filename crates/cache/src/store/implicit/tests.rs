//! Groups follow their pods, and objects win.

use super::*;
use crate::Settings;
use kai_engine::Delta;
use kai_engine::input::GroupInput;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};

fn settings() -> Settings {
    Settings { implicit_groups: ImplicitGroups::OfAllPods, ..Settings::default() }
}

fn pod(name: &str, uid: &str, changes: &Value) -> Object {
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": uid, "labels": {"kai.scheduler/queue": "q"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    });
    merge(&mut value, changes);
    from_value::<Pod>(value).unwrap().into()
}

fn merge(value: &mut Value, changes: &Value) {
    match (value, changes) {
        (Value::Object(known), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(known.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (value, changes) => *value = changes.clone(),
    }
}

fn group(name: &str, queue: &str) -> Object {
    let value = json!({"metadata": {"name": name, "namespace": "n", "uid": "g"}, "spec": {"queue": queue}});
    from_value::<PodGroup>(value).unwrap().into()
}

fn groups(store: &mut Store) -> Vec<GroupInput> {
    let mut groups = Vec::new();
    store.drain(|delta| {
        if let Delta::Group(group) = delta {
            groups.push(*group);
        }
    });
    groups
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

#[test]
fn pod_without_an_object_of_its_group_has_an_implicit_one() {
    let mut store = Store::new(settings());
    store.apply(pod("p", "u", &json!({})));
    let found = groups(&mut store);
    assert_eq!((found.len(), found[0].queue.as_str(), found[0].min_member), (1, "q", Some(1)));
    assert_eq!(found[0].created, kai_units::Timestamp(1_767_225_600_000_000));
    assert!(store.is_implicit(&key("pg-p-u")));
    assert_eq!(store.pod_of_implicit(&key("pg-p-u")), Some(&key("p")));
    // Another pod of the name has another group.
    store.apply(pod("p", "v", &json!({})));
    assert!(!store.objects().pod_groups.contains_key(&key("pg-p-u")));
    assert!(store.is_implicit(&key("pg-p-v")));
    store.delete(Kind::Pod, &key("p"));
    assert_eq!(store.objects().pod_groups.len(), 0);
    let gone: Vec<Key> = store.take_changed_implicit().into_iter().collect();
    assert_eq!(gone, [key("pg-p-u"), key("pg-p-v")]);
}

#[test]
fn object_of_the_name_wins_and_is_replaced_when_it_goes() {
    let mut store = Store::new(settings());
    store.apply(pod("p", "u", &json!({})));
    store.apply(group("pg-p-u", "other"));
    assert!(!store.is_implicit(&key("pg-p-u")));
    store.apply(pod("p", "u", &json!({"metadata": {"labels": {"kai.scheduler/queue": "changed"}}})));
    assert_eq!(groups(&mut store)[0].queue, "other");
    store.delete(Kind::PodGroup, &key("pg-p-u"));
    assert!(store.is_implicit(&key("pg-p-u")));
    assert_eq!(groups(&mut store)[0].queue, "changed");
    // A list of objects says nothing about groups without one, and neither does a late deletion.
    store.reset(Kind::PodGroup, Vec::new());
    assert_eq!(store.delete(Kind::PodGroup, &key("pg-p-u")), None);
    assert!(store.is_implicit(&key("pg-p-u")));
}

#[test]
fn annotation_of_a_group_makes_a_pod_explicit() {
    let mut store = Store::new(settings());
    store.apply(pod("p", "u", &json!({})));
    store.apply(pod("p", "u", &json!({"metadata": {"annotations": {"pod-group-name": "g"}}})));
    assert_eq!(store.objects().pod_groups.len(), 0);
}

#[test]
fn pods_of_other_schedulers_and_node_pools_have_none() {
    let mut store = Store::new(settings());
    store.apply(pod("other", "u", &json!({"spec": {"schedulerName": "default-scheduler"}})));
    store.apply(pod("gold", "v", &json!({"metadata": {"labels": {"kai.scheduler/node-pool": "gold"}}})));
    assert_eq!(store.objects().pod_groups.len(), 0);
}

#[test]
fn with_the_mode_off_only_pods_that_were_placed_so_have_one() {
    let mut store = Store::new(Settings::default());
    let marked = json!({"metadata": {"annotations": {"kai.scheduler/implicit-group": "true"}}});
    store.apply(pod("pending", "u", &marked));
    store.apply(pod("unmarked", "w", &json!({"spec": {"nodeName": "n1"}})));
    assert_eq!(store.objects().pod_groups.len(), 0);
    let mut placed = marked;
    merge(&mut placed, &json!({"spec": {"nodeName": "n1"}}));
    store.apply(pod("placed", "v", &placed));
    assert!(store.is_implicit(&key("pg-placed-v")));
}

#[test]
fn priority_class_counts_once_it_exists() {
    let mut store = Store::new(settings());
    let named = json!({"metadata": {"labels": {"priorityClassName": "high"}}});
    store.apply(pod("p", "u", &named));
    assert_eq!(groups(&mut store)[0].priority, 50);
    let class = json!({"metadata": {"name": "high"}, "value": 200});
    store.apply(from_value::<crate::object::PriorityClass>(class).unwrap());
    let found = groups(&mut store);
    assert_eq!((found[0].priority, found[0].preemptible), (200, false));
    store.delete(Kind::PriorityClass, &Key::new("", "high"));
    assert_eq!(groups(&mut store)[0].priority, 50);
}

#[test]
fn record_survives_changes_of_the_pod_and_copies() {
    let mut store = Store::new(settings());
    store.apply(pod("p", "u", &json!({})));
    let start = "2026-01-01T00:00:00Z";
    assert!(store.record_on_implicit(&key("pg-p-u"), |group| {
        let annotations = group.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::LAST_START.to_owned(), start.to_owned());
    }));
    store.apply(pod("p", "u", &json!({"metadata": {"labels": {"a": "b"}}})));
    let mut copy = store.copy_with(settings());
    for store in [&mut store, &mut copy] {
        assert!(store.is_implicit(&key("pg-p-u")));
        assert_eq!(groups(store)[0].last_start, start.parse().ok());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pod(u8, u8, u8),
    PodGone(u8),
    Group(u8, u8),
    GroupGone(u8, u8),
    Class(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, 0..2u8, 0..5u8).prop_map(|(name, uid, kind)| Step::Pod(name, uid, kind)),
        (0..3u8).prop_map(Step::PodGone),
        (0..3u8, 0..2u8).prop_map(|(name, uid)| Step::Group(name, uid)),
        (0..3u8, 0..2u8).prop_map(|(name, uid)| Step::GroupGone(name, uid)),
        any::<bool>().prop_map(Step::Class),
    ]
}

proptest! {
    /// The groups depend on the objects alone, not on how they came.
    #[test]
    fn groups_equal_those_of_a_full_build(steps in prop::collection::vec(step(), 1..30)) {
        let kinds = [
            json!({}), json!({"metadata": {"labels": {"priorityClassName": "high"}}}),
            json!({"metadata": {"annotations": {"pod-group-name": "g"}}}), json!({"status": {"phase": "Succeeded"}}),
            json!({"spec": {"nodeName": "n1"}}),
        ];
        let mut store = Store::new(settings());
        for step in steps {
            match step {
                Step::Pod(name, uid, kind) => {
                    store.apply(pod(&format!("p{name}"), &format!("u{uid}"), &kinds[usize::from(kind)]));
                }
                Step::PodGone(name) => drop(store.delete(Kind::Pod, &key(&format!("p{name}")))),
                Step::Group(name, uid) => drop(store.apply(group(&format!("pg-p{name}-u{uid}"), "other"))),
                Step::GroupGone(name, uid) => {
                    store.delete(Kind::PodGroup, &key(&format!("pg-p{name}-u{uid}")));
                }
                Step::Class(true) => {
                    let class = json!({"metadata": {"name": "high"}, "value": 200});
                    store.apply(from_value::<crate::object::PriorityClass>(class).unwrap());
                }
                Step::Class(false) => drop(store.delete(Kind::PriorityClass, &Key::new("", "high"))),
            }
            groups(&mut store);
            let implicit: Vec<Key> = store.implicit_groups().map(|(group, _)| group.clone()).collect();
            let mut objects = store.objects().clone();
            objects.pod_groups.retain(|key, _| !implicit.contains(key));
            let built = Store::of(settings(), objects);
            prop_assert_eq!(built.objects(), store.objects());
            prop_assert_eq!(built.implicit_groups().map(|(group, _)| group.clone()).collect::<Vec<_>>(), implicit);
        }
    }
}

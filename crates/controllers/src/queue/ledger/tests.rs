//! Sums over the queue tree, independent of the order of changes.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn queue(parent: &str) -> Queue {
    Queue { parent: parent.to_owned(), version: Some(1), ..Queue::default() }
}

fn group(queue: &str, gpus: i64) -> Group {
    let resources = json!({"requested": {"nvidia.com/gpu": (gpus * 2).to_string()}, "allocated": {"nvidia.com/gpu": gpus.to_string()}});
    Group::new(queue.to_owned(), &serde_json::from_value(resources).unwrap())
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn gpus(ledger: &mut Ledger, queue: &str) -> Option<i64> {
    ledger.desired(queue).map(|of| of.totals.allocated.get("nvidia.com/gpu").unwrap_or_default().units())
}

fn tree() -> Ledger {
    let mut ledger = Ledger::default();
    for (name, parent) in
        [("root", ""), ("dept", "root"), ("team-b", "dept"), ("team-a", "dept"), ("other", "root")]
    {
        ledger.set_queue(name, Some(queue(parent)));
    }
    ledger
}

#[test]
fn totals_include_all_descendants() {
    let mut ledger = tree();
    ledger.set_group(key("g1"), Some(group("team-a", 2)));
    ledger.set_group(key("g2"), Some(group("team-b", 3)));
    ledger.set_group(key("g3"), Some(group("other", 1)));
    ledger.set_group(key("g4"), Some(group("dept", 5)));
    ledger.set_group(key("lost"), Some(group("nowhere", 9)));
    let found: Vec<_> = ["team-a", "team-b", "dept", "other", "root", "nowhere"]
        .map(|name| gpus(&mut ledger, name))
        .into_iter()
        .collect();
    assert_eq!(found, [Some(2), Some(3), Some(10), Some(1), Some(11), None]);
    let root = ledger.desired("root").unwrap();
    assert_eq!(root.totals.requested.get("nvidia.com/gpu").unwrap().units(), 22);
    assert_eq!(root.children, ["dept", "other"]);
    assert_eq!(ledger.desired("dept").unwrap().children, ["team-a", "team-b"]);
}

#[test]
fn change_affects_the_queue_and_its_ancestors() {
    let mut ledger = tree();
    assert_eq!(ledger.set_group(key("g"), Some(group("team-a", 1))), ["dept", "root", "team-a"]);
    assert!(ledger.set_group(key("g"), Some(group("team-a", 1))).is_empty(), "nothing changed");
    assert_eq!(ledger.set_group(key("g"), Some(group("other", 1))), ["dept", "other", "root", "team-a"]);
    assert_eq!(ledger.set_group(key("g"), None), ["other", "root"]);
    assert!(ledger.set_group(key("g"), None).is_empty());
    let moved = Queue { version: Some(2), ..queue("other") };
    assert_eq!(ledger.set_queue("team-a", Some(moved)), ["dept", "other", "root", "team-a"]);
    assert!(ledger.set_queue("team-a", Some(queue("dept"))).is_empty(), "an older state");
    assert_eq!(ledger.set_queue("dept", None), ["dept", "root"]);
}

#[test]
fn list_with_lower_versions_holds_and_later_events_are_accepted() {
    let mut ledger = Ledger::default();
    let version = |parent: &str, version| Queue { version: Some(version), ..queue(parent) };
    let parent = |ledger: &Ledger| ledger.queue("q").unwrap().parent.clone();
    ledger.set_queue("q", Some(version("a", 900)));
    assert!(ledger.set_queue("q", Some(version("b", 800))).is_empty(), "an older event");
    // etcd was restored from a backup.
    ledger.replace_queues([("q".to_owned(), version("b", 500))].into_iter());
    assert_eq!(parent(&ledger), "b");
    ledger.set_queue("q", Some(version("c", 501)));
    assert_eq!(parent(&ledger), "c");
}

#[test]
fn group_with_negative_or_excessive_amounts_does_not_corrupt_its_queue() {
    let mut ledger = tree();
    ledger.set_group(key("g"), Some(group("team-a", 2)));
    for (name, gpus) in
        [("negative", -7), ("large", i64::MAX / 2), ("too", i64::MAX / 2), ("much", i64::MAX / 2)]
    {
        ledger.set_group(key(name), Some(group("team-b", gpus)));
    }
    assert_eq!(gpus(&mut ledger, "team-a"), Some(2));
    assert_eq!(gpus(&mut ledger, "root"), Some(i64::MAX));
    let patch = ledger.desired("root").unwrap().patch_from(&Queue::default());
    assert_eq!(patch["allocated"], json!({"nvidia.com/gpu": i64::MAX.to_string()}));
    for name in ["large", "too", "much"] {
        ledger.set_group(key(name), None);
    }
    assert_eq!(gpus(&mut ledger, "root"), Some(2), "the negative amount lowers nothing");
}

#[test]
fn groups_are_counted_once_in_a_cycle_of_queues() {
    let mut ledger = Ledger::default();
    for (name, parent) in [("a", "b"), ("b", "c"), ("c", "a"), ("self", "self")] {
        ledger.set_queue(name, Some(queue(parent)));
    }
    ledger.set_group(key("g1"), Some(group("a", 1)));
    ledger.set_group(key("g2"), Some(group("self", 2)));
    assert_eq!(
        ["a", "b", "c", "self"].map(|name| gpus(&mut ledger, name)),
        [Some(1), Some(1), Some(1), Some(2)]
    );
}

#[test]
fn status_patch_has_only_differences() {
    let mut ledger = tree();
    ledger.set_group(key("g"), Some(group("dept", 1)));
    let desired = ledger.desired("dept").unwrap();
    let stored: kai_api::Queue = serde_json::from_value(json!({
        "metadata": {"name": "dept"}, "spec": {},
        "status": {"childQueues": ["team-a", "team-b"], "requested": {"nvidia.com/gpu": "2"}, "allocated": {"cpu": "1"}},
    }))
    .unwrap();
    let patch = desired.patch_from(&Queue::read(stored).1);
    assert_eq!(Value::from(patch), json!({"allocated": {"cpu": null, "nvidia.com/gpu": "1"}}));
}

#[derive(Clone, Debug)]
enum Step {
    Group(u8, Option<(u8, u8)>),
    Queue(u8, Option<u8>),
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6u8, prop::option::of((0..5u8, 0..4u8))).prop_map(|(at, to)| Step::Group(at, to)),
        (0..5u8, prop::option::of(0..6u8)).prop_map(|(at, parent)| Step::Queue(at, parent)),
        Just(Step::Relist),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn incremental_ledger_equals_one_built_at_once(steps in steps()) {
        let (mut groups, mut queues) = (BTreeMap::new(), BTreeMap::new());
        let mut ledger = Ledger::default();
        let name = |at: u8| format!("q{at}");
        for (version, step) in steps.into_iter().enumerate() {
            match step {
                Step::Group(at, to) => {
                    let to = to.map(|(queue, gpus)| group(&name(queue), i64::from(gpus)));
                    groups.remove(&key(&at.to_string()));
                    groups.extend(to.clone().map(|to| (key(&at.to_string()), to)));
                    ledger.set_group(key(&at.to_string()), to);
                }
                Step::Queue(at, parent) => {
                    let parent = parent.map(|parent| if parent == 5 { String::new() } else { name(parent) });
                    let to = parent.map(|parent| Queue { version: Some(version as u64 + 1), ..queue(&parent) });
                    queues.remove(&name(at));
                    queues.extend(to.clone().map(|to| (name(at), to)));
                    ledger.set_queue(&name(at), to);
                }
                Step::Relist => {
                    ledger.replace_groups(groups.clone().into_iter());
                    ledger.replace_queues(queues.clone().into_iter());
                }
            }
            // Cached sums must be invalidated by later changes.
            let _ = ledger.desired("q0");
        }
        let mut fresh = Ledger::default();
        fresh.replace_queues(queues.into_iter());
        fresh.replace_groups(groups.into_iter());
        for at in 0..5 {
            prop_assert_eq!(ledger.desired(&name(at)), fresh.desired(&name(at)), "queue {}", at);
        }
    }
}

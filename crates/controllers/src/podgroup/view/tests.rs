//! The contents of the view, independent of the order of changes.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn pod(name: u8, group: u8, node: Option<u8>, kind: u8) -> Pod {
    let mut pod = json!({
        "metadata": {"name": format!("p{name}"), "namespace": "ns", "annotations": {"pod-group-name": format!("g{group}")}},
        "spec": {
            "nodeName": node.map(|node| format!("n{node}")),
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    });
    match kind {
        0 => {
            pod["metadata"]["annotations"]["gpu-memory"] = json!("1000");
            pod["metadata"]["annotations"]["received-resource-type"] = json!("Fraction");
        }
        1 => pod["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimName": "c0"}]),
        2 => pod["status"]["phase"] = json!("Succeeded"),
        _ => {}
    }
    serde_json::from_value(pod).unwrap()
}

fn group(name: u8, version: usize, class: u8) -> GroupObject {
    serde_json::from_value(json!({
        "metadata": {"name": format!("g{name}"), "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"priorityClassName": format!("c{class}")},
    }))
    .unwrap()
}

fn node(name: u8, memory: u32) -> NodeObject {
    let labels = json!({"nvidia.com/gpu.memory": memory.to_string()});
    serde_json::from_value(json!({"metadata": {"name": format!("n{name}"), "labels": labels}})).unwrap()
}

fn class(name: u8, value: i32, is_default: bool) -> ClassObject {
    let class =
        json!({"metadata": {"name": format!("c{name}")}, "value": value, "globalDefault": is_default});
    serde_json::from_value(class).unwrap()
}

fn claim(count: i64) -> ClaimObject {
    let requests = json!([{"exactly": {"deviceClassName": "gpu", "count": count}}]);
    ClaimObject(
        json!({"metadata": {"name": "c0", "namespace": "ns"}, "spec": {"devices": {"requests": requests}}}),
    )
}

#[test]
fn list_with_lower_versions_holds_and_later_events_are_accepted() {
    let mut view = View::default();
    let key = Key::new("ns", "g0");
    let class_of = |view: &View| view.groups[&key].class.name.clone();
    view.replace(vec![group(0, 900, 1)]);
    assert!(GroupObject::set(&mut view, &key, Some(group(0, 800, 2))).is_empty(), "an older event");
    // etcd was restored from a backup.
    view.replace(vec![group(0, 500, 2)]);
    assert_eq!(class_of(&view), "c2");
    GroupObject::set(&mut view, &key, Some(group(0, 501, 3)));
    assert_eq!(class_of(&view), "c3");
    assert!(GroupObject::set(&mut view, &key, Some(group(0, 501, 4))).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Pod(u8, Option<(u8, Option<u8>, u8)>),
    Group(u8, Option<u8>),
    Node(u8, Option<u32>),
    Class(u8, Option<(i32, bool)>),
    Claim(Option<i64>),
}

fn step() -> impl Strategy<Value = Step> {
    let placed = (0..3u8, prop::option::of(0..2u8), 0..4u8);
    prop_oneof![
        4 => (0..5u8, prop::option::weighted(0.8, placed)).prop_map(|(at, to)| Step::Pod(at, to)),
        2 => (0..3u8, prop::option::weighted(0.8, 0..2u8)).prop_map(|(at, to)| Step::Group(at, to)),
        1 => (0..2u8, prop::option::of(1000..5000u32)).prop_map(|(at, to)| Step::Node(at, to)),
        1 => (0..2u8, prop::option::of((0..200i32, any::<bool>()))).prop_map(|(at, to)| Step::Class(at, to)),
        1 => prop::option::of(1..5i64).prop_map(Step::Claim),
    ]
}

fn apply(view: &mut View, version: usize, step: &Step) -> BTreeSet<Key> {
    let named = |prefix: char, at: u8| Key::new("", format!("{prefix}{at}"));
    match step {
        Step::Pod(at, to) => {
            let object = to.map(|(group, node, kind)| pod(*at, group, node, kind));
            Pod::set(view, &Key::new("ns", format!("p{at}")), object)
        }
        Step::Group(at, to) => {
            let object = to.map(|class| group(*at, version, class));
            GroupObject::set(view, &Key::new("ns", format!("g{at}")), object)
        }
        Step::Node(at, to) => NodeObject::set(view, &named('n', *at), to.map(|memory| node(*at, memory))),
        Step::Class(at, to) => {
            let object = to.map(|(value, is_default)| class(*at, value, is_default));
            ClassObject::set(view, &named('c', *at), object)
        }
        Step::Claim(to) => ClaimObject::set(view, &Key::new("ns", "c0"), to.map(claim)),
    }
}

fn all_totals(view: &View) -> BTreeMap<Key, (Totals, bool)> {
    let totals = view.groups.keys().map(|key| (key.clone(), view.totals(key).unwrap()));
    totals.collect()
}

proptest! {
    #[test]
    fn affected_groups_are_returned_and_order_does_not_matter(steps in prop::collection::vec(step(), 1..60)) {
        let mut view = View::default();
        for (version, step) in steps.iter().enumerate() {
            let before = all_totals(&view);
            let affected = apply(&mut view, version + 1, step);
            for (key, totals) in all_totals(&view) {
                let changed = before.get(&key) != Some(&totals);
                prop_assert!(!changed || affected.contains(&key), "{key} after {step:?}");
            }
        }
        // The same objects in another order: what came last of each, from the back.
        let mut other = View::default();
        let mut seen = BTreeSet::new();
        for (version, step) in steps.iter().enumerate().rev() {
            let which = match step {
                Step::Pod(at, _) => ("pod", *at),
                Step::Group(at, _) => ("group", *at),
                Step::Node(at, _) => ("node", *at),
                Step::Class(at, _) => ("class", *at),
                Step::Claim(_) => ("claim", 0),
            };
            if seen.insert(which) {
                apply(&mut other, version + 1, step);
            }
        }
        prop_assert_eq!(all_totals(&view), all_totals(&other));
    }
}

#[test]
fn list_removes_missing_objects() {
    let mut view = View::default();
    view.replace(vec![group(0, 1, 0), group(1, 1, 0)]);
    view.replace(vec![pod(0, 0, Some(0), 3), pod(1, 1, None, 3)]);
    let affected = view.replace(vec![pod(1, 1, None, 3)]);
    assert_eq!(affected, BTreeSet::from([Key::new("ns", "g0")]));
    assert_eq!(view.totals(&Key::new("ns", "g0")), Some((Totals::default(), false)));
    assert!(view.totals(&Key::new("ns", "g1")).unwrap().1, "its pod is pending");
}

#[test]
fn response_to_a_write_is_not_overwritten_by_older_events() {
    let mut view = View::default();
    let key = Key::new("ns", "g0");
    GroupObject::set(&mut view, &key, Some(group(0, 7, 1)));
    assert!(GroupObject::set(&mut view, &key, Some(group(0, 5, 0))).is_empty());
    assert_eq!(view.groups[&key].class.name, "c1");
}

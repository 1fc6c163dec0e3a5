//! Created and updated pod groups, as tables.

use super::*;
use crate::workload::Owner;
use kai_api::pod_group::SubGroup;

fn desired() -> Desired {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Desired {
        name: "pg-j-u".to_owned(),
        namespace: "ns".to_owned(),
        owner: Owner {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "j".to_owned(),
            uid: "u".to_owned(),
        },
        labels: [
            pair("team", "a"),
            pair("kai.scheduler/queue", "q"),
            pair("kai.scheduler/node-pool", "a100"),
        ]
        .into(),
        annotations: [pair("note", "x")].into(),
        min_member: 2,
        queue: "q".to_owned(),
        priority_class: "train".to_owned(),
        ..Desired::default()
    }
}

/// The new group as JSON.
fn new_json(desired: &Desired) -> Value {
    json!(new_group(desired))
}

/// The state after an update of a stored object; none where nothing is written.
fn changed(stored: &Value, desired: &Desired) -> Option<Value> {
    let stored: PodGroup = serde_json::from_value(stored.clone()).unwrap();
    updated(&stored, desired, &Options::default()).map(|new| json!(new))
}

#[test]
fn created_group_is_complete_and_not_updated() {
    let made = new_json(&desired());
    assert_eq!(made["spec"], json!({"minMember": 2, "queue": "q", "priorityClassName": "train"}));
    assert_eq!(made["metadata"]["labels"]["kai.scheduler/node-pool"], "a100");
    assert_eq!(
        made["metadata"]["ownerReferences"],
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}])
    );
    assert_eq!(changed(&made, &desired()), None);
}

#[test]
fn min_sub_group_replaces_min_member() {
    let sub_groups = vec![SubGroup { name: "a".to_owned(), min_member: Some(1), ..SubGroup::default() }];
    let made = new_json(&Desired { min_sub_group: Some(1), sub_groups, ..desired() });
    assert_eq!(made["spec"]["minSubGroup"], 1);
    assert_eq!(made["spec"].get("minMember"), None);
    let none = new_json(&Desired { min_member: 0, ..desired() });
    assert_eq!(none["spec"]["minMember"], 0, "0 is written");
}

#[test]
fn empty_and_absent_fields_are_equal() {
    let mut stored = new_json(&desired());
    stored["spec"]["subGroups"] = json!([]);
    stored["spec"]["topologyConstraint"] = json!({});
    stored["spec"]["preemptibility"] = json!("");
    assert_eq!(changed(&stored, &desired()), None);
}

#[test]
fn fields_of_other_owners_are_kept() {
    let mut stored = new_json(&desired());
    stored["spec"]["queue"] = json!("elsewhere");
    stored["spec"]["markUnschedulable"] = json!(false);
    stored["spec"]["schedulingBackoff"] = json!(1);
    stored["spec"]["topologyConstraint"] = json!({"topology": "dc", "requiredTopologyLevel": "rack"});
    stored["metadata"]["labels"] = json!({"team": "a", "kai.scheduler/queue": "elsewhere", "own": "y"});
    stored["metadata"]["annotations"]["kai.scheduler/last-start-timestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(changed(&stored, &desired()), None, "a removed node pool label is not restored");
    let level_only = TopologyConstraint { required_topology_level: "zone".to_owned(), ..Default::default() };
    assert_eq!(changed(&stored, &Desired { topology: level_only, ..desired() }), None);

    let new = changed(&stored, &Desired { min_member: 3, ..desired() }).unwrap();
    let spec = json!({
        "minMember": 3, "queue": "elsewhere", "priorityClassName": "train", "markUnschedulable": false,
        "schedulingBackoff": 1, "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"},
    });
    assert_eq!(new["spec"], spec);
}

type Edit = fn(&mut Value);

#[test]
fn fields_of_the_workload_are_restored() {
    let made = new_json(&desired());
    let edits: [(&str, Edit); 5] = [
        ("minimum", |stored| stored["spec"]["minMember"] = json!(9)),
        ("class", |stored| stored["spec"]["priorityClassName"] = json!("high")),
        ("label", |stored| stored["metadata"]["labels"]["team"] = json!("b")),
        ("annotation", |stored| stored["metadata"]["annotations"] = Value::Null),
        ("owner", |stored| stored["metadata"]["ownerReferences"] = json!([])),
    ];
    for (what, edit) in edits {
        let mut stored = made.clone();
        edit(&mut stored);
        assert_eq!(changed(&stored, &desired()), Some(made.clone()), "{what}");
    }
}

fn assign(pod: &Value, desired: &Desired) -> Option<Value> {
    assignment(&serde_json::from_value(pod.clone()).unwrap(), desired)
}

#[test]
fn pod_is_assigned_once() {
    let pod = |annotations: Value, labels: Value| json!({"metadata": {"uid": "p1", "annotations": annotations, "labels": labels}});
    let bare = pod(json!({}), json!({}));
    let expected = json!({"metadata": {"uid": "p1", "annotations": {"pod-group-name": "pg-j-u"}}});
    assert_eq!(assign(&bare, &desired()), Some(expected));
    let in_it = pod(json!({"pod-group-name": "pg-j-u"}), json!({"kai.scheduler/subgroup-name": "old"}));
    assert_eq!(assign(&in_it, &desired()), None, "a label of an earlier subgroup stays");
    let workers = Desired { sub_group: Some("workers".to_owned()), ..desired() };
    let expected = json!({"metadata": {"uid": "p1", "labels": {"kai.scheduler/subgroup-name": "workers"}}});
    assert_eq!(assign(&in_it, &workers), Some(expected));
}

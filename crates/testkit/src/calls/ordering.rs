//! Replays orders of groups, members and pods.

use super::compare::same;
use super::record::Case;
use super::recorded_cluster::{RecordedCluster, described};
use super::{Adapter, Area, CallOutcome};
use kai_engine::cluster::group::Group;
use kai_engine::order::{member, pods};
use serde_json::{Value, json};
use std::cmp::Ordering;

pub(super) const AREA: Area = Area { name: "unit-ordering", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "elastic.JobOrderFn" => Some(elastic),
        "subgrouporder.SubGroupOrderFn" => Some(members),
        "kubeflow.TaskOrderFn" => Some(kubeflow),
        "ray.TaskOrderFn" => Some(ray),
        "taskorder.TaskOrderFn" => Some(task_priority),
        _ => None,
    }
}

fn result(case: &Case<'_>, order: Ordering) -> CallOutcome {
    same(case.result(), &json!([order as i8]))
}

fn elastic(case: &Case<'_>) -> CallOutcome {
    let state = |side: &str| {
        let mut recorded = RecordedCluster::new(&[]);
        let key = recorded.add_job(&case.input[side]);
        recorded.settle();
        recorded.cluster.groups[recorded.group(&key)].elastic_state()
    };
    result(case, state("l").cmp(&state("r")))
}

fn members(case: &Case<'_>) -> CallOutcome {
    // Both sides are members of one group: a pod set has a minimum, a set has members.
    let (mut sets, mut pod_sets) = (Vec::new(), Vec::new());
    for side in ["l", "r"] {
        let mut tree: Value = case.input[side].clone();
        tree["name"] = json!(side);
        if tree["min_available"].is_null() { sets.push(tree) } else { pod_sets.push(tree) }
    }
    let tree = json!({ "sub_group_sets": sets, "pod_sets": pod_sets });
    let mut recorded = RecordedCluster::new(&[]);
    let key = recorded.add_job(&json!({ "uid": "job", "priority": 0, "pod_group": tree }));
    recorded.settle();
    let group: &Group = &recorded.cluster.groups[recorded.group(&key)];
    let find = |name: &str| group.members.enumerated().find(|(_, m)| recorded.cluster.text(m.name) == name);
    match (find("l"), find("r")) {
        (Some((l, _)), Some((r, _))) => result(case, member::by_satisfaction(group, l, r)),
        _ => CallOutcome::Failed("the record names no members".to_owned()),
    }
}

fn kubeflow(case: &Case<'_>) -> CallOutcome {
    let leads = |side: &str| described(&case.input[side]["pod"]).kubeflow_leader;
    result(case, leads("r").cmp(&leads("l")))
}

fn ray(case: &Case<'_>) -> CallOutcome {
    let leads = |side: &str| described(&case.input[side]["pod"]).ray_head;
    result(case, leads("r").cmp(&leads("l")))
}

fn task_priority(case: &Case<'_>) -> CallOutcome {
    let priority = |side: &str| described(&case.input[side]["pod"]).task_priority;
    result(case, pods::by_task_priority(priority("l"), priority("r")))
}

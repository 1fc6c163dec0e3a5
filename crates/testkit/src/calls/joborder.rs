//! Replays traces of the job order: which group is next in the queue tree.

use super::compare::same;
use super::record::{Case, NAMES, list, map, number, text, time_rank, whole};
use super::recorded_cluster::{NOW, RecordedCluster};
use super::{Adapter, Area, CallOutcome};
use kai_engine::Delta;
use kai_engine::explain::reasons;
use kai_engine::ids::GroupIdx;
use kai_engine::input::{Key, QueueInput, QueueShare, WHOLE_GPU};
use kai_engine::order::evict::preemption_delay;
use kai_engine::order::tree_walk::{Purpose, TreeWalk};
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_units::Span;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const AREA: Area = Area { name: "unit-joborder", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    (function == "utils.JobsOrderByQueues").then_some(walk as Adapter)
}

/// The node that everything recorded as allocated is on.
const NODE: &str = "node";

fn walk(case: &Case<'_>) -> CallOutcome {
    let record = case.record;
    let option = |key: &str| record["options"][key].as_bool() == Some(true);
    let jobs: Vec<&Value> = list(&record["operations"]).flat_map(jobs_of).collect();
    let mut plugins = vec![("priority", &Value::Null), ("elastic", &Value::Null)];
    if record["proportion_loaded"].as_bool() == Some(true) {
        plugins.insert(0, ("proportion", &Value::Null));
    }
    let mut recorded = RecordedCluster::new(&plugins);
    let capacity = json!({ "gpu": 100, "cpu_milli": 1e6, "memory_bytes": 1e12, "pods": 1000 });
    recorded.add_node(&json!({ "name": NODE, "allocatable": capacity, "idle": capacity }));
    for (name, queue) in map(&record["queues"]) {
        recorded.cluster.apply(Delta::Queue(Box::new(queue_input(name, queue))));
    }
    let mut known: Vec<(Key, &Value)> = Vec::new();
    for job in jobs {
        let key = RecordedCluster::job_key(job);
        if !known.iter().any(|(other, _)| *other == key) {
            known.push((recorded.add_job(&placed(job)), job));
        }
    }
    recorded.settle();
    replay(record, &recorded, &known, option)
}

fn jobs_of(operation: &Value) -> Vec<&Value> {
    let pushed = (!operation["job"].is_null()).then_some(&operation["job"]);
    list(&operation["jobs"]).chain(pushed).collect()
}

/// A recorded job whose tasks request what they are allocated, on one node.
fn placed(job: &Value) -> Value {
    let mut job = job.clone();
    for tree in ["/pod_group/pod_sets", "/pod_sets"] {
        let sets = job.pointer_mut(tree).and_then(Value::as_array_mut).into_iter().flatten();
        for task in sets.filter_map(|set| set["tasks"].as_array_mut()).flatten() {
            if !task["accepted"].is_null() {
                task["request"] = task["accepted"].clone();
                task["gpu"] = task["accepted_gpu"].clone();
                task["node"] = json!(NODE);
            }
        }
    }
    job
}

fn replay(
    record: &Value,
    recorded: &RecordedCluster,
    known: &[(Key, &Value)],
    option: impl Fn(&str) -> bool,
) -> CallOutcome {
    let cluster = &recorded.cluster;
    let takes_part = |index: GroupIdx| {
        let group = &cluster.groups[index];
        (!option("filter_non_pending") || group.pending() > 0)
            && (!option("filter_unready") || group.is_ready())
            && (!option("filter_non_preemptible") || group.preemptible)
            && (!option("filter_non_active_allocated") || group.active_allocated() > 0)
    };
    let delay = |job: &Value| {
        let filtered = option("filter_within_preemption_delay");
        preemption_delay(&cluster.groups[recorded.group(&RecordedCluster::job_key(job))], NOW)
            .filter(|_| filtered)
    };
    let purpose = if option("victim_queue") { Purpose::Evict } else { Purpose::Place };
    let depth = usize::try_from(whole(&record["options"]["max_jobs_queue_depth"])).ok();
    let group_of = |job: &Value| recorded.group(&RecordedCluster::job_key(job));
    let mut walk: Option<TreeWalk<'_>> = None;
    let start = |groups: Vec<GroupIdx>| {
        TreeWalk::new(cluster, &recorded.policy.registry, purpose, cluster.total(false), groups, depth)
    };
    for operation in list(&record["operations"]) {
        match text(&operation["op"]) {
            "init" => {
                let jobs = || list(&operation["jobs"]).filter(|job| takes_part(group_of(job)));
                let groups = jobs().filter(|job| delay(job).is_none()).map(group_of).collect();
                let started = walk.insert(start(groups));
                let reasons: BTreeMap<&str, BTreeSet<&str>> =
                    jobs().map(|job| (text(&job["uid"]), reasons_after(job, delay(job)))).collect();
                let reasons: BTreeMap<_, _> = reasons.into_iter().filter(|(_, r)| !r.is_empty()).collect();
                let ours = json!([started.len(), (!reasons.is_empty()).then_some(reasons)]);
                let expected = json!([operation["len_after"], operation["job_fit_error_reasons"]]);
                let outcome = same(&expected, &ours);
                if outcome != CallOutcome::Passed {
                    return outcome;
                }
            }
            "push" => {
                walk.get_or_insert_with(|| start(Vec::new())).push(cluster, group_of(&operation["job"]));
            }
            _ => {
                let popped = walk.get_or_insert_with(|| start(Vec::new())).pop(cluster);
                let job = popped.and_then(|g| known.iter().find(|(key, _)| recorded.group(key) == g));
                let name = job.map(|(_, job)| job["name"].clone());
                let outcome = same(&operation["result"]["name"], &json!(name));
                if outcome != CallOutcome::Passed {
                    return outcome;
                }
            }
        }
    }
    CallOutcome::Passed
}

/// The distinct reason codes of a recorded job and of a verdict.
fn reasons_after(job: &Value, verdict: Option<Verdict>) -> BTreeSet<&str> {
    let found = verdict.map(|leading| {
        let (group, queue, further) = (Key::default(), String::new(), Vec::new());
        reasons(&GroupVerdict { group, queue, pending: 1, leading, further })
    });
    let found = found.into_iter().flatten().map(|reason| reason.reason.text());
    list(&job["fit_errors"]).map(|error| text(&error["reason"])).chain(found).collect()
}

fn queue_input(name: &str, queue: &Value) -> QueueInput {
    let units = [1.0, 1e6, WHOLE_GPU as f64];
    let share = |r: usize| {
        let share = &queue["resources"][NAMES[r]];
        let amount = |key: &str| {
            let value = number(&share[key]);
            (value >= 0.0).then(|| (value * units[r]) as i64)
        };
        QueueShare {
            quota: amount("quota"),
            limit: amount("limit"),
            weight: number(&share["over_quota_weight"]),
        }
    };
    QueueInput {
        name: name.to_owned(),
        parent: queue["parent_queue"].as_str().map(str::to_owned),
        priority: whole(&queue["priority"]) as i32,
        created: NOW + Span(time_rank(&queue["creation_timestamp"])),
        cpu: share(0),
        memory: share(1),
        gpu: share(2),
        ..QueueInput::default()
    }
}

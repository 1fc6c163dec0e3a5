//! Replays parts of the victim search.

use super::compare::same;
use super::record::{Case, list, map, text};
use super::recorded_cluster::RecordedCluster;
use super::{Adapter, Area, CallOutcome};
use kai_engine::place::feasible::feasible_nodes;
use kai_engine::signature::{Comparison, Representatives, Scope, Signatures};
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-solver", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "common.FeasibleNodesForJob" => Some(nodes),
        "common.MinimalJobRepresentatives.IsEasierToSchedule" => Some(easier),
        _ => None,
    }
}

/// The recorded nodes are in no order; ours are in name order.
fn nodes(case: &Case<'_>) -> CallOutcome {
    let mut recorded = RecordedCluster::new(&[]);
    for node in list(&case.input["all_nodes"]) {
        recorded.add_node(node);
    }
    let key = recorded.add_job(&case.input["job"]);
    recorded.settle();
    let cluster = &recorded.cluster;
    let set = feasible_nodes(cluster, recorded.group(&key));
    let ours: Vec<&str> =
        set.nodes(cluster).iter().map(|node| cluster.text(cluster.nodes[*node].name)).collect();
    let mut expected: Vec<&str> = list(&case.result()[0]).map(text).collect();
    expected.sort_unstable();
    same(&json!(expected), &json!(ours))
}

/// All jobs of a record may have the same id, so each one gets another.
fn easier(case: &Case<'_>) -> CallOutcome {
    let mut recorded = RecordedCluster::new(&[]);
    let renamed = |job: &Value, id: String| {
        let mut job = job.clone();
        job["uid"] = json!(id);
        job
    };
    let mut failed = Vec::new();
    for (signature, job) in map(&case.input["self"]["representatives"]) {
        failed.push((recorded.add_job(&renamed(job, format!("failed/{signature}"))), &job["uid"]));
    }
    let asked = recorded.add_job(&renamed(&case.input["other_job"], "asked".to_owned()));
    recorded.settle();
    let cluster = &recorded.cluster;
    let mut signatures = Signatures::default();
    let mut representatives = Representatives::new(Scope::Cluster);
    for (key, _) in &failed {
        representatives.note(cluster, &mut signatures, recorded.group(key), 1);
    }
    let (is_easier, with) = match representatives.compare(cluster, &mut signatures, recorded.group(&asked)) {
        Comparison::NoRepresentative => (true, None),
        Comparison::Easier(with) => (true, Some(with)),
        Comparison::NotEasier(with) => (false, Some(with)),
    };
    let with = failed.iter().find(|(key, _)| Some(recorded.group(key)) == with).map(|(_, id)| id);
    same(case.result(), &json!([is_easier, with]))
}

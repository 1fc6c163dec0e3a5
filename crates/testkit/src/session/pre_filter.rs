//! Compares the pre-filter errors of pods with those of a case.

use super::case::Case;
use super::compare::Diff;
use super::load::Session;
use kai_engine::cluster::pod::Status;
use kai_engine::place::checks;
use kai_engine::policy::Policy;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{Cycle, explain, plan};
use serde_json::json;
use std::collections::BTreeMap;

/// Evaluates the checks of every pending pod and compares their errors.
pub(super) fn check(case: &Case, policy: &Policy, session: &Session, diff: &mut Diff) {
    let mut cluster = session.cluster.build();
    // A cycle without actions computes the derived state.
    plan(&mut cluster, policy, Cycle { now: session.now, seed: 1 });
    let mut errors: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (index, pod) in cluster.present_pods().filter(|(_, pod)| pod.state.status == Status::Pending) {
        let Some(group) = pod.group else { continue };
        let key = cluster.pod_key(index);
        let error = checks::check(&cluster, policy, index).err().map(|reason| {
            let verdict = GroupVerdict {
                group: cluster.group_key(group),
                queue: cluster.text(cluster.groups[group].queue_name).to_owned(),
                pending: 1,
                leading: Verdict::PodUnschedulable { pod: key.clone(), reason, gang: None },
                further: Vec::new(),
            };
            explain::pod_message(&verdict, &key)
        });
        errors.insert(key.name, error);
    }
    for (_, task) in case.tasks().filter(|(_, task)| task.status == "Pending") {
        let ours = json!(errors.get(&task.name).cloned().flatten());
        let recorded =
            case.observed.rounds.iter().find_map(|round| round.pre_predicate_errors.get(&task.name));
        let expected = case.expected.as_ref().and_then(|expected| expected.pre_predicate_error.as_ref());
        for theirs in recorded.into_iter().chain(expected) {
            if *theirs != ours {
                diff.add(format!("{}: expected {theirs}, got {ours}", task.name));
            }
        }
    }
}

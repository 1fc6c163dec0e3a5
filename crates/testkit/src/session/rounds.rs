//! Applies a round to the objects of the next: bound pods run, evicted and pipelined pods are pending again.

use super::case::Case;
use super::cycle::CycleResult;
use super::load::Session;
use kai_engine::input::PodPhase;
use kai_engine::outcome::Decision;

/// Applies the decisions of a cycle to the session.
pub(super) fn write_back(case: &Case, session: &mut Session, done: &CycleResult) {
    session.cluster.apply_decisions(&done.outcome.decisions);
    let evicted = |name: &str| {
        done.outcome.decisions.iter().any(|d| matches!(d, Decision::Evict { pod, .. } if pod.name == name))
    };
    for (job, task) in case.tasks() {
        let releasing = task.status == "Releasing" || evicted(&task.name);
        if releasing && job.delete_in_test {
            let node = done.end.pods.get(&task.name).and_then(|pod| pod.node.clone()).or(task.node.clone());
            let now = session.now;
            if let Some(pod) = session.cluster.pod_mut(&task.name) {
                pod.phase = PodPhase::Releasing(now);
                pod.node = node;
            }
        } else if task.status == "Releasing" && session.cluster.pods().any(|p| is_releasing(p, &task.name)) {
            session.cluster.unplace(&task.name);
        }
    }
}

fn is_releasing(pod: &kai_engine::input::PodInput, name: &str) -> bool {
    pod.key.name == name && matches!(pod.phase, PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted)
}

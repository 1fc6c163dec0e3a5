//! From one round to the next: bound pods run, evicted and waiting pods are pending again.

use super::case::Case;
use super::cycle::Done;
use super::load::Session;
use kai_engine::input::PodPhase;
use kai_engine::outcome::Decision;

/// Writes what a cycle decided into the session that the next one begins with.
pub(super) fn write_back(case: &Case, session: &mut Session, done: &Done) {
    session.cluster.apply_decisions(&done.outcome.decisions);
    let evicted = |name: &str| {
        done.outcome.decisions.iter().any(|d| matches!(d, Decision::Evict { pod, .. } if pod.name == name))
    };
    for (job, task) in case.tasks() {
        let leaves = task.status == "Releasing" || evicted(&task.name);
        if leaves && job.delete_in_test {
            let node = done.end.pods.get(&task.name).and_then(|pod| pod.node.clone()).or(task.node.clone());
            let now = session.now;
            if let Some(pod) = session.cluster.pod_mut(&task.name) {
                pod.phase = PodPhase::Releasing(now);
                pod.node = node;
            }
        } else if task.status == "Releasing" && session.cluster.pods().any(|p| is_leaving(p, &task.name)) {
            session.cluster.unplace(&task.name);
        }
    }
}

fn is_leaving(pod: &kai_engine::input::PodInput, name: &str) -> bool {
    pod.key.name == name && matches!(pod.phase, PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted)
}

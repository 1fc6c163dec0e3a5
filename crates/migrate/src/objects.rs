//! Queues, pods and other objects of users that our webhooks or controllers treat differently from KAI's.

use crate::check::subject;
use crate::finding::{Finding, Level, named};
use kai_admission::pod::has_unusable_prefix;
use kai_admission::queue::{self, Change, QuotaValidation};
use kai_api::Queue;
use kai_api::spelling;
use serde_json::Value;

pub(crate) fn check(objects: &[Value], findings: &mut Vec<Finding>) {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| kai_object::kind(object) == kind);
    let pods: Vec<&Value> = of_kind("Pod").filter(|pod| !kai_object::is_terminal(pod)).collect();
    let matching = |holds: fn(&Value) -> bool| -> Vec<String> {
        pods.iter().filter(|pod| holds(pod)).map(|pod| subject(pod)).collect()
    };
    findings.extend(Finding::of_rule("A08", &matching(has_unusable_prefix)));
    findings.extend(Finding::of_rule("A17", &matching(|pod| !spelling::check(pod).is_empty())));
    check_queues(&of_kind("Queue").collect::<Vec<_>>(), findings);
    let suspended: Vec<String> = ["RayCluster", "RayJob", "RayService"]
        .into_iter()
        .flat_map(of_kind)
        .filter(|object| has_suspended_workers(object))
        .map(subject)
        .collect();
    findings.extend(Finding::of_rule("G11", &suspended));
    check_budgets(&of_kind("PodDisruptionBudget").collect::<Vec<_>>(), findings);
    check_old_names(objects, findings);
}

fn check_queues(objects: &[&Value], findings: &mut Vec<Finding>) {
    let mut queues: Vec<Queue> = Vec::new();
    for object in objects {
        match queue::decode(object) {
            Ok(queue) => queues.push(*queue),
            Err(verdict) => {
                let finding = Finding::new(Level::Unsupported, "queue", subject(object));
                findings.push(finding.message(verdict.errors.join("; ")).action("correct the queue"));
            }
        }
    }
    let name = |queue: &Queue| format!("Queue {}", queue.metadata.name.as_deref().unwrap_or_default());
    let contradicting: Vec<String> = queues
        .iter()
        .filter(|queue| !Change::Create(Box::new((*queue).clone())).warnings().is_empty())
        .map(name)
        .collect();
    findings.extend(Finding::of_rule("A16", &contradicting));
    for queue in &queues {
        let change = Change::Create(Box::new(queue.clone()));
        let verdict = queue::check(&change, QuotaValidation::Disabled, &queues);
        if !verdict.errors.is_empty() {
            let finding = Finding::new(Level::Unsupported, "queue", name(queue));
            let message = format!("the webhook refuses such a queue: {}", verdict.errors.join("; "));
            let action = "correct it before its next change; until then it is used as it is stored";
            findings.push(finding.message(message).action(action));
        }
    }
}

fn has_suspended_workers(object: &Value) -> bool {
    ["/spec", "/spec/rayClusterSpec", "/spec/rayClusterConfig"].iter().any(|place| {
        let groups = object.pointer(&format!("{place}/workerGroupSpecs")).and_then(Value::as_array);
        groups.into_iter().flatten().any(|group| group.get("suspend") == Some(&Value::Bool(true)))
    })
}

/// KAI deletes victims whatever their budgets say; the components of an installation have budgets of their own.
fn check_budgets(budgets: &[&Value], findings: &mut Vec<Finding>) {
    let foreign = |budget: &&&Value| {
        let owners = kai_object::meta(budget, "ownerReferences").and_then(Value::as_array);
        !owners
            .into_iter()
            .flatten()
            .any(|owner| kai_object::api_version(owner).starts_with("kai.scheduler/"))
    };
    let subjects: Vec<String> = budgets.iter().filter(foreign).map(|budget| subject(budget)).collect();
    if let Some(subjects) = named(&subjects) {
        let finding = Finding::new(Level::Differs, "disruption-budgets", subjects);
        let message = "KAI evicts pods whatever their disruption budgets say. Here budgets are respected, so that \
                       a reclaim or preemption may have to wait";
        let action =
            "nothing, or `disruptionBudgets: ignore` in the scheduler's configuration to keep KAI's way";
        findings.push(finding.message(message).action(action));
    }
}

/// Names that KAI had before version 0.6, and that need settings to be used on.
fn check_old_names(objects: &[Value], findings: &mut Vec<Finding>) {
    let has_label = |object: &Value, key: &str| {
        kai_object::meta(object, "labels").is_some_and(|labels| labels.get(key).is_some())
    };
    let old_label: Vec<String> =
        objects.iter().filter(|object| has_label(object, "runai/queue")).map(subject).collect();
    if let Some(subjects) = named(&old_label) {
        let finding = Finding::new(Level::Note, "old-names", subjects);
        let message = "the queue label `runai/queue` of versions before 0.6";
        findings.push(
            finding.message(message).action("keep podgrouper.queueLabelKey: runai/queue in the values"),
        );
    }
    let reservations: Vec<String> = objects
        .iter()
        .filter(|object| {
            kai_object::kind(object) == "Pod" && kai_object::namespace(object) == "runai-reservation"
        })
        .map(subject)
        .collect();
    if let Some(subjects) = named(&reservations) {
        let finding = Finding::new(Level::Note, "old-names", subjects);
        let message = "reservation pods with the names of versions before 0.6";
        let action =
            "keep global.resourceReservation.namespace, .serviceAccount and .appLabel: runai-reservation";
        findings.push(finding.message(message).action(action));
    }
}

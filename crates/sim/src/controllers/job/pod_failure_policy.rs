//! Evaluates `podFailurePolicy` (KEP-3329) and `successPolicy` (KEP-3998) of a job.

use super::index;
use kai_object as object;
use serde_json::Value;
use std::collections::BTreeSet;

/// Annotation: failures of the index before this pod was created.
pub(super) const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";

/// The `action` of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    Count,
    Ignore,
    FailIndex,
    /// With the message of the condition.
    FailJob(String),
}

/// The action of the first rule that matches a failed pod.
pub(super) fn failure_action(job: &Value, pod: &Value) -> FailureAction {
    let rules = job.pointer("/spec/podFailurePolicy/rules").and_then(Value::as_array);
    for (number, rule) in rules.into_iter().flatten().enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        return match object::str_at(rule, "/action") {
            "FailJob" => FailureAction::FailJob(format!("{why} matching FailJob rule at index {number}")),
            "FailIndex" => FailureAction::FailIndex,
            "Ignore" => FailureAction::Ignore,
            _ => FailureAction::Count,
        };
    }
    FailureAction::Count
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The message for a matching rule; `None` where it does not match.
fn matches(rule: &Value, pod: &Value) -> Option<String> {
    let whole = format!("{}/{}", object::namespace(pod), object::name(pod));
    if let Some(wanted) = rule.get("onExitCodes").filter(|wanted| !wanted.is_null()) {
        let container = object::str_at(wanted, "/containerName");
        let within = object::str_at(wanted, "/operator") == "In";
        let codes: BTreeSet<i64> = list(wanted, "/values").filter_map(Value::as_i64).collect();
        let statuses =
            list(pod, "/status/containerStatuses").chain(list(pod, "/status/initContainerStatuses"));
        for status in statuses.filter(|status| container.is_empty() || status["name"] == container) {
            let code = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
            // Exit code 0 never matches.
            if let Some(code) = code.filter(|code| *code != 0 && codes.contains(code) == within) {
                let name = object::str_at(status, "/name");
                return Some(format!("Container {name} for pod {whole} failed with exit code {code}"));
            }
        }
        return None;
    }
    for wanted in list(rule, "/onPodConditions") {
        let status = match object::str_at(wanted, "/status") {
            "" => "True",
            status => status,
        };
        let found = list(pod, "/status/conditions")
            .any(|known| known["type"] == wanted["type"] && known["status"] == status);
        if found {
            return Some(format!("Pod {whole} has condition {}", object::str_at(wanted, "/type")));
        }
    }
    None
}

/// The first rule of `successPolicy` that the completed indexes meet.
pub(super) fn success(job: &Value, completed: &BTreeSet<usize>) -> Option<usize> {
    list(job, "/spec/successPolicy/rules").position(|rule| {
        let count = rule.get("succeededCount").and_then(Value::as_u64);
        let count = count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        match rule.get("succeededIndexes").and_then(Value::as_str) {
            Some(text) => {
                let wanted = index::parse(text);
                let done = wanted.intersection(completed).count();
                done >= count.unwrap_or(wanted.len())
            }
            None => count.is_some_and(|count| completed.len() >= count),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failed(code: i64) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n"},
            "status": {
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}],
                "conditions": [{"type": "DisruptionTarget", "status": if code == 143 { "True" } else { "False" }}],
            },
        })
    }

    #[test]
    fn first_matching_rule_decides() {
        let job = json!({"spec": {"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
        ]}}});
        assert_eq!(failure_action(&job, &failed(143)), FailureAction::Ignore);
        let message = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(failure_action(&job, &failed(42)), FailureAction::FailJob(message.to_owned()));
        assert_eq!(failure_action(&job, &failed(3)), FailureAction::FailIndex);
        assert_eq!(failure_action(&job, &failed(1)), FailureAction::Count);
        assert_eq!(failure_action(&json!({}), &failed(1)), FailureAction::Count);
    }

    #[test]
    fn success_policy_matches_indexes_and_counts() {
        let job = |rule: Value| json!({"spec": {"successPolicy": {"rules": [rule]}}});
        let done = BTreeSet::from([0, 2, 3]);
        for (rule, wanted) in [
            (json!({"succeededIndexes": "0,2-3"}), Some(0)),
            (json!({"succeededIndexes": "0-3"}), None),
            (json!({"succeededIndexes": "0-3", "succeededCount": 3}), Some(0)),
            (json!({"succeededCount": 4}), None),
            (json!({"succeededCount": 3}), Some(0)),
        ] {
            assert_eq!(success(&job(rule.clone()), &done), wanted, "{rule}");
        }
    }
}

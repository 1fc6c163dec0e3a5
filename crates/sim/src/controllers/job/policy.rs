//! What a job's policies say of a failed pod, and of the indexes that are done.

use super::index;
use kai_object as object;
use serde_json::Value;
use std::collections::BTreeSet;

/// Where a pod of a job with a limit per index says how often its index failed before it.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// What a failed pod means for its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It counts as a failure.
    Counts,
    /// It is replaced as if it had never been.
    Ignored,
    /// Its index has failed.
    FailsIndex,
    /// The job has failed; with what users are told.
    FailsJob(String),
}

/// Judges a failed pod by the first rule of the job that matches it.
pub(super) fn judge(job: &Value, pod: &Value) -> Judgement {
    let rules = job.pointer("/spec/podFailurePolicy/rules").and_then(Value::as_array);
    for (number, rule) in rules.into_iter().flatten().enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        return match object::str_at(rule, "/action") {
            "FailJob" => Judgement::FailsJob(format!("{why} matching FailJob rule at index {number}")),
            "FailIndex" => Judgement::FailsIndex,
            "Ignore" => Judgement::Ignored,
            _ => Judgement::Counts,
        };
    }
    Judgement::Counts
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Why a rule matches a pod; nothing where it does not.
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
            // A container that ended well matches nothing.
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

/// The first rule for success that the indexes which are done fulfil.
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
    fn the_first_rule_that_matches_judges() {
        let job = json!({"spec": {"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
        ]}}});
        assert_eq!(judge(&job, &failed(143)), Judgement::Ignored);
        let told = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(judge(&job, &failed(42)), Judgement::FailsJob(told.to_owned()));
        assert_eq!(judge(&job, &failed(3)), Judgement::FailsIndex);
        assert_eq!(judge(&job, &failed(1)), Judgement::Counts);
        assert_eq!(judge(&json!({}), &failed(1)), Judgement::Counts);
    }

    #[test]
    fn some_indexes_or_so_many_are_enough() {
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

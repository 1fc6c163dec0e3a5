//! Replays recorded answers of KAI's admission webhooks.
//!
//! Direct cases are posted to the router of the process that serves the webhook. Cases through an API server run on the
//! embedded one, with our definitions and our webhook configurations. Decisions, status codes, the number of warnings and
//! the resulting objects are compared; texts are not, since ours say how to fix the object.

mod case;
mod cluster;
mod difference;
mod direct;
mod json_patch;

use anyhow::{Context, Result};
use case::Case;
use kai_testkit::session::{CaseOutcome, CaseResult};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Replays all cases of a folder, in order of their ids.
pub(super) fn run(folder: &Path) -> Result<Vec<CaseResult>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut results = Vec::new();
    for path in files(&folder.join("cases"))? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let case: Case =
            serde_json::from_str(&text).with_context(|| format!("`{}` is not a case", path.display()))?;
        let outcome = runtime.block_on(replay(&case));
        results.push(CaseResult {
            area: "admission".to_owned(),
            id: format!("admission/{}", case.id),
            outcome,
        });
    }
    Ok(results)
}

async fn replay(case: &Case) -> CaseOutcome {
    let replayed = if case.input.is_direct() { direct::run(case).await } else { cluster::run(case).await };
    match replayed {
        Ok(differences) if differences.is_empty() => CaseOutcome::Passed,
        Ok(differences) => match difference::explain(&case.input) {
            Some(id) => CaseOutcome::ByDesign(id),
            None => CaseOutcome::Failed(format!("    {}\n", differences.join("\n    "))),
        },
        Err(error) => CaseOutcome::Failed(format!("    {error:#}\n")),
    }
}

/// Adds a line where the values differ.
fn compare(differences: &mut Vec<String>, what: &str, expected: &Value, found: &Value) {
    if expected != found {
        differences.push(format!("{what}: KAI {expected}, here {found}"));
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

/// Seven characters that a name was made unique by, which differ from run to run.
const RANDOM: &str = "<7-random>";

/// Replaces the random part of generated names, in all texts of a value.
fn without_random(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(mask(text)),
        Value::Array(items) => items.iter().map(without_random).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), without_random(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn mask(text: &str) -> String {
    let random = |part: &str| part.len() == 7 && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let Some((before, after)) = text.split_once("-shared-gpu") else { return text.to_owned() };
    match before.rsplit_once('-') {
        Some((base, part)) if random(part) => format!("{base}-{RANDOM}-shared-gpu{after}"),
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(case: Value) -> CaseOutcome {
        let case: Case = serde_json::from_value(case).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(replay(&case))
    }

    fn podgroup(spec: &Value, allowed: bool, code: u16) -> Value {
        json!({
            "id": "x", "input": {
                "component": "podgroupcontroller", "flags": [], "operation": "CREATE",
                "path": "/validate-scheduling-run-ai-v2alpha2-podgroup",
                "object": {"metadata": {"name": "pg", "namespace": "a"}, "spec": spec},
            },
            "expect": {"validate": {"allowed": allowed, "code": code}},
        })
    }

    #[test]
    fn direct_case_passes_or_fails_by_decision_and_code() {
        assert_eq!(outcome(podgroup(&json!({"minMember": 1}), true, 200)), CaseOutcome::Passed);
        assert_eq!(outcome(podgroup(&json!({"minMember": "x"}), false, 400)), CaseOutcome::Passed);
        assert!(matches!(outcome(podgroup(&json!({"minMember": "x"}), false, 403)), CaseOutcome::Failed(_)));
        assert!(matches!(outcome(podgroup(&json!({"minMember": 1}), false, 403)), CaseOutcome::Failed(_)));
    }

    #[test]
    fn case_through_the_api_server_compares_what_is_stored() {
        let case = |stored: Value| {
            json!({
                "id": "x", "input": {
                    "via": "kube-apiserver", "operatorConfigCase": "default", "flags": [], "namespace": "team-a",
                    "steps": [{"op": "CREATE", "object": {
                        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"},
                        "spec": {"resources": {"gpu": {"quota": 1}}},
                    }}],
                },
                "expect": {"steps": [{"allowed": true, "code": 201, "stored": {"spec": stored}}]},
            })
        };
        assert_eq!(outcome(case(json!({"resources": {"gpu": {"quota": 1}}}))), CaseOutcome::Passed);
        assert!(matches!(outcome(case(json!({"resources": {}}))), CaseOutcome::Failed(_)));
    }

    #[test]
    fn difference_counts_only_where_its_rule_holds_for_the_input() {
        let case = |parent: &str| {
            json!({
                "id": "x", "input": {
                    "component": "queuecontroller", "flags": [], "operation": "CREATE",
                    "path": "/validate-scheduling-run-ai-v2-queue",
                    "object": {
                        "kind": "Queue", "metadata": {"name": "q"}, "spec": {"parentQueue": parent, "resources": {}},
                    },
                },
                "expect": {"validate": {"allowed": parent == "q", "code": if parent == "q" { 200 } else { 403 }}},
            })
        };
        assert_eq!(outcome(case("q")), CaseOutcome::ByDesign("A11"));
        assert!(matches!(outcome(case("other")), CaseOutcome::Failed(_)));
    }

    #[test]
    fn random_part_of_generated_names_is_masked() {
        assert_eq!(mask("web-5d8f-bcdfghj-shared-gpu-0-vol"), "web-5d8f-<7-random>-shared-gpu-0-vol");
        assert_eq!(mask("half-shared-gpu"), "half-shared-gpu");
        assert_eq!(mask("my-prefix-0"), "my-prefix-0");
    }
}

//! `kai lint` as a process: exit codes and formats.

use super::{assert_rejected, kai, scratch, stdout};
use serde_json::Value;

const SOUND: &str = "kind: Queue\nmetadata: {name: a}\nspec:\n  resources:\n    cpu: {quota: 0, limit: -1}\n    \
                     gpu: {quota: 1, limit: -1}\n    memory: {quota: 0, limit: -1}\n";

#[test]
fn lint_exits_with_1_on_errors_and_on_warnings_only_if_strict() {
    let sound = scratch("lint-sound.yaml", SOUND);
    assert_eq!(kai(&["lint", &sound, "--strict"]).status.code(), Some(0));
    let warning = scratch("lint-warning.yaml", SOUND.replace("limit: -1", "limit: 0"));
    assert_eq!(kai(&["lint", &warning]).status.code(), Some(0));
    assert_eq!(kai(&["lint", &warning, "--strict"]).status.code(), Some(1));
    let error = scratch("lint-error.yaml", "kind: Queue\nmetadata: {name: a}\nspec: {}\n");
    let output = kai(&["lint", &sound, &error]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("queue-invalid") && text.starts_with(&error), "{text}");
    assert!(text.contains("2 documents: 1 errors,"), "{text}");
}

#[test]
fn lint_prints_json_and_sarif() {
    let error = scratch("lint-formats.yaml", "kind: Queue\nmetadata: {name: a}\nspec: {}\n");
    let json: Value = serde_json::from_str(&stdout(&kai(&["lint", &error, "--json"]))).unwrap();
    assert_eq!(json[0]["level"], "error");
    assert_eq!(json[0]["object"], "Queue a");
    let sarif: Value = serde_json::from_str(&stdout(&kai(&["lint", &error, "--sarif"]))).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "queue-invalid");
}

#[test]
fn lint_rejects_files_that_it_cannot_read() {
    assert_rejected(&kai(&["lint", "/nowhere.yaml"]), &["cannot read `/nowhere.yaml`"]);
    let broken = scratch("lint-broken.yaml", "kind: [\n");
    assert_rejected(&kai(&["lint", &broken]), &["line 1", "hint:"]);
}

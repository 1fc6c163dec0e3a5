//! `kai group` as a process: formats, standard input, exit codes and errors.

use super::{assert_rejected, kai, scratch, stderr, stdout};
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Stdio};

const GANG: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kai.scheduler/queue: vision}
  annotations: {kai.scheduler/batch-min-member: \"4\"}
spec:
  parallelism: 4
  template:
    spec: {schedulerName: kai-scheduler, containers: [{name: main, image: a}]}
";

#[test]
fn group_prints_a_table() {
    let file = scratch("group-table.yaml", GANG);
    let output = kai(&["group", &file]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let text = stdout(&output);
    for part in ["pg-train-<uid>", "vision", "train", "4 pods"] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

#[test]
fn group_reads_standard_input_and_prints_pod_groups_as_yaml() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(["group", "-", "-o", "yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(GANG.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with("---\napiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\n"), "{text}");
    assert!(text.contains("minMember: 4") && text.contains("name: pg-train-<uid>"), "{text}");
}

#[test]
fn workload_that_cannot_be_grouped_is_an_error_with_its_place_and_the_others_are_grouped() {
    let broken = GANG.replace("\"4\"", "\"four\"");
    let foreign = GANG.replace("schedulerName: kai-scheduler, ", "").replace("name: train", "name: foreign");
    let other = GANG.replace("name: train", "name: other");
    let file = scratch("group-errors.yaml", [broken, foreign, other].join("---\n"));
    let output = kai(&["group", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let problem = &json["problems"][0];
    assert_eq!(
        (&problem["of"]["line"], &problem["of"]["object"]),
        (&Value::from(1), &Value::from("Job train"))
    );
    let message = problem["message"].as_str().unwrap();
    assert!(
        message.contains("`kai.scheduler/batch-min-member` is `four`, which is not a whole number"),
        "{message}"
    );
    let note = json["notes"][0]["message"].as_str().unwrap();
    assert!(note.contains("hint: set `schedulerName: kai-scheduler`"), "{note}");
    assert_eq!(json["groups"].as_array().unwrap().len(), 1);
    assert_eq!(json["groups"][0]["pods"][0]["count"], 4);
    let text = stdout(&kai(&["group", &file]));
    assert!(text.contains(&format!("error: {file}:1: Job train: ")), "{text}");
}

#[test]
fn group_rejects_files_that_it_cannot_read() {
    assert_rejected(&kai(&["group", "/nowhere.yaml"]), &["cannot read `/nowhere.yaml`"]);
    let broken = scratch("group-broken.yaml", "kind: [\n");
    assert_rejected(&kai(&["group", &broken]), &["line 1", "hint:"]);
}

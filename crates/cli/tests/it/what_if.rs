//! `kai what-if` as a process: kinds of workloads, several documents, standard input, errors, evictions, other configurations,
//! and that nothing is written.

use crate::view_commands::{TestCluster, gang_job};
use crate::{assert_rejected, kai, scratch, stderr, stdout};
use kai_runtime::kind::{EVENT, JOB, NODE, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PYTORCH_JOB: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert, namespace: research, labels: {kai.scheduler/queue: research}}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: &pod {spec: {schedulerName: kai-scheduler, containers: [
      {name: pytorch, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    Worker: {replicas: 2, template: *pod}
";

const JOB_OF_SPEECH: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: one, namespace: speech, labels: {kai.scheduler/queue: speech}}
spec:
  template:
    spec: {schedulerName: kai-scheduler, containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}
";

const WIDGET: &str = "\
apiVersion: example.com/v1
kind: Widget
metadata: {name: gear, namespace: speech}
spec: {size: 3}
";

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.to_str().expect("the path is plain").to_owned()
}

/// With a snapshot of the examples.
fn what_if(snapshot: &str, args: &[&str]) -> Output {
    kai(&[&["what-if", "--snapshot", &example(snapshot)], args].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("it prints JSON: {}", stderr(output)))
}

#[test]
fn workloads_of_third_parties_and_several_documents_are_predicted_together() {
    let file = scratch("what-if-several.yaml", format!("{PYTORCH_JOB}---\n{JOB_OF_SPEECH}"));
    let output = what_if("two-teams.yaml", &["-f", &file, "--json"]);
    let answer = json(&output);
    let submitted = answer["submitted"].as_array().expect("a list");
    let names: Vec<&str> = submitted.iter().filter_map(|of| of["workload"].as_str()).collect();
    assert_eq!(names, ["PyTorchJob/bert", "Job/one"]);
    let pods =
        |of: &Value| of["pods"].as_array().map_or(0, Vec::len) as u64 + of["pending"].as_u64().unwrap_or(0);
    assert_eq!(submitted.iter().map(pods).collect::<Vec<_>>(), [3, 1]);
    let all_start = submitted.iter().all(|of| of["starts"] != "not");
    assert_eq!(output.status.code(), Some(i32::from(!all_start)));
    let text = stdout(&what_if("two-teams.yaml", &["-f", &file]));
    for heading in ["PyTorchJob research/bert\n", "Job speech/one\n"] {
        assert!(text.contains(heading), "`{heading}` is missing in\n{text}");
    }
    assert!(!text.contains("pg-"), "{text}");
}

#[test]
fn manifest_is_read_from_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(["what-if", "-f", "-", "--json", "--snapshot", &example("two-teams.yaml")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("it is piped").write_all(JOB_OF_SPEECH.as_bytes()).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(json(&output)["submitted"][0]["workload"], "Job/one", "{}", stderr(&output));
}

#[test]
fn unknown_kind_is_an_error_alone_and_a_note_beside_others() {
    let file = scratch("what-if-unknown.yaml", WIDGET);
    let words = ["Widget gear", "which pods a Widget has is not known", "hint: "];
    assert_rejected(&what_if("two-teams.yaml", &["-f", &file]), &words);
    let file = scratch("what-if-mixed.yaml", format!("{JOB_OF_SPEECH}---\n{WIDGET}"));
    let output = what_if("two-teams.yaml", &["-f", &file]);
    let notes = stderr(&output);
    assert!(
        notes.contains("what-if-mixed.yaml:8: Widget gear: its kind is not known, and it is left out"),
        "{notes}"
    );
    assert!(stdout(&output).contains("Job speech/one"), "{}", stdout(&output));
}

#[test]
fn evicted_groups_are_named_with_the_rule() {
    let file = example("what-if-urgent.yaml");
    let answer = json(&what_if("evictions.yaml", &["-f", &file, "--json"]));
    assert_eq!(answer["submitted"][0]["starts"], "after_terminations", "{answer}");
    let group = &answer["submitted"][0]["group"];
    let evictions = answer["evictions"].as_array().expect("a list");
    let of_ours = evictions.iter().find(|of| of["for"] == *group).expect("it evicts");
    assert_eq!((&of_ours["by"], &of_ours["victims"][0]["group"]), (&"preempt".into(), &"lab/sweep".into()));
    let text = stdout(&what_if("evictions.yaml", &["-f", &file]));
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(rows.any(|row| row.starts_with("Job lab/hotfix preempt lab/sweep sweep-")), "{text}");
}

#[test]
fn another_configuration_changes_the_prediction() {
    let config = scratch("what-if-allocate.yaml", "actions: allocate\n");
    let args = ["-f", &example("what-if-urgent.yaml"), "--config", &config, "--json"];
    let answer = json(&what_if("evictions.yaml", &args));
    assert_eq!(answer["submitted"][0]["starts"], "not", "nothing is evicted: {answer}");
    assert_eq!(answer["evictions"], serde_json::json!([]));
    let wrong = scratch("what-if-no-config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    assert_rejected(&what_if("evictions.yaml", &["--config", &wrong]), &[&wrong]);
}

/// Every object of these kinds, with its version.
async fn objects(test: &TestCluster) -> Vec<String> {
    let mut all = Vec::new();
    for kind in [POD, JOB, EVENT, NODE, QUEUE.clone(), POD_GROUP.clone()] {
        let list = test.cluster.api().list_dynamic(&kind, "").await.expect("they can be listed");
        all.extend(list.items.iter().map(|item| {
            let metadata = &item["metadata"];
            format!(
                "{} {}/{} {}",
                kind.kind, metadata["namespace"], metadata["name"], metadata["resourceVersion"]
            )
        }));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_to_the_cluster() {
    let test = TestCluster::installed("what-if-writes").await;
    test.group("waiting").await;
    let before = objects(&test).await;
    let file = scratch("what-if-writes.yaml", gang_job("big", 3, 4).to_string());
    let config = scratch("what-if-writes-config.yaml", "actions: allocate, reclaim\n");
    let args = [
        "what-if",
        "-f",
        &file,
        "--set",
        "queue/default-queue.gpu.quota=4",
        "--drain",
        "node-1",
        "--add-nodes",
        "1x4",
    ];
    let output = test.kai(&[&args[..], &["--config", &config]].concat()).await;
    assert_eq!(output.status.code(), Some(1), "three pods of four GPUs do not fit: {}", stderr(&output));
    assert!(stdout(&output).contains("Job default/big"), "{}", stdout(&output));
    assert_eq!(objects(&test).await, before);
}

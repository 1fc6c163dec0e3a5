//! Errors and limits of expansions; what they make is compared in `tests/grouper`.

use super::*;
use serde_json::json;

fn expanded(object: Value) -> Option<Result<Expansion, Invalid>> {
    let object: OwnerObject = serde_json::from_value(object).unwrap();
    expand(&object, &[], &mut Uids::default())
}

fn problem(object: Value) -> String {
    expanded(object).unwrap().unwrap_err().problem
}

#[test]
fn uids_that_were_made_here_are_masked() {
    let mut uids = Uids::default();
    let (one, other) = (uids.make(), uids.make());
    assert_eq!(one.len(), Uids::LENGTH);
    assert_eq!(Uids::masked(&format!("pg-a-{one}-group-1 {other}")), "pg-a-<uid>-group-1 <uid>");
    let real = "0c2c8c5e-7b0e-4f0e-9d3c-0a6b8d3c4f5e";
    assert_eq!(Uids::masked(real), real);
}

#[test]
fn errors_name_the_field() {
    let job = |spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec});
    assert_eq!(problem(job(json!({}))), "`spec.template` is missing; it must be the template of its pods");
    let beyond = problem(job(json!({"parallelism": 4_294_967_296i64, "template": {}})));
    assert!(beyond.contains("`spec.parallelism` is 4294967296, which is beyond 32 bits"), "{beyond}");
    let negative = problem(job(json!({"parallelism": -1, "template": {}})));
    assert!(negative.contains("must not be negative"), "{negative}");
    let label = problem(job(json!({"template": {"metadata": {"labels": {"a": true}}}})));
    assert!(label.starts_with("`spec.template.metadata.labels`") && label.contains("in quotes"), "{label}");
    let text = problem(job(json!({"template": "x"})));
    assert!(text.starts_with("`spec.template` must be an object"), "{text}");
}

#[test]
fn large_homogeneous_workload_is_one_set_and_a_large_numbered_one_is_refused() {
    let template = json!({"spec": {"containers": []}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"parallelism": 2_000_000_000, "template": template}});
    let pods = expanded(job).unwrap().unwrap().pods;
    assert_eq!((pods.len(), pods[0].count), (1, 2_000_000_000));
    let roles = json!({"Worker": {"replicas": 2_000_000_000, "template": template}});
    let numbered = json!({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a"},
        "spec": {"tfReplicaSpecs": roles}});
    assert!(problem(numbered).contains("more than 10000 different pods"));
}

#[test]
fn unknown_kind_has_the_pods_of_its_templates() {
    let template = json!({"spec": {"containers": [], "schedulerName": "kai-scheduler"}});
    let spec = json!({"roles": [{"replicas": 3, "template": template}, {"pod": template}]});
    let of =
        expanded(json!({"apiVersion": "a.b/v1", "kind": "New", "metadata": {"name": "a"}, "spec": spec}));
    let of = of.unwrap().unwrap();
    let counts: Vec<u32> = of.pods.iter().map(|set| set.count).collect();
    assert_eq!(counts, [3, 1]);
    assert_eq!(of.notes, ["one pod of `spec.roles[1].pod` is assumed"]);
    assert!(expanded(json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": []}})).is_none());
}

#[test]
fn train_job_needs_its_runtime() {
    let spec = json!({"runtimeRef": {"name": "torch"}});
    let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "a"}, "spec": spec});
    let problem = problem(job);
    assert!(
        problem.contains("ClusterTrainingRuntime `torch` is not in the files; hint: add it"),
        "{problem}"
    );
}

use super::*;
use kai_cache::snapshot::Limits;
use std::io::Cursor;

const SNAPSHOT: &str = r#"
config: {actions: allocate, tiers: []}
schedulerParams: {schedulerName: kai-scheduler}
rawObjects:
  nodes:
  - metadata: {name: a, uid: node-a, creationTimestamp: "2026-01-01T00:00:00Z", labels: {rack: r1}}
    status: {allocatable: {cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}
  - metadata: {name: b}
    status: {allocatable: {cpu: "8"}, conditions: [{type: Ready, status: "False"}]}
  queues:
  - {metadata: {name: team, creationTimestamp: "2026-01-01T00:00:01.5Z"}, spec: {resources: {gpu: {quota: 4}}}}
  priorityClasses:
  - {metadata: {name: train}, value: 50}
  podGroups:
  - {metadata: {name: g, namespace: lab, uid: group-g}, spec: {queue: team, minMember: 2}}
  pods:
  - metadata: {name: runs, namespace: lab, uid: pod-runs, annotations: {pod-group-name: g},
      ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: job-j}]}
    spec: {nodeName: a, schedulerName: kai-scheduler, priorityClassName: train, priority: 50,
      containers: [{name: c, resources: {requests: {cpu: "1", nvidia.com/gpu: "2"}}}]}
    status: {phase: Running, qosClass: Guaranteed}
  - metadata: {name: waits, namespace: lab}
    spec: {priorityClassName: gone, containers: [{resources: {limits: {nvidia.com/gpu: "1"}}}]}
    status: {phase: Pending}
  - {metadata: {name: done, namespace: lab}, status: {phase: Succeeded}}
  - metadata: {name: going, namespace: lab, deletionTimestamp: "2026-01-01T00:00:00Z"}
    spec: {containers: [{name: c}]}
replay:
  podDisruptionBudgets: [{metadata: {name: p, namespace: lab}}]
"#;

async fn revived() -> (Api, String) {
    let snapshot =
        snapshot::read("test.yaml", Cursor::new(SNAPSHOT), Limits::default()).expect("it is a snapshot");
    let revived = revive(&snapshot, 1).await.expect("it can live");
    let options = Options::new(2, Clock::system());
    let server = ApiServer::load(&options, revived.state.as_slice()).expect("it is a state");
    (Api::new(kube::Client::new(server.service(), "default"), CLIENT), revived.report.text("test.yaml"))
}

#[tokio::test]
async fn objects_are_who_they_were() {
    let (api, report) = revived().await;
    let pods = object::resource(Kind::Pod).expect("pods are made");
    let runs = api.get(&pods, &Key::new("lab", "runs")).await.expect(&report);
    assert_eq!((&runs["metadata"]["uid"], &runs["spec"]["nodeName"]), (&json!("pod-runs"), &json!("a")));
    assert_eq!(
        runs["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "1", "nvidia.com/gpu": "2"})
    );
    assert_eq!(runs["metadata"]["annotations"]["pod-group-name"], "g");
    let owners = runs["metadata"]["ownerReferences"].as_array();
    assert!(owners.is_none_or(Vec::is_empty), "the garbage collector would take it");
    let waits = api.get(&pods, &Key::new("lab", "waits")).await.expect(&report);
    assert_eq!(
        (&waits["status"]["phase"], &waits["spec"]["priorityClassName"]),
        (&json!("Pending"), &Value::Null)
    );
    let node = api.get(&kind::NODE, &Key::new("", "a")).await.expect(&report);
    assert_eq!(
        (&node["metadata"]["uid"], &node["metadata"]["labels"]["rack"]),
        (&json!("node-a"), &json!("r1"))
    );
    assert_eq!(node["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let queue = object::resource(Kind::Queue).expect("queues are made");
    let queue = api.get(&queue, &Key::new("", "team")).await.expect(&report);
    assert_eq!(queue["metadata"]["creationTimestamp"], "2026-01-01T00:00:01Z");
    assert_eq!(queue["spec"]["resources"]["gpu"]["quota"], 4);
}

#[tokio::test]
async fn what_is_left_out_is_told() {
    let (_, report) = revived().await;
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(
        lines[0],
        "brought to life from test.yaml: 2 Pod, 2 Node, 1 Queue, 1 PodGroup, 1 PriorityClass"
    );
    assert_eq!(
        lines[1..4],
        [
            "left out: 1 Pod that had ended",
            "left out: 1 Pod that were being deleted",
            "left out: 1 PodDisruptionBudget of which a snapshot has too little",
        ]
    );
    assert!(lines[4].starts_with("not in a snapshot: "), "{report}");
}

#[test]
fn every_kind_is_made_or_knowingly_left_out() {
    for kind in Kind::ALL {
        assert_eq!(object::resource(*kind).is_some(), object::ORDER.contains(kind), "{kind}");
    }
}

//! What a new user does first.

use crate::world::{Pod, World};
use kai_object as object;
use kai_runtime::kind::{JOB, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_gets_a_group_a_node_and_runs() {
    one_pod(&World::new(2).await).await;
}

/// On two nodes.
pub(crate) async fn one_pod<B>(world: &World<B>) {
    world.pod(Pod::new("hello", "default-queue", 1)).await;
    world.runs("hello", 1).await;
    let pod = world.get(&POD, "hello").await.unwrap();
    let group = object::str_at(&pod, "/metadata/annotations/pod-group-name");
    assert!(group.starts_with("pg-hello-"), "{group}");
    assert_eq!(object::str_at(&pod, "/metadata/annotations/received-resource-type"), "Regular");
    let scheduled = world.events("Scheduled", "hello").await;
    assert_eq!(scheduled.len(), 1, "{scheduled:?}");
    world.pass(Duration::from_secs(5)).await;
    let queue = world.get(&QUEUE, "default-queue").await.unwrap();
    assert_eq!(queue["status"]["allocated"]["nvidia.com/gpu"], "1", "{queue}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_job_runs_to_its_end() {
    one_job(&World::new(1).await).await;
}

/// On one node.
pub(crate) async fn one_job<B>(world: &World<B>) {
    let pod = Pod::new("x", "default-queue", 1).object;
    world
        .create(
            &JOB,
            json!({
                "metadata": {"name": "train", "labels": {"kai.scheduler/queue": "default-queue"}},
                "spec": {
                    "parallelism": 4, "completions": 8,
                    "template": {
                        "metadata": {"annotations": {"sim.kai.scheduler/run-seconds": "30"}},
                        "spec": {
                            "restartPolicy": "Never", "schedulerName": "kai-scheduler",
                            "containers": pod["spec"]["containers"],
                        },
                    },
                },
            }),
        )
        .await;
    world.runs("train", 4).await;
    let groups = world.list(&POD_GROUP).await;
    assert_eq!(groups.len(), 1, "the pods of a job are one group");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_cannot_run_says_why() {
    let world = World::new(1).await;
    world.pod(Pod::new("huge", "default-queue", 9)).await;
    world.pod(Pod::new("lost", "no-such-queue", 1)).await;
    world.pass(Duration::from_secs(10)).await;
    let pod = world.get(&POD, "huge").await.unwrap();
    let conditions = pod["status"]["conditions"].as_array().unwrap().clone();
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["reason"], "Unschedulable", "{scheduled}");
    let events = world.events("Unschedulable", "lost").await;
    assert!(events.iter().any(|text| text.contains("no-such-queue")), "{events:?}");
    let writes = world.list(&kai_runtime::kind::EVENT).await.len();
    world.pass(Duration::from_secs(50)).await;
    assert_eq!(world.list(&kai_runtime::kind::EVENT).await.len(), writes, "nobody is told the same twice");
}

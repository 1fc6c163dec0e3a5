//! The workloads of the quick start: one pod, one job, and pods that cannot be scheduled.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_runtime::kind::{JOB, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_gets_a_pod_group_and_is_bound_and_runs() {
    one_pod(&TestCluster::new(2).await).await;
}

/// On two nodes.
pub(crate) async fn one_pod<B>(cluster: &TestCluster<B>) {
    cluster.create_pod(PodBuilder::new("hello", "default-queue", 1)).await;
    cluster.wait_for_running("hello", 1).await;
    // The pod grouper annotates a pod that is bound without its group.
    let group = async || {
        let pod = cluster.get(&POD, "hello").await.unwrap();
        object::str_at(&pod, "/metadata/annotations/pod-group-name").to_owned()
    };
    cluster.wait_until("the pod names its group", async || !group().await.is_empty()).await;
    assert!(group().await.starts_with("pg-hello-"), "{}", group().await);
    let pod = cluster.get(&POD, "hello").await.unwrap();
    assert_eq!(object::str_at(&pod, "/metadata/annotations/received-resource-type"), "Regular");
    let scheduled = cluster.event_messages("Scheduled", "hello").await;
    assert_eq!(scheduled.len(), 1, "{scheduled:?}");
    cluster.sleep(Duration::from_secs(5)).await;
    let queue = cluster.get(&QUEUE, "default-queue").await.unwrap();
    assert_eq!(queue["status"]["allocated"]["nvidia.com/gpu"], "1", "{queue}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_pods_form_one_group_and_run() {
    one_job(&TestCluster::new(1).await).await;
}

/// On one node.
pub(crate) async fn one_job<B>(cluster: &TestCluster<B>) {
    let pod = PodBuilder::new("x", "default-queue", 1).object;
    cluster
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
    cluster.wait_for_running("train", 4).await;
    let groups = cluster.list(&POD_GROUP).await;
    assert_eq!(groups.len(), 1, "the pods of a job are one group");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pending_pod_has_its_condition_within_two_seconds() {
    let cluster = TestCluster::new(1).await;
    for number in 0..5 {
        let name = format!("huge-{number}");
        let start = tokio::time::Instant::now();
        cluster.create_pod(PodBuilder::new(&name, "default-queue", 9)).await;
        while cluster.pod_condition(&name).await.0 != "Unschedulable" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let reported = start.elapsed();
        assert!(reported < Duration::from_secs(2), "{name}: {reported:?}");
        assert!(reported > Duration::from_secs(1), "most pods are bound before: {reported:?}");
        cluster.sleep(Duration::from_millis(333)).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unschedulable_pod_reports_the_reason_once() {
    let cluster = TestCluster::new(1).await;
    cluster.create_pod(PodBuilder::new("huge", "default-queue", 9)).await;
    cluster.create_pod(PodBuilder::new("lost", "no-such-queue", 1)).await;
    cluster.sleep(Duration::from_secs(10)).await;
    let pod = cluster.get(&POD, "huge").await.unwrap();
    let conditions = pod["status"]["conditions"].as_array().unwrap().clone();
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["reason"], "Unschedulable", "{scheduled}");
    let events = cluster.event_messages("Unschedulable", "lost").await;
    assert!(events.iter().any(|text| text.contains("no-such-queue")), "{events:?}");
    let writes = cluster.list(&kai_runtime::kind::EVENT).await.len();
    cluster.sleep(Duration::from_secs(50)).await;
    assert_eq!(cluster.list(&kai_runtime::kind::EVENT).await.len(), writes, "an event is not repeated");
}

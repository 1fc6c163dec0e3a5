//! Pods with invalid or contradictory annotations, and pods that reference objects that do not exist.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;
use std::time::Duration;

struct InvalidPod {
    name: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    /// Requested whole GPUs.
    gpus: u32,
    /// Part of the message that is reported.
    message: &'static str,
    /// Whether the pod is scheduled in spite of it.
    scheduled: bool,
}

const fn invalid(
    name: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    gpus: u32,
    message: &'static str,
    scheduled: bool,
) -> InvalidPod {
    InvalidPod { name, annotations, gpus, message, scheduled }
}

const INVALID_PODS: [InvalidPod; 13] = [
    invalid(
        "both",
        &[("gpu-fraction", "0.5"), ("gpu-memory", "1000")],
        0,
        "`gpu-fraction` is also set",
        true,
    ),
    invalid("whole", &[("gpu-fraction", "0.5")], 1, "a GPU fraction and whole GPUs", false),
    invalid("whole-memory", &[("gpu-memory", "1000")], 2, "a GPU fraction and whole GPUs", false),
    invalid("more", &[("gpu-fraction", "1.5")], 0, "`1.5` is not a decimal above 0 and up to 1", false),
    invalid("word", &[("gpu-fraction", "abc")], 0, "`abc` is not a decimal above 0 and up to 1", false),
    invalid("negative", &[("gpu-fraction", "-0.5")], 0, "`-0.5` is not a decimal above 0 and up to 1", false),
    invalid(
        "infinite",
        &[("gpu-fraction", "1e309")],
        0,
        "`1e309` is not a decimal above 0 and up to 1",
        false,
    ),
    invalid("nothing", &[("gpu-fraction", "")], 0, "`` is not a decimal above 0 and up to 1", false),
    invalid("debt", &[("gpu-memory", "-5")], 0, "`-5` is not a positive number of MiB", false),
    invalid(
        "none",
        &[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")],
        0,
        "`0` is not a positive",
        false,
    ),
    invalid("amount", &[("gpu-memory", "2Gi")], 0, "`2Gi` is not a positive number of MiB", false),
    invalid("zero", &[("gpu-fraction", "0")], 0, "`0` is not a decimal above 0 and up to 1", false),
    invalid(
        "second",
        &[("gpu-fraction", "half"), ("gpu-memory", "1000")],
        0,
        "`half` is not a decimal above 0 and up to 1",
        false,
    ),
];

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_annotations_are_reported_once_and_do_not_block_valid_pods() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    for InvalidPod { name, annotations, gpus, .. } in INVALID_PODS {
        let pod = PodBuilder::new(name, "a", gpus);
        let pod = annotations.iter().fold(pod, |pod, (name, value)| pod.annotation(name, value));
        cluster.create_pod(pod).await;
    }
    cluster.create_pod(PodBuilder::new("good", "a", 4)).await;
    cluster.wait_for_running("good", 1).await;
    cluster.sleep(Duration::from_secs(30)).await;
    for InvalidPod { name, message: expected, scheduled, .. } in INVALID_PODS {
        let events = cluster.event_messages("InvalidInput", name).await;
        assert!(events.iter().any(|text| text.contains(expected)), "{name}: {events:?}");
        assert_eq!(cluster.bound_pods(name).await.iter().any(|(pod, _)| pod == name), scheduled, "{name}");
        if !scheduled {
            let (reason, message) = cluster.pod_condition(name).await;
            assert_eq!(reason, "Unschedulable", "{name}");
            assert!(message.contains(expected), "{name}: {message}");
        }
    }
    let events = cluster.list(&kai_runtime::kind::EVENT).await.len();
    cluster.sleep(Duration::from_mins(30)).await;
    assert_eq!(cluster.list(&kai_runtime::kind::EVENT).await.len(), events, "an event is not repeated");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_is_scheduled_after_its_annotations_are_corrected() {
    let cluster = TestCluster::new(1).await;
    cluster.create_pod(PodBuilder::new("whole", "default-queue", 1).annotation("gpu-fraction", "0.5")).await;
    cluster.sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.bound_pods("whole").await, []);
    let patch = json!({"metadata": {"annotations": {"gpu-fraction": null}}});
    cluster.patch(&kai_runtime::kind::POD, "whole", &patch).await;
    cluster.wait_for_running("whole", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn missing_pod_group_is_reported_and_the_pod_is_scheduled_once_it_exists() {
    let cluster = TestCluster::new(1).await;
    cluster.create_pod(PodBuilder::new("early", "default-queue", 1).pod_group("late")).await;
    cluster.create_pod(PodBuilder::new("other", "default-queue", 1)).await;
    cluster.wait_for_running("other", 1).await;
    cluster.sleep(Duration::from_secs(10)).await;
    let (_, message) = cluster.pod_condition("early").await;
    assert!(message.contains("the group `late` does not exist in the pod's namespace"), "{message}");
    let spec = json!({"minMember": 1, "queue": "default-queue"});
    cluster.create(&POD_GROUP, json!({"metadata": {"name": "late"}, "spec": spec})).await;
    cluster.wait_for_running("early", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_of_the_pod_group_takes_precedence_over_the_pod_label() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.create_queue("b", 8).await;
    let spec = json!({"minMember": 1, "queue": "a"});
    cluster.create(&POD_GROUP, json!({"metadata": {"name": "torn"}, "spec": spec})).await;
    cluster.create_pod(PodBuilder::new("torn-0", "b", 2).pod_group("torn")).await;
    cluster.wait_for_running("torn-0", 1).await;
    cluster.sleep(Duration::from_secs(5)).await;
    let allocated = |queue: &serde_json::Value| queue["status"]["allocated"]["nvidia.com/gpu"].clone();
    let queue = cluster.get(&kai_scheduler::resources::QUEUE, "a").await.unwrap();
    assert_eq!(allocated(&queue), "2", "{queue}");
    let queue = cluster.get(&kai_scheduler::resources::QUEUE, "b").await.unwrap();
    assert!(allocated(&queue).is_null() || allocated(&queue) == "0", "{queue}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_with_an_empty_group_annotation_or_a_long_name_gets_its_own_group() {
    let cluster = TestCluster::new(1).await;
    let long = "a".repeat(253);
    cluster.create_pod(PodBuilder::new("empty", "default-queue", 1).pod_group("")).await;
    cluster.create_pod(PodBuilder::new(&long, "default-queue", 1)).await;
    cluster.wait_for_running("empty", 1).await;
    cluster.wait_for_running(&long, 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn absurd_gpu_requests_do_not_stop_the_scheduler() {
    let cluster = TestCluster::new(1).await;
    let most = i64::MAX.to_string();
    for number in 0..2 {
        let pod = PodBuilder::new(&format!("memory-{number}"), "default-queue", 0);
        cluster.create_pod(pod.annotation("gpu-memory", &most)).await;
        let mut pod = PodBuilder::new(&format!("mig-{number}"), "default-queue", 0);
        let amount = json!({"nvidia.com/mig-7g.40gb": &most});
        pod.object["spec"]["containers"][0]["resources"] = json!({"requests": amount, "limits": amount});
        cluster.create_pod(pod).await;
    }
    cluster.sleep(Duration::from_secs(5)).await;
    cluster.create_pod(PodBuilder::new("good", "default-queue", 1)).await;
    cluster.wait_for_running("good", 1).await;
    for prefix in ["memory", "mig"] {
        assert_eq!(cluster.bound_pods(prefix).await, [], "no node has as much");
    }
}

//! Elastic groups, and the order of groups by priority.

use super::embedded;
use super::steps::{bounds, cpu_pod};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_scheduler::resources::QUEUE;
use kai_sim::NodeGroup;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn elastic_groups_grow_as_far_as_the_queue_allows() {
    elastic(&embedded("suite-elastic", NodeGroup::gpu_nodes(1, 8)).await).await;
}

/// elastic-01 … 04, on one node.
pub(crate) async fn elastic<B>(cluster: &TestCluster<B>) {
    cluster.cpu_queue("elastic", 500).await;
    let pods = |prefix: &str, cpu: &str, count: usize| -> Vec<PodBuilder> {
        (0..count).map(|number| cpu_pod(&format!("{prefix}-{number}"), "elastic", cpu)).collect()
    };
    let train = json!({"minMember": 1, "priorityClassName": "train"});
    cluster.own_group("wide", "elastic", train.clone(), pods("wide", "500m", 2)).await;
    cluster.settles("wide-", 1, 1).await;
    cluster.clear().await;

    cluster.own_group("small", "elastic", train.clone(), pods("small", "200m", 2)).await;
    cluster.settles("small-", 2, 0).await;
    cluster.clear().await;

    for group in ["both-a", "both-b"] {
        for pod in pods(group, "100m", 3) {
            cluster.create_pod(pod.pod_group(group).label(annotation::POD_GROUP, group)).await;
        }
    }
    for group in ["both-a", "both-b"] {
        cluster.group_alone(group, "elastic", train.clone()).await;
    }
    cluster.settles("both-", 5, 1).await;
    cluster.clear().await;

    for priority in ["1", "3", "2"] {
        let pod =
            cpu_pod(&format!("ranked-{priority}"), "elastic", "200m").label(label::TASK_PRIORITY, priority);
        cluster.create_pod(pod.pod_group("ranked").label(annotation::POD_GROUP, "ranked")).await;
    }
    cluster.group_alone("ranked", "elastic", train).await;
    cluster.settles("ranked-", 2, 1).await;
    cluster.unschedulable("ranked-1").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_with_the_higher_priority_is_first() {
    priority_order(&embedded("suite-priority", NodeGroup::gpu_nodes(1, 2)).await).await;
}

/// priority-01 and 02, on one node with two GPUs. The scheduler is held back by the limit of the queue, instead of being
/// stopped, until both groups exist.
pub(crate) async fn priority_order<B>(cluster: &TestCluster<B>) {
    cluster.create_queue_under(Some("teams"), "one", &bounds(0, 0, 1), json!({})).await;
    let classes = [("low", cluster.class(50).await), ("high", cluster.class(51).await)];
    for by_label in [true, false] {
        cluster.patch(&QUEUE, "one", &json!({"spec": {"resources": {"gpu": bounds(0, 0, 1)}}})).await;
        for (name, class) in &classes {
            let pod = PodBuilder::new(name, "one", 1);
            let pod =
                if by_label { pod.label(label::PRIORITY_CLASS, class) } else { pod.priority_class(class) };
            cluster.waits(pod).await;
        }
        for (name, _) in &classes {
            let is_assigned = async || {
                let pod = cluster.get(&POD, name).await.unwrap_or_default();
                !object::str_at(&pod, "/metadata/annotations/pod-group-name").is_empty()
            };
            cluster.wait_until(&format!("pod `{name}` is assigned to its group"), is_assigned).await;
        }
        cluster.patch(&QUEUE, "one", &json!({"spec": {"resources": {"gpu": bounds(1, 1, 1)}}})).await;
        cluster.scheduled("high").await;
        cluster.unschedulable("low").await;
        cluster.clear().await;
    }
}

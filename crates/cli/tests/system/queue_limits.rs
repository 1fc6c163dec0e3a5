//! GPU limits of queues and of their parents.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_scheduler::resources::QUEUE;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_does_not_exceed_its_limit_or_that_of_its_parent() {
    limits_are_enforced(&TestCluster::new(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn limits_are_enforced<B>(cluster: &TestCluster<B>) {
    let gpus = |quota: i64, limit: i64| json!({"quota": quota, "limit": limit, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "department", &gpus(4, 4), json!({})).await;
    cluster.create_queue_under(Some("department"), "small", &gpus(3, 3), json!({})).await;
    cluster.create_queue_under(Some("department"), "open", &gpus(1, -1), json!({})).await;
    for number in 0..5 {
        cluster.create_pod(PodBuilder::new(&format!("small-{number}"), "small", 1)).await;
    }
    cluster.wait_for_running("small-", 3).await;
    cluster.create_gang("open", "open", 2, 1, json!({})).await;
    let why = cluster.wait_for_condition("open", &cluster.queue_name("department")).await;
    assert!(why.contains("limit"), "{why}");
    let pending = pending(cluster).await;
    assert_eq!(pending.len(), 2, "three of five fit");
    for pod in &pending {
        let named = format!("{} quota has reached the allowable limit", cluster.queue_name("small"));
        let what = format!("the condition of pod `{pod}` names the limit");
        cluster.wait_until(&what, async || cluster.pod_condition(pod).await.1.contains(&named)).await;
    }

    // A deleted pod is replaced by one pending pod, never by more.
    let (first, _) = cluster.bound_pods("small-").await.swap_remove(0);
    cluster.delete_pod(&first).await;
    for _ in 0..20 {
        let placed = cluster.bound_pods("small-").await.len();
        assert!(placed <= 3, "{placed} pods of a queue with a limit of three\n{}", cluster.dump().await);
        cluster.sleep(Duration::from_millis(100)).await;
    }
    cluster.wait_for_running("small-", 3).await;
    let used = || async {
        let queue = cluster.get(&QUEUE, "department").await.unwrap();
        queue["status"]["allocated"]["nvidia.com/gpu"].clone()
    };
    cluster.wait_until("the department has three GPUs", async || used().await == "3").await;
    assert_eq!(cluster.bound_pods("open").await, [], "a gang of two would make five");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn absent_limit_is_zero_as_in_kai() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue_under(Some("teams"), "bare", &json!({"quota": 8}), json!({})).await;
    cluster.create_pod(PodBuilder::new("early", "bare", 1)).await;
    let limit = "bare quota has reached the allowable limit of GPUs. Limit is 0 GPUs";
    cluster
        .wait_until("the condition names the limit", async || {
            cluster.pod_condition("early").await.1.contains(limit)
        })
        .await;
    cluster.patch(&QUEUE, "bare", &json!({"spec": {"resources": {"gpu": {"limit": -1}}}})).await;
    cluster.wait_for_running("early", 1).await;
}

async fn pending<B>(cluster: &TestCluster<B>) -> Vec<String> {
    let placed = cluster.bound_pods("small-").await;
    let all = (0..5).map(|number| format!("small-{number}"));
    all.filter(|name| !placed.iter().any(|(placed, _)| placed == name)).collect()
}

//! Transitions that only the clock triggers: staleness grace periods, minimum runtimes, preemption delays.

use crate::test_cluster::TestCluster;
use kai_api::well_known::annotation::{LAST_EVICTION, LAST_START, STALE_SINCE};
use kai_object as object;
use kai_scheduler::resources::POD_GROUP;
use kai_units::{Span, Timestamp};
use serde_json::json;
use std::time::Duration;

/// Accepted delay after the earliest time, on a busy machine.
const TOLERANCE: Span = Span::from_secs(8);
/// `preemptMinRuntime` and `reclaimMinRuntime` of the queue.
const MIN_RUNTIME: Span = Span::from_secs(12);

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn stale_gang_is_evicted_after_its_grace_period() {
    staleness(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn staleness_grace_period_defaults_to_one_minute() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.create_gang("gang", "a", 4, 1, json!({})).await;
    cluster.wait_for_running("gang", 4).await;
    cluster.delete_pod("gang-0").await;
    cluster.sleep(Duration::from_secs(50)).await;
    assert_eq!(cluster.running("gang").await, 3, "the grace period has not passed");
    cluster.sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.running("gang").await, 0, "{}", cluster.dump().await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_not_preempted_before_the_minimum_runtime() {
    preempt_min_runtime(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_not_reclaimed_before_the_minimum_runtime() {
    reclaim_min_runtime(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_does_not_preempt_before_its_preemption_delay() {
    preemption_delay(&TestCluster::new(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn staleness<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    cluster.create_gang("gang", "a", 4, 1, json!({"stalenessGracePeriod": "8s"})).await;
    cluster.wait_for_running("gang", 4).await;
    cluster.delete_pod("gang-0").await;
    let since = time_of(cluster, "gang", STALE_SINCE).await;
    assert_eq!(cluster.running("gang").await, 3, "the grace period has not passed");
    cluster.wait_for_running("gang", 0).await;
    let evicted = time_of(cluster, "gang", LAST_EVICTION).await;
    assert_within(since, Span::from_secs(8), evicted);
    let events = cluster.event_messages("StaleJob", "gang").await;
    assert_eq!(events, ["Job is stale. 3 pods are active, minMember is 4"]);
}

/// On one node of eight GPUs.
pub(crate) async fn preempt_min_runtime<B>(cluster: &TestCluster<B>) {
    let gpus = json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &gpus, json!({"preemptMinRuntime": "12s"})).await;
    bind_low(cluster).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    assert_evicted_after_min_runtime(cluster).await;
}

/// On one node of eight GPUs.
pub(crate) async fn reclaim_min_runtime<B>(cluster: &TestCluster<B>) {
    let gpus = json!({"quota": 4, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &gpus, json!({"reclaimMinRuntime": "12s"})).await;
    cluster.create_queue("b", 4).await;
    bind_low(cluster).await;
    cluster.create_gang("high", "b", 1, 4, json!({"priorityClassName": "train"})).await;
    assert_evicted_after_min_runtime(cluster).await;
}

/// Creates the gang `low` and waits until it is bound, when its runtime starts.
async fn bind_low<B>(cluster: &TestCluster<B>) {
    cluster.create_gang("low", "a", 8, 1, json!({"priorityClassName": "train"})).await;
    cluster
        .wait_until("all pods of `low` have a node", async || cluster.bound_pods("low").await.len() == 8)
        .await;
}

async fn assert_evicted_after_min_runtime<B>(cluster: &TestCluster<B>) {
    cluster.wait_for_running("high", 1).await;
    let requested = created(cluster, "high").await;
    let started = time_of(cluster, "low", LAST_START).await;
    let evicted = time_of(cluster, "low", LAST_EVICTION).await;
    assert!(
        (evicted - requested).0 > Span::from_secs(2).0,
        "the preemptor did not wait: {requested}, {evicted}"
    );
    assert_within(started, MIN_RUNTIME, evicted);
}

async fn created<B>(cluster: &TestCluster<B>, group: &str) -> Timestamp {
    let group = cluster.get(&POD_GROUP, group).await.unwrap();
    object::str_at(&group, "/metadata/creationTimestamp").parse().unwrap()
}

/// On one node of eight GPUs.
pub(crate) async fn preemption_delay<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    bind_low(cluster).await;
    let spec = json!({"priorityClassName": "build", "preemptionDelay": "8s"});
    cluster.create_gang("high", "a", 1, 8, spec).await;
    cluster.wait_for_condition("high", "preemption delay window").await;
    assert_eq!(cluster.bound_pods("low").await.len(), 8);
    cluster.wait_for_running("high", 1).await;
    let requested = created(cluster, "high").await;
    assert_within(requested, Span::from_secs(8), time_of(cluster, "low", LAST_EVICTION).await);
}

/// Waits for a timestamp annotation of a `PodGroup`.
async fn time_of<B>(cluster: &TestCluster<B>, group: &str, annotation: &str) -> Timestamp {
    let what = format!("group `{group}` has `{annotation}`");
    cluster.wait_until(&what, async || cluster.annotation_time(group, annotation).await.is_some()).await;
    cluster.annotation_time(group, annotation).await.unwrap()
}

/// Annotations have a resolution of one second.
fn assert_within(from: Timestamp, wait: Span, at: Timestamp) {
    let passed = at - from;
    assert!(wait.0 <= passed.0, "{at} is too soon after {from}");
    assert!(passed.0 <= wait.0 + TOLERANCE.0, "{at} is too late after {from}");
}

//! Maximum run times: a group that exceeds one becomes preemptible or ends, after a warning.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::annotation::{
    LAST_EVICTION, LAST_START, MAX_RUNTIME, MAX_RUNTIME_ACTION, MAX_RUNTIME_ENDED, MAX_RUNTIME_GRACE_PERIOD,
    MAX_RUNTIME_WARNING,
};
use kai_object as object;
use kai_runtime::kind::{EVENT, JOB, POD};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_units::{Span, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

/// Accepted delay after a limit, on a busy machine.
const TOLERANCE: Span = Span::from_secs(8);

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_ends_at_its_time_limit_and_is_not_started_again() {
    end(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn non_preemptible_group_is_preempted_after_the_time_limit_of_its_queue() {
    preemptible(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn day_long_limit_warns_ten_minutes_before_and_acts_after_the_grace_period() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    let annotations = json!({MAX_RUNTIME: "24h", MAX_RUNTIME_ACTION: "end", MAX_RUNTIME_GRACE_PERIOD: "1h"});
    cluster.create(&JOB, job("train", "a", &annotations)).await;
    cluster.wait_for_running("train", 2).await;
    let group = group_of(&cluster, "train").await;
    let start = time_of(&cluster, &group, LAST_START).await;
    cluster.sleep(Duration::from_hours(23)).await;
    assert_eq!(cluster.event_messages("MaxRuntimeApproaching", &group).await, Vec::<String>::new());
    cluster.sleep(Duration::from_mins(51)).await;
    let warned = time_of(&cluster, &group, MAX_RUNTIME_WARNING).await;
    assert_eq!(warned - start, Span::from_secs(86_400 - 600));
    let warnings = cluster.event_messages("MaxRuntimeApproaching", &group).await;
    let [warning] = warnings.as_slice() else { panic!("one warning: {warnings:?}") };
    assert!(warning.contains("its maximum run time of 24h0m0s at "), "{warning}");
    assert!(
        warning.ends_with("After a grace period of 1h0m0s its pods are evicted, and it is not started again")
    );
    cluster.sleep(Duration::from_hours(1)).await;
    assert_eq!(cluster.running("train").await, 2, "the grace period has not passed");
    cluster.sleep(Duration::from_mins(10)).await;
    let ended = time_of(&cluster, &group, MAX_RUNTIME_ENDED).await;
    assert_within(start, Span::from_secs(25 * 3_600), ended);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_limits_end_nothing_and_are_reported() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.patch(&QUEUE, "a", &json!({"metadata": {"annotations": {MAX_RUNTIME: "-1s"}}})).await;
    let annotations = json!({MAX_RUNTIME: "1s", MAX_RUNTIME_ACTION: "kill"});
    cluster.create(&JOB, job("train", "a", &annotations)).await;
    cluster.wait_for_running("train", 2).await;
    let group = group_of(&cluster, "train").await;
    cluster.sleep(Duration::from_mins(10)).await;
    assert_eq!(cluster.running("train").await, 2, "{}", cluster.dump().await);
    assert!(cluster.annotation_time(&group, LAST_EVICTION).await.is_none());
    for (object, annotation) in [("a", MAX_RUNTIME), (&*group, MAX_RUNTIME_ACTION)] {
        let reported = cluster.event_messages("InvalidInput", object).await;
        let [message] = reported.as_slice() else { panic!("one event on `{object}`: {reported:?}") };
        assert!(message.contains(annotation) && message.contains("hint: "), "{message}");
    }
    assert_eq!((reached(&cluster, "end"), reached(&cluster, "preemptible")), (0.0, 0.0));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn limit_is_counted_and_reported_once_also_by_the_next_scheduler() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.patch(&QUEUE, "a", &json!({"metadata": {"annotations": {MAX_RUNTIME: "12s"}}})).await;
    cluster.create_gang("notebook", "a", 8, 1, json!({"priorityClassName": "build"})).await;
    cluster
        .wait_until("the limit is reported", async || {
            !cluster.event_messages("MaxRuntimeReached", "notebook").await.is_empty()
        })
        .await;
    assert_eq!((reached(&cluster, "preemptible"), reached(&cluster, "end")), (1.0, 0.0));
    cluster.sleep(Duration::from_mins(3)).await;
    assert_eq!((reached(&cluster, "preemptible"), reached(&cluster, "end")), (1.0, 0.0));
    cluster.backend.faults().crash("kai-scheduler");
    cluster.sleep(Duration::from_mins(3)).await;
    assert!(cluster.scheduler.metrics().len() > 1, "it was restarted");
    let counted = (reached(&cluster, "preemptible"), reached(&cluster, "end"));
    assert_eq!(counted, (0.0, 0.0), "the predecessor has counted it");
    let events = cluster.list(&EVENT).await;
    let about = events.iter().filter(|event| event["reason"] == "MaxRuntimeReached");
    let counts: Vec<u64> = about.map(|event| event["count"].as_u64().unwrap_or(1)).collect();
    assert_eq!(counts, [1]);
}

/// `kai_max_runtime_reached_total` of the running scheduler.
fn reached(cluster: &TestCluster, action: &str) -> f64 {
    let families = cluster.scheduler.metrics().last().expect("the scheduler has started").gather();
    let family = families.iter().find(|family| family.name() == "kai_max_runtime_reached_total");
    let counters = family.map(|family| family.get_metric().to_vec()).unwrap_or_default();
    let own = counters.iter().filter(|metric| metric.get_label().iter().any(|label| label.value() == action));
    own.map(|metric| metric.get_counter().get_value()).sum()
}

/// On one node of eight GPUs.
pub(crate) async fn end<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    cluster.create(&JOB, job("train", "a", &json!({MAX_RUNTIME: "12s", MAX_RUNTIME_ACTION: "end"}))).await;
    cluster.wait_for_running("train", 2).await;
    let group = group_of(cluster, "train").await;
    let start = time_of(cluster, &group, LAST_START).await;
    let warned = time_of(cluster, &group, MAX_RUNTIME_WARNING).await;
    assert!(warned - start < Span::from_secs(12), "the warning precedes the limit: {start}, {warned}");
    let ended = time_of(cluster, &group, MAX_RUNTIME_ENDED).await;
    assert_within(start, Span::from_secs(12), ended);
    cluster.wait_for_running("train", 0).await;
    assert_eq!(cluster.event_messages("MaxRuntimeApproaching", &group).await.len(), 1);
    assert_eq!(cluster.event_messages("MaxRuntimeReached", &group).await.len(), 1);
    // The Job controller makes new pods, which wait, and a neighbour gets the capacity.
    cluster.create_gang("next", "a", 8, 1, json!({})).await;
    cluster.wait_for_running("next", 8).await;
    cluster
        .wait_until("the Job has made new pods", async || {
            let pods = cluster.list(&POD).await;
            pods.iter().filter(|pod| object::name(pod).starts_with("train")).count() >= 2
        })
        .await;
    let said = cluster.wait_for_condition(&group, "maximum run time").await;
    assert!(said.contains("is not started again"), "{said}");
    assert_eq!(time_of(cluster, &group, LAST_START).await, start, "it did not start again");
    // Removing the record lets it start once more.
    cluster.delete(&POD_GROUP, "next").await;
    for at in 0..8 {
        cluster.delete_pod(&format!("next-{at}")).await;
    }
    let patch = json!({"metadata": {"annotations": {MAX_RUNTIME_ENDED: null}}});
    cluster.patch(&POD_GROUP, &group, &patch).await;
    cluster.wait_for_running("train", 2).await;
}

/// On one node of eight GPUs.
pub(crate) async fn preemptible<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 8).await;
    cluster.patch(&QUEUE, "a", &json!({"metadata": {"annotations": {MAX_RUNTIME: "12s"}}})).await;
    cluster.create_gang("notebook", "a", 8, 1, json!({"priorityClassName": "build"})).await;
    cluster
        .wait_until("all pods have a node", async || cluster.bound_pods("notebook").await.len() == 8)
        .await;
    cluster.create_gang("serve", "a", 1, 8, json!({"priorityClassName": "inference"})).await;
    cluster.wait_for_running("serve", 1).await;
    let start = time_of(cluster, "notebook", LAST_START).await;
    assert_within(start, Span::from_secs(12), time_of(cluster, "notebook", LAST_EVICTION).await);
    let reached = cluster.event_messages("MaxRuntimeReached", "notebook").await;
    let [message] = reached.as_slice() else { panic!("one event: {reached:?}") };
    assert!(message.contains("12s of queue"), "{message}");
}

fn job(name: &str, queue: &str, annotations: &Value) -> Value {
    let pod = PodBuilder::new("x", queue, 1).object;
    json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": annotations},
        "spec": {
            "parallelism": 2, "completions": 2, "backoffLimit": 100,
            "template": {"spec": {
                "restartPolicy": "Never", "schedulerName": "kai-scheduler", "containers": pod["spec"]["containers"],
                "terminationGracePeriodSeconds": 1,
            }},
        },
    })
}

/// The pod group of a Job.
async fn group_of<B>(cluster: &TestCluster<B>, job: &str) -> String {
    let groups = cluster.list(&POD_GROUP).await;
    let names = groups.iter().map(|group| object::name(group).to_owned());
    names.into_iter().find(|name| name.starts_with(&format!("pg-{job}-"))).expect("the group exists")
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

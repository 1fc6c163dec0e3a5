//! Time-based fair share: historical usage, from Prometheus or from the usage ledger, reduces the over-quota share of a queue.

use crate::high_availability;
use crate::test_cluster::{PodBuilder, TestCluster};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use kai_components::{Component, ComponentOptions};
use kai_runtime::kind::{self, Key};
use kai_scheduler::usage::ledger::history;
use kai_scheduler::usage::{Config, Source};
use kai_sim::{NodeGroup, Outage};
use kai_units::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// Starts one node with nine GPUs, and a scheduler that queries this database.
async fn start(database: Router) -> TestCluster {
    let settings = json!({"clientType": "prometheus", "connectionString": "http://db"});
    let config = Config::parse(&settings, |_| None).unwrap();
    let source = Source::new(config, kube::Client::new(database, "default"));
    let mut options = ComponentOptions::simulated();
    options.scheduler.usage = Some(source);
    TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 9)], &options).await
}

/// A Prometheus response in which queue `a` used half of all GPUs.
async fn half_used_by_a(form: String) -> String {
    let sample = |labels: Value, value: &str| json!({"metric": labels, "value": [0, value]});
    let result = if form.contains("nvidia_com_gpu") {
        vec![sample(json!({}), "1000")]
    } else if form.contains("kai_queue_allocated_gpus") {
        vec![sample(json!({"queue_name": "a"}), "500"), sample(json!({"queue_name": "b"}), "0")]
    } else {
        Vec::new()
    };
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_with_high_historical_usage_gets_a_smaller_over_quota_share() {
    let cluster = start(Router::new().route("/api/v1/query", post(half_used_by_a))).await;
    for queue in ["a", "b"] {
        cluster.create_queue(queue, 0).await;
        for number in 0..9 {
            cluster.create_pod(PodBuilder::new(&format!("{queue}-{number}"), queue, 1)).await;
        }
    }
    cluster.wait_for_running("b-", 6).await;
    cluster.wait_for_running("a-", 3).await;
    cluster.sleep(Duration::from_mins(10)).await;
    assert_eq!((cluster.running("a-").await, cluster.running("b-").await), (3, 6), "the shares stay stable");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failing_usage_database_delays_only_the_first_cycle_by_a_minute() {
    let broken = || async { StatusCode::SERVICE_UNAVAILABLE };
    let cluster = start(Router::new().route("/api/v1/query", post(broken))).await;
    cluster.create_pod(PodBuilder::new("first", "default-queue", 1)).await;
    let created = tokio::time::Instant::now();
    cluster.wait_for_running("first", 1).await;
    let waited = created.elapsed().as_secs();
    assert!((50..70).contains(&waited), "the pod waited {waited} s");
    cluster.create_pod(PodBuilder::new("second", "default-queue", 1)).await;
    let created = tokio::time::Instant::now();
    cluster.wait_for_running("second", 1).await;
    assert!(created.elapsed() < Duration::from_secs(10), "{:?}", created.elapsed());
}

/// A scheduler configuration with a usage ledger.
pub(crate) const LEDGER_CONFIG: &str = "\
actions: allocate, consolidation, reclaim, preempt, stalegangeviction
usageDBConfig:
  clientType: ledger
  usageParams: {fetchInterval: 2s}
";

/// What a queue uses is saved in a ConfigMap.
pub(crate) async fn usage_ledger<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("research", 0).await;
    cluster.create_pod(PodBuilder::new("p", "research", 2)).await;
    cluster.wait_for_running("p", 1).await;
    let queue = cluster.queue_name("research");
    cluster
        .wait_until("the usage is saved", async || {
            let maps = cluster.api().list_dynamic(&kind::CONFIG_MAP, "kai-scheduler").await.unwrap();
            maps.items.iter().any(|map| {
                let is_ledger = map["metadata"]["labels"]["kai.scheduler/usage-ledger"].is_string();
                is_ledger && map["data"].get(&queue).is_some()
            })
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_is_saved_in_a_config_map() {
    usage_ledger(&start_with_ledger().await).await;
}

/// Starts one node with nine GPUs, and a scheduler that keeps a usage ledger.
async fn start_with_ledger() -> TestCluster {
    let config = Config::parse(&json!({"usageParams": {"windowSize": "1d"}}), |_| None).unwrap();
    let mut options = ComponentOptions::simulated();
    options.scheduler.usage = Some(Source::connect(config).unwrap());
    TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 9)], &options).await
}

/// The GPU hours of a queue in its saved record.
async fn saved_gpu_hours(cluster: &TestCluster, queue: &str) -> f64 {
    let key = Key::new("kai-scheduler", "kai-scheduler-usage");
    let map = cluster.api().get_dynamic(&kind::CONFIG_MAP, &key).await.unwrap();
    let record = kai_object::str_at(&map, &format!("/data/{queue}")).to_owned();
    let now = Timestamp(cluster.backend.clock().now().as_microsecond());
    let samples = history([(queue.to_owned(), record)], now).remove(queue).unwrap();
    let ends = samples.iter().skip(1).map(|next| next.from).chain([now]);
    samples
        .iter()
        .zip(ends)
        .map(|(sample, end)| sample.amounts[2] * (end - sample.from).0 as f64 / 3.6e9)
        .sum()
}

/// Two replicas of the scheduler. The leader crashes at different times after an allocation has changed, before and after the
/// change is saved.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn leader_change_loses_at_most_a_minute_of_usage() {
    for seconds in [5, 35, 70] {
        let config = Config::parse(&json!({"usageParams": {"windowSize": "1d"}}), |_| None).unwrap();
        let mut options = ComponentOptions::simulated();
        options.scheduler.usage = Some(Source::connect(config).unwrap());
        let (cluster, _) = high_availability::start(1, [NodeGroup::gpu_nodes(1, 8)], &options).await;
        cluster.create_queue("a", 8).await;
        cluster.create_pod(PodBuilder::new("first", "a", 8)).await;
        cluster.wait_for_running("first", 1).await;
        let began = tokio::time::Instant::now();
        cluster.sleep(Duration::from_mins(30)).await;
        cluster.delete_pod("first").await;
        cluster.wait_until("the pod is gone", async || cluster.list(&kind::POD).await.is_empty()).await;
        let used = began.elapsed();
        cluster.sleep(Duration::from_secs(seconds)).await;
        let leader = high_availability::leader(&cluster, Component::Scheduler).await.unwrap();
        cluster.backend.faults().partition(leader);
        cluster.sleep(Duration::from_mins(5)).await;
        let next = high_availability::leader(&cluster, Component::Scheduler).await;
        assert!(next.is_some_and(|next| next != leader), "{next:?}");
        // The successor counts the old allocation until it leads, which takes up to 20 s.
        let lost = saved_gpu_hours(&cluster, "a").await / 8.0 - used.as_secs_f64() / 3_600.0;
        let most = Duration::from_mins(1) + high_availability::REPLACED_WITHIN;
        assert!(lost.abs() * 3_600.0 < most.as_secs_f64(), "{seconds}: {} s", lost * 3_600.0);
    }
}

async fn ledger_version(cluster: &TestCluster) -> Option<String> {
    let key = Key::new("kai-scheduler", "kai-scheduler-usage");
    let map = cluster.api().get_dynamic(&kind::CONFIG_MAP, &key).await.ok()?;
    Some(kai_object::meta_str(&map, "resourceVersion").to_owned())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_ledger_survives_a_crash_and_lowers_the_share_of_the_queue_that_used_more() {
    let cluster = start_with_ledger().await;
    for queue in ["a", "b"] {
        cluster.create_queue(queue, 0).await;
    }
    for number in 0..9 {
        cluster.create_pod(PodBuilder::new(&format!("a-{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("a-", 9).await;
    cluster.sleep(Duration::from_mins(3)).await;
    let saved = ledger_version(&cluster).await;
    assert!(saved.is_some(), "it is saved within a minute");
    cluster.sleep(Duration::from_hours(6)).await;
    assert_eq!(ledger_version(&cluster).await, saved, "nothing is written while allocations are unchanged");

    cluster.backend.faults().crash("kai-scheduler");
    for number in 0..9 {
        cluster.create_pod(PodBuilder::new(&format!("b-{number}"), "b", 1)).await;
    }
    // Queue a used all GPUs of the window, so its over-quota weight is 0. Without past usage, b would get four or five.
    cluster.wait_for_running("b-", 9).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_ledger_that_cannot_be_saved_still_counts() {
    let cluster = start_with_ledger().await;
    let path = "/api/v1/namespaces/kai-scheduler/configmaps";
    cluster.backend.faults().set_outage("kai-scheduler", Outage::storage_full(path));
    for queue in ["a", "b"] {
        cluster.create_queue(queue, 0).await;
    }
    for number in 0..9 {
        cluster.create_pod(PodBuilder::new(&format!("a-{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("a-", 9).await;
    cluster.sleep(Duration::from_hours(6)).await;
    assert_eq!(ledger_version(&cluster).await, None);
    for number in 0..9 {
        cluster.create_pod(PodBuilder::new(&format!("b-{number}"), "b", 1)).await;
    }
    cluster.wait_for_running("b-", 9).await;
}

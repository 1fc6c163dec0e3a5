//! Time-based fair share: historical usage from Prometheus reduces the over-quota share of a queue.

use crate::test_cluster::{PodBuilder, TestCluster};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use kai_components::ComponentOptions;
use kai_scheduler::usage::{Config, Source};
use kai_sim::NodeGroup;
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

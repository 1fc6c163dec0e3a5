//! Whoever used much in the past gets less of what is left: usage from a database, in the living loop.

use crate::world::{Pod, World};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use kai_cli::stack;
use kai_scheduler::usage::{Config, Source};
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::time::Duration;

/// A world of one node with nine GPUs, whose scheduler reads usage from this.
async fn world(database: Router) -> World {
    let written = json!({"clientType": "prometheus", "connectionString": "http://db"});
    let config = Config::read(&written, |_| None).unwrap();
    let source = Source::new(config, kube::Client::new(database, "default"));
    let mut options = stack::Options::simulated();
    options.scheduler.usage = Some(source);
    World::of(1, [NodeGroup::gpu_nodes(1, 9)], &options).await
}

/// As Prometheus writes it: queue `a` held half of all GPUs.
async fn half_was_used_by_a(form: String) -> String {
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
async fn a_queue_that_used_much_gets_less_of_what_is_left() {
    let world = world(Router::new().route("/api/v1/query", post(half_was_used_by_a))).await;
    for queue in ["a", "b"] {
        world.queue(queue, 0).await;
        for number in 0..9 {
            world.pod(Pod::new(&format!("{queue}-{number}"), queue, 1)).await;
        }
    }
    world.runs("b-", 6).await;
    world.runs("a-", 3).await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!((world.running("a-").await, world.running("b-").await), (3, 6), "and it stays so");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_database_that_fails_holds_the_first_cycle_up_for_a_minute_and_none_after_it() {
    let broken = || async { StatusCode::SERVICE_UNAVAILABLE };
    let world = world(Router::new().route("/api/v1/query", post(broken))).await;
    world.pod(Pod::new("first", "default-queue", 1)).await;
    let asked = tokio::time::Instant::now();
    world.runs("first", 1).await;
    let waited = asked.elapsed().as_secs();
    assert!((50..70).contains(&waited), "it waited {waited} s");
    world.pod(Pod::new("second", "default-queue", 1)).await;
    let asked = tokio::time::Instant::now();
    world.runs("second", 1).await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

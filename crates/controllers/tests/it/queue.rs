//! The queue controller: status and metrics of queues.

use crate::{Component, TestCluster, k, queue, queue_counts};
use kai_runtime::api::Part;
use kai_runtime::kind::Key;
use kai_sim::FaultRates;
use prometheus::{Encoder, TextEncoder};
use serde_json::{Value, json};
use std::time::Duration;

fn scrape(test: &TestCluster) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&test.metrics.gather(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Sets the GPUs of a group in the status.
async fn set_gpus(test: &TestCluster, name: &str, queue: &str, gpus: u32) {
    if test.find(&k::POD_GROUP, name).await.is_none() {
        test.create(&k::POD_GROUP, json!({"metadata": {"name": name}, "spec": {"queue": queue}})).await;
    }
    let amounts = json!({"nvidia.com/gpu": gpus.to_string()});
    let status = json!({"status": {"resourcesStatus": {"requested": amounts, "allocated": amounts}}});
    test.cluster
        .api()
        .patch_dynamic(&k::POD_GROUP, &Key::new("default", name), Part::Status, &status)
        .await
        .unwrap();
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_that_is_deleted_before_a_late_response_leaves_its_parent_and_the_metrics() {
    let test = TestCluster::new(&[Component::Queue]).await;
    test.create(&k::QUEUE, queue("root", "")).await;
    test.create(&k::QUEUE, queue("team", "root")).await;
    test.sleep(5.0).await;
    let late =
        FaultRates { response_late: 1_000_000, delay_max: Duration::from_mins(1), ..FaultRates::default() };
    test.cluster.faults().set_client_rates(Component::Queue.client(), late);
    for gpus in 1..10 {
        set_gpus(&test, "g", "team", gpus).await;
        test.until(&k::QUEUE, "team", |queue| queue_counts(queue, "nvidia.com/gpu")[1] == gpus.to_string())
            .await;
        // The response to this write is still on its way.
        test.delete(&k::QUEUE, "team").await;
        test.sleep(300.0).await;
        let root = test.find(&k::QUEUE, "root").await.unwrap();
        assert_eq!(root["status"].get("childQueues"), None, "{root:#}");
        assert!(!scrape(&test).contains(r#"queue_name="team""#));
        test.create(&k::QUEUE, queue("team", "root")).await;
        test.sleep(300.0).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn three_levels_are_summed_with_one_write_per_queue() {
    let test = TestCluster::new(&[Component::Queue]).await;
    for (name, parent) in [("root", ""), ("dept", "root"), ("b", "dept"), ("a", "dept")] {
        test.create(&k::QUEUE, queue(name, parent)).await;
    }
    test.sleep(5.0).await;
    let children = |queue: &Value| queue["status"]["childQueues"].clone();
    assert_eq!(children(&test.find(&k::QUEUE, "dept").await.unwrap()), json!(["a", "b"]));
    let before = test.writes(Component::Queue).len();
    for at in 0..20 {
        set_gpus(&test, &format!("g{at}"), if at % 2 == 0 { "a" } else { "b" }, 1).await;
    }
    test.until(&k::QUEUE, "root", |queue| queue_counts(queue, "nvidia.com/gpu") == ["20", "20"]).await;
    test.until(&k::QUEUE, "a", |queue| queue_counts(queue, "nvidia.com/gpu") == ["10", "10"]).await;
    test.sleep(10.0).await;
    assert_eq!(test.writes(Component::Queue).len() - before, 4, "one for each queue");
    assert!(scrape(&test).contains(
        r#"kai_queue_allocated_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept"} 20"#
    ));

    test.delete(&k::POD_GROUP, "g0").await;
    test.patch(&k::QUEUE, "b", json!({"spec": {"parentQueue": "root"}})).await;
    test.until(&k::QUEUE, "dept", |queue| queue_counts(queue, "nvidia.com/gpu") == ["9", "9"]).await;
    test.until(&k::QUEUE, "root", |queue| children(queue) == json!(["b", "dept"])).await;
    test.delete(&k::QUEUE, "a").await;
    test.until(&k::QUEUE, "dept", |queue| {
        queue.get("status").is_none_or(|status| status.get("childQueues").is_none())
    })
    .await;
    assert!(!scrape(&test).contains(r#"queue_name="a""#));
}

//! Metrics as a scraper sees them.

use super::*;
use crate::queue::ledger::Queue;
use prometheus::{Encoder, TextEncoder};
use serde_json::{Value, json};

fn scrape(registry: &Registry) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn queue(object: Value) -> Queue {
    Queue::read(serde_json::from_value(object).unwrap()).1
}

fn totals(allocated: &Value) -> Totals {
    Totals { allocated: Sum::read(&serde_json::from_value(allocated.clone()).unwrap()), ..Totals::default() }
}

#[test]
fn metric_names_are_those_of_kai() {
    let registry = Registry::new();
    let mut metrics = Metrics::new(&Options::default(), &registry).unwrap();
    let team = queue(json!({"metadata": {"name": "team"}, "spec": {"displayName": "The team", "resources": {
        "gpu": {"quota": 2.5}, "cpu": {"quota": 1500}, "memory": {"quota": -1},
    }}}));
    let held = totals(
        &json!({"nvidia.com/gpu": "333333333n", "cpu": "2500m", "memory": "1Gi", "gpu.example.com": "9"}),
    );
    metrics.publish("team", &team, &held);
    let labels = r#"{queue_display_name="The team",queue_metadata_name="team",queue_name="team"}"#;
    let expected = [
        ("queue_allocated_cpu_cores", "2.5"),
        ("queue_allocated_gpus", "0.3333"),
        ("queue_allocated_memory_bytes", "1073741824"),
        ("queue_deserved_gpus", "2.5"),
        ("queue_info", "1"),
        ("queue_quota_cpu_cores", "1.5"),
        ("queue_quota_memory_bytes", "-1"),
    ];
    let expected: Vec<String> =
        expected.iter().map(|(name, value)| format!("kai_{name}{labels} {value}")).collect();
    assert_eq!(scrape(&registry), expected.join("\n"));
}

#[test]
fn queue_labels_become_metric_labels() {
    let registry = Registry::new();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let options = Options {
        metrics_namespace: "x".to_owned(),
        metric_labels: vec![pair("z/tier", "tier"), pair("a/owner", "owner"), pair("b/none", "none")],
        metric_label_defaults: vec![pair("z/tier", "bronze")],
        ..Options::default()
    };
    let mut metrics = Metrics::new(&options, &registry).unwrap();
    let team = queue(json!({"metadata": {"name": "team", "labels": {"a/owner": "ann"}}, "spec": {}}));
    metrics.publish("team", &team, &Totals::default());
    let info = scrape(&registry).lines().find(|line| line.starts_with("x_queue_info")).unwrap().to_owned();
    let expected = r#"x_queue_info{none="",owner="ann",queue_display_name="",queue_metadata_name="team",queue_name="team",tier="bronze"} 1"#;
    assert_eq!(info, expected);
}

#[test]
fn series_of_deleted_or_renamed_queues_are_removed() {
    let registry = Registry::new();
    let mut metrics = Metrics::new(&Options::default(), &registry).unwrap();
    let named = |name: &str| queue(json!({"metadata": {"name": "team"}, "spec": {"displayName": name}}));
    metrics.publish("team", &named("old"), &Totals::default());
    metrics.publish("team", &named("new"), &Totals::default());
    assert_eq!(scrape(&registry).lines().count(), 7);
    assert!(!scrape(&registry).contains("old"));
    metrics.remove("team");
    assert_eq!(scrape(&registry), "");
}

#[test]
fn component_can_restart_with_the_same_registry() {
    let registry = Registry::new();
    let first = Metrics::new(&Options::default(), &registry).unwrap();
    assert!(Metrics::new(&Options::default(), &registry).is_err());
    drop(first);
    Metrics::new(&Options::default(), &registry).unwrap();
}

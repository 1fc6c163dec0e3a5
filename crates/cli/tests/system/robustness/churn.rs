//! High rates of updates, creations and deletions: memory and requests stay proportional to the objects that exist.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::{COMPONENTS, ComponentOptions};
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use serde_json::json;
use std::time::Duration;

/// The value of a scheduler metric without labels.
fn metric(cluster: &TestCluster, name: &str) -> f64 {
    let registry = cluster.scheduler.metrics().pop().expect("the scheduler has started");
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).expect("the metric is registered");
    let sample = &family.get_metric()[0];
    sample.get_gauge().get_value() + sample.get_counter().get_value()
}

/// Requests that all components have sent.
fn requests(cluster: &TestCluster) -> u64 {
    COMPONENTS.iter().map(|component| cluster.backend.faults().counts(component.name).requests).sum()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn thousands_of_pod_updates_cause_no_requests_and_do_not_grow_memory() {
    let options = ComponentOptions {
        scheduler: kai_scheduler::Options { stale_names_max: 200, ..kai_scheduler::Options::default() },
        ..ComponentOptions::simulated()
    };
    let cluster = TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 8)], &options).await;
    cluster.create_pod(PodBuilder::new("busy", "default-queue", 1)).await;
    cluster.wait_for_running("busy", 1).await;
    cluster.sleep(Duration::from_mins(1)).await;
    let (requests_before, names_before) = (requests(&cluster), metric(&cluster, "kai_kept_names"));
    for number in 0..3_000 {
        let patch = json!({"metadata": {"labels": {"step": number.to_string()}}});
        cluster.patch(&POD, "busy", &patch).await;
    }
    cluster.sleep(Duration::from_secs(20)).await;
    assert!(requests(&cluster) - requests_before < 100, "{} requests", requests(&cluster) - requests_before);
    let now = metric(&cluster, "kai_kept_names");
    assert!(now < 2.0 * names_before + 250.0, "{now} names, before that {names_before}");
    assert!(metric(&cluster, "kai_audit_differences_total").abs() < f64::EPSILON);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn creating_and_deleting_hundreds_of_pods_leaves_no_objects_and_no_memory() {
    let options = ComponentOptions {
        scheduler: kai_scheduler::Options { stale_names_max: 200, ..kai_scheduler::Options::default() },
        ..ComponentOptions::simulated()
    };
    let cluster = TestCluster::with_options(1, [NodeGroup::gpu_nodes(4, 8)], &options).await;
    let mut names = Vec::new();
    for round in 0..16 {
        for number in 0..20 {
            cluster.create_pod(PodBuilder::new(&format!("p-{round}-{number}"), "default-queue", 1)).await;
        }
        cluster.wait_for_running(&format!("p-{round}-"), 20).await;
        for number in 0..20 {
            cluster.delete_pod(&format!("p-{round}-{number}")).await;
        }
        cluster.sleep(Duration::from_secs(40)).await;
        names.push(metric(&cluster, "kai_kept_names"));
    }
    let most = names.iter().copied().fold(0.0, f64::max);
    assert!(most < 1_500.0, "{names:?} names");
    assert!(
        names.windows(2).any(|pair| pair[1] < pair[0]),
        "names of deleted objects are dropped: {names:?} names"
    );
    cluster.sleep(Duration::from_mins(2)).await;
    for kind in
        [POD, kai_scheduler::resources::BIND_REQUEST.clone(), kai_scheduler::resources::POD_GROUP.clone()]
    {
        assert_eq!(cluster.list(&kind).await.len(), 0, "{}", kind.plural);
    }
}

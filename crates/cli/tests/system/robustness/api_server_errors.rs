//! The API server answers 429, 500 or 503 for minutes: clients back off, no component crashes, and work resumes.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::{COMPONENTS, name};
use kai_sim::Outage;
use std::time::Duration;

const OUTAGE: Duration = Duration::from_mins(5);
/// Limit of the requests of one component during the outage: one every 2.5 seconds.
const REQUESTS_MAX: u64 = 120;

/// Injects an outage while pods are created; returns the requests of each component meanwhile.
async fn run_outage(
    cluster: &TestCluster,
    names: &[&'static str],
    outage: &Outage,
) -> Vec<(&'static str, u64)> {
    let faults = cluster.backend.faults();
    let requests = |name: &&'static str| (*name, faults.counts(name).requests);
    // A failing API server drops its watches first.
    for name in names {
        faults.partition(name);
    }
    cluster.sleep(Duration::from_millis(1)).await;
    for name in names {
        faults.heal(name);
        faults.set_outage(name, outage.clone());
    }
    let before: Vec<(&str, u64)> = names.iter().map(requests).collect();
    for number in 0..24 {
        cluster.create_pod(PodBuilder::new(&format!("pod-{number}"), "default-queue", 1)).await;
        cluster.sleep(OUTAGE / 24).await;
    }
    let after = names.iter().map(requests);
    let sent = after.zip(before).map(|((name, after), (_, before))| (name, after - before)).collect();
    for name in names {
        assert_eq!(faults.counts(name).crashes, 0, "{name}");
        faults.heal(name);
    }
    sent
}

async fn all_components_back_off_and_resume(outage: Outage) {
    let cluster = TestCluster::new(4).await;
    cluster.create_pod(PodBuilder::new("first", "default-queue", 1)).await;
    cluster.wait_for_running("first", 1).await;
    let working = COMPONENTS.iter().filter(|spec| spec.component.works_in_process());
    let names: Vec<&str> = working.map(|spec| spec.name).collect();
    let sent = run_outage(&cluster, &names, &outage).await;
    assert_eq!(cluster.bound_pods("pod-").await, [], "no component can write");
    for (name, requests) in sent {
        assert!((1..REQUESTS_MAX).contains(&requests), "{name} sent {requests} requests");
    }
    let healed = tokio::time::Instant::now();
    cluster.wait_for_running("pod-", 24).await;
    assert!(
        healed.elapsed() < Duration::from_mins(1),
        "work resumes within a minute: {:?}",
        healed.elapsed()
    );
    assert_eq!(cluster.running("first").await, 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn components_back_off_on_too_many_requests_and_resume() {
    all_components_back_off_and_resume(Outage::all_requests(429).retry_after(5)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn components_back_off_on_internal_errors_and_resume() {
    all_components_back_off_and_resume(Outage::all_requests(500)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn components_back_off_on_service_unavailable_and_resume() {
    all_components_back_off_and_resume(Outage::all_requests(503)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn each_component_recovers_from_an_outage_of_its_own_connection() {
    for component in COMPONENTS.iter().filter(|spec| spec.component.works_in_process()) {
        let cluster = TestCluster::new(4).await;
        let sent = run_outage(&cluster, &[component.name], &Outage::all_requests(500)).await;
        assert!((1..REQUESTS_MAX).contains(&sent[0].1), "{sent:?}");
        cluster.wait_for_running("pod-", 24).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_scheduler_writes_are_retried_until_they_succeed() {
    let cluster = TestCluster::new(4).await;
    let faults = cluster.backend.faults();
    // The scheduler's watches work; its writes fail.
    faults.set_outage(name::SCHEDULER, Outage::storage_full(""));
    let before = faults.counts(name::SCHEDULER).requests;
    for number in 0..24 {
        cluster.create_pod(PodBuilder::new(&format!("pod-{number}"), "default-queue", 1)).await;
    }
    cluster.sleep(OUTAGE).await;
    let requests = faults.counts(name::SCHEDULER).requests - before;
    assert!(requests < 2 * REQUESTS_MAX, "{requests} requests for 24 pods");
    faults.heal(name::SCHEDULER);
    cluster.wait_for_running("pod-", 24).await;
}

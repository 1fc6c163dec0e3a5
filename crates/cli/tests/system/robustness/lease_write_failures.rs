//! Lease writes fail (etcd out of space): leaders stop before their lease expires, no replica leads, and leadership
//! resumes after the writes succeed again.

use crate::high_availability::{self, REPLICAS};
use crate::test_cluster::PodBuilder;
use kai_components::{Component, ComponentOptions};
use kai_sim::{NodeGroup, Outage};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn components_stop_when_leases_cannot_be_renewed_and_resume_afterwards() {
    let (cluster, terms) =
        high_availability::start(1, [NodeGroup::gpu_nodes(2, 8)], &ComponentOptions::simulated()).await;
    cluster.create_pod(PodBuilder::new("before", "default-queue", 1)).await;
    cluster.wait_for_running("before", 1).await;
    assert_eq!(terms.load(Ordering::Relaxed), 5, "each component has one leader");
    let faults = cluster.backend.faults();
    for (_, names) in REPLICAS {
        for name in names {
            faults.set_outage(name, Outage::storage_full("/leases"));
        }
    }
    // A leader may continue until its lease expires.
    cluster.sleep(Duration::from_secs(16)).await;
    cluster.create_pod(PodBuilder::new("during", "default-queue", 1)).await;
    let before: u64 = replica_requests(&cluster);
    cluster.sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.bound_pods("during").await, [], "no replica leads");
    assert_eq!(terms.load(Ordering::Relaxed), 5, "no replica starts without the lease");
    let requests = replica_requests(&cluster) - before;
    // Ten replicas read their lease every two seconds, and try to acquire it when it has expired.
    assert!(requests < 10 * 2 * 150 + 100, "{requests} requests");
    for (_, names) in REPLICAS {
        for name in names {
            assert_eq!(faults.counts(name).crashes, 0, "{name}");
            faults.heal(name);
        }
    }
    cluster.wait_for_running("during", 1).await;
    assert_eq!(cluster.running("before").await, 1);
    assert_eq!(terms.load(Ordering::Relaxed), 10, "each component has one leader again");
    assert!(high_availability::leader(&cluster, Component::Scheduler).await.is_some());
}

/// Requests that all replicas have sent.
fn replica_requests(cluster: &crate::test_cluster::TestCluster) -> u64 {
    let names = REPLICAS.iter().flat_map(|(_, names)| names);
    names.map(|name| cluster.backend.faults().counts(name).requests).sum()
}

//! The API server processes a request, and the response is lost.

use crate::fault_injection::InvariantChecker;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::{ComponentOptions, name};
use kai_scheduler::Binding;
use kai_sim::{FaultRates, NodeGroup};
use std::time::Duration;

/// The client retries and gets a conflict. The watch is delayed too, so only a read of the bind request, or of the pod, shows
/// to which decision it belongs; until then its GPU must not be allocated again.
#[tokio::test(start_paused = true)]
async fn lost_bind_response_keeps_the_assumed_pod() {
    for (seed, binding) in (0..5).flat_map(|seed| [(seed, Binding::Requests), (seed, Binding::Direct)]) {
        let mut options = ComponentOptions::simulated();
        options.scheduler.binding = binding;
        let cluster = TestCluster::with_options(seed, [NodeGroup::gpu_nodes(1, 4)], &options).await;
        cluster.create_queue("a", 4).await;
        let checker = InvariantChecker::watch(&cluster);
        let rates = FaultRates {
            timeout_after: 300_000,
            timeout: Duration::from_secs(1),
            event_late: 1_000_000,
            delay_max: Duration::from_secs(30),
            ..FaultRates::default()
        };
        cluster.backend.faults().set_client_rates(name::SCHEDULER, rates);
        for number in 0..8 {
            cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
        }
        cluster.sleep(Duration::from_mins(5)).await;
        checker.assert_holds(seed);
    }
}

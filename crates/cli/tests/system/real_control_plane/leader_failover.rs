//! All leaders are killed: their second replicas take over, and the first pod is bound within 20 seconds.

use super::control_plane::Plane;
use super::webhooks::ADMISSION_2;
use crate::high_availability::REPLACED_WITHIN;
use crate::test_cluster::PodBuilder;
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::Programs;
use kai_sim::NodeGroup;
use std::sync::Arc;
use std::time::Duration;

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn first_pod_is_bound_within_20_seconds_after_all_leaders_were_killed() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "failover").await);
        let cluster = plane.test_cluster("failover", NodeGroup::gpu_nodes(1, 8)).await;
        cluster.create_queue("a", 8).await;
        cluster.create_pod(PodBuilder::new("before", "a", 1)).await;
        cluster.wait_for_running("before", 1).await;
        // All components lead: the second replicas start when the leases are held.
        let mut leaders = plane.component_names();
        // Webhooks have two replicas from the start; one of them stays.
        leaders.retain(|name| name != ADMISSION_2);
        plane.start_second_replicas();
        cluster.sleep(Duration::from_secs(10)).await;
        for leader in &leaders {
            assert!(plane.kill_component(leader), "{leader} had ended");
        }
        let died = Stopwatch::start();
        // A call of the killed replica's webhook fails; as any client, the test repeats the request.
        cluster
            .wait_until("the pod is created", async || {
                cluster.try_create_pod(PodBuilder::new("after", "a", 1)).await.is_ok()
            })
            .await;
        cluster.wait_until("the pod is bound", async || cluster.bound_pods("after").await.len() == 1).await;
        println!("bound {:.1} s after the leaders were killed", died.elapsed().as_secs_f64());
        assert!(died.elapsed() <= REPLACED_WITHIN, "bound after {:?}", died.elapsed());
    });
}

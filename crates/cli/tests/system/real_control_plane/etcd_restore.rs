//! etcd is restored from a backup: resource versions go backwards, and every component continues without a restart.

use super::control_plane::Plane;
use crate::test_cluster::PodBuilder;
use kai_kubetest::control_plane::Programs;
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use std::sync::Arc;

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn components_continue_after_etcd_was_restored_from_a_backup() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "restore").await);
        let cluster = plane.test_cluster("restore", NodeGroup::gpu_nodes(1, 8)).await;
        cluster.create_queue("a", 8).await;
        cluster.create_pod(PodBuilder::new("kept", "a", 4)).await;
        cluster.wait_for_running("kept", 1).await;
        let backup = plane.control().back_up().await.unwrap();
        // These fill the node, and are unknown to the backup.
        cluster.create_pod(PodBuilder::new("lost-whole", "a", 3)).await;
        cluster.create_pod(PodBuilder::fraction("lost-half", "a", "0.5")).await;
        cluster.wait_for_running("lost", 2).await;
        cluster.create_pod(PodBuilder::new("lost-pending", "a", 4)).await;
        cluster
            .wait_until("it is reported", async || !cluster.pod_condition("lost-pending").await.0.is_empty())
            .await;
        plane.control().restore(&backup).await.unwrap();
        let names: Vec<String> =
            cluster.list(&POD).await.iter().map(|pod| kai_object::name(pod).to_owned()).collect();
        assert_eq!(names, ["kept"], "the backup knows no other pod");

        // Fits only for a scheduler, a binder and a kubelet that have forgotten the lost pods.
        cluster.create_pod(PodBuilder::new("new-whole", "a", 3)).await;
        cluster.create_pod(PodBuilder::fraction("new-half", "a", "0.5")).await;
        cluster.wait_for_running("new", 2).await;
        cluster.create_pod(PodBuilder::new("new-pending", "a", 4)).await;
        cluster
            .wait_until("it is reported", async || !cluster.pod_condition("new-pending").await.0.is_empty())
            .await;
        // A replica that loses its lease ends, and a kubelet restarts it; no component does here.
        assert_eq!(plane.start_ended_again(), Vec::<String>::new());
    });
}

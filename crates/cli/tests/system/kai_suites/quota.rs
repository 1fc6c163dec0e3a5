//! Quotas and limits of queues at one to four levels.

use super::embedded;
use super::steps::{bounds, cpu_pod};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_scheduler::resources::POD_GROUP;
use kai_sim::NodeGroup;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn quotas_hold_at_every_level_of_the_queue_tree() {
    quota(&embedded("suite-quota", NodeGroup::gpu_nodes(1, 8)).await).await;
}

/// quota-01 … 06, on one node with eight GPUs.
pub(crate) async fn quota<B>(cluster: &TestCluster<B>) {
    cluster.create_queue_under(None, "three", &bounds(3, 3, 1), json!({})).await;
    let leaves = ["leaf-a", "leaf-b", "leaf-c"];
    for leaf in leaves {
        cluster.create_queue_under(Some("three"), leaf, &bounds(1, 3, 1), json!({})).await;
    }
    for leaf in leaves {
        cluster.runs(PodBuilder::new(&format!("{leaf}-first"), leaf, 1)).await;
    }
    for leaf in leaves {
        cluster.create_pod(PodBuilder::new(&format!("{leaf}-second"), leaf, 1)).await;
    }
    for leaf in leaves {
        cluster.settles(&format!("{leaf}-"), 1, 1).await;
        cluster.unschedulable(&format!("{leaf}-second")).await;
    }
    cluster.clear().await;

    cluster.create_queue_under(Some("teams"), "none", &bounds(0, 0, 1), json!({})).await;
    cluster.waits(PodBuilder::new("limited", "none", 1)).await;
    cluster.create_queue_under(Some("teams"), "borrows", &bounds(0, -1, 1), json!({})).await;
    let class = cluster.class(150).await;
    cluster.waits(PodBuilder::new("firm", "borrows", 1).label("priorityClassName", &class)).await;
    cluster.runs(PodBuilder::new("soft", "borrows", 1)).await;
    cluster.clear().await;

    let cpu = |milli: i64| json!({"resources": {"gpu": bounds(-1, -1, 1), "cpu": bounds(milli, milli, 1), "memory": bounds(-1, -1, 1)}});
    cluster.create_queue_under(None, "root", &bounds(-1, -1, 1), cpu(500)).await;
    cluster.runs(cpu_pod("rooted", "root", "100m")).await;
    let groups = cluster.list(&POD_GROUP).await;
    assert!(
        groups.iter().all(|group| !group["status"].to_string().contains("UnschedulableOnNodePool")),
        "{groups:?}"
    );

    for depth in [vec![1000, 500, 200], vec![2000, 1000, 500, 200]] {
        let mut parent = None;
        for (level, milli) in depth.iter().enumerate() {
            let name = format!("level-{}-{level}", depth.len());
            cluster.create_queue_under(parent.as_deref(), &name, &bounds(-1, -1, 1), cpu(*milli)).await;
            parent = Some(name);
        }
        let deepest = parent.unwrap();
        cluster.runs(cpu_pod(&format!("deep-{}", depth.len()), &deepest, "100m")).await;
        // The limit of the deepest queue holds, too.
        cluster.waits(cpu_pod(&format!("over-{}", depth.len()), &deepest, "150m")).await;
    }
}

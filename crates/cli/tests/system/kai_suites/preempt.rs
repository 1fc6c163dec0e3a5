//! Preemption within a queue.

use super::embedded;
use super::steps::{bounds, cpu_pod};
use super::subgroups;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_scheduler::resources::POD_GROUP;
use kai_sim::NodeGroup;
use serde_json::json;
use std::time::Duration;

/// PL, PH, NL and NH.
const VALUES: [i32; 4] = [50, 51, 150, 151];

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn priority_and_preemptibility_decide_who_is_preempted() {
    matrix(&embedded("suite-preempt-matrix", NodeGroup::gpu_nodes(1, 2)).await).await;
}

/// preempt-01 … 07 and 10, on one node.
pub(crate) async fn matrix<B>(cluster: &TestCluster<B>) {
    cluster.cpu_queue("half", 500).await;
    for value in VALUES {
        cluster.class(value).await;
    }
    let pod =
        |name: &str, value: i32| cpu_pod(name, "half", "500m").priority_class(&format!("value-{value}"));
    let [low, high, firm_low, firm_high] = VALUES;
    for (running, pending, preempts) in [
        (low, high, true),
        (firm_low, firm_high, false),
        (high, low, false),
        (firm_high, firm_low, false),
        (low, low, false),
        (firm_low, firm_low, false),
    ] {
        cluster.runs(pod("running", running)).await;
        if preempts {
            cluster.runs(pod("pending", pending)).await;
            cluster
                .wait_until("the other is gone", async || cluster.get(&POD, "running").await.is_none())
                .await;
        } else {
            cluster.waits(pod("pending", pending)).await;
            assert_eq!(cluster.states("running").await, (1, 0), "{running}, {pending}");
        }
        cluster.clear().await;
    }

    cluster.runs(pod("running", low)).await;
    cluster.waits(pod("pending", high).annotation(annotation::PREEMPTION_DELAY, "12s")).await;
    for _ in 0..3 {
        let running = cluster.get(&POD, "running").await.unwrap();
        assert!(!object::is_deleting(&running), "{running}");
        cluster.sleep(Duration::from_secs(1)).await;
    }
    cluster.scheduled("pending").await;
    cluster.clear().await;

    let firm = pod("running", low).label(label::PREEMPTIBILITY, "non-preemptible");
    cluster.runs(firm).await;
    let group = cluster.list(&POD_GROUP).await.swap_remove(0);
    assert_eq!(group["spec"]["preemptibility"], "non-preemptible", "{group}");
    cluster.waits(pod("pending", high)).await;
}

/// Two nodes with four GPUs; few pods fill one.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { pods: 12, ..NodeGroup::gpu_nodes(2, 4) }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn groups_are_preempted_down_to_their_minimum() {
    groups(&embedded("suite-preempt-groups", nodes()).await).await;
}

/// preempt-11 … 14, on [`nodes`].
pub(crate) async fn groups<B>(cluster: &TestCluster<B>) {
    let (train, firm) = (cluster.class(50).await, cluster.class(150).await);
    cluster.create_queue_under(Some("teams"), "all", &bounds(-1, -1, 1), json!({})).await;
    cluster.fill("filler", 8, |name| PodBuilder::new(name, "all", 1).priority_class(&train)).await;
    let pods = (0..2).map(|number| PodBuilder::new(&format!("gang-{number}"), "all", 4)).collect();
    cluster.own_group("gang", "all", json!({"minMember": 2, "priorityClassName": firm}), pods).await;
    cluster.settles("gang-", 2, 0).await;
    cluster.clear().await;

    cluster.create_queue_under(Some("teams"), "four", &bounds(4, 4, 1), json!({})).await;
    let elastic = ["left", "right"];
    for group in elastic {
        let pods = (0..2).map(|number| PodBuilder::new(&format!("{group}-{number}"), "four", 1)).collect();
        cluster.own_group(group, "four", json!({"minMember": 1, "priorityClassName": train}), pods).await;
    }
    for group in elastic {
        cluster.settles(&format!("{group}-"), 2, 0).await;
    }
    cluster.runs(PodBuilder::new("two", "four", 2).label(label::PRIORITY_CLASS, &firm)).await;
    for group in elastic {
        cluster.settles(&format!("{group}-"), 1, 0).await;
    }
    cluster.clear().await;

    // The parent is short of CPU: its limit is 500.
    cluster.cpu_queue_under("teams", "five", 600, 500).await;
    for leaf in ["trees", "single"] {
        cluster.cpu_queue_under("five", leaf, 300, 600).await;
    }
    let leaves = [("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 1, 1)];
    subgroups::flat(cluster, "tree", "trees", json!({"minSubGroup": 2, "priorityClassName": train}), &leaves)
        .await;
    cluster.settles("tree-", 4, 0).await;
    cluster.runs(cpu_pod("winner", "single", "300m")).await;
    cluster.settles("tree-", 2, 0).await;
    cluster.clear().await;

    full_node(cluster).await;
}

/// All pods that a node can have; the pod count is a resource like others.
async fn full_node<B>(cluster: &TestCluster<B>) {
    let (low, high) = (cluster.class(50).await, cluster.class(51).await);
    let node = cluster.node_name(1);
    let tiny = |name: &str, class: &str| cpu_pod(name, "all", "10m").priority_class(class).on_node(&node);
    cluster.fill("tiny", 12, |name| tiny(name, &low)).await;
    assert_eq!(cluster.runs(tiny("winner", &high)).await, node);
    // Exactly one of the twelve is evicted; the pod that its Job makes instead waits.
    cluster.settles("tiny-", 11, 1).await;
}

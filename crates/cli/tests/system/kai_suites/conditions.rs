//! Conditions of pod groups, and events.

use super::embedded;
use super::steps::bounds;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_runtime::kind::EVENT;
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reasons_of_waiting_groups_are_reported() {
    reasons(&embedded("suite-conditions", NodeGroup::gpu_nodes(1, 8)).await).await;
}

/// The reasons in the scheduling conditions of the only group.
async fn reasons_of<B>(cluster: &TestCluster<B>) -> Vec<String> {
    let groups = cluster.list(&POD_GROUP).await;
    let conditions =
        groups.iter().filter_map(|group| group["status"]["schedulingConditions"].as_array()).flatten();
    let reasons = conditions.filter_map(|condition| condition["reasons"].as_array()).flatten();
    reasons.map(|reason| object::str_at(reason, "/reason").to_owned()).collect()
}

/// condition-01 … 03 and event-01, on one node.
pub(crate) async fn reasons<B>(cluster: &TestCluster<B>) {
    cluster.create_queue_under(Some("teams"), "leaf", &bounds(-1, -1, 1), json!({})).await;
    let class = cluster.class(102).await;
    let gpu = |bounds: Value| json!({"spec": {"resources": {"gpu": bounds}}});
    for (bounds, firm, reason) in [
        (bounds(0, -1, 1), true, "NonPreemptibleOverQuota"),
        (bounds(-1, 0, 1), false, "OverLimit"),
        (bounds(-1, 0, 1), true, "OverLimit"),
    ] {
        cluster.patch(&QUEUE, "leaf", &gpu(bounds)).await;
        let pod = PodBuilder::new("waits", "leaf", 1);
        cluster.create_pod(if firm { pod.priority_class(&class) } else { pod }).await;
        cluster.wait_until(reason, async || reasons_of(cluster).await == [reason]).await;
        cluster.clear().await;
        cluster.wait_until("the group is gone", async || cluster.list(&POD_GROUP).await.is_empty()).await;
    }

    let pods = vec![PodBuilder::new("half-0", "leaf", 0)];
    cluster.own_group("half", "leaf", json!({"minMember": 2}), pods).await;
    let text = "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated";
    cluster
        .wait_until("an event says that pods are missing", async || {
            let events = cluster.list(&EVENT).await;
            events.iter().any(|event| {
                (object::str_at(event, "/type"), object::str_at(event, "/reason")) == ("Normal", "NotReady")
                    && object::str_at(event, "/message") == text
            })
        })
        .await;
}

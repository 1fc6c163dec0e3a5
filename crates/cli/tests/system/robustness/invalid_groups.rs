//! Groups that name objects that do not exist.

use crate::test_cluster::TestCluster;
use kai_runtime::kind::PRIORITY_CLASS;
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn missing_references_of_groups_are_reported_with_and_without_pods() {
    let cluster = TestCluster::new(1).await;
    let group = |name: &str, queue: &str, class: &str| json!({"metadata": {"name": name}, "spec": {"queue": queue, "minMember": 1, "priorityClassName": class}});
    cluster.create(&POD_GROUP, group("no-queue", "nowhere", "train")).await;
    cluster.create(&POD_GROUP, group("early", "later", "rush")).await;
    cluster.create(&POD_GROUP, group("fine", "default-queue", "train")).await;
    cluster.create_gang("no-class", "default-queue", 1, 1, json!({"priorityClassName": "trian"})).await;
    cluster.create_queue("later", 1).await;
    cluster.create(&PRIORITY_CLASS, json!({"metadata": {"name": "rush"}, "value": 60})).await;
    cluster.sleep(Duration::from_secs(20)).await;
    let events = async |group: &str| cluster.event_messages("InvalidInput", group).await;
    let found = events("no-queue").await;
    assert!(matches!(&found[..], [only] if only.contains("the queue `nowhere` does not exist")), "{found:?}");
    let found = events("no-class").await;
    assert!(
        matches!(&found[..], [only] if only.contains("the priority class `trian` does not exist, so the priority is 50")),
        "{found:?}"
    );
    for group in ["early", "fine"] {
        let found = events(group).await;
        assert!(found.is_empty(), "{group}: {found:?}");
    }
    cluster.delete(&QUEUE, "later").await;
    cluster.sleep(Duration::from_secs(20)).await;
    let found = events("early").await;
    assert!(matches!(&found[..], [only] if only.contains("the queue `later` does not exist")), "{found:?}");
}

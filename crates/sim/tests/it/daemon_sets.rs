//! DaemonSets: one pod per matching node, rolling updates and tolerations.

use crate::k;
use crate::{TestCluster, count, template};
use kai_object as object;
use kai_sim::NodeGroup;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn existing_and_new_nodes_get_a_daemon_pod() {
    let cluster = TestCluster::new().await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template(&json!({}), "Always"),
    }});
    cluster.create(&k::DAEMON_SET, set).await;
    cluster.wait_for(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 4).await;
    let more = NodeGroup { name: "late".to_owned(), count: 2, ..NodeGroup::default() };
    cluster.inner.add_nodes(&[more]).await.unwrap();
    cluster.wait_for(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 6).await;
    let mut nodes: Vec<String> = cluster
        .list(&k::POD)
        .await
        .iter()
        .map(|pod| object::str_at(pod, "/spec/nodeName").to_owned())
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["late-1", "late-2", "node-1", "node-2", "node-3", "node-4"]);
    let other = json!({"spec": {"template": {"spec": {
        "nodeSelector": {"kubernetes.io/hostname": "node-2"}, "containers": [{"name": "main", "image": "other"}],
    }}}});
    cluster.patch(&k::DAEMON_SET, "agent", other).await;
    cluster
        .wait_for(&k::DAEMON_SET, "agent", |set| {
            count(set, "desiredNumberScheduled") == 1
                && count(set, "updatedNumberScheduled") == 1
                && count(set, "numberAvailable") == 1
        })
        .await;
    cluster.wait_for_all(&k::POD, |pods| pods.len() == 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn update_with_max_surge_keeps_every_node_available() {
    let cluster = TestCluster::new().await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template(&json!({}), "Always"),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
    }});
    cluster.create(&k::DAEMON_SET, set).await;
    cluster.wait_for(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 4).await;
    let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}});
    cluster.patch(&k::DAEMON_SET, "agent", other).await;
    let mut pods_max = 0;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let set = cluster.get(&k::DAEMON_SET, "agent").await;
        assert_eq!(count(&set, "numberAvailable"), 4);
        let pods = cluster.list(&k::POD).await;
        pods_max = pods_max.max(pods.iter().filter(|pod| !object::is_deleting(pod)).count());
        let new = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == "other").count();
        if (pods.len(), new) == (4, 4) && count(&set, "updatedNumberScheduled") == 4 {
            break;
        }
    }
    assert_eq!(pods_max, 6, "a surge of two");
}

//! Daemon sets: one pod for every node that suits.

use crate::k;
use crate::{World, count, template};
use kai_object as object;
use kai_sim::NodeGroup;
use serde_json::json;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn every_node_gets_its_pod_and_so_do_nodes_that_come_later() {
    let world = World::new().await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template(&json!({}), "Always"),
    }});
    world.create(&k::DAEMON_SET, set).await;
    world.until(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 4).await;
    let more = NodeGroup { name: "late".to_owned(), count: 2, ..NodeGroup::default() };
    world.cluster.add_nodes(&[more]).await.unwrap();
    world.until(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 6).await;
    let mut nodes: Vec<String> = world
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
    world.patch(&k::DAEMON_SET, "agent", other).await;
    world
        .until(&k::DAEMON_SET, "agent", |set| {
            count(set, "desiredNumberScheduled") == 1
                && count(set, "updatedNumberScheduled") == 1
                && count(set, "numberAvailable") == 1
        })
        .await;
    world.until_all(&k::POD, |pods| pods.len() == 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn with_a_surge_every_node_is_served_at_all_times() {
    let world = World::new().await;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template(&json!({}), "Always"),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
    }});
    world.create(&k::DAEMON_SET, set).await;
    world.until(&k::DAEMON_SET, "agent", |set| count(set, "numberAvailable") == 4).await;
    let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}});
    world.patch(&k::DAEMON_SET, "agent", other).await;
    let mut most = 0;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let set = world.get(&k::DAEMON_SET, "agent").await;
        assert_eq!(count(&set, "numberAvailable"), 4);
        let pods = world.list(&k::POD).await;
        most = most.max(pods.iter().filter(|pod| !object::is_deleting(pod)).count());
        let new = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == "other").count();
        if (pods.len(), new) == (4, 4) && count(&set, "updatedNumberScheduled") == 4 {
            break;
        }
    }
    assert_eq!(most, 6, "two at a time");
}

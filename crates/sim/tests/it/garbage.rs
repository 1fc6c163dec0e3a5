//! What goes with its owner, with its namespace or with its node.

use crate::k;
use crate::{World, builder, deployment, gpu_pod, phase};
use kai_object as object;
use kai_runtime::api::Deletion;
use kai_runtime::kind::{Key, Kind};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

async fn with_pods() -> World {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    world.until_all(&k::POD, |pods| pods.len() == 2 && pods.iter().all(|pod| phase(pod) == "Running")).await;
    world
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn in_the_background_dependents_follow_their_owner() {
    let world = with_pods().await;
    world.delete(&k::DEPLOYMENT, "web", Deletion::default().propagate("Background")).await;
    assert!(world.find(&k::DEPLOYMENT, "web").await.is_none());
    world.until_all(&k::REPLICA_SET, <[Value]>::is_empty).await;
    world.until_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn in_the_foreground_the_owner_waits_for_its_dependents() {
    let world = with_pods().await;
    world.delete(&k::DEPLOYMENT, "web", Deletion::default().propagate("Foreground")).await;
    while world.find(&k::DEPLOYMENT, "web").await.is_some() {
        world.sleep(1).await;
    }
    assert!(world.list(&k::REPLICA_SET).await.is_empty());
    assert!(world.list(&k::POD).await.is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn orphans_stay_and_lose_their_owner() {
    let world = with_pods().await;
    world.delete(&k::DEPLOYMENT, "web", Deletion::default().propagate("Orphan")).await;
    world.gone(&k::DEPLOYMENT, "web").await;
    world.sleep(60).await;
    let sets = world.list(&k::REPLICA_SET).await;
    assert_eq!(sets.len(), 1);
    assert!(object::meta(&sets[0], "ownerReferences").is_none_or(|owners| *owners == json!([])));
    assert_eq!(world.list(&k::POD).await.len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn custom_resources_are_collected_too() {
    let world = World::new().await;
    let definition = json!({"metadata": {"name": "toys.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}],
    }});
    world.create(&k::DEFINITION, definition).await;
    world.sleep(60).await;
    let toy = Kind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Toy".into(),
        plural: "toys".into(),
        namespaced: true,
    };
    let owner = world.create(&toy, json!({"metadata": {"name": "box"}})).await;
    let reference = json!([{
        "apiVersion": "example.com/v1", "kind": "Toy", "name": "box", "uid": object::uid(&owner),
    }]);
    world.create(&toy, json!({"metadata": {"name": "ball", "ownerReferences": reference}})).await;
    let absent = json!([{"apiVersion": "example.com/v1", "kind": "Toy", "name": "box", "uid": "gone"}]);
    world.create(&toy, json!({"metadata": {"name": "stray", "ownerReferences": absent}})).await;
    world.gone(&toy, "stray").await;
    assert!(world.find(&toy, "ball").await.is_some());
    world.delete(&toy, "box", Deletion::default()).await;
    world.gone(&toy, "ball").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_namespace_goes_when_everything_in_it_has_gone() {
    let world = World::new().await;
    world.create(&k::NAMESPACE, json!({"metadata": {"name": "team"}})).await;
    // Pods need the namespace's service account.
    world.sleep(2).await;
    let mut pod = gpu_pod("a", 1, &json!({"sim.kai.scheduler/stop-delay": "20s"}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    world.cluster.api().create(&k::POD, "team", &pod).await.unwrap();
    world.until_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    world.delete(&k::NAMESPACE, "team", Deletion::default()).await;
    world.sleep(10).await;
    let namespace = world.get(&k::NAMESPACE, "team").await;
    assert_eq!(phase(&namespace), "Terminating");
    world.gone(&k::NAMESPACE, "team").await;
    assert!(world.list(&k::POD).await.is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_cleared_away() {
    let world = World::of(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    world.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    world.until(&k::POD, "a", |pod| phase(pod) == "Running").await;
    world.delete(&k::NODE, "node-1", Deletion::default()).await;
    world.sleep(20).await;
    assert!(world.find(&k::POD, "a").await.is_some(), "a node that is made anew keeps its pods");
    world.gone(&k::POD, "a").await;
    let lease = world.cluster.api().get(&k::LEASE, &Key::new("kube-node-lease", "node-1")).await;
    assert!(lease.is_err(), "the lease goes with its node");
}

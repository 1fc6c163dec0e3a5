//! Garbage collection by owner, namespace and node.

use crate::k;
use crate::{TestCluster, builder, deployment, gpu_pod, phase};
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::kind::{Key, ResourceKind};
use kai_sim::{FaultRates, NodeGroup};
use serde_json::{Value, json};
use std::time::Duration;

async fn with_deployment() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    cluster
        .wait_for_all(&k::POD, |pods| pods.len() == 2 && pods.iter().all(|pod| phase(pod) == "Running"))
        .await;
    cluster
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn background_deletion_deletes_dependents_after_the_owner() {
    let cluster = with_deployment().await;
    cluster.delete(&k::DEPLOYMENT, "web", DeleteOptions::default().propagate("Background")).await;
    assert!(cluster.find(&k::DEPLOYMENT, "web").await.is_none());
    cluster.wait_for_all(&k::REPLICA_SET, <[Value]>::is_empty).await;
    cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn foreground_deletion_deletes_dependents_before_the_owner() {
    let cluster = with_deployment().await;
    cluster.delete(&k::DEPLOYMENT, "web", DeleteOptions::default().propagate("Foreground")).await;
    while cluster.find(&k::DEPLOYMENT, "web").await.is_some() {
        cluster.sleep(1).await;
    }
    assert!(cluster.list(&k::REPLICA_SET).await.is_empty());
    assert!(cluster.list(&k::POD).await.is_empty());
}

/// A response that a busy machine delivers after the deletion of its object must not restore the object in an informer: the
/// garbage collector would wait for it for ever.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn foreground_deletion_completes_with_late_responses_and_events() {
    for seed in 0..40 {
        let nodes = builder().seed(seed).nodes([NodeGroup::gpu_nodes(2, 8)]);
        let cluster = TestCluster::from_builder(nodes).await;
        cluster.create(&k::DEPLOYMENT, deployment("web", 3)).await;
        cluster
            .wait_for_all(&k::POD, |pods| pods.len() == 3 && pods.iter().all(|pod| phase(pod) == "Running"))
            .await;
        let late = FaultRates {
            response_late: 300_000,
            event_late: 100_000,
            delay_max: Duration::from_secs(4),
            ..FaultRates::default()
        };
        for client in ["kube-controller-manager", "kubelet"] {
            cluster.inner.faults().set_client_rates(client, late);
        }
        let image = json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}});
        cluster.patch(&k::DEPLOYMENT, "web", image).await;
        cluster.sleep(seed % 20).await;
        cluster.delete(&k::DEPLOYMENT, "web", DeleteOptions::default().propagate("Foreground")).await;
        let begin = tokio::time::Instant::now();
        while cluster.find(&k::DEPLOYMENT, "web").await.is_some() {
            assert!(begin.elapsed() < Duration::from_mins(5), "seed {seed}: the deletion does not complete");
            cluster.sleep(1).await;
        }
        cluster.wait_for_all(&k::REPLICA_SET, <[Value]>::is_empty).await;
        cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn orphan_deletion_keeps_dependents_without_owner_references() {
    let cluster = with_deployment().await;
    cluster.delete(&k::DEPLOYMENT, "web", DeleteOptions::default().propagate("Orphan")).await;
    cluster.wait_for_deletion(&k::DEPLOYMENT, "web").await;
    cluster.sleep(60).await;
    let sets = cluster.list(&k::REPLICA_SET).await;
    assert_eq!(sets.len(), 1);
    assert!(object::meta(&sets[0], "ownerReferences").is_none_or(|owners| *owners == json!([])));
    assert_eq!(cluster.list(&k::POD).await.len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn custom_resources_are_garbage_collected() {
    let cluster = TestCluster::new().await;
    let definition = json!({"metadata": {"name": "toys.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}],
    }});
    cluster.create(&k::CUSTOM_RESOURCE_DEFINITION, definition).await;
    cluster.sleep(60).await;
    let toy = ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Toy".into(),
        plural: "toys".into(),
        namespaced: true,
    };
    let owner = cluster.create(&toy, json!({"metadata": {"name": "box"}})).await;
    let reference = json!([{
        "apiVersion": "example.com/v1", "kind": "Toy", "name": "box", "uid": object::uid(&owner),
    }]);
    cluster.create(&toy, json!({"metadata": {"name": "ball", "ownerReferences": reference}})).await;
    let absent = json!([{"apiVersion": "example.com/v1", "kind": "Toy", "name": "box", "uid": "gone"}]);
    cluster.create(&toy, json!({"metadata": {"name": "stray", "ownerReferences": absent}})).await;
    cluster.wait_for_deletion(&toy, "stray").await;
    assert!(cluster.find(&toy, "ball").await.is_some());
    cluster.delete(&toy, "box", DeleteOptions::default()).await;
    cluster.wait_for_deletion(&toy, "ball").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn namespace_is_deleted_after_its_content() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::NAMESPACE, json!({"metadata": {"name": "team"}})).await;
    // Pods need the namespace's service account.
    cluster.sleep(2).await;
    let mut pod = gpu_pod("a", 1, &json!({"sim.kai.scheduler/stop-delay": "20s"}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    cluster.inner.api().create_dynamic(&k::POD, "team", &pod).await.unwrap();
    cluster.wait_for_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    cluster.delete(&k::NAMESPACE, "team", DeleteOptions::default()).await;
    cluster.sleep(10).await;
    let namespace = cluster.get(&k::NAMESPACE, "team").await;
    assert_eq!(phase(&namespace), "Terminating");
    cluster.wait_for_deletion(&k::NAMESPACE, "team").await;
    assert!(cluster.list(&k::POD).await.is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_deleted_node_are_deleted() {
    let cluster = TestCluster::from_builder(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    cluster.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Running").await;
    cluster.delete(&k::NODE, "node-1", DeleteOptions::default()).await;
    cluster.sleep(20).await;
    assert!(cluster.find(&k::POD, "a").await.is_some(), "pods stay during the quarantine");
    cluster.wait_for_deletion(&k::POD, "a").await;
    let lease = cluster.inner.api().get_dynamic(&k::LEASE, &Key::new("kube-node-lease", "node-1")).await;
    assert!(lease.is_err(), "the lease is deleted with its node");
}

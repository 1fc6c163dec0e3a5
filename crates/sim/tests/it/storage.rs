//! Persistent volume claims, resource claims, and saved state.

use crate::k;
use crate::{TestCluster, builder, gpu_pod, phase, template};
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

fn claim(name: &str, spec: &Value) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": spec});
    claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    claim["spec"]["resources"] = json!({"requests": {"storage": "5Gi"}});
    claim
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claim_without_a_class_gets_a_volume_of_the_default_class() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::PERSISTENT_VOLUME_CLAIM, claim("data", &json!({}))).await;
    let bound = cluster.wait_for(&k::PERSISTENT_VOLUME_CLAIM, "data", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound["spec"]["storageClassName"], "standard");
    assert_eq!(bound["status"]["capacity"]["storage"], "5Gi");
    let name = object::str_at(&bound, "/spec/volumeName");
    cluster.wait_for(&k::PERSISTENT_VOLUME, name, |volume| phase(volume) == "Bound").await;
    cluster.delete(&k::PERSISTENT_VOLUME_CLAIM, "data", DeleteOptions::default()).await;
    cluster.wait_for_deletion(&k::PERSISTENT_VOLUME, name).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claim_is_bound_to_the_smallest_matching_volume() {
    let cluster = TestCluster::new().await;
    for (name, size) in [("small", "1Gi"), ("large", "100Gi"), ("right", "10Gi")] {
        let spec = json!({
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/data"},
        });
        cluster.create(&k::PERSISTENT_VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    cluster.create(&k::PERSISTENT_VOLUME_CLAIM, claim("data", &json!({"storageClassName": "manual"}))).await;
    let bound = cluster.wait_for(&k::PERSISTENT_VOLUME_CLAIM, "data", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound["spec"]["volumeName"], "right");
    cluster.delete(&k::PERSISTENT_VOLUME_CLAIM, "data", DeleteOptions::default()).await;
    cluster.wait_for(&k::PERSISTENT_VOLUME, "right", |volume| phase(volume) == "Released").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_starts_after_its_claim_is_bound() {
    let cluster = TestCluster::new().await;
    let class = json!({
        "metadata": {"name": "later"}, "provisioner": "sim.kai.scheduler/disk", "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&k::STORAGE_CLASS, class).await;
    cluster.create(&k::PERSISTENT_VOLUME_CLAIM, claim("data", &json!({"storageClassName": "later"}))).await;
    let mut pod = gpu_pod("a", 1, &json!({}));
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.create(&k::POD, pod).await;
    cluster.sleep(60).await;
    assert_eq!(phase(&cluster.get(&k::POD, "a").await), "Pending");
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
    cluster.patch(&k::PERSISTENT_VOLUME_CLAIM, "data", chosen).await;
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Running").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn resource_claims_are_created_from_templates_and_deleted_with_their_pods() {
    let cluster =
        TestCluster::from_builder(builder().nodes([NodeGroup { dra: true, ..NodeGroup::gpu_nodes(1, 4) }]))
            .await;
    let spec = json!({"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}});
    cluster.create(&k::RESOURCE_CLAIM_TEMPLATE, json!({"metadata": {"name": "one-gpu"}, "spec": spec})).await;
    let mut pod = template(&json!({"sim.kai.scheduler/run-for": "60s"}), "Never");
    pod["metadata"]["name"] = json!("a");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    let made = cluster.create(&k::POD, pod).await;
    let claims = cluster.wait_for_all(&k::RESOURCE_CLAIM, |claims| claims.len() == 1).await;
    let name = object::name(&claims[0]).to_owned();
    assert!(name.starts_with("a-gpu-"));
    let pod =
        cluster.wait_for(&k::POD, "a", |pod| pod["status"].get("resourceClaimStatuses").is_some()).await;
    assert_eq!(pod["status"]["resourceClaimStatuses"], json!([{"name": "gpu", "resourceClaimName": name}]));
    cluster.sleep(30).await;
    assert_eq!(phase(&cluster.get(&k::POD, "a").await), "Pending", "nothing is allocated");
    let status = json!({"status": {
        "allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"},
        ]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": object::uid(&made)}],
    }});
    let key = kai_runtime::Key::new("default", &name);
    cluster.inner.api().patch_dynamic(&k::RESOURCE_CLAIM, &key, Part::Status, &status).await.unwrap();
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Running").await;
    cluster.wait_for(&k::POD, "a", |pod| phase(pod) == "Succeeded").await;
    cluster.wait_for_deletion(&k::RESOURCE_CLAIM, &name).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn cluster_resumes_from_a_saved_state() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, crate::deployment("web", 3)).await;
    let done = |deployment: &Value| deployment["status"]["availableReplicas"] == 3;
    cluster.wait_for(&k::DEPLOYMENT, "web", done).await;
    let mut state = Vec::new();
    cluster.inner.save(&mut state).unwrap();
    let time = cluster.inner.clock().now();
    cluster.inner.stop().await;

    let cluster =
        TestCluster::from_builder(kai_sim::Cluster::builder().seed(1).starting_at(time).load(state)).await;
    cluster.sleep(60).await;
    assert_eq!(cluster.list(&k::POD).await.iter().filter(|pod| phase(pod) == "Running").count(), 3);
    cluster.patch(&k::DEPLOYMENT, "web", json!({"spec": {"replicas": 5}})).await;
    cluster
        .wait_for(&k::DEPLOYMENT, "web", |deployment| deployment["status"]["availableReplicas"] == 5)
        .await;
    let uids: std::collections::BTreeSet<String> =
        cluster.list(&k::POD).await.iter().map(|pod| object::uid(pod).to_owned()).collect();
    assert_eq!(uids.len(), 5);
}

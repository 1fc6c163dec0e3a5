//! Claims on storage and on devices, and the whole state on disk.

use crate::k;
use crate::{World, builder, gpu_pod, phase, template};
use kai_object as object;
use kai_runtime::api::{Deletion, Part};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

fn claim(name: &str, spec: &Value) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": spec});
    claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    claim["spec"]["resources"] = json!({"requests": {"storage": "5Gi"}});
    claim
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_claim_without_a_class_gets_a_volume_of_the_default_class() {
    let world = World::new().await;
    world.create(&k::VOLUME_CLAIM, claim("data", &json!({}))).await;
    let bound = world.until(&k::VOLUME_CLAIM, "data", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound["spec"]["storageClassName"], "standard");
    assert_eq!(bound["status"]["capacity"]["storage"], "5Gi");
    let name = object::str_at(&bound, "/spec/volumeName");
    world.until(&k::VOLUME, name, |volume| phase(volume) == "Bound").await;
    world.delete(&k::VOLUME_CLAIM, "data", Deletion::default()).await;
    world.gone(&k::VOLUME, name).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_claim_takes_the_smallest_volume_that_fits() {
    let world = World::new().await;
    for (name, size) in [("small", "1Gi"), ("large", "100Gi"), ("right", "10Gi")] {
        let spec = json!({
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/data"},
        });
        world.create(&k::VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    world.create(&k::VOLUME_CLAIM, claim("data", &json!({"storageClassName": "manual"}))).await;
    let bound = world.until(&k::VOLUME_CLAIM, "data", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound["spec"]["volumeName"], "right");
    world.delete(&k::VOLUME_CLAIM, "data", Deletion::default()).await;
    world.until(&k::VOLUME, "right", |volume| phase(volume) == "Released").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_waits_for_its_storage() {
    let world = World::new().await;
    let class = json!({
        "metadata": {"name": "later"}, "provisioner": "sim.kai.scheduler/disk", "volumeBindingMode": "WaitForFirstConsumer",
    });
    world.create(&k::STORAGE_CLASS, class).await;
    world.create(&k::VOLUME_CLAIM, claim("data", &json!({"storageClassName": "later"}))).await;
    let mut pod = gpu_pod("a", 1, &json!({}));
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.create(&k::POD, pod).await;
    world.sleep(60).await;
    assert_eq!(phase(&world.get(&k::POD, "a").await), "Pending");
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
    world.patch(&k::VOLUME_CLAIM, "data", chosen).await;
    world.until(&k::POD, "a", |pod| phase(pod) == "Running").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_come_from_templates_and_go_with_their_pods() {
    let world = World::of(builder().nodes([NodeGroup { dra: true, ..NodeGroup::gpu_nodes(1, 4) }])).await;
    let spec = json!({"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}});
    world.create(&k::RESOURCE_CLAIM_TEMPLATE, json!({"metadata": {"name": "one-gpu"}, "spec": spec})).await;
    let mut pod = template(&json!({"sim.kai.scheduler/run-for": "60s"}), "Never");
    pod["metadata"]["name"] = json!("a");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    let made = world.create(&k::POD, pod).await;
    let claims = world.until_all(&k::RESOURCE_CLAIM, |claims| claims.len() == 1).await;
    let name = object::name(&claims[0]).to_owned();
    assert!(name.starts_with("a-gpu-"));
    let pod = world.until(&k::POD, "a", |pod| pod["status"].get("resourceClaimStatuses").is_some()).await;
    assert_eq!(pod["status"]["resourceClaimStatuses"], json!([{"name": "gpu", "resourceClaimName": name}]));
    world.sleep(30).await;
    assert_eq!(phase(&world.get(&k::POD, "a").await), "Pending", "nothing is allocated");
    let status = json!({"status": {
        "allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"},
        ]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": object::uid(&made)}],
    }});
    let key = kai_runtime::Key::new("default", &name);
    world.cluster.api().merge(&k::RESOURCE_CLAIM, &key, Part::Status, &status).await.unwrap();
    world.until(&k::POD, "a", |pod| phase(pod) == "Running").await;
    world.until(&k::POD, "a", |pod| phase(pod) == "Succeeded").await;
    world.gone(&k::RESOURCE_CLAIM, &name).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_cluster_goes_on_where_it_was_saved() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, crate::deployment("web", 3)).await;
    let done = |deployment: &Value| deployment["status"]["availableReplicas"] == 3;
    world.until(&k::DEPLOYMENT, "web", done).await;
    let mut state = Vec::new();
    world.cluster.save(&mut state).unwrap();
    let time = world.cluster.clock().now();
    world.cluster.stop().await;

    let world = World::of(kai_sim::Cluster::builder().seed(1).starting_at(time).load(state)).await;
    world.sleep(60).await;
    assert_eq!(world.list(&k::POD).await.iter().filter(|pod| phase(pod) == "Running").count(), 3);
    world.patch(&k::DEPLOYMENT, "web", json!({"spec": {"replicas": 5}})).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| deployment["status"]["availableReplicas"] == 5).await;
    let uids: std::collections::BTreeSet<String> =
        world.list(&k::POD).await.iter().map(|pod| object::uid(pod).to_owned()).collect();
    assert_eq!(uids.len(), 5);
}

//! Resource claims: allocated and reserved for the pod, and released by a rollback.

use crate::{Reporter, TestCluster, builder, condition, crash_everywhere, fraction, phase, pod};
use kai_binder::Options;
use kai_object as object;
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

fn dra_node() -> kai_sim::Builder {
    builder().nodes([
        NodeGroup { dra: true, name: "dra".to_owned(), ..NodeGroup::gpu_nodes(1, 4) },
        NodeGroup::gpu_nodes(1, 1),
    ])
}

fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}})
}

fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "dra-1", "device": device},
    ]}})
}

fn claiming(name: &str) -> Value {
    let mut wanted = pod(name, &json!({}));
    wanted["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    wanted
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claim_is_allocated_for_the_first_pod_and_reserved_for_each() {
    let test = TestCluster::with(dra_node(), Options::default(), Reporter::Runs).await;
    test.create(&kind::RESOURCE_CLAIM, json!({"metadata": {"name": "shared"}, "spec": claim_spec()})).await;
    for name in ["a", "b"] {
        let made = test.create(&kind::POD, claiming(name)).await;
        let devices =
            json!({"resourceClaimAllocations": [{"name": "gpu", "allocation": allocation("gpu-2")}]});
        test.request(&made, "dra-1", &devices).await;
        test.until_phase(name, "Succeeded").await;
        test.until(&kind::POD, name, |pod| phase(pod) == "Running").await;
    }
    let claim = test.get(&kind::RESOURCE_CLAIM, "shared").await;
    assert_eq!(claim["status"]["reservedFor"].as_array().unwrap().len(), 2);
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "gpu-2");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_of_a_failed_bind_are_released_wherever_the_binder_crashes() {
    let test = TestCluster::with(dra_node(), Options::default(), Reporter::Runs).await;
    test.create(&kind::RESOURCE_CLAIM, json!({"metadata": {"name": "shared"}, "spec": claim_spec()})).await;
    crash_everywhere(&test, 8, async |requests| {
        let name = format!("a-{requests}");
        let mut pod = claiming(&name);
        // No config map can have this name: the plugin after dynamicresources fails.
        pod["metadata"]["annotations"] =
            json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "Bad_Name"});
        let source = json!({"configMapKeyRef": {"name": "Bad_Name-0", "key": "NVIDIA_VISIBLE_DEVICES"}});
        pod["spec"]["containers"][0]["env"] =
            json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}]);
        let made = test.create(&kind::POD, pod).await;
        let mut wanted = fraction(&[&format!("g-{requests}")]);
        wanted["resourceClaimAllocations"] = json!([{"name": "gpu", "allocation": allocation("gpu-2")}]);
        test.request(&made, "node-1", &wanted).await;
        test.until_phase(&name, "Failed").await;
        let claim = test.get(&kind::RESOURCE_CLAIM, "shared").await;
        let status = claim.get("status").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(status, json!({}), "after {requests} requests");
        test.until_reservations(0).await;
        test.delete(&kind::POD, &name).await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn earlier_allocation_for_the_pod_alone_is_replaced() {
    let test = TestCluster::with(dra_node(), Options::default(), Reporter::Runs).await;
    test.create(&kind::RESOURCE_CLAIM, json!({"metadata": {"name": "shared"}, "spec": claim_spec()})).await;
    let made = test.create(&kind::POD, claiming("a")).await;
    // A binder crashed after the allocation, and the scheduler decided again.
    let status = json!({"status": {
        "allocation": allocation("gpu-0"),
        "reservedFor": [{"resource": "pods", "name": "a", "uid": object::uid(&made)}],
    }});
    let key = kai_runtime::Key::new("default", "shared");
    let claims = &kind::RESOURCE_CLAIM;
    test.cluster.api().patch_dynamic(claims, &key, kai_runtime::api::Part::Status, &status).await.unwrap();
    let devices = json!({"resourceClaimAllocations": [{"name": "gpu", "allocation": allocation("gpu-3")}]});
    test.request(&made, "dra-1", &devices).await;
    test.until_phase("a", "Succeeded").await;
    let claim = test.get(&kind::RESOURCE_CLAIM, "shared").await;
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "gpu-3");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn missing_claim_or_allocation_fails_the_request() {
    let test = TestCluster::with(dra_node(), Options::default(), Reporter::Runs).await;
    let made = test.create(&kind::POD, claiming("a")).await;
    let devices = json!({"resourceClaimAllocations": [{"name": "gpu", "allocation": allocation("gpu-2")}]});
    test.request(&made, "dra-1", &devices).await;
    let request = test.until_phase("a", "Failed").await;
    assert_eq!(object::str_at(&request, "/status/reason"), "resource claim `default/shared` not found");
    let made = test.create(&kind::POD, claiming("b")).await;
    test.request(&made, "dra-1", &json!({"resourceClaimAllocations": [{"name": "gpu"}]})).await;
    let request = test.until_phase("b", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("has no allocation for it"), "{request:#}");
    let failed = test.get(&kind::POD, "b").await;
    assert_eq!(condition(&failed, "PodBound").unwrap()["status"], "False");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn extended_resources_get_a_claim_that_a_rollback_deletes() {
    let test = TestCluster::with(dra_node(), Options::default(), Reporter::Runs).await;
    let extended = json!({
        "allocation": allocation("gpu-1"),
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    });
    let made = test.create(&kind::POD, pod("a", &json!({}))).await;
    test.request(&made, "dra-1", &json!({"extendedResourceClaimAllocation": extended})).await;
    test.until_phase("a", "Succeeded").await;
    let claims = test.cluster.api().list_dynamic(&kind::RESOURCE_CLAIM, "default").await.unwrap().items;
    assert_eq!(claims.len(), 1);
    let name = object::name(&claims[0]);
    assert!(name.starts_with("a-extended-resources-"), "{name}");
    assert_eq!(claims[0]["status"]["reservedFor"][0]["uid"], object::uid(&made));
    let bound = test.get(&kind::POD, "a").await;
    assert_eq!(
        bound["status"]["extendedResourceClaimStatus"],
        json!({"resourceClaimName": name, "requestMappings": extended["containerMappings"]})
    );

    // A pod with a GPU fraction that the webhook has not mutated: the rollback deletes the claim.
    let made = test.create(&kind::POD, pod("b", &json!({}))).await;
    let mut wanted = fraction(&["g-1"]);
    wanted["extendedResourceClaimAllocation"] = extended;
    test.request(&made, "node-1", &wanted).await;
    test.until_phase("b", "Failed").await;
    let claims = test.cluster.api().list_dynamic(&kind::RESOURCE_CLAIM, "default").await.unwrap().items;
    assert!(claims.iter().all(|claim| object::name(claim).starts_with("a-")), "{claims:#?}");
    assert!(test.get(&kind::POD, "b").await["status"].get("extendedResourceClaimStatus").is_none());
}

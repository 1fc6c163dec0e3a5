//! Crashes of the binder between any two of its API requests: the result is the same.

use crate::{
    BIND_REQUEST, BINDER, DEVICE, Reporter, TestCluster, annotation, builder, crash_everywhere, fraction,
    phase, shared_pod,
};
use kai_binder::Options;
use kai_object as object;
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::json;

async fn test_cluster() -> TestCluster {
    let one_node = builder().nodes([NodeGroup::gpu_nodes(1, 4)]);
    TestCluster::with(one_node, Options::default(), Reporter::Runs).await
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_share_a_gpu_are_bound_wherever_the_binder_crashes() {
    let test = test_cluster().await;
    crash_everywhere(&test, 12, async |requests| {
        let names = [format!("a-{requests}"), format!("b-{requests}")];
        for name in &names {
            let made = test.create(&kind::POD, shared_pod(name)).await;
            test.request(&made, "node-1", &fraction(&[&format!("g-{requests}")])).await;
        }
        for name in &names {
            test.until_phase(name, "Succeeded").await;
            test.until(&kind::POD, name, |pod| phase(pod) == "Running").await;
        }
        let reservations = test.reservations().await;
        assert_eq!(reservations.len(), 1, "after {requests} requests");
        let device = annotation(&reservations[0], DEVICE);
        for name in &names {
            let map = test.get(&kind::CONFIG_MAP, &format!("{name}-abcdefg-shared-gpu-0")).await;
            assert_eq!(map["data"]["NVIDIA_VISIBLE_DEVICES"], device, "after {requests} requests");
            test.delete(&kind::POD, name).await;
        }
        test.until_reservations(0).await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_that_shares_several_gpus_is_bound_wherever_the_binder_crashes() {
    let test = test_cluster().await;
    crash_everywhere(&test, 12, async |requests| {
        let name = format!("a-{requests}");
        let mut wanted = shared_pod(&name);
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("3");
        let made = test.create(&kind::POD, wanted).await;
        let groups = ["g", "h", "i"].map(|group| format!("{group}-{requests}"));
        test.request(&made, "node-1", &fraction(&[&groups[0], &groups[1], &groups[2]])).await;
        test.until_phase(&name, "Succeeded").await;
        test.until(&kind::POD, &name, |pod| phase(pod) == "Running").await;
        assert_eq!(test.reservations().await.len(), 3, "after {requests} requests");
        let map = test.get(&kind::CONFIG_MAP, &format!("{name}-abcdefg-shared-gpu-0")).await;
        let visible = object::str_at(&map, "/data/NVIDIA_VISIBLE_DEVICES");
        let mut devices: Vec<&str> = visible.split(',').collect();
        devices.sort_unstable();
        devices.dedup();
        assert_eq!(devices.len(), 3, "after {requests} requests: {visible}");
        test.delete(&kind::POD, &name).await;
        test.until_reservations(0).await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_is_deleted_wherever_the_binder_crashes() {
    let test = test_cluster().await;
    for requests in 0.. {
        let name = format!("a-{requests}");
        let made = test.create(&kind::POD, shared_pod(&name)).await;
        test.request(&made, "node-1", &fraction(&[&format!("g-{requests}")])).await;
        test.until_phase(&name, "Succeeded").await;
        test.sleep(5).await;
        let before = test.cluster.faults().counts(BINDER).crashes;
        test.cluster.faults().crash_after(BINDER, requests);
        test.delete(&kind::POD, &name).await;
        test.until_reservations(0).await;
        test.sleep(10).await;
        if test.cluster.faults().counts(BINDER).crashes == before {
            assert!(requests > 2, "deleting the reservation takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_bind_is_rolled_back_wherever_the_binder_crashes() {
    let test = test_cluster().await;
    // One GPU is free: the reservation of the first of two groups succeeds and is rolled back.
    for index in 0..3 {
        let mut whole = crate::pod(&format!("whole-{index}"), &json!({}));
        whole["spec"]["nodeName"] = json!("node-1");
        whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        test.create(&kind::POD, whole).await;
    }
    test.until(&kind::POD, "whole-2", |pod| phase(pod) == "Running").await;
    crash_everywhere(&test, 6, async |requests| {
        let name = format!("a-{requests}");
        let mut wanted = shared_pod(&name);
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("2");
        let made = test.create(&kind::POD, wanted).await;
        let groups = [format!("g-{requests}"), format!("h-{requests}")];
        test.request(&made, "node-1", &fraction(&[&groups[0], &groups[1]])).await;
        test.until_phase(&name, "Failed").await;
        test.until_reservations(0).await;
        let left = test.get(&kind::POD, &name).await;
        assert!(left["spec"].get("nodeName").is_none(), "after {requests} requests");
        let labels = left["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(labels, json!({}), "after {requests} requests");
        let maps = test.cluster.api().list_dynamic(&kind::CONFIG_MAP, "default").await.unwrap().items;
        let none = maps.iter().all(|map| !object::name(map).contains("shared-gpu"));
        assert!(none, "after {requests} requests");
        assert_eq!(phase(&test.get(&BIND_REQUEST, &name).await), "Failed");
        test.delete(&kind::POD, &name).await;
    })
    .await;
}

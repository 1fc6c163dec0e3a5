//! A binder that dies between any two of its requests, and comes to the same end.

use crate::{
    BINDER, CONFIG_MAP, DEVICE, Reporter, World, annotation, builder, crash_everywhere, fraction, phase,
    shared_pod,
};
use kai_binder::{BIND_REQUEST, Options};
use kai_object as object;
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::json;

async fn world() -> World {
    let one_node = builder().nodes([NodeGroup::gpu_nodes(1, 4)]);
    World::with(one_node, Options::default(), Reporter::Runs).await
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_share_a_gpu_are_bound_wherever_the_binder_crashes() {
    let world = world().await;
    crash_everywhere(&world, 12, async |requests| {
        let names = [format!("a-{requests}"), format!("b-{requests}")];
        for name in &names {
            let made = world.create(&kind::POD, shared_pod(name)).await;
            world.request(&made, "node-1", &fraction(&[&format!("g-{requests}")])).await;
        }
        for name in &names {
            world.until_phase(name, "Succeeded").await;
            world.until(&kind::POD, name, |pod| phase(pod) == "Running").await;
        }
        let reservations = world.reservations().await;
        assert_eq!(reservations.len(), 1, "after {requests} requests");
        let device = annotation(&reservations[0], DEVICE);
        for name in &names {
            let map = world.get(&CONFIG_MAP, &format!("{name}-abcdefg-shared-gpu-0-evar")).await;
            assert_eq!(map["data"]["NVIDIA_VISIBLE_DEVICES"], device, "after {requests} requests");
            world.delete(&kind::POD, name).await;
        }
        world.until_reservations(0).await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_shares_several_gpus_is_bound_wherever_the_binder_crashes() {
    let world = world().await;
    crash_everywhere(&world, 12, async |requests| {
        let name = format!("a-{requests}");
        let mut wanted = shared_pod(&name);
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("3");
        let made = world.create(&kind::POD, wanted).await;
        let groups = ["g", "h", "i"].map(|group| format!("{group}-{requests}"));
        world.request(&made, "node-1", &fraction(&[&groups[0], &groups[1], &groups[2]])).await;
        world.until_phase(&name, "Succeeded").await;
        world.until(&kind::POD, &name, |pod| phase(pod) == "Running").await;
        assert_eq!(world.reservations().await.len(), 3, "after {requests} requests");
        let map = world.get(&CONFIG_MAP, &format!("{name}-abcdefg-shared-gpu-0-evar")).await;
        let told = object::str_at(&map, "/data/NVIDIA_VISIBLE_DEVICES");
        let mut devices: Vec<&str> = told.split(',').collect();
        devices.sort_unstable();
        devices.dedup();
        assert_eq!(devices.len(), 3, "after {requests} requests: {told}");
        world.delete(&kind::POD, &name).await;
        world.until_reservations(0).await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gpu_is_freed_wherever_the_binder_crashes() {
    let world = world().await;
    for requests in 0.. {
        let name = format!("a-{requests}");
        let made = world.create(&kind::POD, shared_pod(&name)).await;
        world.request(&made, "node-1", &fraction(&[&format!("g-{requests}")])).await;
        world.until_phase(&name, "Succeeded").await;
        world.sleep(5).await;
        let before = world.cluster.faults().counts(BINDER).crashes;
        world.cluster.faults().crash_after(BINDER, requests);
        world.delete(&kind::POD, &name).await;
        world.until_reservations(0).await;
        world.sleep(10).await;
        if world.cluster.faults().counts(BINDER).crashes == before {
            assert!(requests > 2, "freeing a GPU takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_failed_binding_is_undone_wherever_the_binder_crashes() {
    let world = world().await;
    // One GPU is left: of two that a pod shares the first is reserved, and given back.
    for index in 0..3 {
        let mut whole = crate::pod(&format!("whole-{index}"), &json!({}));
        whole["spec"]["nodeName"] = json!("node-1");
        whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        world.create(&kind::POD, whole).await;
    }
    world.until(&kind::POD, "whole-2", |pod| phase(pod) == "Running").await;
    crash_everywhere(&world, 6, async |requests| {
        let name = format!("a-{requests}");
        let mut wanted = shared_pod(&name);
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("2");
        let made = world.create(&kind::POD, wanted).await;
        let groups = [format!("g-{requests}"), format!("h-{requests}")];
        world.request(&made, "node-1", &fraction(&[&groups[0], &groups[1]])).await;
        world.until_phase(&name, "Failed").await;
        world.until_reservations(0).await;
        let left = world.get(&kind::POD, &name).await;
        assert!(left["spec"].get("nodeName").is_none(), "after {requests} requests");
        let labels = left["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(labels, json!({}), "after {requests} requests");
        let maps = world.cluster.api().list_dynamic(&CONFIG_MAP, "default").await.unwrap().items;
        let none = maps.iter().all(|map| !object::name(map).contains("shared-gpu"));
        assert!(none, "after {requests} requests");
        assert_eq!(phase(&world.get(&BIND_REQUEST, &name).await), "Failed");
        world.delete(&kind::POD, &name).await;
    })
    .await;
}

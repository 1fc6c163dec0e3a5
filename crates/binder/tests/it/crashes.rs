//! A binder that dies between any two of its requests, and comes to the same end.

use crate::{BINDER, CONFIG_MAP, DEVICE, Reporter, World, annotation, builder, fraction, phase, shared_pod};
use kai_binder::{BIND_REQUEST, Options};
use kai_object as object;
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::json;

fn one_node() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(1, 4)])
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_share_a_gpu_are_bound_wherever_the_binder_crashes() {
    for requests in 0.. {
        let world = World::with(one_node(), Options::default(), Reporter::Runs).await;
        world.cluster.faults().crash_after(BINDER, requests);
        for name in ["a", "b"] {
            let made = world.create(&kind::POD, shared_pod(name)).await;
            world.request(&made, "node-1", &fraction(&["g-1"])).await;
        }
        for name in ["a", "b"] {
            world.until_phase(name, "Succeeded").await;
            world.until(&kind::POD, name, |pod| phase(pod) == "Running").await;
        }
        let reservations = world.reservations().await;
        assert_eq!(reservations.len(), 1, "after {requests} requests");
        let device = annotation(&reservations[0], DEVICE);
        for name in ["a", "b"] {
            let map = world.get(&CONFIG_MAP, &format!("{name}-abcdefg-shared-gpu-0-evar")).await;
            assert_eq!(map["data"]["NVIDIA_VISIBLE_DEVICES"], device, "after {requests} requests");
            world.delete(&kind::POD, name).await;
        }
        let crashed = world.cluster.faults().counts(BINDER).crashes > 0;
        // One that has not crashed yet may do so while it cleans up.
        world.until_reservations(0).await;
        if !crashed {
            assert!(requests > 12, "sharing a GPU takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gpu_is_freed_wherever_the_binder_crashes() {
    for requests in 0.. {
        let world = World::with(one_node(), Options::default(), Reporter::Runs).await;
        let made = world.create(&kind::POD, shared_pod("a")).await;
        world.request(&made, "node-1", &fraction(&["g-1"])).await;
        world.until_phase("a", "Succeeded").await;
        world.sleep(5).await;
        world.cluster.faults().crash_after(BINDER, requests);
        world.delete(&kind::POD, "a").await;
        world.until_reservations(0).await;
        if world.cluster.faults().counts(BINDER).crashes == 0 {
            assert!(requests > 2, "freeing a GPU takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_failed_binding_is_undone_wherever_the_binder_crashes() {
    for requests in 0.. {
        let world = World::with(one_node(), Options::default(), Reporter::Runs).await;
        world.cluster.faults().crash_after(BINDER, requests);
        // Its second GPU does not exist: the first one is reserved, and given back.
        for index in 0..3 {
            let mut whole = crate::pod(&format!("whole-{index}"), &json!({}));
            whole["spec"]["nodeName"] = json!("node-1");
            whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
            world.create(&kind::POD, whole).await;
        }
        world.until(&kind::POD, "whole-2", |pod| phase(pod) == "Running").await;
        let mut wanted = shared_pod("a");
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("2");
        let made = world.create(&kind::POD, wanted).await;
        world.request(&made, "node-1", &fraction(&["g-1", "g-2"])).await;
        world.until_phase("a", "Failed").await;
        world.until_reservations(0).await;
        world.sleep(20).await;
        let left = world.get(&kind::POD, "a").await;
        assert!(left["spec"].get("nodeName").is_none(), "after {requests} requests");
        let labels = left["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(labels, json!({}), "after {requests} requests");
        let maps = world.cluster.api().list(&CONFIG_MAP, "default").await.unwrap().items;
        assert!(
            maps.iter().all(|map| !object::name(map).contains("shared-gpu")),
            "after {requests} requests"
        );
        assert_eq!(phase(&world.get(&BIND_REQUEST, "a").await), "Failed");
        if world.cluster.faults().counts(BINDER).crashes == 0 {
            assert!(requests > 6, "undoing takes more than {requests} requests");
            return;
        }
    }
}

//! Pods that share GPUs: who holds which GPU, what containers are told, and when a GPU is free again.

use crate::{
    CONFIG_MAP, DEVICE, RESERVED, Reporter, World, annotation, builder, fraction, phase, pod, shared_pod,
};
use kai_binder::{BIND_REQUEST, Options, plugin};
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::kind;
use kai_sim::{FaultRates, NodeGroup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn one_node() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(1, 8)])
}

async fn devices_told(world: &World, pod: &str) -> String {
    let map = world.get(&CONFIG_MAP, &format!("{pod}-abcdefg-shared-gpu-0-evar")).await;
    map["data"]["NVIDIA_VISIBLE_DEVICES"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_shared_gpu_is_held_as_long_as_a_pod_uses_it() {
    let world = World::new().await;
    let first = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&first, "node-1", &fraction(&["g-1"])).await;
    world.until_phase("a", "Succeeded").await;
    let bound = world.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(bound["metadata"]["labels"], json!({"runai-gpu-group": "g-1"}));
    assert_eq!(annotation(&bound, "received-resource-type"), "Fraction");
    let reservation = &world.until_reservations(1).await[0];
    assert_eq!(reservation["metadata"]["labels"], json!({"app": RESERVED, "runai-gpu-group": "g-1"}));
    let device = annotation(reservation, DEVICE).to_owned();
    assert_eq!(device, "GPU-node-1-0");
    assert_eq!(devices_told(&world, "a").await, device);
    let map = world.get(&CONFIG_MAP, "a-abcdefg-shared-gpu-0").await;
    assert_eq!(map["data"], json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"}));
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], object::uid(&first));

    let second = world.create(&kind::POD, shared_pod("b")).await;
    world.request(&second, "node-1", &fraction(&["g-1"])).await;
    world.until_phase("b", "Succeeded").await;
    assert_eq!(devices_told(&world, "b").await, device);
    world.delete(&kind::POD, "a").await;
    world.gone(&kind::POD, "a").await;
    world.sleep(120).await;
    assert_eq!(world.reservations().await.len(), 1, "the other still uses it");
    world.delete(&kind::POD, "b").await;
    world.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn parts_of_several_gpus_are_held_and_freed_together() {
    let world = World::new().await;
    let mut wanted = shared_pod("a");
    wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("2");
    wanted["metadata"]["annotations"]["sim.kai.scheduler/run-for"] = json!("30s");
    let made = world.create(&kind::POD, wanted).await;
    world.request(&made, "node-1", &fraction(&["g-1", "g-2"])).await;
    world.until_phase("a", "Succeeded").await;
    let bound = world.get(&kind::POD, "a").await;
    assert_eq!(
        bound["metadata"]["labels"],
        json!({"runai-gpu-group/g-1": "g-1", "runai-gpu-group/g-2": "g-2"})
    );
    assert_eq!(devices_told(&world, "a").await, "GPU-node-1-0,GPU-node-1-1");
    world.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(world.reservations().await.len(), 2);
    world.until(&kind::POD, "a", |pod| phase(pod) == "Succeeded").await;
    world.until_reservations(0).await;
    assert!(world.find(&BIND_REQUEST, "a").await.is_some(), "the request stays with its pod");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn parts_of_several_gpus_are_reserved_side_by_side() {
    let options = Options { concurrent_max: 1, ..Options::default() };
    let world = World::with(one_node(), options, Reporter::Silent).await;
    let mut wanted = shared_pod("a");
    wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("3");
    let made = world.create(&kind::POD, wanted).await;
    world.request(&made, "node-1", &fraction(&["g-1", "g-2", "g-3"])).await;
    world.until_reservations(3).await;
    let begun = world.cluster.clock().now();
    world.until_phase("a", "Failed").await;
    let waited = world.cluster.clock().now().duration_since(begun).as_secs();
    assert!(waited < 50, "all have the same 40 s, and not one after the other: {waited} s");
    world.until_reservations(0).await;
}

/// Pods by the GPU they were told, which must be a GPU that the reservation of their group holds.
async fn pods_by_gpu(world: &World, count: usize) -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for reservation in world.reservations().await {
        let group = object::str_at(&reservation, "/metadata/labels/runai-gpu-group").to_owned();
        let before = held.insert(group, annotation(&reservation, DEVICE).to_owned());
        assert!(before.is_none(), "a group has two reservations");
    }
    let mut pods = BTreeMap::new();
    for index in 0..count {
        let name = format!("half-{index}");
        let pod = world.get(&kind::POD, &name).await;
        assert_eq!(phase(&pod), "Running", "{name}");
        let device = devices_told(world, &name).await;
        let group = object::str_at(&pod, "/metadata/labels/runai-gpu-group");
        assert_eq!(held.get(group), Some(&device), "{name} was told another GPU than its group has");
        *pods.entry(device).or_insert(0) += 1;
    }
    pods
}

async fn submit_halves(world: &World) {
    for index in 0..16 {
        let made = world.create(&kind::POD, shared_pod(&format!("half-{index}"))).await;
        // Two pods of a group are far apart, so that their attempts meet in every way.
        world.request(&made, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpus_are_two_on_each_of_eight() {
    for seed in 0..12 {
        let options = Options { concurrent_max: 1 + seed as usize, ..Options::default() };
        let world = World::with(one_node().seed(seed), options, Reporter::Runs).await;
        if seed % 2 == 1 {
            let late = FaultRates {
                event_late: 300_000,
                slow: 200_000,
                delay_max: Duration::from_secs(3),
                ..FaultRates::default()
            };
            world.cluster.faults().set_rates(late);
        }
        submit_halves(&world).await;
        for index in 0..16 {
            world.until_phase(&format!("half-{index}"), "Succeeded").await;
            world.until(&kind::POD, &format!("half-{index}"), |pod| phase(pod) == "Running").await;
        }
        let pods = pods_by_gpu(&world, 16).await;
        assert_eq!(pods.len(), 8, "seed {seed}: {pods:?}");
        assert!(pods.values().all(|count| *count == 2), "seed {seed}: {pods:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpus_end_well_on_bad_days() {
    for seed in 0..8 {
        let world = World::with(one_node().seed(seed), Options::default(), Reporter::Runs).await;
        let crashes = FaultRates { crash: 5_000, ..FaultRates::mixed() };
        world.cluster.faults().set_client_rates(crate::BINDER, crashes);
        submit_halves(&world).await;
        world.sleep(900).await;
        world.cluster.faults().heal_all();
        for index in 0..16 {
            let name = format!("half-{index}");
            // A scheduler would delete what failed and decide anew.
            loop {
                let request = world.until(&BIND_REQUEST, &name, |request| !phase(request).is_empty()).await;
                if phase(&request) == "Succeeded" {
                    break;
                }
                world.delete(&BIND_REQUEST, &name).await;
                let pod = world.get(&kind::POD, &name).await;
                world.request(&pod, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
            }
            world.until(&kind::POD, &name, |pod| phase(pod) == "Running").await;
        }
        let pods = pods_by_gpu(&world, 16).await;
        assert_eq!(pods.len(), 8, "seed {seed}: {pods:?}");
        assert!(pods.values().all(|count| *count == 2), "seed {seed}: {pods:?}");
        for index in 0..16 {
            world.delete(&kind::POD, &format!("half-{index}")).await;
        }
        world.until_reservations(0).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    let mut digests = Vec::new();
    for _ in 0..2 {
        let world = World::with(one_node().seed(5), Options::default(), Reporter::Runs).await;
        world.cluster.faults().set_rates(FaultRates::mixed());
        submit_halves(&world).await;
        world.sleep(120).await;
        digests.push(world.cluster.journal().digest());
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_request_without_groups_goes() {
    let world = World::new().await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&made, "node-1", &fraction(&[])).await;
    world.gone(&BIND_REQUEST, "a").await;
    assert!(world.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
    let told = world.until(&kind::POD, "a", |pod| crate::condition(pod, "PodBound").is_some()).await;
    assert_eq!(crate::condition(&told, "PodBound").unwrap()["status"], "False");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gpu_that_is_not_reported_in_time_is_given_back() {
    let world = World::with(one_node(), Options::default(), Reporter::Silent).await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    world.until_reservations(1).await;
    world.sleep(30).await;
    assert_eq!(world.reservations().await.len(), 1, "it has its time");
    let request = world.until_phase("a", "Failed").await;
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("reported no GPU within 40 s"), "{reason}");
    assert!(world.reservations().await.is_empty());
    let left = world.get(&kind::POD, "a").await;
    assert!(left["metadata"].get("labels").is_none_or(|labels| labels.as_object().unwrap().is_empty()));
    assert!(left["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_reservation_that_the_node_refuses_fails_at_once() {
    let world =
        World::with(builder().nodes([NodeGroup::gpu_nodes(1, 1)]), Options::default(), Reporter::Runs).await;
    let mut whole = pod("whole", &json!({}));
    whole["spec"]["nodeName"] = json!("node-1");
    whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    world.create(&kind::POD, whole).await;
    world.until(&kind::POD, "whole", |pod| phase(pod) == "Running").await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    let begin = tokio::time::Instant::now();
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = world.until_phase("a", "Failed").await;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("Node didn't have enough resource: nvidia.com/gpu"), "{reason}");
    world.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_request_that_is_withdrawn_binds_nothing_and_frees_its_gpu() {
    let world = World::with(one_node(), Options::default(), Reporter::Silent).await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    let reservation = world.until_reservations(1).await.remove(0);
    world.delete(&BIND_REQUEST, "a").await;
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    let key = kai_runtime::Key::of(&reservation);
    // It may be gone already, which is as good.
    let _ = world.cluster.api().patch_dynamic(&kind::POD, &key, Part::Main, &device).await;
    world.until_reservations(0).await;
    world.sleep(60).await;
    assert!(world.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_goes_while_its_gpu_is_reserved_leaves_nothing() {
    let world = World::with(one_node(), Options::default(), Reporter::Silent).await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    let mut request = crate::bind_request(&made, "node-1", &fraction(&["g-1"]));
    // Nobody collects it with the pod: it is the label that fails.
    request["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    world.create(&BIND_REQUEST, request).await;
    let reservation = world.until_reservations(1).await.remove(0);
    world.delete(&kind::POD, "a").await;
    world.gone(&kind::POD, "a").await;
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    let key = kai_runtime::Key::of(&reservation);
    world.cluster.api().patch_dynamic(&kind::POD, &key, Part::Main, &device).await.unwrap();
    let request = world.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("not found"), "{request:#}");
    world.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_reservation_that_an_earlier_binder_made_is_waited_for() {
    let mut world = World::without_binder(one_node(), Reporter::Silent).await;
    let mut known = pod("gpu-reservation-6a5c0e0c3f1b2d4e", &json!({}));
    known["metadata"]["labels"] = json!({"app": RESERVED, "runai-gpu-group": "g-1"});
    known["spec"]["nodeName"] = json!("node-1");
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    // Made under another name by an older binder, and one that has its GPU.
    known["metadata"]["annotations"] = device["metadata"]["annotations"].clone();
    world.create_in(&kind::POD, RESERVED, known).await;
    for name in ["a", "b"] {
        let made = world.create(&kind::POD, shared_pod(name)).await;
        world.request(&made, "node-1", &fraction(&[if name == "a" { "g-1" } else { "g-2" }])).await;
    }
    world.start_binder(Options::default());
    world.until_phase("a", "Succeeded").await;
    assert_eq!(devices_told(&world, "a").await, "GPU-x");
    let made = world.until_reservations(2).await;
    let own =
        made.iter().find(|pod| object::str_at(pod, "/metadata/labels/runai-gpu-group") == "g-2").unwrap();
    world.cluster.faults().crash(crate::BINDER);
    world.sleep(20).await;
    world
        .cluster
        .api()
        .patch_dynamic(&kind::POD, &kai_runtime::Key::of(own), Part::Main, &device)
        .await
        .unwrap();
    world.until_phase("b", "Succeeded").await;
    let kept = world.until_reservations(2).await;
    assert!(kept.iter().any(|pod| object::uid(pod) == object::uid(own)), "it is the same reservation");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn no_gpu_is_reserved_while_the_cluster_scales_up() {
    let world = World::new().await;
    world.create_in(&kind::POD, "kai-scale-adjust", pod("default-a", &json!({}))).await;
    world.sleep(2).await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = world.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("scales up"), "{request:#}");
    assert!(world.reservations().await.is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_nobody_uses_is_found_at_the_start() {
    let mut world = World::without_binder(one_node(), Reporter::Runs).await;
    let mut orphan = pod("gpu-reservation-old", &json!({}));
    orphan["metadata"]["labels"] = json!({"app": RESERVED, "runai-gpu-group": "g-1"});
    orphan["spec"]["nodeName"] = json!("node-1");
    world.create_in(&kind::POD, RESERVED, orphan).await;
    let user = |name: &str, phase_at: &str| {
        let mut user = shared_pod(name);
        user["metadata"]["labels"] = json!({"runai-gpu-group": format!("lost-{name}")});
        user["spec"]["nodeName"] = json!("node-1");
        user["metadata"]["annotations"]["sim.kai.scheduler/start-delay"] = json!(phase_at);
        user
    };
    world.create(&kind::POD, user("running", "1s")).await;
    world.create(&kind::POD, user("starting", "1h")).await;
    world.until(&kind::POD, "running", |pod| phase(pod) == "Running").await;
    world.start_binder(Options::default());
    world.until_reservations(0).await;
    world.gone(&kind::POD, "running").await;
    world.sleep(60).await;
    assert_eq!(phase(&world.get(&kind::POD, "starting").await), "Pending", "it has not begun to use the GPU");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_whole_gpu_is_free_before_the_next_pod_gets_it() {
    for seed in 0..6 {
        let world = World::with(
            builder().seed(seed).nodes([NodeGroup::gpu_nodes(1, 1)]),
            Options::default(),
            Reporter::Runs,
        )
        .await;
        let mut wanted = shared_pod("a");
        wanted["metadata"]["annotations"]["sim.kai.scheduler/run-for"] = json!("20s");
        let made = world.create(&kind::POD, wanted).await;
        world.request(&made, "node-1", &fraction(&["g-1"])).await;
        world.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
        // The binder learns of the end only later than whoever decides.
        let late =
            FaultRates { event_late: 900_000, delay_max: Duration::from_secs(20), ..FaultRates::default() };
        world.cluster.faults().set_client_rates(crate::BINDER, late);
        let mut whole = pod("whole", &json!({}));
        whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        let whole = world.create(&kind::POD, whole).await;
        world.until(&kind::POD, "a", |pod| phase(pod) == "Succeeded").await;
        world.request(&whole, "node-1", &json!({"receivedGPU": {"count": 1, "portion": "1.00"}})).await;
        let ran = world.until(&kind::POD, "whole", |pod| !matches!(phase(pod), "Pending" | "")).await;
        assert_eq!(phase(&ran), "Running", "seed {seed}: {:#}", ran["status"]);
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_memory_limit_is_told_where_hami_core_is_used() {
    let overrides = serde_json::from_value(json!({"hamicore": {"enabled": true}})).unwrap();
    let options = Options { plugins: plugin::resolve(&overrides).unwrap(), ..Options::default() };
    let world = World::with(one_node(), options, Reporter::Runs).await;
    let made = world.create(&kind::POD, shared_pod("a")).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    world.until_phase("a", "Succeeded").await;
    let map = world.get(&CONFIG_MAP, "a-abcdefg-shared-gpu-0").await;
    assert_eq!(map["data"]["CUDA_DEVICE_MEMORY_LIMIT"], "40779m");
    assert_eq!(map["data"]["GPU_PORTION"], "0.50");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_no_webhook_has_prepared_is_refused_unless_allowed() {
    let unprepared = || pod("a", &json!({"gpu-fraction": "0.5"}));
    let world = World::new().await;
    let made = world.create(&kind::POD, unprepared()).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = world.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("runai/shared-gpu-configmap"), "{request:#}");
    world.until_reservations(0).await;
    let left = world.get(&kind::POD, "a").await;
    let labels = left["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
    assert_eq!(labels, json!({}));

    let options = Options { allow_unmutated_pods: true, ..Options::default() };
    let world = World::with(one_node(), options, Reporter::Runs).await;
    let made = world.create(&kind::POD, unprepared()).await;
    world.request(&made, "node-1", &fraction(&["g-1"])).await;
    world.until_phase("a", "Succeeded").await;
    let maps: Vec<Value> = world.cluster.api().list_dynamic(&CONFIG_MAP, "default").await.unwrap().items;
    assert!(maps.iter().all(|map| !object::name(map).contains("shared-gpu")));
}

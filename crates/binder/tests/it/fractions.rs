//! GPU sharing: reservation pods, config maps of containers, and the deletion of unused reservations.

use crate::{
    BIND_REQUEST, DEVICE, RESERVED, Reporter, TestCluster, annotation, builder, condition, fraction, phase,
    pod, shared_pod,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use kai_binder::{Options, plugin};
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

async fn visible_devices(test: &TestCluster, pod: &str) -> String {
    let map = test.get(&kind::CONFIG_MAP, &format!("{pod}-abcdefg-shared-gpu-0")).await;
    map["data"]["NVIDIA_VISIBLE_DEVICES"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_exists_while_a_pod_uses_the_gpu() {
    let test = TestCluster::new().await;
    let first = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&first, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("a", "Succeeded").await;
    let bound = test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(bound["metadata"]["labels"], json!({"runai-gpu-group": "g-1"}));
    assert_eq!(annotation(&bound, "received-resource-type"), "Fraction");
    let reservation = &test.until_reservations(1).await[0];
    assert_eq!(reservation["metadata"]["labels"], json!({"app": RESERVED, "runai-gpu-group": "g-1"}));
    let device = annotation(reservation, DEVICE).to_owned();
    assert_eq!(device, "GPU-node-1-0");
    assert_eq!(visible_devices(&test, "a").await, device);
    let map = test.get(&kind::CONFIG_MAP, "a-abcdefg-shared-gpu-0").await;
    assert_eq!(
        map["data"],
        json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50", "NVIDIA_VISIBLE_DEVICES": device})
    );
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], object::uid(&first));

    let second = test.create(&kind::POD, shared_pod("b")).await;
    test.request(&second, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("b", "Succeeded").await;
    assert_eq!(visible_devices(&test, "b").await, device);
    test.delete(&kind::POD, "a").await;
    test.gone(&kind::POD, "a").await;
    test.sleep(120).await;
    assert_eq!(test.reservations().await.len(), 1, "the other pod uses it");
    test.delete(&kind::POD, "b").await;
    test.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservations_of_several_gpus_are_created_and_deleted_together() {
    let test = TestCluster::new().await;
    let mut wanted = shared_pod("a");
    wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("2");
    wanted["metadata"]["annotations"]["sim.kai.scheduler/run-for"] = json!("30s");
    let made = test.create(&kind::POD, wanted).await;
    test.request(&made, "node-1", &fraction(&["g-1", "g-2"])).await;
    test.until_phase("a", "Succeeded").await;
    let bound = test.get(&kind::POD, "a").await;
    assert_eq!(
        bound["metadata"]["labels"],
        json!({"runai-gpu-group/g-1": "g-1", "runai-gpu-group/g-2": "g-2"})
    );
    assert_eq!(visible_devices(&test, "a").await, "GPU-node-1-0,GPU-node-1-1");
    test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(test.reservations().await.len(), 2);
    test.until(&kind::POD, "a", |pod| phase(pod) == "Succeeded").await;
    test.until_reservations(0).await;
    assert!(test.find(&BIND_REQUEST, "a").await.is_some(), "the request is kept with its pod");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn several_gpus_are_reserved_concurrently() {
    let options = Options { concurrent_max: 1, ..Options::default() };
    let test = TestCluster::with(one_node(), options, Reporter::Absent).await;
    let mut wanted = shared_pod("a");
    wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!("3");
    let made = test.create(&kind::POD, wanted).await;
    test.request(&made, "node-1", &fraction(&["g-1", "g-2", "g-3"])).await;
    test.until_reservations(3).await;
    let begun = test.cluster.clock().now();
    test.until_phase("a", "Failed").await;
    let waited = test.cluster.clock().now().duration_since(begun).as_secs();
    assert!(waited < 50, "one timeout of 40 s for all: {waited} s");
    test.until_reservations(0).await;
}

/// Number of pods by visible GPU, which must be the one that the reservation of their group holds.
async fn pods_by_gpu(test: &TestCluster, count: usize) -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for reservation in test.reservations().await {
        let group = object::str_at(&reservation, "/metadata/labels/runai-gpu-group").to_owned();
        let before = held.insert(group, annotation(&reservation, DEVICE).to_owned());
        assert!(before.is_none(), "a group has two reservations");
    }
    let mut pods = BTreeMap::new();
    for index in 0..count {
        let name = format!("half-{index}");
        let pod = test.get(&kind::POD, &name).await;
        assert_eq!(phase(&pod), "Running", "{name}");
        let device = visible_devices(test, &name).await;
        let group = object::str_at(&pod, "/metadata/labels/runai-gpu-group");
        assert_eq!(held.get(group), Some(&device), "{name} sees another GPU than its group has");
        *pods.entry(device).or_insert(0) += 1;
    }
    pods
}

async fn submit_halves(test: &TestCluster) {
    for index in 0..16 {
        let made = test.create(&kind::POD, shared_pod(&format!("half-{index}"))).await;
        // Pods of a group are created apart from each other, so that their attempts overlap in many ways.
        test.request(&made, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpus_share_eight_gpus() {
    for seed in 0..12 {
        let options = Options { concurrent_max: 1 + seed as usize, ..Options::default() };
        let test = TestCluster::with(one_node().seed(seed), options, Reporter::Runs).await;
        if seed % 2 == 1 {
            let late = FaultRates {
                event_late: 300_000,
                slow: 200_000,
                delay_max: Duration::from_secs(3),
                ..FaultRates::default()
            };
            test.cluster.faults().set_rates(late);
        }
        submit_halves(&test).await;
        for index in 0..16 {
            test.until_phase(&format!("half-{index}"), "Succeeded").await;
            test.until(&kind::POD, &format!("half-{index}"), |pod| phase(pod) == "Running").await;
        }
        let pods = pods_by_gpu(&test, 16).await;
        assert_eq!(pods.len(), 8, "seed {seed}: {pods:?}");
        assert!(pods.values().all(|count| *count == 2), "seed {seed}: {pods:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpus_share_eight_gpus_despite_faults() {
    for seed in 0..8 {
        let test = TestCluster::with(one_node().seed(seed), Options::default(), Reporter::Runs).await;
        let crashes = FaultRates { crash: 5_000, ..FaultRates::mixed() };
        test.cluster.faults().set_client_rates(crate::BINDER, crashes);
        submit_halves(&test).await;
        test.sleep(900).await;
        test.cluster.faults().heal_all();
        for index in 0..16 {
            let name = format!("half-{index}");
            // A scheduler deletes a failed request and decides again.
            loop {
                let request = test.until(&BIND_REQUEST, &name, |request| !phase(request).is_empty()).await;
                if phase(&request) == "Succeeded" {
                    break;
                }
                test.delete(&BIND_REQUEST, &name).await;
                let pod = test.get(&kind::POD, &name).await;
                test.request(&pod, "node-1", &fraction(&[&format!("g-{}", index % 8)])).await;
            }
            test.until(&kind::POD, &name, |pod| phase(pod) == "Running").await;
        }
        let pods = pods_by_gpu(&test, 16).await;
        assert_eq!(pods.len(), 8, "seed {seed}: {pods:?}");
        assert!(pods.values().all(|count| *count == 2), "seed {seed}: {pods:?}");
        for index in 0..16 {
            test.delete(&kind::POD, &format!("half-{index}")).await;
        }
        test.until_reservations(0).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn equal_seeds_give_equal_journals() {
    let mut digests = Vec::new();
    for _ in 0..2 {
        let test = TestCluster::with(one_node().seed(5), Options::default(), Reporter::Runs).await;
        test.cluster.faults().set_rates(FaultRates::mixed());
        submit_halves(&test).await;
        test.sleep(120).await;
        digests.push(test.cluster.journal().digest());
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fractional_request_without_groups_is_deleted() {
    let test = TestCluster::new().await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&[])).await;
    test.gone(&BIND_REQUEST, "a").await;
    assert!(test.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
    let failed = test.until(&kind::POD, "a", |pod| crate::condition(pod, "PodBound").is_some()).await;
    assert_eq!(crate::condition(&failed, "PodBound").unwrap()["status"], "False");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_without_a_report_is_deleted_after_the_timeout() {
    let test = TestCluster::with(one_node(), Options::default(), Reporter::Absent).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    test.until_reservations(1).await;
    test.sleep(30).await;
    assert_eq!(test.reservations().await.len(), 1, "before the timeout");
    let request = test.until_phase("a", "Failed").await;
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("reported no GPU within 40 s"), "{reason}");
    assert!(test.reservations().await.is_empty());
    let left = test.get(&kind::POD, "a").await;
    assert!(left["metadata"].get("labels").is_none_or(|labels| labels.as_object().unwrap().is_empty()));
    assert!(left["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_that_the_kubelet_rejects_fails_immediately() {
    let test =
        TestCluster::with(builder().nodes([NodeGroup::gpu_nodes(1, 1)]), Options::default(), Reporter::Runs)
            .await;
    let mut whole = pod("whole", &json!({}));
    whole["spec"]["nodeName"] = json!("node-1");
    whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    test.create(&kind::POD, whole).await;
    test.until(&kind::POD, "whole", |pod| phase(pod) == "Running").await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    let begin = tokio::time::Instant::now();
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = test.until_phase("a", "Failed").await;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("Node didn't have enough resource: nvidia.com/gpu"), "{reason}");
    test.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deleted_request_binds_no_pod_and_its_reservation_is_deleted() {
    let test = TestCluster::with(one_node(), Options::default(), Reporter::Absent).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    let reservation = test.until_reservations(1).await.remove(0);
    test.delete(&BIND_REQUEST, "a").await;
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    let key = kai_runtime::key_of(&reservation);
    // It may be deleted already.
    let _ = test.cluster.api().patch_dynamic(&kind::POD, &key, Part::Main, &device).await;
    test.until_reservations(0).await;
    test.sleep(60).await;
    assert!(test.get(&kind::POD, "a").await["spec"].get("nodeName").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_is_deleted_if_the_pod_is_deleted_meanwhile() {
    let test = TestCluster::with(one_node(), Options::default(), Reporter::Absent).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    let mut request = crate::bind_request(&made, "node-1", &fraction(&["g-1"]));
    // Without an owner the request is not garbage-collected with the pod: writing the label fails.
    request["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    test.create(&BIND_REQUEST, request).await;
    let reservation = test.until_reservations(1).await.remove(0);
    test.delete(&kind::POD, "a").await;
    test.gone(&kind::POD, "a").await;
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    let key = kai_runtime::key_of(&reservation);
    test.cluster.api().patch_dynamic(&kind::POD, &key, Part::Main, &device).await.unwrap();
    let request = test.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("not found"), "{request:#}");
    test.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_of_an_earlier_binder_is_used() {
    let mut test = TestCluster::without_binder(one_node(), Reporter::Absent).await;
    let mut known = pod("gpu-reservation-6a5c0e0c3f1b2d4e", &json!({}));
    known["metadata"]["labels"] = json!({"app": RESERVED, "runai-gpu-group": "g-1"});
    known["spec"]["nodeName"] = json!("node-1");
    let device = json!({"metadata": {"annotations": {DEVICE: "GPU-x"}}});
    // Created under another name by an older version, with a reported GPU.
    known["metadata"]["annotations"] = device["metadata"]["annotations"].clone();
    test.create_in(&kind::POD, RESERVED, known).await;
    for name in ["a", "b"] {
        let made = test.create(&kind::POD, shared_pod(name)).await;
        test.request(&made, "node-1", &fraction(&[if name == "a" { "g-1" } else { "g-2" }])).await;
    }
    test.start_binder(Options::default());
    test.until_phase("a", "Succeeded").await;
    assert_eq!(visible_devices(&test, "a").await, "GPU-x");
    let made = test.until_reservations(2).await;
    let own =
        made.iter().find(|pod| object::str_at(pod, "/metadata/labels/runai-gpu-group") == "g-2").unwrap();
    test.cluster.faults().crash(crate::BINDER);
    test.sleep(20).await;
    test.cluster
        .api()
        .patch_dynamic(&kind::POD, &kai_runtime::key_of(own), Part::Main, &device)
        .await
        .unwrap();
    test.until_phase("b", "Succeeded").await;
    let kept = test.until_reservations(2).await;
    assert!(kept.iter().any(|pod| object::uid(pod) == object::uid(own)), "it is the same reservation");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn no_gpu_is_reserved_while_the_cluster_scales_up() {
    let test = TestCluster::new().await;
    test.create_in(&kind::POD, "kai-scale-adjust", pod("default-a", &json!({}))).await;
    test.sleep(2).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = test.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("scales up"), "{request:#}");
    assert!(test.reservations().await.is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pod_that_no_scheduler_places_delays_no_reservation() {
    let test = TestCluster::new().await;
    let mut scaling = pod("default-a", &json!({}));
    scaling["spec"]["schedulerName"] = json!("kai-scaling-pod");
    test.create_in(&kind::POD, "kai-scale-adjust", scaling).await;
    test.sleep(2).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("a", "Succeeded").await;
}

/// An autoscaler would count the scaling pod and the reservation. Where no adjuster deletes the scaling pod, the wait ends.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gpu_is_reserved_when_the_scaling_pod_of_its_pod_is_deleted_or_after_two_seconds() {
    for is_deleted in [true, false] {
        let test = TestCluster::new().await;
        let mut scaling = pod("default-a", &json!({"kai.scheduler/scaling-for": "default/a"}));
        scaling["spec"]["schedulerName"] = json!("kai-scaling-pod");
        test.create_in(&kind::POD, "kai-scale-adjust", scaling).await;
        test.sleep(2).await;
        let made = test.create(&kind::POD, shared_pod("a")).await;
        test.request(&made, "node-1", &fraction(&["g-1"])).await;
        test.sleep(1).await;
        assert!(test.reservations().await.is_empty());
        if is_deleted {
            let key = kai_runtime::Key::new("kai-scale-adjust", "default-a");
            let options = kai_runtime::api::DeleteOptions::default().immediately();
            test.cluster.api().delete_dynamic(&kind::POD, &key, &options).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        } else {
            test.sleep(2).await;
        }
        assert_eq!(test.reservations().await.len(), 1, "deleted: {is_deleted}");
        test.until_phase("a", "Succeeded").await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unused_reservations_are_deleted_at_the_start_and_unreserved_users_keep_running() {
    let mut test = TestCluster::without_binder(one_node(), Reporter::Runs).await;
    let mut orphan = pod("gpu-reservation-old", &json!({}));
    orphan["metadata"]["labels"] = json!({"app": RESERVED, "runai-gpu-group": "g-1"});
    orphan["spec"]["nodeName"] = json!("node-1");
    test.create_in(&kind::POD, RESERVED, orphan).await;
    let user = |name: &str, phase_at: &str| {
        let mut user = shared_pod(name);
        user["metadata"]["labels"] = json!({"runai-gpu-group": format!("lost-{name}")});
        user["spec"]["nodeName"] = json!("node-1");
        user["metadata"]["annotations"]["sim.kai.scheduler/start-delay"] = json!(phase_at);
        user
    };
    test.create(&kind::POD, user("running", "1s")).await;
    test.create(&kind::POD, user("starting", "1h")).await;
    test.until(&kind::POD, "running", |pod| phase(pod) == "Running").await;
    test.start_binder(Options::default());
    test.until_reservations(0).await;
    test.sleep(120).await;
    assert_eq!(phase(&test.get(&kind::POD, "running").await), "Running");
    assert_eq!(phase(&test.get(&kind::POD, "starting").await), "Pending");
    assert!(test.reservations().await.is_empty(), "no bind request put these pods on a GPU");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unused_reservation_is_deleted_before_a_pod_with_a_whole_gpu_is_bound() {
    for seed in 0..6 {
        let test = TestCluster::with(
            builder().seed(seed).nodes([NodeGroup::gpu_nodes(1, 1)]),
            Options::default(),
            Reporter::Runs,
        )
        .await;
        let mut wanted = shared_pod("a");
        wanted["metadata"]["annotations"]["sim.kai.scheduler/run-for"] = json!("20s");
        let made = test.create(&kind::POD, wanted).await;
        test.request(&made, "node-1", &fraction(&["g-1"])).await;
        test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
        // The binder receives the end of the pod later than the scheduler.
        let late =
            FaultRates { event_late: 900_000, delay_max: Duration::from_secs(20), ..FaultRates::default() };
        test.cluster.faults().set_client_rates(crate::BINDER, late);
        let mut whole = pod("whole", &json!({}));
        whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        let whole = test.create(&kind::POD, whole).await;
        test.until(&kind::POD, "a", |pod| phase(pod) == "Succeeded").await;
        test.request(&whole, "node-1", &json!({"receivedGPU": {"count": 1, "portion": "1.00"}})).await;
        let ran = test.until(&kind::POD, "whole", |pod| !matches!(phase(pod), "Pending" | "")).await;
        assert_eq!(phase(&ran), "Running", "seed {seed}: {:#}", ran["status"]);
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn memory_limit_is_set_with_hami_core() {
    let overrides = serde_json::from_value(json!({"hamicore": {"enabled": true}})).unwrap();
    let options = Options { plugins: plugin::resolve(&overrides).unwrap(), ..Options::default() };
    let test = TestCluster::with(one_node(), options, Reporter::Runs).await;
    let made = test.create(&kind::POD, shared_pod("a")).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("a", "Succeeded").await;
    let map = test.get(&kind::CONFIG_MAP, "a-abcdefg-shared-gpu-0").await;
    assert_eq!(map["data"]["CUDA_DEVICE_MEMORY_LIMIT"], "40779m");
    assert_eq!(map["data"]["GPU_PORTION"], "0.50");
}

/// hami-01 and 03, on a GPU of 81,559 MiB: a limit for a request for memory, and within 1 % of a quarter for a quarter.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn memory_limit_of_hami_core_is_the_part_of_the_gpu_that_the_pod_receives() {
    let overrides = serde_json::from_value(json!({"hamicore": {"enabled": true}})).unwrap();
    let table = [
        (json!({"gpu-memory": "2000"}), "0.03", 1.0..81_559.0),
        (json!({"gpu-fraction": "0.25"}), "0.25", 20_186.0..20_594.0),
    ];
    for (request, portion, expected) in table {
        let options = Options { plugins: plugin::resolve(&overrides).unwrap(), ..Options::default() };
        let test = TestCluster::with(one_node(), options, Reporter::Runs).await;
        let mut wanted = shared_pod("a");
        if let Some(annotations) = wanted["metadata"]["annotations"].as_object_mut() {
            annotations.remove("gpu-fraction");
            annotations.extend(request.as_object().cloned().unwrap_or_default());
        }
        let mut decision = fraction(&["g-1"]);
        decision["receivedGPU"] = json!({"count": 1, "portion": portion});
        let made = test.create(&kind::POD, wanted).await;
        test.request(&made, "node-1", &decision).await;
        test.until_phase("a", "Succeeded").await;
        let map = test.get(&kind::CONFIG_MAP, "a-abcdefg-shared-gpu-0").await;
        let text = object::str_at(&map, "/data/CUDA_DEVICE_MEMORY_LIMIT");
        let limit: f64 = text.strip_suffix('m').unwrap_or_default().parse().unwrap();
        assert!(expected.contains(&limit), "{request}: {text}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn config_map_of_another_owner_is_left_alone() {
    let test = TestCluster::new().await;
    let name = "a-abcdefg-shared-gpu-0";
    let data = json!({"password": "kept"});
    let other = test.create(&kind::POD, pod("other", &json!({}))).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": object::uid(&other)}]);
    for (owners, said) in [
        (owner, "belongs to Pod `other` and is not changed"),
        (json!([]), "belongs to no pod, for its key `password`, and is not changed"),
    ] {
        let metadata = json!({"name": name, "ownerReferences": owners});
        test.create(&kind::CONFIG_MAP, json!({"metadata": metadata, "data": data})).await;
        let made = test.create(&kind::POD, shared_pod("a")).await;
        test.request(&made, "node-1", &fraction(&["g-1"])).await;
        let request = test.until_phase("a", "Failed").await;
        let reason = object::str_at(&request, "/status/reason");
        assert!(reason.contains(said), "{reason}");
        test.until_reservations(0).await;
        assert_eq!(test.get(&kind::CONFIG_MAP, name).await["data"], data, "neither overwritten nor deleted");
        test.delete(&kind::CONFIG_MAP, name).await;
        test.delete(&kind::POD, "a").await;
        test.gone(&kind::POD, "a").await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unmutated_pod_with_a_fraction_fails_unless_allowed() {
    let unmutated = || pod("a", &json!({"gpu-fraction": "0.5"}));
    let test = TestCluster::new().await;
    let made = test.create(&kind::POD, unmutated()).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = test.until_phase("a", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("runai/shared-gpu-configmap"), "{request:#}");
    test.until_reservations(0).await;
    let left = test.get(&kind::POD, "a").await;
    let labels = left["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
    assert_eq!(labels, json!({}));

    let bound = condition(&left, "PodBound").unwrap()["message"].as_str().unwrap_or_default();
    assert!(
        bound.contains("created without the admission webhook") && bound.contains("hint: delete the pod")
    );

    let options = Options { allow_unmutated_pods: true, ..Options::default() };
    let test = TestCluster::with(one_node(), options, Reporter::Runs).await;
    let made = test.create(&kind::POD, unmutated()).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("a", "Succeeded").await;
    let maps: Vec<Value> = test.cluster.api().list_dynamic(&kind::CONFIG_MAP, "default").await.unwrap().items;
    assert!(maps.iter().all(|map| !object::name(map).contains("shared-gpu")));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn annotation_of_the_webhook_is_added_where_it_is_missing() {
    let test = TestCluster::new().await;
    let mut without = shared_pod("a");
    without["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
    let made = test.create(&kind::POD, without).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    test.until_phase("a", "Succeeded").await;
    let bound = test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    assert_eq!(annotation(&bound, "runai/shared-gpu-configmap"), "a-abcdefg-shared-gpu");
    assert_eq!(visible_devices(&test, "a").await, "GPU-node-1-0");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn runtime_class_that_the_webhook_would_have_set_is_reported() {
    let options = Options { runtime_class_name: "nvidia".to_owned(), ..Options::default() };
    let test = TestCluster::with(one_node(), options, Reporter::Runs).await;
    let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"});
    test.create(&kind::builtin::<RuntimeClass>(), class).await;
    let mut with_class = shared_pod("b");
    with_class["spec"]["runtimeClassName"] = json!("nvidia");
    for (name, wanted) in [("a", shared_pod("a")), ("b", with_class)] {
        let made = test.create(&kind::POD, wanted).await;
        test.request(&made, "node-1", &fraction(&["g-1"])).await;
        test.until_phase(name, "Succeeded").await;
    }
    test.sleep(10).await;
    let events = test.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let reported: Vec<&Value> = events.iter().filter(|event| event["reason"] == "NoRuntimeClass").collect();
    assert_eq!(reported.len(), 1, "{events:#?}");
    let event = reported[0];
    assert_eq!(
        (object::str_at(event, "/involvedObject/name"), &event["type"]),
        ("a", &json!("Warning")),
        "{event:#}"
    );
    assert!(event.to_string().contains("`runtimeClassName: nvidia`"), "{event:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_whose_container_does_not_read_its_gpu_is_not_bound() {
    let test = TestCluster::new().await;
    let mut annotated = shared_pod("a");
    annotated["spec"]["containers"][0]["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let made = test.create(&kind::POD, annotated).await;
    test.request(&made, "node-1", &fraction(&["g-1"])).await;
    let request = test.until_phase("a", "Failed").await;
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("does not read `NVIDIA_VISIBLE_DEVICES`"), "{reason}");
    test.until_reservations(0).await;
    assert!(test.writes().iter().all(|write| !write.contains("/pods/a/binding")), "{:?}", test.writes());
}

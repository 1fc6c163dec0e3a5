//! Reservation pods that fail or are deleted while pods use their GPUs: the pods keep running, and the reservation is
//! renewed for the same GPU, or the GPU is drained.

use crate::{
    BINDER, DEVICE, RESERVED, Reporter, TestCluster, annotation, builder, crash_everywhere, fraction, phase,
    pod, shared_pod,
};
use kai_binder::Options;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part};
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

async fn test_cluster(gpus: u32) -> TestCluster {
    let nodes = builder().nodes([NodeGroup::gpu_nodes(1, gpus)]);
    TestCluster::with(nodes, Options::default(), Reporter::Runs).await
}

/// Binds a pod that shares the GPU of a group, and waits until it runs.
async fn run_shared(test: &TestCluster, name: &str, groups: &[&str]) -> Value {
    let mut wanted = shared_pod(name);
    if groups.len() > 1 {
        wanted["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!(groups.len().to_string());
    }
    let made = test.create(&kind::POD, wanted).await;
    test.request(&made, "node-1", &fraction(groups)).await;
    test.until(&kind::POD, name, |pod| phase(pod) == "Running").await
}

fn whole_gpu(name: &str) -> Value {
    let mut whole = pod(name, &json!({}));
    whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    whole
}

async fn reservation_of(test: &TestCluster, group: &str) -> Value {
    let mut all = test.reservations().await;
    all.retain(|pod| object::str_at(pod, "/metadata/labels/runai-gpu-group") == group);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// As a kubelet that evicts the pod under disk pressure.
async fn fail(test: &TestCluster, pod: &Value) {
    let failed = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}});
    let key = kai_runtime::key_of(pod);
    test.cluster.api().patch_dynamic(&kind::POD, &key, Part::Status, &failed).await.unwrap();
}

/// As a node drain.
async fn delete(test: &TestCluster, pod: &Value) {
    let key = kai_runtime::key_of(pod);
    let options = DeleteOptions::default();
    test.cluster.api().delete_dynamic(&kind::POD, &key, &options).await.unwrap();
}

/// Waits until exactly one other reservation pod of the group holds the device.
async fn until_renewed(test: &TestCluster, group: &str, device: &str, before: &Value) -> Value {
    for _ in 0..1_200 {
        let mut all = test.reservations().await;
        all.retain(|pod| object::str_at(pod, "/metadata/labels/runai-gpu-group") == group);
        if let [one] = &all[..]
            && object::uid(one) != object::uid(before)
            && phase(one) == "Running"
            && annotation(one, DEVICE) == device
        {
            return all.remove(0);
        }
        test.sleep(1).await;
    }
    panic!("the reservation of {group} is not renewed: {:#?}", test.reservations().await);
}

async fn assert_runs(test: &TestCluster, pod: &Value) {
    let now = test.get(&kind::POD, object::name(pod)).await;
    assert_eq!((object::uid(&now), phase(&now)), (object::uid(pod), "Running"), "{now:#}");
    assert!(now["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_or_deleted_reservation_is_renewed_for_the_same_gpu_while_its_users_run() {
    let test = test_cluster(8).await;
    let user = run_shared(&test, "a", &["g"]).await;
    let mut reservation = reservation_of(&test, "g").await;
    let device = annotation(&reservation, DEVICE).to_owned();
    for ending in 0..3 {
        if ending == 1 {
            delete(&test, &reservation).await;
        } else {
            fail(&test, &reservation).await;
        }
        reservation = until_renewed(&test, "g", &device, &reservation).await;
        assert_runs(&test, &user).await;
    }
    let second = run_shared(&test, "b", &["g"]).await;
    let map = test.get(&kind::CONFIG_MAP, "b-abcdefg-shared-gpu-0").await;
    assert_eq!(map["data"]["NVIDIA_VISIBLE_DEVICES"], device.as_str());
    test.sleep(300).await;
    assert_runs(&test, &second).await;
    for name in ["a", "b"] {
        test.delete(&kind::POD, name).await;
    }
    test.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn renewal_passes_over_other_free_gpus_and_releases_them() {
    let test = test_cluster(4).await;
    // The kubelet allocates the first free GPU: those of the first pod become free again.
    let first = run_shared(&test, "first", &["f-1", "f-2"]).await;
    let user = run_shared(&test, "a", &["g-1", "g-2"]).await;
    test.delete(&kind::POD, object::name(&first)).await;
    test.until_reservations(2).await;
    let reservation = reservation_of(&test, "g-2").await;
    let device = annotation(&reservation, DEVICE).to_owned();
    assert_eq!(device, "GPU-node-1-3");
    delete(&test, &reservation).await;
    // A pod with a whole GPU that arrives meanwhile is not rejected by the kubelet.
    let mut whole = Vec::new();
    for index in 0..2 {
        let name = format!("whole-{index}");
        let made = test.create(&kind::POD, whole_gpu(&name)).await;
        test.sleep(1).await;
        test.request(&made, "node-1", &json!({"receivedGPU": {"count": 1, "portion": "1.00"}})).await;
        whole.push(name);
    }
    until_renewed(&test, "g-2", &device, &reservation).await;
    for name in whole {
        let ran = test.until(&kind::POD, &name, |pod| !matches!(phase(pod), "" | "Pending")).await;
        assert_eq!(phase(&ran), "Running", "{:#}", ran["status"]);
    }
    assert_runs(&test, &user).await;
    assert_eq!(test.until_reservations(2).await.len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gpu_whose_reservation_cannot_be_renewed_is_drained_and_its_users_keep_running() {
    let test = test_cluster(1).await;
    let user = run_shared(&test, "a", &["g"]).await;
    let reservation = reservation_of(&test, "g").await;
    let device = annotation(&reservation, DEVICE).to_owned();
    // Another pod gets the GPU before the binder knows.
    test.cluster.faults().partition(BINDER);
    fail(&test, &reservation).await;
    let mut whole = whole_gpu("whole");
    whole["spec"]["nodeName"] = json!("node-1");
    test.create(&kind::POD, whole).await;
    test.until(&kind::POD, "whole", |pod| phase(pod) == "Running").await;
    test.cluster.faults().heal(BINDER);
    test.sleep(300).await;
    assert_runs(&test, &user).await;
    let events = test.cluster.api().list_dynamic(&kind::EVENT, "default").await.unwrap().items;
    let lost = events.iter().find(|event| event["reason"] == "GPUReservationLost").unwrap();
    assert!(object::str_at(lost, "/message").contains(&device), "{lost:#}");
    assert_eq!(lost["involvedObject"]["name"], "a");
    let request = test.until_phase("a", "Succeeded").await;
    assert_eq!(request["status"]["reason"], "GPUReservationLost: g", "the scheduler reads it");

    let late = test.create(&kind::POD, shared_pod("late")).await;
    test.request(&late, "node-1", &fraction(&["g"])).await;
    let request = test.until_phase("late", "Failed").await;
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("has lost its reservation"), "{reason}");
    assert_runs(&test, &user).await;
    test.delete(&kind::POD, "whole").await;
    until_renewed(&test, "g", &device, &reservation).await;
    test.sleep(60).await;
    let request = test.until_phase("a", "Succeeded").await;
    assert!(request["status"].get("reason").is_none(), "{:#}", request["status"]);
    assert_runs(&test, &user).await;
    test.delete(&kind::POD, "a").await;
    test.until_reservations(0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gpu_that_nothing_names_is_drained_until_its_last_user_ends() {
    let options = Options { allow_unmutated_pods: true, ..Options::default() };
    let test =
        TestCluster::with(builder().nodes([NodeGroup::gpu_nodes(1, 2)]), options, Reporter::Runs).await;
    let made = test.create(&kind::POD, pod("a", &json!({"gpu-fraction": "0.5"}))).await;
    test.request(&made, "node-1", &fraction(&["g"])).await;
    let user = test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
    delete(&test, &reservation_of(&test, "g").await).await;
    test.sleep(300).await;
    assert_runs(&test, &user).await;
    assert!(test.reservations().await.is_empty());
    let late = test.create(&kind::POD, pod("late", &json!({"gpu-fraction": "0.5"}))).await;
    test.request(&late, "node-1", &fraction(&["g"])).await;
    test.until_phase("late", "Failed").await;
    test.delete(&kind::POD, "a").await;
    let next = test.create(&kind::POD, pod("next", &json!({"gpu-fraction": "0.5"}))).await;
    test.gone(&kind::POD, "a").await;
    test.request(&next, "node-1", &fraction(&["g"])).await;
    test.until_phase("next", "Succeeded").await;
    assert_eq!(test.cluster.api().list_dynamic(&kind::POD, RESERVED).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reservation_is_renewed_wherever_the_binder_crashes() {
    let test = test_cluster(4).await;
    crash_everywhere(&test, 6, async |requests| {
        // The first GPU is free when the reservation of the second one is deleted.
        let [name, first, group, free] =
            ["a", "first", "g", "f"].map(|prefix| format!("{prefix}-{requests}"));
        run_shared(&test, &first, &[&free]).await;
        let user = run_shared(&test, &name, &[&group]).await;
        test.delete(&kind::POD, &first).await;
        test.until_reservations(1).await;
        let reservation = reservation_of(&test, &group).await;
        let device = annotation(&reservation, DEVICE).to_owned();
        test.cluster.faults().crash_after(BINDER, requests);
        delete(&test, &reservation).await;
        until_renewed(&test, &group, &device, &reservation).await;
        assert_runs(&test, &user).await;
        test.delete(&kind::POD, &name).await;
        test.until_reservations(0).await;
    })
    .await;
}

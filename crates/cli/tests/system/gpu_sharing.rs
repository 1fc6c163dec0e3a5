//! GPU sharing by fractions.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_cli::embedded::admission::pod_options;
use kai_components::name;
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::kind::POD;
use serde_json::json;
use std::collections::BTreeMap;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn sixteen_half_gpu_pods_share_eight_gpus() {
    half_gpus(&TestCluster::with_admission(1, pod_options()).await).await;
}

/// The binder would refuse it each time.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_is_not_sent_to_a_gpu_that_has_lost_its_reservation() {
    let cluster = TestCluster::with_admission_of(1, 3, pod_options()).await;
    let half = |name: &str| PodBuilder::unprepared_fraction(name, "default-queue", "0.5");
    cluster.create_pod(half("first")).await;
    cluster.wait_for_running("first", 1).await;
    // Another pod gets the GPU before the binder knows that the reservation pod has failed.
    let faults = cluster.backend.faults();
    faults.partition(name::BINDER);
    let reservation = cluster.reservations().await.remove(0);
    let failed = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}});
    let key = kai_runtime::key_of(&reservation);
    cluster.api().patch_dynamic(&POD, &key, Part::Status, &failed).await.unwrap();
    let whole = PodBuilder::new("whole", "default-queue", 1);
    cluster.create_pod(whole.spec_field("nodeName", json!(cluster.node_name(1)))).await;
    cluster.wait_for_running("whole", 1).await;
    faults.heal(name::BINDER);
    let lost = async || !cluster.event_messages("GPUReservationLost", "first").await.is_empty();
    cluster.wait_until("the reservation is lost", lost).await;

    cluster.create_pod(half("second")).await;
    cluster.wait_for_running("second", 1).await;
    let mut groups = Vec::new();
    for pod in ["first", "second"] {
        let pod = cluster.get(&POD, pod).await.unwrap();
        groups.push(object::str_at(&pod, "/metadata/labels/runai-gpu-group").to_owned());
    }
    assert_ne!(groups[0], groups[1]);
    assert_eq!(cluster.event_messages("BindingError", "second").await, [""; 0], "bound at the first attempt");
}

/// On one node. The webhooks prepare the pods.
pub(crate) async fn half_gpus<B>(cluster: &TestCluster<B>) {
    for number in 0..16 {
        let name = format!("half-{number}");
        cluster.create_pod(PodBuilder::unprepared_fraction(&name, "default-queue", "0.5")).await;
    }
    cluster.wait_for_running("half-", 16).await;
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for pod in cluster.list(&POD).await {
        if object::name(&pod).starts_with("half-") {
            let group = object::str_at(&pod, "/metadata/labels/runai-gpu-group").to_owned();
            *groups.entry(group).or_default() += 1;
        }
    }
    assert_eq!(groups.len(), 8, "{groups:?}");
    assert!(groups.values().all(|pods| *pods == 2), "{groups:?}");
}

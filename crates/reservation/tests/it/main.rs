//! Reservation pods in the simulated cluster: each one reports its GPU once.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use kai_object as object;
use kai_reservation::{DeviceSource, Options, report, simulated};
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{self, Key};
use kai_runtime::process::Process;
use kai_sim::{Cluster, FaultRates, NodeGroup};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const NAMESPACE: &str = "kai-resource-reservation";
const DEVICE: &str = "run.ai/reserve_for_gpu_index";

async fn cluster() -> Cluster {
    let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
    let nodes = [NodeGroup::gpu_nodes(1, 4)];
    let cluster = Cluster::builder().seed(1).starting_at(epoch).nodes(nodes).start().await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.api().create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
    // The service account controller creates its default account asynchronously.
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster
}

async fn create(cluster: &Cluster, name: &str, gpus: u32) -> Key {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": NAMESPACE}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{
                "name": "resource-reservation", "image": "none",
                "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
            }],
        },
    });
    cluster.api().create_dynamic(&kind::POD, NAMESPACE, &pod).await.unwrap();
    Key::new(NAMESPACE, name)
}

async fn reported(cluster: &Cluster, key: &Key) -> Option<String> {
    let pod = cluster.api().get_dynamic(&kind::POD, key).await.unwrap();
    object::meta(&pod, "annotations")?.get(DEVICE)?.as_str().map(str::to_owned)
}

async fn until_reported(cluster: &Cluster, key: &Key) -> String {
    for _ in 0..600 {
        if let Some(device) = reported(cluster, key).await {
            return device;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{key} reports no GPU");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn simulated_reservation_pods_report_their_gpus_despite_faults() {
    let mut cluster = cluster().await;
    let clock = cluster.clock();
    cluster.run("reservations", move |client| {
        let process = Process::start(Api::new(client, "reservations"), clock, "reservations");
        simulated::run(process, simulated::Options::default())
    });
    cluster.faults().set_client_rates("reservations", FaultRates { crash: 20_000, ..FaultRates::mixed() });
    let mut devices = BTreeSet::new();
    for index in 0..3 {
        let key = create(&cluster, &format!("r-{index}"), 1).await;
        devices.insert(until_reported(&cluster, &key).await);
    }
    assert_eq!(devices.into_iter().collect::<Vec<_>>(), ["GPU-node-1-0", "GPU-node-1-1", "GPU-node-1-2"]);
    cluster.faults().heal_all();
    let none = create(&cluster, "none", 0).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(reported(&cluster, &none).await, None, "a pod without a GPU reports none");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn program_waits_for_the_kubelet_and_reports_once() {
    let cluster = cluster().await;
    let key = create(&cluster, "r", 1).await;
    let api = Api::new(cluster.client("reservation"), "reservation");
    let options = Options { pod: key.clone(), source: DeviceSource::Status };
    assert_eq!(report(&api, &options).await.unwrap(), "GPU-node-1-0");
    assert_eq!(reported(&cluster, &key).await.as_deref(), Some("GPU-node-1-0"));
    // A report is final, even an empty one.
    let empty: Value = json!({"metadata": {"annotations": {DEVICE: ""}}});
    api.patch_dynamic(&kind::POD, &key, Part::Main, &empty).await.unwrap();
    assert_eq!(report(&api, &options).await.unwrap(), "");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn errors_contain_a_hint() {
    let cluster = cluster().await;
    let api = Api::new(cluster.client("reservation"), "reservation");
    let missing = Options { pod: Key::new(NAMESPACE, "none"), source: DeviceSource::Status };
    let error = report(&api, &missing).await.unwrap_err().to_string();
    assert!(error.contains("`kai-resource-reservation/none`") && error.contains("hint:"), "{error}");
    let two = create(&cluster, "two", 2).await;
    let error = report(&api, &Options { pod: two, source: DeviceSource::Status }).await.unwrap_err();
    assert!(error.to_string().contains("2 GPUs"), "{error}");
}

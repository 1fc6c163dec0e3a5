//! Certificates of the webhooks expire under load, and the webhooks are not served: on a real control plane.

use super::control_plane::{NAMESPACE, Plane, wait_until};
use super::webhooks::{self, ADMISSION, ADMISSION_2, CERTIFICATE, SECRET, dry_run, half};
use crate::admission;
use crate::test_cluster::TestCluster;
use axum::http::Request;
use kai_admission::registration::{MUTATING, VALIDATING};
use kai_clock::Stopwatch;
use kai_kubetest::client::{self, Client, Server};
use kai_kubetest::control_plane::Programs;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{Key, MUTATING_WEBHOOK_CONFIGURATION, POD, VALIDATING_WEBHOOK_CONFIGURATION};
use kai_scheduler::resources::TOPOLOGY;
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a certificate is valid.
const VALIDITY: Duration = Duration::from_secs(40);
/// Two certificates expire in this time: a quarter before, each is replaced.
const LOAD: Duration = Duration::from_secs(75);

type Cluster = TestCluster<Arc<Plane>>;

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn webhooks_survive_expiring_certificates_and_an_outage_affects_only_own_pods() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let validity = format!("--webhook-certificate-validity={}s", VALIDITY.as_secs());
        let plane = Arc::new(Plane::start_with(&programs, "webhooks", &[&validity]).await);
        let cluster = plane.test_cluster("outage", NodeGroup::gpu_nodes(1, 8)).await;
        certificates_expire_under_load(&plane).await;
        outage(&plane).await;
        admission::unprepared_pod(&cluster, async || start(&plane).await).await;
        admission::device_access(&cluster, false).await;
        plane.restart_with(ADMISSION, &["--block-nvidia-visible-devices=true"]);
        plane.kill_component(ADMISSION_2);
        blocking_is_configured(&cluster).await;
    });
}

/// Creates pods and topologies, and opens a connection of its own to the webhooks each time. Every call is answered.
async fn certificates_expire_under_load(plane: &Plane) {
    let api = plane.api();
    let (watch, mut calls, mut served) = (Stopwatch::start(), 0, BTreeSet::new());
    while watch.elapsed() < LOAD {
        let pod = dry_run(api, &POD, "default", half("load")).await;
        let pod = pod.unwrap_or_else(|error| panic!("call {calls}: {error}"));
        let prefix = object::str_at(&pod, "/metadata/annotations/runai~1shared-gpu-configmap");
        assert!(prefix.starts_with("load-"), "call {calls} was skipped: {pod:#}");
        let refused = dry_run(api, &TOPOLOGY, "", webhooks::invalid_topology()).await.unwrap_err();
        assert!(refused.message().contains("is an alias and a node label"), "call {calls}: {refused}");
        served.insert(new_connection(plane, calls).await);
        calls += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(served.len() >= 3, "{} certificates in {LOAD:?} and {calls} calls", served.len());
}

/// Calls a webhook on a new connection that trusts what the API server trusts. Returns the stored certificate.
async fn new_connection(plane: &Plane, call: usize) -> String {
    let key = Key::new("", VALIDATING);
    let configuration = plane.api().get_dynamic(&VALIDATING_WEBHOOK_CONFIGURATION, &key).await.unwrap();
    let bundle = object::str_at(&configuration, "/webhooks/0/clientConfig/caBundle");
    let bundle = client::decode(bundle).expect("a bundle is PEM in base64");
    let mut client = Client::new(Server::new(plane.webhooks().admission().address(), &bundle).unwrap());
    let review = json!({"request": {"uid": "u", "operation": "CREATE", "object": half("direct")}});
    let request = Request::post(kai_admission::pod::VALIDATE_PATH).header("host", "127.0.0.1");
    let response = client.send(request.body(review.to_string().into()).unwrap()).await;
    let response = response.unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        panic!("connection {call}: {error}: {cause}")
    });
    assert_eq!(response.status, 200, "connection {call}");
    let secret = plane.api().get_dynamic(&SECRET, &Key::new(NAMESPACE, CERTIFICATE)).await.unwrap();
    object::str_at(&secret, "/data/tls.crt").to_owned()
}

fn pod_of(scheduler: &str) -> Value {
    let mut pod = half("outage");
    pod["spec"]["schedulerName"] = Value::from(scheduler);
    pod
}

/// Without a replica, pods of other schedulers are created, and those of ours are refused with the reason. At the end, the
/// configurations are removed.
async fn outage(plane: &Plane) {
    let api = plane.api();
    for replica in [ADMISSION, ADMISSION_2] {
        assert!(plane.kill_component(replica), "{replica} had ended");
    }
    dry_run(api, &POD, "default", pod_of("default-scheduler")).await.unwrap();
    let refused = dry_run(api, &POD, "default", pod_of("kai-scheduler")).await.unwrap_err();
    assert_eq!(refused.code(), 500, "{refused}");
    let message = refused.message();
    assert!(message.contains("failed calling webhook \"admission.kai-scheduler.svc\""), "{message}");
    delete_configurations(api).await;
    wait_until("pods are no longer reviewed", || async {
        dry_run(api, &POD, "default", pod_of("kai-scheduler")).await.is_ok()
    })
    .await;
}

pub(super) async fn delete_configurations(api: &Api) {
    for (kind, name) in
        [(MUTATING_WEBHOOK_CONFIGURATION, MUTATING), (VALIDATING_WEBHOOK_CONFIGURATION, VALIDATING)]
    {
        api.delete_dynamic(&kind, &Key::new("", name), &DeleteOptions::default()).await.unwrap();
    }
}

/// Starts the replicas again; one of them restores the configurations.
async fn start(plane: &Plane) {
    for replica in [ADMISSION, ADMISSION_2] {
        plane.start_again(replica);
    }
    wait_until("pods are prepared again", || async {
        let pod = dry_run(plane.api(), &POD, "default", half("again")).await;
        pod.is_ok_and(|pod| pod.pointer("/metadata/annotations/runai~1shared-gpu-configmap").is_some())
    })
    .await;
}

/// The scenarios of device access, with devices blocked.
async fn blocking_is_configured(cluster: &Cluster) {
    wait_until("the replica that blocks devices serves", || async {
        let mut pod = half("blocked");
        pod["metadata"]["annotations"] = json!({});
        let pod = dry_run(cluster.api(), &POD, "default", pod).await;
        pod.is_ok_and(|pod| pod.pointer("/spec/containers/0/env/0/value") == Some(&json!("void")))
    })
    .await;
    admission::device_access(cluster, true).await;
}

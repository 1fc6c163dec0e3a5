//! Latency of webhook calls over TLS at a fixed rate. `cargo xtask bench admission` builds and runs it.
//!
//! Pods that share a GPU and plain pods go through the mutating and the validating webhook, on connections that are kept, as
//! those of an API server. Calls are sent on schedule, however long earlier ones take: a slow call delays no later one.

#![expect(clippy::unwrap_used, reason = "a panic shows where the bench failed")]

use axum::http::Request;
use kai_admission::certificate::{self, Lifetime};
use kai_admission::{pod, server};
use kai_clock::{Clock, Stopwatch};
use kai_kubetest::client::{Client, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Threads of the server, and of the client beside it.
const THREADS: usize = 2;
/// Kept connections; an API server opens as many as it has calls at a time.
const CONNECTIONS: usize = 16;
/// Variables and volumes of a pod, so that it has the size of a common one.
const FIELDS: usize = 40;

fn main() {
    let arguments: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (rate, seconds) =
        (arguments.first().copied().unwrap_or(200), arguments.get(1).copied().unwrap_or(20));
    let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let serving = serving.unwrap();
    let certificate = certificate::create("127.0.0.1", Clock::system().now(), Lifetime::default()).unwrap();
    let options = pod::Options { gpu_sharing: true, ..pod::Options::default() };
    let started = serving.block_on(server::serve_with("127.0.0.1:0", &certificate, pod::router(options)));
    let (address, future) = started.unwrap();
    serving.spawn(future);
    let calling = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Server::new(address, &certificate.certificate).unwrap();
    let before = cpu_ms();
    let mut millis = calling.block_on(load(&server, rate, seconds));
    let cpu_ms = cpu_ms() - before;
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis[((millis.len() - 1) as f64 * share) as usize];
    let figures = json!({
        "rate": rate, "seconds": seconds, "calls": millis.len(), "bytes": review(0, pod::MUTATE_PATH).len(),
        "median": at(0.5), "p99": at(0.99), "max": at(1.0), "cpu_per_call": cpu_ms / millis.len() as f64,
    });
    #[expect(clippy::print_stdout, reason = "the output of the bench")]
    {
        println!("{figures}");
    }
}

/// CPU time of the process, in steps of 10 ms.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks * 10.0
}

async fn load(server: &Server, rate: u32, seconds: u32) -> Vec<f64> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::new(server.clone());
        // Opens the connection.
        call(&mut client, 0).await;
        clients.push(Arc::new(Mutex::new(client)));
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    let mut calls = JoinSet::new();
    for number in 0..rate * seconds {
        ticks.tick().await;
        let client = Arc::clone(&clients[number as usize % CONNECTIONS]);
        calls.spawn(async move {
            // From the moment when the call was due, so that waiting for a busy connection counts.
            let watch = Stopwatch::start();
            call(&mut *client.lock().await, number).await;
            watch.elapsed_ms()
        });
    }
    calls.join_all().await
}

async fn call(client: &mut Client, number: u32) {
    let path = if number.is_multiple_of(2) { pod::MUTATE_PATH } else { pod::VALIDATE_PATH };
    let request = Request::post(path).header("host", "127.0.0.1").header("content-type", "application/json");
    let response = client.send(request.body(review(number, path).into()).unwrap()).await.unwrap();
    assert_eq!(response.status, 200);
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body["response"]["allowed"], true, "{body}");
}

/// A review as an API server sends it.
fn review(number: u32, path: &str) -> String {
    let annotations = if number % 4 < 2 { json!({"gpu-fraction": "0.5"}) } else { json!({}) };
    let variables: Vec<Value> = (0..FIELDS)
        .map(|at| json!({"name": format!("VARIABLE_{at}"), "value": format!("value {at}")}))
        .collect();
    let volumes: Vec<Value> = (0..FIELDS)
        .map(|at| json!({"name": format!("v-{at}"), "configMap": {"name": format!("m-{at}")}}))
        .collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("worker-{number}"), "namespace": "team-a", "annotations": annotations,
            "labels": {"kai.scheduler/queue": "a", "app": "train"},
        },
        "spec": {
            "schedulerName": "kai-scheduler", "volumes": volumes,
            "containers": [{"name": "main", "image": "train:1", "env": variables,
                "resources": {"requests": {"cpu": "4", "memory": "16Gi"}}}],
        },
    });
    let operation = if path == pod::MUTATE_PATH { "CREATE" } else { "UPDATE" };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("705ab4f5-6393-11e8-b7cc-{number:012}"), "operation": operation, "namespace": "team-a",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
            "oldObject": if operation == "UPDATE" { pod.clone() } else { Value::Null },
        },
    })
    .to_string()
}

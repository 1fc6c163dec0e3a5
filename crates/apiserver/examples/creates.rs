//! Measures how fast pods are created in process: `cargo run --release -p kai-apiserver --example creates [PODS]`.

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_clock::Stopwatch;
use serde_json::json;
use std::io::{Write as _, stdout};
use tower::ServiceExt as _;

const PODS_DEFAULT: usize = 20_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pods = std::env::args().nth(1).map_or(Ok(PODS_DEFAULT), |count| count.parse())?;
    let server = ApiServer::new(&Options::new(1, Clock::system()));
    let service = server.service();
    let pod = |index: usize| {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": format!("pod-{index}"), "labels": {"app": "bench", "queue": "team-a"},
                "annotations": {"example.com/group": "group-1"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox",
                "resources": {"limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
                    "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}}}]},
        })
    };
    let watch = Stopwatch::start();
    for index in 0..pods {
        let request = Request::post("/api/v1/namespaces/default/pods")
            .header("content-type", "application/json")
            .body(Body::from(pod(index).to_string()))?;
        let response = service.clone().oneshot(request).await?;
        assert_eq!(response.status(), 201);
    }
    let created = watch.elapsed();
    let watch = Stopwatch::start();
    let response = service.oneshot(Request::get("/api/v1/pods").body(Body::empty())?).await?;
    let bytes = response.into_body().collect().await?.to_bytes().len();
    writeln!(
        stdout(),
        "{:.0} creates/s; a list of {pods} pods, {bytes} bytes, in {:.1} ms",
        pods as f64 / created.as_secs_f64(),
        watch.elapsed_ms()
    )?;
    Ok(())
}

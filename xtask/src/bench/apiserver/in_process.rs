//! Creates pods through the in-process service, without HTTP connections, and measures rate and memory.

use super::pod::{self, NAMESPACE};
use super::{memory, server_process};
use anyhow::{Result, ensure};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use kai_apiserver::{ApiServer, Options};
use kai_clock::{Clock, Stopwatch};
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

#[derive(Serialize, Deserialize)]
pub(super) struct InProcess {
    pub(super) pods: usize,
    pub(super) creates_per_s: f64,
    pub(super) list_ms: f64,
    pub(super) list_bytes: usize,
    pub(super) peak_bytes: u64,
}

/// Creates pods sequentially, lists them once and reads the peak memory of this process.
pub(super) async fn run(pods: usize) -> Result<InProcess> {
    let server = ApiServer::new(&Options::new(server_process::SEED, Clock::system()));
    let service = server.service();
    let namespace = format!(r#"{{"metadata":{{"name":"{NAMESPACE}"}}}}"#);
    let account = r#"{"metadata":{"name":"default"}}"#.to_owned();
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let prerequisites = [("/api/v1/namespaces".to_owned(), namespace), (accounts, account)];
    for (path, object) in prerequisites {
        service.clone().oneshot(post(&path, object)?).await?;
    }
    let watch = Stopwatch::start();
    for index in 0..pods {
        let response = service.clone().oneshot(post(&path, pod::manifest(index))?).await?;
        ensure!(response.status() == 201, "a create returned {}", response.status());
    }
    let creates_per_s = pods as f64 / watch.elapsed().as_secs_f64();
    let watch = Stopwatch::start();
    let response = service.oneshot(Request::get("/api/v1/pods").body(Body::empty())?).await?;
    let mut body = response.into_body();
    let mut list_bytes = 0;
    while let Some(frame) = body.frame().await {
        list_bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    let list_ms = watch.elapsed_ms();
    let peak_bytes = memory::peak(std::process::id())?;
    Ok(InProcess { pods, creates_per_s, list_ms, list_bytes, peak_bytes })
}

fn post(path: &str, object: String) -> Result<Request<Body>> {
    Ok(Request::post(path).header("content-type", "application/json").body(Body::from(object))?)
}

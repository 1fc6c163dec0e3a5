//! Creates without HTTP: what a client in the same process gets, and how much memory many pods take.

use crate::pod::{self, NAMESPACE};
use crate::{memory, serve};
use anyhow::{Result, ensure};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use kai_apiserver::{ApiServer, Options};
use kai_clock::{Clock, Stopwatch};
use serde::Serialize;
use tower::ServiceExt as _;

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Measured {
    pods: usize,
    creates_per_s: f64,
    list_ms: f64,
    list_bytes: usize,
    peak_bytes: u64,
}

/// Creates pods one after the other, lists all of them once, and looks at the memory.
pub(crate) async fn run(pods: usize) -> Result<Measured> {
    let server = ApiServer::new(&Options::new(serve::SEED, Clock::system()));
    let service = server.service();
    let namespace = format!(r#"{{"metadata":{{"name":"{NAMESPACE}"}}}}"#);
    let account = r#"{"metadata":{"name":"default"}}"#.to_owned();
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let before = [("/api/v1/namespaces".to_owned(), namespace), (accounts, account)];
    for (path, object) in before {
        service.clone().oneshot(post(&path, object)?).await?;
    }
    let watch = Stopwatch::start();
    for index in 0..pods {
        let response = service.clone().oneshot(post(&path, pod::manifest(index))?).await?;
        ensure!(response.status() == 201, "a create was answered with {}", response.status());
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
    Ok(Measured { pods, creates_per_s, list_ms, list_bytes, peak_bytes })
}

fn post(path: &str, object: String) -> Result<Request<Body>> {
    Ok(Request::post(path).header("content-type", "application/json").body(Body::from(object))?)
}

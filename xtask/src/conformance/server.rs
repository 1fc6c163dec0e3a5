//! An embedded API server with our definitions, and requests to it.

use anyhow::{Context, Result, bail};
use axum::body::Body;
use axum::http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_runtime::api::Api;
use serde_json::Value;
use tower::ServiceExt as _;

pub(super) struct Server {
    pub(super) api_server: ApiServer,
}

/// An answer of a server.
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    /// Number of `Warning` headers.
    pub(super) warnings: usize,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Server {
    /// Starts a server with the definitions of the given kinds.
    pub(super) async fn start(kinds: &[&str]) -> Result<Self> {
        let server = Self { api_server: ApiServer::new(&Options::new(1, Clock::system())) };
        let wanted = kai_api::crds().into_iter().filter(|crd| kinds.contains(&&*crd.spec.names.kind));
        for definition in wanted {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            server.create(path, &serde_json::to_value(definition)?).await?;
        }
        Ok(server)
    }

    pub(super) fn api(&self) -> Api {
        Api::new(kube::Client::new(self.api_server.service(), "default"), "conformance")
    }

    /// Creates an object that must be accepted.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let answer = self.send(Method::POST, path, "application/json", object).await?;
        if !answer.is_success() {
            bail!("cannot create an object of the case at `{path}`: {}", answer.body);
        }
        Ok(())
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Answer> {
        send(self.api_server.service(), method, path, content_type, body).await
    }
}

/// Sends a request to a router.
pub(super) async fn send(
    router: axum::Router,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Answer> {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type).body(body)?;
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let code = response.status().as_u16();
    let warnings = response.headers().get_all(header::WARNING).iter().count();
    let bytes = response.into_body().collect().await.context("the answer has no body")?.to_bytes();
    let body =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes)));
    Ok(Answer { code, body, warnings })
}

//! An admission webhook for the suite; the path of the call selects the response.
//!
//! `/allow`, `/warn`, `/deny`, `/deny-with-code`, `/add-label`, `/add-container`, `/break` (a 500), `/garbage` (no
//! review), `/wrong-uid`, `/slow` (never answers in time) and `/bad-patch`.

use crate::certificates::Certificates;
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Longer than the maximal `timeoutSeconds` of a webhook.
const SLOW: Duration = Duration::from_secs(31);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot generate certificates")]
    Certificates(#[from] rcgen::Error),
    #[error("cannot serve the webhook: {0}")]
    Serve(String),
}

/// A running webhook; dropping it stops it.
pub struct Webhook {
    address: SocketAddr,
    authority: String,
    handle: Handle<SocketAddr>,
}

impl Webhook {
    /// Serves on a free port of the loopback address.
    pub async fn start() -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
        let certificates = Certificates::for_loopback()?;
        let leaf = CertificateDer::from_pem_slice(certificates.leaf.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes());
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.map_err(|error| failed(&error))?],
                key.map_err(|error| failed(&error))?,
            )
            .map_err(|error| failed(&error))?;
        let handle = Handle::new();
        let serving = axum_server::bind_rustls(
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            RustlsConfig::from_config(Arc::new(config)),
        )
        .handle(handle.clone())
        .serve(Router::new().route("/{response}", post(respond)).into_make_service());
        tokio::spawn(serving);
        let address =
            handle.listening().await.ok_or_else(|| Error::Serve("no port is available".to_owned()))?;
        Ok(Self { address, authority: certificates.authority, handle })
    }

    /// Base URL for webhook configurations.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The value of `caBundle`.
    pub fn bundle(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.authority)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn respond(Path(wanted): Path<String>, body: Bytes) -> Response {
    let Ok(review) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut response = json!({ "uid": review["request"]["uid"], "allowed": true });
    match wanted.as_str() {
        "allow" => {}
        "warn" => response["warnings"] = json!(["the webhook is worried"]),
        "deny" => {
            response["allowed"] = json!(false);
            response["status"] = json!({ "message": "the webhook says no" });
        }
        "deny-with-code" => {
            response["allowed"] = json!(false);
            response["status"] = json!({ "code": 409, "reason": "Conflict", "message": "not a good moment" });
        }
        "add-label" => {
            patch(
                &mut response,
                &json!([{ "op": "add", "path": "/metadata/labels/hooked", "value": "yes" }]),
            );
        }
        "add-container" => patch(
            &mut response,
            &json!([{ "op": "add", "path": "/spec/containers/-", "value": { "name": "sidecar", "image": "side" } }]),
        ),
        "bad-patch" => {
            patch(
                &mut response,
                &json!([{ "op": "test", "path": "/metadata/name", "value": "another-name" }]),
            );
        }
        "wrong-uid" => response["uid"] = json!("someone-else"),
        "break" => return (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
        "garbage" => return "not a review".into_response(),
        "slow" => tokio::time::sleep(SLOW).await,
        _ => return StatusCode::NOT_FOUND.into_response(),
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    });
    ([("content-type", "application/json")], review.to_string()).into_response()
}

fn patch(response: &mut Value, operations: &Value) {
    response["patchType"] = json!("JSONPatch");
    response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(operations.to_string()));
}

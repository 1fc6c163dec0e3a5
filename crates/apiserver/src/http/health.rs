//! Health checks, and the Kubernetes version that the server implements.

use super::respond;
use axum::body::Body;
use http::Response;
use serde_json::json;

/// The Kubernetes release whose behaviour the server follows.
pub(super) const GIT_VERSION: &str = "v1.36.3";

/// The response for paths that need no authentication.
pub(super) fn respond(path: &str) -> Option<Response<Body>> {
    let (root, rest) =
        path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match (root, rest) {
        ("healthz" | "livez" | "readyz", "" | "ping") => Some(respond::text(200, "ok")),
        ("version", "") => Some(respond::json(200, version().to_string())),
        _ => None,
    }
}

fn version() -> serde_json::Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

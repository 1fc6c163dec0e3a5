//! Metrics of requests to the API server: `rest_client_*`.

use super::{VALID, register};
use http::{Method, StatusCode};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use std::time::Duration;

/// The buckets of `component-base`, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The code of a request without a response, as in client-go.
const NO_RESPONSE: &str = "<error>";

#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl RequestMetrics {
    pub(crate) fn register(metrics: &Registry) -> Self {
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        let requests = Opts::new("rest_client_requests_total", help);
        let requests = IntCounterVec::new(requests, &["code", "method", "host"]).expect(VALID);
        let help = "Request latency in seconds, broken down by verb and host";
        let seconds = HistogramOpts::new("rest_client_request_duration_seconds", help);
        let seconds = HistogramVec::new(seconds.buckets(BUCKETS.to_vec()), &["verb", "host"]).expect(VALID);
        register(metrics, requests.clone());
        register(metrics, seconds.clone());
        Self { requests, seconds }
    }

    /// Counts a request by its response, or by the lack of one.
    pub(crate) fn observe(&self, method: &Method, host: &str, code: Option<StatusCode>, time: Duration) {
        let code = code.as_ref().map_or(NO_RESPONSE, StatusCode::as_str);
        self.requests.with_label_values(&[code, method.as_str(), host]).inc();
        self.seconds.with_label_values(&[method.as_str(), host]).observe(time.as_secs_f64());
    }
}

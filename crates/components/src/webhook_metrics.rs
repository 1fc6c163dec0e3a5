//! Metrics of admission webhooks: `controller_runtime_webhook_*`.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::time::Instant;

const VALID: &str = "names of metrics and labels are valid constants";

#[derive(Clone)]
struct WebhookMetrics {
    requests: IntCounterVec,
    in_flight: IntGaugeVec,
    seconds: HistogramVec,
}

impl WebhookMetrics {
    fn register(metrics: &Registry) -> Self {
        let opts = |name, help| Opts::new(format!("controller_runtime_webhook_{name}"), help);
        let requests = opts("requests_total", "Total number of admission requests by HTTP status code.");
        let in_flight = opts("requests_in_flight", "Current number of admission requests being served.");
        let seconds = opts("latency_seconds", "Histogram of the latency of processing admission requests");
        let all = Self {
            requests: IntCounterVec::new(requests, &["webhook", "code"]).expect(VALID),
            in_flight: IntGaugeVec::new(in_flight, &["webhook"]).expect(VALID),
            seconds: HistogramVec::new(HistogramOpts::from(seconds), &["webhook"]).expect(VALID),
        };
        // Registration fails only for a metric that is registered already.
        let _ = metrics.register(Box::new(all.requests.clone()));
        let _ = metrics.register(Box::new(all.in_flight.clone()));
        let _ = metrics.register(Box::new(all.seconds.clone()));
        all
    }

    async fn measure(self, request: Request, next: Next) -> Response {
        // Only paths of routes are measured, so that callers cannot make up label values.
        let webhook = request.uri().path().to_owned();
        let in_flight = self.in_flight.with_label_values(&[&webhook]);
        in_flight.inc();
        let began = Instant::now();
        let response = next.run(request).await;
        in_flight.dec();
        self.seconds.with_label_values(&[&webhook]).observe(began.elapsed().as_secs_f64());
        self.requests.with_label_values(&[webhook.as_str(), response.status().as_str()]).inc();
        response
    }
}

/// The router with every route measured.
pub(crate) fn measured(router: Router, metrics: &Registry) -> Router {
    let metrics = WebhookMetrics::register(metrics);
    router.route_layer(middleware::from_fn(move |request: Request, next: Next| {
        metrics.clone().measure(request, next)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::routing::post;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn requests_of_routes_are_counted_by_path_and_code() {
        let metrics = Registry::new();
        let router = measured(Router::new().route("/validate", post(|| std::future::ready("{}"))), &metrics);
        for (path, code) in [("/validate", StatusCode::OK), ("/made/up", StatusCode::NOT_FOUND)] {
            let request = Request::post(path).body(Body::empty()).expect("a valid request");
            let response = router.clone().oneshot(request).await.expect("a router never fails");
            assert_eq!(response.status(), code);
        }
        let text =
            prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).expect("they are valid");
        let line = |text: &str, line: &str| text.lines().any(|other| other == line);
        assert!(
            line(&text, "controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/validate\"} 1"),
            "{text}"
        );
        assert!(
            line(&text, "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate\"} 1"),
            "{text}"
        );
        assert!(!text.contains("made"), "{text}");
    }
}

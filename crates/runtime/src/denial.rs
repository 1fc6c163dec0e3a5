//! Requests that the server denies for lack of permission: logged, repeated at intervals, and counted.
//!
//! A role that lacks a rule must not look like a component that has nothing to do.

use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts, Registry};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A denied permission is logged at most once in this interval.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    pub(crate) verb: String,
    /// With subresource and group, such as `pods/status` or `jobs.batch`.
    pub(crate) resource: String,
}

impl Permission {
    /// The permission that an RBAC denial names. Rejections for other reasons, such as a quota, name none.
    pub(crate) fn of_denial(message: &str) -> Option<Self> {
        let (_, denied) = message.split_once(" cannot ")?;
        let (verb, rest) = denied.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, _) = rest.split_once('"')?;
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        Some(Self { verb: verb.to_owned(), resource })
    }
}

/// The denied requests of one client.
#[derive(Debug)]
pub(crate) struct Denials {
    counter: IntCounterVec,
    logged: Mutex<BTreeMap<Permission, Instant>>,
}

impl Default for Denials {
    #[expect(clippy::expect_used, reason = "names of metrics and labels are constants")]
    fn default() -> Self {
        let help = "Requests that the server denied because a permission is missing";
        let opts = Opts::new("api_requests_denied_total", help).namespace("kai");
        let counter = IntCounterVec::new(opts, &["verb", "resource"]);
        Self { counter: counter.expect("names and labels are valid constants"), logged: Mutex::default() }
    }
}

impl Denials {
    pub(crate) fn register(&self, metrics: &Registry) {
        // Fails only when it is registered already.
        let _ = metrics.register(Box::new(self.counter.clone()));
    }

    pub(crate) fn record(&self, permission: Permission, path: &str) {
        self.counter.with_label_values(&[&permission.verb, &permission.resource]).inc();
        let now = Instant::now();
        let mut logged = self.logged.lock();
        if logged.get(&permission).is_some_and(|at| now.duration_since(*at) < LOG_INTERVAL) {
            return;
        }
        let Permission { verb, resource } = &permission;
        tracing::error!(
            verb,
            resource,
            path,
            "permission denied; hint: the role of this component lacks a rule"
        );
        logged.insert(permission, now);
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{Api, DeleteOptions, Part};
    use crate::kind::{Key, POD};
    use axum::Router;
    use axum::http::{Method, StatusCode, Uri};
    use prometheus::Registry;
    use serde_json::json;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// Denies everything with the server's message; creation is rejected for another reason.
    async fn deny(method: Method, uri: Uri) -> (StatusCode, String) {
        let query = uri.query().unwrap_or_default();
        let verb = match method {
            Method::GET if query.contains("watch=true") => "watch",
            Method::GET if uri.path().ends_with("/pods") => "list",
            Method::GET => "get",
            Method::PATCH => "patch",
            _ => "delete",
        };
        let message = if method == Method::POST {
            "pods \"x\" is forbidden: exceeded quota: cannot have more".to_owned()
        } else {
            format!(
                "pods is forbidden: User \"u\" cannot {verb} resource \"pods\" in API group \"\" in the namespace \"a\""
            )
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message,
        });
        (StatusCode::FORBIDDEN, status.to_string())
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn every_denied_permission_is_logged_and_counts() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let api = Api::new(kube::Client::new(Router::new().fallback(deny), "default"), "test");
        let metrics = Registry::new();
        api.register_metrics(&metrics);
        let key = Key::new("a", "x");
        for _ in 0..2 {
            assert!(api.get_dynamic(&POD, &key).await.is_err());
            assert!(api.list_dynamic(&POD, "a").await.is_err());
            assert!(api.text(&POD.path("a")).await.is_err());
            assert!(api.stream(&format!("{}?watch=true", POD.path("a")), "application/json").await.is_err());
            assert!(api.patch_dynamic(&POD, &key, Part::Main, &json!({})).await.is_err());
            assert!(api.delete_dynamic(&POD, &key, &DeleteOptions::default()).await.is_err());
            assert!(api.create_dynamic(&POD, "a", &json!({})).await.is_err());
        }
        let counts: Vec<(String, f64)> = metrics.gather()[0]
            .get_metric()
            .iter()
            .map(|series| (series.get_label()[1].value().to_owned(), series.get_counter().get_value()))
            .collect();
        let expected = [("delete", 2.0), ("get", 2.0), ("list", 4.0), ("patch", 2.0), ("watch", 2.0)];
        assert_eq!(counts, expected.map(|(verb, count)| (verb.to_owned(), count)));
        let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        for (verb, _) in expected {
            let line = format!(
                "permission denied; hint: the role of this component lacks a rule verb=\"{verb}\" resource=\"pods\""
            );
            assert_eq!(logged.matches(&line).count(), 1, "{logged}");
        }
        assert!(!logged.contains("quota"), "{logged}");
    }
}

//! Rights that the server denies us: each is said in the log, again now and then, and counted.
//!
//! A role that lacks a rule must not look like a component that has nothing to do.

use prometheus::{IntCounterVec, Opts, Registry};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long one denied right is not said again.
const QUIET: Duration = Duration::from_mins(1);

/// A right that was denied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) verb: String,
    /// With its part and its group, such as `pods/status` or `jobs.batch`.
    pub(crate) resource: String,
}

impl Right {
    /// The right that a refusal names. Refusals for other reasons, such as a quota, name none.
    pub(crate) fn of_refusal(message: &str) -> Option<Self> {
        let (_, denied) = message.split_once(" cannot ")?;
        let (verb, rest) = denied.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, _) = rest.split_once('"')?;
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        Some(Self { verb: verb.to_owned(), resource })
    }
}

/// What was denied.
#[derive(Debug)]
pub(crate) struct Denials {
    counted: IntCounterVec,
    said: Mutex<BTreeMap<Right, Instant>>,
}

impl Default for Denials {
    fn default() -> Self {
        let what = "Requests that the server denied because a right is missing";
        let opts = Opts::new("api_requests_denied_total", what).namespace("kai");
        let counted = IntCounterVec::new(opts, &["verb", "resource"]);
        Self {
            counted: counted.expect("names and labels are constants that are valid"),
            said: Mutex::default(),
        }
    }
}

impl Denials {
    pub(crate) fn register(&self, metrics: &Registry) {
        // The only failure is that it is registered already.
        let _ = metrics.register(Box::new(self.counted.clone()));
    }

    pub(crate) fn note(&self, right: Right, path: &str) {
        self.counted.with_label_values(&[&right.verb, &right.resource]).inc();
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(&right).is_some_and(|at| now.duration_since(*at) < QUIET) {
            return;
        }
        let Right { verb, resource } = &right;
        tracing::error!(
            verb,
            resource,
            path,
            "the server denies us a right; hint: the role of this component lacks it"
        );
        said.insert(right, now);
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{Api, Deletion, Part};
    use crate::kind::{Key, POD};
    use axum::Router;
    use axum::http::{Method, StatusCode, Uri};
    use prometheus::Registry;
    use serde_json::json;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// Denies everything in the server's words; creating is refused for another reason.
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
    async fn every_right_that_is_denied_is_said_and_counted_whatever_asked_for_it() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let api = Api::new(kube::Client::new(Router::new().fallback(deny), "default"), "test");
        let metrics = Registry::new();
        api.measured(&metrics);
        let key = Key::new("a", "x");
        for _ in 0..2 {
            assert!(api.get(&POD, &key).await.is_err());
            assert!(api.list(&POD, "a").await.is_err());
            assert!(api.text(&POD.path("a")).await.is_err());
            assert!(api.stream(&format!("{}?watch=true", POD.path("a"))).await.is_err());
            assert!(api.merge(&POD, &key, Part::Main, &json!({})).await.is_err());
            assert!(api.delete(&POD, &key, &Deletion::default()).await.is_err());
            assert!(api.create(&POD, "a", &json!({})).await.is_err());
        }
        let counted: Vec<(String, f64)> = metrics.gather()[0]
            .get_metric()
            .iter()
            .map(|series| (series.get_label()[1].value().to_owned(), series.get_counter().get_value()))
            .collect();
        let wanted = [("delete", 2.0), ("get", 2.0), ("list", 4.0), ("patch", 2.0), ("watch", 2.0)];
        assert_eq!(counted, wanted.map(|(verb, count)| (verb.to_owned(), count)));
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        for (verb, _) in wanted {
            let line = format!(
                "the server denies us a right; hint: the role of this component lacks it verb=\"{verb}\" resource=\"pods\""
            );
            assert_eq!(said.matches(&line).count(), 1, "{said}");
        }
        assert!(!said.contains("quota"), "{said}");
    }
}

//! Asks an external Prometheus at intervals whether it is there.

use crate::operand::prometheus::external_url;
use kai_api::Config;
use kai_api::config::component::PrometheusProbe;
use kai_runtime::connect;
use kai_runtime::watch_value::WatchValue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL_SECONDS: u64 = 30;
const TIMEOUT_SECONDS: u64 = 10;
/// Requests in a row that must fail.
const RETRIES_MAX: u64 = 5;
const PATH: &str = "/api/v1/status/config";

/// The state of the external Prometheus; clones share it.
#[derive(Clone)]
pub(super) struct Probe {
    state: Arc<Mutex<State>>,
    /// Incremented when the state changes.
    changes: WatchValue<u64>,
    retarget: WatchValue<u64>,
}

#[derive(Default)]
struct State {
    target: Option<Target>,
    /// The last result; none before the first.
    result: Option<Result<(), String>>,
}

/// What is asked, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    url: String,
    interval: Duration,
    timeout: Duration,
    retries_max: u64,
}

impl Target {
    /// What a `Config` asks for. A number that is not above 0 counts as absent.
    fn of(config: &Config) -> Option<Self> {
        let prometheus =
            config.spec.prometheus.as_ref().filter(|prometheus| prometheus.enabled == Some(true))?;
        let url = with_scheme(external_url(prometheus)?);
        let PrometheusProbe { interval, timeout, max_retries } =
            prometheus.external_prometheus_health_probe.clone().unwrap_or_default();
        let positive = |own: Option<i64>, default: u64| {
            own.and_then(|own| u64::try_from(own).ok()).filter(|own| *own > 0).unwrap_or(default)
        };
        Some(Self {
            url,
            interval: Duration::from_secs(positive(interval, INTERVAL_SECONDS)),
            timeout: Duration::from_secs(positive(timeout, TIMEOUT_SECONDS)),
            retries_max: positive(max_retries, RETRIES_MAX),
        })
    }
}

impl Probe {
    pub(super) fn new(changes: WatchValue<u64>) -> Self {
        Self { state: Arc::default(), changes, retarget: WatchValue::new(0) }
    }

    /// Sets what is asked, as the `Config` says.
    pub(super) fn target(&self, config: Option<&Config>) {
        let target = config.and_then(Target::of);
        let mut state = self.state.lock();
        if state.target == target {
            return;
        }
        let url = |target: &Option<Target>| target.as_ref().map(|target| target.url.clone());
        if url(&state.target) != url(&target) {
            state.result = None;
        }
        state.target = target;
        drop(state);
        self.retarget.modify(|count| *count += 1);
    }

    /// Whether it is reachable, or why not; none while it has not been asked.
    pub(super) fn result(&self) -> Option<Result<(), String>> {
        self.state.lock().result.clone()
    }

    /// Never returns.
    pub(super) async fn run(&self) {
        loop {
            let seen = self.retarget.get();
            let target = self.state.lock().target.clone();
            let round = async {
                let Some(target) = target else { return std::future::pending().await };
                let result = ask_repeatedly(&target).await;
                self.record(&target.url, result);
                tokio::time::sleep(target.interval).await;
            };
            tokio::select! {
                biased;
                () = self.retarget.wait_for(|count| count != seen) => {}
                () = round => {}
            }
        }
    }

    fn record(&self, url: &str, result: Result<(), String>) {
        let mut state = self.state.lock();
        if state.target.as_ref().is_none_or(|target| target.url != url) {
            return;
        }
        let result =
            result.map_err(|why| format!("the external Prometheus at {url} is not reachable: {why}"));
        if state.result.as_ref() != Some(&result) {
            state.result = Some(result);
            drop(state);
            self.changes.modify(|count| *count += 1);
        }
    }
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

/// Asks until there is a response, with pauses of one second, two seconds and so on, as KAI does.
async fn ask_repeatedly(target: &Target) -> Result<(), String> {
    let mut attempt = 1;
    loop {
        match ask(target).await {
            Err(_) if attempt < target.retries_max => {
                tokio::time::sleep(Duration::from_secs(attempt)).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}

async fn ask(target: &Target) -> Result<(), String> {
    let client = connect::plain(&target.url).map_err(|error| error.to_string())?;
    let request = http::Request::get(PATH).body(Vec::new()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(target.timeout, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {} s", target.timeout.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    fn config(probe: &Value, url: &str) -> Config {
        let prometheus =
            json!({"enabled": true, "externalPrometheusUrl": url, "externalPrometheusHealthProbe": probe});
        let object = json!({"metadata": {"name": "kai-config"}, "spec": {"prometheus": prometheus}});
        crate::read::config(&object).unwrap()
    }

    #[test]
    fn settings_of_the_probe_have_an_effect() {
        let probe = json!({"interval": 7, "timeout": 3, "maxRetries": 2});
        let expected = Target {
            url: "http://other:9090".to_owned(),
            interval: Duration::from_secs(7),
            timeout: Duration::from_secs(3),
            retries_max: 2,
        };
        assert_eq!(Target::of(&config(&probe, "other:9090")), Some(expected));
        let default = Target::of(&config(&json!({"interval": 0}), "https://other")).unwrap();
        assert_eq!((default.interval.as_secs(), default.timeout.as_secs(), default.retries_max), (30, 10, 5));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn prometheus_is_unreachable_after_the_last_retry() {
        let probe = Probe::new(WatchValue::new(0));
        // Nothing listens on the port, which was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = config(&json!({"maxRetries": 3}), &format!("127.0.0.1:{port}"));
        probe.target(Some(&config));
        assert_eq!(probe.result(), None);
        let began = Instant::now();
        tokio::select! {
            () = probe.run() => {}
            () = async { while probe.result().is_none() { tokio::time::sleep(Duration::from_millis(100)).await } } => {}
        }
        assert!(began.elapsed() >= Duration::from_secs(1 + 2), "{:?}", began.elapsed());
        let error = probe.result().unwrap().unwrap_err();
        assert!(error.contains("is not reachable"), "{error}");
        probe.target(None);
        assert_eq!(probe.result(), None, "it is not asked any more");
    }
}

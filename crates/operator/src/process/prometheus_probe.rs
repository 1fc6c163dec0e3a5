//! Asks an external Prometheus at intervals whether it is there.

use crate::operand::prometheus::external_url;
use kai_api::Config;
use kai_runtime::connect;
use kai_runtime::watch_value::WatchValue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
const PATH: &str = "/api/v1/status/config";
/// Failed requests in a row after which it counts as unreachable.
const FAILURES_MAX: u32 = 2;

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
    url: Option<String>,
    failures: u32,
    error: Option<String>,
}

impl Probe {
    pub(super) fn new(changes: WatchValue<u64>) -> Self {
        Self { state: Arc::default(), changes, retarget: WatchValue::new(0) }
    }

    /// Sets the address to ask, as the `Config` says.
    pub(super) fn target(&self, config: Option<&Config>) {
        let prometheus = config.and_then(|config| config.spec.prometheus.as_ref());
        let enabled = prometheus.filter(|prometheus| prometheus.enabled.unwrap_or(false));
        let url = enabled.and_then(external_url).map(with_scheme);
        let mut state = self.state.lock();
        if state.url != url {
            *state = State { url, ..State::default() };
            drop(state);
            self.retarget.modify(|count| *count += 1);
        }
    }

    /// Why it is not reachable; none while it is, or has not been asked.
    pub(super) fn error(&self) -> Option<String> {
        self.state.lock().error.clone()
    }

    /// Never returns.
    pub(super) async fn run(&self) {
        loop {
            let seen = self.retarget.get();
            let url = self.state.lock().url.clone();
            if let Some(url) = url {
                let result = ask(&url).await;
                self.record(&url, result);
            }
            tokio::select! {
                biased;
                () = self.retarget.wait_for(|count| count != seen) => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    fn record(&self, url: &str, result: Result<(), String>) {
        let mut state = self.state.lock();
        if state.url.as_deref() != Some(url) {
            return;
        }
        let error = match result {
            Ok(()) => {
                state.failures = 0;
                None
            }
            Err(why) => {
                state.failures += 1;
                let message = format!("the external Prometheus at {url} is not reachable: {why}");
                (state.failures >= FAILURES_MAX).then_some(message)
            }
        };
        if state.error != error && (error.is_some() || state.failures == 0) {
            state.error = error;
            drop(state);
            self.changes.modify(|count| *count += 1);
        }
    }
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

async fn ask(url: &str) -> Result<(), String> {
    let client = connect::plain(url).map_err(|error| error.to_string())?;
    let request = http::Request::get(PATH).body(Vec::new()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
    }
}

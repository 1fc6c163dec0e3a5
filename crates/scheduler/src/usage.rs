//! Historical usage of queues, for time-based fair share: from Prometheus, or from the scheduler's own [`ledger`].
//!
//! A [`Source`] is polled. A failed query is logged and counted; as in KAI, the last result stays in effect however
//! old it is, and staleness is reported.

mod config;
pub(crate) mod feed;
pub mod ledger;
mod query;
mod window;

pub use config::{Config, ConfigError, Database, PrometheusConfig};

use crate::metrics::UsageSource;
use futures::future::try_join_all;
use http::Request;
use kai_clock::{Clock, Stopwatch};
use kai_runtime::url::query_value;
use kai_runtime::{api, connect};
use ledger::keeper::Keeper;
use query::{Sample, WindowRange};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Historical usage by queue: cpu, memory and gpu, each as a fraction of the cluster's capacity.
pub type Usage = BTreeMap<String, [f64; 3]>;

/// Usage is rounded to this precision, so that rounding errors change no decision.
const PRECISION: f64 = 1e9;
const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the query to the usage database failed")]
    Request(#[source] Box<kube::Error>),
    #[error("the query to the usage database timed out")]
    Timeout,
    #[error("the usage database returned an invalid response: {0}")]
    Response(String),
    #[error("there is usage of {0} but no capacity; hint: `extraParams` sets the capacity metric")]
    NoCapacity(&'static str),
    #[error("the usage ledger cannot be read or written")]
    Ledger(#[source] Box<api::Error>),
}

/// Where historical usage comes from.
#[derive(Clone)]
pub struct Source {
    config: Config,
    /// Of Prometheus; the ledger needs none.
    client: Option<kube::Client>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Source {
    /// The source that `usageDBConfig` of the scheduler's configuration names.
    pub fn read(written: &serde_json::Value) -> Result<Self, crate::configuration::Error> {
        let config = Config::parse(written, |name| std::env::var(name).ok())?;
        for warning in &config.warnings {
            tracing::warn!(warning, "invalid field in the scheduler configuration");
        }
        Ok(Self::connect(config)?)
    }

    /// Creates a client for the configured URL. Must be called in a tokio runtime; sends no request.
    pub fn connect(config: Config) -> Result<Self, connect::Error> {
        let client = match &config.database {
            Database::Prometheus(prometheus) => Some(connect::plain(&prometheus.url)?),
            Database::Ledger => None,
        };
        Ok(Self { config, client })
    }

    /// With a client of Prometheus.
    pub fn new(config: Config, client: kube::Client) -> Self {
        Self { config, client: Some(client) }
    }

    /// How long the first cycle waits for the first result.
    pub(crate) fn wait_max(&self) -> std::time::Duration {
        self.config.wait_max
    }

    /// The configuration, if the scheduler keeps a ledger.
    pub(crate) fn ledger(&self) -> Option<&Config> {
        matches!(self.config.database, Database::Ledger).then_some(&self.config)
    }

    /// Queries Prometheus, or saves and reads the ledger of `keeper`, at the configured interval; passes each result to
    /// `publish`. Never returns.
    pub(crate) async fn poll(
        &self,
        mut keeper: Option<&mut Keeper>,
        clock: Clock,
        metrics: &UsageSource,
        publish: impl Fn(Usage),
    ) {
        let interval = match &keeper {
            None => self.config.fetch_every,
            // What is not saved is lost with the process.
            Some(_) => self.config.fetch_every.min(ledger::keeper::SAVE_INTERVAL),
        };
        let start = Instant::now();
        let mut last_success = None;
        let mut failing = false;
        loop {
            let attempt = Instant::now();
            let stopwatch = Stopwatch::start();
            let result = match &mut keeper {
                Some(keeper) => keeper.usage(clock, metrics).await,
                None => self.fetch(clock).await,
            };
            metrics.query_ms.observe(stopwatch.elapsed_ms());
            match result {
                Ok(usage) => {
                    if failing {
                        tracing::info!(queues = usage.len(), "the usage query recovered");
                    }
                    failing = false;
                    last_success = Some(attempt);
                    publish(usage);
                }
                Err(error) => {
                    failing = true;
                    metrics.failures.inc();
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the usage query failed; the last result stays in effect"
                    );
                }
            }
            let age = last_success.unwrap_or(start).elapsed();
            let stale = age > self.config.stale_after;
            if stale && metrics.stale.get() == 0 {
                tracing::error!(
                    seconds = age.as_secs(),
                    "historical usage is stale, and fair shares with it; hint: check the usage database"
                );
            }
            metrics.stale.set(i64::from(stale));
            tokio::time::sleep_until(attempt + interval).await;
        }
    }

    async fn fetch(&self, clock: Clock) -> Result<Usage, Error> {
        let Config { database, window, half_life, .. } = &self.config;
        let (Database::Prometheus(prometheus), Some(client)) = (database, &self.client) else {
            return Ok(Usage::new());
        };
        let now = clock.now();
        let range = match query::range(window, now) {
            WindowRange::Since(range) => range,
            // The first window is in the future.
            WindowRange::NotStarted => return Ok(Usage::new()),
        };
        let metrics = prometheus.capacity.iter().chain(&prometheus.allocation);
        let queries = metrics.map(|metric| {
            let expression = query::expression(metric, *half_life, prometheus.resolution, &range, now);
            send(client, expression, now)
        });
        let results = tokio::time::timeout(prometheus.timeout, try_join_all(queries)).await;
        let results = results.map_err(|_| Error::Timeout)??;
        let (capacity, allocation) = results.split_at(RESOURCES.len());
        usage_of(capacity, allocation)
    }
}

#[expect(clippy::expect_used, reason = "path and headers are constants, and any body is accepted")]
async fn send(client: &kube::Client, expression: String, now: jiff::Timestamp) -> Result<Vec<Sample>, Error> {
    let time = now.as_microsecond() as f64 / 1e6;
    let form = format!("query={}&time={time:.3}", query_value(&expression));
    let request = Request::post("/api/v1/query")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .body(form.into_bytes())
        .expect("the request is constant but for its body");
    let text = client.request_text(request).await.map_err(|error| Error::Request(Box::new(error)))?;
    query::parse(&text).map_err(Error::Response)
}

/// Allocation as a fraction of capacity. Several series of one queue add up: a restarted controller leaves a second one.
fn usage_of(capacity: &[Vec<Sample>], allocation: &[Vec<Sample>]) -> Result<Usage, Error> {
    let mut usage = Usage::new();
    for (at, ((resource, capacity), allocation)) in RESOURCES.iter().zip(capacity).zip(allocation).enumerate()
    {
        let total = capacity.first().map_or(0.0, |sample| sample.value);
        for Sample { queue, value } in allocation {
            let Some(share) = usage.entry(queue.clone()).or_default().get_mut(at) else { continue };
            if *value <= 0.0 {
                continue;
            }
            if total <= 0.0 {
                return Err(Error::NoCapacity(resource));
            }
            *share += value / total;
        }
    }
    for share in usage.values_mut().flatten() {
        *share = rounded(*share);
    }
    Ok(usage)
}

fn rounded(share: f64) -> f64 {
    (share * PRECISION).round() / PRECISION
}

#[cfg(test)]
mod prometheus_tests;
#[cfg(test)]
mod tests;

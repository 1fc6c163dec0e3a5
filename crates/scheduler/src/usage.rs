//! What queues used in the past, from a database, for time-based fair share.
//!
//! A [`Source`] asks a Prometheus now and then and tells what it learned. What fails is a log line and a metric; what was
//! learned last counts on, however old it is, as it does in KAI, and that it is too old is said.

mod config;
mod query;

pub use config::{Config, ConfigError};

use crate::metrics::UsageSource as Measures;
use futures::future::try_join_all;
use http::Request;
use kai_clock::{Clock, Stopwatch};
use kai_runtime::connect;
use query::{Reset, Sample};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The past use of the cluster by queue: cpu, memory, gpu, each as a share of what there was.
pub type Usage = BTreeMap<String, [f64; 3]>;

/// Usage is rounded to whole parts of this many, so that the last bit of a power moves no decision.
const PARTS: f64 = 1e9;
/// What amounts are of, in their order.
const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];

/// Why usage is not known.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the usage database cannot be asked")]
    Request(#[source] Box<kube::Error>),
    #[error("the usage database did not answer in time")]
    Late,
    #[error("the usage database answered something else than samples: {0}")]
    Answer(String),
    #[error(
        "there is use of {0}, and nothing says how much there is; hint: `extraParams` names the metric of capacity"
    )]
    NoCapacity(&'static str),
}

/// A database of usage.
#[derive(Clone)]
pub struct Source {
    config: Config,
    client: kube::Client,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Source {
    /// Reaches the database over the network. Must be called in a tokio runtime; nothing is asked yet.
    pub fn connect(config: Config) -> Result<Self, connect::Error> {
        let client = connect::plain(&config.url)?;
        Ok(Self::new(config, client))
    }

    /// Reaches the database by a client of one's own.
    pub fn new(config: Config, client: kube::Client) -> Self {
        Self { config, client }
    }

    /// How long the first cycle waits for the first answer.
    pub(crate) fn wait_max(&self) -> std::time::Duration {
        self.config.wait_max
    }

    /// Asks again and again, and tells what it learns. Never returns.
    pub(crate) async fn follow(&self, clock: Clock, measures: &Measures, tell: impl Fn(Usage)) {
        let begun = Instant::now();
        let mut learned = None;
        let mut failing = false;
        loop {
            let asked = Instant::now();
            let watch = Stopwatch::start();
            let answer = self.fetch(clock).await;
            measures.query_ms.observe(watch.elapsed_ms());
            match answer {
                Ok(usage) => {
                    if failing {
                        tracing::info!(queues = usage.len(), "past usage can be read again");
                    }
                    failing = false;
                    learned = Some(asked);
                    tell(usage);
                }
                Err(error) => {
                    failing = true;
                    measures.failures.inc();
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "past usage cannot be read; what was read last counts on"
                    );
                }
            }
            let stale = learned.unwrap_or(begun).elapsed() > self.config.stale_after;
            if stale && measures.stale.get() == 0 {
                tracing::error!(
                    seconds = learned.unwrap_or(begun).elapsed().as_secs(),
                    "past usage is out of date, and fair shares with it; hint: look at the usage database"
                );
            }
            measures.stale.set(i64::from(stale));
            tokio::time::sleep_until(asked + self.config.fetch_every).await;
        }
    }

    /// Asks once.
    async fn fetch(&self, clock: Clock) -> Result<Usage, Error> {
        let now = clock.now();
        let range = match query::range(&self.config, now) {
            Reset::Range(range) => range,
            // Nothing has been used in a window that has not begun.
            Reset::Ahead => return Ok(Usage::new()),
        };
        let metrics = self.config.capacity.iter().chain(&self.config.allocation);
        let asked = metrics.map(|metric| self.ask(query::expression(&self.config, metric, &range, now), now));
        let answers = tokio::time::timeout(self.config.timeout, try_join_all(asked)).await;
        let answers = answers.map_err(|_| Error::Late)??;
        let (capacity, allocation) = answers.split_at(RESOURCES.len());
        shares(capacity, allocation)
    }

    async fn ask(&self, expression: String, now: jiff::Timestamp) -> Result<Vec<Sample>, Error> {
        let time = now.as_microsecond() as f64 / 1e6;
        let form = format!("query={}&time={time:.3}", query::encoded(&expression));
        let request = Request::post("/api/v1/query")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(form.into_bytes())
            .expect("the request is constant but for its body");
        let text =
            self.client.request_text(request).await.map_err(|error| Error::Request(Box::new(error)))?;
        query::read(&text).map_err(Error::Answer)
    }
}

/// What was held as a share of what there was. Several series of one queue, as a restarted controller leaves them, add up.
fn shares(capacity: &[Vec<Sample>], allocation: &[Vec<Sample>]) -> Result<Usage, Error> {
    let mut usage = Usage::new();
    for (at, resource) in RESOURCES.into_iter().enumerate() {
        let there = capacity[at].first().map_or(0.0, |sample| sample.value);
        for Sample { queue, value } in &allocation[at] {
            let share = &mut usage.entry(queue.clone()).or_default()[at];
            if *value <= 0.0 {
                continue;
            }
            if there <= 0.0 {
                return Err(Error::NoCapacity(resource));
            }
            *share += value / there;
        }
    }
    for share in usage.values_mut().flatten() {
        *share = (*share * PARTS).round() / PARTS;
    }
    Ok(usage)
}

#[cfg(test)]
mod real;
#[cfg(test)]
mod tests;

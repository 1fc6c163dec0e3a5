//! Where past usage is read from and which part of the past counts: `usageDBConfig` of the scheduler's configuration.

use croner::Cron;
use kai_api::shard::UsageDbConfig;
use kai_units::{Span, duration};
use serde_json::Value;
use std::str::FromStr as _;
use std::time::Duration;

/// A week.
const WINDOW: &str = "1w";
const MINUTE: Duration = Duration::from_mins(1);

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It has another form.
    #[error("it is not what a usage database needs: {0}")]
    Form(String),
    /// There is no such database.
    #[error("there is no `clientType` `{0}`; hint: it is `prometheus`")]
    ClientType(String),
    /// The database is named twice or not at all.
    #[error("{given} of `connectionString` and `connectionStringEnvVar` are given; hint: give one of them")]
    Connection {
        /// How many.
        given: &'static str,
    },
    /// A length of time is none.
    #[error("`{field}` is no length of time: `{text}`; hint: write it as `5m`, and a window also as `1w`")]
    Duration {
        /// Which field.
        field: &'static str,
        /// What it says.
        text: String,
    },
    /// There is no such window.
    #[error("there is no `windowType` `{0}`; hint: it is `sliding`, `tumbling` or `cron`")]
    WindowType(String),
    /// A tumbling window begins nowhere.
    #[error(
        "a tumbling window needs `tumblingWindowStartTime`; hint: write a time such as 2026-01-31T08:00:00Z"
    )]
    NoStart,
    /// The plan is none.
    #[error("`cronString` is no plan: `{0}`; hint: write it as `0 0 * * 1`")]
    Cron(String),
}

/// Which part of the past counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Window {
    /// The last so much, as the database writes it.
    Sliding(String),
    /// Since the last of the moments that are whole multiples of the length away from the start.
    Tumbling { start: jiff::Timestamp, length: Span },
    /// Since the last moment that the plan names, in UTC.
    Cron(Box<Cron>),
}

/// How past usage is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the database is.
    pub url: String,
    /// What is odd, for a log line.
    pub warnings: Vec<String>,
    pub(super) window: Window,
    pub(super) half_life: Option<Span>,
    pub(super) fetch_every: Duration,
    pub(super) stale_after: Duration,
    pub(super) wait_max: Duration,
    /// How long one reading may take.
    pub(super) timeout: Duration,
    /// From one sample that counts to the next.
    pub(super) resolution: Span,
    /// Metrics of what queues hold: cpu, memory, gpu.
    pub(super) allocation: [String; 3],
    /// Metrics of what there is.
    pub(super) capacity: [String; 3],
}

impl Config {
    /// Reads a configuration; `variable` reads the environment.
    pub fn read(written: &Value, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let written: UsageDbConfig =
            serde_json::from_value(written.clone()).map_err(|error| ConfigError::Form(error.to_string()))?;
        if written.client_type != "prometheus" {
            return Err(ConfigError::ClientType(written.client_type));
        }
        let url = match (written.connection_string.as_str(), written.connection_string_env_var.as_str()) {
            ("", "") => return Err(ConfigError::Connection { given: "neither" }),
            (url, "") => url.to_owned(),
            ("", name) => variable(name).unwrap_or_default(),
            (_, _) => return Err(ConfigError::Connection { given: "both" }),
        };
        let params = written.usage_params.unwrap_or_default();
        let fetch_every = length("fetchInterval", params.fetch_interval.as_deref(), MINUTE)?;
        let stale_after = length("stalenessPeriod", params.staleness_period.as_deref(), MINUTE * 5)?;
        let half_life = match params.half_life_period.as_deref() {
            Some(text) => Some(span("halfLifePeriod", text)?).filter(|half_life| half_life.0 > 0),
            None => None,
        };
        let size = params.window_size.as_deref().filter(|size| !size.is_empty()).unwrap_or(WINDOW);
        let window = match params.window_type.as_deref().unwrap_or_default() {
            "" | "sliding" => {
                window_length(size)?;
                Window::Sliding(size.to_owned())
            }
            "tumbling" => {
                let start = params.tumbling_window_start_time.ok_or(ConfigError::NoStart)?.0;
                Window::Tumbling { start, length: window_length(size)? }
            }
            "cron" => {
                let text = params.cron_string.unwrap_or_default();
                Window::Cron(Box::new(Cron::from_str(&text).map_err(|_| ConfigError::Cron(text))?))
            }
            other => return Err(ConfigError::WindowType(other.to_owned())),
        };
        let extra = params.extra_params.unwrap_or_default();
        let mut warnings = Vec::new();
        let mut odd = |name: &str, usual: Duration| match extra.get(name).map(|text| (text, positive(text))) {
            Some((_, Some(length))) => length,
            Some((text, None)) => {
                warnings.push(format!("`{name}` is no length of time: `{text}`; {usual:?} is used"));
                usual
            }
            None => usual,
        };
        let (timeout, resolution) =
            (odd("usageQueryTimeout", Duration::from_secs(10)), odd("queryResolution", MINUTE));
        let metric = |name: String, usual: String| extra.get(&name).cloned().unwrap_or(usual);
        let held = [("cpu", "cpu_cores"), ("memory", "memory_bytes"), ("gpu", "gpus")];
        let there = [("cpu", "cpu"), ("memory", "memory"), ("gpu", "nvidia_com_gpu")];
        Ok(Self {
            url,
            window,
            half_life,
            fetch_every,
            // What is read as often as this cannot be younger.
            stale_after: stale_after.max(fetch_every),
            wait_max: length("waitTimeout", params.wait_timeout.as_deref(), MINUTE)?,
            timeout,
            resolution: Span(i64::try_from(resolution.as_micros()).unwrap_or(i64::MAX)),
            allocation: held.map(|(name, metric_name)| {
                metric(format!("{name}AllocationMetric"), format!("kai_queue_allocated_{metric_name}"))
            }),
            capacity: there.map(|(name, resource)| {
                let usual = format!("sum(kube_node_status_capacity{{resource=\"{resource}\"}})");
                metric(format!("{name}CapacityMetric"), usual)
            }),
            warnings,
        })
    }
}

/// A length of time; the usual one where none is given or it is not positive.
fn length(field: &'static str, text: Option<&str>, usual: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(usual) };
    let span = span(field, text)?;
    Ok(u64::try_from(span.0).ok().filter(|micros| *micros > 0).map_or(usual, Duration::from_micros))
}

fn span(field: &'static str, text: &str) -> Result<Span, ConfigError> {
    duration::parse_extended(text).map_err(|_| ConfigError::Duration { field, text: text.to_owned() })
}

fn positive(text: &str) -> Option<Duration> {
    let span = duration::parse_extended(text).ok()?;
    u64::try_from(span.0).ok().filter(|micros| *micros > 0).map(Duration::from_micros)
}

fn window_length(text: &str) -> Result<Span, ConfigError> {
    let span = duration::parse_prometheus(text).ok().filter(|span| span.0 > 0);
    span.ok_or_else(|| ConfigError::Duration { field: "windowSize", text: text.to_owned() })
}

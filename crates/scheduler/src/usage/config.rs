//! The configuration of historical usage: `usageDBConfig` of the scheduler's configuration.

use super::window::Window;
use croner::Cron;
use kai_api::shard::UsageDbConfig;
use kai_units::{Span, Timestamp, duration};
use serde_json::Value;
use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::Duration;

/// KAI's default.
const WINDOW: &str = "1w";
const MINUTE: Duration = Duration::from_mins(1);

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It does not match the schema.
    #[error("invalid `usageDBConfig`: {0}")]
    Schema(String),
    /// Unsupported client type.
    #[error("unsupported `clientType` `{0}`; hint: use `prometheus`, or `ledger`, which needs no database")]
    ClientType(String),
    /// Not exactly one connection string.
    #[error("{given} of `connectionString` and `connectionStringEnvVar` are set; hint: set one of them")]
    Connection {
        /// `neither` or `both`.
        given: &'static str,
    },
    /// Malformed duration.
    #[error("`{field}` is not a duration: `{text}`; hint: write it as `5m`, and a window also as `1w`")]
    Duration {
        /// The field.
        field: &'static str,
        /// Its value.
        text: String,
    },
    /// Unsupported window type.
    #[error("unsupported `windowType` `{0}`; hint: use `sliding`, `tumbling` or `cron`")]
    WindowType(String),
    /// A tumbling window without a start time.
    #[error(
        "a tumbling window needs `tumblingWindowStartTime`; hint: write a time such as 2026-01-31T08:00:00Z"
    )]
    NoStart,
    /// Malformed cron expression.
    #[error("`cronString` is not a cron expression: `{0}`; hint: write it as `0 0 * * 1`")]
    Cron(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where usage comes from.
    pub database: Database,
    /// Invalid values that were replaced by defaults.
    pub warnings: Vec<String>,
    pub(super) window: Window,
    pub(super) half_life: Option<Span>,
    pub(super) fetch_every: Duration,
    pub(super) stale_after: Duration,
    pub(super) wait_max: Duration,
}

/// Where usage comes from: `clientType`.
#[derive(Clone, Debug, PartialEq)]
pub enum Database {
    Prometheus(PrometheusConfig),
    /// The scheduler's own records.
    Ledger,
}

/// How Prometheus is queried.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusConfig {
    pub url: String,
    /// Limit of one query of all metrics.
    pub(super) timeout: Duration,
    /// Step of the PromQL subquery.
    pub(super) resolution: Span,
    /// Allocation metrics: cpu, memory, gpu.
    pub(super) allocation: [String; 3],
    /// Capacity metrics: cpu, memory, gpu.
    pub(super) capacity: [String; 3],
}

impl Config {
    /// Parses a configuration; `variable` reads the environment.
    pub fn parse(config: &Value, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = config.clone();
        if let Value::Object(fields) = &mut config {
            fields.entry("clientType").or_insert_with(|| Value::from(""));
        }
        let config: UsageDbConfig =
            serde_json::from_value(config).map_err(|error| ConfigError::Schema(error.to_string()))?;
        let params = config.usage_params.clone().unwrap_or_default();
        let mut warnings = Vec::new();
        let database = match config.client_type.as_str() {
            "prometheus" => {
                let url = url(&config, variable)?;
                let extra = params.extra_params.unwrap_or_default();
                Database::Prometheus(PrometheusConfig::new(url, &extra, &mut warnings))
            }
            // Nothing has to be installed for it, so it is the default.
            "" | "ledger" => Database::Ledger,
            _ => return Err(ConfigError::ClientType(config.client_type)),
        };
        let fetch_every = duration_or("fetchInterval", params.fetch_interval.as_deref(), MINUTE)?;
        let stale_after = duration_or("stalenessPeriod", params.staleness_period.as_deref(), MINUTE * 5)?;
        let half_life = match params.half_life_period.as_deref() {
            Some(text) => Some(span("halfLifePeriod", text)?).filter(|half_life| half_life.0 > 0),
            None => None,
        };
        let size = params.window_size.as_deref().filter(|size| !size.is_empty()).unwrap_or(WINDOW);
        let window = match params.window_type.as_deref().unwrap_or_default() {
            "" | "sliding" => Window::Sliding { text: size.to_owned(), length: window_length(size)? },
            "tumbling" => {
                let start = params.tumbling_window_start_time.ok_or(ConfigError::NoStart)?.0;
                let start = Timestamp(start.as_microsecond());
                Window::Tumbling { start, length: window_length(size)? }
            }
            "cron" => {
                let text = params.cron_string.unwrap_or_default();
                Window::Cron(Box::new(Cron::from_str(&text).map_err(|_| ConfigError::Cron(text))?))
            }
            other => return Err(ConfigError::WindowType(other.to_owned())),
        };
        Ok(Self {
            database,
            warnings,
            window,
            half_life,
            fetch_every,
            // Results are as old as the fetch interval in normal operation.
            stale_after: stale_after.max(fetch_every),
            wait_max: duration_or("waitTimeout", params.wait_timeout.as_deref(), MINUTE)?,
        })
    }
}

fn url(config: &UsageDbConfig, variable: impl Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    match (config.connection_string.as_str(), config.connection_string_env_var.as_str()) {
        ("", "") => Err(ConfigError::Connection { given: "neither" }),
        (url, "") => Ok(url.to_owned()),
        ("", name) => Ok(variable(name).unwrap_or_default()),
        (_, _) => Err(ConfigError::Connection { given: "both" }),
    }
}

impl PrometheusConfig {
    fn new(url: String, extra: &BTreeMap<String, String>, warnings: &mut Vec<String>) -> Self {
        let mut extra_duration =
            |name: &str, default: Duration| match extra.get(name).map(|text| (text, positive(text))) {
                Some((_, Some(length))) => length,
                Some((text, None)) => {
                    warnings.push(format!("`{name}` is not a duration: `{text}`; {default:?} is used"));
                    default
                }
                None => default,
            };
        let timeout = extra_duration("usageQueryTimeout", Duration::from_secs(10));
        let resolution = extra_duration("queryResolution", MINUTE);
        let metric = |name: String, default: String| extra.get(&name).cloned().unwrap_or(default);
        let allocation = [("cpu", "cpu_cores"), ("memory", "memory_bytes"), ("gpu", "gpus")];
        let capacity = [("cpu", "cpu"), ("memory", "memory"), ("gpu", "nvidia_com_gpu")];
        Self {
            url,
            timeout,
            resolution: Span(i64::try_from(resolution.as_micros()).unwrap_or(i64::MAX)),
            allocation: allocation.map(|(name, metric_name)| {
                metric(format!("{name}AllocationMetric"), format!("kai_queue_allocated_{metric_name}"))
            }),
            capacity: capacity.map(|(name, resource)| {
                let default = format!("sum(kube_node_status_capacity{{resource=\"{resource}\"}})");
                metric(format!("{name}CapacityMetric"), default)
            }),
        }
    }
}

/// A duration; the default where none is set or it is not positive, as in KAI.
fn duration_or(field: &'static str, text: Option<&str>, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(default) };
    let span = span(field, text)?;
    Ok(u64::try_from(span.0).ok().filter(|micros| *micros > 0).map_or(default, Duration::from_micros))
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

//! PromQL expressions of the usage query, and their results.

use super::window::Window;
use jiff::Timestamp;
use kai_units::{Span, duration};
use serde::Deserialize;
use std::collections::BTreeMap;

const QUEUE: &str = "queue_name";

/// The range of the current window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WindowRange {
    /// A PromQL duration before now.
    Since(String),
    /// The first window has not begun.
    NotStarted,
}

/// Sums a metric over the window; with a half-life, samples are weighted by their age.
pub(super) fn expression(
    metric: &str,
    half_life: Option<Span>,
    resolution: Span,
    range: &str,
    now: Timestamp,
) -> String {
    let weighted = match half_life {
        Some(half_life) => {
            let (seconds, now) = (half_life.0 as f64 / 1e6, now.as_second());
            format!("(({metric}) * (0.5^(({now} - time()) / {seconds:.6})))")
        }
        None => metric.to_owned(),
    };
    format!("sum_over_time(({weighted})[{range}:{}])", duration::format_go(resolution))
}

/// The range of the window that contains `now`.
pub(super) fn range(window: &Window, now: Timestamp) -> WindowRange {
    if let Window::Sliding { text, .. } = window {
        return WindowRange::Since(text.clone());
    }
    let now = kai_units::Timestamp(now.as_microsecond());
    let millis = window.begin(now).map_or(0, |begin| (now - begin).0 / 1_000);
    if millis > 0 { WindowRange::Since(format!("{millis}ms")) } else { WindowRange::NotStarted }
}

/// A value and its queue; empty for series without the queue label.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) queue: String,
    pub(super) value: f64,
}

#[derive(Deserialize)]
struct Response {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Timestamp, and the value as text.
    value: (f64, String),
}

/// Parses a response. Values that are not finite numbers count as 0.
pub(super) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let response: Response = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(data) = response.data.filter(|_| response.status == "success") else {
        return Err(response.error);
    };
    if data.result_type != "vector" {
        return Err(format!("the result is a {} instead of a vector", data.result_type));
    }
    let samples = data.result.into_iter().map(|mut series| {
        let value = series.value.1.parse::<f64>().ok().filter(|value| value.is_finite()).unwrap_or(0.0);
        Sample { queue: series.metric.remove(QUEUE).unwrap_or_default(), value }
    });
    Ok(samples.collect())
}

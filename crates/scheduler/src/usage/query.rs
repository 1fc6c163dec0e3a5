//! What is asked of a Prometheus, and what it answers.

use super::config::{Config, Window};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kai_units::duration;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The label that names a queue.
const QUEUE: &str = "queue_name";

/// Which part of the past counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// So much of it, as Prometheus writes it.
    Range(String),
    /// None: the first window has not begun.
    Ahead,
}

/// The sum of a metric over the part of the past that counts, with what is old counting less.
pub(super) fn expression(config: &Config, metric: &str, range: &str, now: Timestamp) -> String {
    let weighed = match config.half_life {
        Some(half_life) => {
            let (seconds, now) = (half_life.0 as f64 / 1e6, now.as_second());
            format!("(({metric}) * (0.5^(({now} - time()) / {seconds:.6})))")
        }
        None => metric.to_owned(),
    };
    format!("sum_over_time(({weighed})[{range}:{}])", duration::format_go(config.resolution))
}

/// How far back the window reaches.
pub(super) fn range(config: &Config, now: Timestamp) -> Reset {
    let begins = match &config.window {
        Window::Sliding(size) => return Reset::Range(size.clone()),
        Window::Tumbling { start, length } => {
            let since = now.as_microsecond() - start.as_microsecond();
            if since <= 0 {
                return Reset::Ahead;
            }
            // A window that begins at this very moment is empty; the one before it counts once more.
            let into = since.rem_euclid(length.0);
            now.as_microsecond() - if into == 0 { length.0 } else { into }
        }
        Window::Cron(plan) => {
            let before = plan.find_previous_occurrence(&now.to_zoned(TimeZone::UTC), false);
            match before {
                Ok(before) => before.timestamp().as_microsecond(),
                Err(_) => return Reset::Ahead,
            }
        }
    };
    let millis = (now.as_microsecond() - begins) / 1_000;
    if millis > 0 { Reset::Range(format!("{millis}ms")) } else { Reset::Ahead }
}

/// A text as part of a form.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte as char),
            _ => write!(encoded, "%{byte:02X}").expect("writing to a string"),
        }
    }
    encoded
}

/// A value, and the queue that it is about; empty where it is about none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) queue: String,
    pub(super) value: f64,
}

#[derive(Deserialize)]
struct Answer {
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
    /// A time, and the number as text.
    value: (f64, String),
}

/// Reads an answer; an error says what is wrong with it. What is no number counts for nothing.
pub(super) fn read(text: &str) -> Result<Vec<Sample>, String> {
    let answer: Answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(data) = answer.data.filter(|_| answer.status == "success") else { return Err(answer.error) };
    if data.result_type != "vector" {
        return Err(format!("a {} where a vector was asked for", data.result_type));
    }
    let samples = data.result.into_iter().map(|mut series| {
        let value = series.value.1.parse::<f64>().ok().filter(|value| value.is_finite()).unwrap_or(0.0);
        Sample { queue: series.metric.remove(QUEUE).unwrap_or_default(), value }
    });
    Ok(samples.collect())
}

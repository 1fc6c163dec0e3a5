//! Parses and formats durations: Go's format, Go's format with days and weeks, and Prometheus' format.
//!
//! The precision is a microsecond; finer digits are truncated.

use crate::quantity::shortened;
use crate::time::Span;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a sequence of numbers with units.
    #[error("`{text}` is not a duration; hint: write numbers with units, such as `90s`, `1h30m` or `2d`")]
    Malformed {
        /// The text, shortened where it is long.
        text: String,
    },
    #[error("`{text}` is longer than any duration; hint: the longest is about 292,000 years")]
    TooLong {
        /// The text, shortened where it is long.
        text: String,
    },
}

const MICRO: i128 = 1000;
const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;
const WEEK: i128 = 7 * DAY;
const YEAR: i128 = 365 * DAY;

/// Parses Go's format: `1h30m`, `-5s`, `1.5h`, `0`.
pub fn parse_go(text: &str) -> Result<Span, DurationError> {
    parse_units(text, |unit| match unit {
        "d" | "w" => None,
        _ => extended_unit(unit),
    })
}

/// Parses Go's format with days (`d`) and weeks (`w`) of 24 hours and 7 days.
pub fn parse_extended(text: &str) -> Result<Span, DurationError> {
    parse_units(text, extended_unit)
}

/// Parses Prometheus' format: whole numbers with `y`, `w`, `d`, `h`, `m`, `s`, `ms`, each at most once and in
/// that order; `0` needs no unit.
pub fn parse_prometheus(text: &str) -> Result<Span, DurationError> {
    let malformed = || DurationError::Malformed { text: shortened(text) };
    if text == "0" {
        return Ok(Span(0));
    }
    let order = [
        ("y", YEAR),
        ("w", WEEK),
        ("d", DAY),
        ("h", HOUR),
        ("m", MINUTE),
        ("s", SECOND),
        ("ms", SECOND / 1000),
    ];
    let mut next_allowed = 0;
    let mut nanos: i128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, unit, after) = split_component(rest).ok_or_else(malformed)?;
        let mut units = order.iter().enumerate().skip(next_allowed);
        let (place, (_, unit)) = units.find(|(_, (name, _))| *name == unit).ok_or_else(malformed)?;
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let count: i128 = number.parse().map_err(|_| too_long(text))?;
        nanos = unit.checked_mul(count).and_then(|n| nanos.checked_add(n)).ok_or_else(|| too_long(text))?;
        next_allowed = place + 1;
        rest = after;
    }
    if next_allowed == 0 {
        return Err(malformed());
    }
    in_micros(nanos, text)
}

/// Formats like Go: `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn format_go(span: Span) -> String {
    let micros = span.0.unsigned_abs();
    let sign = if span.0 < 0 { "-" } else { "" };
    if micros == 0 {
        return "0s".to_owned();
    }
    if micros < 1000 {
        return format!("{sign}{micros}µs");
    }
    if micros < 1_000_000 {
        return format!("{sign}{}ms", decimal(micros, 1000, 3));
    }
    let seconds = decimal(micros % 60_000_000, 1_000_000, 6);
    let minutes = micros / 60_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(value: u64, unit: u64, places: usize) -> String {
    let (whole, part) = (value / unit, value % unit);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:0places$}").trim_end_matches('0').to_owned()
}

fn extended_unit(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICRO,
        "ms" => SECOND / 1000,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => WEEK,
        _ => return None,
    })
}

/// Whether a number is negative, and the number without its sign.
pub(crate) fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn parse_units(text: &str, unit_nanos: impl Fn(&str) -> Option<i128>) -> Result<Span, DurationError> {
    let malformed = || DurationError::Malformed { text: shortened(text) };
    let (negative, unsigned) = split_sign(text);
    if unsigned == "0" {
        return Ok(Span(0));
    }
    if unsigned.is_empty() {
        return Err(malformed());
    }
    let mut nanos: i128 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (number, unit, after) = split_component(rest).ok_or_else(malformed)?;
        let unit = unit_nanos(unit).ok_or_else(malformed)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long(text))? };
        let mut sum = whole.checked_mul(unit).ok_or_else(|| too_long(text))?;
        let mut worth = unit;
        for digit in fraction.bytes().take(18) {
            worth /= 10;
            sum += worth * i128::from(digit - b'0');
        }
        nanos = nanos.checked_add(sum).ok_or_else(|| too_long(text))?;
        rest = after;
    }
    in_micros(if negative { -nanos } else { nanos }, text)
}

/// Splits `12.5ms…` into number, unit and the rest.
fn split_component(text: &str) -> Option<(&str, &str, &str)> {
    let unit_start = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(unit_start);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    (!number.is_empty()).then_some((number, unit, rest))
}

fn in_micros(nanos: i128, text: &str) -> Result<Span, DurationError> {
    i64::try_from(nanos / MICRO).map(Span).map_err(|_| too_long(text))
}

fn too_long(text: &str) -> DurationError {
    DurationError::TooLong { text: shortened(text) }
}

#[cfg(test)]
mod tests;

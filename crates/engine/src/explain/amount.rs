//! Formats amounts in GPUs, cores and gigabytes (10^9 bytes).

use crate::input::{self, WHOLE_GPU};
use crate::verdict::QueueResource;

/// Millicores per core; extended resources are counted in thousandths too.
const THOUSAND: i64 = 1_000;
const GIGABYTE: i64 = 1_000_000_000;

/// Base units per displayed unit of a queue resource.
pub(super) fn unit(resource: QueueResource) -> i64 {
    match resource {
        QueueResource::Cpu => THOUSAND,
        QueueResource::Memory => GIGABYTE,
        QueueResource::Gpu => WHOLE_GPU,
    }
}

/// Base units per displayed unit of a resource, by name.
pub(super) fn unit_of(resource: &str) -> i64 {
    match resource {
        input::CPU => unit(QueueResource::Cpu),
        input::MEMORY => unit(QueueResource::Memory),
        input::GPU => unit(QueueResource::Gpu),
        input::PODS => 1,
        _ if is_storage(resource) => GIGABYTE,
        _ => THOUSAND,
    }
}

/// Resources besides memory that are counted in bytes.
pub(super) fn is_storage(resource: &str) -> bool {
    matches!(resource, "ephemeral-storage" | "storage")
}

/// An amount in units: rounded to six decimals, then truncated to three.
pub(super) fn number(amount: i64, unit: i64) -> String {
    let scaled = i128::from(amount.unsigned_abs()) * 1_000_000;
    let unit = i128::from(unit);
    let millionths = (scaled + unit / 2) / unit;
    let negative = amount < 0 && millionths >= 1_000;
    with_decimals(millionths / 1_000, 3, negative)
}

/// An amount in units with up to six decimals.
pub(super) fn exact(amount: i64, unit: i64) -> String {
    let millionths = i128::from(amount.unsigned_abs()) * 1_000_000 / i128::from(unit);
    with_decimals(millionths, 6, amount < 0)
}

/// GPUs with three significant digits, as KAI formats the resources of topology domains.
pub(super) fn significant(millionths: i64) -> String {
    let value = millionths as f64 / WHOLE_GPU as f64;
    if value.abs() >= 1_000.0 {
        let text = format!("{value:.2e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        return format!("{mantissa}e+{exponent:0>2}");
    }
    let whole_digits = if value.abs() >= 100.0 {
        3
    } else if value.abs() >= 10.0 {
        2
    } else {
        1
    };
    // Leading zeros below one are not significant; fractions of a GPU have at most two decimals.
    let places = if value.abs() < 1.0 { 3 } else { 3 - whole_digits };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn with_decimals(value: i128, places: u32, negative: bool) -> String {
    let scale = 10_i128.pow(places);
    let sign = if negative { "-" } else { "" };
    let width = places as usize;
    let decimals = format!("{:0width$}", value % scale);
    match decimals.trim_end_matches('0') {
        "" => format!("{sign}{}", value / scale),
        decimals => format!("{sign}{}.{decimals}", value / scale),
    }
}

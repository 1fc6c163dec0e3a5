//! Compares JSON values with a tolerance for numbers.

use super::CallOutcome;
use serde_json::Value;

/// Recorded numbers are rounded to nine decimals.
const TOLERANCE: f64 = 1e-6;

/// Passes when both values are the same, numbers within the tolerance; absent and `null` are the same.
pub(super) fn same(expected: &Value, actual: &Value) -> CallOutcome {
    match difference("", expected, actual) {
        None => CallOutcome::Passed,
        Some(text) => CallOutcome::Failed(text),
    }
}

/// The first difference, with the way to it.
pub(super) fn difference(at: &str, expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            ((a - b).abs() > TOLERANCE).then(|| format!("{at}: expected {a}, got {b}"))
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Some(format!("{at}: expected {expected}, got {actual}"));
            }
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&format!("{at}[{i}]"), a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.into_iter().find_map(|key| difference(&format!("{at}.{key}"), &expected[key], &actual[key]))
        }
        _ => (expected != actual).then(|| format!("{at}: expected {expected}, got {actual}")),
    }
}

//! Quantities and requests of pods, in thousandths.

use serde_json::Value;
use std::collections::BTreeMap;

/// Thousandths by resource.
pub(in super::super) type Amounts = BTreeMap<String, i64>;

const SUFFIXES: [(&str, f64); 9] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

fn thousandths(quantity: &str) -> i64 {
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| Some((quantity.strip_suffix(suffix)?, factor)));
    let (number, factor) = suffix.unwrap_or((quantity, &1.0));
    let number: f64 = number.parse().unwrap_or_else(|_| panic!("`{quantity}` is no quantity"));
    (number * factor * 1e3).round() as i64
}

/// A map of quantities.
pub(super) fn amounts(value: Option<&Value>) -> Amounts {
    let fields = value.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, quantity)| Some((name.clone(), thousandths(quantity.as_str()?)))).collect()
}

/// Adds the requests of all containers, and one pod. The workloads have no init containers.
pub(super) fn add_requests(sum: &mut Amounts, pod: &Value) {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    for container in containers.into_iter().flatten() {
        for (resource, amount) in amounts(container.pointer("/resources/requests")) {
            *sum.entry(resource).or_default() += amount;
        }
    }
    *sum.entry("pods".to_owned()).or_default() += 1_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (quantity, expected) in [
            ("2", 2_000),
            ("500m", 500),
            ("0.25", 250),
            ("1Ki", 1_024_000),
            ("2Gi", 2_147_483_648_000),
            ("1k", 1_000_000),
        ] {
            assert_eq!(thousandths(quantity), expected, "{quantity}");
        }
    }
}

//! Texts, names, numbers and quantities at the limits of what an API server accepts.

use super::Random;
use serde_json::Value;

/// Texts that break paths, queries, numbers, durations and messages.
const TEXTS: [&str; 40] = [
    "",
    " ",
    "a b",
    "/",
    "..",
    "../../api/v1/secrets",
    "%2e%2e%2f",
    "%",
    "x?limit=1&watch=true",
    "x#fragment",
    "\n\r\t",
    "\u{0}",
    "\u{1b}[31m",
    "\u{202e}txet",
    "日本語",
    "🙂",
    "\"quoted\"",
    "'; --",
    "{}",
    "{\"name\": 1}",
    "[[[[[[[[",
    "$(HOSTNAME)",
    "{{ .Values }}",
    "null",
    "true",
    "NaN",
    "+Inf",
    "-1",
    "0",
    "1",
    "0.5",
    "1.5",
    "1e309",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "0x10",
    "１２",
    "99999h",
    "1d",
];

/// Quantities at the limits.
const QUANTITIES: [&str; 22] = [
    "0",
    "-0",
    "1",
    "1n",
    "1u",
    "0.0000000001",
    "100m",
    "0.3",
    "1e3",
    "1E",
    "9E",
    "8Ei",
    "9223372036854775807",
    "9223372036854775808",
    "123456789012345678901234567890",
    "1e18",
    "9e99",
    "1e-9",
    "1e-30",
    "1Ki",
    "4096",
    "1k",
];

/// Any text, sometimes a very long one.
pub(super) fn any(random: &mut Random) -> String {
    match random.below(12) {
        0 => "x".repeat(1 + random.below(5_000)),
        1 => "ü".repeat(1 + random.below(300)),
        _ => (*random.pick(&TEXTS)).to_owned(),
    }
}

/// Any text that is not empty.
pub(super) fn non_empty(random: &mut Random) -> String {
    let text = any(random);
    if text.is_empty() { "x".to_owned() } else { text }
}

/// A quantity; a negative one, which API servers should reject, is rare.
pub(super) fn quantity(random: &mut Random) -> String {
    let amount = *random.pick(&QUANTITIES);
    if random.one_in(60) { "-9E".to_owned() } else { amount.to_owned() }
}

/// An amount of a resource that is counted in whole units.
pub(super) fn count(random: &mut Random) -> String {
    const COUNTS: [&str; 8] = ["0", "1", "2", "8", "1k", "4Mi", "1e15", "9223372036854775807"];
    (*random.pick(&COUNTS)).to_owned()
}

/// An object name: mostly `short`, else one with dots, or as long as a DNS subdomain can be.
pub(super) fn name(random: &mut Random, short: &str) -> String {
    match random.below(6) {
        0 => fill(short, 253),
        1 => fill(short, 63),
        2 => format!("{short}.0.1-a"),
        _ => short.to_owned(),
    }
}

/// A label value at a limit, or one that means something else elsewhere.
pub(super) fn label(random: &mut Random) -> String {
    const LABELS: [&str; 12] = [
        "",
        "0",
        "2.0",
        "true",
        "null",
        "NaN",
        "1.5",
        "a.b_c-d",
        "default",
        "9223372036854775808",
        "UPPER",
        "x",
    ];
    if random.one_in(5) { "y".repeat(63) } else { (*random.pick(&LABELS)).to_owned() }
}

/// Repeats a letter after `start` up to a length.
pub(super) fn fill(start: &str, length: usize) -> String {
    let rest = length.saturating_sub(start.len() + 1);
    format!("{start}-{}", "z".repeat(rest))
}

pub(super) fn integer(random: &mut Random) -> i64 {
    const INTEGERS: [i64; 14] =
        [0, 1, 2, -1, 3, 7, 1_000, 65_536, i32::MAX as i64, i32::MIN as i64, 1 << 40, i64::MAX, i64::MIN, -5];
    *random.pick(&INTEGERS)
}

/// An integer of 32 bits.
pub(super) fn small_integer(random: &mut Random) -> i32 {
    const INTEGERS: [i32; 9] = [0, 1, 2, 3, -1, 100, 65_536, i32::MAX, i32::MIN];
    *random.pick(&INTEGERS)
}

/// A number of a custom resource: any double.
pub(super) fn number(random: &mut Random) -> Value {
    const NUMBERS: [f64; 14] =
        [0.0, -0.0, 1.0, -1.0, -2.0, 0.1, 1e-300, 1e18, 1e300, -1e300, 1.797e308, 0.333, 8.0, 1e9];
    Value::from(*random.pick(&NUMBERS))
}

//! Formats durations.

use kai_units::{Span, duration};

/// `2h`, `1m30s`, `250ms`; parts below a thousandth of the whole are left out.
pub(super) fn short(span: Span) -> String {
    let unit = match span.0.unsigned_abs() {
        0..10_000 => 1,
        10_000..10_000_000 => 1_000,
        10_000_000..600_000_000 => 100_000,
        _ => 1_000_000,
    };
    let text = duration::format_go(Span(span.0 / unit * unit));
    let text = text.strip_suffix("m0s").map_or(text.clone(), |rest| format!("{rest}m"));
    text.strip_suffix("h0m").map_or(text.clone(), |rest| format!("{rest}h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_and_zeros_are_left_out() {
        for (micros, expected) in [
            (0, "0s"),
            (10_000, "10ms"),
            (1_000_000, "1s"),
            (1_234_567, "1.234s"),
            (90_000_000, "1m30s"),
            (91_234_567, "1m31.2s"),
            (600_000_000, "10m"),
            (7_200_000_000, "2h"),
            (7_261_400_000, "2h1m1s"),
            (7_260_000_000, "2h1m"),
        ] {
            assert_eq!(short(Span(micros)), expected);
        }
    }
}

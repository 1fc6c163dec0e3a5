//! Durations in all three formats.

use super::*;
use proptest::prelude::*;

#[test]
fn go_durations_are_parsed_like_in_go() {
    for (text, micros) in [
        ("0", 0),
        ("5s", 5_000_000),
        ("-5s", -5_000_000),
        ("+1m", 60_000_000),
        ("1h30m", 5_400_000_000),
        ("1.5h", 5_400_000_000),
        (".5s", 500_000),
        ("100ms", 100_000),
        ("7us", 7),
        ("7µs", 7),
        ("1500ns", 1),
        ("5m0s", 300_000_000),
    ] {
        assert_eq!(parse_go(text), Ok(Span(micros)), "{text}");
        assert_eq!(parse_extended(text), Ok(Span(micros)), "{text}");
    }
}

#[test]
fn days_and_weeks_are_an_extension() {
    assert_eq!(parse_extended("1w2d"), Ok(Span::from_secs(9 * 86_400)));
    assert!(parse_go("2d").is_err());
}

#[test]
fn prometheus_durations_require_descending_units() {
    assert_eq!(parse_prometheus("1y"), Ok(Span::from_secs(365 * 86_400)));
    assert_eq!(parse_prometheus("1d12h"), Ok(Span::from_secs(129_600)));
    assert_eq!(parse_prometheus("5m30s250ms"), Ok(Span(330_250_000)));
    assert_eq!(parse_prometheus("0"), Ok(Span(0)));
    for text in ["", "1h1d", "1h1h", "1.5h", "-1h", "5", "5x"] {
        assert!(parse_prometheus(text).is_err(), "{text}");
    }
}

#[test]
fn malformed_durations_are_rejected_with_the_text() {
    for text in ["", "-", "5", "s", "1h-5m", "1 h", "ten", "1..5s", "1e3s"] {
        assert_eq!(parse_extended(text), Err(DurationError::Malformed { text: text.to_owned() }), "{text}");
    }
    for text in ["99999999999999999999h", "400000000w"] {
        assert_eq!(
            parse_extended(text),
            Ok(Span(0)).and(Err(DurationError::TooLong { text: text.to_owned() }))
        );
    }
}

#[test]
fn format_is_that_of_go() {
    for (micros, text) in [
        (0, "0s"),
        (300_000_000, "5m0s"),
        (5_400_000_000, "1h30m0s"),
        (1_500_000, "1.5s"),
        (250_000, "250ms"),
        (1_500, "1.5ms"),
        (7, "7µs"),
        (-5_000_000, "-5s"),
    ] {
        assert_eq!(format_go(Span(micros)), text);
    }
}

proptest! {
    #[test]
    fn formatted_durations_round_trip(micros in any::<i64>()) {
        prop_assert_eq!(parse_go(&format_go(Span(micros))), Ok(Span(micros)));
    }

    #[test]
    fn parser_never_panics(text in "[-+0-9.nusmhdwyµ]{0,24}|.{0,24}") {
        let _ = (parse_go(&text), parse_extended(&text), parse_prometheus(&text));
    }
}

//! Quantities compared with the results of Kubernetes.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn every_suffix_scales() {
    for (text, nanos) in [
        ("1n", 1),
        ("1u", 1_000),
        ("1m", 1_000_000),
        ("1", NANO),
        ("1k", 1_000 * NANO),
        ("1M", 1_000_000 * NANO),
        ("1G", 1_000_000_000 * NANO),
        ("1T", 1_000_000_000_000 * NANO),
        ("1P", 1_000_000_000_000_000 * NANO),
        ("1E", 1_000_000_000_000_000_000 * NANO),
        ("1Ki", 1024 * NANO),
        ("1Mi", (1 << 20) * NANO),
        ("1Gi", (1 << 30) * NANO),
        ("1Ti", (1 << 40) * NANO),
        ("1Pi", (1 << 50) * NANO),
        ("1Ei", (1 << 60) * NANO),
        ("1e3", 1_000 * NANO),
        ("1E3", 1_000 * NANO),
        ("1e-3", 1_000_000),
        ("12e+2", 1_200 * NANO),
        ("-5", -5 * NANO),
        ("+.5", NANO / 2),
        ("5.", 5 * NANO),
        ("0.5Ki", 512 * NANO),
        ("0e99999", 0),
    ] {
        assert_eq!(read(text).nanos(), nanos, "{text}");
    }
}

#[test]
fn fractions_below_a_billionth_are_rounded_away_from_zero() {
    assert_eq!(read("0.0000000001").nanos(), 1);
    assert_eq!(read("-1.0000000001").nanos(), -NANO - 1);
    assert_eq!(read("1e-30").nanos(), 1);
    assert_eq!(read("0.00000000000000000000001Ki").nanos(), 1);
}

#[test]
fn whole_units_and_thousandths_round_up() {
    assert_eq!(read("1500m").units(), 2);
    assert_eq!(read("100u").milli(), 1);
    assert_eq!(read("-100u").milli(), -1);
    assert_eq!(read("20k").milli(), 20_000_000);
    assert_eq!(read("9223372036854775807").milli(), i64::MAX);
    assert_eq!(read("9223372036854775807").units(), i64::MAX);
}

#[test]
fn malformed_quantities_are_rejected_with_the_text() {
    for text in
        ["", "Gi", "1.2.3", "1 Gi", "1gi", "0x10", "--1", "1e", "1e1.5", "ten", "1KiB", ".", "1_000", "¼"]
    {
        let error = text.parse::<Quantity>().unwrap_err();
        assert_eq!(error, QuantityError::Malformed { text: text.to_owned() });
        assert!(error.to_string().contains(text));
    }
    for text in ["1e400", "9223372036854775808", "16Ei", "1e99999999999999", "-1e19"] {
        match text.parse::<Quantity>() {
            Err(QuantityError::TooLarge { text: named }) => assert_eq!(named, text),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!("1e99999999999999999999".parse::<Quantity>().is_err());
    let flood = "9".repeat(10_000).parse::<Quantity>().unwrap_err().to_string();
    assert!(flood.len() < 300, "{flood}");
}

#[test]
fn format_is_canonical() {
    for (text, canonical) in [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1000Mi", "1000Mi"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
        ("2048", "2048"),
        ("20000", "20k"),
        ("1e3", "1e3"),
        ("5e0", "5"),
        ("1500e0", "1500"),
        ("-0", "0"),
        ("123456789n", "123456789n"),
        ("1.0000000001Gi", "1073741824107374183n"),
    ] {
        assert_eq!(read(text).to_string(), canonical, "{text}");
    }
}

proptest! {
    #[test]
    fn formatted_quantities_round_trip(nanos in -MOST..=MOST, style in 0..3) {
        let style = [Style::Decimal, Style::Binary, Style::Exponent][style as usize];
        let quantity = Quantity { nanos, style };
        prop_assert_eq!(read(&quantity.to_string()), quantity);
    }

    #[test]
    fn whole_numbers_are_exact(units in any::<i64>().prop_filter("symmetric", |u| *u > i64::MIN)) {
        prop_assert_eq!(read(&units.to_string()).units(), units);
    }

    #[test]
    fn parser_never_panics(text in "[-+0-9.eEkKMGinum]{0,30}|.{0,30}") {
        let _ = text.parse::<Quantity>();
    }
}

#[test]
fn sums_keep_the_style_and_stay_within_bounds() {
    let read = |text: &str| text.parse::<Quantity>().unwrap();
    let sum = |a: &str, b: &str| read(a).plus(read(b)).to_string();
    assert_eq!(sum("1Gi", "1024Mi"), "2Gi");
    assert_eq!(sum("0", "1Gi"), "1Gi");
    assert_eq!(sum("500m", "1"), "1500m");
    assert_eq!(sum("9223372036854775807", "1"), "9223372036854775807");
    assert_eq!(read("1Gi").minus(read("1Gi")).to_string(), "0");
    assert_eq!(read("1").minus(read("250m")).to_string(), "750m");
}

//! Quantities, durations and times: any text is parsed or refused, and a parsed value prints as itself.
#![no_main]

use kai_units::{Timestamp, duration, quantity::Quantity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(quantity) = text.parse::<Quantity>() {
        assert_eq!(quantity.to_string().parse(), Ok(quantity));
        let _ = (quantity.units(), quantity.milli());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        assert_eq!(time.to_string().parse(), Ok(time));
    }
    if let Ok(span) = duration::parse_go(text) {
        assert_eq!(duration::parse_go(&duration::format_go(span)), Ok(span));
    }
    let _ = duration::parse_extended(text);
    let _ = duration::parse_prometheus(text);
});

//! Parses and formats timestamps in RFC 3339, as Kubernetes does.
//!
//! The precision is a microsecond; finer digits are truncated.

use crate::quantity::shortened;
use crate::time::Timestamp;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time; hint: write it as in RFC 3339, such as `2025-01-31T08:00:00Z`")]
pub struct TimestampError {
    /// Shortened where it is long.
    pub text: String,
}

const SECONDS_A_DAY: i64 = 86_400;
const MICROS: i64 = 1_000_000;
/// 0000-01-01T00:00:00Z.
const FIRST_SECOND: i64 = -62_167_219_200;
/// 9999-12-31T23:59:59Z.
const LAST_SECOND: i64 = 253_402_300_799;

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        parse(text).ok_or_else(|| TimestampError { text: shortened(text) })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    if !text.is_ascii() {
        return None;
    }
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, c)| bytes.get(*at) != Some(c))
        || !matches!(bytes.get(10), Some(b'T' | b't'))
    {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let mut digits = bytes.get(from..to)?.iter();
        digits.try_fold(0, |all, b| b.is_ascii_digit().then(|| all * 10 + i64::from(b - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.find(|c: char| !c.is_ascii_digit())?;
        if digits == 0 {
            return None;
        }
        let (fraction, after) = fraction.split_at_checked(digits)?;
        for digit in fraction.bytes().chain(std::iter::repeat(b'0')).take(6) {
            micros = micros * 10 + i64::from(digit - b'0');
        }
        rest = after;
    }
    let seconds = days_since_epoch(year, month, day) * SECONDS_A_DAY + hour * 3600 + minute * 60 + second;
    let utc = seconds - offset_seconds(rest)?;
    // RFC 3339 has four digits for the year.
    (FIRST_SECOND..=LAST_SECOND).contains(&utc).then_some(Timestamp(utc * MICROS + micros))
}

/// `Z` or `±hh:mm`, as seconds east of UTC.
fn offset_seconds(text: &str) -> Option<i64> {
    if text == "Z" || text == "z" {
        return Some(0);
    }
    let &[sign, hour_tens, hour_ones, b':', minute_tens, minute_ones] = text.as_bytes() else { return None };
    let sign = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let two = |tens: u8, ones: u8| -> Option<i64> {
        (tens.is_ascii_digit() && ones.is_ascii_digit())
            .then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
    };
    let (hours, minutes) = (two(hour_tens, hour_ones)?, two(minute_tens, minute_ones)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(MICROS), self.0.rem_euclid(MICROS));
        let (days, of_day) = (seconds.div_euclid(SECONDS_A_DAY), seconds.rem_euclid(SECONDS_A_DAY));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01; years are counted from March so that the leap day is the last day.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a day number.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().0
    }

    #[test]
    fn kubernetes_timestamps_are_parsed() {
        assert_eq!(at("1970-01-01T00:00:00Z"), 0);
        assert_eq!(at("2025-01-01T00:00:00.000001Z"), 1_735_689_600_000_001);
        assert_eq!(at("2025-01-01T02:00:00+02:00"), at("2025-01-01T00:00:00Z"));
        for edge in ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"] {
            assert_eq!(Timestamp(at(edge)).to_string(), edge);
        }
        assert_eq!(at("2024-02-29T23:59:59.1239999Z"), at("2024-02-29T23:59:59Z") + 123_999);
    }

    #[test]
    fn malformed_timestamps_are_rejected_with_the_text() {
        for text in [
            "",
            "now",
            "2025-02-29T00:00:00Z",
            "2025-01-01 00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:00:00",
            "2025-01-01T00:00:00.Z",
            "2025-01-01T00:00:00+99:00",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "٢٠٢٥-01-01T00:00:00Z",
        ] {
            let error = text.parse::<Timestamp>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn formatted_timestamps_round_trip(micros in -2_000_000_000_000_000i64..4_000_000_000_000_000) {
            let time = Timestamp(micros);
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }

        #[test]
        fn parser_never_panics(text in ".{0,40}") {
            let _ = text.parse::<Timestamp>();
        }
    }
}

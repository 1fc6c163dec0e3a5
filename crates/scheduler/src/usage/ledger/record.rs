//! The text form of a series, as it is kept in a ConfigMap: about 600 bytes for a full window.
//!
//! `1 BUCKET HALF_LIFE START SINCE CPU MEMORY GPU MAX_CPU MAX_MEMORY MAX_GPU SUMS`, times in microseconds. SUMS is base64 of
//! three 16-bit numbers per bucket, each a fraction of the largest sum of its resource.

use super::Amounts;
#[cfg(test)]
use super::series::same;
use super::series::{BUCKETS, Resolution, Series};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use kai_units::{Span, Timestamp};
use std::fmt::Write as _;

const VERSION: &str = "1";
const STEPS: f64 = u16::MAX as f64;

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("its version is `{0}`, which this scheduler does not know")]
    Version(String),
    #[error("the field {0} is missing or invalid")]
    Field(&'static str),
}

pub(super) fn encode(series: &Series) -> String {
    let larger = |[a, b, c]: Amounts, [d, e, f]: &Amounts| [a.max(*d), b.max(*e), c.max(*f)];
    let max = series.sums.iter().fold([0.0; 3], larger);
    let mut bytes = Vec::with_capacity(series.sums.len() * 6);
    for sums in &series.sums {
        for (sum, max) in sums.iter().zip(max) {
            let step = if max > 0.0 { (sum / max * STEPS).round() as u16 } else { 0 };
            bytes.extend(step.to_le_bytes());
        }
    }
    let Resolution { bucket, half_life } = series.resolution;
    let half_life = half_life.map_or(0, |half_life| half_life.0);
    let mut text = format!("{VERSION} {} {half_life} {} {}", bucket.0, series.start.0, series.since.0);
    for amount in series.current.iter().chain(&max) {
        // Writing to a string does not fail. This form of a number is read back as the same number.
        let _ = write!(text, " {amount:e}");
    }
    text.push(' ');
    STANDARD_NO_PAD.encode_string(bytes, &mut text);
    text
}

pub(super) fn decode(text: &str) -> Result<Series, RecordError> {
    let mut fields = text.split(' ');
    match fields.next() {
        Some(VERSION) => {}
        other => return Err(RecordError::Version(other.unwrap_or_default().chars().take(20).collect())),
    }
    let mut integer = |name| {
        let value = fields.next().and_then(|field| field.parse::<i64>().ok()).filter(|value| *value >= 0);
        value.ok_or(RecordError::Field(name))
    };
    let bucket = Span(integer("bucket length")?);
    let half_life = Some(Span(integer("half-life")?)).filter(|half_life| half_life.0 > 0);
    let (start, since) = (Timestamp(integer("start")?), Timestamp(integer("time of the last change")?));
    if bucket.0 == 0 || start > since {
        return Err(RecordError::Field("start"));
    }
    let mut amounts = |name| -> Result<Amounts, RecordError> {
        let mut amounts = [0.0; 3];
        for amount in &mut amounts {
            let value = fields.next().and_then(|field| field.parse::<f64>().ok());
            let valid = value.filter(|value| value.is_finite() && *value >= 0.0);
            *amount = valid.ok_or(RecordError::Field(name))?;
        }
        Ok(amounts)
    };
    let current = amounts("current amounts")?;
    let max = amounts("largest sums")?;
    let bytes = fields.next().and_then(|field| STANDARD_NO_PAD.decode(field).ok());
    let bytes = bytes.ok_or(RecordError::Field("sums"))?;
    let (buckets, rest) = bytes.as_chunks::<6>();
    if !rest.is_empty() || i64::try_from(buckets.len()).is_ok_and(|count| count > BUCKETS + 1) {
        return Err(RecordError::Field("sums"));
    }
    let sums = buckets.iter().map(|[a, b, c, d, e, f]| {
        let mut max = max.into_iter();
        [[*a, *b], [*c, *d], [*e, *f]]
            .map(|step| f64::from(u16::from_le_bytes(step)) / STEPS * max.next().unwrap_or_default())
    });
    let resolution = Resolution { bucket, half_life };
    Ok(Series { resolution, start, sums: sums.collect(), current, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Series {
        let resolution = Resolution::of(Span::from_secs(7 * 24 * 3_600), Some(Span::from_secs(86_400)));
        let start = Timestamp(1_769_860_800_000_000);
        let mut series = Series::new(resolution, start);
        for number in 0..500 {
            let now = start + Span(number * resolution.bucket.0 / 7);
            series.set(now, [number as f64 % 13.0, 1e9 * (number as f64 % 5.0), number as f64 % 8.0]);
        }
        series
    }

    #[test]
    fn record_keeps_the_series_within_rounding_and_is_small() {
        let series = full();
        let text = encode(&series);
        assert!(text.len() < 800, "{} bytes", text.len());
        let read = decode(&text).unwrap();
        assert_eq!(
            (read.resolution, read.start, read.since),
            (series.resolution, series.start, series.since)
        );
        assert!(same(read.current, series.current));
        let (mut read, mut series) = (read, series);
        let now = series.since;
        let (read, expected) = (read.integral(series.start, now), series.integral(series.start, now));
        for resource in 0..3 {
            assert!((read[resource] / expected[resource] - 1.0).abs() < 1e-4, "{read:?} {expected:?}");
        }
    }

    #[test]
    fn invalid_records_are_rejected_with_the_field() {
        let valid = encode(&full());
        let with = |position: usize, value: &str| {
            let mut fields: Vec<&str> = valid.split(' ').collect();
            fields[position] = value;
            decode(&fields.join(" ")).unwrap_err().to_string()
        };
        assert!(with(0, "7").contains("version is `7`"));
        assert!(with(1, "0").contains("start"));
        assert!(with(2, "-5").contains("half-life"));
        assert!(with(3, "9223372036854775807").contains("start"));
        assert!(with(5, "NaN").contains("current"));
        assert!(with(9, "inf").contains("largest"));
        assert!(with(11, "AAAA").contains("sums"));
        assert!(with(11, &"A".repeat(8 * 1_000)).contains("sums"));
        assert!(decode("").is_err());
        assert!(decode("1 2 3").is_err());
    }
}

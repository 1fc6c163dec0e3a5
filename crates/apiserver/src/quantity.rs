//! `resource.Quantity`: parsed exactly, compared, and formatted canonically.

use std::cmp::Ordering;
use std::fmt;

/// The finest resolution of a quantity.
const NANO: i128 = 1_000_000_000;
const DECIMAL: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The notation, which formatting keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// `1k`, `100m`.
    Decimal,
    /// `1Ki`.
    Binary,
    /// `1e3`.
    Exponent,
}

#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    /// Parses a quantity; `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, suffix) = rest.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (notation, factor) = Self::suffix(suffix)?;
        let nanos = scaled(whole, fraction, factor)?;
        Some(Self { nanos: if negative { -nanos } else { nanos }, notation })
    }

    /// The notation of a suffix, and its factor.
    fn suffix(suffix: &str) -> Option<(Notation, Factor)> {
        if let Some((exponent, _)) = DECIMAL.iter().find(|(_, name)| *name == suffix) {
            return Some((Notation::Decimal, Factor::Ten(*exponent)));
        }
        if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
            return Some((Notation::Binary, Factor::Binary(1 << (10 * power))));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some((Notation::Exponent, Factor::Ten(exponent)))
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }
}

#[derive(Clone, Copy)]
enum Factor {
    Ten(i32),
    Binary(i128),
}

/// Digits times a factor in nano units; finer digits are rounded away from zero.
fn scaled(whole: &str, fraction: &str, factor: Factor) -> Option<i128> {
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (digits, exponent) = match factor {
        Factor::Ten(exponent) => (digits, exponent.checked_sub(places)?.checked_add(9)?),
        Factor::Binary(factor) => (digits.checked_mul(factor)?, 9 - places),
    };
    if digits == 0 {
        return Some(0);
    }
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return digits.checked_mul(power?);
    }
    let Some(power) = power else { return Some(1) };
    Some(digits / power + i128::from(digits % power != 0))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.notation == Notation::Binary && !small && self.is_whole() {
            let mut amount = self.nanos / NANO;
            let mut power = 0;
            while amount % 1024 == 0 && power + 1 < BINARY.len() {
                amount /= 1024;
                power += 1;
            }
            return write!(f, "{amount}{}", BINARY[power]);
        }
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 1000 == 0 && exponent < 18 {
            amount /= 1000;
            exponent += 3;
        }
        if self.notation == Notation::Exponent && exponent != 0 {
            return write!(f, "{amount}e{exponent}");
        }
        let suffix = DECIMAL.iter().find(|(known, _)| *known == exponent).map_or("", |(_, name)| name);
        write!(f, "{amount}{suffix}")
    }
}

/// The canonical form; `None` if the text is not a quantity.
pub fn canonical(text: &str) -> Option<String> {
    Quantity::parse(text).map(|quantity| quantity.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_canonical_form() {
        for (text, form) in [
            ("1", "1"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("-1", "-1"),
            ("100Ki", "100Ki"),
            ("0.1Gi", "107374182400m"),
            ("512", "512"),
            (".5", "500m"),
            ("1Ki", "1Ki"),
            ("0.0000000001", "1n"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(form), "{text}");
        }
        for none in ["", "x", "1x", "--1", "1.2.3", "."] {
            assert_eq!(canonical(none), None, "{none}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let of = |text: &str| Quantity::parse(text).unwrap();
        assert!(of("1Gi") > of("1G") && of("1") == of("1000m") && of("-1").is_negative());
        assert!(of("2").is_whole() && !of("500m").is_whole() && of("0m").is_zero());
    }
}

//! Parses and formats Kubernetes resource quantities (`100m`, `1.5Gi`, `2e3`), exact to a billionth.
//!
//! A value is a whole number of billionths. As in Kubernetes, finer fractions are rounded away from zero; values beyond
//! 2^63 - 1 whole units are an error.

use crate::duration::split_sign;
use std::fmt;
use std::str::FromStr;

/// Billionths in one unit.
const NANO: i128 = 1_000_000_000;
/// Largest magnitude: 2^63 - 1 whole units.
const MOST: i128 = i64::MAX as i128 * NANO;
/// Text with more digits is rejected before any arithmetic.
const LONGEST_TEXT: usize = 256;

/// An exact quantity with the format of its text, as in apimachinery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    style: Style,
}

/// The format of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Style {
    /// Powers of 1000: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    Decimal,
    /// Powers of 1024: `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    Binary,
    /// A power of ten: `e3`.
    Exponent,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a known suffix.
    #[error(
        "`{text}` is not a quantity; hint: write a number with an optional suffix, such as `500m`, `2` or `16Gi`"
    )]
    Malformed {
        /// The text, shortened where it is long.
        text: String,
    },
    #[error("`{text}` is larger than any quantity; hint: the largest is 2^63 - 1")]
    TooLarge {
        /// The text, shortened where it is long.
        text: String,
    },
}

impl Quantity {
    /// A whole number of units.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANO, style: Style::Decimal }
    }
    /// A number of thousandths.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * (NANO / 1000), style: Style::Decimal }
    }
    /// The same value, written in another style.
    #[must_use]
    pub const fn styled(self, style: Style) -> Self {
        Self { nanos: self.nanos, style }
    }
    /// Values beyond the largest quantity are clamped.
    pub const fn from_nanos(nanos: i128) -> Self {
        let nanos = if nanos > MOST {
            MOST
        } else if nanos < -MOST {
            -MOST
        } else {
            nanos
        };
        Self { nanos, style: Style::Decimal }
    }
    /// Saturating; the result has the style of the first operand that is not 0.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let style = if self.nanos == 0 { other.style } else { self.style };
        Self::from_nanos(self.nanos + other.nanos).styled(style)
    }
    /// Saturating; the result has the style of the first operand that is not 0.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, style: other.style })
    }
    /// Whole units, rounded away from zero.
    pub const fn units(self) -> i64 {
        self.scaled(NANO)
    }
    /// Thousandths, rounded away from zero; values that do not fit are clamped.
    pub const fn milli(self) -> i64 {
        self.scaled(NANO / 1000)
    }
    /// Billionths, exactly.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }
    /// How it is written.
    pub const fn style(self) -> Style {
        self.style
    }
    /// Whether it is 0.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    const fn scaled(self, nanos_per_step: i128) -> i64 {
        let whole = self.nanos / nanos_per_step;
        let away = if self.nanos % nanos_per_step == 0 { 0 } else { self.nanos.signum() };
        let value = whole + away;
        if value > i64::MAX as i128 {
            i64::MAX
        } else if value < i64::MIN as i128 {
            i64::MIN
        } else {
            value as i64
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed { text: shortened(text) };
        if text.len() > LONGEST_TEXT {
            return Err(malformed());
        }
        let (negative, rest) = split_sign(text);
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let (scale, style) = Scale::parse(suffix).ok_or_else(malformed)?;
        let nanos =
            scale.nanos(whole, fraction).ok_or_else(|| QuantityError::TooLarge { text: shortened(text) })?;
        Ok(Self { nanos: if negative { -nanos } else { nanos }, style })
    }
}

/// What the suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    Ten(i64),
    Two(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<(Self, Style)> {
        Some(match suffix {
            "n" => (Self::Ten(-9), Style::Decimal),
            "u" => (Self::Ten(-6), Style::Decimal),
            "m" => (Self::Ten(-3), Style::Decimal),
            "" => (Self::Ten(0), Style::Decimal),
            "k" => (Self::Ten(3), Style::Decimal),
            "M" => (Self::Ten(6), Style::Decimal),
            "G" => (Self::Ten(9), Style::Decimal),
            "T" => (Self::Ten(12), Style::Decimal),
            "P" => (Self::Ten(15), Style::Decimal),
            "E" => (Self::Ten(18), Style::Decimal),
            "Ki" => (Self::Two(10), Style::Binary),
            "Mi" => (Self::Two(20), Style::Binary),
            "Gi" => (Self::Two(30), Style::Binary),
            "Ti" => (Self::Two(40), Style::Binary),
            "Pi" => (Self::Two(50), Style::Binary),
            "Ei" => (Self::Two(60), Style::Binary),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                (Self::Ten(exponent.parse().ok()?), Style::Exponent)
            }
        })
    }

    /// Billionths in `whole.fraction` at this scale, rounded up; `None` when too large.
    fn nanos(self, whole: &str, fraction: &str) -> Option<i128> {
        let digits = || whole.bytes().chain(fraction.bytes());
        let significant = whole.trim_start_matches('0').len().max(usize::from(!fraction.is_empty()));
        if digits().all(|d| d == b'0') {
            return Some(0);
        }
        let exact = match self {
            Self::Ten(exponent) => {
                // The digit at `position` is worth 10^place billionths.
                let first = exponent.checked_add(9)?.checked_add(i64::try_from(whole.len()).ok()? - 1)?;
                let mut sum: i128 = 0;
                let mut finer = false;
                for (position, digit) in digits().enumerate() {
                    let place = first - i64::try_from(position).ok()?;
                    if digit == b'0' {
                        continue;
                    }
                    if place < 0 {
                        finer = true;
                        continue;
                    }
                    let worth = 10i128.checked_pow(u32::try_from(place).ok()?)?;
                    sum = sum.checked_add(worth.checked_mul(i128::from(digit - b'0'))?)?;
                }
                sum.checked_add(i128::from(finer))?
            }
            Self::Two(bits) => {
                if significant > 20 {
                    return None;
                }
                let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
                let factor = 1i128 << bits;
                let (part, finer) = binary_fraction(fraction, factor);
                whole
                    .checked_mul(factor)?
                    .checked_mul(NANO)?
                    .checked_add(part)?
                    .checked_add(i128::from(finer))?
            }
        };
        (exact <= MOST).then_some(exact)
    }
}

/// Billionths in `0.fraction` times a factor, rounded down, and whether something finer is left.
fn binary_fraction(fraction: &str, factor: i128) -> (i128, bool) {
    // Long division from the last digit inwards stays exact for 18 digits; digits beyond that are finer than
    // 2^60 * 10^-18 billionths can resolve only as "something is left".
    let (head, tail) = fraction.split_at(fraction.len().min(18));
    let digits: i128 = if head.is_empty() { 0 } else { head.parse().unwrap_or(0) };
    let divisor = 10i128.pow(u32::try_from(head.len()).unwrap_or(18));
    let rest = tail.bytes().any(|d| d != b'0');
    let scaled = digits * factor;
    let whole = scaled / divisor;
    let remainder = (scaled % divisor) * NANO;
    (whole * NANO + remainder / divisor, remainder % divisor != 0 || rest)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.style == Style::Binary && self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0 {
            let mut mantissa = self.nanos / NANO;
            let mut suffix = "";
            for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if mantissa % 1024 != 0 {
                    break;
                }
                mantissa /= 1024;
                suffix = larger;
            }
            return write!(f, "{mantissa}{suffix}");
        }
        let mut mantissa = self.nanos;
        let mut power = 0usize;
        while mantissa % 1000 == 0 && power < 9 {
            mantissa /= 1000;
            power += 1;
        }
        match self.style {
            Style::Exponent if power == 3 => write!(f, "{mantissa}"),
            Style::Exponent => write!(f, "{mantissa}e{}", power as i64 * 3 - 9),
            Style::Decimal | Style::Binary => {
                let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power).unwrap_or(&"");
                write!(f, "{mantissa}{suffix}")
            }
        }
    }
}

/// Shortens text for an error message.
pub(crate) fn shortened(text: &str) -> String {
    let cut = text.char_indices().nth(40).and_then(|(cut, _)| text.get(..cut));
    cut.map_or_else(|| text.to_owned(), |start| format!("{start}…"))
}

#[cfg(test)]
mod tests;

//! The string formats that custom resources may declare.

use regex::Regex;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::LazyLock;

/// Whether a string has the format; `None` for unknown formats, which are not checked.
pub(super) fn has_format(format: &str, text: &str) -> Option<bool> {
    Some(match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok() && text.len() == 10,
        "duration" => is_duration(text),
        "byte" => is_base64(text),
        "password" => true,
        "ipv4" => Ipv4Addr::from_str(text).is_ok(),
        "ipv6" => Ipv6Addr::from_str(text).is_ok(),
        "cidr" => is_cidr(text),
        "mac" => MAC.is_match(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID.is_match(text) && version(text) == Some('3'),
        "uuid4" => UUID.is_match(text) && version(text) == Some('4') && is_rfc_variant(text),
        "uuid5" => UUID.is_match(text) && version(text) == Some('5') && is_rfc_variant(text),
        "email" => EMAIL.is_match(text),
        "hostname" => HOSTNAME.is_match(text) && text.len() <= 255,
        "uri" => URI.is_match(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "rgbcolor" => RGB_COLOR.is_match(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "creditcard" => CARD.is_match(&digits(text)),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "ssn" => SSN.is_match(text),
        "k8sshortname" => crate::names::dns_label(text).is_empty(),
        "k8slongname" => crate::names::subdomain(text).is_empty(),
        _ => return None,
    })
}

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($text).expect("a constant pattern compiles"));
    };
}

pattern!(UUID, "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(
    MAC,
    "(?i)^([0-9a-f]{2}[:-]){5}([0-9a-f]{2}[:-][0-9a-f]{2}[:-])?[0-9a-f]{2}$|^([0-9a-f]{4}\\.){2,3}[0-9a-f]{4}$"
);
pattern!(EMAIL, r#"^(?:[^<>]*<)?[^\s@<>"(),:;\[\\\]]+@[^\s@<>"(),:;\\]+>?$"#);
pattern!(
    HOSTNAME,
    r"^([a-zA-Z0-9\p{L}]([a-zA-Z0-9\p{L}-]{0,62}[a-zA-Z0-9\p{L}])?)(\.[a-zA-Z0-9\p{L}]([a-zA-Z0-9\p{L}-]{0,62}[a-zA-Z0-9\p{L}])?)*\.?$"
);
pattern!(URI, r"^([a-zA-Z][a-zA-Z0-9+.-]*:[^\x00-\x1f\x7f]*|/[^\x00-\x1f\x7f]*)$");
pattern!(HEX_COLOR, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    RGB_COLOR,
    r"^rgb\(\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*,\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*,\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*\)$"
);
pattern!(
    CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
);
pattern!(SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(DATE_TIME, r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})$");
pattern!(GO_DURATION, r"^[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$");
pattern!(
    WORD_DURATION,
    r"^(\d+)\s*(d|days?|h|hours?|hrs?|m|mins?|minutes?|s|secs?|seconds?|ms|millis?|milliseconds?|us|µs|micros?|microseconds?|ns|nanos?|nanoseconds?|w|weeks?)$"
);

fn is_date_time(text: &str) -> bool {
    DATE_TIME.is_match(text) && text.replacen(['t', ' '], "T", 1).parse::<jiff::Timestamp>().is_ok()
}

fn is_duration(text: &str) -> bool {
    GO_DURATION.is_match(text) || WORD_DURATION.is_match(&text.to_lowercase())
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = match (Ipv4Addr::from_str(address), Ipv6Addr::from_str(address)) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        (Err(_), Err(_)) => return false,
    };
    length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn version(uuid: &str) -> Option<char> {
    uuid.chars().filter(|c| *c != '-').nth(12)
}

fn is_rfc_variant(uuid: &str) -> bool {
    uuid.chars().filter(|c| *c != '-').nth(16).is_some_and(|c| matches!(c, '8' | '9' | 'a' | 'b' | 'A' | 'B'))
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text: Vec<_> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let digit = |index: usize, c: char| if index == 9 && c == 'X' { Some(10) } else { c.to_digit(10) };
    let sum =
        text.iter().enumerate().map(|(index, c)| digit(index, *c).map(|digit| (index as u32 + 1) * digit));
    text.len() == 10 && sum.sum::<Option<u32>>().is_some_and(|sum| sum.is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let text: Vec<_> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let sum = text
        .iter()
        .enumerate()
        .map(|(index, c)| c.to_digit(10).map(|digit| if index % 2 == 0 { digit } else { 3 * digit }));
    text.len() == 13 && sum.sum::<Option<u32>>().is_some_and(|sum| sum.is_multiple_of(10))
}

#[cfg(test)]
mod tests {
    use super::has_format;

    #[test]
    fn formats_are_validated() {
        let cases = [
            ("date-time", "2026-01-02T03:04:05Z", "2026-13-02T03:04:05Z"),
            ("date-time", "2026-01-02T03:04:05.123+02:00", "yesterday"),
            ("date", "2026-01-02", "2026-01-32"),
            ("duration", "1h30m", "1x"),
            ("duration", "2 days", "days"),
            ("byte", "aGk=", "a"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("uuid", "0123ABCD-0123-0123-0123-0123456789ab", "0123"),
            ("uuid4", "0123abcd-0123-4123-8123-0123456789ab", "0123abcd-0123-5123-8123-0123456789ab"),
            ("email", "a@b.c", "a"),
            ("hostname", "a-b.c", "a_b"),
            ("uri", "http://a/b", "a b"),
            ("hexcolor", "#fff", "#ff"),
            ("rgbcolor", "rgb(1,2,3)", "rgb(1,2,300)"),
            ("isbn", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("ssn", "111-22-3333", "1"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "a..b"),
        ];
        for (format, good, bad) in cases {
            assert_eq!(has_format(format, good), Some(true), "{format} {good}");
            assert_eq!(has_format(format, bad), Some(false), "{format} {bad}");
        }
        assert_eq!(has_format("int32", "x"), None);
    }
}

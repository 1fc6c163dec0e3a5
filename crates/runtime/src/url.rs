//! Percent-encoding of request paths and queries (RFC 3986).
//!
//! Names come from objects of users: an owner reference may hold any text, and must not change which resource a
//! request addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// RBAC objects have names such as `system:node`.
const SEGMENT: &AsciiSet = &UNRESERVED.remove(b':');

/// Encodes one segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Encodes a value of a query or a form.
pub fn query_value(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Whether a path has a segment that servers resolve instead of looking it up.
pub(crate) fn has_dot_segment(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_unchanged() {
        for name in ["gpu-node-1.example.com", "system:node", "scheduling.run.ai", "v1alpha2"] {
            assert_eq!(segment(name), name);
        }
    }

    #[test]
    fn reserved_characters_are_encoded() {
        assert_eq!(segment("x y/../z?a#b"), "x%20y%2F..%2Fz%3Fa%23b");
        assert_eq!(query_value("app=a b,c/ü"), "app%3Da%20b%2Cc%2F%C3%BC");
    }

    #[test]
    fn dot_segments_are_found_in_the_path_only() {
        assert!(has_dot_segment("/api/v1/namespaces/../secrets"));
        assert!(!has_dot_segment("/api/v1/pods/a..b?continue=../x"));
    }
}

//! Validates names, label keys and label values, with the messages of apimachinery's `validation` package.
//!
//! Every function returns the errors; an empty list means that the name is valid.

const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const DNS_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";

/// Maximum length of a label value, the name part of a label key and a DNS label.
pub const LABEL_MAX: usize = 63;
/// Maximum length of a DNS subdomain, and so of most object names.
pub const SUBDOMAIN_MAX: usize = 253;

/// A label or annotation key: a name with an optional DNS prefix, `example.com/name`.
pub fn label_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<_> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            let message = with_examples(LABEL_KEY_MESSAGE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
            let rest = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {message} {rest}")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        faults.push(format!("name part {}", too_long(LABEL_MAX, "bytes")));
    }
    if !is_label_name(name) {
        let message = with_examples(LABEL_KEY_MESSAGE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
        faults.push(format!("name part {message}"));
    }
    faults
}

/// A label value: empty, or up to 63 characters.
pub fn label_value(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(too_long(LABEL_MAX, "bytes"));
    }
    if !value.is_empty() && !is_label_name(value) {
        let pattern = format!("({LABEL_KEY})?");
        faults.push(with_examples(LABEL_VALUE_MESSAGE, &pattern, &["MyValue", "my_value", "12345"]));
    }
    faults
}

/// A DNS label (RFC 1123), as for namespaces.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > LABEL_MAX {
        faults.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_dns_label(name) {
        if is_subdomain(name) {
            faults.push("must not contain dots".to_owned());
        } else {
            faults.push(with_examples(DNS_LABEL_MESSAGE, DNS_LABEL, &["my-name", "123-abc"]));
        }
    }
    faults
}

/// A DNS label that begins with a letter (RFC 1035).
pub fn dns_1035_label(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > LABEL_MAX {
        faults.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(with_examples(DNS_1035_MESSAGE, DNS_1035, &["my-name", "abc-123"]));
    }
    faults
}

/// A DNS subdomain (RFC 1123), as for most objects.
pub fn subdomain(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        faults.push(too_long(SUBDOMAIN_MAX, "characters"));
    }
    if !is_subdomain(name) {
        let pattern = format!("{DNS_LABEL}(\\.{DNS_LABEL})*");
        faults.push(with_examples(SUBDOMAIN_MESSAGE, &pattern, &["example.com"]));
    }
    faults
}

/// Names of RBAC objects: any valid path segment.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." => vec!["may not be '.'".to_owned()],
        ".." => vec!["may not be '..'".to_owned()],
        _ => ["/", "%"]
            .iter()
            .filter(|part| name.contains(**part))
            .map(|part| format!("may not contain '{part}'"))
            .collect(),
    }
}

fn is_label_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_dns_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(letter)
        && bytes.last().is_some_and(letter)
        && bytes.iter().all(|byte| letter(byte) || *byte == b'-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

/// Kubernetes counts bytes in both cases, but says so only for labels.
fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

/// The message of a failed pattern, with examples and the pattern.
pub fn with_examples(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_have_a_name_and_an_optional_dns_prefix() {
        for good in ["a", "A.b_c-1", "example.com/Name", &"a".repeat(63)] {
            assert_eq!(label_key(good), Vec::<String>::new(), "{good}");
        }
        assert_eq!(label_key("/a"), ["prefix part must be non-empty"]);
        assert_eq!(label_key("")[0], "name part must be non-empty");
        assert_eq!(label_key(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert_eq!(
            label_key("-a"),
            [
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert!(label_key("a/b/c")[0].ends_with("and '/' (e.g. 'example.com/MyName')"));
        assert!(label_key("A.com/b")[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
    }

    #[test]
    fn label_values_may_be_empty() {
        assert!(label_value("").is_empty() && label_value("a.b").is_empty());
        assert!(label_value("a b")[0].starts_with("a valid label must be an empty string or"));
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn dns_names_are_lower_case() {
        assert!(
            dns_label("a-1").is_empty() && subdomain("a-1.b").is_empty() && dns_1035_label("a-1").is_empty()
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        for bad in ["", "A", "-a", "a-", "a_b", "é"] {
            assert_eq!(dns_label(bad).len(), 1, "{bad}");
            assert_eq!(subdomain(bad).len(), 1, "{bad}");
        }
        assert_eq!(subdomain("a..b").len(), 1);
        assert_eq!(dns_1035_label("1a").len(), 1);
        assert_eq!(path_segment("a:b"), Vec::<String>::new());
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }
}

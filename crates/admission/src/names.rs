//! Names of generated objects.

/// Longest DNS subdomain.
const SUBDOMAIN_LENGTH_MAX: usize = 253;
/// Letters and digits that do not form words, as in the names that Kubernetes generates.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 7;

/// Seven characters that follow from the uid of a request, which is random.
pub(crate) fn suffix(uid: &str) -> String {
    // FNV-1a, then one multiplication to spread short inputs over all bits.
    let mut hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut text = String::with_capacity(SUFFIX_LENGTH);
    for _ in 0..SUFFIX_LENGTH {
        let letter = ALPHABET.get((hash % ALPHABET.len() as u64) as usize).copied().unwrap_or(b'x');
        text.push(char::from(letter));
        hash /= ALPHABET.len() as u64;
    }
    text
}

/// Whether a text is a DNS subdomain (RFC 1123), as names of config maps are.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= SUBDOMAIN_LENGTH_MAX
        && text.split('.').all(|label| {
            !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
        })
}

/// A text as a DNS label: in lower case, with `-` for other characters.
pub(crate) fn label(text: &str) -> String {
    let lower = text.to_lowercase();
    let allowed = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    lower.chars().map(allowed).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_follows_from_the_uid() {
        let (a, b) =
            (suffix("705ab4f5-6393-11e8-b7cc-42010a800002"), suffix("705ab4f5-6393-11e8-b7cc-42010a800003"));
        assert_ne!(a, b);
        assert_eq!(a, suffix("705ab4f5-6393-11e8-b7cc-42010a800002"));
        assert!(a.len() == SUFFIX_LENGTH && a.bytes().all(|byte| ALPHABET.contains(&byte)), "{a}");
    }

    #[test]
    fn names_are_checked_and_converted() {
        for (text, valid) in
            [("a-0", true), ("a.b-0", true), ("-0", false), ("My_P-0", false), ("a..b", false), ("", false)]
        {
            assert_eq!(is_subdomain(text), valid, "{text}");
        }
        assert_eq!(label("My_Prefix.x-0-vol"), "my-prefix-x-0-vol");
        assert_eq!(label("-0-vol"), "0-vol");
    }
}

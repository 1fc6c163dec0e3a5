//! The order of names with numbers: `node-2` before `node-10`.

use std::cmp::Ordering;

/// Compares runs of digits as numbers, and everything else as text.
pub fn natural_order(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    while !left.is_empty() && !right.is_empty() {
        let ((a, left_rest), (b, right_rest)) = (split(left), split(right));
        let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        let order = if is_number(a) && is_number(b) {
            let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        } else {
            a.cmp(b)
        };
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    // Equal numbers may be written differently.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// The first run of digits or of other characters, and the rest.
fn split(text: &str) -> (&str, &str) {
    let is_digit = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = ["node-10", "node-2", "a", "node", "node-2b", "node-02", "node-2-1", "10", "9"];
        names.sort_by(|one, other| natural_order(one, other));
        assert_eq!(names, ["9", "10", "a", "node", "node-02", "node-2", "node-2-1", "node-2b", "node-10"]);
    }
}

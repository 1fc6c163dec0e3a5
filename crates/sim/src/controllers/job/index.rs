//! Completion indexes of pods, and their text form in the status.

use super::COMPLETION_INDEX;
use crate::controllers::annotation;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn of(pod: &Value) -> Option<usize> {
    annotation(pod, COMPLETION_INDEX).parse().ok()
}

/// Parses indexes such as `0-2,5`.
pub(super) fn parse(text: &str) -> BTreeSet<usize> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            indexes.extend(first..=last);
        }
    }
    indexes
}

/// Formats indexes such as `0-2,5`; ranges have at least three elements, as upstream.
pub(super) fn print(indexes: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            Some(_) | None => runs.push((*index, *index)),
        }
    }
    let parts: Vec<String> = runs
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_formatted_as_ranges() {
        let indexes = BTreeSet::from([0, 1, 2, 4, 6, 7]);
        assert_eq!(print(&indexes), "0-2,4,6,7");
        assert_eq!(parse("0-2,4,6,7"), indexes);
        assert_eq!(parse(""), BTreeSet::new());
    }
}

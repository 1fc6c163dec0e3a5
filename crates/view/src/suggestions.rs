//! Suggests known names that resemble a wanted one.

const SUGGESTIONS_MAX: usize = 3;

/// Known names that resemble a wanted one, the most similar first; each is a namespace and a name.
///
/// The same name in another namespace comes first. Other names have to be in the namespace, or in a similar one.
pub(crate) fn suggestions<'a>(
    wanted: (&str, &str),
    known: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    let mut all: Vec<(usize, String)> = known
        .filter_map(|known| Some((distance(wanted, known)?, format!("{}/{}", known.0, known.1))))
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name).collect()
}

/// `None` where two names differ too much.
fn distance(wanted: (&str, &str), known: (&str, &str)) -> Option<usize> {
    if wanted.1 == known.1 {
        return Some(0);
    }
    let namespace = if wanted.0 == known.0 { 0 } else { 1 + edits(wanted.0, known.0) };
    // Names of pods and groups are often the name of the workload with a suffix.
    let name = if known.1.starts_with(wanted.1) { 1 } else { edits(wanted.1, known.1) };
    let allowed = (wanted.1.chars().count() / 3).max(2);
    (namespace + name <= allowed).then_some(namespace + name)
}

/// The Levenshtein distance.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, left) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (at, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("", "ab", 2), ("train", "trian", 2), ("train", "brain", 1)]
        {
            assert_eq!(edits(one, other), expected, "{one} {other}");
            assert_eq!(edits(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn same_name_in_another_namespace_comes_first_and_dissimilar_names_are_omitted() {
        let known = [("b", "train"), ("a", "brain"), ("a", "train-x7f"), ("a", "notebook"), ("b", "brain")];
        assert_eq!(suggestions(("a", "train"), known.into_iter()), ["b/train", "a/brain", "a/train-x7f"]);
        assert!(suggestions(("a", "zebra"), known.into_iter()).is_empty());
    }
}

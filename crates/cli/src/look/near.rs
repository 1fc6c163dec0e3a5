//! Names that somebody may have meant.

/// How many are offered.
const OFFERED_MAX: usize = 3;

/// Known names that resemble a wanted one, nearest first; each is a namespace and a name.
///
/// The same name elsewhere is nearest; others have to be in the namespace, or in one that resembles it.
pub(super) fn near<'a>(wanted: (&str, &str), known: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut all: Vec<(usize, String)> = known
        .filter_map(|known| Some((unlikeness(wanted, known)?, format!("{}/{}", known.0, known.1))))
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().take(OFFERED_MAX).map(|(_, name)| name).collect()
}

/// Nothing where two names have too little in common.
fn unlikeness(wanted: (&str, &str), known: (&str, &str)) -> Option<usize> {
    if wanted.1 == known.1 {
        return Some(0);
    }
    let namespace = if wanted.0 == known.0 { 0 } else { 1 + slips(wanted.0, known.0) };
    // Generated names are what people know with something behind it.
    let name = if known.1.starts_with(wanted.1) { 1 } else { slips(wanted.1, known.1) };
    let allowed = (wanted.1.chars().count() / 3).max(2);
    (namespace + name <= allowed).then_some(namespace + name)
}

/// How many characters have to be put in, left out or replaced to make one text of the other.
fn slips(one: &str, other: &str) -> usize {
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
    fn slips_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("", "ab", 2), ("train", "trian", 2), ("train", "brain", 1)]
        {
            assert_eq!(slips(one, other), expected, "{one} {other}");
            assert_eq!(slips(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn the_same_name_elsewhere_comes_first_and_strangers_not_at_all() {
        let known = [("b", "train"), ("a", "brain"), ("a", "train-x7f"), ("a", "notebook"), ("b", "brain")];
        assert_eq!(near(("a", "train"), known.into_iter()), ["b/train", "a/brain", "a/train-x7f"]);
        assert!(near(("a", "zebra"), known.into_iter()).is_empty());
    }
}

//! Compares two files of decisions, line by line, in any order.
//!
//! A line is `bind POD NODE [GPU-GROUPS]`, `pipeline POD NODE` or `evict POD`. GPU groups are left out: their names
//! are made up anew by every run.

use std::collections::BTreeSet;

/// How two sets of decisions differ.
pub(super) struct Comparison {
    /// Decisions on both sides.
    pub(super) shared: usize,
    /// Decisions that only we made.
    pub(super) ours_alone: Vec<String>,
    /// Decisions that only the other side made.
    pub(super) theirs_alone: Vec<String>,
}

impl Comparison {
    /// Whether both sides decided the same.
    pub(super) fn is_equal(&self) -> bool {
        self.ours_alone.is_empty() && self.theirs_alone.is_empty()
    }
}

/// Compares the texts of two files.
pub(super) fn compare(ours: &str, theirs: &str) -> Comparison {
    let (ours, theirs) = (lines(ours), lines(theirs));
    let alone = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
    Comparison {
        shared: ours.intersection(&theirs).count(),
        ours_alone: alone(&ours, &theirs),
        theirs_alone: alone(&theirs, &ours),
    }
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_gpu_groups_do_not_matter() {
        let ours = "bind a/x n1 3f,4a\nevict a/y\n";
        let theirs = "evict a/y\nbind a/x n1\n";
        assert!(compare(ours, theirs).is_equal());
    }

    #[test]
    fn another_node_is_a_difference_on_both_sides() {
        let comparison = compare("bind a/x n1\n", "bind a/x n2\n");
        assert_eq!(comparison.shared, 0);
        assert_eq!(comparison.ours_alone, ["bind a/x n1"]);
        assert_eq!(comparison.theirs_alone, ["bind a/x n2"]);
    }
}

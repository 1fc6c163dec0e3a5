//! Compares two files of decisions, line by line, in any order.
//!
//! A line is `bind POD NODE [GPU-GROUPS]`, `pipeline POD NODE` or `evict POD`. GPU groups are left out: their names
//! are made up anew by every run.

use std::collections::BTreeSet;

/// How two sets of decisions differ.
pub(super) enum Comparison {
    /// So many decisions, the same on both sides.
    Equal(usize),
    /// Not the same.
    Different {
        /// Decisions that only we made.
        ours_alone: Vec<String>,
        /// Decisions that only the other side made.
        theirs_alone: Vec<String>,
    },
    /// Everything that the other side decided, and places for pods that it found none for.
    MoreFound(usize),
    /// The other side decides differently from run to run: what came of it, ours first.
    Varies(Tally, Tally),
}

/// What a cycle came to, in pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// By how many more pods have a place: bound or pipelined, less evicted. That is right also where a pod was bound,
    /// evicted again, and perhaps pipelined elsewhere in the same cycle.
    pub(super) gained: i64,
    /// Pods that lost theirs without getting another.
    pub(super) lost: usize,
}

/// Compares the texts of two files.
pub(super) fn compare(ours: &str, theirs: &str) -> Comparison {
    let (ours, theirs) = (lines(ours), lines(theirs));
    if ours == theirs {
        return Comparison::Equal(ours.len());
    }
    if theirs.is_subset(&ours) {
        return Comparison::MoreFound(ours.len() - theirs.len());
    }
    let alone = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
    Comparison::Different { ours_alone: alone(&ours, &theirs), theirs_alone: alone(&theirs, &ours) }
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
        assert!(matches!(compare(ours, theirs), Comparison::Equal(2)));
    }

    #[test]
    fn another_node_is_a_difference_on_both_sides() {
        let Comparison::Different { ours_alone, theirs_alone } = compare("bind a/x n1\n", "bind a/x n2\n")
        else {
            panic!("the nodes differ");
        };
        assert_eq!(ours_alone, ["bind a/x n1"]);
        assert_eq!(theirs_alone, ["bind a/x n2"]);
    }
}

//! The texts of the rules, read from the tables of `docs/differences.md`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../../docs/differences.md");
/// Where the page says more about a rule.
pub const PATH: &str = "docs/differences.md";

/// One row of a table of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub kai: &'static str,
    /// When the difference can show.
    pub condition: &'static str,
    pub here: &'static str,
}

static ROWS: LazyLock<BTreeMap<&'static str, Row>> = LazyLock::new(|| PAGE.lines().filter_map(row).collect());

/// The row of a rule; `None` where the page lacks it.
pub fn get(id: &str) -> Option<Row> {
    ROWS.get(id).copied()
}

/// The ids of all rules under a letter, in order.
pub fn ids(letter: char) -> Vec<&'static str> {
    ROWS.keys().copied().filter(|id| id.starts_with(letter)).collect()
}

/// `| H01 | KAI's behaviour | condition | what is different |`
fn row(line: &'static str) -> Option<(&'static str, Row)> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [id, kai, condition, here] = cells[..] else { return None };
    let mut characters = id.chars();
    let is_id = characters.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && id.len() == 3
        && characters.all(|digit| digit.is_ascii_digit());
    is_id.then_some((id, Row { kai, condition, here }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_row_for_every_rule_and_no_other() {
        let expected = |letter, known: Vec<&str>| assert_eq!(ids(letter), known, "rules {letter}");
        expected('D', super::super::scheduling::DIFFERENCES.iter().map(|rule| rule.id).collect());
        expected('H', super::super::chart::RULES.iter().map(|rule| rule.id).collect());
        let mut operator: Vec<&str> = super::super::installation::RULES.iter().map(|rule| rule.id).collect();
        // These are about a change of the settings, or about the state of a deployment.
        operator.extend(["O01", "O02", "O04", "O09", "O17", "O18", "O21"]);
        operator.sort_unstable();
        expected('O', operator);
    }
}

//! Runs every console example of the documentation and compares its output.

use std::path::Path;
use std::process::Command;

/// A line that stands for any number of lines.
const GAP: &str = "…";

#[test]
fn planning_examples_are_current() {
    assert_examples_are_current("docs/planning.md", 9);
}

#[test]
fn simulating_examples_are_current() {
    assert_examples_are_current("docs/simulating.md", 5);
}

#[track_caller]
fn assert_examples_are_current(page: &str, examples: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(page)).expect("the page exists");
    let blocks: Vec<&str> =
        page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= examples, "the page has its examples");
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command and its output");
        let args = command.strip_prefix("$ kai ").expect("a command line").split(' ');
        let output = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(args)
            .current_dir(&root)
            .output()
            .expect("the binary runs");
        let printed = crate::stdout(&output) + &crate::stderr(&output);
        assert!(
            matches_example(shown, &printed),
            "{command}\nthe page has:\n{shown}\nthe command prints:\n{printed}"
        );
    }
}

/// Whether the parts between gaps appear in order, the first at the start of the output and the last at its end.
pub(crate) fn matches_example(shown: &str, printed: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let mut rest: Vec<&str> = printed.lines().collect();
    for (index, part) in shown.split(|line| *line == GAP).enumerate() {
        let found = if index == 0 {
            rest.starts_with(part).then_some(0)
        } else {
            (0..=rest.len()).find(|at| rest[*at..].starts_with(part))
        };
        let Some(at) = found else { return false };
        rest.drain(..at + part.len());
    }
    rest.is_empty() || shown.last() == Some(&GAP)
}

//! Runs the console examples of a documentation page and compares their output.

use std::path::Path;
use std::process::Command;

/// A line that stands for any number of lines.
const GAP: &str = "…";

/// The width of the terminal on which the examples were printed.
const COLUMNS: &str = "100";

/// Runs every ` ```console ` block of a page whose command begins with `prefix`, with the rest as arguments of `binary`.
/// The path of the page is relative to the repository, where the commands run. There must be `least` such blocks.
#[track_caller]
pub fn assert_examples_are_current(page: &str, prefix: &str, binary: &str, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(page)).expect("the page exists");
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<&str> = blocks.filter(|block| block.starts_with(prefix)).collect();
    assert!(blocks.len() >= least, "the page has its examples");
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command and its output");
        let args = command.strip_prefix(prefix).expect("blocks are filtered by it").split(' ');
        let output = Command::new(binary)
            .args(args)
            .env("COLUMNS", COLUMNS)
            .current_dir(&root)
            .output()
            .expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        let printed = text(output.stdout) + &text(output.stderr);
        assert!(
            matches_example(shown, &printed),
            "{command}\nthe page has:\n{shown}\nthe command prints:\n{printed}"
        );
    }
}

/// Whether the parts between gaps appear in order, the first at the start of the output and the last at its end.
pub fn matches_example(shown: &str, printed: &str) -> bool {
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

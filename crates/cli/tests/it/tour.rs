//! The tours in `docs`: every command in them is run, and its output is what the text shows.

use std::path::Path;
use std::process::Command;

/// Stands for any number of lines.
const GAP: &str = "…";

#[test]
fn every_command_of_the_tour_of_plan_prints_what_it_shows() {
    prints_what_it_shows("docs/planning.md", 9);
}

#[test]
fn every_command_of_the_tour_of_simulate_prints_what_it_shows() {
    prints_what_it_shows("docs/simulating.md", 5);
}

#[track_caller]
fn prints_what_it_shows(tour: &str, examples: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tour = std::fs::read_to_string(root.join(tour)).expect("the tour is there");
    let blocks: Vec<&str> =
        tour.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= examples, "the tour has its examples");
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("a command and its output");
        let args = command.strip_prefix("$ kai ").expect("a command line").split(' ');
        let output = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(args)
            .current_dir(&root)
            .output()
            .expect("the binary runs");
        let printed = crate::stdout(&output) + &crate::stderr(&output);
        assert!(is_shown(shown, &printed), "{command}\nthe tour shows:\n{shown}\nprinted is:\n{printed}");
    }
}

/// Whether the parts between gaps appear in the order of the text, the first at its start and the last at its end.
pub(crate) fn is_shown(shown: &str, printed: &str) -> bool {
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

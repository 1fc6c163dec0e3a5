//! Replays recorded function calls, where a folder with them is there.

use kai_testkit::calls::{self, CallOutcome};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The folder of recorded cases: `KAI_CONFORMANCE`, or a folder beside the repository.
fn cases() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance"));
    let dir = std::env::var_os("KAI_CONFORMANCE").map_or_else(beside, PathBuf::from).join("cases");
    dir.is_dir().then_some(dir)
}

#[test]
fn recorded_calls_give_the_recorded_results() {
    let Some(dir) = cases() else { return };
    let results = calls::run(&dir).unwrap();
    let mut failures = Vec::new();
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for result in &results {
        let count = counts.entry(&result.area).or_default();
        match &result.outcome {
            CallOutcome::Passed => count[0] += 1,
            CallOutcome::Failed(text) => {
                count[1] += 1;
                failures.push(format!("{}: {text}", result.id));
            }
            CallOutcome::ByDesign(rule) => {
                count[2] += 1;
                println!("{} differs by {rule}", result.id);
            }
        }
    }
    println!("area: passed, failed, by design");
    for (area, count) in counts {
        println!("{area}: {count:?}");
    }
    assert!(failures.is_empty(), "{} calls differ:\n{}", failures.len(), failures.join("\n"));
}

//! Replays recorded function calls of the reference folder.

use kai_testkit::calls::{self, CallOutcome};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[test]
#[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
fn recorded_calls_give_the_recorded_results() {
    let reference = std::env::var_os("KAI_REFERENCE").expect("KAI_REFERENCE names the reference folder");
    let dir = PathBuf::from(reference).join("conformance/cases");
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

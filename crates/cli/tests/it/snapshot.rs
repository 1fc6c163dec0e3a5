//! `kai snapshot` from files; `view_commands` takes one from a cluster.

use crate::{NOW, assert_rejected, kai, scratch, shape, stderr, stdout};
use std::path::PathBuf;

fn target(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path.to_str().expect("the path is plain").to_owned()
}

#[test]
fn anonymised_file_plans_alike_and_names_are_written_beside_it() {
    let file = scratch("to-anonymise.json", shape("gang", 10));
    let (anonymous, names) = (target("anonymous.zip"), target("names.json"));
    let output = kai(&["snapshot", "--from", &file, "--anonymise", "-o", &anonymous, "--names", &names]);
    assert!(output.status.success(), "{}", stderr(&output));
    let names: std::collections::BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(&names).expect("it is written")).expect("JSON");
    let decisions = |file: &str| {
        let lines = target("decisions.txt");
        let output = kai(&["plan", file, "--now", NOW, "--decisions", &lines, "--audit"]);
        assert!(output.status.success(), "{}{}", stderr(&output), stdout(&output));
        std::fs::read_to_string(lines).expect("it is written").lines().count()
    };
    assert_eq!(decisions(&anonymous), decisions(&file));
    assert!(!names.is_empty());
    let text = stdout(&kai(&["plan", &anonymous, "--now", NOW]));
    for name in names.keys().filter(|name| name.len() > 4) {
        assert!(!text.contains(name.as_str()), "`{name}` is left in {text}");
    }
}

#[test]
fn snapshot_goes_to_standard_output_and_can_be_read_again() {
    let file = scratch("to-copy.json", shape("gang", 4));
    let output = kai(&["snapshot", "--from", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let copy = scratch("copy.zip", &output.stdout);
    let planned = |file: &str| stdout(&kai(&["plan", file, "--now", NOW]));
    assert_eq!(planned(&copy), planned(&file));
}

#[test]
fn errors_name_the_file_and_the_cluster() {
    assert_rejected(&kai(&["snapshot", "--from", "/nowhere.zip", "-o", "-"]), &["`/nowhere.zip`"]);
    let file = scratch("to-nowhere.json", shape("gang", 2));
    assert_rejected(&kai(&["snapshot", "--from", &file, "-o", "/nowhere/x.zip"]), &["`/nowhere/x.zip`"]);
    assert_rejected(&kai(&["snapshot", "--kubeconfig", "/nowhere.yaml"]), &["/nowhere.yaml"]);
}

//! Invalid files and arguments: exit code 2 and an error that names the problem; never a panic.

use crate::{NOW, kai, scratch, shape, stderr, stdout};
use kai_testkit::shapes;
use std::path::Path;

/// Asserts exit code 2 and an error that contains all the words.
#[track_caller]
fn assert_rejected(args: &[&str], words: &[&str]) {
    let output = kai(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("error: "), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

/// Asserts that the file is planned, with findings that contain all the words.
#[track_caller]
fn assert_findings(file: &str, words: &[&str]) {
    let output = kai(&["plan", file, "--now", NOW, "--json", "--findings", "--audit"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

#[test]
fn missing_file_is_named() {
    assert_rejected(&["plan", "/nowhere/to/be.found"], &["`/nowhere/to/be.found`"]);
}

#[test]
fn truncated_archive_is_rejected() {
    let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("whole.zip");
    shapes::write_zip(shapes::find("gang").expect("the shape exists"), 2, &whole)
        .expect("the folder is there");
    let bytes = std::fs::read(&whole).expect("the archive is there");
    for length in [0, 1, 4, 30, bytes.len() / 2, bytes.len() - 1] {
        let file = scratch("truncated.zip", &bytes[..length]);
        assert_rejected(&["plan", &file], &["truncated.zip"]);
    }
}

#[test]
fn truncated_json_is_rejected() {
    let text = shape("gang", 2);
    for length in [1, 100, text.len() / 2, text.len() - 1] {
        let file = scratch("truncated.json", &text[..length]);
        assert_rejected(&["plan", &file], &["truncated.json"]);
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let file = scratch("deep.json", format!("{{\"rawObjects\":{}", "[".repeat(200_000)));
    assert_rejected(&["plan", &file], &["deep.json"]);
    let file = scratch("deep.yaml", format!("config: {}", "[".repeat(200_000)));
    assert_rejected(&["plan", &file], &["deep.yaml"]);
}

#[test]
fn value_of_the_wrong_type_is_reported_with_object_and_field() {
    let file = scratch("typed.json", shape("gang", 2).replace("\"minMember\":2", "\"minMember\":\"two\""));
    assert_rejected(&["plan", &file], &["typed.json", "podGroups[0]", "bench/gang", "spec.minMember"]);
}

#[test]
fn yaml_syntax_error_is_reported_with_its_line() {
    let file = scratch("typo.yaml", "config:\n  actions: \"allocate\n");
    assert_rejected(&["plan", &file], &["typo.yaml", "line "]);
    let good = scratch("good.json", shape("gang", 1));
    assert_rejected(&["plan", &good, "--config", &file], &["typo.yaml", "line "]);
}

#[test]
fn unknown_action_is_rejected_with_the_known_ones() {
    let good = scratch("action.json", shape("gang", 1));
    let config = scratch("action.yaml", "actions: allocate, repaint\n");
    assert_rejected(&["plan", &good, "--config", &config], &["`repaint`", "allocate"]);
}

#[test]
fn invalid_time_is_rejected_with_a_hint() {
    let good = scratch("time.json", shape("gang", 1));
    assert_rejected(&["plan", &good, "--now", "tomorrow"], &["--now", "`tomorrow`", "hint: "]);
}

#[test]
fn decisions_of_several_files_are_rejected() {
    assert_rejected(&["plan", "a.zip", "b.zip", "--decisions", "c.txt"], &["--decisions"]);
}

#[test]
fn excessive_quantity_is_a_finding() {
    let file = scratch("quantity.json", shape("gang", 2).replace("\"cpu\":\"1\"", "\"cpu\":\"1e400\""));
    assert_findings(&file, &["bench/gang-0", "requests", "1e400"]);
}

#[test]
fn cycle_of_queues_is_a_finding() {
    let queue = |index: usize| {
        let parent = (index + 1) % 10;
        format!(r#"{{"metadata":{{"name":"q{index}"}},"spec":{{"parentQueue":"q{parent}"}}}}"#)
    };
    let queues: Vec<String> = (0..10).map(queue).collect();
    let text = shape("gang", 1).replace("\"queues\":[", &format!("\"queues\":[{},", queues.join(",")));
    assert_findings(&scratch("cycle.json", text), &["q0", "parentQueue", "\"bind_requests\":1"]);
}

#[test]
fn group_with_missing_pods_is_not_ready() {
    let file = scratch("huge.json", shape("gang", 2).replace("\"minMember\":2", "\"minMember\":100000"));
    assert_findings(&file, &["\"bind_requests\":0", "\"not_ready\":1"]);
}

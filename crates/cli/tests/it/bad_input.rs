//! Bad input: a clear error that names what is wrong, exit code 2, never a panic.

use crate::{NOW, kai, scratch, shape, stderr, stdout};
use kai_testkit::shapes;
use std::path::Path;

/// Refused with exit code 2 and an error that contains all the words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = kai(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("error: "), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

/// Planned all the same, with findings that contain all the words.
#[track_caller]
fn found(file: &str, words: &[&str]) {
    let output = kai(&["plan", file, "--now", NOW, "--json", "--findings", "--audit"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

#[test]
fn a_missing_file_is_named() {
    refused(&["plan", "/nowhere/to/be.found"], &["`/nowhere/to/be.found`"]);
}

#[test]
fn a_truncated_archive_is_refused_at_every_length() {
    let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("whole.zip");
    shapes::write_zip(shapes::find("gang").expect("the shape exists"), 2, &whole)
        .expect("the folder is there");
    let bytes = std::fs::read(&whole).expect("the archive is there");
    for length in [0, 1, 4, 30, bytes.len() / 2, bytes.len() - 1] {
        let file = scratch("truncated.zip", &bytes[..length]);
        refused(&["plan", &file], &["truncated.zip"]);
    }
}

#[test]
fn truncated_json_is_refused_with_the_place() {
    let text = shape("gang", 2);
    for length in [1, 100, text.len() / 2, text.len() - 1] {
        let file = scratch("truncated.json", &text[..length]);
        refused(&["plan", &file], &["truncated.json"]);
    }
}

#[test]
fn deep_nesting_does_not_end_the_process() {
    let file = scratch("deep.json", format!("{{\"rawObjects\":{}", "[".repeat(200_000)));
    refused(&["plan", &file], &["deep.json"]);
    let file = scratch("deep.yaml", format!("config: {}", "[".repeat(200_000)));
    refused(&["plan", &file], &["deep.yaml"]);
}

#[test]
fn a_value_of_the_wrong_type_names_object_and_field() {
    let file = scratch("typed.json", shape("gang", 2).replace("\"minMember\":2", "\"minMember\":\"two\""));
    refused(&["plan", &file], &["typed.json", "podGroups[0]", "bench/gang", "spec.minMember"]);
}

#[test]
fn a_yaml_typo_names_the_line() {
    let file = scratch("typo.yaml", "config:\n  actions: \"allocate\n");
    refused(&["plan", &file], &["typo.yaml", "line "]);
    let good = scratch("good.json", shape("gang", 1));
    refused(&["plan", &good, "--config", &file], &["typo.yaml", "line "]);
}

#[test]
fn an_unknown_action_lists_the_known_ones() {
    let good = scratch("action.json", shape("gang", 1));
    let config = scratch("action.yaml", "actions: allocate, repaint\n");
    refused(&["plan", &good, "--config", &config], &["`repaint`", "allocate"]);
}

#[test]
fn an_unreadable_time_shows_how_to_write_one() {
    let good = scratch("time.json", shape("gang", 1));
    refused(&["plan", &good, "--now", "tomorrow"], &["--now", "`tomorrow`", "hint: "]);
}

#[test]
fn decisions_of_several_files_have_no_place() {
    refused(&["plan", "a.zip", "b.zip", "--decisions", "c.txt"], &["--decisions"]);
}

#[test]
fn a_quantity_beyond_all_bounds_is_a_finding() {
    let file = scratch("quantity.json", shape("gang", 2).replace("\"cpu\":\"1\"", "\"cpu\":\"1e400\""));
    found(&file, &["bench/gang-0", "requests", "1e400"]);
}

#[test]
fn a_cycle_of_ten_queues_is_a_finding() {
    let queue = |index: usize| {
        let parent = (index + 1) % 10;
        format!(r#"{{"metadata":{{"name":"q{index}"}},"spec":{{"parentQueue":"q{parent}"}}}}"#)
    };
    let queues: Vec<String> = (0..10).map(queue).collect();
    let text = shape("gang", 1).replace("\"queues\":[", &format!("\"queues\":[{},", queues.join(",")));
    found(&scratch("cycle.json", text), &["q0", "parentQueue", "\"bind_requests\":1"]);
}

#[test]
fn a_group_that_wants_100_000_pods_waits_for_them() {
    let file = scratch("huge.json", shape("gang", 2).replace("\"minMember\":2", "\"minMember\":100000"));
    found(&file, &["\"bind_requests\":0", "\"not_ready\":1"]);
}

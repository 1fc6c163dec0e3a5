//! Runs the binary as a process: output, files, exit codes and error messages.

mod command_line;
mod component_metrics;
mod docs_examples;
mod docs_references;
mod generated_pages;
mod group;
mod immutable_fields;
mod invalid_files;
mod invalid_objects;
mod lint;
mod many_groups;
mod migrate;
mod plan;
mod prometheus_tests;
mod real_control_plane;
mod screen;
mod simulate;
mod snapshot;
mod time_based;
mod up_process;
mod up_with_kubectl;
mod view_commands;
mod view_options;
mod what_if;
mod why_leads;

use kai_testkit::shapes;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A time after everything in the shapes.
const NOW: &str = "2026-07-01T00:00:00Z";

/// Runs a command with the width of a terminal.
fn kai(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(args)
        .env("COLUMNS", "100")
        .output()
        .expect("the binary runs")
}

/// A file in cargo's directory for test files.
fn scratch(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the directory exists");
    path.to_str().expect("the path is plain").to_owned()
}

/// A snapshot of a shape as JSON.
fn shape(name: &str, nodes: usize) -> String {
    let mut bytes = Vec::new();
    shapes::write(shapes::find(name).expect("the shape exists"), nodes, &mut bytes)
        .expect("writing to memory");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Asserts exit code 2 and an error that contains all the words.
#[track_caller]
fn assert_rejected(output: &Output, words: &[&str]) {
    let text = stderr(output);
    // Progress may be reported on a busy machine.
    let is_progress = |line: &str| {
        line.strip_suffix(" s")
            .and_then(|line| line.rsplit_once(": "))
            .is_some_and(|(_, seconds)| seconds.parse::<u32>().is_ok())
    };
    let text: String = text.split_inclusive('\n').filter(|line| !is_progress(line.trim_end())).collect();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: ") && !text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

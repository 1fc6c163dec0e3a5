//! Runs every console example of the documentation and compares its output.

use kai_testkit::console;

#[test]
fn planning_examples_are_current() {
    console::assert_examples_are_current("docs/planning.md", "$ kai ", env!("CARGO_BIN_EXE_kai"), 9);
}

#[test]
fn what_if_examples_are_current() {
    console::assert_examples_are_current("docs/what-if.md", "$ kai ", env!("CARGO_BIN_EXE_kai"), 3);
}

#[test]
fn simulating_examples_are_current() {
    console::assert_examples_are_current("docs/simulating.md", "$ kai ", env!("CARGO_BIN_EXE_kai"), 5);
}

#[test]
fn workload_examples_are_current() {
    console::assert_examples_are_current("docs/workloads.md", "$ kai ", env!("CARGO_BIN_EXE_kai"), 1);
}

#[test]
fn migrating_examples_are_current() {
    console::assert_examples_are_current("docs/migrating.md", "$ kai ", env!("CARGO_BIN_EXE_kai"), 1);
}

//! The examples of `docs/plugins.md` that run this binary.

#[test]
fn examples_of_the_page_are_current() {
    let command = "$ cargo run -p operations-plugin -- ";
    kai_testkit::console::assert_examples_are_current(
        "docs/plugins.md",
        command,
        env!("CARGO_BIN_EXE_operations-plugin"),
        1,
    );
}

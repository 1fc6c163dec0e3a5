//! Checks source files: size, module docs, names, reachability, leftovers, machine-specific paths.

use crate::repository::SourceFile;

/// Maximum number of lines outside tests.
const LINES_MAX: usize = 800;

/// A first line shorter than this is a name, not a sentence.
const DOC_CHARS_MIN: usize = 20;

/// Module names without meaning.
const VAGUE: [&str; 5] = ["utils", "common", "helpers", "manager", "types"];

/// Markers of unfinished code, in halves so that this file does not contain them.
const LEFTOVERS: [(&str, &str); 5] =
    [("TO", "DO"), ("FIX", "ME"), ("dbg", "!("), ("todo", "!("), ("unimplemented", "!(")];

/// Prefixes of machine-specific paths, in halves as above.
const MACHINE_PATHS: [(&str, &str); 4] = [("/ro", "ot/"), ("/ho", "me/"), ("/wo", "rk/"), ("/Us", "ers/")];

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let Some(text) = &file.text else { continue };
        let path = file.path.as_str();
        if file.has_extension("rs") {
            complaints.extend(size(path, text));
            complaints.extend(module_doc(path, text));
            complaints.extend(name(path));
            complaints.extend(reachable(path, files));
            complaints.extend(leftovers(path, text, &LEFTOVERS, "is left behind"));
        }
        if path != "Cargo.lock" && path != "fuzz/Cargo.lock" {
            complaints.extend(leftovers(path, text, &MACHINE_PATHS, "is a path of one machine"));
        }
    }
    complaints
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Lines before the unit tests, which are the last thing in a file.
fn size(path: &str, text: &str) -> Option<String> {
    if is_test_file(path) {
        return None;
    }
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
    (lines > LINES_MAX)
        .then(|| format!("{path}: {lines} lines without tests, at most {LINES_MAX} are allowed"))
}

fn module_doc(path: &str, text: &str) -> Option<String> {
    let opens_with_doc =
        text.lines().next().is_some_and(|line| line.starts_with("//! ") && line.len() > DOC_CHARS_MIN);
    (!opens_with_doc)
        .then(|| format!("{path}:1: the file does not open with a sentence of module doc (`//! …`)"))
}

fn name(path: &str) -> Option<String> {
    let stem = path.rsplit('/').next()?.strip_suffix(".rs")?;
    if stem == "mod" {
        return Some(format!("{path}: modules are `foo.rs` beside `foo/`, never `mod.rs`"));
    }
    VAGUE.contains(&stem).then(|| format!("{path}: the module name `{stem}` says nothing"))
}

/// A source that no parent declares is not compiled, so it is dead.
fn reachable(path: &str, files: &[SourceFile]) -> Option<String> {
    let (folder, file) = path.rsplit_once('/')?;
    let stem = file.strip_suffix(".rs")?;
    if is_root(folder, stem) {
        return None;
    }
    let parents = [format!("{folder}.rs"), format!("{folder}/lib.rs"), format!("{folder}/main.rs")];
    let declaration = format!("mod {stem};");
    let declares = |line: &str| {
        let line = line.trim();
        line == declaration || line.ends_with(&format!(" {declaration}"))
    };
    let declared = files.iter().any(|other| {
        parents.contains(&other.path) && other.text.as_ref().is_some_and(|text| text.lines().any(declares))
    });
    (!declared).then(|| format!("{path}: no parent module declares it, so it is never compiled"))
}

/// Whether cargo itself finds the file: crate roots, and files right under `tests`, `benches`, `examples`, `bin` or
/// `fuzz_targets`.
fn is_root(folder: &str, stem: &str) -> bool {
    let last = folder.rsplit('/').next().unwrap_or(folder);
    ["lib", "main", "build"].contains(&stem)
        || ["tests", "benches", "examples", "bin", "fuzz_targets"].contains(&last)
}

fn leftovers(path: &str, text: &str, halves: &[(&str, &str)], complaint: &str) -> Vec<String> {
    let words: Vec<String> = halves.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(word.as_str())) {
            found.push(format!("{path}:{}: `{word}` {complaint}", number + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    #[test]
    fn a_good_tree_has_no_complaints() {
        let files = [
            file("crates/a/src/lib.rs", "//! Something a newcomer can use.\npub mod shares;\n"),
            file("crates/a/src/shares.rs", "//! Splits what there is.\nmod tree;\n"),
            file("crates/a/src/shares/tree.rs", "//! The tree of shares.\n"),
            file("crates/a/tests/it/main.rs", "//! Black-box tests of the crate.\n"),
        ];
        assert_eq!(check(&files), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_is_named() {
        let long = "//! Something a newcomer can use.\n".to_owned() + &"// line\n".repeat(LINES_MAX);
        let files = [
            file("crates/a/src/lib.rs", &format!("{long}mod utils;\n")),
            file("crates/a/src/utils.rs", "fn f() {}\n"),
            file("crates/a/src/orphan.rs", "//! A module without a declaration.\n"),
        ];
        let found = check(&files).join("\n");
        for expected in ["802 lines", "says nothing", "does not open with", "never compiled"] {
            assert!(found.contains(expected), "`{expected}` is missing in:\n{found}");
        }
    }

    #[test]
    fn leftovers_and_machine_paths_are_found_with_their_line() {
        let (leftover, machine) = (["TO", "DO"].concat(), ["/ro", "ot/x"].concat());
        let files =
            [file("a/src/lib.rs", &format!("//! A crate with leftovers.\n// {leftover}: {machine}\n"))];
        let found = check(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|complaint| complaint.starts_with("a/src/lib.rs:2: ")), "{found:?}");
    }
}

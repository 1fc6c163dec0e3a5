//! Commands, flags and files that pages and help texts name must exist.

use crate::{kai, stdout};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders of the repository: a path that begins with one of them has to exist.
const FOLDERS: [&str; 7] = ["charts/", "crates/", "deploy/", "docs/", "examples/", "fuzz/", "tests/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages for users, with their text.
fn pages() -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> = vec![root().join("README.md")];
    let entries = std::fs::read_dir(root().join("docs")).expect("the folder exists");
    paths.extend(entries.map(|entry| entry.expect("it can be read").path()));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("the name is plain");
        (name.to_owned(), std::fs::read_to_string(path).expect("the page can be read"))
    };
    paths.iter().map(read).collect()
}

/// The help of every command, read once each.
struct Help {
    texts: BTreeMap<String, String>,
}

impl Help {
    fn read() -> Self {
        let mut help = Self { texts: BTreeMap::from([(String::new(), stdout(&kai(&["--help"])))]) };
        for command in help.commands("") {
            help.texts.insert(command.clone(), stdout(&kai(&[&command, "--help"])));
            for below in help.commands(&command) {
                help.texts.insert(format!("{command} {below}"), stdout(&kai(&[&command, &below, "--help"])));
            }
        }
        help
    }

    /// The commands that a help lists.
    fn commands(&self, of: &str) -> Vec<String> {
        let rest = self.texts[of].split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let lines = rest.lines().take_while(|line| !line.is_empty());
        let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    }

    /// What is wrong with a command line after `kai`.
    fn problem(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, second) = (*words.first()?, words.get(1).copied().unwrap_or_default());
        if first.starts_with('-') {
            return None;
        }
        let Some(own) = self.texts.get(first) else {
            // Commands for other programs are not listed.
            let exists = kai(&[first, "--help"]).status.success();
            return (!exists).then(|| format!("`kai {first}` is no command"));
        };
        let text = self.texts.get(&format!("{first} {second}")).unwrap_or(own);
        let flags = words.iter().filter_map(|word| word.strip_prefix("--"));
        let flags = flags.map(|flag| flag.split(|c: char| !(c.is_alphanumeric() || c == '-')).next());
        let known: BTreeSet<&str> = text
            .split(|c: char| !(c.is_alphanumeric() || c == '-'))
            .filter_map(|word| word.strip_prefix("--"))
            .collect();
        let unknown = flags.flatten().find(|flag| !flag.is_empty() && !known.contains(flag))?;
        Some(format!("`kai {first}` has no flag `--{unknown}`"))
    }
}

/// The command lines of `kai` in a text, without `kai`: in code spans, and at the start of a line of a code block.
fn command_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            lines.push(line.trim().trim_start_matches("$ ").to_owned());
        } else {
            lines.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    lines.iter().filter_map(|line| command(line)).collect()
}

/// The part of a line that belongs to one command of `kai`.
fn command(line: &str) -> Option<String> {
    let rest = line.strip_prefix("kai ").or_else(|| line.strip_prefix("kubectl kai "))?;
    let end = rest.find([';', '|', '&', '#', '>']).unwrap_or(rest.len());
    let command = rest[..end].split("  ").next().unwrap_or_default().trim().to_owned();
    let is_name = command.starts_with(|c: char| c.is_ascii_lowercase() || c == '-');
    is_name.then_some(command)
}

/// The paths in a text that begin with a folder of the repository.
fn named_paths(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || "/._-*<>{}…".contains(c);
    let words = text.split(|c: char| !is_part(c));
    let words = words.map(|word| word.trim_end_matches(['.', '/', '…']).trim_start_matches("./"));
    let of_repository = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    of_repository.filter(|word| !word.contains(['*', '<', '{', '…'])).map(str::to_owned).collect()
}

#[test]
fn commands_and_flags_in_pages_and_help_exist() {
    let help = Help::read();
    assert!(help.texts.contains_key("migrate check"), "commands below commands are read");
    assert!(help.problem("plan x --jsn").is_some() && help.problem("explode").is_some(), "the test can fail");
    let mut problems = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        for line in command_lines(&text) {
            found += 1;
            problems.extend(help.problem(&line).map(|problem| format!("{page}: {problem}: kai {line}")));
        }
    }
    for (name, text) in &help.texts {
        let lines = text.lines().map(str::trim).filter_map(command);
        for line in lines.chain(command_lines(text)) {
            found += 1;
            let problem = help.problem(&line);
            problems.extend(problem.map(|problem| format!("kai {name} --help: {problem}: kai {line}")));
        }
    }
    assert!(found > 100, "only {found} commands were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn files_in_pages_and_help_exist() {
    let help = Help::read();
    let of_help = help.texts.into_iter().map(|(name, text)| (format!("kai {name} --help"), text));
    let mut problems = Vec::new();
    let mut found = 0;
    for (place, text) in pages().into_iter().chain(of_help) {
        for path in named_paths(&text) {
            found += 1;
            // Links of a page are relative to it; `xtask tidy` checks them.
            if !root().join(&path).exists() && !root().join("docs").join(&path).exists() {
                problems.push(format!("{place}: `{path}` does not exist"));
            }
        }
    }
    assert!(found > 50, "only {found} paths were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_page_with_console_blocks_is_run_by_a_test() {
    let folders = [
        "crates/cli/tests/it",
        "examples/license-plugin",
        "examples/operations-plugin",
        "crates/testkit/tests",
    ];
    let sources: String = folders.iter().map(|folder| sources(&root().join(folder))).collect();
    for (page, text) in pages() {
        if text.contains("```console\n") {
            assert!(sources.contains(&format!("docs/{page}")), "no test runs the console blocks of {page}");
        }
    }
}

/// The text of all Rust files below a folder.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths
        .map(|path| {
            if path.is_dir() {
                sources(&path)
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                std::fs::read_to_string(&path).expect("it can be read")
            } else {
                String::new()
            }
        })
        .collect()
}

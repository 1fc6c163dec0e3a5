//! Checks that `docs/scenarios.md` maps every id of `tests/kai-scenarios.txt` once, to tests that exist.

use crate::repository::SourceFile;
use std::collections::BTreeMap;

const PAGE: &str = "docs/scenarios.md";
const IDS: &str = "tests/kai-scenarios.txt";
/// The list of scenarios that run on a real control plane.
const REAL: &str = "crates/cli/tests/system/real_control_plane.rs";
const HEADING: &str = "| id | shown by |";

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref());
    let (Some(page), Some(ids)) = (text(PAGE), text(IDS)) else { return Vec::new() };
    let mut complaints = Vec::new();
    let mut counts: BTreeMap<String, usize> = ids.lines().map(|id| (id.to_owned(), 0)).collect();
    for (line, row) in rows(page) {
        let [first, second] = row;
        for id in expand(first) {
            match counts.get_mut(&id) {
                Some(count) => *count += 1,
                None => complaints.push(format!("{PAGE}:{line}: `{id}` is not in {IDS}")),
            }
        }
        for name in names(second).filter(|name| !exists(name, files, text(REAL).unwrap_or_default())) {
            complaints.push(format!("{PAGE}:{line}: there is no test, scenario or path `{name}`"));
        }
    }
    let wrong = counts.iter().filter(|(_, count)| **count != 1);
    complaints
        .extend(wrong.map(|(id, count)| format!("{PAGE}: `{id}` is mapped {count} times, instead of once")));
    complaints
}

/// The rows of tables of ids, with their line numbers.
fn rows(page: &str) -> impl Iterator<Item = (usize, [&str; 2])> {
    let mut in_table = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        in_table = line.starts_with('|') && (in_table || line == HEADING);
        let (first, second) = line.strip_prefix("| ")?.split_once(" | ")?;
        let is_row = in_table && line != HEADING && !first.starts_with('-');
        is_row.then_some((index + 1, [first, second]))
    })
}

/// The ids in a cell such as `native-02 … 07, jax-01, 02`.
fn expand(cell: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut prefix = "";
    for item in cell.split(", ") {
        let (from, to) = item.split_once(" … ").unwrap_or((item, item));
        let (suite, from) = from.rsplit_once('-').unwrap_or((prefix, from));
        prefix = suite;
        let to = to.rsplit_once('-').map_or(to, |(_, number)| number);
        match (from.parse::<u32>(), to.parse::<u32>()) {
            (Ok(from), Ok(to)) => ids.extend((from..=to).map(|number| format!("{suite}-{number:02}"))),
            _ => ids.push(item.to_owned()),
        }
    }
    ids
}

/// What a cell names in backticks, except commands and patterns.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter(|name| !name.contains([' ', '…', '.', ':', '=']) && !name.chars().any(char::is_uppercase))
}

/// A function, a scenario of the real control plane, a case of the grouper, or a folder.
fn exists(name: &str, files: &[SourceFile], real: &str) -> bool {
    if name.contains('/') {
        let is_below = |folder: &str| files.iter().any(|file| file.path.starts_with(folder));
        return is_below(&format!("{name}/")) || is_below(&format!("tests/grouper/{name}"));
    }
    if name.contains('_') {
        let definition = format!("fn {name}(");
        let generic = format!("fn {name}<");
        let is_in = |text: &String| text.contains(&definition) || text.contains(&generic);
        return files.iter().any(|file| file.has_extension("rs") && file.text.as_ref().is_some_and(is_in));
    }
    real.contains(&format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    #[test]
    fn cells_list_ids_and_ranges() {
        assert_eq!(expand("a-01 … 03, b-07, 09"), ["a-01", "a-02", "a-03", "b-07", "b-09"]);
        assert_eq!(expand("a-09 … 11"), ["a-09", "a-10", "a-11"]);
    }

    #[test]
    fn missing_and_unknown_ids_and_names_are_reported() {
        let page = "| id | shown by |\n| --- | --- |\n| a-01, 02 | `known`, `gone`, `no_such_test`, `job/gang` |\n| a-01, 09 | `it_works` |\n";
        let files = [
            file(PAGE, page),
            file(IDS, "a-01\na-02\na-03\n"),
            file(REAL, "scenario(\"known\", one)"),
            file("crates/a/tests/it.rs", "fn it_works() {}"),
            file("tests/grouper/job/gang/manifest.yaml", ""),
        ];
        assert_eq!(
            check(&files),
            [
                "docs/scenarios.md:3: there is no test, scenario or path `gone`",
                "docs/scenarios.md:3: there is no test, scenario or path `no_such_test`",
                "docs/scenarios.md:4: `a-09` is not in tests/kai-scenarios.txt",
                "docs/scenarios.md: `a-01` is mapped 2 times, instead of once",
                "docs/scenarios.md: `a-03` is mapped 0 times, instead of once",
            ]
        );
    }
}

//! Checks that the tests and scenarios that `docs/differences.md` names exist.

use crate::repository::SourceFile;

const PAGE: &str = "docs/differences.md";

/// Names of tests and scenarios are sentences; shorter names in backticks are flags or fields.
const WORDS_MIN: usize = 3;

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let text = page.text.as_deref().unwrap_or_default();
    let named = text.lines().enumerate().flat_map(|(number, line)| {
        line.split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| is_test_name(name))
            .map(move |name| (number + 1, name))
    });
    named
        .filter(|(_, name)| !exists(name.trim_end_matches('*'), files))
        .map(|(number, name)| format!("{PAGE}:{number}: no test and no scenario is named `{name}`"))
        .collect()
}

fn is_test_name(name: &str) -> bool {
    let characters = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    name.trim_end_matches('*').chars().all(|character| characters(character) || character == '_')
        && name.split('_').filter(|word| !word.is_empty()).count() >= WORDS_MIN
}

fn exists(name: &str, files: &[SourceFile]) -> bool {
    files.iter().any(|file| {
        let is_source =
            file.has_extension("rs") && file.text.as_ref().is_some_and(|text| text.contains(name));
        is_source || file.has_extension("scenario") && file.path.contains(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    #[test]
    fn a_test_that_does_not_exist_is_reported_with_its_line() {
        let files = [
            file(
                PAGE,
                "checked by\n`limit_is_enforced_once`, `gang_waits_*`, `no_such_test` and `minMember`\n",
            ),
            file("crates/a/src/lib.rs", "fn limit_is_enforced_once() {}"),
            file("crates/a/tests/scenarios/gang_waits_for_all.scenario", ""),
        ];
        assert_eq!(check(&files), ["docs/differences.md:2: no test and no scenario is named `no_such_test`"]);
    }
}

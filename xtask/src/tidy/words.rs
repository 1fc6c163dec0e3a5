//! Bans words that stand in for an established term: metaphors and indefinite persons.
//!
//! Identifiers are split into their words at underscores and capital letters. `docs/glossary.md` lists the terms of the
//! project.

use crate::repository::SourceFile;

/// Banned words, each with what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("anybody", "the subject"),
    ("aside", "backoff, or excluded"),
    ("brake", "circuit breaker, or rate limit"),
    ("everybody", "the subjects"),
    ("eyes", "view, or informer"),
    ("flight", "assumed, or in-flight"),
    ("forgive", "forget, or reset the backoff"),
    ("heart", "scheduler loop"),
    ("misfortune", "fault"),
    ("news", "watch event"),
    ("nobody", "the subject, or no"),
    ("odd", "invalid, unsupported or unexpected"),
    ("oddity", "diagnostic"),
    ("rhythm", "cycle trigger, or interval"),
    ("room", "free capacity"),
    ("rooms", "free capacity"),
    ("somebody", "the subject"),
    ("told", "reported, configured or passed"),
    ("whoever", "the subject"),
];

/// Banned sequences of words.
const BANNED_PHRASES: &[(&[&str], &str)] = &[
    (&["give", "way"], "are evicted"),
    (&["gives", "way"], "is evicted"),
    (&["giving", "way"], "eviction"),
    (&["gave", "way"], "was evicted"),
    (&["rules", "of", "the", "house"], "repository rules"),
];

/// Established terms that contain a banned word.
const ALLOWED_PHRASES: &[&[&str]] = &[&["in", "flight"]];

/// This file contains the banned words.
const EXEMPT: [&str; 1] = ["xtask/src/tidy/words.rs"];

/// Extensions of files that people read.
const EXTENSIONS: [&str; 6] = ["rs", "md", "yaml", "toml", "scenario", "snap"];

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_checked(file)) {
        complaints.extend(complaints_of(&file.path, &file.path, 0));
        let Some(text) = &file.text else { continue };
        for (number, line) in text.lines().enumerate() {
            complaints.extend(complaints_of(&file.path, line, number + 1));
        }
    }
    complaints
}

fn is_checked(file: &SourceFile) -> bool {
    EXTENSIONS.iter().any(|extension| file.has_extension(extension)) && !EXEMPT.contains(&file.path.as_str())
}

/// Line 0 is the path itself.
fn complaints_of(path: &str, line: &str, number: usize) -> Vec<String> {
    let words = words(line);
    let place = if number == 0 { path.to_owned() } else { format!("{path}:{number}") };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let single = BANNED.iter().find(|(banned, _)| banned == word).map(|(_, instead)| *instead);
        let phrase = BANNED_PHRASES.iter().find(|(banned, _)| starts_with(&words[at..], banned));
        if let Some(instead) = single.filter(|_| !is_allowed(&words, at)) {
            found.push(format!("{place}: `{word}` is a banned word; write {instead} (docs/glossary.md)"));
        }
        if let Some((banned, instead)) = phrase {
            let banned = banned.join(" ");
            found.push(format!("{place}: `{banned}` is a banned phrase; write {instead} (docs/glossary.md)"));
        }
    }
    found
}

fn starts_with(words: &[String], phrase: &[&str]) -> bool {
    words.len() >= phrase.len() && words.iter().zip(phrase).all(|(word, expected)| word == expected)
}

/// Whether the word at a position is part of an established term.
fn is_allowed(words: &[String], at: usize) -> bool {
    ALLOWED_PHRASES
        .iter()
        .any(|phrase| (0..phrase.len()).any(|back| at >= back && starts_with(&words[at - back..], phrase)))
}

/// The words of a line in lower case; a capital letter after a small one begins a word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut after_small = false;
    for character in line.chars() {
        let begins = character.is_uppercase() && after_small;
        if (begins || !character.is_alphabetic()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphabetic() {
            word.extend(character.to_lowercase());
        }
        after_small = character.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&[SourceFile { path: "docs/page.md".to_owned(), text: Some(text.to_owned()) }])
    }

    #[test]
    fn banned_words_are_found_in_prose_and_identifiers() {
        for text in ["Nobody waits.", "let heart = 1;", "struct OddPods;", "fn told_twice()", "pods give way"]
        {
            assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn words_that_contain_a_banned_word_are_not_banned() {
        for text in ["the heartbeat of a node", "bathroom", "in-flight requests", "InFlight", "a modded file"]
        {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_complaint_names_the_line_and_the_term_to_use() {
        let found = found("fine\nthe brake\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("docs/page.md:2: `brake`"), "{found:?}");
        assert!(found[0].contains("circuit breaker"), "{found:?}");
    }

    #[test]
    fn file_names_are_checked() {
        let file = SourceFile { path: "crates/a/src/rhythm.rs".to_owned(), text: None };
        assert_eq!(check(&[file]).len(), 1);
    }
}

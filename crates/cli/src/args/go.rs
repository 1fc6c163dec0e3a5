//! Flags as Go's programs take them: `-name value`, `-name=value`, `--name value`, `--name=value`, and truth as
//! `-name`, `-name=false` or `-name=0`. Charts and manifests start KAI's programs so.
//!
//! They are rewritten to the one form that clap takes whatever the value looks like, `--name=value`. What is not known
//! is passed on with two dashes, so that clap says what was probably meant.

use clap::{Arg, Command};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};

/// The flags of a command, rewritten.
pub(super) fn rewrite(command: &Command, typed: Vec<OsString>) -> Vec<OsString> {
    let mut rewritten = Vec::with_capacity(typed.len());
    let mut typed = typed.into_iter();
    while let Some(word) = typed.next() {
        if word == "--" {
            rewritten.push(word);
            rewritten.extend(typed.by_ref());
            break;
        }
        let Some(flag) = Flag::read(&word) else {
            rewritten.push(word);
            continue;
        };
        let value = match (find(command, flag.name), flag.value) {
            (Some(arg), Some(value)) => {
                Some(if is_truth(arg) { truth(value) } else { value.to_owned() }.into())
            }
            // The next word is the value, whatever it looks like.
            (Some(arg), None) if takes_a_word(arg) => typed.next(),
            (_, value) => value.map(Into::into),
        };
        let mut whole = OsString::from(format!("--{}", flag.name));
        if let Some(value) = value {
            whole.push("=");
            whole.push::<&OsStr>(&value);
        }
        rewritten.push(whole);
    }
    rewritten
}

/// A flag as it was typed.
struct Flag<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Flag<'a> {
    /// Nothing where the word is no flag, or one of clap's own.
    fn read(word: &'a OsStr) -> Option<Self> {
        let word = word.to_str()?;
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        if word == "-h" || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (name, None),
        };
        Some(Self { name, value })
    }
}

fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

fn takes_a_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_num_args().is_none_or(|count| count.min_values() > 0)
}

fn is_truth(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_value_parser().type_id() == TypeId::of::<bool>()
}

/// Truth in the words of Go's `strconv`; what is none of them stays, and clap says so.
fn truth(text: &str) -> String {
    match text {
        "1" | "t" | "T" | "TRUE" | "True" => "true".to_owned(),
        "0" | "f" | "F" | "FALSE" | "False" => "false".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests;

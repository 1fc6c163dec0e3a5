//! Flags in the forms of Go's flag packages: `-name value`, `-name=value`, `--name value`, `--name=value`, and booleans as
//! `-name`, `-name=false` or `-name=0`. Charts and manifests use them for KAI's programs.
//!
//! They are rewritten to `--name=value`, which clap parses for any value. An unknown flag is passed on with two dashes, so
//! that clap can suggest a similar one.

use clap::{Arg, Command};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};

/// Rewrites the arguments of a command.
pub(crate) fn rewrite(command: &Command, typed: Vec<OsString>) -> Vec<OsString> {
    rewrite_until(command, typed, |_| false).0
}

/// Rewrites the arguments of a command up to a word that is neither a flag nor the value of one and that `ends` them; returns
/// that word and what follows it too.
pub(crate) fn rewrite_until(
    command: &Command,
    typed: Vec<OsString>,
    ends: impl Fn(&OsStr) -> bool,
) -> (Vec<OsString>, Vec<OsString>) {
    let mut rewritten = Vec::with_capacity(typed.len());
    let mut typed = typed.into_iter();
    while let Some(word) = typed.next() {
        if ends(&word) {
            return (rewritten, std::iter::once(word).chain(typed).collect());
        }
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
                Some(if is_bool(arg) { parse_bool(value) } else { value.to_owned() }.into())
            }
            // The next word is the value, even when it starts with a dash.
            (Some(arg), None) if takes_value(arg) => typed.next(),
            (_, value) => value.map(Into::into),
        };
        let mut whole = OsString::from(format!("--{}", flag.name));
        if let Some(value) = value {
            whole.push("=");
            whole.push::<&OsStr>(&value);
        }
        rewritten.push(whole);
    }
    (rewritten, Vec::new())
}

struct Flag<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Flag<'a> {
    /// `None` for a word that is not a flag, or is one of clap's own.
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

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_num_args().is_none_or(|count| count.min_values() > 0)
}

fn is_bool(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_value_parser().type_id() == TypeId::of::<bool>()
}

/// A boolean as Go's `strconv.ParseBool` reads it; anything else is left for clap to reject.
fn parse_bool(text: &str) -> String {
    match text {
        "1" | "t" | "T" | "TRUE" | "True" => "true".to_owned(),
        "0" | "f" | "F" | "FALSE" | "False" => "false".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests;

//! What may enter the dependency tree: licences, one version of each crate, known registries.
//!
//! The policy is `deny.toml`, in the form that cargo-deny reads; only the keys used there are understood here, one
//! entry a line.

use crate::repository::{Metadata, Package};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The policy of `deny.toml`.
pub(super) struct Policy {
    licences: Vec<String>,
    /// `name@version-prefix` of crates that may be there beside another version.
    skips: Vec<String>,
    registries: Vec<String>,
}

impl Policy {
    /// Reads the policy file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the dependency policy `{}`", path.display()))?;
        Ok(Self {
            licences: entries(&text, "allow = ["),
            skips: entries(&text, "skip = ["),
            registries: entries(&text, "allow-registry = ["),
        })
    }
}

/// The first quoted string of each line between an opening line and the closing bracket.
fn entries(text: &str, opening: &str) -> Vec<String> {
    text.lines()
        .skip_while(|line| line.trim() != opening)
        .skip(1)
        .take_while(|line| line.trim() != "]")
        .filter_map(|line| line.split('"').nth(1))
        .map(str::to_owned)
        .collect()
}

/// Complains about packages that the policy does not let in.
pub(super) fn check(metadata: &Metadata, policy: &Policy) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    let used = metadata.used();
    for package in &used {
        versions.entry(&package.name).or_default().push(package);
        let licence = package.license.as_deref().unwrap_or("");
        if !Expression::allows(licence, &policy.licences) {
            complaints
                .push(format!("crate `{}` has the licence `{licence}`, which is not allowed", package.name));
        }
        if let Some(source) = &package.source
            && !policy.registries.iter().any(|registry| source.strip_prefix("registry+") == Some(registry))
        {
            complaints.push(format!("crate `{}` comes from `{source}`, which is not allowed", package.name));
        }
    }
    for (name, packages) in versions {
        let unexplained: Vec<&str> = packages
            .iter()
            .filter(|package| !policy.skips.iter().any(|skip| covers(skip, package)))
            .map(|package| package.version.as_str())
            .collect();
        if unexplained.len() > 1 {
            complaints
                .push(format!("crate `{name}` is there in several versions: {}", unexplained.join(", ")));
        }
    }
    complaints.extend(
        policy
            .skips
            .iter()
            .filter(|skip| !used.iter().any(|package| covers(skip, package)))
            .map(|skip| format!("`deny.toml` skips `{skip}`, which is not in the tree")),
    );
    complaints
}

fn covers(skip: &str, package: &Package) -> bool {
    skip.split_once('@').is_some_and(|(name, version)| {
        name == package.name
            && package
                .version
                .strip_prefix(version)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A reader of SPDX licence expressions: `AND` binds tighter than `OR`, `/` is the old way to write `OR`.
struct Expression<'a> {
    tokens: Vec<&'a str>,
    next: usize,
    allowed: &'a [String],
}

impl<'a> Expression<'a> {
    /// Whether the licence can be satisfied with the allowed ones alone.
    fn allows(licence: &'a str, allowed: &'a [String]) -> bool {
        let mut tokens = Vec::new();
        for word in licence.split_whitespace() {
            split_keeping(word, &mut tokens);
        }
        let mut expression = Self { tokens, next: 0, allowed };
        let answer = expression.either();
        answer && expression.next == expression.tokens.len()
    }

    fn either(&mut self) -> bool {
        let mut answer = self.both();
        while self.take(&["OR", "/"]) {
            answer |= self.both();
        }
        answer
    }

    fn both(&mut self) -> bool {
        let mut answer = self.one();
        while self.take(&["AND"]) {
            answer &= self.one();
        }
        answer
    }

    fn one(&mut self) -> bool {
        if self.take(&["("]) {
            let answer = self.either();
            return self.take(&[")"]) && answer;
        }
        let Some(&name) = self.tokens.get(self.next) else { return false };
        self.next += 1;
        if self.take(&["WITH"]) {
            // An exception only ever permits more than the licence that it modifies.
            self.next += 1;
        }
        self.allowed.iter().any(|allowed| allowed == name)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let found = self.tokens.get(self.next).is_some_and(|token| words.contains(token));
        self.next += usize::from(found);
        found
    }
}

/// Splits at parentheses and slashes and keeps them as tokens.
fn split_keeping<'a>(word: &'a str, tokens: &mut Vec<&'a str>) {
    let mut rest = word;
    while let Some(at) = rest.find(['(', ')', '/']) {
        tokens.extend((at > 0).then(|| &rest[..at]));
        tokens.push(&rest[at..=at]);
        rest = &rest[at + 1..];
    }
    tokens.extend((!rest.is_empty()).then_some(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_follow_spdx_precedence() {
        let allowed = vec!["MIT".to_owned(), "Unicode-3.0".to_owned()];
        for (licence, expected) in [
            ("MIT", true),
            ("Apache-2.0", false),
            ("Apache-2.0 OR MIT", true),
            ("Apache-2.0/MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT OR Apache-2.0 AND GPL-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("MIT WITH LLVM-exception", true),
            ("", false),
            ("MIT MIT", false),
            ("(MIT", false),
        ] {
            assert_eq!(Expression::allows(licence, &allowed), expected, "{licence}");
        }
    }

    #[test]
    fn entries_are_the_first_quoted_string_of_each_line() {
        let text = "[a]\nskip = [\n  { crate = \"syn@2\", reason = \"why\" },\n]\nallow = [\n \"MIT\",\n]\n";
        assert_eq!(entries(text, "skip = ["), ["syn@2"]);
        assert_eq!(entries(text, "allow = ["), ["MIT"]);
    }
}

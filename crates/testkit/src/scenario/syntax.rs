//! Splits a scenario file into sections, entries and words.
//!
//! A line that begins in the first column opens a section with its first word; a line that begins with white space
//! continues it. ` | ` separates entries on one line, ` # ` begins a comment, and braces hold words together.

use anyhow::{Result, bail, ensure};
use kai_units::Span;

/// One section.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
}

/// One entry with its line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Line number, from 1.
    pub(super) line: usize,
    pub(super) words: Vec<String>,
}

/// Splits a file into sections, in the order they come; a name may come more than once.
pub(super) fn sections(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = without_comment(line);
        if line.trim().is_empty() {
            continue;
        }
        let mut rest = line;
        if !line.starts_with(char::is_whitespace) {
            let (name, tail) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            sections.push(Section { name: name.to_owned(), entries: Vec::new() });
            rest = tail;
        }
        let Some(section) = sections.last_mut() else { bail!("line {}: a section is missing", number + 1) };
        let words = words(rest).map_err(|why| anyhow::anyhow!("line {}: {why}", number + 1))?;
        for words in words.split(|word| word == "|").filter(|words| !words.is_empty()) {
            section.entries.push(Entry { line: number + 1, words: words.to_vec() });
        }
    }
    Ok(sections)
}

fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    line.split_once(" #")
        .filter(|(_, tail)| tail.is_empty() || tail.starts_with(' '))
        .map_or(line, |(head, _)| head)
}

fn words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                ensure!(depth > 0, "a `}}` without its `{{`");
                depth -= 1;
            }
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else if !c.is_whitespace() {
            word.push(c);
        }
    }
    ensure!(depth == 0, "a `{{` without its `}}`");
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// `key=value`, or a bare word with an empty value.
pub(super) fn pair(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap_or((word, ""))
}

/// `a,b` inside the braces of `{a,b}`, or the word itself.
pub(super) fn listed(word: &str) -> Vec<&str> {
    match word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
        Some(inner) => inner.split(',').filter(|w| !w.is_empty()).collect(),
        None => vec![word],
    }
}

/// `n1..n4` as the four names, or the name itself.
pub(super) fn range(word: &str) -> Result<Vec<String>> {
    let Some((first, last)) = word.split_once("..") else { return Ok(vec![word.to_owned()]) };
    let digits = first.len() - first.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, from) = first.split_at(first.len() - digits);
    let Some(to) = last.strip_prefix(stem) else { bail!("`{word}`: both ends need the stem `{stem}`") };
    let (from, to): (u32, u32) = (from.parse()?, to.parse()?);
    Ok((from..=to).map(|n| format!("{stem}{n}")).collect())
}

/// A decimal number in base units, such as millicores or micro-GPUs.
pub(super) fn scaled(text: &str, unit: i64) -> Result<i64> {
    let value: f64 = text.parse().map_err(|_| anyhow::anyhow!("`{text}` is not a number"))?;
    Ok((value * unit as f64).round() as i64)
}

/// A duration such as `30s` or `5m`.
pub(super) fn span(text: &str) -> Result<Span> {
    kai_units::duration::parse_extended(text).map_err(|_| anyhow::anyhow!("`{text}` is not a duration"))
}

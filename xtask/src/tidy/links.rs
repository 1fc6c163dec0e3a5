//! Links between the Markdown files of the repository must lead somewhere, anchors included.

use crate::repository::SourceFile;

/// Complains about relative links without a target.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (number, line) in prose(file.text.as_deref().unwrap_or_default()) {
            for target in targets(line) {
                if let Some(problem) = problem(files, &file.path, target) {
                    complaints.push(format!("{}:{number}: {problem}", file.path));
                }
            }
        }
    }
    complaints
}

/// Lines outside code blocks, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// What stands in the round brackets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn problem(files: &[SourceFile], from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.to_owned() } else { resolve(from, path)? };
    let folder = format!("{path}/");
    let Some(file) = files.iter().find(|file| file.path == path) else {
        let is_folder = files.iter().any(|file| file.path.starts_with(&folder));
        return (!is_folder).then(|| format!("the link `{target}` leads nowhere"));
    };
    let headings =
        || prose(file.text.as_deref().unwrap_or_default()).filter(|(_, line)| line.starts_with('#'));
    let found = anchor.is_empty() || headings().any(|(_, heading)| slug(heading) == anchor);
    (!found).then(|| format!("the link `{target}` names a heading that is not there"))
}

/// A link's path from the root; `None` leads out of the repository and is not checked.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchor of a heading, as code hosts derive it.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: Some(text.to_owned()) };
        check(&[file("docs/a.md", text), file("docs/b.md", "# One, two\n"), file("README.md", "# Top\n")])
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text =
            "[b](b.md), [b](b.md#one-two), [top](../README.md), [docs](../docs/), [web](https://example.com)";
        assert_eq!(complaints(text), Vec::<String>::new());
        assert_eq!(complaints("```\n[x](nowhere.md)\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn broken_links_are_named_with_their_line() {
        assert_eq!(complaints("\n[c](c.md)"), ["docs/a.md:2: the link `c.md` leads nowhere"]);
        assert_eq!(
            complaints("[b](b.md#x)"),
            ["docs/a.md:1: the link `b.md#x` names a heading that is not there"]
        );
    }
}

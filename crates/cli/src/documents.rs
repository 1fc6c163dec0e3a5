//! Reads manifests: YAML with several documents, JSON, and lists of objects; from files or from standard input.

use anyhow::{Context, Result, anyhow, bail};
use kai_object as object;
use serde_json::Value;
use std::path::Path;

/// The path that stands for standard input.
const STDIN: &str = "-";

/// One object of a file, or a document without a kind.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) file: String,
    /// Where it begins, from 1.
    pub(crate) line: usize,
    pub(crate) object: Value,
    pub(crate) text: String,
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        object::kind(&self.object)
    }

    pub(crate) fn name(&self) -> &str {
        object::name(&self.object)
    }

    pub(crate) fn namespace(&self) -> &str {
        match object::namespace(&self.object) {
            "" => "default",
            namespace => namespace,
        }
    }

    /// Such as `Queue team-a`.
    pub(crate) fn subject(&self) -> String {
        match (self.kind(), self.name()) {
            ("", _) => "configuration".to_owned(),
            (kind, name) => format!("{kind} {name}"),
        }
    }
}

/// The documents of a file; empty ones are left out.
pub(crate) fn read(path: &Path) -> Result<Vec<Document>> {
    let file = path.display().to_string();
    let text = if path == Path::new(STDIN) {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read `{file}`"))?;
        manifest_text(&file, bytes)?
    };
    parse(&file, &text)
}

fn manifest_text(file: &str, bytes: Vec<u8>) -> Result<String> {
    /// The first bytes of a zip archive.
    const ZIP: &[u8] = b"PK";
    if bytes.starts_with(ZIP) {
        bail!(
            "`{file}` is a zip archive, such as a snapshot, not a manifest; hint: `kai plan {file}` plans a cycle on a snapshot"
        );
    }
    String::from_utf8(bytes)
        .map_err(|_| anyhow!("`{file}` is neither YAML nor JSON: it is not text in UTF-8"))
}

pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (line, part) in split(text) {
        let value: Value = serde_saphyr::from_str(&part).with_context(|| {
            format!("the document at line {line} of `{file}` is neither YAML nor JSON; hint: `kubectl apply --dry-run=client -f {file}`")
        })?;
        let items = if value.is_null() {
            Vec::new()
        } else if let Value::Array(items) = value {
            items
        } else if object::kind(&value).ends_with("List") {
            value.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
        } else {
            vec![value]
        };
        let document = |object| Document { file: file.to_owned(), line, object, text: part.clone() };
        documents.extend(items.into_iter().map(document));
    }
    Ok(documents)
}

/// The documents of a YAML stream with the lines where they begin.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            parts.push((index + 2, String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let is_text = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    parts.retain(|(_, part)| part.lines().any(is_text));
    parts
}

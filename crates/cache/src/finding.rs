//! Diagnostics of invalid or unsupported input: reported on the object, while everything else is scheduled.

use crate::object::Kind;
use kai_engine::input::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A part of the object has no effect, or another one than it states.
    Warning,
    /// The object's request cannot be determined.
    Error,
}

/// A problem of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub kind: Kind,
    pub key: Key,
    /// The path of the field, such as `spec.queue`.
    pub field: String,
    /// What is invalid, and the consequence.
    pub problem: String,
    pub hint: String,
    pub severity: Severity,
}

/// Quotes text of an object; long text is cut.
pub fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let cut = text.char_indices().nth(CHARS_MAX).and_then(|(end, _)| text.get(..end));
    cut.map_or_else(|| format!("`{text}`"), |start| format!("`{start}…`"))
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.key.namespace.is_empty() { self.key.name.clone() } else { self.key.to_string() };
        write!(f, "{} `{name}`, `{}`: {}; hint: {}", self.kind, self.field, self.problem, self.hint)
    }
}

/// Collects the findings on one object.
#[derive(Debug)]
pub struct Report<'a> {
    kind: Kind,
    key: &'a Key,
    findings: Vec<Finding>,
    has_errors: bool,
}

impl<'a> Report<'a> {
    pub fn on(kind: Kind, key: &'a Key) -> Self {
        Self { kind, key, findings: Vec::new(), has_errors: false }
    }
    pub fn kind(&self) -> Kind {
        self.kind
    }
    pub fn warn(&mut self, field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.push(field.into(), problem.into(), hint.into(), Severity::Warning);
    }
    pub fn error(&mut self, field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.has_errors = true;
        self.push(field.into(), problem.into(), hint.into(), Severity::Error);
    }
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }
    pub fn len(&self) -> usize {
        self.findings.len()
    }
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }
    fn push(&mut self, field: String, problem: String, hint: String, severity: Severity) {
        let (kind, key) = (self.kind, self.key.clone());
        self.findings.push(Finding { kind, key, field, problem, hint, severity });
    }
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

//! What is odd about an object: reported on it, while everything else goes on.

use crate::object::Kind;
use kai_engine::input::Key;

/// What follows from something odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gravity {
    /// Part of the object counts for nothing, or for something else than it says.
    Remark,
    /// Nobody knows what the object asks for.
    Refusal,
}

/// Something odd about one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace and name of the object.
    pub key: Key,
    /// Where in the object, as a path such as `spec.queue`.
    pub field: String,
    /// What is odd, and what follows from it.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
    /// What follows from it.
    pub gravity: Gravity,
}

/// Text of an object as it is quoted: long text is cut.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.key.namespace.is_empty() { self.key.name.clone() } else { self.key.to_string() };
        write!(f, "{} `{name}`, `{}`: {}; hint: {}", self.kind, self.field, self.problem, self.hint)
    }
}

/// Collects findings on one object.
#[derive(Debug)]
pub struct Report<'a> {
    kind: Kind,
    key: &'a Key,
    findings: Vec<Finding>,
    is_unreadable: bool,
}

impl<'a> Report<'a> {
    /// An empty report on an object.
    pub fn on(kind: Kind, key: &'a Key) -> Self {
        Self { kind, key, findings: Vec::new(), is_unreadable: false }
    }
    /// The kind of the object.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// Adds a finding.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.push(field.into(), problem.into(), hint.into(), Gravity::Remark);
    }
    /// Adds a finding on something without which nobody knows what the object asks for.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.is_unreadable = true;
        self.push(field.into(), problem.into(), hint.into(), Gravity::Refusal);
    }
    /// Whether something was refused.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }
    /// How many findings there are.
    pub fn len(&self) -> usize {
        self.findings.len()
    }
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }
    fn push(&mut self, field: String, problem: String, hint: String, gravity: Gravity) {
        let (kind, key) = (self.kind, self.key.clone());
        self.findings.push(Finding { kind, key, field, problem, hint, gravity });
    }
    /// All findings.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

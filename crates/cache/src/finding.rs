//! What is odd about an object: reported on it, while everything else goes on.

use crate::object::Kind;
use kai_engine::input::Key;

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
}

impl<'a> Report<'a> {
    /// An empty report on an object.
    pub fn on(kind: Kind, key: &'a Key) -> Self {
        Self { kind, key, findings: Vec::new() }
    }
    /// Adds a finding.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.findings.push(Finding {
            kind: self.kind,
            key: self.key.clone(),
            field: field.into(),
            problem: problem.into(),
            hint: hint.into(),
        });
    }
    /// All findings.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

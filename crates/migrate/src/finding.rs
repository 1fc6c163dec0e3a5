//! What the check reports.

use crate::rules::page;
use schemars::JsonSchema;
use serde::Serialize;

/// How much a finding matters, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is refused, or does not work: change it before moving.
    Unsupported,
    /// It works, and behaves differently from KAI.
    Differs,
    /// Nothing to do before moving.
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
pub struct Finding {
    pub level: Level,
    /// A rule of `docs/differences.md`, or the name of a further check.
    pub rule: String,
    /// Keys of values, or objects and fields.
    pub subject: String,
    /// What is the case, or what changes.
    pub message: String,
    /// What to do.
    pub action: String,
}

/// How many subjects of one finding are named.
const NAMED_MAX: usize = 5;

impl Finding {
    pub(crate) fn new(level: Level, rule: &str, subject: impl Into<String>) -> Self {
        let (rule, subject) = (rule.to_owned(), subject.into());
        Self { level, rule, subject, message: String::new(), action: String::new() }
    }

    pub(crate) fn message(mut self, text: impl Into<String>) -> Self {
        self.message = text.into();
        self
    }

    pub(crate) fn action(mut self, text: impl Into<String>) -> Self {
        self.action = text.into();
        self
    }

    /// A difference with the text of the page; `None` where nothing shows it.
    pub(crate) fn of_rule(id: &str, subjects: &[String]) -> Option<Self> {
        let row = page::get(id)?;
        let finding = Self::new(Level::Differs, id, named(subjects)?);
        let message = format!("KAI: {}. Here: {}", row.kai.trim_end_matches('.'), row.here);
        Some(finding.message(message).action("nothing, if this is what you want"))
    }
}

/// The first of several subjects, and the number of the others; `None` for none.
pub(crate) fn named(subjects: &[String]) -> Option<String> {
    let more = subjects.len().saturating_sub(NAMED_MAX);
    let first: Vec<&str> = subjects.iter().take(NAMED_MAX).map(String::as_str).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!first.is_empty()).then(|| first.join(", ") + &rest)
}

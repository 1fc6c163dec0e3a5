//! Findings, and their form for code scanning.

use crate::documents::Document;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Error,
    Warning,
}

/// A problem of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
pub(crate) struct Finding {
    pub(super) file: String,
    /// Where the document of the object begins, from 1.
    pub(super) line: usize,
    pub(super) level: Level,
    /// Stable id of the rule.
    pub(super) rule: &'static str,
    /// Such as `Queue team-a`.
    pub(super) object: String,
    /// What is wrong, and how to fix it.
    pub(super) message: String,
}

impl Document {
    pub(super) fn finding(&self, level: Level, rule: &'static str, message: String) -> Finding {
        Finding { file: self.file.clone(), line: self.line, level, rule, object: self.subject(), message }
    }
}

/// SARIF 2.1.0.
pub(super) fn sarif(findings: &[Finding]) -> Value {
    let rules: BTreeSet<&str> = findings.iter().map(|finding| finding.rule).collect();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({"id": id})).collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "ruleId": finding.rule, "level": finding.level,
                "message": {"text": format!("{}: {}", finding.object, finding.message)},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": finding.file}, "region": {"startLine": finding.line},
                }}],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kai lint", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}

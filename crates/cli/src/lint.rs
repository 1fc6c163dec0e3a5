//! `kai lint`: checks manifests and scheduler configurations offline.
//!
//! Errors are what the admission webhooks, the pod grouper or the scheduler would refuse. Warnings are legal, but surely not intended.
//! Exit codes: 0 no errors, 1 errors (with `--strict` warnings, too), 2 a file cannot be read.

pub(crate) mod finding;
mod gangs;
mod queues;
mod time_limits;
mod workloads;

use crate::documents::{self, Document};
use crate::{args, render};
use anyhow::Result;
use finding::{Finding, Level};
use kai_admission::{podgroup, topology};
use kai_cache::config_file;
use kai_engine::plugin::PluginSet;
use serde_json::Value;
use std::process::ExitCode;

pub(crate) fn run(args: &args::Lint, plugins: &PluginSet) -> Result<ExitCode> {
    let mut documents = Vec::new();
    for file in &args.files {
        documents.extend(documents::read(file)?);
    }
    let findings = check(&documents, plugins);
    let text = if args.sarif {
        serde_json::to_string_pretty(&finding::sarif(&findings))? + "\n"
    } else if args.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else {
        table(&findings, documents.len())
    };
    crate::print(&text)?;
    let fails = |finding: &Finding| args.strict || finding.level == Level::Error;
    Ok(if findings.iter().any(fails) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All findings, ordered by file, line and rule.
fn check(documents: &[Document], plugins: &PluginSet) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents {
        match document.kind() {
            "PodGroup" => {
                verdict(document, "pod-group-invalid", podgroup::review_new(&document.object), &mut findings);
            }
            "Topology" => {
                verdict(document, "topology-invalid", topology::review_new(&document.object), &mut findings);
            }
            "ConfigMap" => {
                let data = document.object.get("data").and_then(Value::as_object).into_iter().flatten();
                for (_, text) in data.filter(|(name, _)| *name == "config.yaml") {
                    configuration(document, text.as_str().unwrap_or_default(), plugins, &mut findings);
                }
            }
            "" => configuration(document, &document.text, plugins, &mut findings),
            _ => {}
        }
    }
    queues::check(documents, &mut findings);
    workloads::check(documents, &mut findings);
    time_limits::check(documents, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

fn verdict(
    document: &Document,
    rule: &'static str,
    verdict: kai_admission::review::Verdict,
    findings: &mut Vec<Finding>,
) {
    let errors = verdict.errors.into_iter().map(|message| document.finding(Level::Error, rule, message));
    let warnings =
        verdict.warnings.into_iter().map(|message| document.finding(Level::Warning, rule, message));
    findings.extend(errors.chain(warnings));
}

/// A document without a kind is a scheduler configuration if it has one of its keys.
fn configuration(document: &Document, text: &str, plugins: &PluginSet, findings: &mut Vec<Finding>) {
    const RULE: &str = "scheduler-configuration";
    match config_file::read(text, plugins) {
        Ok(config) => {
            let warnings = config.warnings.into_iter();
            findings.extend(warnings.map(|message| document.finding(Level::Warning, RULE, message)));
        }
        Err(error) => findings.push(document.finding(Level::Error, RULE, error.to_string())),
    }
    let known =
        ["actions", "tiers", "queueDepthPerAction", "usageDBConfig", "search", "scenarioSearchBudgets"];
    let keys = document.object.as_object().into_iter().flatten().map(|(key, _)| key.to_lowercase());
    if document.kind().is_empty()
        && !keys.into_iter().any(|key| known.iter().any(|one| one.to_lowercase() == key))
    {
        let message = "this is neither an object with a `kind` nor a scheduler configuration; hint: a configuration has \
                       `actions` or `tiers`";
        findings.push(document.finding(Level::Warning, "document-unknown", message.to_owned()));
    }
}

/// A table per file, and the numbers of findings.
fn table(findings: &[Finding], documents: usize) -> String {
    let mut text = String::new();
    for of_file in findings.chunk_by(|one, other| one.file == other.file) {
        let row = |finding: &Finding| {
            let level = if finding.level == Level::Error { "error" } else { "warning" };
            let rule = format!("{level}\n{}", finding.rule);
            [finding.line.to_string(), rule, finding.object.clone(), finding.message.clone()]
        };
        let rows = of_file.iter().map(row).collect();
        let body = render::table_of(["LINE", "RULE", "OBJECT", "FINDING"], rows, usize::MAX);
        let file = of_file.first().map_or("", |finding| &finding.file);
        render::section(&mut text, file, &body.unwrap_or_default());
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    let gap = if text.is_empty() { "" } else { "\n" };
    format!("{text}{gap}{documents} documents: {errors} errors, {} warnings\n", findings.len() - errors)
}

#[cfg(test)]
mod tests;

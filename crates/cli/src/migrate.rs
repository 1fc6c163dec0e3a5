//! `kai migrate check`: what will differ when a cluster moves over from KAI.
//!
//! Reads values files, manifests and a live cluster; `kai_migrate` judges them.
//! Exit codes: 0 nothing unsupported, 1 something is not supported, 2 a file or the cluster cannot be read.

mod cluster;

use crate::args::{Kubeconfig, Migrate, MigrateCheck, MigrateCommand};
use crate::{documents, render};
use anyhow::{Context as _, Result, bail};
use kai_engine::plugin::PluginSet;
use kai_migrate::{Finding, Input, Level};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Write as _;
use std::process::ExitCode;

pub(crate) fn run(args: &Migrate, plugins: &PluginSet) -> Result<ExitCode> {
    let MigrateCommand::Check(args) = &args.command;
    let mut input = Input::default();
    read_files(args, &mut input)?;
    let Kubeconfig { kubeconfig, context } = &args.kubeconfig;
    if args.files.is_empty() || kubeconfig.is_some() || context.is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the async runtime")?;
        let warnings = runtime.block_on(cluster::read(args, &mut input))?;
        for warning in warnings {
            writeln!(anstream::stderr(), "warning: {warning}")?;
        }
    }
    let findings = kai_migrate::check(&input, plugins);
    let text = if args.json {
        let read = ReadView { values: input.values.len(), objects: input.objects.len() };
        let view = serde_json::to_value(MigrateView { read, findings: &findings })?;
        serde_json::to_string_pretty(&view)? + "\n"
    } else {
        table(&findings, &input)
    };
    crate::print(&text)?;
    let unsupported = findings.iter().any(|finding| finding.level == Level::Unsupported);
    Ok(if unsupported { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What changes when a cluster moves over.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MigrateView<'a> {
    read: ReadView,
    #[schemars(with = "Vec<Finding>")]
    findings: &'a [Finding],
}

/// How much was read.
#[derive(JsonSchema, Serialize)]
struct ReadView {
    /// Values files.
    values: usize,
    objects: usize,
}

/// A document without a kind is a values file.
fn read_files(args: &MigrateCheck, input: &mut Input) -> Result<()> {
    for file in &args.files {
        for document in documents::read(file)? {
            if !document.object.is_object() {
                bail!(
                    "the document at line {} of `{}` is neither a values file nor an object; hint: `helm get values \
                     RELEASE` prints the values of an installation",
                    document.line,
                    document.file
                );
            }
            let list = if document.kind().is_empty() { &mut input.values } else { &mut input.objects };
            list.push(document.object);
        }
    }
    Ok(())
}

/// A section for each level, and the numbers of findings.
fn table(findings: &[Finding], input: &Input) -> String {
    let mut text = String::new();
    let sections = [
        (Level::Unsupported, "Not supported: change this before moving"),
        (Level::Differs, "Works, and differs"),
        (Level::Note, "Notes"),
    ];
    let of_level = |level: Level| findings.iter().filter(move |finding| finding.level == level);
    for (level, heading) in sections {
        let row = |finding: &Finding| {
            let what = format!("{}\n→ {}", finding.message, finding.action);
            [finding.rule.clone(), finding.subject.clone(), what]
        };
        let rows = of_level(level).map(row).collect();
        if let Some(body) = render::table_of(["RULE", "WHERE", "WHAT, AND WHAT TO DO"], rows, usize::MAX) {
            render::section(&mut text, heading, &body);
        }
    }
    let gap = if text.is_empty() { "" } else { "\n" };
    let count = |level| of_level(level).count();
    format!(
        "{text}{gap}{} values files and {} objects: {} not supported, {} differences, {} notes\n",
        input.values.len(),
        input.objects.len(),
        count(Level::Unsupported),
        count(Level::Differs),
        count(Level::Note),
    )
}

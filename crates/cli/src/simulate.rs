//! `kai simulate`: cycle after cycle over virtual time on a cluster from a file.
//!
//! Reads the file, runs the simulation, and shows what became of it. Nothing is written anywhere but to the files
//! that `--html` and `--csv` name.

mod cluster;
mod csv;
mod fair_share;
mod fields;
mod html;
mod input;
mod json;
mod progress;
mod queue_tree;
mod request;
mod spans;
mod tables;
mod time_based;

use crate::args;
use anyhow::{Context, Result, bail};
use input::Input;
use kai_engine::plugin::PluginSet;
use kai_engine::{Delta, Policy};
use kai_replay::{Options, Report, Script, Simulation};
use kai_units::{Span, Timestamp};
use progress::ProgressLine;
use request::Request;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Ends a simulation that nobody ends.
const LONGEST: Span = Span::from_secs(24 * 3_600);

/// Everything that a simulation needs.
struct Setup {
    deltas: Vec<Delta>,
    script: Script,
    policy: Policy,
    options: Options,
    /// When it ends, if that is said.
    end: Option<Timestamp>,
    /// Where the time of the beginning comes from, in words.
    source: &'static str,
    /// What is odd about the input, in words.
    warnings: Vec<String>,
}

/// A simulation that has run.
struct Simulated {
    report: Report,
    source: &'static str,
}

/// Simulates every file by itself.
pub(crate) fn run(args: &args::Simulate, plugins: &PluginSet) -> Result<ExitCode> {
    let request = Request::new(args)?;
    for file in &args.files {
        match input::read(file)? {
            Input::FairShare(question) => {
                if args.html.is_some() || args.csv.is_some() {
                    bail!("`{}` asks for shares at one moment, which makes no chart", file.display());
                }
                crate::print(&if args.json { question.json()? } else { question.text() })?;
            }
            Input::TimeBased(world) => {
                show(args, file, &simulate(world.setup(&request, plugins))?)?;
            }
            Input::Snapshot(snapshot) => {
                show(args, file, &simulate(cluster::setup(*snapshot, &request, plugins))?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(setup: Setup) -> Result<Simulated> {
    for warning in &setup.warnings {
        writeln!(anstream::stderr(), "warning: {warning}")?;
    }
    let start = setup.options.start;
    let limit = setup.end.unwrap_or(start + LONGEST);
    // A cycle at the very end would only be seen by the next one.
    let last = limit + Span(-1);
    let mut line = ProgressLine::start(limit - start);
    let mut simulation = Simulation::new(setup.deltas, &setup.script, setup.policy, setup.options);
    while simulation.step(last) {
        line.show(|| (simulation.progress(), start));
    }
    line.clear();
    let end = setup.end.or_else(|| (!simulation.is_settled()).then_some(limit));
    Ok(Simulated { report: simulation.finish(end), source: setup.source })
}

fn show(args: &args::Simulate, file: &Path, simulated: &Simulated) -> Result<()> {
    let report = &simulated.report;
    if let Some(path) = &args.html {
        write(path, &html::page(&file.display().to_string(), report))?;
    }
    if let Some(path) = &args.csv {
        if path.as_os_str() == "-" {
            return crate::print(&csv::rows(report));
        }
        write(path, &csv::rows(report))?;
    }
    crate::print(&if args.json { json::text(report)? } else { tables::text(simulated) })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

//! `kai simulate`: runs scheduling cycles over virtual time on a snapshot.
//!
//! Reads the file, runs the simulation and prints a report. Writes only the files of `--html` and `--csv`.

mod cluster;
mod csv;
mod fair_share;
mod fields;
mod html;
mod input;
pub(crate) mod json;
mod listen;
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

/// Limit of a simulation without `--cycles` and `--for`.
const DURATION_MAX: Span = Span::from_secs(24 * 3_600);

struct Setup {
    deltas: Vec<Delta>,
    script: Script,
    policy: Policy,
    options: Options,
    end: Option<Timestamp>,
    /// Where the start time comes from, as text.
    source: &'static str,
    warnings: Vec<String>,
}

struct Simulated {
    report: Report,
    source: &'static str,
}

pub(crate) fn run(args: &args::Simulate, plugins: &PluginSet) -> Result<ExitCode> {
    if let Some(address) = &args.listen {
        return listen::run(address, args.enable_cors);
    }
    let options = Request::new(args, plugins)?;
    for file in &args.files {
        match input::read(file)? {
            Input::FairShare(request) => {
                if args.html.is_some() || args.csv.is_some() {
                    bail!(
                        "`{}` is a fair share request, which has no report over time; hint: omit --html and --csv",
                        file.display()
                    );
                }
                crate::print(&if args.json { request.json()? } else { request.text() })?;
            }
            Input::TimeBased(scenario) => {
                show(args, file, &simulate(scenario.setup(&options, plugins))?)?;
            }
            Input::Snapshot(snapshot) => {
                show(args, file, &simulate(cluster::setup(*snapshot, &options, plugins))?)?;
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
    let limit = setup.end.unwrap_or(start + DURATION_MAX);
    // The effects of a cycle at the end itself would only be visible in the next one.
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

//! `kai plan`: one cycle on a cluster from a file.
//!
//! Reads the file, opens a cluster, plans, and shows the outcome. Nothing is written anywhere but to the file that
//! `--decisions` names.

mod decisions;
mod request;
mod summary;
mod timing;

use crate::{args, render};
use anyhow::{Context, Result};
use kai_cache::{Finding, Snapshot, Store, snapshot};
use kai_clock::Stopwatch;
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Outcome, Policy, audit};
use request::{Request, Time};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use summary::Summary;
use timing::{Times, Watch};

/// Plans every file by itself.
pub(crate) fn run(args: &args::Plan, plugins: &PluginSet) -> Result<ExitCode> {
    let request = Request::new(args)?;
    let mut code = ExitCode::SUCCESS;
    for file in &args.files {
        let planned = plan(file, &request, plugins)?;
        for warning in &planned.policy.warnings {
            writeln!(anstream::stderr(), "warning: {warning}")?;
        }
        if let Some(path) = &args.decisions {
            std::fs::write(path, decisions::lines(&planned.outcome))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        crate::print(&if args.json { planned.json(args)? } else { planned.text(args) })?;
        if args.audit && !planned.is_lawful()? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// A file, planned.
struct Planned {
    /// What is odd about the file itself.
    of_file: Vec<Finding>,
    store: Store,
    cluster: ClusterState,
    policy: Policy,
    outcome: Outcome,
    time: Time,
    times: Times,
}

fn plan(file: &Path, request: &Request, plugins: &PluginSet) -> Result<Planned> {
    let watch = Stopwatch::start();
    let mut snapshot = snapshot::read_file(file)?;
    if let Some(config) = &request.config {
        snapshot.config.clone_from(config);
    }
    let load_ms = watch.elapsed_ms();
    let time = request.time(snapshot.replay.now.map(|stamp| stamp.0));
    let cycle = kai_engine::Cycle { now: time.now, seed: snapshot.replay.seed.unwrap_or_default() };
    let watch = Stopwatch::start();
    let mut policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), plugins);
    policy.warnings.splice(0..0, snapshot.config.warnings.clone());
    let of_file = std::mem::take(&mut snapshot.findings);
    let (store, mut cluster) = open(snapshot);
    let mut times = Times { load_ms, open_ms: watch.elapsed_ms(), ..Times::default() };
    let mut watch = Watch::start(&mut times);
    let outcome = kai_engine::plan_observed(&mut cluster, &policy, cycle, &mut watch);
    watch.finish();
    Ok(Planned { of_file, store, cluster, policy, outcome, time, times })
}

/// Turns API objects into a cluster.
fn open(snapshot: Snapshot) -> (Store, ClusterState) {
    let mut store = snapshot.into_store();
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    (store, cluster)
}

impl Planned {
    /// The numbers of the cycle, on one line.
    fn json(&self, args: &args::Plan) -> Result<String> {
        let findings = args.findings.then(|| self.findings().iter().map(ToString::to_string).collect());
        let summary =
            Summary::new(&self.outcome, &self.cluster, &self.times, self.time.now.to_string(), findings);
        Ok(serde_json::to_string(&summary)? + "\n")
    }

    /// Tables, and how to see more.
    fn text(&self, args: &args::Plan) -> String {
        let mut text = format!("one cycle at {} ({})\n\n", self.time.now, self.time.source);
        text += &render::outcome(&self.outcome);
        let findings = self.findings();
        if args.findings {
            text += &render::findings(&findings);
        } else if !findings.is_empty() {
            let count = match findings.len() {
                1 => "one object is odd".to_owned(),
                count => format!("{count} things about objects are odd"),
            };
            writeln!(text, "\n{count}: see --findings").expect("writing to a string");
        }
        text
    }

    /// Everything odd about the file and its objects.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.of_file.clone();
        findings.append(&mut self.store.findings());
        findings.sort();
        findings
    }

    /// Whether the outcome keeps the laws; what it breaks goes to standard error.
    fn is_lawful(&self) -> Result<bool> {
        let violations = audit::audit(&self.cluster, &self.policy, &self.outcome);
        for violation in &violations {
            writeln!(anstream::stderr(), "audit: {violation}")?;
        }
        if violations.is_empty() {
            writeln!(anstream::stderr(), "audit: the outcome keeps every law")?;
        }
        Ok(violations.is_empty())
    }
}

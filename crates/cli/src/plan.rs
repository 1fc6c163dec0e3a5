//! `kai plan`: plans one scheduling cycle on a snapshot.
//!
//! Reads a snapshot, builds a cluster, plans one cycle and prints the outcome. Writes only the file of `--decisions`.

mod decisions;
mod hints;
mod request;
pub(crate) mod summary;
mod timing;

use crate::progress::Progress;
use crate::{args, render};
use anyhow::{Context, Result};
use hints::PlanHints;
use kai_cache::{Finding, Snapshot, Store, snapshot};
use kai_clock::Stopwatch;
use kai_engine::plugin::PluginSet;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_engine::{ClusterState, Cycle, Outcome, Policy, audit};
use kai_view::verdicts::Obstacle;
use kai_view::{Names, groups};
use request::{Request, Time};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use summary::Summary;
use timing::{Times, Watch};

pub(crate) fn run(args: &args::Plan, plugins: &PluginSet) -> Result<ExitCode> {
    let request = Request::new(args, plugins)?;
    let mut code = ExitCode::SUCCESS;
    for file in &args.files {
        let progress = Progress::start(format!("planning `{}`", file.display()));
        let mut planned = plan(file, &request, plugins)?;
        if args.hints {
            planned.find_hints();
        }
        drop(progress);
        for warning in &planned.policy.warnings {
            writeln!(anstream::stderr(), "warning: {warning}")?;
        }
        for failure in &planned.outcome.plugin_failures {
            writeln!(anstream::stderr(), "warning: {}", failure.message)?;
        }
        if let Some(path) = &args.decisions {
            std::fs::write(path, decisions::lines(&planned.outcome))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        crate::print(&if args.json { planned.json(args)? } else { planned.text(args) })?;
        if args.audit && !planned.passes_audit()? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

struct Planned {
    /// Findings on the file itself, not on its objects.
    file_findings: Vec<Finding>,
    store: Store,
    cluster: ClusterState,
    policy: Policy,
    outcome: Outcome,
    cycle: Cycle,
    time: Time,
    times: Times,
    /// Where they are wanted.
    hints: Option<PlanHints>,
}

fn plan(file: &Path, request: &Request, plugins: &PluginSet) -> Result<Planned> {
    let watch = Stopwatch::start();
    let mut snapshot = snapshot::read_file(file)?;
    if let Some(config) = &request.config {
        snapshot.config.clone_from(config);
    }
    let load_ms = watch.elapsed_ms();
    let time = request.time(snapshot.replay.now.map(|stamp| stamp.0));
    let cycle = Cycle { now: time.now, seed: snapshot.replay.seed.unwrap_or_default() };
    let watch = Stopwatch::start();
    let mut policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), plugins);
    policy.warnings.splice(0..0, snapshot.config.warnings.clone());
    let file_findings = std::mem::take(&mut snapshot.findings);
    let (store, mut cluster) = build_cluster(snapshot);
    let mut times = Times { load_ms, open_ms: watch.elapsed_ms(), ..Times::default() };
    let mut watch = Watch::start(&mut times);
    let outcome = kai_engine::plan_observed(&mut cluster, &policy, cycle, &mut watch);
    watch.finish();
    Ok(Planned { file_findings, store, cluster, policy, outcome, cycle, time, times, hints: None })
}

fn build_cluster(snapshot: Snapshot) -> (Store, ClusterState) {
    let mut store = snapshot.into_store();
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    (store, cluster)
}

impl Planned {
    fn find_hints(&mut self) {
        let (store, cluster) = (&mut self.store, &mut self.cluster);
        self.hints = Some(PlanHints::find(store, cluster, &self.policy, self.cycle, &self.outcome));
    }

    /// On one line.
    fn json(&self, args: &args::Plan) -> Result<String> {
        let findings = args.findings.then(|| self.findings().iter().map(ToString::to_string).collect());
        let now = self.time.now.to_string();
        let mut summary = Summary::new(&self.outcome, (&self.store, &self.cluster), &self.times, now);
        summary.findings = findings;
        summary.hints = self.hints.as_ref().map(PlanHints::value).transpose()?;
        Ok(serde_json::to_string(&summary)? + "\n")
    }

    /// Why a group is pending.
    fn obstacles(&self, verdict: &GroupVerdict) -> Vec<Obstacle> {
        groups::explained(&self.store, &self.cluster, verdict)
    }

    fn text(&self, args: &args::Plan) -> String {
        let mut text = format!("one cycle at {} ({})\n\n", self.time.now, self.time.source);
        let names = Names::of(self.store.objects());
        text += &render::outcome(&self.outcome, names, |verdict| self.obstacles(verdict));
        match &self.hints {
            Some(hints) => hints.append(&mut text, names),
            None if self.can_be_helped() => text += "\nwhat would run pending groups: see --hints\n",
            None => {}
        }
        let findings = self.findings();
        if args.findings {
            text += &render::findings(&findings);
        } else if !findings.is_empty() {
            let count = match findings.len() {
                1 => "1 finding".to_owned(),
                count => format!("{count} findings"),
            };
            writeln!(text, "\n{count} on invalid objects: see --findings").expect("writing to a string");
        }
        text
    }

    /// Whether a group is pending of which no object has to be corrected.
    fn can_be_helped(&self) -> bool {
        let pending = self.outcome.verdicts.iter().filter(|verdict| verdict.pending > 0);
        let corrected = |verdict: &GroupVerdict| {
            self.obstacles(verdict).first().is_some_and(|obstacle| obstacle.is_correction)
        };
        pending.filter(|verdict| verdict.leading != Verdict::Placed).any(|verdict| !corrected(verdict))
    }

    /// Findings on the file and its objects.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.file_findings.clone();
        findings.append(&mut self.store.findings());
        findings.sort();
        findings
    }

    /// Whether the outcome has no violation; violations go to standard error.
    fn passes_audit(&self) -> Result<bool> {
        let violations = audit::audit(&self.cluster, &self.policy, &self.outcome);
        for violation in &violations {
            writeln!(anstream::stderr(), "audit: {violation}")?;
        }
        if violations.is_empty() {
            writeln!(anstream::stderr(), "audit: no violations")?;
        }
        Ok(violations.is_empty())
    }
}

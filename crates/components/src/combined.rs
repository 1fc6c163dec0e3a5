//! `kai all`: the components of an installation in one process.
//!
//! They share the connection, the watches ([`SharedWatches`]) and the lease; metrics, health, write queue and rate limit are
//! each component's own. A scheduler whose process would take another lease, that of its name and node pool, takes that too. A component that fails or panics is restarted alone, with backoff, and reported: in the log, as
//! an event of the lease and as a metric.

use crate::Extensions;
use crate::command::{self, Program};
use crate::flags::{CombinedFlags, go};
use crate::part::{Part, Running};
use crate::process::FurtherLease;
use crate::spec::{Component, ComponentSpec, MEMBERS};
use crate::supervisor::Restarts;
use anyhow::{Context, Result, anyhow, bail};
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::event::{Event, EventType};
use kai_runtime::health::Health;
use kai_runtime::leader_election;
use kai_runtime::metrics::components::Registries;
use kai_runtime::rate_limit::RateLimiter;
use kai_runtime::watch::shared::SharedWatches;
use prometheus::{IntCounterVec, Opts, Registry};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Ports of webhooks, which are the same in processes of their own.
const WEBHOOK_PORTS: [(Component, &str); 2] = [
    (Component::QueueController, "--webhook-bind-address=:9444"),
    (Component::PodGroupController, "--webhook-bind-address=:9445"),
];

/// A component of the process with its flags.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) spec: &'static ComponentSpec,
    program: Box<dyn Program>,
}

impl Member {
    fn new(spec: &'static ComponentSpec, flags: Vec<OsString>) -> Result<Self> {
        let of_port = WEBHOOK_PORTS.iter().filter(|(component, _)| *component == spec.component);
        let typed = std::iter::once(spec.command).chain(of_port.map(|(_, flag)| *flag)).map(OsString::from);
        let program = command::subcommand(spec)
            .args_override_self(true)
            .try_get_matches_from(typed.chain(flags))
            .and_then(|matches| (spec.command_line.parse)(&matches));
        // The usage is that of another command.
        let program =
            program.map_err(|error| anyhow!("{}: {}", spec.command, command::first_line(&error)))?;
        Ok(Self { spec, program })
    }

    /// The name in reports, metrics and readiness; schedulers of several shards have the node pool in it.
    pub(crate) fn name(&self, pool: Option<&str>) -> String {
        pool.map_or_else(|| self.spec.command.to_owned(), |pool| format!("{}-{pool}", self.spec.command))
    }

    pub(crate) fn part(&self, extensions: &Extensions) -> Result<Part> {
        self.program.part(extensions).with_context(|| format!("cannot run {}", self.spec.command))
    }

    pub(crate) fn check(&self, extensions: &Extensions) -> Result<()> {
        self.program.check(extensions)
    }
}

/// The components of a command line. One without flags has its defaults.
pub(crate) fn members(flags: &CombinedFlags) -> Result<Vec<Member>> {
    let runs = wanted(&flags.components)?;
    let mut sections: BTreeMap<&str, Vec<Vec<OsString>>> = BTreeMap::new();
    let mut words: Vec<OsString> = flags.sections.iter().map(OsString::from).collect();
    while !words.is_empty() {
        let name = words.remove(0).to_string_lossy().into_owned();
        let Some(spec) = runs.iter().find(|spec| is_called(spec, &name)) else {
            bail!("`{name}` is no component that runs here; hint: {}", known(&runs));
        };
        let (own, rest) = go::rewrite_until(&command::subcommand(spec), words, is_component);
        sections.entry(spec.command).or_default().push(own);
        words = rest;
    }
    let mut members = Vec::new();
    for spec in runs {
        let sections = sections.remove(spec.command).unwrap_or_else(|| vec![Vec::new()]);
        if sections.len() > 1 && spec.component != Component::Scheduler {
            bail!(
                "`{}` is named {} times; hint: only schedulers of several shards are",
                spec.command,
                sections.len()
            );
        }
        for own in sections {
            members.push(Member::new(spec, own)?);
        }
    }
    Ok(members)
}

/// The components that are named; all without names.
fn wanted(names: &[String]) -> Result<Vec<&'static ComponentSpec>> {
    let all = MEMBERS.map(Component::spec);
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|spec| is_called(spec, name))) {
        bail!("`--components` has `{unknown}`; hint: {}", known(&all));
    }
    let is_named = |spec: &&ComponentSpec| names.is_empty() || names.iter().any(|name| is_called(spec, name));
    Ok(all.into_iter().filter(|spec| is_named(spec)).collect())
}

fn known(specs: &[&ComponentSpec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.command).collect();
    format!("the components are {}", names.join(", "))
}

fn is_called(spec: &ComponentSpec, name: &str) -> bool {
    spec.command == name || spec.aliases.contains(&name)
}

fn is_component(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| command::find(word).is_some())
}

/// How a component starts, each time.
pub type StartComponent = Arc<dyn Fn(Process) -> Running + Send + Sync>;

/// A component as it is started in a process with others.
pub struct Started {
    pub name: String,
    pub user_agent: &'static str,
    /// Requests per second, and burst.
    pub limits: (f64, u32),
    /// What it acquires before it starts.
    pub lease: Option<FurtherLease>,
    pub start: StartComponent,
}

/// The components of a process.
pub struct Components {
    started: Vec<Started>,
    registries: Registries,
}

impl Components {
    /// The metrics of every run are added to `registries`.
    pub fn new(started: Vec<Started>, registries: Registries) -> Self {
        Self { started, registries }
    }

    /// Runs them on the watches of one client. Ends only when a task of the process itself has failed.
    pub async fn run(self, mut process: Process) {
        let watches = SharedWatches::new(process.api.clone());
        let restarts = reported(&process);
        let mut tasks = JoinSet::new();
        for Started { name, user_agent, limits: (qps, burst), lease: own_lease, start } in self.started {
            let mut api = process.api.of_component(user_agent).sharing(watches.clone());
            if let Some(limit) = RateLimiter::new(qps, burst) {
                api = api.rate_limited(limit);
            }
            let (registries, health, clock) =
                (self.registries.clone(), process.health.clone(), process.clock);
            let (restarts, lease) = (restarts.clone(), process.degradations.regarding());
            let writer = process.writer.clone();
            tasks.spawn(async move {
                let start = |api: Api| {
                    let (metrics, own) = (Registry::new(), Health::default());
                    registries.set_component(&name, metrics.clone());
                    health.set_component(&name, own.clone());
                    let process = Process::with(api, clock, user_agent, metrics, own);
                    writer.set_component(&name, process.writer.clone());
                    if let Some(lease) = &lease {
                        process.degradations.report_on(lease.clone());
                    }
                    start(process)
                };
                let run = || async {
                    let Some(FurtherLease { candidate, api: lease_api }) = &own_lease else {
                        start(api.clone()).await;
                        return Err(anyhow!("one of its tasks ended"));
                    };
                    let work = |leadership| start(api.clone().fenced(leadership));
                    match leader_election::run_as_leader(candidate, lease_api, clock, work).await {
                        None => Err(anyhow!("lease `{}` is held by another process", candidate.lease)),
                        Some(()) => Err(anyhow!("one of its tasks ended")),
                    }
                };
                Box::pin(restarts.supervise(&name, run)).await;
            });
        }
        tokio::select! {
            biased;
            () = process.failed() => {}
            // A component is restarted for ever.
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Reports restarts by a metric and by an event of the lease.
fn reported(process: &Process) -> Restarts {
    let help = "Restarts of a component that failed or panicked inside the process";
    let opts = Opts::new("component_restarts_total", help).namespace("kai");
    let counter = IntCounterVec::new(opts, &["name"]).expect("names and labels are valid constants");
    // Fails only when it is registered already.
    let _ = process.metrics.register(Box::new(counter.clone()));
    let (recorder, degradations) = (process.recorder.clone(), process.degradations.clone());
    Restarts::reporting(move |name, why| {
        counter.with_label_values(&[name]).inc();
        let Some(regarding) = degradations.regarding() else { return };
        recorder.record(&Event {
            regarding,
            type_: EventType::Warning,
            reason: "ComponentRestarted",
            message: format!("{name} {why}; it is restarted alone"),
            annotations: BTreeMap::new(),
        });
    })
}

#[cfg(test)]
mod tests;

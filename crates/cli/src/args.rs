//! The command line as typed: nothing is checked here beyond its form.

mod simulate;
#[cfg(feature = "embedded")]
mod up;
mod view;

pub(crate) use simulate::Simulate;
#[cfg(feature = "embedded")]
pub(crate) use up::Up;
pub(crate) use view::{Jobs, Nodes, Queues, View, Why};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kai_components::command::{self, ComponentCommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Everything after the program's name.
#[derive(Debug, Parser)]
#[command(name = "kai", version, about = "A scheduler for AI clusters on Kubernetes")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses a command line. Components accept flags in Go's forms.
    pub(crate) fn read(typed: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let (mut command, typed) = command::adapt(Self::command(), typed.into_iter().collect());
        let mut matches = command.try_get_matches_from_mut(typed)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(feature = "embedded")]
    /// Start a whole cluster with simulated nodes in this process, and try it with kubectl.
    Up(Up),
    /// Show the queues of a live cluster: quota, fair share, what is in use and what is waited for.
    Queues(Queues),
    /// Show the pod groups of a live cluster: state, pods, age, and why they wait.
    Jobs(Jobs),
    /// Show the nodes of a live cluster with their GPUs, drawn one by one.
    Nodes(Nodes),
    /// Say why something in a live cluster does not run: every obstacle with its numbers, and what would help.
    Why(Why),
    /// Plan one cycle on a cluster from files, and show placements, queue shares and reasons.
    Plan(Plan),
    /// Run cycles over virtual time, and show utilisation, waiting times, evictions and shares over time.
    Simulate(Box<Simulate>),
    /// Print the custom resource definitions as YAML.
    Crds(Crds),
    #[command(flatten)]
    Component(ComponentCommand),
}

/// Options of `kai plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Snapshot files: a zip archive, JSON or YAML. Each is planned by itself.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print times, counts, evictions and reasons as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one sorted line per decision to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// The time of the cycle where the file has none, such as 2026-01-31T08:00:00Z; else the clock's.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// A scheduler configuration in place of the file's own.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the outcome against the laws of scheduling, by other means than those that made it.
    #[arg(long)]
    pub(crate) audit: bool,
    /// List every object that was odd, and what was made of it.
    #[arg(long)]
    pub(crate) findings: bool,
}

/// Options of `kai crds`.
#[derive(Debug, clap::Args)]
pub(crate) struct Crds {
    /// Only this one: its kind, its plural, or its full name.
    pub(crate) name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_components_accept_go_forms() {
        let typed = ["kai", "plan", "-json", "x"].map(OsString::from);
        let error = Args::read(typed).expect_err("one dash is not enough").to_string();
        assert!(error.contains("'-j'"), "{error}");
    }
}

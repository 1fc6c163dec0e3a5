//! The command line as clap parses it; values are validated by the commands.

mod cluster;
mod group;
mod lint;
mod migrate;
mod simulate;
mod snapshot;
mod tools;
#[cfg(feature = "embedded")]
mod up;
mod view;
mod what_if;

pub(crate) use cluster::{Cluster, Kubeconfig, Namespace};
pub(crate) use group::{Format, Group};
pub(crate) use lint::Lint;
pub(crate) use migrate::{Migrate, MigrateCheck, MigrateCommand};
pub(crate) use simulate::Simulate;
pub(crate) use snapshot::Snapshot;
pub(crate) use tools::{Completion, Man, Schema, Shell, Subject, Version, VersionFormat};
#[cfg(feature = "embedded")]
pub(crate) use up::{Down, Up};
pub(crate) use view::{Jobs, Nodes, OutputFormat, Queues, Selector, Top, View, Why};
pub(crate) use what_if::WhatIf;

use crate::invocation::Invocation;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kai_components::command::{self, ComponentCommand};
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER: &str = "Exit codes: 0 success, 1 a check or a prediction says no, 2 error; `kai COMMAND --help` has those of a command.";
const PLAN_HELP: &str =
    "Exit codes: 0 success, 1 the audit found a violation, 2 error: a file cannot be read.";
const CRDS_HELP: &str = "\
Examples:
  kai crds | kubectl apply --server-side -f -
  kai crds queues

Exit codes: 0 success, 2 error: there is no such definition.";

#[derive(Debug, Parser)]
#[command(name = "kai", version = crate::version::TEXT, about = "A Kubernetes scheduler for AI workloads", after_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses a command line. Components accept flags in Go's forms.
    pub(crate) fn read(typed: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let typed: Vec<OsString> = typed.into_iter().collect();
        let invoked = Invocation::of(&typed);
        let (mut command, typed) = command::adapt(invoked.name(Self::command()), typed);
        let mut matches = command.try_get_matches_from_mut(typed)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(feature = "embedded")]
    /// Run a cluster with simulated nodes and all components in this process, for use with kubectl.
    Up(Up),
    #[cfg(feature = "embedded")]
    /// Stop the cluster that `kai up --detach` has started.
    Down(Down),
    /// Display the queues of a cluster: quota, limit, fair share, usage and pending requests.
    Queues(Queues),
    /// Display the pod groups of a cluster: state, pods, age, and why they are pending.
    Jobs(Jobs),
    /// Display the nodes of a cluster with the allocation of each GPU.
    Nodes(Nodes),
    /// Display queues, nodes with their GPUs, and pending pod groups on one live screen.
    Top(Top),
    /// Explain why a pod group, pod or workload is pending: every reason with its numbers and a hint.
    Why(Why),
    /// Predict what workloads or changes of queues, nodes and configuration would do, without writing anything.
    WhatIf(WhatIf),
    /// Plan one scheduling cycle on a snapshot, and display placements, queue shares and reasons.
    Plan(Plan),
    /// Simulate scheduling cycles over virtual time: utilisation, waiting times, evictions and shares.
    Simulate(Box<Simulate>),
    /// Write a snapshot of a cluster to a file, for `kai plan`, `kai simulate` and bug reports.
    Snapshot(Snapshot),
    /// Check manifests and scheduler configurations offline: what would be refused, and what is surely not intended.
    Lint(Lint),
    /// Display the pod groups that workloads would get, before they are submitted.
    Group(Group),
    /// Find out what will differ when a cluster moves over from KAI.
    Migrate(Migrate),
    /// Print the custom resource definitions as YAML.
    Crds(Crds),
    /// Print the version and the commit.
    Version(Version),
    /// Print the script that completes commands, options and names of the cluster in a shell.
    Completion(Completion),
    /// Write a manual page for each command.
    Man(Man),
    /// Print the JSON schema of the output of a command.
    Schema(Schema),
    /// End at once: the program of scaling pods, which succeed as soon as their node has arrived.
    #[command(alias = "scalingpod", hide = true)]
    ScalingPod,
    /// Do what a hook of the chart does around an installation.
    #[command(hide = true)]
    Hook(Hook),
    #[command(flatten)]
    Component(ComponentCommand),
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = PLAN_HELP)]
pub(crate) struct Plan {
    /// Snapshot files: a zip archive, JSON or YAML. Each is planned separately; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print times, counts, evictions and reasons as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one line per decision to this file, sorted.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Time of the cycle if the file has none, such as 2026-01-31T08:00:00Z; default: the current time.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Scheduler configuration that replaces the one in the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Verify the outcome with an independent audit; exit code 1 on a violation.
    #[arg(long)]
    pub(crate) audit: bool,
    /// List invalid objects and fields, and how they were handled.
    #[arg(long)]
    pub(crate) findings: bool,
    /// Search the smallest changes that would run pending groups, each proven by a plan with it; of the first 20 groups.
    #[arg(long)]
    pub(crate) hints: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = CRDS_HELP)]
pub(crate) struct Crds {
    /// Print only this definition: its kind, plural or full name.
    pub(crate) name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Hook {
    /// Path to a kubeconfig; default: the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: HookCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Apply the custom resource definitions.
    Crds,
    /// Apply the Config in a file.
    Config {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Copy the Topologies of Kueue.
    Topologies,
    /// Delete the Deployments that the operator made, and the Config.
    Cleanup {
        /// Namespace of the Deployments.
        #[arg(long)]
        namespace: String,
        /// The Config to delete, if the chart made it.
        #[arg(long, value_name = "NAME")]
        config: Option<String>,
    },
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

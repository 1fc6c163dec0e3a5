//! The command line as typed: nothing is checked here beyond its form.

pub(crate) mod component;
mod go;
mod look;
mod simulate;
mod up;

pub(crate) use look::{Jobs, Look, Nodes, Queues, Why};
pub(crate) use simulate::Simulate;
pub(crate) use up::Up;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
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
    /// Reads a command line. Components take flags as Go's programs do.
    pub(crate) fn read(typed: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut typed: Vec<OsString> = typed.into_iter().collect();
        let mut command = Self::command();
        let name = typed.get(1).and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if Component::has_subcommand(&name) {
            // Of a flag that is given twice the last counts.
            command = command.mut_subcommand(&name, |component| component.args_override_self(true));
            let component = command.find_subcommand(&name).expect("it has just been changed");
            let flags = go::rewrite(component, typed.split_off(2));
            typed.extend(flags);
        }
        let mut matches = command.try_get_matches_from_mut(typed)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    Component(Component),
}

/// The processes of an installation. Each takes the flags of KAI's program of the same purpose.
#[derive(Debug, Subcommand)]
pub(crate) enum Component {
    /// Run the scheduler of a cluster.
    Scheduler(Box<component::Scheduler>),
    /// Run the binder: it puts pods on the nodes that the scheduler chose.
    Binder(Box<component::Binder>),
    /// Run the pod grouper: it makes pod groups of workloads.
    PodGrouper(Box<component::Grouper>),
    /// Run the controller of pod groups' status.
    PodgroupController(Box<component::PodGroupController>),
    /// Run the controller of queues' status and metrics.
    QueueController(Box<component::QueueController>),
    /// Hold a GPU for sharing and tell which one it is; runs inside reservation pods.
    Reservation(Box<component::Reservation>),
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

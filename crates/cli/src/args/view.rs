//! Options of the commands that look at a live cluster: `kai queues`, `kai jobs`, `kai nodes` and `kai why`.

use std::path::PathBuf;

/// What `--help` says below the options of each.
const HELP: &str = "\
Where it comes from:
  Everything that the scheduler reads is read through the API, and one cycle is planned on it here: what is shown is
  what a cycle would say now. No scheduler has to run, and nothing is written. Who may list what the scheduler reads
  sees the same; what may not be listed is named in a warning.

  The cluster is the one of --kubeconfig, else of the variable KUBECONFIG, else of ~/.kube/config.

Exit codes: 0 when the question could be answered, 2 when not: no such object, no cluster, bad options.
";

/// What `kai why --help` says besides.
const WHY_HELP: &str = "\
Examples:
  kai why team-a/train             a PodGroup, a pod, or a workload such as a Job
  kai why train                    in the namespace of the kubeconfig's context
  kai why team-a/train --json
  kai why team-a/train --watch
";

/// Options that all of them share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct View {
    /// How to reach the cluster; else as kubectl does.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; else its current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Print JSON instead of tables; one line for each change with --watch.
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on, and show what has changed about once a second, until Ctrl-C.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// The scheduler's configuration; else the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node pool whose scheduler is meant; else that of objects without the label `kai.scheduler/node-pool`.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_pool: Option<String>,
}

/// Options of `kai queues`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Queues {
    #[command(flatten)]
    pub(crate) view: View,
}

/// Options of `kai jobs`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Jobs {
    /// Only groups of this namespace.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Only groups of this queue.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) view: View,
}

/// Options of `kai nodes`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Nodes {
    #[command(flatten)]
    pub(crate) view: View,
}

/// Options of `kai why`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{WHY_HELP}\n{HELP}"))]
pub(crate) struct Why {
    /// A pod group, a pod, or a workload that owns pods.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) view: View,
}

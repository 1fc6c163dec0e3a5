//! Options of the view commands: `kai queues`, `kai jobs`, `kai nodes` and `kai why`.

use super::Cluster;
use std::path::PathBuf;

const HELP: &str = "\
Data source:
  The command lists the objects that the scheduler reads, and plans one cycle on them in this process. No scheduler
  has to run, and nothing is written. Resources that the user may not list are named in a warning and left out.

  The cluster is that of --kubeconfig, else of the variable KUBECONFIG, else of ~/.kube/config.

Exit codes: 0 success, 2 error: object not found, cluster not reachable, invalid options.
";

const WHY_HELP: &str = "\
Examples:
  kai why team-a/train             a PodGroup, a pod, or a workload such as a Job
  kai why train                    in the namespace of the kubeconfig's context
  kai why job/train                the same, as with kubectl
  kai why team-a/train --json
  kai why team-a/train --watch
";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct View {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Print JSON instead of tables; with --watch, one line per change.
    #[arg(long)]
    pub(crate) json: bool,
    /// Watch for changes and display them about once per second, until Ctrl-C.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Scheduler configuration; default: the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Queues {
    /// Show how much each queue used over time, from the usage ledger (`usageDBConfig` with `clientType: ledger`).
    #[arg(long)]
    pub(crate) usage: bool,
    #[command(flatten)]
    pub(crate) view: View,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Jobs {
    /// Display only pod groups of this namespace.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Display only pod groups of this queue.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) view: View,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Nodes {
    /// Display only these nodes.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) view: View,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Display only pod groups of this namespace.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Display only this queue and those below it, with their pod groups.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Scheduler configuration; default: the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{WHY_HELP}\n{HELP}"))]
pub(crate) struct Why {
    /// Name of a pod group, a pod, or a workload that owns pods.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) view: View,
}

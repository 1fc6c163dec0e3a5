//! Options of the view commands: `kai queues`, `kai jobs`, `kai nodes` and `kai why`.

use super::{Cluster, Namespace};
use crate::completion::{self, Names};
use std::path::PathBuf;

const HELP: &str = "\
Data source:
  The command lists the objects that the scheduler reads, and plans one cycle on them in this process. No scheduler
  has to run, and nothing is written. Resources that the user may not list are named in a warning and left out.

  The cluster is that of --kubeconfig, else of the variable KUBECONFIG, else of ~/.kube/config.

Tables use the width of the terminal, or of the variable COLUMNS; in a pipe, each row is one line. NO_COLOR turns colours off.
`kai schema COMMAND` prints the JSON schema of -o json.

Exit codes: 0 success, 2 error: object not found, cluster not reachable, invalid options.
";

const WHY_HELP: &str = "\
Examples:
  kai why job/train                a workload, a pod or a PodGroup by type and name, as with kubectl
  kai why train -n team-a          any of these by name alone
  kai why team-a/train             the same
  kai why queue/vision             the pending pod groups of a queue and of those below it
  kai why -l team=a                pod groups by label
  kai why job/train -o json
  kai why job/train --watch
";

const JOBS_HELP: &str = "\
Examples:
  kai jobs                         pod groups of the context's namespace
  kai jobs -A -o wide              of all namespaces, with the names of PodGroups and more columns
  kai jobs job/train pod-group-2   by type and name of the workload, or by name
  kai jobs -q vision -l team=a     of a queue, in all namespaces, by label
  kai jobs -o name | xargs kubectl describe
";

const QUEUES_HELP: &str = "\
Examples:
  kai queues
  kai queues vision speech -o wide
  kai queues -l team=a -o json
";

const NODES_HELP: &str = "\
Examples:
  kai nodes
  kai nodes node-1 node/node-2 -o wide
  kai nodes -l nvidia.com/gpu.product=H100 -o json
";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// The table with more columns.
    Wide,
    Json,
    Yaml,
    /// One line per object, as TYPE/NAME that kubectl accepts.
    Name,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct View {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Output format; default: a table or text.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<OutputFormat>,
    /// Print JSON on one line; with --watch, one line per change.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
    /// Watch for changes and display them about once per second, until Ctrl-C.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Scheduler configuration; default: the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Selector {
    /// Display only objects with these labels, such as `team=a,tier!=web`.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{QUEUES_HELP}\n{HELP}"))]
pub(crate) struct Queues {
    /// Display only these queues.
    #[arg(value_name = "NAME", add = completion::of(Names::Queues))]
    pub(crate) names: Vec<String>,
    /// Show how much each queue used over time, from the usage ledger (`usageDBConfig` with `clientType: ledger`).
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    pub(crate) usage: bool,
    #[command(flatten)]
    pub(crate) selector: Selector,
    #[command(flatten)]
    pub(crate) view: View,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{JOBS_HELP}\n{HELP}"))]
pub(crate) struct Jobs {
    /// Display only the pod groups of these workloads.
    #[arg(value_name = "[TYPE/]NAME", add = completion::of(Names::Workloads))]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// Display only pod groups of this queue, in all namespaces unless one is given.
    #[arg(long, short, value_name = "NAME", add = completion::of(Names::Queues))]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) selector: Selector,
    #[command(flatten)]
    pub(crate) view: View,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{NODES_HELP}\n{HELP}"))]
pub(crate) struct Nodes {
    /// Display only these nodes.
    #[arg(value_name = "NAME", add = completion::of(Names::Nodes))]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) selector: Selector,
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
    /// Name of a pod group, a pod, a workload that owns pods, or a queue.
    #[arg(
        value_name = "[NAMESPACE/|TYPE/]NAME",
        required_unless_present = "selector",
        conflicts_with = "selector",
        add = completion::of(Names::Workloads)
    )]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) selector: Selector,
    #[command(flatten)]
    pub(crate) view: View,
}

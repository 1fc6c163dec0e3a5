//! Options of `kai snapshot`.

use super::Cluster;
use std::path::PathBuf;

const HELP: &str = "\
Data source:
  The command lists the objects that the scheduler reads, through the API server. No scheduler has to run, and nothing is
  written to the cluster. Resources that the user may not list are named in a warning and left out. The file has the
  format of the scheduler's /get-snapshot, with the time at which it was taken.

  With --anonymise, names of namespaces, nodes, queues, pods, groups, volumes, claims, labels and label values are replaced
  by pseudonyms that sort alike; messages, and annotations that the scheduler does not read, are left out. A cycle on the
  result decides the same up to renaming. Look at the file before you publish it.

Examples:
  kai snapshot -o cluster.zip
  kai snapshot --anonymise -o report.zip --names names.json
  kai snapshot --from cluster.zip --anonymise -o report.zip
  kai snapshot | kai plan /dev/stdin

Exit codes: 0 success, 2 error: cluster not reachable, file cannot be read or written, invalid options.
";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Snapshot {
    /// Write the zip archive to this file; default: standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace names by pseudonyms, consistently.
    #[arg(long)]
    pub(crate) anonymise: bool,
    /// Write the pseudonym of each name to this file as JSON. Keep it: it translates answers to a bug report.
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    pub(crate) names: Option<PathBuf>,
    /// Read a snapshot file instead of a cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "config", "node_pool"])]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Scheduler configuration to include; default: the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

//! Options of `kai migrate`.

use super::Kubeconfig;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  kai migrate check                                 the cluster of the current context
  kai migrate check -f values.yaml                  a values file of KAI's chart, without a cluster
  helm get values kai-scheduler -n kai-scheduler | kai migrate check -f -
  kai migrate check -f values.yaml --context prod   both
  kai migrate check --json | jq '.findings[] | select(.level == \"unsupported\")'

Nothing is written. What the user may not list is named in a warning and left out.
Rules such as H01 or D17 are explained in docs/differences.md.

Exit codes: 0 nothing unsupported, 1 something is not supported, 2 error: file or cluster cannot be read.
";

#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    #[command(subcommand)]
    pub(crate) command: MigrateCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum MigrateCommand {
    /// Say what is not supported, what will differ, and what to do, for a cluster or for files.
    Check(MigrateCheck),
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct MigrateCheck {
    /// Values of KAI's chart, and manifests; several are merged as helm does. `-` is standard input. The cluster is then
    /// read only if --kubeconfig or --context is given.
    #[arg(long = "file", short, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kubeconfig: Kubeconfig,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

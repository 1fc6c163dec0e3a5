//! Arguments of `kai lint`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Exit codes: 0 no errors, 1 errors (with --strict, or warnings), 2 a file cannot be read."
)]
pub(crate) struct Lint {
    /// Manifests (YAML or JSON) with queues, workloads, pod groups, topologies and nodes, and scheduler configurations.
    /// Objects of all files are checked together; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print the findings as JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub(crate) json: bool,
    /// Print the findings as SARIF 2.1.0, for code scanning in CI.
    #[arg(long)]
    pub(crate) sarif: bool,
    /// Exit with code 1 on warnings, too.
    #[arg(long)]
    pub(crate) strict: bool,
}

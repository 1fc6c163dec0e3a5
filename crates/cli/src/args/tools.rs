//! Options of the commands about `kai` itself: version, completions, manual pages and schemas.

use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes: 0 success, 2 error.";

const COMPLETION_HELP: &str = "\
Examples:
  source <(kai completion bash)                              in ~/.bashrc
  source <(kai completion zsh)                               in ~/.zshrc, after compinit
  kai completion fish > ~/.config/fish/completions/kai.fish
  kai completion powershell | Out-String | Invoke-Expression in $PROFILE

Names of queues, workloads, nodes, namespaces and contexts are those of the cluster that the typed command would read. Without
a cluster, or with one that does not respond in a second, only commands and options are completed.

As a plugin: a link `kubectl_complete-kai` to the binary in the PATH completes `kubectl kai` in every shell in which
kubectl completes its own commands.

Exit codes: 0 success, 2 error.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum VersionFormat {
    Json,
    Yaml,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct Version {
    /// Output format; default: text.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<VersionFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETION_HELP)]
pub(crate) struct Completion {
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct Man {
    /// Existing directory for the pages, such as ~/.local/share/man/man1.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    Queues,
    Usage,
    Jobs,
    Nodes,
    Why,
    WhatIf,
    Version,
    Plan,
    Simulate,
    Lint,
    Group,
    Migrate,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct Schema {
    /// The command; `usage` is `kai queues --usage`, `migrate` is `kai migrate check`.
    #[arg(value_enum, value_name = "COMMAND")]
    pub(crate) subject: Subject,
}

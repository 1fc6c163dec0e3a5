//! `kai` with one additional plugin.

use std::sync::Arc;

fn main() -> std::process::ExitCode {
    let plugins = kai_engine::plugin::PluginSet::builtin().with(Arc::new(team_nodes_plugin::TeamNodes));
    kai_cli::run(std::env::args_os(), &plugins.into())
}

//! `kai` with two additional plugins.

use kai_engine::plugin::PluginSet;
use operations_plugin::{Audit, MaxRuntime};
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    let plugins = PluginSet::builtin().with(Arc::new(Audit::default())).with(Arc::new(MaxRuntime));
    kai_cli::run(std::env::args_os(), &plugins.into())
}

//! `kai` with a scheduler plugin and a binder plugin.

use kai_cli::Extensions;
use kai_engine::plugin::PluginSet;
use license_plugin::{Licenses, Seats};
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    let mut extensions = Extensions::from(PluginSet::builtin().with(Arc::new(Licenses)));
    extensions.binder = extensions.binder.with("licenses", Seats::from_arguments);
    kai_cli::run(std::env::args_os(), &extensions)
}

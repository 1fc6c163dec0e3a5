//! `kai` whose pod grouper knows one kind more.

use kai_cli::Extensions;
use render_job_plugin::RenderJobs;
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    let mut extensions = Extensions::default();
    extensions.grouper = extensions.grouper.with(Arc::new(RenderJobs));
    kai_cli::run(std::env::args_os(), &extensions)
}

//! Log output of a process.

use std::io::IsTerminal as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs to standard error. `RUST_LOG` overrides `level`. Does nothing when a subscriber is installed already.
pub fn start(level: LevelFilter, format: Format) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let subscriber = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only when a subscriber is installed already.
    let _ = match format {
        Format::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => subscriber.json().flatten_event(true).try_init(),
    };
}

/// The level of a klog verbosity (`-v`): 3 is the default of KAI's components, 4 and above log decisions.
pub fn level_of_verbosity(verbosity: i32) -> LevelFilter {
    match verbosity {
        i32::MIN..=0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4..=6 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

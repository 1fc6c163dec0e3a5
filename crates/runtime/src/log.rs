//! What a process writes to its log.

use std::io::IsTerminal as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// How a log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Begins to write the log to the standard error. `RUST_LOG` says more exactly than `level` what is written.
/// Does nothing when a log is already written.
pub fn start(level: LevelFilter, format: Format) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let subscriber = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // The only failure is that there is a subscriber already.
    let _ = match format {
        Format::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => subscriber.json().flatten_event(true).try_init(),
    };
}

/// The level that a verbosity of Kubernetes' programs means: 3 is usual, from 4 on decisions are told.
pub fn level_of_verbosity(verbosity: i32) -> LevelFilter {
    match verbosity {
        i32::MIN..=0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4..=6 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

//! What `kai plan` was asked for, checked and ready to use.

use crate::args;
use anyhow::{Context, Result, bail};
use kai_cache::config_file::SchedulerConfig;
use kai_components::config;
use kai_units::Timestamp;

/// A checked request.
pub(super) struct Request {
    /// Replaces the file's own configuration.
    pub(super) config: Option<SchedulerConfig>,
    now: Option<Timestamp>,
}

/// The time of a cycle.
pub(super) struct Time {
    pub(super) now: Timestamp,
    /// Where it comes from, in words.
    pub(super) source: &'static str,
}

impl Request {
    /// Checks arguments and reads the configuration.
    pub(super) fn new(args: &args::Plan) -> Result<Self> {
        if args.decisions.is_some() && args.files.len() > 1 {
            bail!("--decisions takes the decisions of one file, but {} are given", args.files.len());
        }
        let now = args.now.as_deref().map(str::parse).transpose().context("--now cannot be read")?;
        let config = args.config.as_deref().map(config::read).transpose()?;
        Ok(Self { config, now })
    }

    /// The time of the cycle: a recorded cycle replays at its own time, whatever else is said.
    pub(super) fn time(&self, recorded: Option<Timestamp>) -> Time {
        match (recorded, self.now) {
            (Some(now), _) => Time { now, source: "the file's own time" },
            (None, Some(now)) => Time { now, source: "as --now says" },
            (None, None) => {
                Time { now: Timestamp(kai_clock::unix_micros()), source: "by the clock of this machine" }
            }
        }
    }
}

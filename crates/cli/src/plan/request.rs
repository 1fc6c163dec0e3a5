//! Validated arguments of `kai plan`.

use crate::args;
use anyhow::{Context, Result, bail};
use kai_cache::config_file::SchedulerConfig;
use kai_components::config;
use kai_engine::plugin::PluginSet;
use kai_units::Timestamp;

pub(super) struct Request {
    /// Replaces the configuration of the file.
    pub(super) config: Option<SchedulerConfig>,
    now: Option<Timestamp>,
}

pub(super) struct Time {
    pub(super) now: Timestamp,
    /// Where the time comes from, as text.
    pub(super) source: &'static str,
}

impl Request {
    pub(super) fn new(args: &args::Plan, plugins: &PluginSet) -> Result<Self> {
        if args.decisions.is_some() && args.files.len() > 1 {
            bail!("--decisions takes the decisions of one file, but {} are given", args.files.len());
        }
        let now = args.now.as_deref().map(str::parse).transpose().context("invalid --now")?;
        let config = args.config.as_deref().map(|path| config::read_named(path, plugins)).transpose()?;
        Ok(Self { config, now })
    }

    /// The time of the cycle. A recorded cycle is replayed at its own time, with or without `--now`.
    pub(super) fn time(&self, recorded: Option<Timestamp>) -> Time {
        match (recorded, self.now) {
            (Some(now), _) => Time { now, source: "from the file" },
            (None, Some(now)) => Time { now, source: "from --now" },
            (None, None) => Time { now: Timestamp(kai_clock::unix_micros()), source: "current time" },
        }
    }
}

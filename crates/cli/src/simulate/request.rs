//! Validated arguments of `kai simulate`.

use crate::args;
use anyhow::{Context, Result, bail};
use kai_cache::config_file::SchedulerConfig;
use kai_components::config;
use kai_engine::plugin::PluginSet;
use kai_replay::Options;
use kai_units::{Span, Timestamp, duration};

pub(super) struct Request {
    /// Replaces the configuration of the file.
    pub(super) config: Option<SchedulerConfig>,
    pub(super) now: Option<Timestamp>,
    pub(super) period: Option<Span>,
    pub(super) seed: Option<u64>,
    start_delay: Option<Span>,
    grace: Option<Span>,
    cycles: Option<u32>,
    span: Option<Span>,
    /// The output has a row for every cycle.
    whole_series: bool,
}

impl Request {
    pub(super) fn new(args: &args::Simulate, plugins: &PluginSet) -> Result<Self> {
        let files = args.files.len();
        if files > 1 && (args.html.is_some() || args.csv.is_some()) {
            bail!("--html and --csv take the report of one file, but {files} are given");
        }
        if args.json && args.csv.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            bail!("--json and --csv - both print; hint: give --csv a file");
        }
        let config = args.config.as_deref().map(|path| config::read_named(path, plugins)).transpose()?;
        Ok(Self {
            config,
            now: args.now.as_deref().map(str::parse).transpose().context("invalid --now")?,
            period: span("--period", args.period.as_deref(), Span(1))?,
            seed: args.seed,
            start_delay: span("--start-delay", args.start_delay.as_deref(), Span(0))?,
            grace: span("--grace", args.grace.as_deref(), Span(0))?,
            cycles: args.cycles,
            span: span("--for", args.span.as_deref(), Span(1))?,
            whole_series: args.csv.is_some(),
        })
    }

    /// Arguments override the options of the file.
    pub(super) fn options(&self, from_file: Options) -> Options {
        Options {
            period: self.period.unwrap_or(from_file.period),
            start_delay: self.start_delay.unwrap_or(from_file.start_delay),
            grace: self.grace.unwrap_or(from_file.grace),
            seed: self.seed.unwrap_or(from_file.seed),
            samples_max: if self.whole_series { None } else { from_file.samples_max },
            ..from_file
        }
    }

    /// The end of the simulation, if arguments or the file limit it.
    pub(super) fn end(&self, options: &Options, cycles_of_file: Option<u32>) -> Option<Timestamp> {
        let of_cycles = |cycles: u32| Span(options.period.0.saturating_mul(i64::from(cycles)));
        let span = self.span.or_else(|| self.cycles.or(cycles_of_file).map(of_cycles))?;
        Some(options.start + span)
    }
}

fn span(option: &str, text: Option<&str>, least: Span) -> Result<Option<Span>> {
    let Some(text) = text else { return Ok(None) };
    let span = duration::parse_extended(text).with_context(|| format!("invalid {option}"))?;
    if span < least {
        bail!("{option} cannot be `{text}`; hint: write a positive duration such as `1s`");
    }
    Ok(Some(span))
}

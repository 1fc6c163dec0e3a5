//! Options of `kai simulate`.

use std::path::PathBuf;

/// What `--help` says below the options.
const HELP: &str = "\
What happens between cycles:
  A bound pod runs after --start-delay, for as long as its annotation says, and has then finished. An evicted pod
  is gone after --grace and comes back under the same name, pending, to begin anew. Cycles in which nothing can
  have changed are skipped; they count, but cost nothing. Without --cycles and --for the simulation ends when
  nothing can change any more, and after 24 hours of virtual time at the latest.

Annotations on pods, or on a PodGroup for all its pods:
  kai.scheduler/simulated-duration: 30m      how long the pod runs; for ever when absent
  kai.scheduler/simulated-submit-at: 1h      when the pod is submitted, after the beginning
  kai.scheduler/simulated-restart: \"false\"   the pod does not come back when it is evicted

Files:
  Snapshots, as `kai plan` reads them. Where the configuration has a usageDBConfig, the usage of queues is measured
  over virtual time and fed back into their shares.
  Input of KAI's time-based fair share simulator: --csv gives its output.
  Requests to KAI's fair share simulator: --json gives its answer.

Examples:
  kai simulate cluster.zip --for 2h
  kai simulate examples/simulate-day.yaml --html report.html
  kai simulate examples/time-based.yaml --csv -
";

/// Options of `kai simulate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Simulate {
    /// Snapshot files (a zip archive, JSON or YAML), or input files of KAI's fair share simulators. Each is
    /// simulated by itself.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// End after so many cycles, skipped ones included.
    #[arg(long, value_name = "N", conflicts_with = "span", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cycles: Option<u32>,
    /// End after so much virtual time, such as 90s, 2h or 3d.
    #[arg(long = "for", id = "span", value_name = "DURATION")]
    pub(crate) span: Option<String>,
    /// From one cycle to the next; else as the file says, else 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) period: Option<String>,
    /// From the decision to bind a pod until it runs; else 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) start_delay: Option<String>,
    /// From the decision to evict a pod until it is gone; else 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// The beginning where the file has no time, such as 2026-01-31T08:00:00Z; else the clock's.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Seeds the names of shared GPUs; else as the file says.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// A scheduler configuration in place of the file's own.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print everything as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a report with charts to this file; it needs nothing but a browser.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the GPUs and the fair share of each queue in each cycle to this file; `-` prints them and nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

//! Options of `kai simulate`.

use std::path::PathBuf;

const HELP: &str = "\
What happens between cycles:
  A bound pod starts after --start-delay, runs for the duration in its annotation, and succeeds. An evicted pod is
  deleted after --grace and recreated as pending under the same name. Cycles in which nothing can have changed are
  skipped; they count, but are not planned. Without --cycles and --for, the simulation ends when nothing can change
  any more, and after 24 hours of virtual time at the latest.

Annotations on pods, or on a PodGroup for all its pods:
  kai.scheduler/simulated-duration: 30m      how long the pod runs; default: until it is evicted
  kai.scheduler/simulated-submit-at: 1h      when the pod is submitted, relative to the start
  kai.scheduler/simulated-restart: \"false\"   the pod is not recreated after an eviction

Files:
  Snapshots, as for `kai plan`. If the configuration has a usageDBConfig, the usage of queues is measured over virtual
  time and affects their fair share.
  Input of KAI's time-based fair share simulator: --csv prints its output format.
  Requests to KAI's fair share simulator: --json prints its response format, and --listen serves them at /simulate.

Examples:
  kai simulate cluster.zip --for 2h
  kai simulate examples/busy-morning.yaml --html report.html
  kai simulate examples/time-based.yaml --csv -
  kai simulate --listen 127.0.0.1:8080

Exit codes: 0 success, 2 error: a file cannot be read or written, invalid options.
";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Simulate {
    /// Snapshot files (a zip archive, JSON or YAML), or input files of KAI's fair share simulators. Each is
    /// simulated separately; `-` is standard input.
    #[arg(required_unless_present = "listen", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Serve KAI's fair share simulator over HTTP on this address, such as 127.0.0.1:8080, instead of reading files.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["files", "json", "html", "csv"])]
    pub(crate) listen: Option<String>,
    /// With --listen: allow pages of any origin to send requests.
    #[arg(long, requires = "listen")]
    pub(crate) enable_cors: bool,
    /// Number of cycles to simulate, including skipped ones.
    #[arg(long, value_name = "N", conflicts_with = "span", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cycles: Option<u32>,
    /// Virtual time to simulate, such as 90s, 2h or 3d.
    #[arg(long = "for", id = "span", value_name = "DURATION")]
    pub(crate) span: Option<String>,
    /// Time between two cycles; default: that of the file, or 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) period: Option<String>,
    /// Time between the bind of a pod and its start; default: 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) start_delay: Option<String>,
    /// Time between the eviction of a pod and its deletion; default: 1s.
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// Start time if the file has none, such as 2026-01-31T08:00:00Z; default: the current time.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Seed of the names of shared GPUs; default: that of the file.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Scheduler configuration that replaces the one in the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a self-contained HTML report with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write allocation and fair share of each queue in each cycle to this file; `-` prints only them.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

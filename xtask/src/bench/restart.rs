//! Restarts each component of a large cluster, then the API server under all of them: `cargo xtask bench restart`.
//!
//! The command builds `kai` and `xtask` in the release profile and re-executes the latter with the hidden subcommand
//! `bench restart-worker`. The server runs in a process of its own, beside one process for each component. The first run
//! creates the cluster and lets the components reconcile it; the state is kept in `target/bench/restart` for later runs.

mod cluster;
mod server;

use super::e2e::processes::{COMPONENTS, Child, is_ready};
use super::e2e::usage::{Usage, forget_peak};
use super::page::{self, Part};
use crate::repository::Repository;
use anyhow::{Context, Result, bail, ensure};
use cluster::Size;
use kai_clock::Stopwatch;
use serde::{Deserialize, Serialize};
use server::Server;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The cluster for which there is a target, and the targets.
const TARGET: (usize, usize) = (4_000, 140_000);
const READY_SECONDS_MAX: f64 = 15.0;
const PEAK_RATIO_MAX: f64 = 2.0;
/// How long the components may take to become ready or idle.
const PATIENCE: Duration = Duration::from_mins(20);
/// A component is idle when it uses less than one part in fifty of a core over this time.
const IDLE: Duration = Duration::from_secs(5);
const IDLE_CPU_SECONDS: f64 = 0.1;

/// Options of `cargo xtask bench restart`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Nodes of eight GPUs.
    #[arg(long, default_value_t = TARGET.0)]
    nodes: usize,
    /// Pods, pending ones included.
    #[arg(long, default_value_t = TARGET.1)]
    pods: usize,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// The part of the bench that runs in the release profile.
#[derive(clap::Args)]
pub(super) struct WorkerArgs {
    #[command(subcommand)]
    task: WorkerTask,
}

#[derive(clap::Subcommand)]
enum WorkerTask {
    /// Restart everything once; prints JSON.
    Measure {
        /// The binary `kai`.
        #[arg(long, value_name = "FILE")]
        binary: PathBuf,
        /// Folder of the state and the logs.
        #[arg(long, value_name = "FOLDER")]
        folder: PathBuf,
        #[arg(long)]
        nodes: usize,
        #[arg(long)]
        pods: usize,
    },
    /// Serve the state, or a new cluster; commands come by standard input.
    Serve {
        #[arg(long, value_name = "FILE")]
        state: PathBuf,
        #[arg(long)]
        nodes: usize,
        #[arg(long)]
        pods: usize,
    },
}

/// What the worker measures.
#[derive(Serialize, Deserialize)]
struct Measured {
    nodes: usize,
    pods: usize,
    components: Vec<Component>,
}

#[derive(Serialize, Deserialize)]
struct Component {
    name: String,
    /// From the start of the process until it is ready.
    ready_seconds: f64,
    /// Processor time from the start of the process until it is idle.
    cpu_seconds: f64,
    /// The most memory from the start of the process until it is idle.
    start_peak_mb: f64,
    /// Memory when it is idle.
    steady_mb: f64,
    /// The most memory while everything is listed again after a restart of the API server.
    relist_peak_mb: f64,
}

/// Builds, measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let build = ["build", "--release", "--locked", "--package", "xtask", "--package", "kai-cli", "--bins"];
    let built = repository.cargo().args(build).status().context("cannot run cargo")?;
    ensure!(built.success(), "the release build failed");
    let output = Command::new(target.join("release/xtask"))
        .args(["bench", "restart-worker", "measure", "--binary"])
        .arg(target.join("release/kai"))
        .arg("--folder")
        .arg(target.join("bench/restart"))
        .args(["--nodes", &args.nodes.to_string(), "--pods", &args.pods.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run the worker")?;
    ensure!(output.status.success(), "the worker ended with {}", output.status);
    let measured: Measured =
        serde_json::from_slice(&output.stdout).context("the worker printed invalid JSON")?;
    let (text, misses) = (measured.text(), measured.misses());
    println!("{text}");
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::Restart, &super::e2e::with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

pub(super) fn run_worker(args: &WorkerArgs) -> Result<()> {
    match &args.task {
        WorkerTask::Measure { binary, folder, nodes, pods } => {
            let size = Size { nodes: *nodes, pods: *pods };
            println!("{}", serde_json::to_string(&measure(binary, folder, size)?)?);
            Ok(())
        }
        WorkerTask::Serve { state, nodes, pods } => {
            let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
            runtime.block_on(server::run(state, Size { nodes: *nodes, pods: *pods }))
        }
    }
}

fn measure(binary: &Path, folder: &Path, size: Size) -> Result<Measured> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let state = folder.join(format!("state-{}-{}.jsonl", size.nodes, size.pods));
    let is_new = !state.exists();
    let mut server = Server::start(&state, size)?;
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).context("cannot write the kubeconfig")?;
    let start = |(name, flags)| Process::start(binary, &kubeconfig, folder, name, flags);
    // The default limits of the client would stretch the first reconciliation of a new cluster over hours.
    let start_new = |(name, flags): (_, &[_])| {
        Process::start(binary, &kubeconfig, folder, name, &[flags, &["--qps=-1"]].concat())
    };
    let mut processes = if is_new {
        COMPONENTS.into_iter().map(start_new).collect::<Result<Vec<Process>>>()?
    } else {
        COMPONENTS.into_iter().map(start).collect::<Result<Vec<Process>>>()?
    };
    for process in &processes {
        process.idle()?;
    }
    if is_new {
        eprintln!("the components have reconciled the cluster");
        server.command("save")?;
    }
    let mut components = Vec::new();
    for (process, component) in processes.iter_mut().zip(COMPONENTS) {
        process.kill();
        *process = start(component)?;
        process.idle()?;
        let usage = process.usage()?;
        eprintln!("`kai {}` was ready after {:.1} s", process.name, process.ready_seconds);
        components.push(Component {
            name: process.name.to_owned(),
            ready_seconds: process.ready_seconds,
            cpu_seconds: usage.cpu_seconds,
            start_peak_mb: usage.peak_mb,
            steady_mb: usage.resident_mb,
            relist_peak_mb: 0.0,
        });
    }
    if !is_new {
        // Whatever was written since is part of the state that the server restarts with.
        server.command("save")?;
    }
    for process in &processes {
        forget_peak(process.child.id())?;
    }
    server.command("restart")?;
    eprintln!("the API server was restarted");
    for (process, component) in processes.iter().zip(&mut components) {
        process.relisted()?;
        component.relist_peak_mb = process.usage()?.peak_mb;
    }
    Ok(Measured { nodes: size.nodes, pods: size.pods, components })
}

/// A component.
struct Process {
    name: &'static str,
    child: Child,
    port: u16,
    ready_seconds: f64,
}

impl Process {
    /// Starts a component and waits until it is ready.
    fn start(
        binary: &Path,
        kubeconfig: &Path,
        logs: &Path,
        name: &'static str,
        flags: &[&str],
    ) -> Result<Self> {
        let time = Stopwatch::start();
        let (child, port) = Child::component(binary, kubeconfig, logs, name, flags)?;
        while !is_ready(port) {
            ensure!(time.elapsed() < PATIENCE, "`kai {name}` does not become ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { name, child, port, ready_seconds: time.elapsed().as_secs_f64() })
    }

    fn kill(&mut self) {
        self.child.kill();
    }

    fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id()).with_context(|| format!("`kai {}` has ended", self.name))
    }

    /// Waits until the component has nothing to do.
    fn idle(&self) -> Result<()> {
        let time = Stopwatch::start();
        let mut before = self.usage()?;
        loop {
            std::thread::sleep(IDLE);
            let now = self.usage()?;
            if now.cpu_seconds - before.cpu_seconds < IDLE_CPU_SECONDS {
                return Ok(());
            }
            ensure!(time.elapsed() < PATIENCE, "`kai {}` does not become idle", self.name);
            before = now;
        }
    }

    /// Waits until the component has noticed that the server was away, is ready, and has nothing to do.
    fn relisted(&self) -> Result<()> {
        // A connection that is closed is noticed at once; reconnecting takes seconds at most.
        std::thread::sleep(Duration::from_secs(15));
        let time = Stopwatch::start();
        while !is_ready(self.port) {
            ensure!(time.elapsed() < PATIENCE, "`kai {}` does not become ready again", self.name);
            std::thread::sleep(Duration::from_millis(100));
        }
        self.idle()
    }
}

impl Measured {
    fn text(&self) -> String {
        let mut text = format!(
            "Each component is killed and started again beside an embedded API server with {} nodes and {} pods, then the \
             API server is restarted under all of them, after which every resource version has expired and all components \
             list everything at once. Separate processes on {} cores, default flags. Processor time and the first peak are \
             until the component is idle again. Written by `cargo xtask bench restart --write`.\n\n\
             | component | ready after s | CPU s | steady MB | peak MB of the start | of the relist | ratio |\n\
             |---|---|---|---|---|---|---|\n",
            self.nodes,
            self.pods,
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        );
        for Component { name, ready_seconds, cpu_seconds, start_peak_mb, steady_mb, relist_peak_mb } in
            &self.components
        {
            let ratio = start_peak_mb.max(*relist_peak_mb) / steady_mb;
            writeln!(
                text,
                "| {name} | {ready_seconds:.1} | {cpu_seconds:.1} | {steady_mb:.0} | {start_peak_mb:.0} | {relist_peak_mb:.0} | {ratio:.2}× |"
            )
            .expect("writing to a string");
        }
        text
    }

    fn misses(&self) -> Vec<String> {
        if (self.nodes, self.pods) != TARGET {
            return Vec::new();
        }
        let mut misses = Vec::new();
        for component in &self.components {
            let (name, seconds) = (&component.name, component.ready_seconds);
            if seconds > READY_SECONDS_MAX {
                misses.push(format!(
                    "{name} is ready after {seconds:.1} s, at most {READY_SECONDS_MAX} are wanted"
                ));
            }
            let ratio = component.relist_peak_mb.max(component.start_peak_mb) / component.steady_mb;
            if ratio > PEAK_RATIO_MAX {
                misses.push(format!(
                    "{name} needs {ratio:.2} times its steady memory, at most {PEAK_RATIO_MAX} are wanted"
                ));
            }
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_and_large_components_are_reported() {
        let component = |name: &str, ready_seconds, relist_peak_mb| Component {
            name: name.to_owned(),
            ready_seconds,
            cpu_seconds: 1.0,
            start_peak_mb: 150.0,
            steady_mb: 100.0,
            relist_peak_mb,
        };
        let components = vec![component("a", 15.0, 200.0), component("b", 16.0, 210.0)];
        let misses = Measured { nodes: TARGET.0, pods: TARGET.1, components }.misses();
        assert_eq!(
            misses,
            [
                "b is ready after 16.0 s, at most 15 are wanted",
                "b needs 2.10 times its steady memory, at most 2 are wanted",
            ]
        );
    }
}

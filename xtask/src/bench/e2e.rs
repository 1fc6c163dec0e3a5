//! Fills a cluster from end to end: 500 nodes of eight GPUs, one single-GPU pod for each GPU, until all are bound.
//!
//! The server is a real kube-apiserver, alone with its store, and every component is a process of its own; or, with
//! `--embedded`, all of it is one `kai up`. Whatever is written meanwhile and not by the load is by our components.

mod against;
mod load;
pub(super) mod processes;
mod report;
pub(super) mod scale;
pub(super) mod usage;
mod writes;

use super::page::{self, Part};
use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{ADMIN_TOKEN, ControlPlane, Controllers};
use load::Load;
use processes::{Binding, Processes, Topology};
pub(super) use report::with_misses;
use report::{Embedded, Latency, Real};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use usage::Usage;
use writes::Writes;

/// How long everything may take.
const PATIENCE: Duration = Duration::from_mins(15);
/// How often the server is asked whether there are still writes; its answer is large.
const PAUSE: Duration = Duration::from_secs(3);

/// Options of `cargo xtask bench e2e`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Nodes of eight GPUs; there is a pod for every GPU.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Pods of one GPU; default: one for every GPU.
    #[arg(long)]
    pods: Option<usize>,
    /// Then do the same with this scheduler, alone on a fresh control plane, and print both.
    #[arg(long, value_enum, conflicts_with = "embedded")]
    against: Option<Against>,
    /// Then do the same with all components in one process (`kai all`), and print what both need.
    #[arg(long, conflicts_with = "embedded")]
    combined: bool,
    /// On the embedded server: everything in one process.
    #[arg(long)]
    embedded: bool,
    /// With implicit groups: a pod that is alone in its group has no PodGroup.
    #[arg(long, conflicts_with = "write")]
    implicit_groups: bool,
    /// Take this binary, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Keep what the components log in this folder.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// A scheduler to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// That of Kubernetes, without its client limits.
    KubeScheduler,
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => super::measure::Kai::build(repository, &target)?.binary().to_owned(),
    };
    let scratch = args.logs.clone().unwrap_or_else(|| target.join("bench/e2e"));
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make `{}`", scratch.display()))?;
    let pods = args.pods.unwrap_or(8 * args.nodes);
    if pods > 8 * args.nodes {
        bail!("{pods} pods do not fit on {} nodes of eight GPUs", args.nodes);
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let (section, text, misses) = runtime.block_on(async {
        if args.embedded {
            let measured = embedded(&binary, &scratch, args.nodes, pods, up_flags(args)).await?;
            return Ok::<_, anyhow::Error>((Part::FilledEmbedded, measured.text(), measured.misses()));
        }
        let binding = if args.implicit_groups { Binding::WithoutGroups } else { Binding::Direct };
        let measured = real(repository, &binary, &scratch, args.nodes, pods, binding).await?;
        let mut text = measured.text();
        if args.combined {
            let mode = Mode { binding, topology: Topology::Combined };
            let one = filled(repository, &binary, &scratch, args.nodes, pods, mode).await?;
            text.push_str(&report::beside_combined(&measured, &one));
        }
        if let Some(Against::KubeScheduler) = args.against {
            let other = against::kube_scheduler(repository, &scratch, args.nodes, pods).await?;
            text.push_str(&measured.beside("kube-scheduler", &other));
        }
        Ok((Part::Filled, text, measured.misses()))
    })?;
    println!("{text}");
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, section, &with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

/// What runs while something is measured.
enum Started {
    Real(Box<ControlPlane>, Processes),
    Embedded(processes::Child),
}

/// A real kube-apiserver with nodes, without queues, and the components.
async fn start_real(
    repository: &Repository,
    binary: &Path,
    scratch: &Path,
    nodes: usize,
    binding: Binding,
    topology: Topology,
) -> Result<(Load, Started)> {
    let programs = kubernetes::programs(repository)?;
    let plane = ControlPlane::start(&programs, Controllers::None).await?;
    let load = Load::new(plane.server().clone(), ADMIN_TOKEN);
    load.install().await?;
    load.make_nodes(nodes).await?;
    let processes = Processes::start(binary, &plane.kubeconfig_file(), scratch, binding, topology)?;
    processes.ready().await?;
    Ok((load, Started::Real(Box::new(plane), processes)))
}

/// Single pods and gangs on the idle cluster.
const SINGLES: usize = 200;
const GANGS: usize = 5;
const GANG_PODS: usize = 64;

/// Waits on the idle cluster; gangs where there are enough GPUs.
async fn latency(load: &Load, nodes: usize) -> Result<Latency> {
    // What is read once and compiled at the first use is not measured.
    load.one_by_one(5).await?;
    let singles = load.one_by_one(SINGLES).await?;
    let gangs = if 8 * nodes >= GANG_PODS { load.gangs(GANGS, GANG_PODS).await? } else { Vec::new() };
    Ok(Latency { singles, gangs })
}

/// The writes so far, once there are no more.
async fn settled(load: &Load) -> Result<Writes> {
    let watch = Stopwatch::start();
    let mut writes = Writes::read(load).await?;
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = Writes::read(load).await?;
        if now == writes {
            return Ok(writes);
        }
        if watch.elapsed() > PATIENCE {
            bail!("there are still writes after {:.0} s", watch.elapsed().as_secs_f64());
        }
        writes = now;
    }
}

async fn real(
    repository: &Repository,
    binary: &Path,
    scratch: &Path,
    nodes: usize,
    pods: usize,
    binding: Binding,
) -> Result<Real> {
    let (load, started) =
        start_real(repository, binary, scratch, nodes, Binding::Requests, Topology::Separate).await?;
    load.make_queues(nodes).await?;
    let compatible = latency(&load, nodes).await?;
    drop(started);
    let mode = Mode { binding, topology: Topology::Separate };
    Ok(Real { compatible, ..filled(repository, binary, scratch, nodes, pods, mode).await? })
}

/// How the components run, and whether pods are bound by the scheduler.
#[derive(Clone, Copy)]
struct Mode {
    binding: Binding,
    topology: Topology,
}

/// Waits on the idle cluster and fills it.
async fn filled(
    repository: &Repository,
    binary: &Path,
    scratch: &Path,
    nodes: usize,
    pods: usize,
    mode: Mode,
) -> Result<Real> {
    let (load, started) = start_real(repository, binary, scratch, nodes, mode.binding, mode.topology).await?;
    let Started::Real(plane, processes) = &started else { bail!("the components are processes") };
    let [server, _] = plane.processes();
    load.make_queues(nodes).await?;
    let idle = latency(&load, nodes).await?;
    let writes_before = settled(&load).await?;
    let (server_before, ours_before) = (Usage::of(server)?, processes.usage()?);
    let filled = load.fill(pods, PATIENCE).await?;
    eprintln!("all are bound after {:.1} s", filled.seconds);
    let writes = settled(&load).await?;
    let server = Usage::of(server)?.since(&server_before);
    let ours = processes.usage()?.into_iter().zip(ours_before);
    let ours = ours.map(|((name, usage), (_, before))| (name, usage.since(&before))).collect();
    let writes = writes.since(&writes_before, pods);
    Ok(Real { nodes, filled, idle, compatible: Latency::default(), writes, ours, server })
}

fn up_flags(args: &Args) -> &'static [&'static str] {
    if args.implicit_groups { &["--implicit-groups"] } else { &[] }
}

/// `kai up` with two nodes in a rack.
async fn start_embedded(
    binary: &Path,
    scratch: &Path,
    nodes: usize,
    flags: &[&str],
) -> Result<(Load, Started)> {
    let (load, up) = start_up(binary, &scratch.join("kubeconfig"), nodes, flags).await?;
    Ok((load, Started::Embedded(up)))
}

/// `kai up` with these flags; the kubeconfig is written to this file.
async fn start_up(
    binary: &Path,
    kubeconfig: &Path,
    nodes: usize,
    flags: &[&str],
) -> Result<(Load, processes::Child)> {
    // One of an earlier run leads nowhere.
    let _ = std::fs::remove_file(kubeconfig);
    let child = Command::new(binary)
        .args(["up", "--port", "0", "--nodes", &format!("{nodes}x8")])
        .args(["--racks", &(nodes / 2).to_string(), "--kubeconfig"])
        .arg(kubeconfig)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run `{}`", binary.display()))?;
    let up = processes::Child::of("up", child);
    let watch = Stopwatch::start();
    let load = loop {
        if let Some(load) = Load::from_kubeconfig(kubeconfig)? {
            break load;
        }
        if watch.elapsed() > PATIENCE {
            bail!("`kai up` wrote no kubeconfig");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    Ok((load, up))
}

async fn embedded(
    binary: &Path,
    scratch: &Path,
    nodes: usize,
    pods: usize,
    flags: &[&str],
) -> Result<Embedded> {
    let (load, started) = start_embedded(binary, scratch, nodes, flags).await?;
    let Started::Embedded(up) = &started else { bail!("everything is one process") };
    load.make_queues(nodes).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = load.one_by_one(100).await?;
    let before = Usage::of(up.id())?;
    let filled = load.fill(pods, PATIENCE).await?;
    let usage = Usage::of(up.id())?.since(&before);
    Ok(Embedded { nodes, filled, idle, usage })
}

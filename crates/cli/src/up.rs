//! `kai up`: a complete cluster in this process.
//!
//! Starts the embedded API server with controllers and simulated nodes, installs what KAI's chart would, runs all
//! components, writes a kubeconfig, shows a status line, and saves the state at the end with `--save`.

mod admission;
mod detached;
mod existing_cluster;
mod kubeconfig;
mod nodes;
mod snapshot_import;
mod state;
mod status_line;
mod workload_kinds;

pub(crate) use detached::down;

use crate::args;
use crate::embedded;
use crate::progress::Progress;
use crate::top::{self, Left, State};
use crate::view::connection::{Connection, scheduler_options};
use anyhow::{Context, Result, anyhow};
use detached::Registered;
use kai_cache::ImplicitGroups;
use kai_components::signals::ShutdownSignals;
use kai_components::supervisor::Restarts;
use kai_components::{ComponentOptions, Extensions, install};
use kai_runtime::log::{self, Format};
use kai_scheduler::configuration::usage_source;
use kai_sim::cluster::Error;
use kai_sim::{Cluster, NodeGroup};
use kubeconfig::Kubeconfig;
use state::{Loaded, Saving};
use status_line::{Counts, StatusLine};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
pub(crate) use workload_kinds::Project;

/// Runs a cluster until Ctrl-C or SIGTERM.
pub(crate) fn run(args: &args::Up, extensions: &Extensions) -> Result<ExitCode> {
    if let Some(kubeconfig) = &args.for_real {
        return existing_cluster::run(args, kubeconfig, extensions);
    }
    let nodes = nodes::requested(args)?;
    let kubeconfig = kubeconfig_path(args.kubeconfig.as_deref());
    kubeconfig::check(&kubeconfig)?;
    if args.detach {
        detached::start(&kubeconfig)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.verbose > 0 {
        // As `-v` of the components: 3 logs changes, 4 decisions.
        log::start(log::level_of_verbosity(2 + i32::from(args.verbose.min(6))), Format::Text);
    }
    let saving = args.save.as_deref().map(Saving::prepare).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(run_cluster(args, extensions, nodes, kubeconfig, saving))?;
    Ok(ExitCode::SUCCESS)
}

/// The kubeconfig of the cluster; commands in other directories use the path that is printed.
fn kubeconfig_path(given: Option<&Path>) -> PathBuf {
    let path =
        given.map_or_else(|| kubeconfig::default_path(|name| std::env::var_os(name)), Path::to_path_buf);
    std::path::absolute(&path).unwrap_or(path)
}

async fn run_cluster(
    args: &args::Up,
    extensions: &Extensions,
    nodes: Vec<NodeGroup>,
    path: PathBuf,
    saving: Option<Saving>,
) -> Result<()> {
    let mut registered = args.detached.then(|| Registered::lock(&path)).transpose()?;
    let seed = random_seed()?;
    let restarts = Restarts::default();
    let nodes_of = |nodes: &[NodeGroup]| nodes.iter().map(|group| group.count).sum::<usize>();
    let what = match (&args.load, nodes_of(&nodes)) {
        (Some(file), _) => format!("loading `{}`", file.display()),
        (None, 1) => "starting a cluster of 1 node".to_owned(),
        (None, count) => format!("starting a cluster of {count} nodes"),
    };
    let progress = (!args.quiet).then(|| Progress::start(what));
    let (cluster, notes) = match &args.load {
        Some(file) => {
            let Loaded { state, notes } = state::load(file, seed).await?;
            let cluster = start(args, extensions, nodes, seed, Some(state), &restarts).await;
            (cluster.with_context(|| format!("cannot start from `{}`", file.display()))?, notes)
        }
        None => (start(args, extensions, nodes, seed, None, &restarts).await?, String::new()),
    };
    let mut signals = ShutdownSignals::listen()?;
    let listening = cluster.listening().context("the cluster serves its API")?;
    let kubeconfig = Kubeconfig::write(path, listening)?;
    let mut status = StatusLine::start(cluster.api()).await;
    drop(progress);
    if !args.quiet {
        crate::print(&(notes + &welcome(&status.counts(), kubeconfig.path(), &listening.url(), args)))?;
    }
    if let Some(registered) = &mut registered {
        registered.ready(&listening.url())?;
    }
    let is_stopped = shows_screen(args) && Box::pin(screen(args, extensions, kubeconfig.path())).await?;
    if !is_stopped {
        show_status(&mut status, &mut signals, &restarts, args.quiet).await;
    }
    status.finish();
    kubeconfig.remove();
    if let Some(registered) = registered {
        registered.remove();
    }
    let server = cluster.server().clone();
    cluster.stop().await;
    if let Some(saving) = saving {
        saving.write(&server)?;
        crate::print(&format!("state saved to {0}; hint: kai up --load {0}\n", saving.path().display()))?;
    }
    if args.quiet { Ok(()) } else { crate::print("cluster stopped\n") }
}

/// Prints restarts, and the counts of the cluster unless it is to be quiet, until a signal.
async fn show_status(
    status: &mut StatusLine,
    signals: &mut ShutdownSignals,
    restarts: &Restarts,
    is_quiet: bool,
) {
    let mut ticks = tokio::time::interval(status_line::REFRESH_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => return,
            _ = ticks.tick() => {
                for notice in restarts.take() {
                    status.print(&notice);
                }
                if !is_quiet {
                    status.show();
                }
            }
        }
    }
}

/// Whether the cluster is shown as `kai top` does, instead of a line per change.
fn shows_screen(args: &args::Up) -> bool {
    let is_interactive = crate::is_terminal(&std::io::stdout()) && crate::is_terminal(&std::io::stdin());
    is_interactive && !args.quiet && args.verbose == 0 && !args.detached
}

/// Shows the cluster until the screen is closed; `true` if the cluster is to be stopped too.
async fn screen(args: &args::Up, extensions: &Extensions, path: &Path) -> Result<bool> {
    let kubeconfig = args::Kubeconfig { kubeconfig: Some(path.to_owned()), context: None };
    let cluster = args::Cluster { kubeconfig, node_pool: None };
    let mut options = scheduler_options(&cluster);
    if let Some(path) = &args.config {
        options.config = kai_components::config::read(path, &extensions.scheduler)?;
    }
    let (connection, reader) = Connection::read(&cluster, options, &extensions.scheduler).await?;
    let left = top::show(State::up(), &cluster.kubeconfig, &connection, reader, None).await?;
    if left == Left::Closed {
        crate::print("The cluster is still running.\n")?;
    }
    Ok(left == Left::Interrupted)
}

/// Starts the cluster, and installs KAI's objects and components.
async fn start(
    args: &args::Up,
    extensions: &Extensions,
    nodes: Vec<NodeGroup>,
    seed: u64,
    state: Option<Vec<u8>>,
    restarts: &Restarts,
) -> Result<Cluster> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let mut builder = Cluster::builder().seed(seed).nodes(nodes).listen(address);
    let restored = state.is_some();
    if let Some(state) = state {
        builder = builder.load(state);
    }
    let mut cluster = builder.start().await.map_err(explain)?;
    install::install(cluster.api()).await?;
    workload_kinds::install(cluster.api(), &args.with).await?;
    if !args.no_scheduler {
        admission::install(&cluster).await?;
        // Pods of a loaded state were not seen by our webhooks, so those that share a GPU may not be prepared.
        let mut options = if restored { ComponentOptions::simulated() } else { ComponentOptions::default() };
        configure(&mut options, args, extensions)?;
        embedded::join_supervised(&mut cluster, &options, &extensions.scheduler, restarts);
    }
    Ok(cluster)
}

/// Adds the configuration file and the user's plugins to the options of the components.
fn configure(options: &mut ComponentOptions, args: &args::Up, extensions: &Extensions) -> Result<()> {
    if args.implicit_groups {
        options.set_implicit_groups(ImplicitGroups::OfAllPods);
    }
    if let Some(path) = &args.config {
        let mut config = kai_components::config::read_named(path, &extensions.scheduler)?;
        options.scheduler.usage = usage_source(&mut config)?;
        options.scheduler.config = config;
    }
    extensions.apply(options)
}

/// Adds a hint where the port cannot be used.
fn explain(error: Error) -> anyhow::Error {
    let Error::Listen(kai_apiserver::Error::Listen { address, source }) = error else { return error.into() };
    let hint = if source.kind() == ErrorKind::AddrInUse {
        "another process uses the port; select another with --port, or an ephemeral one with --port 0"
    } else {
        "select another with --port, or an ephemeral one with --port 0"
    };
    anyhow!("cannot listen on {address}: {source}; hint: {hint}")
}

fn welcome(counts: &Counts, kubeconfig: &Path, url: &str, args: &args::Up) -> String {
    let mut text = String::new();
    let Counts { nodes, gpus, .. } = counts;
    let path = kubeconfig.display();
    let scheduling = if args.no_scheduler {
        "No scheduler is running: pods stay Pending until another one binds them (docs/quick-start.md shows how)."
    } else {
        "All components run in this process. Pods without a schedulerName are assigned to kai-scheduler."
    };
    writeln!(
        text,
        "cluster with {nodes} simulated nodes and {gpus} GPUs is running in this process; state is kept in memory\n\
         kubeconfig: {path}\n\
         API: {url}\n\n\
         Use it from another terminal, after `export KUBECONFIG={path}`:\n  \
           kubectl get nodes -L topology.kubernetes.io/rack,nvidia.com/gpu.count\n  \
           kubectl get queues,priorityclasses\n  \
           kubectl create job hello --image=busybox\n  \
           kai queues\n  \
           kai jobs\n  \
           kai why hello\n\n\
         {scheduling}\n\
         Press Ctrl-C to stop.\n"
    )
    .expect("writing to a string");
    text
}

/// Seed of tokens, UIDs and names. It is secret: the administrator's token follows from it.
fn random_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let mut source =
        std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom for a secret token")?;
    source.read_exact(&mut bytes).context("cannot read /dev/urandom for a secret token")?;
    Ok(u64::from_le_bytes(bytes))
}

//! `kai up`: a whole cluster in this process, until somebody ends it.
//!
//! Starts the embedded API server with controllers and simulated nodes, installs what KAI's chart would, runs the
//! scheduler and its companions, tells how to reach it all, shows what goes on, and at the end writes the state where
//! that is wanted.

mod admission;
mod kubeconfig;
mod live;
mod real;
mod request;
mod revive;
mod state;

use crate::args;
use crate::embedded;
use anyhow::{Context, Result, anyhow};
use kai_components::signals::ShutdownSignals;
use kai_components::{ComponentOptions, install};
use kai_engine::plugin::PluginSet;
use kai_sim::cluster::Error;
use kai_sim::{Cluster, NodeGroup};
use kubeconfig::Kubeconfig;
use live::{Counts, Live};
use state::{Loaded, Saving};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a cluster until Ctrl-C or SIGTERM.
pub(crate) fn run(args: &args::Up, plugins: &PluginSet) -> Result<ExitCode> {
    if let Some(kubeconfig) = &args.for_real {
        return real::run(args, kubeconfig, plugins);
    }
    let nodes = request::nodes(args)?;
    let kubeconfig =
        args.kubeconfig.clone().unwrap_or_else(|| kubeconfig::default_path(|name| std::env::var_os(name)));
    // Whoever reads the path may stand in another folder.
    let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    kubeconfig::check(&kubeconfig)?;
    let saving = args.save.as_deref().map(Saving::prepare).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    runtime.block_on(live(args, plugins, nodes, kubeconfig, saving))?;
    Ok(ExitCode::SUCCESS)
}

async fn live(
    args: &args::Up,
    plugins: &PluginSet,
    nodes: Vec<NodeGroup>,
    path: PathBuf,
    saving: Option<Saving>,
) -> Result<()> {
    let seed = random_seed()?;
    let (cluster, notes) = match &args.load {
        Some(file) => {
            let Loaded { state, notes } = state::load(file, seed).await?;
            let cluster = start(args, plugins, nodes, seed, Some(state)).await;
            (cluster.with_context(|| format!("cannot begin with `{}`", file.display()))?, notes)
        }
        None => (start(args, plugins, nodes, seed, None).await?, String::new()),
    };
    let mut signals = ShutdownSignals::listen()?;
    let listening = cluster.listening().context("the cluster serves its API")?;
    let kubeconfig = Kubeconfig::write(path, listening)?;
    let mut live = Live::start(cluster.api()).await;
    crate::print(&(notes + &welcome(&live.counts(), kubeconfig.path(), &listening.url(), args)))?;
    let mut ticks = tokio::time::interval(live::PAUSE);
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => break,
            _ = ticks.tick() => live.show(),
        }
    }
    live.end();
    kubeconfig.remove();
    let server = cluster.server().clone();
    cluster.stop().await;
    if let Some(saving) = saving {
        saving.write(&server)?;
        crate::print(&format!("the state is in {0}; hint: kai up --load {0}\n", saving.path().display()))?;
    }
    crate::print("the cluster has ended\n")
}

/// Starts the cluster and installs what every cluster of ours has.
async fn start(
    args: &args::Up,
    plugins: &PluginSet,
    nodes: Vec<NodeGroup>,
    seed: u64,
    state: Option<Vec<u8>>,
) -> Result<Cluster> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let mut builder = Cluster::builder().seed(seed).nodes(nodes).listen(address);
    if let Some(state) = state {
        builder = builder.load(state);
    }
    let mut cluster = builder.start().await.map_err(explain)?;
    install::install(cluster.api()).await?;
    if !args.no_scheduler {
        admission::install(&cluster).await?;
        embedded::join(&mut cluster, &ComponentOptions::simulated(), plugins);
    }
    Ok(cluster)
}

/// Says what can be done about a cluster that does not start.
fn explain(error: Error) -> anyhow::Error {
    let Error::Listen(kai_apiserver::Error::Listen { address, source }) = error else { return error.into() };
    let hint = if source.kind() == ErrorKind::AddrInUse {
        "another process has the port; choose another with --port, or a free one with --port 0"
    } else {
        "choose another with --port, or a free one with --port 0"
    };
    anyhow!("cannot listen on {address}: {source}; hint: {hint}")
}

/// The first words: what there is, how to reach it, and what to try.
fn welcome(counts: &Counts, kubeconfig: &Path, url: &str, args: &args::Up) -> String {
    let mut text = String::new();
    let Counts { nodes, gpus, .. } = counts;
    let path = kubeconfig.display();
    let scheduling = if args.no_scheduler {
        "No scheduler runs: pods stay Pending until somebody binds them (docs/quick-start.md shows how)."
    } else {
        "The scheduler and its companions run in this process. Pods that name no scheduler get it."
    };
    writeln!(
        text,
        "a cluster of {nodes} simulated nodes with {gpus} GPUs runs in this process; it keeps everything in memory\n\
         kubeconfig: {path}\n\
         API: {url}\n\n\
         Try in another terminal, after `export KUBECONFIG={path}`:\n  \
           kubectl get nodes -L topology.kubernetes.io/rack,nvidia.com/gpu.count\n  \
           kubectl get queues,priorityclasses\n  \
           kubectl create job hello --image=busybox\n\n\
         {scheduling}\n\
         Ctrl-C ends it.\n"
    )
    .expect("writing to a string");
    text
}

/// What tokens, uids and names are drawn from: whoever could guess it could guess the administrator's token.
fn random_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let mut source =
        std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom for a secret token")?;
    source.read_exact(&mut bytes).context("cannot read /dev/urandom for a secret token")?;
    Ok(u64::from_le_bytes(bytes))
}

//! `kai snapshot`: takes a snapshot of a live cluster through the kubeconfig, anonymised on request.
//!
//! Everything is listed here, so that no scheduler has to run. The file has KAI's format.

use crate::args;
use crate::view::connection::{Connection, scheduler_options};
use anyhow::{Context as _, Result, bail};
use kai_cache::{Snapshot, snapshot};
use kai_components::config;
use kai_engine::Cycle;
use kai_engine::plugin::PluginSet;
use kai_scheduler::{Options, resources};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A snapshot is complete enough without discovery: an aggregated API may never answer.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &args::Snapshot, plugins: &PluginSet) -> Result<ExitCode> {
    if args.output.is_none() && crate::is_terminal(&std::io::stdout()) {
        bail!("a snapshot is a zip archive, which a terminal cannot show; hint: add `-o cluster.zip`");
    }
    let snapshot = match &args.from {
        Some(file) => snapshot::read_file(file)?,
        None => take(args, plugins)?,
    };
    match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            let file = create(path)?;
            write(args, &snapshot, file).with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Some(_) | None => {
            write(args, &snapshot, std::io::stdout().lock()).context("cannot write the snapshot")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Only the user may read the file: it names everything in the cluster.
fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).with_context(|| format!("cannot write `{}`", path.display()))
}

fn write(args: &args::Snapshot, snapshot: &Snapshot, output: impl Write) -> Result<()> {
    let mut output = BufWriter::new(output);
    if args.anonymise {
        let mut text = Vec::new();
        snapshot::write_json(snapshot, &mut text)?;
        let mut value: Value = serde_json::from_slice(&text)?;
        let names = snapshot::anonymise(&mut value);
        snapshot::write_zip_text(&serde_json::to_vec(&value)?, &mut output)?;
        if let Some(path) = &args.names {
            serde_json::to_writer_pretty(BufWriter::new(create(path)?), &names)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
    } else {
        snapshot::write_zip(snapshot, &mut output)?;
    }
    output.flush()?;
    Ok(())
}

fn take(args: &args::Snapshot, plugins: &PluginSet) -> Result<Snapshot> {
    let mut options = scheduler_options(&args.cluster);
    if let Some(path) = &args.config {
        options.config = config::read_named(path, plugins)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(list(args, &options, plugins))
}

async fn list(args: &args::Snapshot, options: &Options, plugins: &PluginSet) -> Result<Snapshot> {
    let (connection, reader) = Connection::read(&args.cluster, options.clone(), plugins).await?;
    let view = reader.view();
    let discovery = tokio::time::timeout(DISCOVERY_TIMEOUT, resources::snapshot_discovery(&connection.api));
    Ok(Snapshot {
        config: options.config.clone(),
        params: options.snapshot_params(),
        objects: view.store.objects().clone(),
        replay: snapshot::Replay::of(&view.store, Cycle { now: view.now, seed: options.seed }),
        discovery: discovery.await.ok().flatten(),
        findings: Vec::new(),
    })
}

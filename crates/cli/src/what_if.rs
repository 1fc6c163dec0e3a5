//! `kai what-if`: what workloads and changes would do, predicted by planning with them.
//!
//! Exit codes: 0 every submitted group would start, 1 one would not, 2 error. Nothing is written to the cluster.

mod changes;
mod submitted;
mod text;

use crate::args;
use crate::documents;
use crate::progress::Progress;
use crate::view::connection::{Connection, scheduler_options};
use anyhow::{Context as _, Result, bail};
use kai_cache::snapshot;
use kai_components::config;
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Cycle, Policy};
use kai_units::Timestamp;
use kai_view::what_if::{Question, Start, predict};
use kai_view::{ClusterView, Names};
use std::io::Write as _;
use std::process::ExitCode;

/// A cluster to plan with.
struct Source {
    view: ClusterView,
    policy: Policy,
    /// The policy of `--config`.
    new_policy: Option<Policy>,
    namespace: String,
}

pub(crate) fn run(args: &args::WhatIf, plugins: &PluginSet) -> Result<ExitCode> {
    if args.files.is_empty()
        && args.settings.is_empty()
        && args.drain.is_empty()
        && args.add_nodes.is_empty()
        && args.config.is_none()
    {
        bail!(
            "nothing would change; hint: name a manifest with -f, or use --set, --drain, --add-nodes or --config"
        );
    }
    let mut manifests = Vec::new();
    for file in &args.files {
        manifests.extend(documents::read(file)?);
    }
    let mut source = match &args.snapshot {
        Some(_) => of_snapshot(args, plugins)?,
        None => of_cluster(args, plugins)?,
    };
    let mut all = changes::read(args, &source.view)?;
    let namespace = args.namespace.as_deref().unwrap_or(&source.namespace);
    let submitted = submitted::read(&manifests, namespace, &source.view)?;
    for note in &submitted.notes {
        writeln!(anstream::stderr(), "note: {note}")?;
    }
    all.extend(submitted.changes);
    let question =
        Question { changes: &all, submitted: &submitted.groups, policy: source.new_policy.as_ref() };
    let progress = Progress::start("planning with the changes");
    let (answer, outcome) = predict(&mut source.view, &source.policy, &question);
    drop(progress);
    if args.json {
        crate::print(&(serde_json::to_string(&answer)? + "\n"))?;
    } else {
        crate::print(&text::render(&answer, &outcome, Names::of(source.view.store.objects())))?;
    }
    let all_start = answer.submitted.iter().all(|group| group.starts != Start::Not);
    Ok(if all_start { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_snapshot(args: &args::WhatIf, plugins: &PluginSet) -> Result<Source> {
    let path = args.snapshot.as_deref().context("a snapshot is named")?;
    let snapshot = snapshot::read_file(path)?;
    let params = snapshot.engine_params();
    let policy = Policy::resolve(&snapshot.config.engine, &params, plugins);
    let new_config = args.config.as_deref().map(|path| config::read_named(path, plugins)).transpose()?;
    let new_policy = new_config.map(|config| Policy::resolve(&config.engine, &params, plugins));
    let now = snapshot.replay.now.map_or_else(|| Timestamp(kai_clock::unix_micros()), |stamp| stamp.0);
    let mut store = snapshot.into_store();
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    let outcome = kai_engine::plan(&mut cluster, &policy, Cycle { now, seed: 0 });
    let view = ClusterView { store, cluster, outcome, now, staleness_grace: params.staleness_grace };
    Ok(Source { view, policy, new_policy, namespace: "default".to_owned() })
}

fn of_cluster(args: &args::WhatIf, plugins: &PluginSet) -> Result<Source> {
    let options = scheduler_options(&args.cluster);
    let new_config = args.config.as_deref().map(|path| config::read_named(path, plugins)).transpose()?;
    let new_policy = new_config.map(|config| Policy::resolve(&config.engine, &options.params, plugins));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(async {
        let (connection, reader) = Connection::read(&args.cluster, options, plugins).await?;
        let (view, policy) = reader.into_parts();
        Ok(Source { view, policy, new_policy, namespace: connection.namespace })
    })
}

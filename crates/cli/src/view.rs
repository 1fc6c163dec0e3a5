//! The commands that show a live cluster: `kai queues`, `kai jobs`, `kai nodes` and `kai why`.
//!
//! `kai_view` reads everything that the scheduler reads through the API and plans one cycle on it; this module prints its
//! view models as tables or JSON, once or repeatedly. No scheduler has to run.

pub(crate) mod age;
pub(crate) mod connection;
mod jobs;
pub(crate) mod nodes;
mod output;
mod queues;
mod selection;
mod usage;
pub(crate) mod why;
mod workload_names;

use crate::args::{self, OutputFormat};
use crate::top::{self, State};
use anyhow::{Context, Result};
use connection::Connection;
use kai_components::config;
use kai_components::signals::ShutdownSignals;
use kai_engine::plugin::PluginSet;
use kai_view::reader::Stale;
use kai_view::{ClusterReader, ClusterView};
use output::Output;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// How often watch events are applied.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum refreshes without a new plan: some verdicts change with time alone.
const REFRESHES_MAX: u32 = 5;

#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Queues(&'a args::Queues),
    Jobs(&'a args::Jobs),
    Nodes(&'a args::Nodes),
    Why(&'a args::Why),
}

/// A view model as text and as JSON.
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// Without ages and other values that change with time alone.
    json: Value,
    /// What is shown, each as TYPE/NAME.
    names: Vec<String>,
}

impl Rendered {
    fn new(text: String, model: &impl Serialize, names: Vec<String>) -> Result<Self> {
        Ok(Self { text, json: serde_json::to_value(model)?, names })
    }
}

/// How much of a table is shown.
#[derive(Clone, Copy)]
struct Extent {
    rows: RowLimit,
    is_wide: bool,
}

#[derive(Clone, Copy)]
enum RowLimit {
    Unlimited,
    /// As many as fit on a screen.
    Screen,
}

impl RowLimit {
    fn max(self) -> usize {
        match self {
            Self::Unlimited => usize::MAX,
            Self::Screen => crate::render::ROWS_MAX,
        }
    }
}

pub(crate) fn run(args: &args::View, subject: Subject<'_>, plugins: &PluginSet) -> Result<ExitCode> {
    let mut options = connection::scheduler_options(&args.cluster);
    if let Some(path) = &args.config {
        options.config = config::read_named(path, plugins)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(async {
        let (connection, mut reader) = Connection::read(&args.cluster, options, plugins).await?;
        if let Some(state) = screen(args, subject, &connection)? {
            // A name that does not exist is an error.
            render(subject, &connection, &mut reader, extent(args, RowLimit::Unlimited)).await?;
            top::show(state, &args.cluster.kubeconfig, &connection, reader).await.map(|_| ())
        } else if args.watch {
            watch(args, subject, &connection, &mut reader).await
        } else {
            let rendered =
                render(subject, &connection, &mut reader, extent(args, RowLimit::Unlimited)).await?;
            crate::print(&formatted(args, &rendered, reader.view())?)
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The screen of `--watch` on a terminal; `None` where text is printed, and where labels or workloads are selected, which the
/// screen has no filter for.
fn screen(args: &args::View, subject: Subject<'_>, connection: &Connection) -> Result<Option<State>> {
    let is_interactive = crate::is_terminal(&std::io::stdout()) && crate::is_terminal(&std::io::stdin());
    if !args.watch || format(args) != Format::Text || !is_interactive {
        return Ok(None);
    }
    Ok(match subject {
        Subject::Queues(args) => {
            let all = !args.usage && args.names.is_empty() && args.selector.selector.is_none();
            all.then(State::queues)
        }
        Subject::Jobs(args) => {
            let all = args.names.is_empty() && args.selector.selector.is_none();
            all.then(|| State::jobs(jobs::namespace_of(args, connection), args.queue.as_deref()))
        }
        Subject::Nodes(args) => {
            let names = selection::plain_names(&args.names, "Node")?;
            args.selector.selector.is_none().then(|| State::nodes(names))
        }
        Subject::Why(_) => None,
    })
}

/// Prints what has changed, until a signal.
async fn watch(
    args: &args::View,
    subject: Subject<'_>,
    connection: &Connection,
    reader: &mut ClusterReader,
) -> Result<()> {
    let mut output = if format(args) == Format::Text { Output::detect() } else { Output::lines() };
    // A name that does not exist at the start is an error; one that is deleted later is reported.
    let first = render(subject, connection, reader, extent(args, RowLimit::Screen)).await?;
    let mut shown = first.json.clone();
    output.show(&formatted(args, &first, reader.view())?)?;
    reader.watch(&connection.api);
    let mut signals = ShutdownSignals::listen()?;
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    let mut refreshes = 0;
    let mut is_stale = false;
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => return output.finish(),
            _ = ticks.tick() => {}
        }
        let has_events = reader.apply_events();
        report_staleness(reader, &mut is_stale)?;
        refreshes += 1;
        if !has_events && refreshes < REFRESHES_MAX {
            continue;
        }
        refreshes = 0;
        reader.plan();
        let next = render(subject, connection, reader, extent(args, RowLimit::Screen)).await;
        let next = next.unwrap_or_else(|error| {
            let text = crate::with_causes(&error) + "\n";
            Rendered { json: json!({ "error": text.trim_end() }), text, names: Vec::new() }
        });
        // A terminal is redrawn for the sake of ages; elsewhere only changes are printed.
        if next.json != shown || output.is_terminal() {
            output.show(&formatted(args, &next, reader.view())?)?;
            shown = next.json;
        }
    }
}

/// Says when the cluster can no longer be watched, and when it can again: what is printed would look current.
fn report_staleness(reader: &mut ClusterReader, is_stale: &mut bool) -> Result<()> {
    let stale = reader.stale();
    if stale.is_some() == *is_stale {
        return Ok(());
    }
    *is_stale = stale.is_some();
    let text = match stale {
        Some(Stale { since, why, .. }) => format!("warning: what is shown is stale since {since}: {why}"),
        None => "what is shown is current again".to_owned(),
    };
    writeln!(anstream::stderr(), "{text}")?;
    Ok(())
}

async fn render(
    subject: Subject<'_>,
    connection: &Connection,
    reader: &mut ClusterReader,
    extent: Extent,
) -> Result<Rendered> {
    let view = reader.view();
    match subject {
        Subject::Queues(args) if args.usage => usage::render(view, connection).await,
        Subject::Queues(args) => queues::render(view, connection, args, extent).await,
        Subject::Jobs(args) => jobs::render(view, connection, args, extent).await,
        Subject::Nodes(args) => nodes::render(view, connection, args, extent).await,
        Subject::Why(args) => why::render(reader, connection, args).await,
    }
}

fn extent(args: &args::View, rows: RowLimit) -> Extent {
    Extent { rows, is_wide: args.output == Some(OutputFormat::Wide) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// On one line.
    CompactJson,
    Json,
    Yaml,
    Names,
}

fn format(args: &args::View) -> Format {
    match args.output {
        // A watch prints one line for each change.
        Some(OutputFormat::Json) if args.watch => Format::CompactJson,
        Some(OutputFormat::Json) => Format::Json,
        Some(OutputFormat::Yaml) => Format::Yaml,
        Some(OutputFormat::Name) => Format::Names,
        None if args.json => Format::CompactJson,
        Some(OutputFormat::Wide) | None => Format::Text,
    }
}

fn formatted(args: &args::View, rendered: &Rendered, view: &ClusterView) -> Result<String> {
    let mut json = rendered.json.clone();
    json["at"] = Value::from(view.now.to_string());
    Ok(match format(args) {
        Format::Text => rendered.text.clone(),
        Format::CompactJson => format!("{json}\n"),
        Format::Json => serde_json::to_string_pretty(&json)? + "\n",
        Format::Yaml => {
            let separator = if args.watch { "---\n" } else { "" };
            format!("{separator}{}\n", serde_saphyr::to_string(&json)?.trim_end())
        }
        Format::Names => rendered.names.iter().flat_map(|name| [name.as_str(), "\n"]).collect(),
    })
}

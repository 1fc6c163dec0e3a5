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

use crate::args::{self, OutputFormat};
use crate::progress::Progress;
use crate::top::{self, State};
use anyhow::{Context, Result};
use connection::Connection;
use kai_components::config;
use kai_components::signals::ShutdownSignals;
use kai_engine::plugin::PluginSet;
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
            let text = Text { subject, extent: extent(args, RowLimit::Unlimited) };
            top::show(state, &args.cluster.kubeconfig, &connection, reader, Some(text)).await.map(|_| ())
        } else if args.watch {
            watch(args, subject, &connection, &mut reader).await
        } else {
            let progress = matches!(subject, Subject::Why(_)).then(|| Progress::start("searching hints"));
            let rendered =
                render(subject, &connection, &mut reader, extent(args, RowLimit::Unlimited)).await?;
            drop(progress);
            crate::print(&formatted(args, &rendered, reader.view())?)
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The screen of `--watch` on a terminal; `None` where text is printed. Where panes have no filter for what is selected, it
/// has the text of the command.
fn screen(args: &args::View, subject: Subject<'_>, connection: &Connection) -> Result<Option<State>> {
    let is_interactive = crate::is_terminal(&std::io::stdout()) && crate::is_terminal(&std::io::stdin());
    if !args.watch || format(args) != Format::Text || !is_interactive {
        return Ok(None);
    }
    let selected = |names: &[String], selector: &args::Selector| {
        let selector = selector.selector.as_ref().map(|selector| format!("-l {selector}"));
        names.iter().cloned().chain(selector).collect::<Vec<_>>().join(" ")
    };
    Ok(Some(match subject {
        Subject::Queues(args) if args.usage => State::text("kai queues", "--usage"),
        Subject::Queues(args) if args.names.is_empty() && args.selector.selector.is_none() => State::queues(),
        Subject::Queues(args) => State::text("kai queues", &selected(&args.names, &args.selector)),
        Subject::Jobs(args) if args.names.is_empty() && args.selector.selector.is_none() => {
            State::jobs(jobs::namespace_of(args, connection), args.queue.as_deref())
        }
        Subject::Jobs(args) => State::text("kai jobs", &selected(&args.names, &args.selector)),
        Subject::Nodes(args) if args.selector.selector.is_none() => {
            State::nodes(selection::plain_names(&args.names, "Node")?)
        }
        Subject::Nodes(args) => State::text("kai nodes", &selected(&args.names, &args.selector)),
        Subject::Why(args) => State::text("kai why", &selected(args.name.as_slice(), &args.selector)),
    }))
}

/// What a command prints.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    subject: Subject<'a>,
    extent: Extent,
}

impl Text<'_> {
    pub(crate) async fn render(&self, connection: &Connection, reader: &mut ClusterReader) -> Result<String> {
        Ok(render(self.subject, connection, reader, self.extent).await?.text)
    }
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
    let mut printed = formatted(args, &first, reader.view())?;
    output.show(&printed)?;
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
        let was_stale = is_stale;
        let stale = reader.stale();
        is_stale = stale.is_some();
        refreshes += 1;
        if let Some(stale) = stale {
            // What is stale stays as it was last known; a plan would only make it look current.
            let notice = format!("what is shown is stale since {}: {}", stale.since, stale.why);
            if output.is_terminal() {
                output.show(&format!("{notice}\n\n{printed}"))?;
            } else if !was_stale {
                writeln!(anstream::stderr(), "warning: {notice}")?;
            }
            continue;
        }
        if was_stale && !output.is_terminal() {
            writeln!(anstream::stderr(), "what is shown is current again")?;
        }
        if !has_events && !was_stale && refreshes < REFRESHES_MAX {
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
            printed = formatted(args, &next, reader.view())?;
            output.show(&printed)?;
            shown = next.json;
        }
    }
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

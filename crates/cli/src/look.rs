//! Looks at a live cluster: `kai queues`, `kai jobs`, `kai nodes` and `kai why`.
//!
//! Everything that the scheduler reads is read through the API into a store, one cycle is planned on it, and a view is
//! drawn from both: what a cycle would say now. Nothing is written, and no scheduler has to be there.

mod age;
mod connection;
mod eyes;
mod group;
mod jobs;
mod near;
mod nodes;
mod queues;
mod screen;
mod why;

use crate::args;
use anyhow::{Context, Result};
use connection::Connection;
use eyes::{Eyes, Moment};
use kai_components::config;
use kai_components::signals::ShutdownSignals;
use kai_engine::plugin::PluginSet;
use screen::Screen;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// From one look to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// So many looks at most go by without a plan: some verdicts change with time alone.
const LOOKS_MAX: u32 = 5;

/// What is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// All queues.
    Queues,
    /// Pod groups.
    Jobs(&'a args::Jobs),
    /// All nodes.
    Nodes,
    /// One group, pod or workload.
    Why(&'a str),
}

/// What is shown: the same for people and for programs.
struct View {
    text: String,
    /// Without anything that changes with time alone.
    json: Value,
}

/// How many rows a table may have.
#[derive(Clone, Copy)]
enum Rows {
    /// All there are.
    All,
    /// As many as people can look at.
    Some,
}

impl Rows {
    fn max(self) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Some => crate::render::ROWS_MAX,
        }
    }
}

/// Shows a subject, once or again and again.
pub(crate) fn run(look: &args::Look, subject: Subject<'_>, plugins: &PluginSet) -> Result<ExitCode> {
    let mut options = kai_scheduler::Options::default();
    if let Some(path) = &look.config {
        options.config = config::read(path)?;
    }
    if let Some(pool) = &look.node_pool {
        options.settings.node_pool_value.clone_from(pool);
        options.params.node_pool.clone_from(pool);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    runtime.block_on(async {
        let connection = Connection::open(look.kubeconfig.clone(), look.context.clone()).await?;
        let mut eyes = Eyes::open(&connection, options, plugins).await?;
        for warning in eyes.warnings() {
            writeln!(anstream::stderr(), "warning: {warning}")?;
        }
        if look.watch {
            watch(look, subject, &connection, &mut eyes).await
        } else {
            let view = view(subject, &connection, eyes.moment(), Rows::All).await?;
            crate::print(&printed(look, &view, eyes.moment()))
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what has changed, until somebody ends it.
async fn watch(
    look: &args::Look,
    subject: Subject<'_>,
    connection: &Connection,
    eyes: &mut Eyes,
) -> Result<()> {
    let mut screen = if look.json { Screen::for_programs() } else { Screen::for_people() };
    // What is not there at the beginning is a slip of the hand; what goes later is told.
    let first = view(subject, connection, eyes.moment(), Rows::Some).await?;
    let mut shown = first.json.clone();
    screen.show(&printed(look, &first, eyes.moment()))?;
    eyes.follow(connection);
    let mut signals = ShutdownSignals::listen()?;
    let mut ticks = tokio::time::interval(PAUSE);
    let mut unplanned = 0;
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => return screen.end(),
            _ = ticks.tick() => {}
        }
        let has_news = eyes.take_news();
        unplanned += 1;
        if !has_news && unplanned < LOOKS_MAX {
            continue;
        }
        unplanned = 0;
        eyes.plan();
        let next = view(subject, connection, eyes.moment(), Rows::Some).await.unwrap_or_else(|error| {
            let text = format!("{error:#}\n");
            View { json: json!({ "error": text.trim_end() }), text }
        });
        // On a terminal ages go on; elsewhere every line has to be worth its paper.
        if next.json != shown || screen.is_terminal() {
            screen.show(&printed(look, &next, eyes.moment()))?;
            shown = next.json;
        }
    }
}

async fn view(subject: Subject<'_>, connection: &Connection, moment: &Moment, rows: Rows) -> Result<View> {
    Ok(match subject {
        Subject::Queues => queues::view(moment, rows),
        Subject::Jobs(filter) => jobs::view(moment, filter, rows),
        Subject::Nodes => nodes::view(moment, rows),
        Subject::Why(name) => why::view(moment, connection, name).await?,
    })
}

/// The view as it was asked for.
fn printed(look: &args::Look, view: &View, moment: &Moment) -> String {
    if !look.json {
        return view.text.clone();
    }
    let mut json = view.json.clone();
    json["at"] = Value::from(moment.now.to_string());
    format!("{json}\n")
}

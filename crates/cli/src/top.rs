//! The live screen: `kai top` with queues, nodes and pending groups, and `--watch` of `kai queues`, `kai jobs` and
//! `kai nodes` with one of them.
//!
//! [`draw`] is a pure function from the model to the cells of the screen, and [`state`] one from keys to what is shown.
//! This module reads the cluster, and the keys from the terminal.

mod bar;
mod draw;
mod filter;
mod page;
mod panes;
mod state;
mod table;
mod terminal;

pub(crate) use state::State;

use crate::args;
use crate::view::Text;
use crate::view::connection::{Connection, scheduler_options};
use crate::view::why;
use anyhow::{Context, Result, bail};
use kai_components::config;
use kai_components::signals::ShutdownSignals;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_units::Timestamp;
use kai_view::ClusterReader;
use kai_view::overview::Overview;
use kai_view::why::Wanted;
use kai_view::workload::Workload;
use page::Page;
use state::Action;
use std::process::ExitCode;
use std::time::Duration;
use terminal::{Input, Screen};

/// How often watch events are applied.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum refreshes without a new plan: some verdicts change with time alone.
const REFRESHES_MAX: u32 = 5;

/// `kai top`.
pub(crate) fn run(args: &args::Top, plugins: &PluginSet) -> Result<ExitCode> {
    if !crate::is_terminal(&std::io::stdout()) || !crate::is_terminal(&std::io::stdin()) {
        bail!(
            "`kai top` needs a terminal; hint: `kai queues`, `kai nodes` and `kai jobs` print the same, with `--watch` \
             again after each change"
        );
    }
    let mut options = scheduler_options(&args.cluster);
    if let Some(path) = &args.config {
        options.config = config::read_named(path, plugins)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(async {
        let (connection, reader) = Connection::read(&args.cluster, options, plugins).await?;
        let state = State::top(args);
        show(state, &args.cluster.kubeconfig, &connection, reader, None).await.map(|_| ())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// How the user left the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Closed,
    /// By Ctrl-C, a signal, or the end of the terminal.
    Interrupted,
}

/// Shows the screen until it is quit or a signal arrives; one of text has that of a command.
pub(crate) async fn show(
    mut state: State,
    kubeconfig: &args::Kubeconfig,
    connection: &Connection,
    mut reader: ClusterReader,
    text: Option<Text<'_>>,
) -> Result<Left> {
    state.cluster = match context(kubeconfig) {
        Some(context) => format!("{} ({context})", connection.url),
        None => connection.url.clone(),
    };
    let text = text.filter(|_| state.is_text);
    if let (Some(text), Some(page)) = (text, &mut state.page) {
        page.set_text(&text.render(connection, &mut reader).await?);
    }
    reader.watch(&connection.api);
    let mut overview = Overview::of(reader.view(), None);
    let mut signals = ShutdownSignals::listen()?;
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    let mut refreshes = 0;
    let mut screen = Screen::open()?;
    loop {
        let now = Timestamp(kai_clock::unix_micros());
        screen
            .terminal
            .draw(|frame| draw::screen(frame.area(), frame.buffer_mut(), &overview, now, &mut state))
            .context("cannot draw on the terminal")?;
        tokio::select! {
            biased;
            () = signals.wait() => return Ok(Left::Interrupted),
            input = screen.input.recv() => match input {
                Some(Input::Key(key)) => match state.press(key, &overview) {
                    Action::None => {}
                    Action::Quit => return Ok(Left::Closed),
                    Action::Interrupt => return Ok(Left::Interrupted),
                    Action::Explain(group) => match explain(&mut reader, connection, &group).await {
                        Ok(page) => state.page = Some(page),
                        Err(error) => state.notice = Some(crate::with_causes(&error)),
                    },
                },
                Some(Input::Resized) => {}
                // The terminal is gone.
                None => return Ok(Left::Interrupted),
            },
            _ = ticks.tick() => {
                let has_events = reader.apply_events();
                refreshes += 1;
                let stale = reader.stale();
                let is_due = has_events || refreshes >= REFRESHES_MAX;
                // What is stale stays as it was last known; a plan would only make it look current.
                if stale.is_some() {
                    overview.stale = stale;
                } else if is_due || overview.stale.is_some() {
                    refreshes = 0;
                    reader.plan();
                    overview = Overview::of(reader.view(), None);
                    refresh_page(&mut state, &mut reader, connection, text).await;
                }
            }
        }
    }
}

async fn explain(reader: &mut ClusterReader, connection: &Connection, group: &str) -> Result<Page> {
    let (namespace, name) = group.split_once('/').unwrap_or_default();
    let key = Key::new(namespace, name);
    let wanted = Wanted::Object { kind: Some("podgroup".to_owned()), key: key.clone() };
    let rendered = why::explanation(reader, connection, &wanted).await?;
    Ok(Page::explanation(group, &title(reader, &key), &rendered.text))
}

/// The command with the same text.
fn title(reader: &ClusterReader, group: &Key) -> String {
    let known = reader.view().store.objects().pod_groups.get(group);
    let name = known.map_or_else(|| group.name.clone(), |group| Workload::of(group).to_string());
    format!("kai why -n {} {name}", group.namespace)
}

/// A text or an explanation that is open follows the cluster.
async fn refresh_page(
    state: &mut State,
    reader: &mut ClusterReader,
    connection: &Connection,
    text: Option<Text<'_>>,
) {
    let Some(page) = &mut state.page else { return };
    if let Some(text) = text {
        match text.render(connection, reader).await {
            Ok(text) => page.set_text(&text),
            // Such as that the object was deleted.
            Err(error) => page.set_text(&crate::with_causes(&error)),
        }
        return;
    }
    let Some(group) = page.explains.clone() else { return };
    match explain(reader, connection, &group).await {
        Ok(text) => page.replace(text),
        Err(error) => state.notice = Some(crate::with_causes(&error)),
    }
}

/// Name of the kubeconfig's context.
fn context(args: &args::Kubeconfig) -> Option<String> {
    use kube::config::Kubeconfig;
    if args.context.is_some() {
        return args.context.clone();
    }
    let file = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    file.ok()?.current_context
}

#[cfg(test)]
mod tests;

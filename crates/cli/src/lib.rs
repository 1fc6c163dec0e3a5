//! The command line of `kai` as a library, so that a binary with further plugins takes three lines.
//!
//! Commands return text or an error; only [`run`] knows exit codes and output streams.

mod args;
mod completion;
mod crds;
mod documents;
#[cfg(feature = "embedded")]
pub mod embedded;
mod group;
mod hook;
mod invocation;
mod lint;
mod man;
mod migrate;
mod plan;
mod progress;
mod render;
mod schema;
mod simulate;
mod snapshot;
mod terminal;
mod top;
#[cfg(feature = "embedded")]
mod up;
mod version;
mod view;
mod what_if;

pub use kai_components::Extensions;

use anyhow::Result;
use args::{Args, Command};
use invocation::Invocation;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Exit code for invalid arguments, files and objects.
const BAD_INPUT: u8 = 2;

/// Runs a command line with the plugins that a configuration may name.
///
/// Exit codes: 0 success, 1 the audit found a violation, `kai lint` an error, `kai group` a workload that cannot be
/// grouped or `kai migrate check` something unsupported, 2 invalid input.
pub fn run(args: impl IntoIterator<Item = OsString>, extensions: &Extensions) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match completion::answer(&args) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        // A shell that waits for candidates shows no errors.
        Err(_) => return ExitCode::from(BAD_INPUT),
    }
    let invoked = Invocation::of(&args);
    let args = match Args::read(args) {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { BAD_INPUT } else { 0 };
            // A closed output is not an error.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match perform(args, extensions) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "error: {}", invoked.text(&with_causes(&error)));
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// An error with its causes. One that its effect has quoted is left out: libraries differ in whether they do that.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

fn perform(args: Args, extensions: &Extensions) -> Result<ExitCode> {
    let plugins = &extensions.scheduler;
    match args.command {
        #[cfg(feature = "embedded")]
        Command::Up(args) => up::run(&args, extensions),
        #[cfg(feature = "embedded")]
        Command::Down(args) => up::down(&args).map(|()| ExitCode::SUCCESS),
        Command::Component(component) => component.run(extensions).map(|()| ExitCode::SUCCESS),
        Command::Queues(args) => view::run(&args.view, view::Subject::Queues(&args), plugins),
        Command::Jobs(args) => view::run(&args.view, view::Subject::Jobs(&args), plugins),
        Command::Nodes(args) => view::run(&args.view, view::Subject::Nodes(&args), plugins),
        Command::Top(args) => top::run(&args, plugins),
        Command::Why(args) => view::run(&args.view, view::Subject::Why(&args), plugins),
        Command::WhatIf(args) => what_if::run(&args, plugins),
        Command::Plan(args) => plan::run(&args, plugins),
        Command::Simulate(args) => simulate::run(&args, plugins),
        Command::Snapshot(args) => snapshot::run(&args, plugins),
        Command::Lint(args) => lint::run(&args, plugins),
        Command::Group(args) => group::run(&args),
        Command::Migrate(args) => migrate::run(&args, plugins),
        Command::Crds(args) => printed(&crds::run(&args)?),
        Command::Version(args) => printed(&version::text(&args)?),
        Command::Completion(args) => printed(&completion::script(&args)?),
        Command::Man(args) => man::write(&args).map(|()| ExitCode::SUCCESS),
        Command::Schema(args) => printed(&schema::text(&args)?),
        Command::ScalingPod => Ok(ExitCode::SUCCESS),
        Command::Hook(args) => printed(&hook::run(&args)?),
    }
}

fn printed(text: &str) -> Result<ExitCode> {
    print(text).map(|()| ExitCode::SUCCESS)
}

/// Prints to standard output, without colours where it is not a terminal. A closed pipe is not an error.
fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether output to a stream is interactive: redrawn in place, or a prompt that can be answered.
fn is_terminal(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
}

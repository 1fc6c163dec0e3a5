//! The command line of `kai`, as a library: a binary of one's own is three lines with one plugin more.
//!
//! Arguments become a request, a request becomes text or an error, and only [`run`] knows about exit codes and
//! where text goes.

mod args;
mod crds;
#[cfg(feature = "embedded")]
pub mod embedded;
mod plan;
mod render;
mod simulate;
#[cfg(feature = "embedded")]
mod up;
mod view;

use anyhow::Result;
use args::{Args, Command};
use kai_engine::plugin::PluginSet;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

/// What the user gave cannot be used: arguments, files, objects.
const BAD_INPUT: u8 = 2;

/// Runs a command line. The plugins are those that a configuration may name.
///
/// Exit codes: 0 when the command did its work, 1 when an audit found something, 2 when the input cannot be used.
pub fn run(args: impl IntoIterator<Item = OsString>, plugins: &PluginSet) -> ExitCode {
    let args = match Args::read(args) {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { BAD_INPUT } else { 0 };
            // Nothing can be done for a reader that has gone away.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match perform(args, plugins) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "error: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn perform(args: Args, plugins: &PluginSet) -> Result<ExitCode> {
    match args.command {
        #[cfg(feature = "embedded")]
        Command::Up(args) => up::run(&args, plugins),
        Command::Component(component) => component.run(plugins).map(|()| ExitCode::SUCCESS),
        Command::Queues(args) => view::run(&args.view, view::Subject::Queues, plugins),
        Command::Jobs(args) => view::run(&args.view, view::Subject::Jobs(&args), plugins),
        Command::Nodes(args) => view::run(&args.view, view::Subject::Nodes, plugins),
        Command::Why(args) => view::run(&args.view, view::Subject::Why(&args.name), plugins),
        Command::Plan(args) => plan::run(&args, plugins),
        Command::Simulate(args) => simulate::run(&args, plugins),
        Command::Crds(args) => {
            print(&crds::run(&args)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints to standard output, without colour where that is no terminal. A reader that stops early is no error.
fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether standard output is redrawn in place and coloured.
fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

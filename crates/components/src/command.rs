//! The `kai COMPONENT` subcommands, made from the component table.

use crate::extensions::Extensions;
use crate::flags::{self, go};
use crate::part::Part;
use crate::spec::{Component, ComponentSpec};
use anyhow::{Context, Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::pin::Pin;
use tokio::runtime::Runtime;

/// A parsed command line that runs as a process.
pub trait Program: Debug + Send + Sync {
    /// Runs until a signal ends the process, or until it cannot continue.
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a>;

    /// The component with its options, to run alone or beside others.
    fn part(&self, _extensions: &Extensions) -> Result<Part> {
        bail!("it runs only in a process of its own")
    }

    /// Why the process would end at once: values that its flags accept and it does not.
    fn check(&self, _extensions: &Extensions) -> Result<()> {
        Ok(())
    }
}

pub type ProgramFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// What a program gets besides its flags.
pub struct ProgramContext {
    pub extensions: Extensions,
    /// Flags that were given and have no effect.
    pub ignored_flags: Vec<String>,
}

/// The flags type of a component, type-erased for the table.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine {
    augment: fn(Command) -> Command,
    pub(crate) parse: fn(&ArgMatches) -> Result<Box<dyn Program>, clap::Error>,
}

impl CommandLine {
    pub const fn of<F: clap::Args + Program + 'static>() -> Self {
        Self {
            augment: F::augment_args,
            parse: |matches| F::from_arg_matches(matches).map(|flags| Box::new(flags) as Box<dyn Program>),
        }
    }
}

/// A component as it was named on the command line.
#[derive(Debug)]
pub struct ComponentCommand {
    pub spec: &'static ComponentSpec,
    program: Box<dyn Program>,
    ignored_flags: Vec<String>,
}

impl ComponentCommand {
    /// Runs the component until a signal ends the process, or until it cannot continue.
    pub fn run(self, extensions: &Extensions) -> Result<()> {
        let runtime = runtime(self.spec.component).context("cannot start threads")?;
        let context = ProgramContext { extensions: extensions.clone(), ignored_flags: self.ignored_flags };
        runtime.block_on(self.program.run(&context))
    }
}

fn runtime(component: Component) -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = component.threads() {
        builder.worker_threads(threads);
    }
    builder.enable_all().build()
}

impl Subcommand for ComponentCommand {
    fn augment_subcommands(command: Command) -> Command {
        crate::COMPONENTS.iter().fold(command, |command, spec| command.subcommand(subcommand(spec)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}

impl FromArgMatches for ComponentCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let spec = find(name).ok_or_else(missing)?;
        let program = (spec.command_line.parse)(matches)?;
        Ok(Self { spec, program, ignored_flags: ignored_flags(spec, matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adapts a command line that starts a component: flags in Go's forms are rewritten, and of a flag that is given twice
/// the last value counts, as in Go. Other command lines stay as they are.
pub fn adapt(mut command: Command, mut typed: Vec<OsString>) -> (Command, Vec<OsString>) {
    let spec = typed.get(1).and_then(|name| find(name.to_str()?));
    if let Some(spec) = spec {
        command = command.mut_subcommand(spec.command, |component| component.args_override_self(true));
        let is_component = |word: &OsStr| word.to_str().is_some_and(|word| find(word).is_some());
        // What follows the name of a component are flags of that.
        let (rewritten, rest) = go::rewrite_until(&subcommand(spec), typed.split_off(2), is_component);
        typed.extend(rewritten.into_iter().chain(rest));
    }
    (command, typed)
}

/// Parses the arguments of a component.
pub(crate) fn parse<'a>(
    spec: &ComponentSpec,
    args: impl Iterator<Item = &'a str>,
) -> Result<Box<dyn Program>, clap::Error> {
    let command = subcommand(spec).args_override_self(true);
    let args = go::rewrite(&command, args.map(OsString::from).collect());
    let typed = std::iter::once(OsString::from(spec.command)).chain(args);
    (spec.command_line.parse)(&command.try_get_matches_from(typed)?)
}

/// The message of an error of the command line, without usage.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

pub(crate) fn find(command: &str) -> Option<&'static ComponentSpec> {
    crate::COMPONENTS.iter().find(|spec| spec.command == command || spec.aliases.contains(&command))
}

const EXIT_CODES: &str =
    "Exit codes: 0 a signal ended it, 2 error: invalid flags, or it cannot start or continue.";

pub(crate) fn subcommand(spec: &ComponentSpec) -> Command {
    let command = Command::new(spec.command).about(spec.about).aliases(spec.aliases);
    let mut command = (spec.command_line.augment)(command).about(spec.about).after_help(EXIT_CODES);
    if let Some(port) = spec.ports.health {
        command = command.mut_arg("health_probe_bind_address", |arg| arg.default_value(format!(":{port}")));
    }
    command
}

/// Flags without effect that were given; their help text marks them.
fn ignored_flags(spec: &ComponentSpec, matches: &ArgMatches) -> Vec<String> {
    let command = subcommand(spec);
    let given = command.get_arguments().filter(|arg| {
        arg.get_help().is_some_and(|help| help.to_string() == flags::NO_EFFECT)
            && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    });
    given.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_that_run_on_every_node_have_one_thread_whatever_its_cores() {
        for component in [Component::NumaExporter, Component::ResourceReservation] {
            assert_eq!(runtime(component).unwrap().metrics().num_workers(), 1, "{component:?}");
        }
    }

    fn ignored(typed: &[&str]) -> Vec<String> {
        let command = ComponentCommand::augment_subcommands(Command::new("kai"));
        let typed = ["kai"].iter().chain(typed).map(OsString::from).collect();
        let (command, typed) = adapt(command, typed);
        let matches = command.try_get_matches_from(typed).expect("the flags are known");
        ComponentCommand::from_arg_matches(&matches).expect("the flags are well-formed").ignored_flags
    }

    #[test]
    fn given_flags_without_effect_are_named() {
        assert_eq!(
            ignored(&["scheduler", "-zap-time-encoding=nano", "--pyroscope-address=a", "-qps=5"]),
            ["zap-time-encoding", "pyroscope-address"]
        );
        assert_eq!(ignored(&["binder", "--scheduler-name", "a"]), ["scheduler-name"]);
        assert!(ignored(&["pod-grouper", "--scheduler-name", "a"]).is_empty());
    }

    #[test]
    fn limits_of_requests_are_those_of_kai_and_each_can_be_given_alone() {
        let parsed = |typed: &[&str]| {
            let command = ComponentCommand::augment_subcommands(Command::new("kai"));
            let typed = ["kai"].iter().chain(typed).map(OsString::from).collect();
            let (command, typed) = adapt(command, typed);
            let matches = command.try_get_matches_from(typed).expect("the flags are known");
            format!("{:?}", ComponentCommand::from_arg_matches(&matches).expect("the flags are well-formed"))
        };
        for spec in crate::COMPONENTS {
            assert!(parsed(&[spec.command]).contains("qps: 50.0, burst: 300,"), "{}", spec.command);
            assert!(parsed(&[spec.command, "-burst", "7"]).contains("qps: 50.0, burst: 7,"));
            assert!(parsed(&[spec.command, "-qps", "-1"]).contains("qps: -1.0, burst: 300,"));
        }
    }

    #[test]
    fn default_ports_of_flags_are_those_of_the_table() {
        let default = |spec: &ComponentSpec, flag: &str| {
            let command = subcommand(spec);
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag))?;
            Some(arg.get_default_values().first()?.to_str()?.trim_start_matches(':').to_owned())
        };
        for spec in crate::COMPONENTS {
            let port = |port: Option<u16>| port.map(|port| port.to_string());
            assert_eq!(default(spec, "metrics-bind-address"), port(Some(spec.ports.metrics)));
            // KAI's admission has another name for it.
            let webhook = default(spec, "webhook-bind-address").or_else(|| default(spec, "webhook-addr"));
            assert_eq!(webhook, port(spec.ports.webhook));
            assert_eq!(default(spec, "plugin-server-port"), port(spec.ports.plugin_server));
            assert_eq!(default(spec, "health-probe-bind-address"), port(spec.ports.health.or(Some(0))));
        }
    }
}

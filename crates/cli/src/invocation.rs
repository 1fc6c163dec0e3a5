//! The name under which the program was started: `kai`, or `kubectl-kai` as a plugin of kubectl.

use clap::Command;
use std::ffi::OsString;
use std::path::Path;

const PLUGIN: &str = "kubectl-kai";
/// What kubectl starts to complete the arguments of the plugin.
const PLUGIN_COMPLETION: &str = "kubectl_complete-kai";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    Kai,
    Plugin,
    PluginCompletion,
}

impl Invocation {
    pub(crate) fn of(args: &[OsString]) -> Self {
        let program = args.first().and_then(|program| Path::new(program).file_stem()?.to_str());
        match program {
            Some(PLUGIN) => Self::Plugin,
            Some(PLUGIN_COMPLETION) => Self::PluginCompletion,
            Some(_) | None => Self::Kai,
        }
    }

    /// The command line with the name that the user typed in usage and help texts.
    pub(crate) fn name(self, command: Command) -> Command {
        match self {
            Self::Kai => command,
            Self::Plugin | Self::PluginCompletion => renamed(command).bin_name("kubectl kai"),
        }
    }

    /// A text with the name that the user typed in its commands.
    pub(crate) fn text(self, text: &str) -> String {
        match self {
            Self::Kai => text.to_owned(),
            Self::Plugin | Self::PluginCompletion => plugin_text(text),
        }
    }
}

fn plugin_text(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = line.replace("`kai ", "`kubectl kai ").replace("| kai ", "| kubectl kai ");
        match line.strip_prefix("  kai ") {
            Some(rest) => all.extend(["  kubectl kai ", rest]),
            None => all.push_str(&line),
        }
    }
    all
}

fn renamed(mut command: Command) -> Command {
    let renamed_text =
        |text: Option<&clap::builder::StyledStr>| text.map(|text| plugin_text(&text.to_string()));
    if let Some(text) = renamed_text(command.get_about()) {
        command = command.about(text);
    }
    if let Some(text) = renamed_text(command.get_after_help()) {
        command = command.after_help(text);
    }
    if let Some(text) = renamed_text(command.get_after_long_help()) {
        command = command.after_long_help(text);
    }
    command = command.mut_args(|arg| match renamed_text(arg.get_help()) {
        Some(text) => arg.help(text),
        None => arg,
    });
    let names: Vec<String> = command.get_subcommands().map(|of| of.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, renamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_recognised_by_the_name_of_the_program() {
        let of = |program: &str| Invocation::of(&[OsString::from(program)]);
        assert_eq!(of("/usr/local/bin/kubectl-kai"), Invocation::Plugin);
        assert_eq!(of("kubectl_complete-kai"), Invocation::PluginCompletion);
        assert_eq!(of("target/debug/kai"), Invocation::Kai);
        assert_eq!(Invocation::of(&[]), Invocation::Kai);
    }

    #[test]
    fn commands_in_texts_are_renamed_and_nothing_else() {
        let text = "hint: `kai jobs` lists all; kai-scheduler\n  kai why x   as `kai why`\nkubectl get x | kai group -\n";
        assert_eq!(
            Invocation::Plugin.text(text),
            "hint: `kubectl kai jobs` lists all; kai-scheduler\n  kubectl kai why x   as `kubectl kai why`\n\
             kubectl get x | kubectl kai group -\n"
        );
        assert_eq!(Invocation::Kai.text(text), text);
    }
}

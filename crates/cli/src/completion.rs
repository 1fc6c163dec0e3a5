//! Completion of commands, options and names: `kai completion SHELL` prints a script that asks this program at each Tab.
//!
//! Names are read from the cluster that the typed command would read, within a second and without a word on failure.

use crate::args::{Args, Completion, Shell};
use crate::invocation::Invocation;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::connect;
use kai_runtime::kind::{NAMESPACE, NODE, ResourceKind};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// The variable with which the scripts ask for candidates.
const VARIABLE: &str = "KAI_COMPLETE";
/// A shell waits for the candidates.
const TIMEOUT: Duration = Duration::from_secs(1);
/// What kubectl shall do besides: `ShellCompDirectiveNoFileComp`.
const NO_FILES: u32 = 4;
/// More names than these do not help.
const NAMES_MAX: usize = 500;

/// What an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Queues,
    Workloads,
    Nodes,
    Namespaces,
    Contexts,
}

/// Completes the values of an argument with names of the cluster.
pub(crate) fn of(names: Names) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let known = known(names, &Options::of(std::env::args()), typed.contains('/'));
        let matching = known.into_iter().filter(|name| name.starts_with(&*typed)).take(NAMES_MAX);
        matching.map(CompletionCandidate::new).collect::<Vec<_>>()
    })
}

/// The script for a shell.
pub(crate) fn script(args: &Completion) -> Result<String> {
    let shell = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
    };
    let shells = Shells::builtins();
    let completer = shells.completer(shell).context("the shell is supported")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "kai", "kai", "kai", &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// Answers a script, or kubectl; `false` where the program was started for something else.
pub(crate) fn answer(args: &[OsString]) -> Result<bool> {
    let folder = std::env::current_dir().ok();
    if Invocation::of(args) != Invocation::PluginCompletion {
        let scripts = CompleteEnv::with_factory(Args::command).var(VARIABLE);
        return Ok(scripts.try_complete(args.iter().cloned(), folder.as_deref())?);
    }
    // kubectl passes the words after the name of the plugin, the last one incomplete, and reads what cobra prints.
    let last = args.len().saturating_sub(1);
    let candidates =
        clap_complete::engine::complete(&mut Args::command(), args.to_vec(), last, folder.as_deref())?;
    let mut text = String::new();
    for candidate in candidates {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        let gap = if help.is_empty() { "" } else { "\t" };
        writeln!(text, "{}{gap}{help}", candidate.get_value().to_string_lossy())?;
    }
    writeln!(text, ":{NO_FILES}")?;
    crate::print(&text)?;
    Ok(true)
}

/// Options of the typed command that select a cluster and a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
    all_namespaces: bool,
}

impl Options {
    fn of(words: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let mut value =
                || value.clone().or_else(|| words.peek().cloned()).filter(|value| !value.is_empty());
            match name.as_str() {
                "--kubeconfig" => options.kubeconfig = value().map(PathBuf::from),
                "--context" => options.context = value(),
                "--namespace" | "-n" => options.namespace = value(),
                "--all-namespaces" | "-A" => options.all_namespaces = true,
                _ => {}
            }
        }
        options
    }
}

fn known(names: Names, options: &Options, with_types: bool) -> BTreeSet<String> {
    if names == Names::Contexts {
        return connect::contexts(options.kubeconfig.as_ref()).into_iter().collect();
    }
    let (sender, receiver) = mpsc::channel();
    let (kubeconfig, context) = (options.kubeconfig.clone(), options.context.clone());
    let (namespace, all) = (options.namespace.clone(), options.all_namespaces);
    // A kubeconfig may start a program for its credentials, which blocks.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let found = runtime.block_on(async {
            let config = connect::config(kubeconfig, context).await.ok()?;
            let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
            let api = Api::new(connect::client(config).ok()?, "kai-cli");
            let (kind, namespace): (&ResourceKind, &str) = match names {
                Names::Queues | Names::Contexts => (&QUEUE, ""),
                Names::Workloads => (&POD_GROUP, if all { "" } else { &namespace }),
                Names::Nodes => (&NODE, ""),
                Names::Namespaces => (&NAMESPACE, ""),
            };
            let path = format!("{}?limit={NAMES_MAX}", kind.path(namespace));
            let list = api.send("GET", &path, None).await.ok()?;
            let items = list.get("items")?.as_array()?;
            let name = |item: &Value| match names {
                Names::Workloads => workload(item, with_types),
                Names::Queues | Names::Nodes | Names::Namespaces | Names::Contexts => {
                    object::name(item).to_owned()
                }
            };
            Some(items.iter().map(name).collect::<BTreeSet<String>>())
        })?;
        sender.send(found).ok()
    });
    receiver.recv_timeout(TIMEOUT).unwrap_or_default()
}

/// What a pod group belongs to, as `job/hello` or `hello`.
fn workload(group: &Value, with_type: bool) -> String {
    let owner = group.pointer("/metadata/ownerReferences/0");
    let (kind, name) = match owner {
        Some(owner) => (object::str_at(owner, "/kind"), object::str_at(owner, "/name")),
        None => ("PodGroup", object::name(group)),
    };
    if with_type { format!("{}/{name}", kind.to_lowercase()) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_and_namespace_are_those_of_the_typed_command() {
        let of = |line: &str| Options::of(line.split(' ').map(str::to_owned));
        assert_eq!(
            of("kai -- kai why --context=prod -n team-a tr"),
            Options {
                context: Some("prod".to_owned()),
                namespace: Some("team-a".to_owned()),
                ..Options::default()
            }
        );
        assert_eq!(
            of("kai jobs -A --kubeconfig /tmp/k x"),
            Options { kubeconfig: Some("/tmp/k".into()), all_namespaces: true, ..Options::default() }
        );
        assert_eq!(of("kai queues --context"), Options::default());
    }
}

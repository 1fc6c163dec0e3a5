//! What does not need a cluster: help, version, completions, manual pages, schemas, the plugin, and errors of kubeconfigs.

use crate::{assert_rejected, kai, scratch, stderr, stdout};
use kai_kubetest::kubectl::Kubectl;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The commands that `kai --help` lists, those of components included.
fn commands() -> Vec<String> {
    let help = stdout(&kai(&["--help"]));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Descriptions that need a further line are indented by more.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let names: Vec<String> = names.map(str::to_owned).collect();
    for known in ["up", "down", "top", "why", "schema", "migrate", "scheduler", "binder"] {
        assert!(names.iter().any(|name| name == known), "`{known}` is not in {names:?}");
    }
    names
}

fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It is left from an earlier run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the directory can be made");
    path
}

/// The binary under another name.
fn named(name: &str) -> PathBuf {
    let path = folder(&format!("named-{name}")).join(name);
    symlink(env!("CARGO_BIN_EXE_kai"), &path).expect("a link can be made");
    path
}

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).env("KUBECONFIG", "/nowhere/config").output().expect("the binary runs")
}

#[test]
fn help_names_the_exit_codes_of_every_command() {
    // That of `migrate` lists commands.
    for command in commands().iter().filter(|command| *command != "migrate") {
        let help = stdout(&kai(&[command, "--help"]));
        assert!(help.contains("Exit codes: 0 "), "{command}:\n{help}");
    }
    assert!(stdout(&kai(&["migrate", "check", "--help"])).contains("Exit codes: 0 "));
    assert!(stdout(&kai(&["--help"])).contains("Exit codes: 0 "));
}

#[test]
fn plugin_of_kubectl_is_named_in_help_usage_and_hints() {
    let plugin = named("kubectl-kai");
    let help = stdout(&run(&plugin, &["why", "--help"]));
    assert!(help.contains("Usage: kubectl kai why "), "{help}");
    assert!(help.contains("\n  kubectl kai why job/train "), "{help}");
    assert!(!help.contains("\n  kai "), "{help}");
    let missing = stderr(&run(&plugin, &["why"]));
    assert!(missing.contains("Usage: kubectl kai why "), "{missing}");
    let error = run(&plugin, &["queues"]);
    assert_rejected(&error, &["`kubectl kai up` starts a cluster"]);
    assert!(stdout(&kai(&["why", "--help"])).contains("Usage: kai why "));
}

#[test]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
fn kubectl_runs_and_completes_the_plugin() {
    let plugin = named("kubectl-kai");
    let completion = plugin.with_file_name("kubectl_complete-kai");
    symlink(env!("CARGO_BIN_EXE_kai"), &completion).expect("a link can be made");
    let folder = plugin.parent().expect("a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    for program in Kubectl::required() {
        let kubectl = |arguments: &[&str]| {
            let output = Command::new(&program).args(arguments).env("PATH", &path).output();
            output.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
        };
        let version = kubectl(&["kai", "version"]);
        assert!(stdout(&version).starts_with("kai 0."), "{}", stderr(&version));
        let words = kubectl(&["__complete", "kai", "que"]);
        assert!(stdout(&words).starts_with("queues\t"), "{words:?}");
    }
}

#[test]
fn version_has_the_commit() {
    let text = stdout(&kai(&["version"]));
    assert!(text.starts_with(&format!("kai {}, commit ", env!("CARGO_PKG_VERSION"))), "{text}");
    let json: Value = serde_json::from_str(&stdout(&kai(&["version", "-o", "json"]))).expect("it is JSON");
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let is_repository = head.as_ref().is_ok_and(|output| output.status.success());
    if std::env::var_os("KAI_COMMIT").is_none() && is_repository {
        let commit = json["commit"].as_str().expect("the sources are a repository");
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit}");
    }
    assert_eq!(json["compatible_with"], "KAI v0.17");
    assert!(stdout(&kai(&["--version"])).starts_with(&format!("kai {}", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn every_shell_has_a_script_that_asks_the_binary() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = kai(&["completion", shell]);
        let script = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(script.contains("KAI_COMPLETE") && script.contains("kai"), "{shell}:\n{script}");
    }
    let checked = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn();
    let Ok(mut bash) = checked else { return };
    let script = kai(&["completion", "bash"]).stdout;
    bash.stdin.take().expect("it is piped").write_all(&script).expect("bash reads");
    assert!(bash.wait().expect("it ends").success());
}

/// What kubectl gets for the words of a command line.
pub(crate) fn completed(kubeconfig: &str, words: &[&str]) -> Vec<String> {
    let plugin = named_once();
    let output =
        Command::new(plugin).args(words).env("KUBECONFIG", kubeconfig).output().expect("the binary runs");
    assert_eq!(stderr(&output), "", "a completion is silent");
    let text = stdout(&output);
    assert!(text.ends_with(":4\n"), "{text}");
    let values = text.lines().filter(|line| !line.starts_with(':'));
    values.map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// Tests run at the same time.
fn named_once() -> &'static Path {
    static PATH: std::sync::LazyLock<PathBuf> = std::sync::LazyLock::new(|| named("kubectl_complete-kai"));
    &PATH
}

#[test]
fn commands_options_and_contexts_are_completed_without_a_cluster() {
    let nowhere = "/nowhere/config";
    assert_eq!(completed(nowhere, &["sna"]), ["snapshot"]);
    assert!(completed(nowhere, &["jobs", "--all"]).contains(&"--all-namespaces".to_owned()));
    assert!(completed(nowhere, &["why", "tr"]).is_empty());
    let file = scratch(
        "completion-contexts",
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n\
         contexts: [{name: prod, context: {cluster: c, user: u}}, {name: test, context: {cluster: c, user: u}}]\n",
    );
    assert_eq!(completed(&file, &["queues", "--context", ""]), ["prod", "test"]);
    assert_eq!(completed(&file, &["queues", "--context", "p"]), ["prod"]);
    assert!(
        completed(&file, &["queues", "--context", "prod", "x"]).is_empty(),
        "no server listens at the port"
    );
}

#[test]
fn every_command_has_a_manual_page() {
    let pages = folder("man");
    assert!(kai(&["man", pages.to_str().expect("a plain path")]).status.success());
    for command in commands() {
        let page = std::fs::read_to_string(pages.join(format!("kai-{command}.1"))).expect(&command);
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{command}:\n{page}");
    }
    assert!(!pages.join("kai-hook.1").exists(), "hidden commands have none");
    assert_rejected(&kai(&["man", "/nowhere/man"]), &["`/nowhere/man` is not a directory", "hint: "]);
}

#[test]
fn missing_context_is_reported_with_the_file_and_its_contexts() {
    let file = scratch(
        "contexts",
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n\
         contexts: [{name: prod, context: {cluster: c, user: u}}, {name: test, context: {cluster: c, user: u}}]\ncurrent-context: gone\n",
    );
    let words = [&*format!("`{file}`"), "which has `prod`, `test`", "hint: "];
    assert_rejected(
        &kai(&["queues", "--kubeconfig", &file, "--context", "prd"]),
        &[&["context `prd`"], &words[..]].concat(),
    );
    assert_rejected(&kai(&["queues", "--kubeconfig", &file]), &[&["context `gone`"], &words[..]].concat());
    let by_variable = |file: &str, args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(args)
            .env("KUBECONFIG", file)
            .output()
            .expect("the binary runs")
    };
    assert_rejected(
        &by_variable(&file, &["queues", "--context", "prd"]),
        &[&["context `prd`"], &words[..]].concat(),
    );
    let empty = scratch("contexts-none", "apiVersion: v1\nkind: Config\n");
    assert_rejected(&by_variable(&empty, &["queues", "--context", "x"]), &[&empty, "has no contexts"]);
    assert_rejected(&by_variable("/nowhere/config", &["queues", "--context", "x"]), &["`/nowhere/config`"]);
}

#[test]
fn waiting_is_reported_from_two_seconds_on() {
    // It accepts connections and never answers.
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = server.local_addr().expect("it is bound");
    let file = scratch(
        "silent-server",
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        ),
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(["queues", "--kubeconfig", &file])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut first = String::new();
    let stderr = child.stderr.take().expect("it is piped");
    BufReader::new(stderr).read_line(&mut first).expect("it is text");
    child.kill().expect("it still waits");
    child.wait().expect("it ends");
    assert!(first.starts_with("reading the cluster: ") && first.ends_with(" s\n"), "{first}");
}

#[test]
fn snapshots_are_read_from_standard_input() {
    let snapshot = crate::shape("gang", 2);
    for args in
        [&["plan", "-", "--json", "--now", crate::NOW][..], &["simulate", "-", "--cycles", "1", "--json"]]
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        child.stdin.take().expect("it is piped").write_all(snapshot.as_bytes()).expect("it is read");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).expect("it is JSON");
    }
}

//! `kai up` as a process, without kubectl: in the background, quiet, with its log, and its progress.

use crate::{assert_rejected, stderr, stdout};
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum steps of a wait, enough for a busy machine.
const STEPS_MAX: u32 = 1_500;
const STEP: Duration = Duration::from_millis(200);

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("up-process-{name}"));
    // It is left from an earlier run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the folder can be made");
    path
}

fn kai(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kai"));
    command
        .args(args)
        .env("HOME", folder)
        .env_remove("XDG_STATE_HOME")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null());
    command
}

fn output(folder: &Path, args: &[&str]) -> Output {
    kai(folder, args).output().expect("the binary runs")
}

/// A cluster of this process; it is killed when the test ends.
struct Up {
    child: Child,
    kubeconfig: PathBuf,
}

impl Up {
    /// Starts a cluster with piped output, and waits until it can be used.
    fn start(folder: &Path, args: &[&str]) -> Self {
        let kubeconfig = folder.join("config");
        let path = kubeconfig.to_str().expect("the path is plain");
        let mut command =
            kai(folder, &[&["up", "--port", "0", "--nodes", "1x4", "--kubeconfig", path], args].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut up = Self { child, kubeconfig };
        for _ in 0..STEPS_MAX {
            if up.kubeconfig.exists() {
                return up;
            }
            assert!(up.child.try_wait().expect("it is our child").is_none(), "it has ended");
            std::thread::sleep(STEP);
        }
        panic!("it does not start");
    }

    /// What it has printed, after Ctrl-C.
    fn interrupted(mut self) -> (String, String) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let read = |pipe: Option<Box<dyn std::io::Read>>| std::io::read_to_string(pipe.expect("it is piped"));
        let out = read(self.child.stdout.take().map(|pipe| Box::new(pipe) as _)).expect("it is text");
        let err = read(self.child.stderr.take().map(|pipe| Box::new(pipe) as _)).expect("it is text");
        assert!(self.child.wait().expect("it is our child").success(), "{err}");
        assert!(!self.kubeconfig.exists(), "the kubeconfig is removed");
        (out, err)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has already ended where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn cluster_in_the_background_is_used_and_stopped() {
    let folder = folder("detach");
    let config = folder.join("config");
    let path = config.to_str().expect("the path is plain");
    let up = ["up", "--detach", "--port", "0", "--nodes", "1x4", "--kubeconfig", path];
    let started = output(&folder, &up);
    assert!(started.status.success(), "{}", stderr(&started));
    let text = stdout(&started);
    for part in [
        "cluster is running in the background (process ",
        "log: ",
        "`kai top` shows it",
        "kai down --kubeconfig ",
    ] {
        assert!(text.contains(part), "`{part}` is missing in {text}");
    }
    let nodes = output(&folder, &["nodes", "-o", "name", "--kubeconfig", path]);
    let again = output(&folder, &up);
    let stopped = output(&folder, &["down", "--kubeconfig", path]);
    assert_eq!(stdout(&nodes), "node/node-1\n", "{}", stderr(&nodes));
    assert_rejected(&again, &["is already running", "hint: `kai down`"]);
    assert!(
        stopped.status.success() && stdout(&stopped).starts_with("cluster stopped (process "),
        "{stopped:?}"
    );
    assert!(!config.exists(), "the kubeconfig is removed");
    let nothing = output(&folder, &["down", "--kubeconfig", path]);
    assert!(nothing.status.success() && stdout(&nothing).starts_with("nothing to stop: "), "{nothing:?}");
}

#[test]
fn cluster_that_cannot_start_in_the_background_is_an_error_with_its_reason() {
    let folder = folder("detach-fails");
    let failed = output(&folder, &["up", "--detach", "--port", "0", "--load", "/nowhere/state"]);
    assert_rejected(&failed, &["the cluster did not start", "`/nowhere/state`"]);
}

#[test]
fn quiet_cluster_prints_nothing_and_a_verbose_one_its_log() {
    let (out, err) = Up::start(&folder("quiet"), &["-q"]).interrupted();
    assert_eq!((out.as_str(), err.as_str()), ("", ""));
    let (out, err) = Up::start(&folder("plain"), &[]).interrupted();
    assert!(
        out.contains("cluster with 1 simulated nodes") || out.contains("cluster with 1 simulated node"),
        "{out}"
    );
    assert!(out.ends_with("cluster stopped\n"), "{out}");
    let quiet_lines = err.lines().count();
    let (_, err) = Up::start(&folder("verbose"), &["-vv"]).interrupted();
    assert!(err.lines().count() > quiet_lines + 3, "the components log: {err}");
}

#[test]
fn start_of_a_large_cluster_reports_its_progress() {
    let folder = folder("large");
    let config = folder.join("config");
    let path = config.to_str().expect("the path is plain");
    // Takes more than two seconds on any machine, and is ended after the first line.
    let mut command = kai(&folder, &["up", "--port", "0", "--nodes", "20000x8", "--kubeconfig", path]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut up = Up { child, kubeconfig: config };
    let (stdout, stderr) = (up.child.stdout.take(), up.child.stderr.take());
    let (sender, lines) = mpsc::channel();
    let forward = |stream: Box<dyn Read + Send>| {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stream).read_line(&mut line).map(|_| sender.send(line));
        });
    };
    forward(Box::new(stdout.expect("it is piped")));
    forward(Box::new(stderr.expect("it is piped")));
    let first = lines.recv_timeout(Duration::from_mins(2)).expect("progress is reported");
    assert!(first.starts_with("starting a cluster of 20000 nodes: ") && first.ends_with(" s\n"), "{first}");
}

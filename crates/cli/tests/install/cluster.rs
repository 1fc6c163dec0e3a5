//! `kubectl` and `helm` on a control plane.

use kai_kubetest::control_plane::{ControlPlane, Programs};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const NAMESPACE: &str = "kai-scheduler";
/// Names the archive that `cargo xtask image` wrote.
pub(crate) const IMAGES_VARIABLE: &str = "KAI_IMAGES";
const PAUSE: Duration = Duration::from_millis(250);

/// The tools, for one control plane.
pub(crate) struct Cluster {
    programs: Programs,
    kubeconfig: PathBuf,
}

impl Cluster {
    pub(crate) fn new(programs: &Programs, plane: &ControlPlane) -> Self {
        Self { programs: programs.clone(), kubeconfig: plane.kubeconfig_file() }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.path(program));
        command.env("KUBECONFIG", &self.kubeconfig).env("HELM_DRIVER", "secret").stdin(Stdio::null());
        command
    }

    /// Runs kubectl; returns what it prints, or its error.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        output(self.command("kubectl").args(arguments))
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|error| panic!("{error}\n{}", self.state()))
    }

    /// Runs helm in the namespace of the installation.
    pub(crate) fn helm(&self, arguments: &[&str]) -> String {
        let mut command = self.command("helm");
        output(command.args(arguments).args(["--namespace", NAMESPACE]))
            .unwrap_or_else(|error| panic!("{error}\n{}", self.state()))
    }

    /// Applies manifests.
    pub(crate) fn apply(&self, manifests: &str) {
        use std::io::Write as _;
        let mut command = self.command("kubectl");
        command
            .args(["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.state());
    }

    /// Reads objects as JSON.
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Names of objects, as `KIND/NAME`.
    pub(crate) fn names(&self, arguments: &[&str]) -> Vec<String> {
        let text = self.kubectl(&[&["get", "-o", "name"], arguments].concat());
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a condition of objects, as `kubectl wait` does.
    pub(crate) fn wait(&self, arguments: &[&str]) {
        self.kubectl(&[&["wait", "--timeout=180s"], arguments].concat());
    }

    /// Waits until something is true.
    pub(crate) async fn until(&self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let watch = kai_clock::Stopwatch::start();
        while !done(self) {
            assert!(watch.elapsed() < limit, "not within {} s: {what}\n{}", limit.as_secs(), self.state());
            tokio::time::sleep(PAUSE).await;
        }
        watch.elapsed()
    }

    /// What a person would look at first when something hangs.
    pub(crate) fn state(&self) -> String {
        let looks: [&[&str]; 6] = [
            &["get", "nodes", "-o", "jsonpath={.items[*].status.allocatable} {.items[*].status.conditions}"],
            &["get", "pods", "--all-namespaces", "-o", "wide"],
            &[
                "get",
                "config,schedulingshards",
                "-o",
                "jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}",
            ],
            &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
            &["get", "podgroups,bindrequests,queues", "--all-namespaces"],
            &[
                "logs",
                "--namespace",
                NAMESPACE,
                "--tail=15",
                "--prefix",
                "--selector",
                "app",
                "--max-log-requests=20",
            ],
        ];
        let mut looked_at = Vec::new();
        for look in looks {
            let shown = self.try_kubectl(look).unwrap_or_else(|error| error);
            let lines: Vec<&str> = shown.lines().collect();
            let end = lines[lines.len().saturating_sub(60)..].join("\n");
            looked_at.push(format!("$ kubectl {}\n{end}\n", look.join(" ")));
        }
        looked_at.concat()
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The chart of this repository.
pub(crate) fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/kai-scheduler").display().to_string()
}

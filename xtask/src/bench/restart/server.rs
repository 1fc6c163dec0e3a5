//! The embedded API server as a child process that can be restarted with its state.
//!
//! After a restart all earlier resource versions have expired, so that every client lists everything again, and all of
//! them at once.

use super::cluster::{self, Size};
use anyhow::{Context, Result, bail};
use kai_apiserver::{ApiServer, Listening, Options};
use kai_clock::Clock;
use kai_kubetest::control_plane::ADMIN_TOKEN;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Seeds the uids of the server.
const SEED: u64 = 1;

/// Serves a state, or a new cluster of a size, until standard input closes. Each command on it is answered by a line.
pub(super) async fn run(state: &Path, size: Size) -> Result<()> {
    let mut server = if state.exists() {
        load(state)?
    } else {
        let server = ApiServer::new(&options());
        cluster::create(&server.service(), size).await?;
        server
    };
    let mut listening = listen(&server, 0)?;
    let port = listening.address().port();
    println!("{port}");
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        // An error ends the commands like the end of the input.
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(command) = receive.recv().await {
        match command.as_str() {
            "save" => server.save(BufWriter::new(File::create(state)?)).context("cannot save the state")?,
            "restart" => {
                listening.stop().await;
                drop(server);
                server = load(state)?;
                listening = listen(&server, port)?;
            }
            other => bail!("there is no command `{other}`"),
        }
        println!("done");
    }
    Ok(())
}

fn options() -> Options {
    Options { admin_token: Some(ADMIN_TOKEN.to_owned()), ..Options::new(SEED, Clock::system()) }
}

fn load(state: &Path) -> Result<ApiServer> {
    let file = File::open(state).with_context(|| format!("cannot read `{}`", state.display()))?;
    Ok(ApiServer::load(&options(), BufReader::new(file))?)
}

fn listen(server: &ApiServer, port: u16) -> Result<Listening> {
    Ok(server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?)
}

/// The child process; dropping it kills it.
pub(super) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    /// Re-executes this program with the hidden subcommand that serves.
    pub(super) fn start(state: &Path, size: Size) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this executable")?;
        let mut child = Command::new(program)
            .args(["bench", "restart-worker", "serve", "--state"])
            .arg(state)
            .args(["--nodes", &size.nodes.to_string(), "--pods", &size.pods.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the embedded server")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let input = input.context("the server process has no standard input")?;
        let output = BufReader::new(output.context("the server process has no standard output")?);
        let mut server = Self { child, input, output, port: 0 };
        server.port = server.line()?.parse().context("the server printed no port")?;
        Ok(server)
    }

    /// Sends a command and waits until it is done.
    pub(super) fn command(&mut self, command: &str) -> Result<()> {
        writeln!(self.input, "{command}").context("the server process has ended")?;
        match self.line()?.as_str() {
            "done" => Ok(()),
            other => bail!("the server answered `{other}` to `{command}`"),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the server process has ended")?;
        Ok(line.trim().to_owned())
    }

    /// A restarted server has a new certificate, so that clients must not verify it.
    pub(super) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "kai",
            "clusters": [{"name": "kai", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "kai", "context": {"cluster": "kai", "user": "admin"}}],
        })
        .to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only when the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

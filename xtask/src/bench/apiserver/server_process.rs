//! The embedded API server as a child process, so that its peak memory can be measured alone.

use anyhow::{Context, Result};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kubetest::client::Server;
use kai_kubetest::control_plane::ADMIN_TOKEN;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

/// Seeds the uids of the server.
pub(super) const SEED: u64 = 1;

/// What the child process prints once it listens.
#[derive(Serialize, Deserialize)]
struct Endpoint {
    address: SocketAddr,
    ca_pem: String,
}

/// Serves until standard input closes, which happens when the parent process ends.
pub(super) async fn run() -> Result<()> {
    let options =
        Options { admin_token: Some(ADMIN_TOKEN.to_owned()), ..Options::new(SEED, Clock::system()) };
    let listening = ApiServer::new(&options).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let endpoint = Endpoint { address: listening.address(), ca_pem: listening.ca_pem().to_owned() };
    println!("{}", serde_json::to_string(&endpoint)?);
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    ended.await.context("the reader of standard input failed")?.context("cannot read standard input")?;
    Ok(())
}

/// A child process that serves; dropping it kills the process.
pub(super) struct ServerProcess {
    child: Child,
    pub(super) server: Server,
}

impl ServerProcess {
    /// Re-executes this program with the hidden `serve` subcommand.
    pub(super) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this executable")?;
        let child = Command::new(program)
            .args(super::WORKER)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the embedded server")?;
        let mut guard = KillOnDrop(Some(child));
        let output = guard.0.as_mut().and_then(|child| child.stdout.take());
        let mut line = String::new();
        BufReader::new(output.context("the server process has no standard output")?)
            .read_line(&mut line)
            .context("the server did not print its endpoint")?;
        let endpoint: Endpoint =
            serde_json::from_str(&line).context("the server printed an invalid endpoint")?;
        let server = Server::new(endpoint.address, &endpoint.ca_pem)?;
        Ok(Self { child: guard.0.take().context("the server process is missing")?, server })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Kills the child unless it is taken out, so that a failed start leaves no process.
struct KillOnDrop(Option<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            kill(child);
        }
    }
}

fn kill(child: &mut Child) {
    // Both calls fail only when the process has exited already.
    let _ = child.kill();
    let _ = child.wait();
}

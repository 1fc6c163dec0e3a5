//! The embedded server in a process of its own, and how another process starts it.

use anyhow::{Context, Result};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kubetest::client::Server;
use kai_kubetest::real::ADMIN_TOKEN;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

/// What uids are drawn from.
pub(crate) const SEED: u64 = 1;

/// Where a server is reached, and whom to trust.
#[derive(Serialize, Deserialize)]
struct Place {
    address: SocketAddr,
    authority: String,
}

/// Serves until the input ends, which it does with the process that started this one.
pub(crate) async fn run() -> Result<()> {
    let options =
        Options { admin_token: Some(ADMIN_TOKEN.to_owned()), ..Options::new(SEED, Clock::system()) };
    let listening = ApiServer::new(&options).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let place = Place { address: listening.address(), authority: listening.ca_pem().to_owned() };
    println!("{}", serde_json::to_string(&place)?);
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    ended.await.context("the reader of the input is gone")?.context("cannot read the input")?;
    Ok(())
}

/// A child process that serves; dropping it ends it.
pub(crate) struct Serving {
    child: Child,
    pub(crate) server: Server,
}

impl Serving {
    /// Starts this program once more, as a server.
    pub(crate) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("this program has no path")?;
        let child = Command::new(program)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the embedded server")?;
        let mut guard = Unready(Some(child));
        let output = guard.0.as_mut().and_then(|child| child.stdout.take());
        let mut line = String::new();
        BufReader::new(output.context("the server has no output")?)
            .read_line(&mut line)
            .context("the server did not say where it is")?;
        let place: Place = serde_json::from_str(&line).context("the server said something else")?;
        let server = Server::new(place.address, &place.authority)?;
        Ok(Self { child: guard.0.take().context("the server is gone")?, server })
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A child that ends unless it is taken out.
struct Unready(Option<Child>);

impl Drop for Unready {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    // It may have ended already, which is what both calls want.
    let _ = child.kill();
    let _ = child.wait();
}

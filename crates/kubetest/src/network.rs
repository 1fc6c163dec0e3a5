//! A network of test nodes on this machine: a bridge that the host and each node, in a network namespace of its own, join.
//!
//! Addresses are of 100.64.0.0/10, which is reserved for networks behind a carrier and so clashes with no machine's own.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

/// Networks that may exist at the same time.
const NETWORKS: std::ops::Range<u8> = 1..200;

/// A bridge; dropping it removes it.
#[derive(Debug)]
pub struct Network {
    number: u8,
}

impl Network {
    /// Creates the first network that does not exist.
    pub fn create() -> io::Result<Self> {
        for number in NETWORKS {
            let network = match ip(&["link", "add", &bridge(number), "type", "bridge"]) {
                Ok(()) => Self { number },
                Err(error) if error.to_string().contains("File exists") => continue,
                Err(error) => return Err(error),
            };
            ip(&["address", "add", &format!("{}/24", network.host()), "dev", &bridge(number)])?;
            ip(&["link", "set", &bridge(number), "up"])?;
            return Ok(network);
        }
        Err(io::Error::other("every test network is in use; hint: `ip link` lists them as kubetestN"))
    }

    /// The address of this machine, which the API server listens on.
    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(100, 64, self.number, 1)
    }

    /// The address of a node.
    pub fn node(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(100, 64, self.number, 10 + index)
    }

    /// The addresses of a node's pods, as `A.B.C.0/24`.
    pub fn pods(&self, index: u8) -> String {
        format!("100.{}.{}.0/24", 70 + index, self.number)
    }

    /// Connects the network namespace of a process as node `index`.
    pub fn connect(&self, index: u8, process: u32) -> io::Result<()> {
        let outside = format!("{}n{index}", bridge(self.number));
        let process = process.to_string();
        ip(&["link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns", &process])?;
        ip(&["link", "set", &outside, "master", &bridge(self.number), "up"])?;
        let address = format!("{}/24", self.node(index));
        let inside = |arguments: &[&str]| {
            let mut command = Command::new("nsenter");
            run(command.args(["--target", &process, "--net", "ip"]).args(arguments))
        };
        inside(&["link", "set", "lo", "up"])?;
        inside(&["address", "add", &address, "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &self.host().to_string()])?;
        // The API server calls webhooks by the addresses of their pods.
        ip(&["route", "replace", &self.pods(index), "via", &self.node(index).to_string()])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // An error means that the bridge is gone already.
        let _ = ip(&["link", "delete", &bridge(self.number)]);
    }
}

fn bridge(number: u8) -> String {
    format!("kubetest{number}")
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    run(Command::new("ip").args(arguments))
}

/// Runs a command; an error has what it printed.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?} ended with {}: {}", output.status, printed.trim())))
}

//! The components as processes of the release binary, and how ready they are.

use super::usage::Usage;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How pods are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Direct,
    /// By bind requests, as in KAI.
    Requests,
    /// By Bindings, and pods that are alone in their group have no PodGroup.
    WithoutGroups,
}

/// How many processes the components are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Separate,
    /// `kai all`.
    Combined,
}

/// Components and the flags that switch off what needs certificates.
pub(in crate::bench) const COMPONENTS: [(&str, &[&str]); 5] = [
    ("scheduler", &["--plugin-server-port=0"]),
    ("binder", &[]),
    ("pod-grouper", &[]),
    ("podgroup-controller", &["--enable-podgroup-webhook=false"]),
    ("queue-controller", &["--enable-webhook=false"]),
];
/// Attempts to find a component ready, one every tenth of a second.
const ATTEMPTS: usize = 600;

/// A process that ends with its owner.
pub(in crate::bench) struct Child {
    name: &'static str,
    child: std::process::Child,
}

/// All components.
pub(super) struct Processes {
    children: Vec<(Child, u16)>,
}

impl Child {
    /// Starts a component that serves metrics and readiness on a port; what it logs goes to a file.
    pub(in crate::bench) fn component(
        binary: &Path,
        kubeconfig: &Path,
        logs: &Path,
        name: &'static str,
        flags: &[&str],
    ) -> Result<(Self, u16)> {
        let port = free_port()?;
        let log = File::create(logs.join(format!("{name}.log"))).context("cannot write a log")?;
        let child = Command::new(binary)
            .arg(name)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--metrics-bind-address=127.0.0.1:{port}"))
            .arg("--health-probe-bind-address=0")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot write a log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run `{} {name}`", binary.display()))?;
        Ok((Self::of(name, child), port))
    }

    pub(super) fn of(name: &'static str, child: std::process::Child) -> Self {
        Self { name, child }
    }

    pub(in crate::bench) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Child {
    /// Ends the process at once, as a crash does.
    pub(in crate::bench) fn kill(&mut self) {
        // It may have ended already, which is what both calls want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Processes {
    /// Starts all of them; what they log goes to a file each.
    pub(super) fn start(
        binary: &Path,
        kubeconfig: &Path,
        logs: &Path,
        binding: Binding,
        topology: Topology,
    ) -> Result<Self> {
        if topology == Topology::Combined {
            let names: Vec<&str> = COMPONENTS.iter().map(|(name, _)| *name).collect();
            let components = format!("--components={}", names.join(","));
            let mut flags = vec![components.as_str(), "--qps=-1"];
            for (name, own) in COMPONENTS {
                flags.extend([name, "--qps=-1"].into_iter().chain(own.iter().copied()));
                flags.extend(mode(binding, name));
            }
            return Ok(Self { children: vec![Child::component(binary, kubeconfig, logs, "all", &flags)?] });
        }
        let mut children = Vec::new();
        for (name, _) in COMPONENTS {
            children.push(start(binary, kubeconfig, logs, name, binding)?);
        }
        Ok(Self { children })
    }

    /// Waits until all of them say that they are ready.
    pub(super) async fn ready(&self) -> Result<()> {
        for (child, port) in &self.children {
            let mut attempts = 0;
            while !is_ready(*port) {
                attempts += 1;
                if attempts > ATTEMPTS {
                    bail!("`kai {}` does not become ready; hint: --logs keeps what it says", child.name);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Ends one of them.
    pub(super) fn end(&mut self, name: &str) {
        self.children.retain(|(child, _)| child.name != name);
    }

    /// Starts one of them and waits until it is ready.
    pub(super) async fn add(
        &mut self,
        binary: &Path,
        kubeconfig: &Path,
        logs: &Path,
        name: &'static str,
        binding: Binding,
    ) -> Result<()> {
        self.children.push(start(binary, kubeconfig, logs, name, binding)?);
        self.ready().await
    }

    /// What each has used so far.
    pub(super) fn usage(&self) -> Result<Vec<(&'static str, Usage)>> {
        self.children
            .iter()
            .map(|(child, _)| {
                let usage = Usage::of(child.id());
                Ok((child.name, usage.with_context(|| format!("`kai {}` has ended", child.name))?))
            })
            .collect()
    }
}

fn start(
    binary: &Path,
    kubeconfig: &Path,
    logs: &Path,
    name: &'static str,
    binding: Binding,
) -> Result<(Child, u16)> {
    let own = COMPONENTS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, flags)| flags);
    let flags = [&["--qps=-1"][..], own, mode(binding, name)].concat();
    Child::component(binary, kubeconfig, logs, name, &flags)
}

/// The flags with which pods are bound so, as the operator sets them.
fn mode(binding: Binding, name: &str) -> &'static [&'static str] {
    match (binding, name) {
        (Binding::Requests, "pod-grouper") => &["--assign-at-binding=false"],
        (Binding::Requests, "scheduler") => &["--direct-binding=false"],
        (Binding::WithoutGroups, "scheduler") => &["--implicit-groups=true"],
        (Binding::WithoutGroups, "pod-grouper" | "queue-controller") => &["--implicit-groups=default"],
        _ => &[],
    }
}

pub(in crate::bench) fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr().context("a listener has an address")?.port())
}

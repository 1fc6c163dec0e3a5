//! What real nodes need besides the control plane: `cargo xtask kubernetes --node`.

use super::{VERSION, build_one, build_packages};
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_kubetest::control_plane::{ControlPlane, Programs};
use kai_kubetest::network::Network;
use kai_kubetest::node::{self, DRIVER_LIBRARY, Node};
use std::path::Path;
use std::process::Command;

const PACKAGES: [(&str, &str); 3] = [
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
];

/// GPUs of each node.
const GPUS: u32 = 8;

/// Builds what is missing.
pub(crate) fn build(repository: &Repository, folder: &Path) -> Result<()> {
    let module = repository.root.join("tests/kubernetes");
    build_packages(&module, folder, VERSION, &PACKAGES)?;
    // Our own sources: Go knows whether they have changed.
    build_one(&module, "./nodetool", &folder.join("nodetool"), VERSION)?;
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(DRIVER_LIBRARY));
    compile.arg(module.join("nvml/nvml.c"));
    let status = compile.status().context("cannot run `cc`; hint: apt-get install gcc")?;
    if !status.success() {
        bail!("{compile:?} ended with {status}");
    }
    Ok(())
}

/// Starts a control plane with nodes, and keeps them until Ctrl-C.
pub(super) fn run(folder: &Path, count: u8) -> Result<()> {
    let programs = Programs::in_folder(folder)?;
    if let Some(why) = node::missing(&programs) {
        bail!("{why}");
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        let network = Network::create().context("cannot create a network")?;
        let plane = ControlPlane::start_for_nodes(&programs, &network).await?;
        let mut nodes = Vec::new();
        for index in 0..count {
            nodes.push(Node::start(&programs, &plane, &network, index, GPUS).await?);
        }
        println!("export KUBECONFIG={}", plane.kubeconfig_file().display());
        println!("export PATH={}:$PATH", folder.display());
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
    })
}

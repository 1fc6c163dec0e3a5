//! The same load for another scheduler, alone on a fresh control plane of the same run.

use super::load::Load;
use super::processes::Child;
use super::report::Other;
use super::usage::Usage;
use super::{PATIENCE, SINGLES, settled};
use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result};
use kai_kubetest::control_plane::{ADMIN_TOKEN, ControlPlane, Controllers};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Requests a second that are as good as no limit; 0 would mean the default.
const NO_LIMIT: u32 = 100_000;

/// kube-scheduler with its defaults, but for the limits of its client.
pub(super) async fn kube_scheduler(
    repository: &Repository,
    scratch: &Path,
    nodes: usize,
    pods: usize,
) -> Result<Other> {
    let program = kubernetes::scheduler(repository)?;
    let plane = ControlPlane::start(&kubernetes::programs(repository)?, Controllers::None).await?;
    let load = Load::new(plane.server().clone(), ADMIN_TOKEN).for_scheduler("default-scheduler");
    load.make_namespace().await?;
    load.make_nodes(nodes).await?;
    let config = scratch.join("kube-scheduler.yaml");
    std::fs::write(&config, configuration(&plane.kubeconfig_file()))
        .with_context(|| format!("cannot write `{}`", config.display()))?;
    let log = File::create(scratch.join("kube-scheduler.log")).context("cannot write a log")?;
    let child = Command::new(&program)
        .arg(format!("--config={}", config.display()))
        .arg("--secure-port=0")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot write a log")?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    let child = Child::of("kube-scheduler", child);
    let [server, _] = plane.processes();

    // The first pod is bound once its informers have synced.
    let first = tokio::time::timeout(PATIENCE, load.one_by_one(5)).await;
    first.context("kube-scheduler binds nothing; hint: --logs keeps what it says")??;
    let singles = load.one_by_one(SINGLES).await?;
    let writes_before = settled(&load).await?;
    let (server_before, usage_before) = (Usage::of(server)?, Usage::of(child.id())?);
    let filled = load.fill(pods, PATIENCE).await?;
    let writes = settled(&load).await?.since(&writes_before, pods);
    Ok(Other {
        filled,
        singles,
        writes,
        usage: Usage::of(child.id())?.since(&usage_before),
        server: Usage::of(server)?.since(&server_before),
    })
}

fn configuration(kubeconfig: &Path) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         leaderElection:\n  leaderElect: false\n\
         clientConnection:\n  kubeconfig: {}\n  qps: {NO_LIMIT}\n  burst: {NO_LIMIT}\n",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_lifts_the_limits_of_the_client() {
        let config: serde_json::Value = serde_saphyr::from_str(&configuration(Path::new("/k"))).unwrap();
        assert_eq!(config["clientConnection"]["qps"], NO_LIMIT);
        assert_eq!(config["clientConnection"]["kubeconfig"], "/k");
        assert_eq!(config["leaderElection"]["leaderElect"], false);
    }
}

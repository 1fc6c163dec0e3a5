//! What the operator costs: memory and processor time at rest, and the time of a full reconciliation, with ten shards.

use crate::cluster::{Cluster, NAMESPACE};
use std::time::Duration;

/// Shards besides `default`.
const SHARDS: usize = 9;
const WATCHED: Duration = Duration::from_secs(10);
/// Ticks of the kernel's clock in a second, on all Linux machines.
const TICKS: f64 = 100.0;

/// What was measured.
#[derive(Debug)]
pub(crate) struct Footprint {
    /// Memory of its own: without the pages of the program, which in a debug build are ten times as many.
    pub(crate) own_megabytes: f64,
    /// Part of a core while nothing changes.
    pub(crate) at_rest: f64,
    /// Processor time until everything is as a changed Config says.
    pub(crate) reconcile_seconds: f64,
}

/// Measures the operator. The additional shards have no pods: they would need more cores than a small machine has.
pub(crate) async fn measure(cluster: &Cluster) -> Footprint {
    let replicas = |count: &str| {
        let patch = format!("{{\"spec\":{{\"scheduler\":{{\"replicas\":{count}}}}}}}");
        cluster.kubectl(&["patch", "config", "kai-config", "--type=merge", "--patch", &patch]);
    };
    replicas("0");
    let shard = |number: usize| {
        format!(
            "\n---\napiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {{name: pool-{number}}}\n\
             spec: {{partitionLabelValue: pool-{number}}}"
        )
    };
    cluster.apply(&(0..SHARDS).map(shard).collect::<String>());
    cluster.wait(&["schedulingshards", "--all", "--for=condition=Ready"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let process = operator();
    let seconds = || ticks(process) / TICKS;
    let before = seconds();
    tokio::time::sleep(WATCHED).await;
    let at_rest = (seconds() - before) / WATCHED.as_secs_f64();
    let own_megabytes = own_memory(process) / 1000.0;
    // Another log format changes every Deployment.
    let logs = |json: bool| {
        let patch = format!("{{\"spec\":{{\"global\":{{\"jsonLog\":{json}}}}}}}");
        cluster.kubectl(&["patch", "config", "kai-config", "--type=merge", "--patch", &patch]);
    };
    let before = seconds();
    logs(false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let reconcile_seconds = seconds() - before;
    logs(true);
    for number in 0..SHARDS {
        cluster.kubectl(&["delete", "schedulingshard", &format!("pool-{number}")]);
    }
    replicas("null");
    let gone = |cluster: &Cluster| {
        let left = cluster.names(&["deployments", "--namespace", NAMESPACE]);
        !left.iter().any(|name| name.contains("pool-"))
    };
    cluster.until("the shards are gone", Duration::from_mins(1), gone).await;
    Footprint { own_megabytes, at_rest, reconcile_seconds }
}

/// The process of the operator's container.
fn operator() -> u32 {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        command.starts_with(b"/kai\0operator\0").then_some(id)
    });
    processes.max().expect("the operator runs")
}

/// User and system time.
fn ticks(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}

/// Resident memory that no file backs, in kilobytes.
fn own_memory(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

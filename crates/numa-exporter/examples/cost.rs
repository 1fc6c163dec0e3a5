//! Measures CPU time and memory of the exporter on a node with 250 pods: `cargo run -p kai-numa-exporter --example cost`.
//!
//! The API server and the kubelet are in this process, the exporter is a process of its own.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints, and ends where it cannot go on"
)]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/it/fake_kubelet.rs"]
mod fake_kubelet;

use fake_kubelet::{FakeKubelet, container, cpus, devices, memory, pod};
use kai_clock::{Clock, Stopwatch};
use kai_numa_exporter::Options;
use kai_runtime::api::Api;
use kai_runtime::connect;
use kai_runtime::kind::POD;
use kai_runtime::process::Process;
use kai_sim::{Cluster, NodeGroup};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PODS: usize = 250;
/// Time to report all pods, then time that is measured.
const WARM_UP: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(30);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::args().nth(1) {
        Some(folder) => runtime.block_on(exporter(Path::new(&folder))),
        None => runtime.block_on(cluster()),
    }
}

async fn cluster() {
    let folder = std::env::temp_dir().join(format!("numa-cost-{}", std::process::id()));
    let zone = |zone: u64| folder.join(format!("sys/devices/system/node/node{zone}"));
    for (number, list) in [(0, "0-63"), (1, "64-127")] {
        std::fs::create_dir_all(zone(number)).unwrap();
        std::fs::write(zone(number).join("cpulist"), list).unwrap();
    }
    let nodes = [NodeGroup { pods: 500, cpu: "1000".to_owned(), ..NodeGroup::gpu_nodes(1, 8) }];
    let address = "127.0.0.1:0".parse().unwrap();
    let cluster = Cluster::builder().nodes(nodes).listen(address).start().await.unwrap();
    std::fs::write(folder.join("kubeconfig"), cluster.listening().unwrap().kubeconfig()).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let kubelet = FakeKubelet::start(&folder.join("kubelet.sock"));
    let mut listed = Vec::new();
    for number in 0..PODS {
        let name = format!("pod-{number}");
        let made = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        });
        cluster.api().create_dynamic(&POD, "default", &made).await.unwrap();
        let zone = (number % 2) as u64;
        let parts =
            [devices("nvidia.com/gpu", 1, &[zone]), cpus(&[zone * 64]), memory("memory", 1 << 30, &[zone])];
        listed.push(pod("default", &name, &[container(&parts), container(&parts)]));
    }
    kubelet.set(&listed);
    let program = std::env::current_exe().unwrap();
    let status = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || std::process::Command::new(program).arg(folder).status().unwrap()
    });
    assert!(status.await.unwrap().success());
    let pods = cluster.api().list_dynamic(&POD, "default").await.unwrap().items;
    let observed = |pod: &&serde_json::Value| {
        pod["metadata"]["annotations"].get("kai.scheduler/numa-placement-observed").is_some()
    };
    println!("{} of {PODS} pods are reported", pods.iter().filter(observed).count());
    std::fs::remove_dir_all(folder).unwrap();
}

async fn exporter(folder: &Path) {
    let config = connect::config(Some(folder.join("kubeconfig")), None).await.unwrap();
    let api = Api::new(connect::client(config).unwrap(), "numa-placement-exporter");
    let process = Process::start(api, Clock::system(), "numa-placement-exporter");
    let options = Options {
        node: "node-1".to_owned(),
        socket: folder.join("kubelet.sock"),
        sysfs: folder.join("sys"),
        poll_interval: Duration::from_secs(1),
        resync_interval: Some(Duration::from_mins(1)),
    };
    let running = tokio::spawn(kai_numa_exporter::run(process, options));
    tokio::time::sleep(WARM_UP).await;
    let (before, watch) = (cpu_seconds(), Stopwatch::start());
    tokio::time::sleep(MEASURED).await;
    let share = (cpu_seconds() - before) / watch.elapsed().as_secs_f64() * 100.0;
    println!("CPU: {share:.3} % of a core; until then {before:.3} s");
    println!("{}", status_lines().join(", "));
    running.abort();
}

/// User and system time of this process, in nanosecond resolution.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: PathBuf| -> u64 {
        let text = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
    };
    let nanos: u64 = tasks.filter_map(Result::ok).map(|task| of_task(task.path())).sum();
    Duration::from_nanos(nanos).as_secs_f64()
}

fn status_lines() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let wanted =
        |line: &&str| line.starts_with("VmRSS") || line.starts_with("VmHWM") || line.starts_with("RssAnon");
    status.lines().filter(wanted).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

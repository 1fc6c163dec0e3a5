//! The exporter against a kubelet on a unix socket, recorded sysfs trees and the embedded API server, in real time.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod fake_kubelet;

use fake_kubelet::{FakeKubelet, container, cpus, devices, memory, pod};
use kai_clock::Clock;
use kai_numa_exporter::{Options, topology};
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, POD};
use kai_runtime::process::Process;
use kai_sim::{Cluster, FaultRates, NodeGroup, Right, Rights};
use prometheus::Registry;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const OBSERVED: &str = "kai.scheduler/numa-placement-observed";
const CLIENT: &str = "numa-placement-exporter";

/// A folder of one test, empty at its start.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("numa-{test}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A sysfs tree with the CPU lists of zones.
fn sysfs(folder: &Path, zones: &[(&str, &str)]) -> PathBuf {
    let root = folder.join("sys");
    for (zone, cpus) in zones {
        let zone = root.join("devices/system/node").join(zone);
        std::fs::create_dir_all(&zone).unwrap();
        std::fs::write(zone.join("cpulist"), format!("{cpus}\n")).unwrap();
    }
    root
}

/// As of a machine with two zones, one with only memory, and other files beside them.
fn two_zones(folder: &Path) -> PathBuf {
    sysfs(
        folder,
        &[("node0", "0-3,8-11"), ("node1", "4-7,12-15"), ("node2", ""), ("nodes", "x"), ("power", "y")],
    )
}

struct World {
    cluster: Cluster,
    kubelet: FakeKubelet,
    metrics: Registry,
}

/// The rules of KAI's role, which lets pods be listed and not watched.
fn kai_role() -> Value {
    json!({"metadata": {}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
    ]})
}

impl World {
    async fn new(test: &str) -> Self {
        Self::with_rights(test, None).await
    }

    async fn with_rights(test: &str, rights: Option<Rights>) -> Self {
        let folder = folder(test);
        let nodes = [NodeGroup::gpu_nodes(1, 8)];
        let mut cluster = Cluster::builder().seed(1).nodes(nodes).start().await.unwrap();
        let kubelet = FakeKubelet::start(&folder.join("kubelet.sock"));
        let options = Options {
            node: "node-1".to_owned(),
            socket: folder.join("kubelet.sock"),
            sysfs: two_zones(&folder),
            poll_interval: Duration::from_millis(100),
            resync_interval: Some(Duration::from_secs(1)),
        };
        cluster.faults().set_rights(CLIENT, rights);
        let metrics = Registry::new();
        let registry = metrics.clone();
        cluster.run(CLIENT, move |client| {
            let api = Api::new(client, CLIENT);
            let process = Process::with(api, Clock::system(), CLIENT, registry.clone(), Health::default());
            let options = options.clone();
            async move { kai_numa_exporter::run(process, options).await.unwrap() }
        });
        Self { cluster, kubelet, metrics }
    }

    /// Whether the exporter reports that it works without watching the pods; none before it has.
    fn is_degraded(&self) -> Option<bool> {
        let families = self.metrics.gather();
        let family = families.iter().find(|family| family.name() == "kai_component_degraded")?;
        let of_watch = |series: &&prometheus::proto::Metric| series.get_label()[0].value() == "watch pods";
        Some(family.get_metric().iter().find(of_watch)?.get_gauge().get_value() > 0.0)
    }

    async fn wait_until_degraded(&self, expected: bool) {
        for _ in 0..600 {
            if self.is_degraded() == Some(expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("degraded: {:?} instead of {expected}", self.is_degraded());
    }

    async fn create(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        });
        // The service account of the namespace is created asynchronously.
        for _ in 0..100 {
            if self.cluster.api().create_dynamic(&POD, "default", &pod).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} cannot be created");
    }

    async fn observed(&self, name: &str) -> Option<Value> {
        let pod = self.cluster.api().get_dynamic(&POD, &Key::new("default", name)).await.ok()?;
        let text = pod["metadata"]["annotations"].get(OBSERVED)?.as_str()?.to_owned();
        serde_json::from_str(&text).ok()
    }

    async fn wait_for(&self, name: &str, expected: &Value) {
        for _ in 0..200 {
            if self.observed(name).await.as_ref() == Some(expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} has {:?} instead of {expected}", self.observed(name).await);
    }
}

fn gpus(zone: u64, count: usize) -> Value {
    json!([{"zone": format!("node-{zone}"), "amount": {"nvidia.com/gpu": count.to_string()}}])
}

fn with_gpus(name: &str, zone: u64, count: usize) -> Vec<u8> {
    pod("default", name, &[container(&[devices("nvidia.com/gpu", count, &[zone])])])
}

#[tokio::test]
async fn placement_is_reported_and_follows_changes() {
    let world = World::new("changes").await;
    world.create("a").await;
    world.create("plain").await;
    let parts = [devices("nvidia.com/gpu", 2, &[1]), cpus(&[4, 5, 0]), memory("memory", 1 << 30, &[1])];
    world
        .kubelet
        .set(&[pod("default", "a", &[container(&parts)]), pod("default", "plain", &[container(&[])])]);
    let both = json!([
        {"zone": "node-0", "amount": {"cpu": "1"}},
        {"zone": "node-1", "amount": {"cpu": "2", "memory": "1073741824", "nvidia.com/gpu": "2"}},
    ]);
    world.wait_for("a", &both).await;
    assert_eq!(world.observed("plain").await, None);

    // Another placement, and a pod that the API server delivers after the kubelet.
    world.kubelet.set(&[with_gpus("a", 0, 1), with_gpus("late", 1, 3)]);
    world.wait_for("a", &gpus(0, 1)).await;
    world.create("late").await;
    world.wait_for("late", &gpus(1, 3)).await;
}

#[tokio::test]
async fn placements_are_reported_with_the_rights_of_kais_role() {
    let world = World::with_rights("rights", Some(Rights::of_roles(&[kai_role()]))).await;
    world.create("a").await;
    world.kubelet.set(&[with_gpus("a", 1, 2), with_gpus("late", 0, 1)]);
    world.wait_for("a", &gpus(1, 2)).await;
    world.wait_until_degraded(true).await;
    // The next list has it, after at most ten seconds.
    world.create("late").await;
    for _ in 0..2 {
        if world.observed("late").await.is_none() {
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
    }
    world.wait_for("late", &gpus(0, 1)).await;
    assert_eq!(world.is_degraded(), Some(true), "lists do not end the report");
    let denied = world.cluster.faults().denied(CLIENT);
    assert_eq!(denied.into_iter().collect::<Vec<_>>(), [Right::new("watch", "pods", "")]);

    world.cluster.faults().set_rights(CLIENT, None);
    world.wait_until_degraded(false).await;
}

#[tokio::test]
async fn pod_created_again_under_its_name_and_foreign_changes_are_corrected() {
    let world = World::new("again").await;
    world.create("a").await;
    world.kubelet.set(&[with_gpus("a", 1, 2)]);
    world.wait_for("a", &gpus(1, 2)).await;
    let key = Key::new("default", "a");
    let api = world.cluster.api();
    api.delete_dynamic(&POD, &key, &DeleteOptions::default().immediately()).await.unwrap();
    world.create("a").await;
    world.wait_for("a", &gpus(1, 2)).await;
    let forged = json!({"metadata": {"annotations": {OBSERVED: "[]"}}});
    api.patch_dynamic(&POD, &key, Part::Main, &forged).await.unwrap();
    world.wait_for("a", &gpus(1, 2)).await;
    // At rest nothing is written.
    let writes = || world.cluster.faults().counts(CLIENT).requests;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = writes();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(writes(), before);
}

#[tokio::test]
async fn malformed_responses_and_restarts_of_the_kubelet_are_survived() {
    let mut world = World::new("malformed").await;
    world.create("a").await;
    world.create("b").await;
    for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"", &[0x0b; 40]] {
        world.kubelet.set_raw(garbage.to_vec());
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    world.kubelet.refuse(true);
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.kubelet.refuse(false);
    // A malformed pod between two others; names that are none; more than the kubelet gave before.
    let malformed = vec![0x0a, 0x20, b'x'];
    let hostile = pod("../..", "\u{0}?x=/", &[container(&[devices("nvidia.com/gpu", 1, &[0])])]);
    world.kubelet.set(&[with_gpus("a", 0, 1), malformed, hostile, with_gpus("b", 1, 1)]);
    world.wait_for("a", &gpus(0, 1)).await;
    world.wait_for("b", &gpus(1, 1)).await;
    world.kubelet.restart().await;
    world.kubelet.set(&[with_gpus("a", 1, 4)]);
    world.wait_for("a", &gpus(1, 4)).await;
    assert_eq!(world.observed("b").await, Some(gpus(1, 1)), "an annotation is never removed");
}

#[tokio::test]
async fn lost_requests_and_crashes_of_the_exporter_are_survived() {
    let world = World::new("faults").await;
    world.cluster.faults().set_client_rates(CLIENT, FaultRates { crash: 20_000, ..FaultRates::mixed() });
    let names: Vec<String> = (0..8).map(|at| format!("p{at}")).collect();
    for name in &names {
        world.create(name).await;
    }
    for round in 0..3_u64 {
        let pods: Vec<_> = names.iter().map(|name| with_gpus(name, round % 2, 1 + round as usize)).collect();
        world.kubelet.set(&pods);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    world.cluster.faults().heal_all();
    world.cluster.faults().set_client_rates(CLIENT, FaultRates::default());
    for name in &names {
        world.wait_for(name, &gpus(0, 3)).await;
    }
}

#[test]
fn zones_are_read_from_sysfs_and_errors_name_the_file() {
    let folder = folder("sysfs");
    let read = topology::read(&two_zones(&folder)).unwrap();
    assert_eq!(read.zones(), 2);
    assert_eq!([0, 9, 5, 15, 16].map(|cpu| read.zone(cpu)), [Some(0), Some(0), Some(1), Some(1), None]);
    let error = |root: &Path| topology::read(root).unwrap_err().to_string();
    assert!(error(&folder.join("none")).contains("none/devices/system/node"), "{}", error(&folder));
    assert!(error(&sysfs(&folder.join("empty"), &[("node0", "")])).contains("no NUMA zone"));
    assert!(error(&sysfs(&folder.join("bad"), &[("node0", "0-x")])).contains("`0-x`"));
}

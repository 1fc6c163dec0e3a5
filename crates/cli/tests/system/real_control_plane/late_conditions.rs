//! Conditions that are written late, on a real control plane: a proxy holds the requests of a scheduler back, while watch
//! events reach it at once.

use super::control_plane::{Plane, SCHEDULER};
use crate::late_conditions;
use crate::test_cluster::{PodBuilder, TestCluster};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Cluster = TestCluster<Arc<Plane>>;

/// Longer than the scheduler waits before it reports, and shorter than it may take to renew its lease.
const DELAY: Duration = Duration::from_secs(4);

pub(super) async fn bound_pod(cluster: &Cluster) {
    let link = slow_link(cluster).await;
    late_conditions::bound_by_another_client(cluster, DELAY, async || link.delay(DELAY)).await;
    cluster.backend.restart_scheduler(cluster.namespace(), None);
    assert_refused(cluster, "pods", "late").await;
}

/// The second shard is served by a scheduler whose requests are not held back.
pub(super) async fn two_shards(cluster: &Cluster) {
    let link = slow_link(cluster).await;
    let (plane, from) = (&cluster.backend, cluster.namespace());
    let to = format!("{from}-2");
    let second = format!("{SCHEDULER}-{to}");
    let pool = format!("--partition-label-value={to}");
    plane.start_component(&second, SCHEDULER, &["--plugin-server-port=0", &pool]);
    late_conditions::moved_to_another_shard(cluster, [from, &to], DELAY, async || link.delay(DELAY)).await;
    plane.restart_scheduler(from, None);
    assert!(plane.kill_component(&second), "{second} had ended");
    assert_refused(cluster, "podgroups", "huge").await;
}

/// Without a refused write, none was late.
async fn assert_refused(cluster: &Cluster, resource: &str, name: &str) {
    let log = tokio::fs::read_to_string(cluster.backend.control().audit_file()).await.unwrap();
    let namespace = cluster.namespace();
    let parts = [
        format!(r#""resource":"{resource}""#),
        format!(r#""namespace":"{namespace}""#),
        format!(r#""name":"{name}""#),
        r#""subresource":"status""#.to_owned(),
        r#""verb":"patch""#.to_owned(),
        r#""code":409"#.to_owned(),
    ];
    let is_refused = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(is_refused, "no status of {resource} `{name}` was written late");
}

/// Puts a link between the scheduler of the test and the API server, which delays nothing yet.
async fn slow_link(cluster: &Cluster) -> SlowLink {
    let plane = &cluster.backend;
    let link = SlowLink::start(plane.control().server().address()).await;
    plane.restart_scheduler(cluster.namespace(), Some(link.address));
    // It binds once it has the lease of the process before it.
    cluster.create_queue("probe", 8).await;
    cluster.create_pod(PodBuilder::new("probe", "probe", 1)).await;
    cluster.wait_for_running("probe", 1).await;
    cluster.delete_pod("probe").await;
    link
}

/// A TCP proxy that delays what clients send.
struct SlowLink {
    address: SocketAddr,
    delay: Arc<Mutex<Duration>>,
    _tasks: JoinSet<()>,
}

impl SlowLink {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, delay) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Duration::ZERO)));
        let (mut tasks, current) = (JoinSet::new(), Arc::clone(&delay));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let (from_client, mut to_client) = client.into_split();
                let (mut from_server, to_server) = server.into_split();
                connections.spawn(delayed(from_client, to_server, Arc::clone(&current)));
                connections.spawn(async move {
                    // An error means that one side closed the connection.
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                });
            }
        });
        Self { address, delay, _tasks: tasks }
    }

    fn delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }
}

/// Forwards bytes in their order, each as late as the delay said when it arrived.
async fn delayed(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Arc<Mutex<Duration>>) {
    let (held, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let write = async move {
        while let Some((at, bytes)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut buffer).await
            && count > 0
        {
            let at = Instant::now() + *delay.lock();
            if held.send((at, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    tokio::join!(write, read);
}

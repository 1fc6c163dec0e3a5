//! Every component as a process, with its metrics read over HTTP.

use axum::http::Request;
use kai_runtime::connect;
use kai_runtime::kind::POD;
use kai_sim::Cluster;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Flags that switch off what needs certificates or a fixed port.
const FLAGS: [(&str, &[&str]); 7] = [
    ("scheduler", &["--plugin-server-port=0"]),
    ("binder", &[]),
    ("pod-grouper", &[]),
    ("podgroup-controller", &["--enable-podgroup-webhook=false"]),
    ("queue-controller", &["--enable-webhook=false"]),
    ("node-scale-adjuster", &[]),
    ("operator", &[]),
];
/// It creates its certificate, and registers the webhooks that it serves.
const ADMISSION: &str = "admission";
/// Metrics of webhooks that were called.
const WEBHOOKS: [&str; 3] = [
    "controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/",
    "controller_runtime_webhook_requests_in_flight{webhook=\"/",
    "controller_runtime_webhook_latency_seconds_bucket{webhook=\"/",
];
/// Metrics of all processes.
const SHARED: [&str; 10] = [
    "process_cpu_seconds_total ",
    "process_open_fds ",
    "process_max_fds ",
    "process_virtual_memory_bytes ",
    "process_resident_memory_bytes ",
    "process_start_time_seconds ",
    "rest_client_requests_total{code=\"200\",host=\"127.0.0.1:",
    "rest_client_request_duration_seconds_bucket{host=\"127.0.0.1:",
    "leader_election_master_status{name=\"",
    "leader_election_slowpath_total{name=\"",
];
/// Metrics of all controllers; `NAME` stands for the controller.
const CONTROLLERS: [&str; 14] = [
    "workqueue_depth{controller=\"NAME\",name=\"NAME\"} ",
    "workqueue_adds_total{controller=\"NAME\",name=\"NAME\"} ",
    "workqueue_retries_total{controller=\"NAME\",name=\"NAME\"} ",
    "workqueue_queue_duration_seconds_bucket{controller=\"NAME\",name=\"NAME\",le=\"",
    "workqueue_work_duration_seconds_bucket{controller=\"NAME\",name=\"NAME\",le=\"",
    "workqueue_unfinished_work_seconds{controller=\"NAME\",name=\"NAME\"} ",
    "workqueue_longest_running_processor_seconds{controller=\"NAME\",name=\"NAME\"} ",
    "controller_runtime_reconcile_total{controller=\"NAME\",result=\"success\"} ",
    "controller_runtime_reconcile_total{controller=\"NAME\",result=\"error\"} ",
    "controller_runtime_reconcile_errors_total{controller=\"NAME\"} ",
    "controller_runtime_reconcile_time_seconds_bucket{controller=\"NAME\",le=\"",
    "controller_runtime_max_concurrent_reconciles{controller=\"NAME\"} ",
    "controller_runtime_active_workers{controller=\"NAME\"} ",
    "controller_runtime_terminal_reconcile_errors_total{controller=\"NAME\"} ",
];

#[expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process that ends with the test.
pub(super) struct Component {
    name: &'static str,
    pub(super) port: u16,
    child: Child,
}

impl Drop for Component {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]
impl Component {
    pub(super) fn start(name: &'static str, flags: &[&str], kubeconfig: &Path) -> Self {
        let port = free_port();
        let child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args([name, "--kubeconfig"])
            .arg(kubeconfig)
            .arg(format!("--metrics-bind-address=127.0.0.1:{port}"))
            .args(["--health-probe-bind-address=0", "--leader-elect"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary runs");
        Self { name, port, child }
    }

    async fn read(&self, path: &str) -> Option<String> {
        let client = connect::plain(&format!("http://127.0.0.1:{}", self.port)).unwrap();
        client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.ok()
    }

    /// The metrics once one of their lines is as expected.
    async fn metrics_when(&self, is_expected: impl Fn(&str) -> bool) -> String {
        for _ in 0..3_000 {
            if let Some(text) = self.read("/metrics").await
                && text.lines().any(&is_expected)
            {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{} does not lead, or its controller did not start", self.name);
    }
}

/// Counts successful requests.
const ANSWERED: &str = "rest_client_requests_total{code=\"200\"";

#[tokio::test(flavor = "multi_thread")]
async fn every_component_serves_the_usual_metrics() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let cluster = Cluster::builder().listen(address).start().await.unwrap();
    kai_components::install::install(cluster.api()).await.unwrap();
    let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("component-metrics.kubeconfig");
    cluster.listening().unwrap().write_kubeconfig(&kubeconfig).unwrap();
    let mut components: Vec<Component> =
        FLAGS.iter().map(|(name, flags)| Component::start(name, flags, &kubeconfig)).collect();
    let port = free_port();
    let address = format!("--webhook-addr={port}");
    let flags = [address.as_str(), "--webhook-host=127.0.0.1", "--webhook-cert-dir=/nonexistent"];
    components.push(Component::start(ADMISSION, &flags, &kubeconfig));
    for component in &components {
        let controller = match component.name {
            // These reconcile no single objects.
            "scheduler" | "operator" | ADMISSION => None,
            "binder" => Some("bindrequest"),
            "pod-grouper" | "node-scale-adjuster" => Some("pod"),
            "podgroup-controller" => Some("podgroup"),
            _ => Some("queue"),
        };
        let is_leading =
            |line: &str| line.starts_with("leader_election_master_status{") && line.ends_with(" 1");
        component.metrics_when(is_leading).await;
        // It leads before the first response to another request has arrived.
        let mut text = component.metrics_when(|line| line.starts_with(ANSWERED)).await;
        if let Some(name) = controller {
            let start = format!("workqueue_depth{{controller=\"{name}\"");
            text = component.metrics_when(|line| line.starts_with(&start)).await;
        }
        let expected = SHARED.iter().map(|start| (*start).to_owned()).chain(
            controller
                .into_iter()
                .flat_map(|name| CONTROLLERS.iter().map(move |start| start.replace("NAME", name))),
        );
        for start in expected {
            let present = text.lines().any(|line| line.starts_with(&start));
            assert!(present, "{} has no `{start}`:\n{text}", component.name);
        }
    }
    let admission = components.last().expect("it was started last");
    let metrics = called_webhook(&cluster, admission).await;
    for start in WEBHOOKS {
        assert!(metrics.lines().any(|line| line.starts_with(start)), "no `{start}`:\n{metrics}");
    }
}

/// Creates pods until a webhook was called for one; returns the metrics then.
async fn called_webhook(cluster: &Cluster, admission: &Component) -> String {
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "reviewed-"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
    });
    for _ in 0..600 {
        // It is rejected while the webhook is not served.
        let _ = cluster.api().create_dynamic(&POD, "default", &pod).await;
        if let Some(text) = admission.read("/metrics").await
            && text.lines().any(|line| line.starts_with(WEBHOOKS[0]))
        {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("no webhook was called");
}

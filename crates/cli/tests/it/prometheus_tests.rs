//! Alerts and dashboards against a real Prometheus that scrapes the components while they work, and past usage from
//! queue controller through Prometheus to scheduler.
//!
//! Every component is a process. Where no kube-state-metrics runs, the test serves the one metric of it that is used.

#![expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]

use super::component_metrics::Component;
use super::scratch;
use axum::Router;
use axum::routing::get;
use kai_runtime::connect;
use kai_runtime::kind::{JOB, NODE, ResourceKind};
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names a folder with the programs `prometheus` and `promtool`, where they are not installed.
const FOLDER_VARIABLE: &str = "KAI_PROMETHEUS";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/kai-scheduler");
/// Jobs of Prometheus as the monitors of the chart name them, the subcommands, and flags that switch off certificates.
const COMPONENTS: [(&str, &str, &[&str]); 5] = [
    ("kai-scheduler-default", "scheduler", &["--plugin-server-port=0"]),
    ("binder", "binder", &[]),
    ("pod-grouper", "pod-grouper", &[]),
    ("podgroup-controller", "podgroup-controller", &["--enable-podgroup-webhook=false"]),
    ("queue-controller", "queue-controller", &["--enable-webhook=false"]),
];
/// Metrics of alerts that only exist once something has failed, or where webhooks are served over TLS.
const ONLY_AFTER_A_FAULT: [&str; 6] = [
    "kai_scenario_search_action_budget_exhausted_total",
    "kai_component_degraded",
    "kai_api_requests_denied_total",
    "kai_api_invalid_objects_total",
    "kai_plugin_failures_total",
    "controller_runtime_webhook_requests_total",
];
/// How long the series that panels need may take to appear on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

fn program(name: &str) -> PathBuf {
    std::env::var_os(FOLDER_VARIABLE)
        .map_or_else(|| PathBuf::from(name), |folder| Path::new(&folder).join(name))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A Prometheus that ends with the test.
struct Prometheus {
    child: Child,
    url: String,
    folder: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Errors are ignored: the process may have exited, and the folder is temporary.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Prometheus {
    fn start(port: u16, targets: &[(&str, u16)]) -> Self {
        let mut config = format!(
            "global: {{scrape_interval: 1s}}\nrule_files: [{CHART}/files/alerts.yaml]\nscrape_configs:\n"
        );
        for (job, port) in targets {
            writeln!(config, "- {{job_name: {job}, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}")
                .unwrap();
        }
        let config = scratch("prometheus.yaml", config);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("prometheus-data");
        let _ = std::fs::remove_dir_all(&folder);
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", folder.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn()
            .expect("prometheus is installed, or in the folder that KAI_PROMETHEUS names");
        Self { child, url: format!("http://127.0.0.1:{port}"), folder }
    }

    /// The series of an instant query.
    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let client = connect::plain(&self.url).map_err(|error| error.to_string())?;
        let path = format!("/api/v1/query?query={}", kai_runtime::url::query_value(expression));
        let request = axum::http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let text = client.request_text(request).await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let series = answer.pointer("/data/result").and_then(Value::as_array);
        series.cloned().ok_or_else(|| format!("{expression}: {answer}"))
    }
}

/// Title and expression of every target of every dashboard, as Grafana would send it for all values of the variables.
fn panels() -> Vec<(String, String)> {
    let mut panels = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(CHART).join("files/dashboards"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let expression = expression.replace("$__rate_interval", "5m");
                let expression = expression.replace("$queue", ".*").replace("$job", ".*");
                assert!(!expression.contains('$'), "{expression}");
                panels.push((format!("{} / {}", dashboard["title"], panel["title"]), expression));
            }
        }
    }
    panels
}

/// The metrics in the expressions of the alerts.
fn metrics_of_alerts() -> BTreeSet<String> {
    let text = std::fs::read_to_string(Path::new(CHART).join("files/alerts.yaml")).unwrap();
    let rules = text.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let words = rules.flat_map(|rule| rule.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let prefixes = ["kai_", "leader_election_", "rest_client_", "controller_runtime_", "workqueue_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

#[test]
fn every_alert_has_a_line_in_the_runbook() {
    let rules = std::fs::read_to_string(Path::new(CHART).join("files/alerts.yaml")).unwrap();
    let page = std::fs::read_to_string(Path::new(CHART).join("../../docs/monitoring.md")).unwrap();
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/monitoring.md has no line for {name}");
    }
}

/// Whether some source file of a crate has a text.
fn is_in_the_code(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_dir() {
            is_in_the_code(&path, text)
        } else {
            is_source && std::fs::read_to_string(&path).unwrap().contains(text)
        }
    })
}

#[test]
fn metrics_that_a_healthy_run_does_not_have_are_in_the_code() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ONLY_AFTER_A_FAULT {
        let short = name.trim_start_matches("kai_").trim_start_matches("controller_runtime_webhook_");
        let is_known = std::fs::read_dir(&crates)
            .unwrap()
            .any(|entry| is_in_the_code(&entry.unwrap().path().join("src"), &format!("\"{short}\"")));
        assert!(is_known, "no component has a metric {name}");
    }
}

/// Serves the capacity of the nodes as kube-state-metrics does.
async fn serve_capacity(cluster: &Cluster, port: u16) {
    let nodes = cluster.api().list_dynamic(&NODE, "").await.unwrap().items;
    let mut text = String::from("# TYPE kube_node_status_capacity gauge\n");
    for node in &nodes {
        for (resource, label) in [("nvidia.com/gpu", "nvidia_com_gpu"), ("cpu", "cpu")] {
            let amount = node.pointer(&format!("/status/capacity/{}", resource.replace('/', "~1")));
            let amount: f64 =
                amount.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(64.0);
            let name = kai_object::name(node);
            writeln!(text, "kube_node_status_capacity{{node=\"{name}\",resource=\"{label}\"}} {amount}")
                .unwrap();
        }
    }
    let router = Router::new().route("/metrics", get(move || async move { text }));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
}

fn job(name: &str, queue: &str, class: &str, pods: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": queue}},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"labels": {"kai.scheduler/queue": queue}},
            "spec": {
                "schedulerName": "kai-scheduler", "restartPolicy": "Never", "priorityClassName": class,
                "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
        }},
    })
}

fn queue(name: &str, quota: i64) -> Value {
    let bounds = |quota: i64| json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
    json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {
            "parentQueue": "default-parent-queue",
            "resources": {"gpu": bounds(quota), "cpu": bounds(-1), "memory": bounds(-1)},
        },
    })
}

/// Two queues on four GPUs: one fills the node, then the other reclaims its quota, so that every counter moves.
async fn work(cluster: &Cluster) {
    let queues = ResourceKind::of::<kai_api::Queue>();
    for (name, quota) in [("team-a", 2), ("team-b", 2)] {
        cluster.api().create_dynamic(&queues, "", &queue(name, quota)).await.unwrap();
    }
    cluster.api().create_dynamic(&JOB, "default", &job("a", "team-a", "train", 4)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Prometheus: cargo xtask ci runs it"]
async fn panels_and_alerts_have_data_and_usage_reaches_the_scheduler() {
    let checked = Command::new(program("promtool"))
        .args(["check", "rules"])
        .arg(Path::new(CHART).join("files/alerts.yaml"))
        .output()
        .expect("promtool is installed, or in the folder that KAI_PROMETHEUS names");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let nodes = [NodeGroup::gpu_nodes(1, 4)];
    let cluster = Cluster::builder().nodes(nodes).listen(address).start().await.unwrap();
    kai_components::install::install(cluster.api()).await.unwrap();
    let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("prometheus-tests.kubeconfig");
    cluster.listening().unwrap().write_kubeconfig(&kubeconfig).unwrap();

    let (database, capacity) = (free_port(), free_port());
    let settings = json!({
        "clientType": "prometheus", "connectionString": format!("http://127.0.0.1:{database}"),
        "usageParams": {"windowSize": "10m", "fetchInterval": "2s", "stalenessPeriod": "1m"},
    });
    let shard = scratch("usage-shard.yaml", json!({"usageDBConfig": settings}).to_string());
    let configuration = format!("--scheduler-conf={shard}");
    let components: Vec<(&str, Component)> = COMPONENTS
        .iter()
        .map(|(job, command, flags)| {
            let mut flags = flags.to_vec();
            if *command == "scheduler" {
                flags.push(&configuration);
            }
            (*job, Component::start(command, &flags, &kubeconfig))
        })
        .collect();
    serve_capacity(&cluster, capacity).await;
    let mut targets: Vec<(&str, u16)> = components.iter().map(|(job, one)| (*job, one.port)).collect();
    targets.push(("kube-state-metrics", capacity));
    let prometheus = Prometheus::start(database, &targets);

    work(&cluster).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    wait(&prometheus, "max(kai_queue_allocated_gpus{queue_metadata_name=\"team-a\"}) == 4", deadline).await;
    cluster.api().create_dynamic(&JOB, "default", &job("b", "team-b", "train", 2)).await.unwrap();
    wait(&prometheus, "max(kai_queue_allocated_gpus{queue_metadata_name=\"team-b\"}) == 2", deadline).await;
    // Queue controller → Prometheus → scheduler: the GPUs that queue `team-a` had are past usage.
    wait(&prometheus, "max(kai_queue_gpu_usage{queue_metadata_name=\"team-a\"}) > 0", deadline).await;

    let mut empty: BTreeMap<String, String> =
        panels().into_iter().map(|(title, expression)| (expression, title)).collect();
    while !empty.is_empty() && tokio::time::Instant::now() < deadline {
        for expression in empty.keys().cloned().collect::<Vec<_>>() {
            if !prometheus.query(&expression).await.unwrap().is_empty() {
                empty.remove(&expression);
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(empty.is_empty(), "panels without data: {empty:#?}");

    for metric in metrics_of_alerts().iter().filter(|name| !ONLY_AFTER_A_FAULT.contains(&name.as_str())) {
        let series = prometheus.query(metric).await.unwrap();
        assert!(!series.is_empty(), "no component serves {metric}, which an alert reads");
    }
    let firing = prometheus.query("ALERTS{alertstate=\"firing\"}").await.unwrap();
    assert!(firing.is_empty(), "alerts fire while everything works: {firing:?}");
}

async fn wait(prometheus: &Prometheus, expression: &str, deadline: tokio::time::Instant) {
    while prometheus.query(expression).await.unwrap_or_default().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "never true: {expression}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

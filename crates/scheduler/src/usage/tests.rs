//! The usage query on virtual time, against a server with the response format of Prometheus.

use super::*;
use crate::metrics::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use parking_lot::{Mutex, MutexGuard};
use prometheus::Registry;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A fake Prometheus server.
#[derive(Clone, Default)]
struct Server {
    state: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    /// Samples: a metric that the expression contains, queue and value.
    samples: Vec<(&'static str, &'static str, &'static str)>,
    failing: bool,
    hanging: bool,
    queries: Vec<String>,
}

impl Server {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.state.lock()
    }

    fn client(&self) -> kube::Client {
        let router = Router::new().route("/api/v1/query", post(answer)).with_state(self.clone());
        kube::Client::new(router, "default")
    }
}

async fn answer(State(server): State<Server>, form: String) -> (StatusCode, String) {
    if server.script().hanging {
        std::future::pending::<()>().await;
    }
    let mut script = server.script();
    script.queries.push(decoded(&form));
    if script.failing {
        let error = json!({"status": "error", "errorType": "execution", "error": "query timed out"});
        return (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
    }
    let expression = script.queries.last().expect("it was just put there").clone();
    let result: Vec<Value> = script
        .samples
        .iter()
        .filter(|(metric, ..)| expression.contains(metric))
        .map(|(_, queue, value)| json!({"metric": {"queue_name": queue}, "value": [1.5, value]}))
        .collect();
    let data = json!({"resultType": "vector", "result": result});
    (StatusCode::OK, json!({"status": "success", "data": data}).to_string())
}

fn decoded(form: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = form.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| std::str::from_utf8(&after[..2]).expect("it is text"));
        bytes.push(hex.map_or(*first, |hex| u8::from_str_radix(hex, 16).expect("it is a number")));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).expect("it is text")
}

fn config(params: &Value) -> Config {
    let written =
        json!({"clientType": "prometheus", "connectionString": "http://db:9090", "usageParams": params});
    Config::parse(&written, |_| None).expect("a valid configuration")
}

fn prometheus(config: &Config) -> &PrometheusConfig {
    match &config.database {
        Database::Prometheus(prometheus) => prometheus,
        Database::Ledger => panic!("Prometheus is configured"),
    }
}

fn clock() -> Clock {
    Clock::starting_at("2026-01-31T12:00:00Z".parse().expect("a valid time"))
}

const GPUS: [(&str, &str, &str); 2] =
    [("nvidia_com_gpu", "", "800"), ("kai_queue_allocated_gpus", "a", "200")];

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_is_allocation_over_capacity_and_series_add_up() {
    let server = Server::default();
    server.script().samples.extend(GPUS);
    server.script().samples.extend([
        ("kai_queue_allocated_gpus", "a", "100"),
        ("kai_queue_allocated_gpus", "b", "NaN"),
        ("resource=\"cpu\"", "", "10"),
        ("kai_queue_allocated_cpu_cores", "b", "1"),
    ]);
    let source = Source::new(config(&json!({})), server.client());
    let usage = source.fetch(clock()).await.expect("the server answers");
    assert_eq!(usage, Usage::from([("a".to_owned(), [0.0, 0.0, 0.375]), ("b".to_owned(), [0.1, 0.0, 0.0])]));
    let queries = server.script().queries.clone();
    assert_eq!(queries.len(), 6);
    let expected = "query=sum_over_time((kai_queue_allocated_gpus)[1w:1m0s])&time=1769860800.000";
    assert!(queries.iter().any(|form| form == expected), "{queries:?}");

    server.script().samples.retain(|(metric, ..)| *metric != "nvidia_com_gpu");
    let error = source.fetch(clock()).await.expect_err("there is no GPU capacity").to_string();
    assert!(error.contains("usage of gpu"), "{error}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_decays_by_the_half_life() {
    let server = Server::default();
    let source = Source::new(config(&json!({"halfLifePeriod": "90m", "windowSize": "2d"})), server.client());
    source.fetch(clock()).await.expect("the server answers");
    let queries = server.script().queries.clone();
    let decay = "((kai_queue_allocated_gpus) * (0.5^((1769860800 - time()) / 5400.000000)))";
    let expected = format!("sum_over_time(({decay})[2d:1m0s])");
    assert!(queries.iter().any(|form| form.contains(&expected)), "{queries:?}");
}

#[test]
fn tumbling_and_cron_windows_begin_at_their_last_reset() {
    let at = |text: &str| text.parse().expect("a valid time");
    let tumbling = config(&json!({
        "windowType": "tumbling", "windowSize": "1d", "tumblingWindowStartTime": "2026-01-01T06:00:00Z",
    }));
    let range = |config: &Config, now: &str| query::range(&config.window, at(now));
    assert_eq!(range(&tumbling, "2026-01-31T12:00:00Z"), WindowRange::Since("21600000ms".to_owned()));
    assert_eq!(
        range(&tumbling, "2026-01-31T06:00:00Z"),
        WindowRange::Since("86400000ms".to_owned()),
        "on the boundary"
    );
    assert_eq!(range(&tumbling, "2026-01-01T05:00:00Z"), WindowRange::NotStarted);
    let weekly = config(&json!({"windowType": "cron", "cronString": "0 6 * * 6"}));
    assert_eq!(range(&weekly, "2026-01-31T12:00:00Z"), WindowRange::Since("21600000ms".to_owned()));
    assert_eq!(
        range(&weekly, "2026-01-31T06:00:00Z"),
        WindowRange::Since("604800000ms".to_owned()),
        "on the boundary"
    );
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_queries_are_counted_and_the_last_result_becomes_stale() {
    let server = Server::default();
    server.script().samples.extend(GPUS);
    let params = json!({"fetchInterval": "30s", "stalenessPeriod": "100s"});
    let source = Source::new(config(&params), server.client());
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai").usage_source;
    let published: Arc<Mutex<Vec<Usage>>> = Arc::default();
    let (task_metrics, received) = (metrics.clone(), Arc::clone(&published));
    let _task = tokio::spawn(async move {
        source.poll(None, clock(), &task_metrics, |usage| received.lock().push(usage)).await;
    });
    let count = || published.lock().len();
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert_eq!((count(), metrics.failures.get(), metrics.stale.get()), (3, 0, 0), "at 0, 30 and 60 s");

    server.script().failing = true;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((count(), metrics.failures.get(), metrics.stale.get()), (3, 2, 0), "not stale yet");
    server.script().failing = false;
    server.script().hanging = true;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((count(), metrics.stale.get()), (3, 1), "a query that times out counts as a failure");
    assert!(metrics.failures.get() > 3);

    server.script().hanging = false;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(count() > 3, "the query is repeated");
    assert_eq!(metrics.stale.get(), 0);
}

#[test]
fn invalid_configuration_is_rejected_with_the_field() {
    let refused =
        |written: Value| Config::parse(&written, |_| None).expect_err("an invalid configuration").to_string();
    let with = |params: Value| json!({"clientType": "prometheus", "connectionString": "http://a", "usageParams": params});
    assert!(refused(json!({"clientType": 1})).contains("invalid type"));
    assert!(refused(json!({"clientType": "fake"})).contains("`fake`"));
    assert!(refused(json!({"clientType": "prometheus"})).contains("neither"));
    let both = json!({"clientType": "prometheus", "connectionString": "a", "connectionStringEnvVar": "b"});
    assert!(refused(both).contains("both"));
    assert!(refused(with(json!({"windowSize": "1.5h"}))).contains("windowSize"));
    assert!(refused(with(json!({"windowType": "round"}))).contains("`round`"));
    assert!(refused(with(json!({"windowType": "tumbling"}))).contains("tumblingWindowStartTime"));
    assert!(refused(with(json!({"windowType": "cron", "cronString": "soon"}))).contains("`soon`"));
    assert!(refused(with(json!({"fetchInterval": "often"}))).contains("fetchInterval"));
}

#[test]
fn defaults_are_those_of_kai() {
    let written = json!({"clientType": "prometheus", "connectionStringEnvVar": "DB"});
    let config = Config::parse(&written, |name| (name == "DB").then(|| "http://db".to_owned()))
        .expect("a valid configuration");
    let prometheus = prometheus(&config);
    assert_eq!(prometheus.url, "http://db");
    let times = [config.fetch_every, config.stale_after, config.wait_max, prometheus.timeout];
    assert_eq!(times.map(|time| time.as_secs()), [60, 300, 60, 10]);
    assert_eq!(prometheus.capacity[2], "sum(kube_node_status_capacity{resource=\"nvidia_com_gpu\"})");
    let params = json!({"fetchInterval": "10m", "extraParams": {"usageQueryTimeout": "x", "gpuAllocationMetric": "g"}});
    let config = self::config(&params);
    assert_eq!(config.stale_after.as_secs(), 600, "at least the fetch interval");
    let prometheus = self::prometheus(&config);
    assert_eq!(
        (prometheus.allocation[2].as_str(), prometheus.timeout.as_secs(), config.warnings.len()),
        ("g", 10, 1)
    );
}

#[test]
fn usage_comes_from_the_ledger_where_no_database_is_named() {
    for written in [json!({}), json!({"clientType": ""}), json!({"clientType": "ledger"})] {
        let config = Config::parse(&written, |_| None).expect("a valid configuration");
        assert_eq!(config.database, Database::Ledger, "{written}");
    }
}

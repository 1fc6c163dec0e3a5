//! Usage queries against a real Prometheus, with 12 hours of history that `promtool` writes.

use super::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names a folder with the programs `prometheus` and `promtool`, where they are not installed.
const FOLDER_VARIABLE: &str = "KAI_PROMETHEUS";
/// End of the history and time of the query.
const NOW: &str = "2026-01-31T12:00:00Z";
/// Length of the history in minutes.
const HISTORY: i64 = 12 * 60;

struct Database {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Drop for Database {
    fn drop(&mut self) {
        // Errors are ignored: the process may have exited, and the folder is temporary.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Database {
    /// Starts Prometheus with this history.
    async fn start(history: &str) -> Self {
        let program = |name: &str| match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) => Path::new(&folder).join(name),
            None => PathBuf::from(name),
        };
        let version = Command::new(program("prometheus")).arg("--version").output();
        if let Err(error) = version {
            panic!("prometheus is neither installed nor in the folder that {FOLDER_VARIABLE} names: {error}");
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a port is free")
            .port();
        let folder = std::env::temp_dir().join(format!("usage-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let (input, data) = (folder.join("history"), folder.join("data"));
        std::fs::write(&input, history).expect("the folder is there");
        std::fs::write(folder.join("config.yml"), "").expect("the folder is there");
        let written = Command::new(program("promtool"))
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&input, &data])
            .output()
            .expect("promtool is installed beside prometheus");
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", folder.join("config.yml").display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .spawn()
            .expect("its version was printed");
        let database = Self { child, folder, url: format!("http://127.0.0.1:{port}") };
        let client = connect::plain(&database.url).expect("a valid address");
        for _ in 0..300 {
            let ready = Request::get("/-/ready").body(Vec::new()).expect("the request is constant");
            if client.request_text(ready).await.is_ok() {
                return database;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("prometheus does not become ready");
    }

    async fn usage(&self, params: Value) -> Result<Usage, Error> {
        let written =
            json!({"clientType": "prometheus", "connectionString": self.url, "usageParams": params});
        let config = Config::parse(&written, |_| None).expect("a valid configuration");
        let source = Source::connect(config).expect("a valid address");
        source.fetch(Clock::starting_at(NOW.parse().expect("a valid time"))).await
    }
}

/// A metric, its labels, and its value by minutes before the end.
type Series<'a> = (&'a str, &'a str, &'a dyn Fn(i64) -> Option<f64>);

/// GPUs allocated to queue `a`, by minutes before the end.
fn allocated_to_a(ago: i64) -> f64 {
    if ago >= HISTORY / 2 { 4.0 } else { 0.0 }
}

/// Twelve hours, a sample a minute: eight GPUs on two nodes; `a` has four of them for the first half; `b` has two all the
/// time, exported by a controller that was replaced in the middle.
fn history() -> String {
    let end: jiff::Timestamp = NOW.parse().expect("a valid time");
    let mut text = String::new();
    let series: [Series<'_>; 5] = [
        ("kube_node_status_capacity", "resource=\"nvidia_com_gpu\",node=\"x\"", &|_| Some(4.0)),
        ("kube_node_status_capacity", "resource=\"nvidia_com_gpu\",node=\"y\"", &|_| Some(4.0)),
        ("kai_queue_allocated_gpus", "queue_name=\"a\",pod=\"one\"", &|ago| Some(allocated_to_a(ago))),
        ("kai_queue_allocated_gpus", "queue_name=\"b\",pod=\"one\"", &|ago| {
            (ago >= HISTORY / 2).then_some(2.0)
        }),
        ("kai_queue_allocated_gpus", "queue_name=\"b\",pod=\"two\"", &|ago| {
            (ago < HISTORY / 2).then_some(2.0)
        }),
    ];
    for metric in ["kube_node_status_capacity", "kai_queue_allocated_gpus"] {
        writeln!(text, "# TYPE {metric} gauge").expect("writing to a string");
        for (_, labels, value) in series.iter().filter(|(name, ..)| *name == metric) {
            for ago in (0..=HISTORY).rev() {
                let at = end.as_second() - ago * 60;
                if let Some(value) = value(ago) {
                    writeln!(text, "{metric}{{{labels}}} {value} {at}").expect("writing to a string");
                }
            }
        }
    }
    text + "# EOF\n"
}

fn gpus(usage: &Usage, queue: &str) -> f64 {
    usage.get(queue).map_or(0.0, |usage| usage[2])
}

#[tokio::test]
#[ignore = "needs Prometheus: cargo xtask ci runs it"]
async fn expressions_are_valid_on_a_real_prometheus() {
    let database = Database::start(&history()).await;
    let close =
        |one: f64, other: f64, what: &str| assert!((one - other).abs() < 0.005, "{what}: {one}, not {other}");

    let usage = database.usage(json!({"windowSize": "12h"})).await.expect("a response");
    close(gpus(&usage, "a"), 0.25, "half of the GPUs for half of the time");
    // Prometheus extrapolates the series of the replaced controller for its lookback of five minutes.
    close(gpus(&usage, "b"), 0.25 * (725.0 / 721.0), "a quarter all the time, in two series");
    assert_eq!(usage["a"][..2], [0.0, 0.0], "there are no series of cpu and memory");

    let usage =
        database.usage(json!({"windowSize": "12h", "halfLifePeriod": "6h"})).await.expect("a response");
    let impact = |ago: i64| 0.5_f64.powf(ago as f64 / 360.0);
    let held: f64 = (0..HISTORY).map(|ago| allocated_to_a(ago) * impact(ago)).sum();
    let there: f64 = (0..HISTORY).map(|ago| 8.0 * impact(ago)).sum();
    close(gpus(&usage, "a"), held / there, "older samples weigh less");

    let params = json!({
        "windowType": "tumbling", "windowSize": "6h", "tumblingWindowStartTime": "2026-01-31T02:00:00Z",
    });
    let usage = database.usage(params).await.expect("a response");
    close(gpus(&usage, "a"), 0.0, "nothing since 08:00");
    let usage =
        database.usage(json!({"windowType": "cron", "cronString": "0 4 * * *"})).await.expect("a response");
    close(gpus(&usage, "a"), 0.125, "half of the GPUs for two of the eight hours since 04:00");

    let params = json!({"extraParams": {"gpuAllocationMetric": "sum(("}});
    let refused = database.usage(params).await.expect_err("an invalid expression");
    assert!(format!("{refused:?}").contains("parse error"), "{refused:?}");
}

/// Two queues on eight GPUs that take turns, with amounts that change every 47 and 31 minutes, by minutes before the end.
fn run(queue: &str, ago: i64) -> f64 {
    let minute = HISTORY - ago;
    let step = if queue == "a" { minute / 47 } else { minute / 31 };
    ((step * 7 + 3) % 5) as f64
}

#[tokio::test]
#[ignore = "needs Prometheus: cargo xtask ci runs it"]
async fn ledger_and_prometheus_agree_on_the_same_run_within_one_percent() {
    let end: jiff::Timestamp = NOW.parse().expect("a valid time");
    let mut text = String::from("# TYPE kube_node_status_capacity gauge\n");
    for ago in (0..=HISTORY).rev() {
        let at = end.as_second() - ago * 60;
        writeln!(text, "kube_node_status_capacity{{resource=\"nvidia_com_gpu\",node=\"x\"}} 8 {at}")
            .expect("writing to a string");
    }
    text += "# TYPE kai_queue_allocated_gpus gauge\n";
    for queue in ["a", "b"] {
        for ago in (0..=HISTORY).rev() {
            let at = end.as_second() - ago * 60;
            let amount = run(queue, ago);
            writeln!(text, "kai_queue_allocated_gpus{{queue_name=\"{queue}\"}} {amount} {at}")
                .expect("writing to a string");
        }
    }
    let database = Database::start(&(text + "# EOF\n")).await;

    for params in [
        json!({"windowSize": "12h"}),
        json!({"windowSize": "4h"}),
        json!({"windowSize": "12h", "halfLifePeriod": "3h"}),
        json!({"windowSize": "12h", "halfLifePeriod": "45m"}),
    ] {
        let config = Config::parse(&json!({"usageParams": params}), |_| None).expect("a valid configuration");
        let mut ledger = ledger::Ledger::new(&config);
        ledger.load([]);
        let at = |ago: i64| kai_units::Timestamp(end.as_microsecond() - ago * 60_000_000);
        for ago in (0..=HISTORY).rev() {
            let held = ["a", "b"].map(|queue| ledger::Allocation {
                queue,
                half_life: None,
                amounts: [0.0, 0.0, run(queue, ago)],
            });
            // Changes happen between two samples, on average half an interval before the one that shows them; the ledger
            // observes them at once.
            let changed = kai_units::Timestamp(at(ago).0 - 30_000_000);
            ledger.observe(changed, [0.0, 0.0, 8.0], held.into_iter(), |_| true);
        }
        let (ours, theirs) = (ledger.usage(at(0)), database.usage(params.clone()).await.expect("a response"));
        for queue in ["a", "b"] {
            let (ours, theirs) = (gpus(&ours, queue), gpus(&theirs, queue));
            assert!(
                (ours / theirs - 1.0).abs() < 0.01,
                "{params}, {queue}: the ledger has {ours}, Prometheus {theirs}"
            );
        }
    }
}

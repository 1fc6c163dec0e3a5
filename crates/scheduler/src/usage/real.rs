//! The same against a real Prometheus, with hours of history that its own tool writes. Skipped, saying so, where there is
//! none.

use super::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names a folder with the programs `prometheus` and `promtool`, where they are not installed.
const FOLDER_VARIABLE: &str = "KAI_PROMETHEUS";
/// When the history ends, which is when it is asked for.
const NOW: &str = "2026-01-31T12:00:00Z";
/// How long the history is, in minutes.
const HISTORY: i64 = 12 * 60;

struct Database {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Drop for Database {
    fn drop(&mut self) {
        // It may have ended by itself, and a folder that stays harms nobody.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Database {
    /// A database with a history; nothing where the programs are missing.
    async fn start(history: &str) -> Option<Self> {
        let program = |name: &str| match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) => Path::new(&folder).join(name),
            None => PathBuf::from(name),
        };
        let version = Command::new(program("prometheus")).arg("--version").output();
        if let Err(why) = version {
            eprintln!(
                "skipped: there is no prometheus, neither installed nor where {FOLDER_VARIABLE} says: {why}"
            );
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a port is free")
            .port();
        let folder = std::env::temp_dir().join(format!("usage-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let (input, data) = (folder.join("history"), folder.join("data"));
        std::fs::write(&input, history).expect("the folder is there");
        std::fs::write(folder.join("config.yml"), "").expect("the folder is there");
        let written = Command::new(program("promtool"))
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&input, &data])
            .output()
            .expect("its tool is beside it");
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", folder.join("config.yml").display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .spawn()
            .expect("it could be asked for its version");
        let database = Self { child, folder, url: format!("http://127.0.0.1:{port}") };
        let client = connect::plain(&database.url).expect("the address is one");
        for _ in 0..300 {
            let ready = Request::get("/-/ready").body(Vec::new()).expect("the request is constant");
            if client.request_text(ready).await.is_ok() {
                return Some(database);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("prometheus does not become ready");
    }

    async fn usage(&self, params: Value) -> Result<Usage, Error> {
        let written =
            json!({"clientType": "prometheus", "connectionString": self.url, "usageParams": params});
        let config = Config::read(&written, |_| None).expect("it is well-formed");
        let source = Source::connect(config).expect("the address is one");
        source.fetch(Clock::starting_at(NOW.parse().expect("it is a time"))).await
    }
}

/// A metric, its labels, and its value so many minutes before the end.
type Series<'a> = (&'a str, &'a str, &'a dyn Fn(i64) -> Option<f64>);

/// How many GPUs queue `a` held so many minutes before the end.
fn held_by_a(ago: i64) -> f64 {
    if ago >= HISTORY / 2 { 4.0 } else { 0.0 }
}

/// Twelve hours, a sample a minute: eight GPUs on two nodes; `a` holds four of them for the first half; `b` holds two all the
/// time, told by a controller that was replaced in the middle.
fn history() -> String {
    let end: jiff::Timestamp = NOW.parse().expect("it is a time");
    let mut text = String::new();
    let series: [Series<'_>; 5] = [
        ("kube_node_status_capacity", "resource=\"nvidia_com_gpu\",node=\"x\"", &|_| Some(4.0)),
        ("kube_node_status_capacity", "resource=\"nvidia_com_gpu\",node=\"y\"", &|_| Some(4.0)),
        ("kai_queue_allocated_gpus", "queue_name=\"a\",pod=\"one\"", &|ago| Some(held_by_a(ago))),
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
async fn a_real_prometheus_is_asked_in_its_own_language() {
    let Some(database) = Database::start(&history()).await else { return };
    let close =
        |one: f64, other: f64, what: &str| assert!((one - other).abs() < 0.005, "{what}: {one}, not {other}");

    let usage = database.usage(json!({"windowSize": "12h"})).await.expect("it answers");
    close(gpus(&usage, "a"), 0.25, "half of the GPUs for half of the time");
    // The series of the replaced controller counts on for the five minutes in which Prometheus still believes it.
    close(gpus(&usage, "b"), 0.25 * (725.0 / 721.0), "a quarter all the time, in two series");
    assert_eq!(usage["a"][..2], [0.0, 0.0], "nothing is said about cpu and memory");

    let usage =
        database.usage(json!({"windowSize": "12h", "halfLifePeriod": "6h"})).await.expect("it answers");
    let weight = |ago: i64| 0.5_f64.powf(ago as f64 / 360.0);
    let held: f64 = (0..HISTORY).map(|ago| held_by_a(ago) * weight(ago)).sum();
    let there: f64 = (0..HISTORY).map(|ago| 8.0 * weight(ago)).sum();
    close(gpus(&usage, "a"), held / there, "what is old counts less");

    let params = json!({
        "windowType": "tumbling", "windowSize": "6h", "tumblingWindowStartTime": "2026-01-31T02:00:00Z",
    });
    let usage = database.usage(params).await.expect("it answers");
    close(gpus(&usage, "a"), 0.0, "nothing since 08:00");
    let usage =
        database.usage(json!({"windowType": "cron", "cronString": "0 4 * * *"})).await.expect("it answers");
    close(gpus(&usage, "a"), 0.125, "half of the GPUs for two of the eight hours since 04:00");

    let params = json!({"extraParams": {"gpuAllocationMetric": "sum(("}});
    let refused = database.usage(params).await.expect_err("that is no expression");
    assert!(format!("{refused:?}").contains("parse error"), "{refused:?}");
}

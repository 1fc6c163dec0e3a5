//! `kai simulate` on each input format: tables, JSON, HTML, CSV and errors.

use crate::{NOW, kai, scratch, shape, stderr, stdout};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// An example of the repository.
fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.to_str().expect("the path is plain").to_owned()
}

/// The numbers of a simulation.
#[track_caller]
fn numbers(args: &[&str]) -> Value {
    let output = kai(args);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Asserts exit code 2 and an error that contains all the words.
#[track_caller]
fn assert_rejected(args: &[&str], words: &[&str]) {
    let output = kai(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}{}", stdout(&output));
    assert!(text.contains("error: ") && !text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

fn group<'a>(numbers: &'a Value, name: &str) -> &'a Value {
    let groups = numbers["groups"].as_array().expect("a list");
    groups.iter().find(|group| group["group"] == name).expect("the group is there")
}

#[test]
fn snapshot_is_simulated_over_a_morning() {
    let numbers = numbers(&["simulate", &example("busy-morning.yaml"), "--json"]);
    let train = group(&numbers, "lab/train");
    assert_eq!(train["submitted_s"], 600);
    assert_eq!(
        train["waited_s"], 2,
        "it reclaims its quota: victims are evicted in one cycle, it is bound in the next"
    );
    assert!(train["finished_s"].as_f64().expect("it finishes") >= 3_000.0);
    assert!(group(&numbers, "lab/sweep")["evicted"].as_u64() > Some(0));
    assert_eq!(group(&numbers, "lab/giant")["waits"], true);
    assert_eq!(numbers["pending"][0]["group"], "lab/giant");
    assert_eq!(numbers["settled"], true);
    let series = &numbers["series"];
    let times = series["at_s"].as_array().expect("times").len();
    assert_eq!(series["queues"]["vision"]["gpu"]["held"].as_array().map(Vec::len), Some(times));
    let used = numbers["utilisation"]["gpu"].as_f64().expect("a share");
    assert!(used > 0.3 && used < 1.0, "{used}");
}

#[test]
fn simulation_ends_after_cycles_or_a_duration() {
    let file = scratch("until.json", shape("gang", 2));
    let cycles = numbers(&["simulate", &file, "--now", NOW, "--json", "--cycles", "30", "--period", "2s"]);
    assert_eq!((&cycles["cycles"], &cycles["to"]), (&json!(30), &json!("2026-07-01T00:01:00Z")));
    let span = numbers(&["simulate", &file, "--now", NOW, "--json", "--for", "1m", "--period", "2s"]);
    assert_eq!(cycles, span);
    assert!(cycles["planned_cycles"].as_u64() < Some(30), "cycles that cannot change anything are skipped");
}

#[test]
fn simulation_is_deterministic() {
    let run = || stdout(&kai(&["simulate", &example("busy-morning.yaml"), "--json"]));
    assert_eq!(run(), run());
}

#[test]
fn html_is_self_contained_and_escapes_names() {
    let text = std::fs::read_to_string(example("busy-morning.yaml")).expect("the example is there");
    let file = scratch(
        "markup-names.yaml",
        text.replace("queue: vision", "queue: \"<b>&\"").replace("name: vision", "name: \"<b>&\""),
    );
    let page = scratch("page.html", "");
    let output = kai(&["simulate", &file, "--html", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(page).expect("the page is there");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // The address of uPlot is in a comment of it.
    for absent in ["<link", "<b>", "src=", "url(", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(absent), "`{absent}` is in the page");
    }
    for present in [
        "prefers-color-scheme: dark",
        "&lt;b&gt;&amp;",
        "Evicted pods",
        "lab/sweep",
        "fair share",
        "The MIT License",
        "<noscript>",
    ] {
        assert!(page.contains(present), "`{present}` is missing in the page");
    }
    let charts = data_of_charts(&page);
    assert_eq!(page.matches("<figure data-chart=").count(), charts.len(), "each chart has a place");
    for chart in &charts {
        let times = chart["seconds"].as_array().expect("it has times").len();
        let series = chart["series"].as_array().expect("it has series");
        assert!(times > 1 && !series.is_empty(), "{chart}");
        for line in series {
            assert_eq!(line["values"].as_array().map(Vec::len), Some(times), "{chart}");
        }
    }
    let styles = |chart: &Value| -> BTreeSet<String> {
        let series = chart["series"].as_array().expect("it has series");
        series.iter().map(|line| line["style"].to_string()).collect()
    };
    for chart in &charts {
        let lines = chart["series"].as_array().expect("it has series").len();
        assert_eq!(styles(chart).len(), lines, "lines that coincide are drawn differently");
    }
}

fn data_of_charts(page: &str) -> Vec<Value> {
    let (_, data) = page.split_once("id=\"charts\">").expect("the data are there");
    let (data, _) = data.split_once("</script>").expect("they end");
    serde_json::from_str(data).expect("they are JSON")
}

#[test]
#[ignore = "needs chromium: cargo xtask ci runs it"]
fn script_of_the_page_draws_every_chart_in_a_browser() {
    let page = scratch("browser.html", "");
    let output = kai(&["simulate", &example("busy-morning.yaml"), "--html", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let profile = format!("--user-data-dir={}", scratch("browser-profile", "")) + "-folder";
    let browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", &profile])
        .args(["--window-size=1000,1200", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("file://{page}"))
        .output()
        .expect("chromium is installed");
    let drawn = stdout(&browser);
    let charts = data_of_charts(&std::fs::read_to_string(&page).expect("the page is there"));
    assert_eq!(drawn.matches("<canvas").count(), charts.len(), "{}", stderr(&browser));
    assert_eq!(drawn.matches("class=\"u-legend").count(), charts.len());
}

#[test]
fn fair_share_request_gets_the_response_of_kai() {
    let queue = |uid: &str, weight: u32| {
        json!({"uid": uid, "name": uid,
            "resourceShare": {"gpu": {"deserved": 10, "request": 100, "overQuotaWeight": weight}}})
    };
    let request = json!({"totalResource": {"GPU": 100, "CPU": 16_000, "Memory": 32_000_000},
        "queues": [queue("heavy", 3), queue("light", 1)]});
    let file = scratch("request.json", request.to_string());
    let share = |gpu: u32| json!({"gpu": gpu, "cpu": 16_000, "memory": 100_000});
    assert_eq!(numbers(&["simulate", &file, "--json"]), json!({"heavy": share(70), "light": share(30)}));
    let table = stdout(&kai(&["simulate", &file]));
    assert!(table.contains("heavy") && table.contains("70"), "{table}");
}

#[test]
fn time_based_csv_has_a_row_per_queue_and_cycle() {
    let output = kai(&["simulate", &example("time-based.yaml"), "--csv", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("Time,QueueID,Allocation,FairShare"));
    assert_eq!(lines.next(), Some("0,alpha,16.000000,8.000000"));
    assert_eq!(text.lines().count(), 1 + 3 * 1_024);
    // Usage lowers the share of the running queue, so that the GPUs are reclaimed repeatedly.
    let holds = |line: &&str| line.contains(",alpha,16.000000,");
    let alpha = text.lines().filter(holds).count();
    assert!((200..=800).contains(&alpha), "{alpha}");
    let numbers = numbers(&["simulate", &example("time-based.yaml"), "--json"]);
    assert!(numbers["evictions"].as_array().map(Vec::len) >= Some(2), "{}", numbers["evictions"]);
    assert_eq!(numbers["evictions"][0]["by"], "reclaim");
}

#[test]
fn k_value_zero_causes_no_evictions() {
    let text = std::fs::read_to_string(example("time-based.yaml")).expect("the example is there");
    let file = scratch("no-usage.yaml", text.replace("KValue: 1.0", "KValue: 0"));
    let numbers = numbers(&["simulate", &file, "--json"]);
    assert_eq!(numbers["evictions"], json!([]));
}

#[test]
fn usage_db_config_enables_usage() {
    let text = std::fs::read_to_string(example("busy-morning.yaml")).expect("the example is there");
    let counted =
        "usageDBConfig: {clientType: prometheus, usageParams: {halfLifePeriod: 10m, windowSize: 1h}}";
    let file = scratch("counted.yaml", text.replacen("config:\n", &format!("config:\n  {counted}\n"), 1));
    let planned = |file: &str| {
        let numbers = numbers(&["simulate", file, "--json", "--for", "1h"]);
        numbers["planned_cycles"].as_u64().expect("a count")
    };
    // Usage is measured once a minute, and each measurement is a reason for a cycle.
    assert!(planned(&file) >= 60 && planned(&example("busy-morning.yaml")) < 60);
}

#[test]
fn invalid_annotations_are_reported_and_ignored() {
    let text = std::fs::read_to_string(example("busy-morning.yaml")).expect("the example is there");
    let file = scratch("annotated.yaml", text.replace("simulated-duration: 1h", "simulated-duration: long"));
    let output = kai(&["simulate", &file, "--for", "1m"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let warning = stderr(&output);
    assert!(warning.contains("warning: Pod `lab/sweep-0`") && warning.contains("`long`"), "{warning}");
}

#[test]
fn invalid_input_is_rejected() {
    assert_rejected(&["simulate", "/nowhere/to/be.found"], &["`/nowhere/to/be.found`"]);
    let bad = |name: &str, text: &str| scratch(name, text);
    let file = bad("nodes.yaml", "Queues: []\nNodes: 7\nJobs: {}\n");
    assert_rejected(&["simulate", &file], &["nodes.yaml", "`Nodes` is not a list", "hint: "]);
    let file = bad("many.yaml", "Queues: []\nJobs: {a: {NumPods: 4000000000, NumJobs: 4000000000}}\n");
    assert_rejected(&["simulate", &file], &["many.yaml", "nodes and pods", "hint: "]);
    let file = bad("share.json", r#"{"totalResource": {"GPU": "all"}, "queues": []}"#);
    assert_rejected(&["simulate", &file], &["share.json", "`GPU` is not a number"]);
    assert_rejected(
        &["simulate", &bad("deep.yaml", &format!("queues: {}", "[".repeat(100_000)))],
        &["deep.yaml"],
    );
    assert_rejected(&["simulate", &bad("none.yaml", "a: 1\n")], &["has no `rawObjects`"]);
    let good = example("busy-morning.yaml");
    assert_rejected(&["simulate", &good, "--for", "soon"], &["--for", "`soon`", "hint: "]);
    assert_rejected(&["simulate", &good, "--period", "0s"], &["--period", "`0s`", "hint: "]);
    assert_rejected(&["simulate", &good, "--cycles", "0"], &["--cycles"]);
    assert_rejected(&["simulate", &good, "--cycles", "1", "--for", "1s"], &["--for"]);
    assert_rejected(&["simulate", &good, &good, "--html", "x.html"], &["--html", "one file"]);
    assert_rejected(&["simulate", &example("fair-share.json"), "--html", "x.html"], &["no report over time"]);
}

#[test]
fn huge_numbers_do_not_overflow() {
    let queues: Vec<Value> = (0..500)
        .map(|uid| {
            json!({"uid": uid.to_string(), "priority": 1e300, "resourceShare":
            {"gpu": {"deserved": 1e300, "request": 1e300}, "memory": {"deserved": -1, "request": 1e300}}})
        })
        .collect();
    let request = json!({"totalResource": {"GPU": 1e300, "Memory": 1e300, "CPU": -1e300}, "queues": queues});
    let output = kai(&["simulate", &scratch("huge-share.json", request.to_string()), "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let scenario = "Cycles: 3\nHalfLifePeriod: 4000000000\nWindowSize: 4000000000\nKValue: 1e300\nNodes: [{GPUs: 4000000000}]\n\
                 Queues: [{Name: a, DeservedGPUs: 1e300, Weight: 1e300}]\nJobs: {a: {GPUs: 4000000000}}\n";
    let output = kai(&["simulate", &scratch("huge-scenario.yaml", scenario)]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Two queues that always request everything share it equally over time: usage of a window in cycles alternates them.
#[test]
fn window_and_half_life_count_cycles() {
    let text = std::fs::read_to_string(example("time-based.yaml")).expect("the example is there");
    let run = |name: &str, window: u32, half_life: u32| {
        let text = text
            .replace("WindowSize: 256", &format!("WindowSize: {window}"))
            .replace("HalfLifePeriod: 128", &format!("HalfLifePeriod: {half_life}"));
        let rows = stdout(&kai(&["simulate", &scratch(name, text), "--csv", "-"]));
        let holds = |line: &&str| line.contains(",alpha,16.000000,");
        let share = rows.lines().filter(holds).count() as f64 / 1_024.0;
        let turns: Vec<bool> = rows
            .lines()
            .filter(|line| line.contains(",alpha,"))
            .map(|line| line.contains(",alpha,16.000000,"))
            .collect();
        (share, turns.windows(2).filter(|pair| pair[0] != pair[1]).count())
    };
    let (share, turns) = run("window-256.yaml", 256, 128);
    assert!((0.4..=0.6).contains(&share), "{share}");
    assert!(turns >= 6, "the queues alternate within 1,024 cycles: {turns} times");
    // A window of as many cycles as there are seconds in it at 10 ms would alternate as rarely.
    let (_, rare) = run("window-25600.yaml", 25_600, 12_800);
    assert!(rare < turns, "{rare} and {turns}");
    let (_, often) = run("window-64.yaml", 64, 32);
    assert!(often > turns, "{often} and {turns}");
}

/// A simulator that is ended when it is dropped.
struct Listener {
    process: std::process::Child,
    address: String,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Listener {
    fn start(extra: &[&str]) -> Self {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kai"));
        let command = command.args(["simulate", "--listen", "127.0.0.1:0"]).args(extra);
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        output.read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split("/simulate").next());
        Self { process, address: address.expect("the line has the address").to_owned() }
    }

    /// The status and the rest of the response.
    fn send(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        // A server that refuses a body may close the connection before it has read all of it.
        let _ = stream.write_all(body);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let text = String::from_utf8_lossy(&response).into_owned();
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        (status, text)
    }
}

#[test]
fn fair_share_simulator_answers_over_http_as_for_files() {
    let listener = Listener::start(&[]);
    let body = std::fs::read(example("fair-share.json")).expect("the example is there");
    let (status, response) = listener.send("POST", "/simulate", &body);
    let expected = stdout(&kai(&["simulate", &example("fair-share.json"), "--json"]));
    assert_eq!(status, 200, "{response}");
    assert!(response.to_lowercase().contains("content-type: application/json"), "{response}");
    assert!(response.ends_with(expected.trim_end()) || response.ends_with(&expected), "{response}");
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulating.md"));
    assert!(
        page.expect("the page is there").contains(expected.trim_end()),
        "the page has this answer: {expected}"
    );
    assert!(!response.to_lowercase().contains("access-control"), "{response}");
}

#[test]
fn fair_share_simulator_refuses_with_a_sentence() {
    let listener = Listener::start(&["--enable-cors"]);
    let large = vec![b' '; 3 << 20];
    for (method, path, body, status, words) in [
        ("GET", "/simulate", &b""[..], 405, "send a POST request"),
        ("POST", "/", b"{}", 404, "/simulate"),
        ("POST", "/simulate", b"{", 400, "not JSON"),
        (
            "POST",
            "/simulate",
            br#"{"totalResource": {"GPU": "many"}, "queues": []}"#,
            400,
            "`GPU` is not a number",
        ),
        ("POST", "/simulate", &large, 413, "hint: send fewer queues"),
    ] {
        let (found, response) = listener.send(method, path, body);
        assert_eq!(found, status, "{method} {path}: {response}");
        assert!(response.contains(words), "{response}");
    }
    let (status, response) = listener.send("OPTIONS", "/simulate", b"");
    assert_eq!(status, 200);
    assert!(response.to_lowercase().contains("access-control-allow-origin: *"), "{response}");
    assert_rejected(&["simulate", "--listen", &listener.address], &["cannot listen", "hint: "]);
}

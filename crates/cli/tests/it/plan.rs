//! `kai plan` and `kai crds` on valid input: tables, JSON, decisions and definitions.

use crate::{NOW, kai, scratch, shape, stderr, stdout};
use insta::assert_snapshot;
use serde_json::{Value, json};

#[test]
fn snapshot_is_planned_as_tables() {
    let file = scratch("tables.json", shape("topology", 6));
    let output = kai(&["plan", &file, "--now", NOW]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_snapshot!(stdout(&output), @"
    one cycle at 2026-07-01T00:00:00Z (from --now)

    Placements
    No pods were placed

    Queue shares
      QUEUE   RESOURCE   QUOTA   LIMIT   FAIR SHARE   REQUESTED   BEFORE   AFTER
    ──────────────────────────────────────────────────────────────────────────────
      org     GPU           48       ∞           48         536       24      24
        a     GPU           48       ∞           48         536       24      24
        b     GPU            0       ∞            0           0        0       0

    Pending
      GROUP          QUEUE   PODS   REASON
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      bench/dist-0   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation: 64 GPUs requested, and only 24 are free in total
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
                                    no preemption: queue `a` has no preemptible group of lower
                                    priority
      bench/dist-1   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-2   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-3   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-4   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-5   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-6   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs
      bench/dist-7   a          8   `block-000.rack-0000` of topology `datacenter` does not fit 8 pods
                                    no consolidation or preemption: the search failed for group
                                    `bench/dist-0`, which is equivalent and requests no more
                                    no reclaim: queue `a` would use 88 of its fair share of 48 GPUs

    what would run pending groups: see --hints
    ");
}

#[test]
fn only_proven_hints_and_corrections_are_printed() {
    let plan = |example: &str, option: &str| {
        let example = format!("{}/../../examples/{example}", env!("CARGO_MANIFEST_DIR"));
        let output = kai(&["plan", &example, "--json", option]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("one JSON object")
    };
    let without = plan("gang.yaml", "--findings");
    assert!(without.get("hints").is_none(), "{without}");
    let [second, third] = without["pending"].as_array().expect("a list").as_slice() else {
        panic!("{without}");
    };
    assert!(second["hint"].is_null(), "capacity is missing, and no plan has proven what helps: {second}");
    assert_eq!((&third["why"], &third["hint"]), (&json!("2 of 3 pods exist"), &json!("create 1 more")));
    let with = plan("gang.yaml", "--hints");
    let hints = &with["hints"]["groups"][0];
    assert_eq!((&hints["group"], &with["hints"]["omitted"]), (&json!("lab/second"), &json!(0)));
    let what: Vec<&str> =
        hints["hints"].as_array().expect("a list").iter().filter_map(|hint| hint["what"].as_str()).collect();
    assert!(what.contains(&"add a node like `gpu-1`"), "{what:?}");
    assert_eq!(with["outcome_hash"], without["outcome_hash"]);
    let invalid = plan("invalid-objects.yaml", "--findings");
    let unreadable = invalid["pending"].as_array().expect("a list").iter();
    let unreadable = unreadable.filter(|group| group["group"] == "lab/unreadable");
    let why: Vec<&str> = unreadable.filter_map(|group| group["why"].as_str()).collect();
    assert!(matches!(&why[..], [why] if why.contains("`1e400` is not a quantity")), "{why:?}");
}

#[test]
fn json_has_every_key() {
    let file = scratch("numbers.json", shape("fill", 2));
    let output = kai(&["plan", &file, "--now", NOW, "--json"]);
    let numbers: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for key in [
        "now",
        "load_ms",
        "open_ms",
        "actions_ms",
        "total_actions_ms",
        "bind_requests",
        "evicted",
        "moved",
        "pipelined",
        "placed_pending",
        "placed_gpus",
        "lost_gpus",
        "max_rss_mb",
        "outcome_hash",
        "verdicts",
        "evictions",
        "pending",
    ] {
        assert!(numbers.get(key).is_some(), "`{key}` is missing in {numbers}");
    }
    assert_eq!(numbers["bind_requests"], 16);
    assert_eq!(numbers["now"], NOW);
}

#[test]
fn json_has_evictions_and_reasons() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/evictions.yaml");
    let output = kai(&["plan", example, "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let named = |list: &str, key: &str, name: &str| -> Value {
        let all = summary[list].as_array().expect("a list");
        all.iter()
            .find(|entry| entry[key] == name)
            .unwrap_or_else(|| panic!("no `{name}` in {summary}"))
            .clone()
    };
    let reclaim = named("evictions", "by", "reclaim");
    assert_eq!(reclaim["for"], "lab/tts");
    let victims = &reclaim["victims"][0];
    assert_eq!((&victims["rule"], &victims["victim"]), (&json!("above_share"), &json!("vision")));
    assert_eq!(victims["pods"], json!(["lab/sweep-7", "lab/sweep-6"]));
    let victim = &reclaim["queues"][1];
    assert_eq!((&victim["queue"], &victim["role"]), (&json!("vision"), &json!("victim")));
    let gpus = json!({ "quota": 6, "fair_share": 6, "before": 8, "after": 6 });
    assert_eq!(victim["resources"]["gpu"], gpus);
    let moved = &named("evictions", "by", "consolidation")["victims"][0];
    assert_eq!((&moved["rule"], &moved["moved_to"]), (&json!("moved"), &json!("gpu-3")));
    let preempted = &named("evictions", "by", "preempt")["victims"][0];
    assert_eq!((&preempted["priority"], &preempted["victim_priority"]), (&json!(75), &json!(50)));
    let giant = named("pending", "group", "lab/giant");
    assert_eq!(giant["verdict"], "gang_not_satisfied");
    let failure = &giant["no_victims"][1];
    assert_eq!((&failure["reason"], &failure["by"]), (&json!("beyond_fair_share"), &json!(["reclaim"])));
    assert_eq!((&failure["used"], &failure["requested"]), (&json!(6), &json!(12)));
}

#[test]
fn decisions_are_sorted_and_deterministic() {
    let file = scratch("decisions.json", shape("fractions", 1));
    let run = |to: &str| {
        let lines = scratch(to, "");
        let output = kai(&["plan", &file, "--now", NOW, "--audit", "--decisions", &lines]);
        assert!(output.status.success(), "{}", stderr(&output));
        std::fs::read_to_string(lines).expect("the decisions are there")
    };
    let lines = run("first.txt");
    assert_eq!(lines, run("second.txt"));
    assert_eq!(lines.lines().count(), 16);
    assert!(lines.lines().is_sorted());
    let first = lines.lines().next().expect("there are decisions");
    assert!(first.starts_with("bind bench/job-0-0 node-00000 "), "{first}");
}

#[test]
fn recorded_time_overrides_now() {
    let recorded = shape("gang", 1).replacen('{', r#"{"replay":{"now":"2026-03-01T00:00:00Z"},"#, 1);
    let file = scratch("recorded.json", recorded);
    let text = stdout(&kai(&["plan", &file, "--now", NOW]));
    assert!(text.starts_with("one cycle at 2026-03-01T00:00:00Z (from the file)"), "{text}");
}

#[test]
fn config_replaces_the_recorded_one() {
    let file = scratch("configured.json", shape("gang", 1));
    let config = scratch("config.yaml", "actions: reclaim\n");
    let output = kai(&["plan", &file, "--now", NOW, "--config", &config, "--json"]);
    let numbers: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(numbers["bind_requests"], 0, "{numbers}");
}

#[test]
fn crds_prints_definitions() {
    let output = kai(&["crds", "topologies"]);
    assert!(stdout(&output).contains("name: topologies.kai.scheduler"), "{}", stdout(&output));
}

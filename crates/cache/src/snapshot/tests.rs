//! Snapshots in every format, invalid ones and malicious ones.

use super::*;
use crate::object::Kind;
use kai_engine::Delta;
use kai_engine::input::Key;
use kai_units::{Span, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::{Cursor, Write};

fn small() -> Value {
    json!({
        "config": {"actions": "allocate", "tiers": [{"plugins": [{"name": "predicates"}]}]},
        "schedulerParams": {"schedulerName": "kai-scheduler", "fullHierarchyFairness": true, "queueLabelKey": "kai.scheduler/queue",
            "partitionParams": {"NodePoolLabelKey": "kai.scheduler/node-pool", "NodePoolLabelValue": ""},
            "stuckInReleasingThreshold": 120_000_000_000_i64, "maxNumberConsolidationPreemptees": -1},
        "rawObjects": {
            "pods": [{"metadata": {"name": "p", "namespace": "ns", "uid": "1", "creationTimestamp": "2025-01-01T00:00:00Z",
                        "annotations": {"pod-group-name": "g", "gpu-fraction": "0.5", "noise": "x"}, "labels": {"a": "b"}},
                      "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i",
                        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]}, "status": {"phase": "Pending"}}],
            "nodes": [{"metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "16384"}},
                       "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                       "status": {"allocatable": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110"},
                                  "conditions": [{"type": "Ready", "status": "True"}]}}],
            "queues": [{"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": 1}}}}],
            "podGroups": [{"metadata": {"name": "g", "namespace": "ns", "creationTimestamp": "2025-01-01T00:00:00.000007Z"},
                           "spec": {"queue": "q", "minMember": 1}}],
            "bindRequests": null,
            "configMaps": [{"metadata": {"name": "m", "namespace": "ns"}, "data": {"secret": "value"}}],
            "resourceSlices": [{"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "n", "devices": [{"name": "x", "attributes": {"model": {"string": "m"}}}]}}],
            "unheardOf": [1, 2],
        },
        "replay": {"now": "2025-01-02T00:00:00Z", "seed": 7, "usage": {"q": [0.1, 0.2, 0.3]},
            "assumed": {"evictions": [{"namespace": "ns", "name": "p", "uid": "1", "since": "2025-01-01T00:00:01Z"}]},
            "namespaces": [{"metadata": {"name": "ns", "labels": {"team": "t"}}}],
            "podDisruptionBudgets": [{"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}}],
            "csiNodes": [{"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "nodeID": "i", "allocatable": {"count": 3}}]}}]},
    })
}

fn read_text(text: &str) -> Result<Snapshot, SnapshotError> {
    read("file", Cursor::new(text.as_bytes()), Limits::default())
}

fn deltas(snapshot: Snapshot) -> Vec<Delta> {
    let mut deltas = Vec::new();
    snapshot.into_store().drain(|delta| deltas.push(delta));
    deltas
}

#[test]
fn json_yaml_and_zip_give_the_same_cluster() {
    let json = read_text(&small().to_string()).unwrap();
    assert_eq!(json.replay.now.map(|t| t.0), Some(Timestamp(1_735_776_000_000_000)));
    assert_eq!((json.replay.seed, json.objects.count(Kind::Namespace)), (Some(7), 1));
    assert_eq!(json.engine_params().max_consolidation_victims, None);
    assert_eq!(json.engine_params().stuck_threshold, Span::from_secs(120));
    assert!(json.settings().device_claims && !json.settings().numa_zones);
    assert_eq!(json.objects.pods[&Key::new("ns", "p")].metadata.annotation("noise"), None);
    let yaml = serde_saphyr::to_string(&small()).unwrap();
    assert_eq!(read_text(&yaml).unwrap(), json);
    let mut archive = Cursor::new(Vec::new());
    write_zip(&json, &mut archive).unwrap();
    let back = read("archive", archive, Limits::default()).unwrap();
    assert_eq!(back.params, json.params);
    assert_eq!((&back.replay, &back.config.engine), (&json.replay, &json.config.engine));
    assert_eq!(deltas(back), deltas(json));
}

#[test]
fn snapshot_of_a_running_scheduler_reproduces_its_input() {
    let snapshot = read_text(&small().to_string()).unwrap();
    let (settings, engine) = (snapshot.settings(), snapshot.engine_params());
    let (config, expected) = (snapshot.config.clone(), deltas(snapshot.clone()));
    let store = snapshot.into_store();
    let cycle = kai_engine::Cycle { now: Timestamp(5_000_000), seed: 9 };
    let (params, replay) = (SchedulerParams::of(&settings, &engine), Replay::of(&store, cycle));
    let contents = Contents {
        config: &config,
        params: &params,
        objects: store.objects(),
        replay: &replay,
        discovery: None,
    };
    let mut archive = Cursor::new(Vec::new());
    write_zip(contents, &mut archive).unwrap();
    let back = read("archive", archive, Limits::default()).unwrap();
    assert_eq!((back.settings(), back.engine_params()), (settings, engine));
    assert_eq!((back.replay.seed, back.replay.now.map(|t| t.0)), (Some(9), Some(cycle.now)));
    assert_eq!(deltas(back), expected);
}

#[test]
fn absent_amounts_of_a_queue_stay_absent() {
    let mut text = Vec::new();
    write_json(&read_text(&small().to_string()).unwrap(), &mut text).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    let resources = &value["rawObjects"]["queues"][0]["spec"]["resources"];
    assert_eq!(*resources, json!({"gpu": {"quota": 1.0}}));
    assert_eq!(
        value["rawObjects"]["podGroups"][0]["metadata"]["creationTimestamp"],
        json!("2025-01-01T00:00:00.000007Z")
    );
    assert_eq!(value["rawObjects"]["configMaps"][0]["data"], Value::Null);
    assert_eq!(value["discovery"]["resources"][0]["groupVersion"], json!("resource.k8s.io/v1"));
}

#[test]
fn keys_match_in_any_case_and_order() {
    let mut value = small();
    let map = value.as_object_mut().unwrap();
    for (key, other) in
        [("config", "CONFIG"), ("schedulerParams", "schedulerparams"), ("rawObjects", "RawObjects")]
    {
        let member = map.remove(key).unwrap();
        map.insert(other.to_owned(), member);
    }
    let objects = map["RawObjects"].as_object_mut().unwrap();
    let pods = objects.remove("pods").unwrap();
    objects.insert("PODS".to_owned(), pods);
    let snapshot = read_text(&value.to_string()).unwrap();
    assert_eq!((snapshot.objects.count(Kind::Pod), snapshot.config.engine.actions.len()), (1, 1));
}

#[test]
fn errors_name_file_object_and_field() {
    let message = |edit: &dyn Fn(&mut Value)| {
        let mut value = small();
        edit(&mut value);
        read_text(&value.to_string()).unwrap_err().to_string()
    };
    let text = message(&|v| v["rawObjects"]["pods"][0]["spec"]["containers"][0]["name"] = json!(7));
    assert!(
        text.starts_with(
            "`file`, `pods[0]` (`ns/p`), field `spec.containers[0].name`: invalid type: integer"
        ),
        "{text}"
    );
    assert!(text.contains("; hint: "));
    let text = message(&|v| v["rawObjects"]["podGroups"][0]["spec"]["minMember"] = json!("three"));
    assert!(text.contains("`podGroups[0]` (`ns/g`), field `spec.minMember`"), "{text}");
    let text = message(&|v| v["rawObjects"]["pods"][0]["metadata"]["creationTimestamp"] = json!("noon"));
    assert!(text.contains("field `metadata.creationTimestamp`: `noon` is not a time"), "{text}");
    let text = message(&|v| v["rawObjects"]["nodes"][0]["metadata"]["name"] = json!(null));
    assert!(text.contains("`nodes[0]`, field `metadata.name`"), "{text}");
    let text = message(&|v| v["schedulerParams"]["schedulePeriod"] = json!("1s"));
    assert!(text.contains("schedulerParams.schedulePeriod") && text.contains("nanoseconds"), "{text}");
    for member in ["config", "schedulerParams", "rawObjects"] {
        let text = message(&|v| v[member] = Value::Null);
        assert!(text.contains(&format!("has no `{member}`")), "{text}");
    }
    let text = message(&|v| v["schedulerParams"]["partitionParams"] = Value::Null);
    assert!(text.contains("partitionParams"), "{text}");
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let error = |text: &str| read_text(text).unwrap_err().to_string();
    let state = error("{\"format\":\"kai-apiserver/v1\",\"revision\":1}\n{}\n");
    assert!(
        state.contains("a state that `kai up --save` has written") && state.contains("kai up --load"),
        "{state}"
    );
    let one = "apiVersion: batch/v1\nkind: Job\n";
    for manifest in
        [one.to_owned(), format!("{one}---\n{one}"), "{\"kind\": \"List\", \"items\": []}".to_owned()]
    {
        let text = error(&manifest);
        assert!(
            text.contains("a manifest of Kubernetes objects") && text.contains("kai what-if -f"),
            "{text}"
        );
    }
    let cut = error("PK\u{3}\u{4} and no more");
    assert!(cut.contains("its end is missing; hint: "), "{cut}");
}

#[test]
fn first_of_two_objects_with_one_name_counts() {
    let mut value = small();
    let mut second = value["rawObjects"]["nodes"][0].clone();
    second["spec"]["unschedulable"] = json!(true);
    value["rawObjects"]["nodes"].as_array_mut().unwrap().push(second);
    let snapshot = read_text(&value.to_string()).unwrap();
    assert!(!snapshot.objects.nodes[&Key::new("", "n")].spec.unschedulable);
    let findings: Vec<String> = snapshot.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        findings,
        [
            "Node `n`, `metadata.name`: the file contains it twice, and the first one counts; hint: remove one of them"
        ]
    );
}

#[test]
fn repeated_objects_are_found_in_the_order_of_the_list() {
    let mut value = small();
    let node = |name: &str, unschedulable: bool| json!({"metadata": {"name": name}, "spec": {"unschedulable": unschedulable}});
    value["rawObjects"]["nodes"] =
        json!([node("z", true), node("a", true), node("z", false), node("b", true), node("a", false)]);
    // Another list of the kind continues the first one.
    value["replay"]["nodes"] = json!([node("c", true), node("b", false)]);
    let snapshot = read_text(&value.to_string()).unwrap();
    let nodes: Vec<(&str, bool)> = snapshot
        .objects
        .nodes
        .iter()
        .map(|(key, node)| (key.name.as_str(), node.spec.unschedulable))
        .collect();
    assert_eq!(nodes, [("a", true), ("b", true), ("c", true), ("z", true)]);
    let found: Vec<&str> = snapshot.findings.iter().map(|finding| finding.key.name.as_str()).collect();
    assert_eq!(found, ["z", "a", "b"]);
}

/// Returns few bytes at once.
struct Slow<'a>(Cursor<&'a [u8]>);

impl std::io::Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = 1 + self.0.position() as usize % 7;
        let most = most.min(into.len());
        self.0.read(into.get_mut(..most).unwrap_or_default())
    }
}

impl std::io::Seek for Slow<'_> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

/// Text of several buffers, with characters of several bytes and an object that is larger than a buffer.
fn large() -> Value {
    let pod = |i: usize| {
        let label = "\u{e4}\u{1f600}{[,\\\"".repeat(if i == 700 { 40_000 } else { 1 + i % 40 });
        json!({"metadata": {"name": format!("p-{}", i * 7919 % 3000), "namespace": "ns", "labels": {"l": label},
                 "annotations": {"noise": "{\"a\": [1, 2]}", "kai.scheduler/kept": label}},
               "spec": {"schedulerName": "kai-scheduler"}, "status": {"phase": "Pending"}})
    };
    let mut value = small();
    value["rawObjects"]["pods"] = (0..3000).map(pod).collect();
    value
}

#[test]
fn objects_may_lie_anywhere_in_the_text() {
    let text = large().to_string();
    let whole = read_text(&text).unwrap();
    assert_eq!(whole.objects.count(Kind::Pod), 3000);
    let largest = &whole.objects.pods[&Key::new("ns", format!("p-{}", 700 * 7919 % 3000))].metadata;
    assert_eq!(largest.label("l").map(str::len), Some(40_000 * 11));
    assert_eq!(largest.annotation("kai.scheduler/kept"), largest.label("l"));
    let in_parts = read("file", Slow(Cursor::new(text.as_bytes())), Limits::default()).unwrap();
    assert!(in_parts == whole);
    // Decompressed on another thread.
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("snapshot.json", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(text.as_bytes()).unwrap();
    assert!(read("file", archive.finish().unwrap(), Limits::default()).unwrap() == whole);
    // With white space between all values.
    let spaced = serde_json::to_string_pretty(&large()).unwrap();
    assert!(read_text(&spaced).unwrap() == whole);
}

#[test]
fn errors_beyond_the_first_buffer_name_their_object() {
    let mut value = large();
    value["rawObjects"]["pods"][2990]["spec"]["schedulerName"] = json!(5);
    let error = read_text(&value.to_string()).unwrap_err().to_string();
    let name = format!("`pods[2990]` (`ns/p-{}`), field `spec.schedulerName`", 2990 * 7919 % 3000);
    assert!(error.contains(&name), "{error}");
    let text = large().to_string();
    let cut = &text[..text.find("p-2999").unwrap() + 20];
    let error = read_text(cut).unwrap_err().to_string();
    assert!(error.contains("expected the end of a value"), "{error}");
}

#[test]
fn text_that_is_not_utf_8_is_named() {
    let mut damaged = small().to_string().into_bytes();
    let member = br#""namespace":"n"#;
    let at = damaged.windows(member.len()).position(|part| part == member).unwrap();
    damaged[at + member.len() - 1] = 0xff;
    let error = read("file", Cursor::new(damaged), Limits::default()).unwrap_err().to_string();
    assert!(error.contains("is not UTF-8; hint: "), "{error}");
}

#[test]
fn errors_contain_their_cause_once() {
    let mut value = small();
    value["config"]["actions"] = json!(5);
    let error = read_text(&value.to_string()).unwrap_err();
    assert!(std::error::Error::source(&error).is_none(), "the cause is in the message: {error}");
    for (edit, expected) in [
        (json!({"pods": {}}), "`file`, `pods`: expected a list; hint: "),
        (json!([]), "`file`, `rawObjects`: expected an object; hint: "),
        (json!({"queues": [5]}), "`queues[0]`: invalid type: integer `5`, expected an object; hint: "),
    ] {
        let mut value = small();
        value["rawObjects"] = edit;
        let error = read_text(&value.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for text in ["", "null", "- a", "5"] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains("`file` has no `rawObjects`; hint: "), "{error}");
    }
    let error = read_text("config:\n  actions: a\n tiers: []\n").unwrap_err().to_string();
    assert!(error.starts_with("`file` is neither JSON nor YAML: line 3 column 2"), "{error}");
}

#[test]
fn yaml_strings_are_not_parsed_as_booleans() {
    let text = "rawObjects:\n  queues:\n  - metadata: {name: y, labels: {a: on, b: no}}\n    spec: {parentQueue: off}\n";
    let objects = read_objects("file", Cursor::new(text), Limits::default()).unwrap();
    assert_eq!(objects.queues[&Key::new("", "y")].spec.parent_queue, "off");
}

#[test]
fn large_yaml_is_read() {
    let names: Vec<String> = (0..60_000).map(|i| format!("- {{metadata: {{name: n{i}}}}}\n")).collect();
    let text = format!("rawObjects:\n  nodes:\n  {}", names.join("  "));
    let objects = read_objects("file", Cursor::new(text), Limits::default()).unwrap();
    assert_eq!(objects.count(Kind::Node), 60_000);
}

#[test]
fn damaged_and_oversized_input_is_rejected() {
    for text in [
        "",
        "{",
        "{}",
        "[]",
        "{\"rawObjects\":",
        "PK",
        "PK\u{3}\u{4}garbage",
        "\u{0}",
        "- - - {",
        "{\"a\":1}}",
        "{\"pods\" 1}",
    ] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains("`file`"), "{text}: {error}");
    }
    let deep = format!(r#"{{"config":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(read_text(&deep).unwrap_err().to_string().contains("recursion limit"));
    let limits = Limits { objects: 2, ..Limits::default() };
    let many = r#"{"rawObjects":{"nodes":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}},{"metadata":{"name":"c"}}]}}"#;
    let error = read_objects("file", Cursor::new(many), limits).unwrap_err().to_string();
    assert!(error.contains("more than 2 objects in one list"), "{error}");
}

#[test]
fn zip_bomb_is_stopped_at_the_limit() {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("snapshot.json", zip::write::SimpleFileOptions::default()).unwrap();
    let blank = vec![b' '; 1 << 20];
    for _ in 0..16 {
        archive.write_all(&blank).unwrap();
    }
    let bomb = archive.finish().unwrap();
    assert!(bomb.get_ref().len() < 1 << 20);
    let limits = Limits { bytes: 4 << 20, ..Limits::default() };
    let error = read("bomb", bomb, limits).unwrap_err().to_string();
    assert!(error.contains("more than 4194304 bytes") && error.contains("hint: "), "{error}");
    let mut other = zip::ZipWriter::new(Cursor::new(Vec::new()));
    other.start_file("other.json", zip::write::SimpleFileOptions::default()).unwrap();
    let error = read("other", other.finish().unwrap(), Limits::default()).unwrap_err().to_string();
    assert!(error.contains("the entry `snapshot.json`"), "{error}");
}

#[test]
fn yaml_with_exponential_aliases_is_rejected() {
    let mut lines = vec!["a: &a [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for level in 0..12 {
        let (one, next) = ((b'a' + level) as char, (b'b' + level) as char);
        lines.push(format!("{next}: &{next} [{}]", vec![format!("*{one}"); 10].join(", ")));
    }
    let text = lines.join("\n");
    assert!(read_text(&text).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn cut_or_damaged_text_never_panics(at in 0usize..4000, byte in any::<u8>(), cut in any::<bool>()) {
        let mut text = small().to_string().into_bytes();
        let at = at % text.len();
        if cut {
            text.truncate(at);
        } else {
            text[at] = byte;
        }
        if let Ok(snapshot) = read("file", Cursor::new(text), Limits::default()) {
            let mut store = snapshot.into_store();
            store.drain(|_| {});
            let _ = store.findings();
        }
    }
}

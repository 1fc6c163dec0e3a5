//! Invalid objects in an otherwise valid file: rejected by name, or reported and ignored; never a panic.

use crate::{kai, scratch, stderr, stdout};
use kai_clock::Stopwatch;
use serde_json::{Value, json};
use std::process::Command;

/// Two nodes of four GPUs, one queue, and two groups of one pod that fit.
fn base() -> Value {
    json!({
        "config": {"actions": "allocate", "tiers": [{"plugins": [
            {"name": "predicates"}, {"name": "proportion"}, {"name": "priority"}, {"name": "nodeplacement"}]}]},
        "schedulerParams": {"schedulerName": "kai-scheduler", "fullHierarchyFairness": true,
            "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": ""}},
        "replay": {"now": "2026-01-05T09:00:00Z"},
        "rawObjects": {
            "nodes": [node("n0"), node("n1")],
            "queues": [queue("root", ""), queue("q", "root")],
            "podGroups": [group("a", 1), group("b", 1)],
            "pods": [pod("a-0", "a"), pod("b-0", "b")],
        },
    })
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {
        "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn queue(name: &str, parent: &str) -> Value {
    let all = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": {"cpu": all, "memory": all, "gpu": all}}})
}

fn group(name: &str, min: u32) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": "q", "minMember": min}})
}

fn pod(name: &str, group: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {"pod-group-name": group}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Pending"}})
}

fn requests(file: &mut Value) -> &mut Value {
    &mut file["rawObjects"]["pods"][0]["spec"]["containers"][0]["resources"]["requests"]
}

fn allocatable(file: &mut Value) -> &mut Value {
    &mut file["rawObjects"]["nodes"][0]["status"]["allocatable"]
}

/// Asserts that the file is planned without violations; returns the number of bound pods, and the findings.
#[track_caller]
fn planned(name: &str, text: impl AsRef<[u8]>) -> (u64, String) {
    let output = kai(&["plan", &scratch(name, text), "--json", "--findings", "--audit"]);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{name}: {error}{}", stdout(&output));
    assert!(!error.contains("panicked"), "{name}: {error}");
    let numbers: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(numbers["verdicts"].get("quarantined").is_none(), "{name}: {numbers}");
    (numbers["bind_requests"].as_u64().expect("a count"), numbers["findings"].to_string())
}

/// Asserts exit code 2 and an error that contains all the words.
#[track_caller]
fn assert_rejected(name: &str, text: impl AsRef<[u8]>, words: &[&str]) {
    let output = kai(&["plan", &scratch(name, text)]);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{name}: {error}{}", stdout(&output));
    assert!(error.contains(name) && !error.contains("panicked"), "{error}");
    for word in words {
        assert!(error.contains(word), "`{word}` is missing in: {error}");
    }
}

#[test]
fn pod_with_an_invalid_quantity_stays_pending_and_others_are_placed() {
    for (index, amount) in ["1e400", "-5", "", "NaN", "0x10", &"9".repeat(5_000)].into_iter().enumerate() {
        for resource in ["cpu", "memory", "nvidia.com/gpu"] {
            let mut file = base();
            requests(&mut file)[resource] = json!(amount);
            let (bound, findings) = planned(&format!("pod-{index}.json"), file.to_string());
            assert_eq!(bound, 1, "{amount} of {resource}: {findings}");
            assert!(findings.contains("Pod `ns/a-0`") && findings.contains(resource), "{findings}");
            assert!(findings.len() < 400, "long text is cut: {findings}");
            let mut file = base();
            allocatable(&mut file)[resource] = json!(amount);
            let (bound, findings) = planned(&format!("node-{index}.json"), file.to_string());
            assert_eq!(bound, 2, "{amount} of {resource}");
            assert!(findings.contains("Node `n0`") && findings.contains(resource), "{findings}");
        }
    }
}

#[test]
fn huge_amounts_do_not_overflow() {
    let huge = i64::MAX.to_string();
    let mut file = base();
    for resource in ["cpu", "memory", "nvidia.com/gpu"] {
        for at in 0..2 {
            file["rawObjects"]["nodes"][at]["status"]["allocatable"][resource] = json!(huge);
        }
    }
    for (index, place) in [("a", Some("n0")), ("b", None)].into_iter().cycle().take(40).enumerate() {
        let mut more = pod(&format!("more-{index}"), place.0);
        for resource in ["cpu", "memory", "nvidia.com/gpu"] {
            more["spec"]["containers"][0]["resources"]["requests"][resource] = json!(huge);
        }
        if let Some(node) = place.1 {
            more["spec"]["nodeName"] = json!(node);
            more["status"]["phase"] = json!("Running");
        }
        file["rawObjects"]["pods"].as_array_mut().expect("a list").push(more);
    }
    for bound in
        [json!(i64::MAX), json!(1e308), json!(-1e308), json!(1e-300), json!(9_007_199_254_740_993_i64)]
    {
        for field in ["quota", "limit", "overQuotaWeight"] {
            for resource in ["cpu", "memory", "gpu"] {
                file["rawObjects"]["queues"][0]["spec"]["resources"][resource][field] = bound.clone();
                file["rawObjects"]["queues"][1]["spec"]["resources"][resource][field] = bound.clone();
            }
        }
        planned("huge-amounts.json", file.to_string());
        let tables = kai(&["plan", &scratch("huge-amounts.json", file.to_string())]);
        assert!(tables.status.success(), "{}", stderr(&tables));
    }
}

#[test]
fn invalid_number_is_reported_with_its_queue() {
    for number in ["NaN", "Infinity", "1e400", "\"5\"", "true", "[1]"] {
        let text = base().to_string().replacen("\"quota\":-1", &format!("\"quota\":{number}"), 1);
        assert_rejected("queue-number.json", text, &["`queues[0]`", ".quota`", "hint: "]);
    }
}

#[test]
fn value_of_the_wrong_type_is_reported_with_object_and_field() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &[&str]); 9] = [
        (|f| f["rawObjects"]["pods"] = json!({}), &["`pods`", "a list"]),
        (|f| f["rawObjects"] = json!([]), &["`rawObjects`", "an object"]),
        (|f| f["rawObjects"]["pods"][0] = Value::Null, &["`pods[0]`", "an object"]),
        (|f| f["rawObjects"]["nodes"][1] = json!({}), &["`nodes[1]`", "metadata.name"]),
        (|f| allocatable(f)["cpu"] = json!(true), &["(`n0`)", "status.allocatable.cpu", "a quantity"]),
        (
            |f| f["rawObjects"]["podGroups"][1]["spec"]["minMember"] = json!(99_999_999_999_u64),
            &["(`ns/b`)", "spec.minMember", "a whole number"],
        ),
        (
            |f| f["rawObjects"]["pods"][0]["metadata"]["creationTimestamp"] = json!("noon"),
            &["(`ns/a-0`)", "metadata.creationTimestamp", "`noon` is not a time", "RFC 3339"],
        ),
        (|f| f["config"]["tiers"] = json!(7), &["`config.tiers`", "a list"]),
        (|f| f["replay"]["now"] = json!("x"), &["`replay`", "`x` is not a time"]),
    ];
    for (edit, words) in cases {
        let mut file = base();
        edit(&mut file);
        assert_rejected("form.json", file.to_string(), words);
    }
}

#[test]
fn files_without_a_snapshot_are_rejected() {
    for (name, content) in [
        ("empty.json", &b""[..]),
        ("empty.yaml", b"\n# nothing\n"),
        ("list.json", b"[]"),
        ("null.json", b"null"),
        ("object.json", b"{}"),
    ] {
        assert_rejected(name, content, &["has no `rawObjects`", "hint: "]);
    }
    assert_rejected("bytes.zip", b"PK\x03\x04\xff\xfe garbage", &["not a complete zip archive", "hint: "]);
    assert_rejected("latin.yaml", b"config: \xff\xfe", &["UTF-8"]);
    assert_rejected("latin.json", base().to_string().replace("n0", "\u{1}").as_bytes(), &["`nodes[0]`"]);
    assert_rejected("tab.yaml", b"config:\n\tactions: a\n", &["line 2", "tabs"]);
    let folder = kai(&["plan", env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(folder.status.code(), Some(2), "{}", stderr(&folder));
    assert!(stderr(&folder).contains("directory"), "{}", stderr(&folder));
}

#[test]
fn error_has_its_cause_once() {
    let output = kai(&["plan", "/nowhere/to/be.found"]);
    assert_eq!(stderr(&output).matches("o such file").count(), 1, "{}", stderr(&output));
    // A folder is no kubeconfig.
    let folder = env!("CARGO_TARGET_TMPDIR");
    let output = Command::new(env!("CARGO_BIN_EXE_kai")).arg("queues").env("KUBECONFIG", folder).output();
    let error = stderr(&output.expect("the command runs"));
    assert!(error.starts_with(&format!("error: cannot use kubeconfig `{folder}`: ")), "{error}");
    assert_eq!(error.matches("s a directory").count(), 1, "{error}");
    let missing = kai(&["queues", "--kubeconfig", "/nowhere/config"]);
    let error = stderr(&missing);
    assert!(error.starts_with("error: cannot use kubeconfig `/nowhere/config`: No such file"), "{error}");
    assert_eq!(error.matches("/nowhere").count(), 1, "{error}");
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_kai"));
    nowhere
        .arg("queues")
        .env("HOME", "/nowhere")
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST");
    let error = stderr(&nowhere.output().expect("the command runs"));
    assert!(error.starts_with("error: found no cluster: "), "{error}");
    assert!(!error.contains("o such file") && !error.contains("incluster"), "{error}");
}

#[test]
fn zip_archive_is_no_manifest() {
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/random.zip");
    for command in ["lint", "group"] {
        let error = stderr(&kai(&[command, archive]));
        assert!(error.contains("is a zip archive, such as a snapshot, not a manifest"), "{command}: {error}");
    }
}

#[test]
fn several_yaml_documents_are_no_configuration() {
    let file = scratch("two-documents.yaml", "actions: allocate\n---\nactions: reclaim\n");
    let snapshot = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gang.yaml");
    let error = stderr(&kai(&["plan", snapshot, "--config", &file]));
    assert!(error.contains("multiple YAML documents"), "{error}");
    assert!(!error.contains("from_str"), "{error}");
}

#[test]
fn inconsistent_objects_are_reported_and_left_out() {
    let mut file = base();
    let raw = &mut file["rawObjects"];
    let mut lost = pod("lost-0", "a");
    lost["spec"]["nodeName"] = json!("ghost");
    lost["status"]["phase"] = json!("Running");
    let pods = raw["pods"].as_array_mut().expect("a list");
    pods.extend([lost, pod("stray-0", "nowhere"), pod("b-0", "a")]);
    raw["nodes"].as_array_mut().expect("a list").push(node("n1"));
    let (bound, findings) = planned("together.json", file.to_string());
    assert_eq!(bound, 2);
    for words in [
        "Pod `ns/lost-0`, `spec.nodeName`: the node `ghost` does not exist",
        "the group `nowhere` does not exist in the pod's namespace",
        "Pod `ns/b-0`, `metadata.name`: the file contains it twice",
        "Node `n1`, `metadata.name`: the file contains it twice",
    ] {
        assert!(findings.contains(words), "`{words}` is missing in {findings}");
    }
}

#[test]
fn cyclic_sub_groups_affect_only_their_group() {
    for (index, sub_groups) in [
        json!([{"name": "x", "parent": "y"}, {"name": "y", "parent": "x"}]),
        json!([{"name": "x", "parent": "x"}]),
        json!([{"name": "x", "parent": "none"}]),
        json!([{"name": "x"}, {"name": "x"}]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut file = base();
        file["rawObjects"]["podGroups"][0]["spec"]["subGroups"] = sub_groups;
        let (bound, findings) = planned(&format!("sub-groups-{index}.json"), file.to_string());
        assert_eq!(bound, 1);
        assert!(findings.contains("PodGroup `ns/a`, `spec.subGroups`"), "{findings}");
    }
}

#[test]
fn group_in_a_cycle_of_queues_is_reported() {
    let mut file = base();
    let circle = (0..10).map(|i| queue(&format!("c{i}"), &format!("c{}", (i + 1) % 10)));
    file["rawObjects"]["queues"].as_array_mut().expect("a list").extend(circle);
    file["rawObjects"]["podGroups"][0]["spec"]["queue"] = json!("c3");
    let (bound, findings) = planned("circle.json", file.to_string());
    assert_eq!(bound, 1);
    assert!(findings.contains("the queue `c3` is ignored"), "{findings}");
}

#[test]
fn invalid_annotations_are_reported() {
    for (name, value) in [
        ("gpu-fraction", "1.5"),
        ("gpu-fraction", "NaN"),
        ("gpu-fraction", "1e400"),
        ("gpu-memory", "-5"),
        ("gpu-memory", "99999999999999999999"),
        ("gpu-fraction-num-devices", "0"),
        ("gpu-fraction-num-devices", "9223372036854775807"),
    ] {
        let mut file = base();
        if name.ends_with("devices") {
            file["rawObjects"]["pods"][0]["metadata"]["annotations"]["gpu-fraction"] = json!("0.5");
        }
        file["rawObjects"]["pods"][0]["metadata"]["annotations"][name] = json!(value);
        let (_, findings) = planned("annotation.json", file.to_string());
        assert!(findings.contains(name) && findings.contains("Pod `ns/a-0`"), "{findings}");
    }
}

/// Well above the time of a linear algorithm, and well below that of a quadratic one.
const TIMEOUT_MS: f64 = 60_000.0;

#[test]
fn gang_of_20000_pods_is_placed_in_linear_time() {
    const PODS: u32 = 20_000;
    let mut file = base();
    for at in 0..2 {
        let allocatable = &mut file["rawObjects"]["nodes"][at]["status"]["allocatable"];
        allocatable["pods"] = json!(PODS.to_string());
        allocatable["cpu"] = json!(PODS.to_string());
    }
    let mut one = pod("", "a");
    one["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
    let pods = (0..PODS).map(|index| {
        one["metadata"]["name"] = json!(format!("p-{index}"));
        one["metadata"]["uid"] = json!(format!("p-{index}"));
        one.clone()
    });
    file["rawObjects"]["pods"] = pods.collect();
    file["rawObjects"]["podGroups"] = json!([group("a", PODS)]);
    let file = scratch("thousands.json", file.to_string());
    let watch = Stopwatch::start();
    let output = kai(&["plan", &file, "--json"]);
    let numbers: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(numbers["bind_requests"], PODS, "{numbers}");
    assert!(watch.elapsed_ms() < TIMEOUT_MS, "{numbers}");
}

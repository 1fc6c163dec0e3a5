//! Options of the commands that show a cluster: what they select, how they print, and what fits on a terminal.

use crate::command_line::completed;
use crate::view_commands::{TestCluster, gang_job, named, wait_until};
use crate::{assert_rejected, kai, stderr, stdout};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_scheduler::resources::POD_GROUP;
use serde_json::{Value, json};
use std::path::Path;

impl TestCluster {
    /// The example, and a Job of two pods that do not fit.
    async fn with_job(name: &str) -> Self {
        let test = Self::with_example(name).await;
        test.create(gang_job(JOB, 2, 5)).await;
        wait_until("the pods of the job are grouped", async || {
            let pods =
                test.cluster.api().list_dynamic(&POD, "default").await.expect("they can be listed").items;
            let ours = pods.iter().filter(|pod| object::name(pod).starts_with(JOB));
            ours.filter(|pod| !object::str_at(pod, "/metadata/annotations/pod-group-name").is_empty()).count()
                == 2
        })
        .await;
        test
    }

    /// Lines of a successful command.
    async fn lines(&self, args: &[&str]) -> Vec<String> {
        let output = self.kai(args).await;
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output).lines().map(str::to_owned).collect()
    }

    fn with_variables(&self, args: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.command(args).envs(variables.iter().copied()).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }
}

const JOB: &str = "a-job-with-a-name";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_types_labels_and_namespaces_select_as_with_kubectl() {
    let test = TestCluster::with_job("select").await;
    let typed = format!("job/{JOB}");
    for (args, expected) in [
        (
            &["queues", "vision", "queue/speech", "-o", "name"][..],
            &["queue.scheduling.run.ai/speech", "queue.scheduling.run.ai/vision"][..],
        ),
        (&["nodes", "node-2", "-o", "name"], &["node/node-2"]),
        (&["nodes", "-l", "kubernetes.io/hostname in (node-1)", "-o", "name"], &["node/node-1"]),
        (&["nodes", "-l", "no-such-label", "-o", "name"], &[]),
        (
            &["jobs", "train", "podgroup/big", "-o", "name"],
            &["podgroup.scheduling.run.ai/big", "podgroup.scheduling.run.ai/train"],
        ),
        (&["jobs", "-n", "elsewhere", "-o", "name"], &[]),
        (&["jobs", "-q", "speech", "-o", "name"], &["podgroup.scheduling.run.ai/train"]),
        (&["why", "pg/big", "-o", "name"], &["podgroup.scheduling.run.ai/big"]),
        (&["why", "pods/big-0", "-n", "default", "-o", "name"], &["podgroup.scheduling.run.ai/big"]),
        (&["why", "queue/teams", "-o", "name"], &["podgroup.scheduling.run.ai/big"]),
    ] {
        assert_eq!(test.lines(args).await, expected, "{args:?}");
    }
    let names = test.lines(&["jobs", &typed, "-o", "name"]).await;
    let [name] = names.as_slice() else { panic!("one group: {names:?}") };
    assert!(name.starts_with(&format!("podgroup.scheduling.run.ai/pg-{JOB}")), "{name}");
    assert_eq!(test.lines(&["why", &typed, "-o", "name"]).await, names);
    // What `-o name` prints is accepted.
    assert_eq!(test.lines(&["why", name, "-o", "name"]).await, names);
    let all = test.lines(&["jobs", "-A", "-o", "name"]).await;
    assert_eq!(all.len(), 4, "{all:?}");

    let elsewhere = test.lines(&["jobs", "-n", "elsewhere"]).await;
    assert_eq!(
        elsewhere,
        ["No pod groups match the filter", "4 in other namespaces; `kai jobs -A` lists all"]
    );
    for (args, words) in [
        (&["jobs", "job/big"][..], &["no pod group of `job/big` found in namespace `default`", "hint: "][..]),
        (&["why", "job/big"], &["`default/big` not found", "hint: "]),
        (&["why", "queue/none"], &["queue `none` not found", "hint: "]),
        (&["queues", "none"], &["queue `none` not found", "hint: "]),
        (&["queues", "node/vision"], &["`node`", "hint: "]),
        (&["nodes", "-l", "a=b=c"], &["--selector `a=b=c`", "hint: "]),
    ] {
        assert_rejected(&test.kai(args).await, words);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_shown_as_they_were_submitted_in_the_width_there_is() {
    let test = TestCluster::with_job("width").await;
    // In a pipe, a group is a line with everything.
    let piped = test.lines(&["jobs"]).await;
    let row = piped.iter().find(|line| line.contains(JOB)).expect("the job is listed");
    assert!(
        row.starts_with(&format!("  Job/{JOB} ")) && row.contains("is unschedulable: it requests 5 GPUs"),
        "{row}"
    );
    assert!(!piped.join("\n").contains("pg-a-job"), "{piped:?}");
    let wide = test.lines(&["jobs", "-A", "-o", "wide"]).await;
    assert!(wide[0].contains("NAMESPACE   GROUP") && wide[0].contains("POD GROUP"), "{wide:?}");
    assert!(wide.iter().any(|line| line.contains(" pg-a-job")), "{wide:?}");
    let why = test.lines(&["why", JOB]).await;
    assert!(why[0].starts_with(&format!("Job `default/{JOB}`, pod group `pg-")), "{why:?}");

    for command in ["jobs", "queues", "nodes"] {
        for columns in [80, 100, 160] {
            let text = test.with_variables(&[command], &[("COLUMNS", &columns.to_string())]);
            // The legend of the nodes is a sentence.
            let table = text.split("\n\n").next().expect("a table");
            for line in table.lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}\n{text}");
            }
            assert!(command != "jobs" || text.contains(JOB), "{text}");
        }
    }
    let headings = test.with_variables(&["jobs"], &[("COLUMNS", "80")]);
    assert!(headings.contains("\n    REASON\n"), "the reason has lines of its own: {headings}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_as_its_schema_says_in_every_format_and_without_colours_in_a_pipe() {
    let test = TestCluster::with_job("formats").await;
    let why = format!("job/{JOB}");
    for (schema, args) in [
        ("queues", &["queues"][..]),
        ("jobs", &["jobs"]),
        ("nodes", &["nodes"]),
        ("why", &["why", &why]),
        ("why", &["why", "default/train"]),
        ("usage", &["queues", "--usage"]),
    ] {
        let printed = test.json(&[args, &["-o", "json"]].concat()).await;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{schema}.json"));
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("it is published"))
            .expect("it is JSON");
        assert_conforms(&printed, &schema, &schema, "");
        let yaml = test.lines(&[args, &["-o", "yaml"]].concat()).await.join("\n");
        let yaml: Value = serde_saphyr::from_str(&yaml).expect("it is YAML");
        let without_time = |mut value: Value| {
            value.as_object_mut().expect("an object").remove("at");
            value
        };
        if args[0] != "why" {
            assert_eq!(without_time(yaml), without_time(printed), "{args:?}");
        }
        assert_eq!(test.lines(&[args, &["--json"]].concat()).await.len(), 1, "--json is one line");
    }
    let jobs = test.json(&["jobs", "-o", "json"]).await;
    let job = named(&jobs["groups"], "workload", &format!("Job/{JOB}"));
    assert_eq!((&job["state"], &job["min"]), (&json!("Pending"), &json!(2)));

    assert!(!test.with_variables(&["jobs"], &[]).contains('\x1b'));
    let forced = test.with_variables(&["jobs"], &[("CLICOLOR_FORCE", "1")]);
    assert!(forced.contains("\x1b[33mPending\x1b[0m"), "{forced:?}");
    assert!(!test.with_variables(&["jobs"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\x1b'));

    for (words, expected) in [
        (&["queues", "vi"][..], &["vision"][..]),
        (&["nodes", ""], &["node-1", "node-2"]),
        (&["why", "a-job"], &[JOB]),
        (&["why", "job/a"], &[&why]),
        (&["jobs", "-q", "sp"], &["speech"]),
        (&["why", "-n", "def"], &["default"]),
        (&["why", "-n", "kube-system", "t"], &[]),
    ] {
        let found = completed(&test.kubeconfig, words);
        let names: Vec<&str> =
            found.iter().map(String::as_str).filter(|name| !name.starts_with('-')).collect();
        assert_eq!(names, expected, "{words:?}");
    }
    let groups = test.cluster.api().list_dynamic(&POD_GROUP, "default").await.expect("they can be listed");
    assert_eq!(groups.items.len(), 4);
}

/// Checks what the schemas of views consist of: types, properties, items, alternatives and references.
#[track_caller]
fn assert_conforms(value: &Value, schema: &Value, root: &Value, place: &str) {
    let complaints = violations(value, schema, root, place);
    assert!(complaints.is_empty(), "{}\nin {value}", complaints.join("\n"));
}

fn violations(value: &Value, schema: &Value, root: &Value, place: &str) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).expect("the reference resolves");
        all.extend(violations(value, target, root, place));
    }
    for alternatives in ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()) {
        let each: Vec<Vec<String>> =
            alternatives.iter().map(|of| violations(value, of, root, place)).collect();
        if each.iter().all(|complaints| !complaints.is_empty()) {
            all.extend(each.into_iter().flatten());
        }
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_of = |name: &Value| name == kind || kind == "integer" && name == "number";
    let is_type = match &schema["type"] {
        Value::Array(names) => names.iter().any(is_of),
        Value::Null => true,
        name @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => is_of(name),
    };
    if !is_type {
        all.push(format!("{place} is {kind}, not {}", schema["type"]));
    }
    for allowed in [&schema["enum"]].into_iter().filter_map(Value::as_array) {
        if !allowed.contains(value) {
            all.push(format!("{place} is {value}, not one of {allowed:?}"));
        }
    }
    if schema.get("const").is_some_and(|only| only != value) {
        all.push(format!("{place} is {value}, not {}", schema["const"]));
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(required).is_none() {
            all.push(format!("{place}/{required} is missing"));
        }
    }
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            all.extend(violations(value, of, root, &format!("{place}/{name}")));
        }
    }
    // What is printed is described.
    if let (Some(object), Some(known)) = (value.as_object(), schema["properties"].as_object())
        && schema.get("additionalProperties").is_none()
        && ["$ref", "anyOf", "oneOf", "allOf"].iter().all(|key| schema.get(key).is_none())
    {
        let unknown = object.keys().filter(|name| !known.contains_key(*name));
        all.extend(unknown.map(|name| format!("{place}/{name} is not described")));
    }
    if schema["items"].is_object() {
        for (at, item) in value.as_array().into_iter().flatten().enumerate() {
            all.extend(violations(item, &schema["items"], root, &format!("{place}/{at}")));
        }
    }
    all
}

#[test]
fn output_of_commands_on_files_is_as_their_schemas_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = |name: &str| folder.join("examples").join(name).display().to_string();
    let (urgent, job) = (example("what-if-urgent.yaml"), example("what-if-job.yaml"));
    for (schema, args) in [
        ("plan", vec!["plan", &example("evictions.yaml"), "--json", "--findings"]),
        ("plan", vec!["plan", &example("invalid-objects.yaml"), "--json"]),
        ("simulate", vec!["simulate", &example("evictions.yaml"), "--json", "--cycles", "5"]),
        ("lint", vec!["lint", &job, &example("queues.yaml"), &example("invalid-objects.yaml"), "--json"]),
        ("group", vec!["group", &job, "--json"]),
        ("migrate", vec!["migrate", "check", "-f", &example("kai-values.yaml"), "--json"]),
        ("what-if", vec!["what-if", "-f", &urgent, "--snapshot", &example("evictions.yaml"), "--json"]),
        ("what-if", vec!["what-if", "-f", &job, "--snapshot", &example("two-teams.yaml"), "--json"]),
        ("version", vec!["version", "-o", "json"]),
    ] {
        let output = kai(&args);
        let printed: Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|_| panic!("{args:?} prints no JSON: {}", crate::stderr(&output)));
        let path = folder.join(format!("docs/schema/{schema}.json"));
        let text = std::fs::read_to_string(path).expect("it is published");
        let published: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_conforms(&printed, &published, &published, schema);
    }
}

#[test]
fn published_schemas_are_current() {
    for name in [
        "queues", "usage", "jobs", "nodes", "why", "what-if", "version", "plan", "simulate", "lint", "group",
        "migrate",
    ] {
        let text = stdout(&kai(&["schema", name]));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).expect("it can be written");
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == text,
            "docs/schema/{name}.json is stale; hint: UPDATE=1 cargo test -p kai-cli --test it published_schemas"
        );
    }
}

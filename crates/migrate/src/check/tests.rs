//! One test per source of findings.

use super::*;
use kai_operator::Apis;

fn findings(input: &Input) -> Vec<Finding> {
    check(input, &PluginSet::builtin())
}

fn of_values(values: Value) -> Vec<Finding> {
    findings(&Input { values: vec![values], ..Input::default() })
}

fn of_objects(objects: &[Value]) -> Vec<Finding> {
    findings(&Input { objects: objects.to_vec(), ..Input::default() })
}

#[track_caller]
fn expect<'a>(findings: &'a [Finding], level: Level, rule: &str, subject: &str) -> &'a Finding {
    let found =
        findings.iter().find(|one| one.level == level && one.rule == rule && one.subject.contains(subject));
    found.unwrap_or_else(|| panic!("no {level:?} {rule} {subject} in {findings:#?}"))
}

fn queue(name: &str, created: &str) -> Value {
    let bounds = json!({"quota": 1, "limit": -1, "overQuotaWeight": 1});
    json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"resources": {"cpu": bounds, "gpu": bounds, "memory": bounds}},
    })
}

#[test]
fn defaults_of_kai_have_no_findings() {
    assert_eq!(of_values(json!({"global": {"gpuSharing": true}, "operator": {"replicaCount": 2}})), []);
    let config = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": {}});
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}, "spec": {}});
    assert_eq!(of_objects(&[config, shard]), []);
}

#[test]
fn images_of_kai_are_not_those_of_this_scheduler() {
    let values =
        json!({"global": {"registry": "registry.example/kai"}, "binder": {"image": {"tag": "v0.17.0"}}});
    let found = of_values(values);
    let finding = expect(&found, Level::Differs, "images", "global.registry");
    assert!(finding.action.contains("global.tag"), "{finding:?}");
    assert_eq!(of_values(json!({"global": {"registry": "", "tag": ""}})), []);
}

#[test]
fn keys_that_the_chart_refuses_are_unsupported_and_have_a_hint() {
    let found = of_values(json!({
        "admission": {"certSecretName": "x", "cdi": true},
        "binder": {"additionalArgs": ["--x"]},
        "global": {"fipsMode": true},
        "scheduler": {"args": {"v": 5}},
        "schedulr": {},
    }));
    for (key, hint) in [
        ("admission.certSecretName", "certificate"),
        ("admission.cdi", "binder.cdiEnabled"),
        ("binder.additionalArgs", "DRA"),
        ("global.fipsMode", "quotes"),
        ("scheduler.args.v", "text"),
        ("schedulr", "values.yaml"),
    ] {
        let finding = expect(&found, Level::Unsupported, "H01", key);
        assert!(finding.action.contains(hint), "{finding:?}");
    }
}

#[test]
fn later_values_files_replace_keys_of_earlier_ones() {
    let values = vec![
        json!({"global": {"fipsMode": true, "nodeSelector": {"a": "b"}}}),
        json!({"global": {"fipsMode": "on"}}),
    ];
    assert_eq!(findings(&Input { values, ..Input::default() }), []);
}

#[test]
fn difference_has_the_texts_of_the_page() {
    let found = of_values(json!({"prometheus": {"externalPrometheusUrl": "http://x"}}));
    let finding = expect(&found, Level::Differs, "H07", "prometheus.externalPrometheusUrl");
    let row = crate::rules::page::get("H07").unwrap();
    assert!(finding.message.contains(row.kai) && finding.message.contains(row.here), "{finding:?}");
}

#[test]
fn shards_are_read_as_the_operator_reads_them() {
    let shard = |name: &str, spec: Value| json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec});
    let found = of_objects(&[
        shard("a", json!({"goMemLimit": "-1", "partitionLabelValue": "a"})),
        shard("b", json!({"args": {"no-such-flag": "1"}, "partitionLabelValue": "b"})),
        shard("c", json!({"actions": {"dance": {"enabled": true}}, "partitionLabelValue": "c"})),
        shard("d", json!({"partitionLabelValue": "b"})),
    ]);
    expect(&found, Level::Unsupported, "O01", "SchedulingShard a");
    expect(&found, Level::Note, "no-effect", "SchedulingShard b");
    let unknown = expect(&found, Level::Unsupported, "settings", "SchedulingShard c");
    assert!(unknown.message.contains("dance") && unknown.action.contains("docs/plugins.md"), "{unknown:?}");
    expect(&found, Level::Differs, "O16", "SchedulingShard d");
}

#[test]
fn missing_dependency_is_unsupported() {
    let config = json!({
        "apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"},
        "spec": {"prometheus": {"enabled": true}},
    });
    let input = Input { objects: vec![config], apis: Some(Apis::default()), ..Input::default() };
    expect(&findings(&input), Level::Unsupported, "dependency", "Config kai-config");
}

#[test]
fn rules_over_cycles_are_evaluated_for_the_objects() {
    let same = "2026-01-01T00:00:00Z";
    expect(&of_objects(&[queue("a", same), queue("b", same)]), Level::Differs, "D17", "queues");
    let found = of_objects(&[queue("a", same), queue("b", "2026-01-01T00:00:01Z")]);
    assert!(found.iter().all(|finding| finding.rule != "D17"), "{found:?}");
}

#[test]
fn invalid_object_does_not_hide_the_others() {
    let same = "2026-01-01T00:00:00Z";
    let broken = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "n"}, "spec": {"minMember": "three"},
    });
    let found = of_objects(&[broken, queue("a", same), queue("b", same)]);
    expect(&found, Level::Unsupported, "unreadable", "PodGroup n/g");
    expect(&found, Level::Differs, "D17", "queues");
}

#[test]
fn budgets_and_contradicting_queues_differ() {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "n"},
        "spec": {"minAvailable": 1},
    });
    expect(&of_objects(&[budget]), Level::Differs, "disruption-budgets", "n/web");
    let mut small = queue("small", "2026-01-01T00:00:00Z");
    small["spec"]["resources"]["gpu"] = json!({"quota": 4, "limit": 2, "overQuotaWeight": 1});
    expect(&of_objects(&[small]), Level::Differs, "A16", "Queue small");
}

#[test]
fn older_version_is_unsupported_and_work_in_progress_is_noted() {
    let operator = |tag: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kai-operator", "namespace": "kai-scheduler"},
            "spec": {"template": {"spec": {"containers": [{"image": format!("registry:5000/kai/operator:{tag}")}]}}},
        })
    };
    expect(&of_objects(&[operator("v0.9.3")]), Level::Unsupported, "version", "kai-operator");
    for tag in ["v0.17.0", "v0.18.2", "0.0.0-abc", "latest"] {
        assert_eq!(of_objects(&[operator(tag)]), [], "{tag}");
    }
    let request = json!({
        "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": {"name": "p", "namespace": "n"},
        "spec": {"podName": "p", "selectedNode": "x", "receivedResourceType": "Regular"},
    });
    expect(&of_objects(&[request]), Level::Note, "in-flight", "n/p");
}

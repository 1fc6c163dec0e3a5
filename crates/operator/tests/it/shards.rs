//! Settings of shards.

use crate::{deployed, desired, facts, find, get};
use kai_operator::ObjectKey;
use kai_operator::plan::{Change, plan};
use serde_json::{Value, json};

fn error(desired: &kai_operator::Desired, shard: &str) -> String {
    let (_, operand) = desired.shards.iter().find(|(name, _)| name == shard).unwrap();
    operand.error.clone().unwrap_or_default()
}

#[test]
fn invalid_shard_does_not_affect_the_others() {
    let broken = json!({"usageDBConfig": {"clientType": "fake", "usageParams": {"fetchInterval": "soon"}}, "partitionLabelValue": "b"});
    let desired = desired(&json!({}), &[("a", json!({})), ("b", broken)], &facts());
    assert!(find(&desired, "Deployment", "kai-scheduler-a").is_some());
    assert!(find(&desired, "Deployment", "kai-scheduler-b").is_none());
    let error = error(&desired, "b");
    assert!(
        error.contains("spec.usageDBConfig.usageParams.fetchInterval") && error.contains("soon"),
        "{error}"
    );
}

#[test]
fn invalid_settings_are_errors_that_name_the_field() {
    for (spec, field) in [
        (json!({"queueDepthPerAction": {"nope": 1}}), "spec.queueDepthPerAction"),
        (json!({"goMemLimit": "0"}), "spec.goMemLimit"),
        (json!({"usageDBConfig": {"clientType": "prometheus"}}), "spec.usageDBConfig"),
        (json!({"scenarioSearchBudgets": {"maxJobSearchDuration": "-1s"}}), "maxJobSearchDuration"),
        (
            json!({"scenarioSearchBudgets": {"maxActionSearchDuration": {"allocate": "1s"}}}),
            "maxActionSearchDuration",
        ),
        (
            json!({"scenarioSearchBudgets": {"maxJobSearchDuration": "10s", "minJobSearchDuration": "10s"}}),
            "minJobSearchDuration",
        ),
    ] {
        let desired = desired(&json!({}), &[("default", spec.clone())], &facts());
        let error = error(&desired, "default");
        assert!(error.contains(field), "{spec}: {error}");
    }
}

#[test]
fn two_shards_of_one_node_pool_are_not_both_deployed() {
    let pool = json!({"partitionLabelValue": "x"});
    let desired = desired(&json!({}), &[("b", pool.clone()), ("a", pool)], &facts());
    assert!(find(&desired, "Deployment", "kai-scheduler-a").is_some());
    assert!(error(&desired, "b").contains("shard `a` already schedules node pool `x`"));
}

#[test]
fn unknown_argument_is_left_out_with_a_notice() {
    let args = json!({"nope": "1", "max-number-consolidation-preemptees": "3", "v": "5"});
    let desired = desired(&json!({}), &[("default", json!({"args": args}))], &facts());
    let args = crate::arguments(&desired, "Deployment", "kai-scheduler-default");
    assert!(args.contains(&"--v=5".to_owned()) && !args.iter().any(|arg| arg.contains("nope")), "{args:?}");
    let notices = desired.shards[0].1.notices.join("\n");
    assert!(notices.contains("`nope`") && notices.contains("`max-consolidation-preemptees`"), "{notices}");
}

fn file(config: &Value, shard: Value) -> String {
    let desired = desired(config, &[("default", shard)], &facts());
    get(&desired, "ConfigMap", "kai-scheduler-default")["data"]["config.yaml"].as_str().unwrap().to_owned()
}

#[test]
fn usage_is_read_from_the_external_prometheus() {
    let config = json!({"prometheus": {"enabled": true, "externalPrometheusUrl": "http://other:9090"}});
    let file = file(&config, json!({"usageDBConfig": {"clientType": "prometheus"}}));
    assert!(file.contains("http://other:9090"), "{file}");
}

#[test]
fn scheduler_reads_its_configuration() {
    let shard = json!({
        "kValue": 0.5, "minRuntime": {"preemptMinRuntime": "1h"}, "queueDepthPerAction": {"reclaim": 5},
        "placementStrategy": {"gpu": "spread"},
    });
    insta::assert_snapshot!(file(&json!({}), shard));
}

#[test]
fn configuration_changes_no_pod_and_arguments_do() {
    let deployment = |shard: Value| {
        let desired = desired(&json!({}), &[("default", shard)], &facts());
        get(&desired, "Deployment", "kai-scheduler-default").clone()
    };
    let taken_over = json!({
        "kValue": 2, "placementStrategy": {"gpu": "spread"}, "queueDepthPerAction": {"reclaim": 5},
        "minRuntime": {"preemptMinRuntime": "1h"}, "plugins": {"elastic": {"enabled": false}},
    });
    assert_eq!(deployment(json!({})), deployment(taken_over));
    assert_ne!(deployment(json!({})), deployment(json!({"args": {"v": "5"}})));
}

#[test]
fn scheduler_without_a_lease_is_gone_before_the_next_one_starts() {
    let wanted = desired(&json!({}), &[("default", json!({}))], &facts());
    let ours = get(&wanted, "Deployment", "kai-scheduler-default");
    let rolls = ours["spec"]["strategy"].clone();
    assert_eq!(rolls["type"], "RollingUpdate", "a lease decides which of two pods schedules");
    let strategy = |current: Value| {
        let mut facts = facts();
        facts.objects.insert(ObjectKey::of(&current), current);
        let wanted = desired(&json!({}), &[("default", json!({}))], &facts);
        get(&wanted, "Deployment", "kai-scheduler-default")["spec"]["strategy"].clone()
    };
    let mut of_kai = ours.clone();
    of_kai["metadata"]["generation"] = json!(2);
    of_kai["spec"]["strategy"] = json!({"type": "Recreate"});
    of_kai["status"] = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1});
    let mut without_lease = of_kai.clone();
    without_lease["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--v=3"]);
    let recreate = json!({"type": "Recreate"});
    assert_eq!(strategy(without_lease), recreate);
    let mut rolling = of_kai.clone();
    rolling["status"]["observedGeneration"] = json!(1);
    assert_eq!(strategy(rolling), recreate, "the old pod may still run");
    assert_eq!(strategy(of_kai), rolls);
    assert_eq!(strategy(ours.clone()), rolls);
}

#[test]
fn service_of_one_replica_selects_it_and_of_several_follows_the_leader() {
    for (replicas, selects) in [(1, true), (2, false)] {
        let config = json!({"scheduler": {"replicas": replicas}});
        let desired = desired(&config, &[("default", json!({}))], &facts());
        let service = get(&desired, "Service", "kai-scheduler-default");
        assert_eq!(service.pointer("/spec/selector").is_some(), selects);
        assert_eq!(find(&desired, "EndpointSlice", "kai-scheduler-default-leader").is_some(), !selects);
        assert_eq!(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
    }
}

#[test]
fn service_of_another_type_is_not_headless() {
    let config = json!({"scheduler": {"schedulerService": {"type": "NodePort"}}});
    let desired = desired(&config, &[("default", json!({}))], &facts());
    let spec = &get(&desired, "Service", "kai-scheduler-default")["spec"];
    assert_eq!((&spec["type"], spec.get("clusterIP")), (&json!("NodePort"), None));
}

/// The API server neither gives an address to a headless Service nor takes one away.
#[test]
fn service_whose_type_changes_is_replaced() {
    let of = |kind: &str| {
        let config = json!({"scheduler": {"schedulerService": {"type": kind}}});
        desired(&config, &[("default", json!({}))], &facts())
    };
    for (from, to) in [("ClusterIP", "NodePort"), ("NodePort", "ClusterIP")] {
        let service = ObjectKey::of(get(&of(to), "Service", "kai-scheduler-default"));
        let changes = plan(&of(to), "kai-config", &deployed(&of(from), &facts()));
        assert!(changes.contains(&Change::Replace(service)), "from {from} to {to}: {changes:?}");
    }
}

//! Conditions tell the truth.

use crate::{deployed, desired, facts};
use kai_operator::plan::is_owned_by;
use kai_operator::status::{Condition, Observed, conditions};
use kai_operator::{Facts, ObjectKey, Operand};
use serde_json::{Value, json};

fn of_shard(operand: &Operand, facts: &Facts, failures: &[String]) -> Vec<Condition> {
    let kept = facts.objects.values().filter(|object| is_owned_by(object, "SchedulingShard", "default"));
    conditions(&Observed {
        generation: 1,
        operands: std::slice::from_ref(operand),
        objects: &facts.objects,
        kept: kept.collect(),
        failures,
        external_prometheus: None,
    })
}

fn status(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().find(|condition| condition.type_ == type_).unwrap().status
}

fn shard(spec: Value) -> Operand {
    desired(&json!({}), &[("default", spec)], &facts()).shards[0].1.clone()
}

/// The cluster with the shard deployed and its Deployment available.
fn available() -> Facts {
    let mut facts = deployed(&desired(&json!({}), &[("default", json!({}))], &facts()), &facts());
    let key = ObjectKey::new("Deployment", "kai-scheduler", "kai-scheduler-default");
    let deployment = facts.objects.get_mut(&key).unwrap();
    deployment["metadata"]["generation"] = json!(3);
    deployment["status"] = json!({
        "observedGeneration": 3, "updatedReplicas": 1, "conditions": [{"type": "Available", "status": "True"}],
    });
    facts
}

#[test]
fn shard_that_cannot_be_deployed_is_not_ready() {
    let conditions = of_shard(&shard(json!({"queueDepthPerAction": {"nope": 1}})), &facts(), &[]);
    for type_ in ["Available", "Deployed", "Ready"] {
        assert!(!status(&conditions, type_), "{type_}");
    }
    assert!(status(&conditions, "Reconciling"));
    assert!(conditions[2].message.contains("spec.queueDepthPerAction"), "{conditions:?}");
}

#[test]
fn last_good_state_is_available_while_new_settings_are_invalid() {
    let conditions = of_shard(&shard(json!({"goMemLimit": "0"})), &available(), &[]);
    assert!(status(&conditions, "Available"), "{conditions:?}");
    assert!(!status(&conditions, "Ready") && !status(&conditions, "Deployed"));
}

#[test]
fn failed_write_keeps_reconciling() {
    let conditions = of_shard(&shard(json!({})), &available(), &["ConfigMap/x: refused".to_owned()]);
    assert!(status(&conditions, "Reconciling") && !status(&conditions, "Ready"));
}

#[test]
fn rollout_that_is_not_observed_is_not_available() {
    let mut facts = available();
    assert!(status(&of_shard(&shard(json!({})), &facts, &[]), "Ready"));
    let key = ObjectKey::new("Deployment", "kai-scheduler", "kai-scheduler-default");
    facts.objects.get_mut(&key).unwrap()["metadata"]["generation"] = json!(4);
    assert!(!status(&of_shard(&shard(json!({})), &facts, &[]), "Available"));
}

#[test]
fn external_prometheus_gives_its_reasons() {
    let config = json!({"prometheus": {"enabled": true, "externalPrometheusUrl": "http://other:9090"}});
    let operands = desired(&config, &[], &facts()).config;
    let prometheus = operands.into_iter().find(|operand| operand.name == "KAI-prometheus").unwrap();
    let deployed: std::collections::BTreeMap<_, _> =
        prometheus.objects.iter().map(|object| (ObjectKey::of(object), object.clone())).collect();
    let available = |result: Option<Result<(), String>>| {
        let conditions = conditions(&Observed {
            generation: 1,
            operands: std::slice::from_ref(&prometheus),
            objects: &deployed,
            kept: Vec::new(),
            failures: &[],
            external_prometheus: result.as_ref(),
        });
        let condition = conditions.into_iter().find(|condition| condition.type_ == "Available").unwrap();
        (condition.status, condition.reason)
    };
    assert_eq!(available(None), (true, "available"));
    assert_eq!(available(Some(Ok(()))), (true, "prometheus_connected"));
    assert_eq!(available(Some(Err("refused".to_owned()))), (false, "prometheus_connection_failed"));
}

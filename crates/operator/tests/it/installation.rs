//! A whole installation.

use crate::{deployed, desired, facts};
use kai_operator::ObjectKey;
use kai_operator::plan::{Change, plan};
use serde_json::json;
use std::fmt::Write as _;

#[test]
fn default_installation() {
    let desired = desired(&json!({}), &[("default", json!({}))], &facts());
    let mut text = String::new();
    for object in desired.objects() {
        writeln!(text, "--- {}\n{object:#}", ObjectKey::of(object)).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn nothing_is_written_once_everything_is_deployed() {
    let config = json!({"global": {"replicaCount": 2}, "scheduler": {"service": {"resources": {"limits": {"cpu": "1000m"}}}}});
    let shards = [("default", json!({"kValue": 0.5}))];
    let wanted = desired(&config, &shards, &facts());
    let facts = deployed(&wanted, &facts());
    assert_eq!(plan(&desired(&config, &shards, &facts), "kai-config", &facts), []);
}

#[test]
fn objects_of_a_disabled_component_are_deleted() {
    let facts = deployed(&desired(&json!({}), &[], &facts()), &facts());
    let off = desired(&json!({"binder": {"service": {"enabled": false}}}), &[], &facts);
    let changes = plan(&off, "kai-config", &facts);
    let keys: Vec<String> = changes
        .iter()
        .map(|change| {
            let Change::Delete(key) = change else { panic!("{change:?}") };
            key.to_string()
        })
        .collect();
    assert_eq!(
        keys,
        [
            "Deployment/kai-scheduler/binder",
            "Service/kai-scheduler/binder",
            "ServiceAccount/kai-resource-reservation/kai-resource-reservation",
            "ServiceAccount/kai-scheduler/binder",
        ]
    );
}

#[test]
fn nothing_of_a_shard_with_invalid_settings_is_deleted() {
    let shard = |spec| [("default", spec)];
    let facts = deployed(&desired(&json!({}), &shard(json!({})), &facts()), &facts());
    let broken = desired(&json!({}), &shard(json!({"queueDepthPerAction": {"nope": 1}})), &facts);
    assert_eq!(plan(&broken, "kai-config", &facts), []);
}

#[test]
fn webhooks_keep_what_a_cloud_added_and_lose_what_would_exempt_objects() {
    let key = ObjectKey::new("ValidatingWebhookConfiguration", "", "validating-kai-admission");
    let mut facts = deployed(&desired(&json!({}), &[], &facts()), &facts());
    let object = facts.objects.get_mut(&key).unwrap();
    let webhook = &mut object["webhooks"][0];
    webhook["timeoutSeconds"] = json!(3);
    webhook["failurePolicy"] = json!("Ignore");
    webhook["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap();
    expressions.push(json!({"key": "cloud", "operator": "DoesNotExist"}));
    let changes = plan(&desired(&json!({}), &[], &facts), "kai-config", &facts);
    let [Change::Apply { merged, desired }] = changes.as_slice() else { panic!("{changes:?}") };
    let webhook = &merged["webhooks"][0];
    assert_eq!(webhook["timeoutSeconds"], 3);
    assert_eq!(webhook["failurePolicy"], "Fail");
    assert_eq!(webhook["objectSelector"], json!({}));
    for object in [merged, desired] {
        assert_eq!(object["webhooks"][0]["namespaceSelector"]["matchExpressions"][1]["key"], "cloud");
    }
}

#[test]
fn object_that_moves_is_deleted_once_it_is_at_its_new_place() {
    let before = deployed(&desired(&json!({}), &[], &facts()), &facts());
    let moved = desired(&json!({"namespace": "kai-two"}), &[], &before);
    let old = ObjectKey::new("Deployment", "kai-scheduler", "binder");
    assert!(!plan(&moved, "kai-config", &before).contains(&Change::Delete(old.clone())));
    let after = deployed(&moved, &before);
    assert!(plan(&moved, "kai-config", &after).contains(&Change::Delete(old)));
}

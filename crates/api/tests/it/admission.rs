//! Example objects are stored, defaulted or rejected alike by the generated definitions and by KAI's.

use crate::{
    definitions::{Definitions, ours, reference, rewrite, schema},
    structural::{admit, full_example},
};
use serde_json::{Value, json};

/// The expected result of admitting an example.
enum Expected {
    /// Stored unchanged.
    Kept,
    /// Stored with this spec.
    Stored(Value),
    /// Rejected, at this path.
    Rejected(&'static str),
}
use Expected::{Kept, Rejected, Stored};

/// A kind, a spec, and the result of admitting an object with that spec.
type Example = (&'static str, Value, Expected);

#[test]
fn examples_are_stored_defaulted_or_rejected_as_expected() {
    check(&ours());
}

#[test]
#[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
fn examples_are_stored_defaulted_or_rejected_alike_by_the_reference() {
    check(&reference());
}

#[test]
fn every_field_survives_admission_and_decoding() {
    survives(&ours());
}

#[test]
#[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
fn every_field_of_the_reference_survives_decoding() {
    survives(&reference());
}

#[test]
fn node_labels_of_a_topology_are_immutable_but_aliases_are_not() {
    topology_levels_are_immutable(&ours());
}

#[test]
fn topology_needs_a_spec_and_other_kinds_do_not() {
    only_topology_needs_a_spec(&ours());
}

#[test]
fn conditions_in_the_status_are_validated() {
    conditions_are_validated(&ours());
}

#[test]
#[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
fn topologies_and_conditions_are_validated_alike_by_the_reference() {
    let reference = reference();
    topology_levels_are_immutable(&reference);
    only_topology_needs_a_spec(&reference);
    conditions_are_validated(&reference);
}

#[track_caller]
fn topology_levels_are_immutable(definitions: &Definitions) {
    let schema = schema(&definitions["Topology"]);
    let topology = |levels: Value| object("Topology", &json!({"levels": levels}));
    let old = topology(json!([{"nodeLabel": "rack"}, {"nodeLabel": "host"}]));
    let renamed = topology(json!([{"nodeLabel": "rack", "alias": "r"}, {"nodeLabel": "host"}]));
    let swapped = topology(json!([{"nodeLabel": "host"}, {"nodeLabel": "rack"}]));
    let shorter = topology(json!([{"nodeLabel": "rack"}]));
    assert!(admit(schema, &renamed, Some(&old)).is_ok());
    assert!(admit(schema, &swapped, Some(&old)).is_err());
    assert!(admit(schema, &shorter, Some(&old)).is_err());
    assert!(admit(schema, &old, Some(&shorter)).is_err(), "a level is added");
    let many = |last: &str| {
        let names = (1..16).map(|number| format!("level-{number}")).chain([last.to_owned()]);
        topology(names.map(|name| json!({"nodeLabel": name})).collect())
    };
    assert!(admit(schema, &many("host"), Some(&many("host"))).is_ok());
    assert!(admit(schema, &many("host"), Some(&many("other"))).is_err(), "the last of 16 levels is changed");
}

#[track_caller]
fn only_topology_needs_a_spec(definitions: &Definitions) {
    for (kind, definition) in definitions {
        let bare = json!({"metadata": {"name": "bare"}});
        assert_eq!(admit(schema(definition), &bare, None).is_ok(), kind != "Topology", "{kind}");
    }
}

#[track_caller]
fn conditions_are_validated(definitions: &Definitions) {
    let with = |field: &str, value: Value| {
        let mut condition = json!({
            "type": "Ready", "status": "True", "reason": "ready", "message": "",
            "lastTransitionTime": "2025-03-01T10:00:00Z", "observedGeneration": 0,
        });
        condition[field] = value;
        json!({"metadata": {"name": "example"}, "status": {"conditions": [condition]}})
    };
    let faults = [
        ("type", json!("a b")),
        ("type", json!("a".repeat(317))),
        ("status", json!("Maybe")),
        ("reason", json!("1st")),
        ("reason", json!("two words")),
        ("reason", json!("a".repeat(1025))),
        ("message", json!("a".repeat(32769))),
        ("message", Value::Null),
        ("observedGeneration", json!(-1)),
        ("lastTransitionTime", json!("yesterday")),
    ];
    for kind in ["Config", "SchedulingShard"] {
        let schema = schema(&definitions[kind]);
        assert!(admit(schema, &with("message", json!("fine")), None).is_ok());
        for (field, value) in &faults {
            let answer = admit(schema, &with(field, value.clone()), None);
            assert!(answer.is_err_and(|faults| faults.len() == 1), "{kind}: {field} is checked");
        }
    }
}

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v", "kind": kind, "metadata": {"name": "example", "labels": {"a": "b"}}, "spec": spec})
}

/// Runs all examples through `definitions`, and those that are stored through our types.
#[track_caller]
fn check(definitions: &Definitions) {
    for (kind, spec, expected) in examples() {
        let answer = admit(schema(&definitions[kind]), &object(kind, &spec), None);
        match (expected, answer) {
            (Kept, Ok(stored)) => {
                assert_eq!(stored["spec"], spec, "{kind}");
                assert_eq!(rewrite(kind, &stored)["spec"], spec, "{kind}");
            }
            (Stored(expected), Ok(stored)) => assert_eq!(stored["spec"], expected, "{kind}"),
            (Rejected(path), Err(faults)) => {
                let path = format!(".spec{path}:");
                assert!(
                    faults
                        .iter()
                        .all(|fault| format!(".{}", fault.trim_start_matches('.')).starts_with(&path)),
                    "{kind}: {path} expected, {faults:?} found"
                );
            }
            (Kept | Stored(_), Err(faults)) => panic!("{kind}: {spec} is rejected: {faults:?}"),
            (Rejected(path), Ok(_)) => panic!("{kind}: {spec} is stored in spite of {path}"),
        }
    }
}

/// An object with every field of the schema is stored as it is and read and written without loss.
#[track_caller]
fn survives(definitions: &Definitions) {
    for (kind, definition) in definitions {
        let schema = schema(definition);
        let full = full_example(schema);
        let stored = admit(schema, &full, None).unwrap_or_else(|faults| panic!("{kind}: {faults:?}"));
        assert_eq!(stored, full, "{kind}");
        let written = rewrite(kind, &full);
        for part in ["metadata", "spec", "status"] {
            assert_eq!(written.get(part), full.get(part), "{kind}");
        }
    }
}

fn examples() -> Vec<Example> {
    [queues(), pod_groups(), bind_requests(), topologies(), shards(), configs()]
        .into_iter()
        .flatten()
        .collect()
}

fn queues() -> Vec<Example> {
    let kind = "Queue";
    vec![
        (kind, json!({}), Kept),
        (kind, json!({"resources": {"gpu": {"quota": -1.0, "limit": 0.5}}}), Kept),
        (kind, json!({"parentQueue": "a", "colour": "red"}), Stored(json!({"parentQueue": "a"}))),
        (kind, json!({"priority": null, "resources": {"cpu": null}}), Stored(json!({"resources": {}}))),
        (kind, json!({"priority": 5_000_000_000_i64}), Kept),
        (kind, json!({"priority": 1.5}), Rejected(".priority")),
        (kind, json!({"displayName": 1}), Rejected(".displayName")),
        (kind, json!({"resources": {"memory": {"limit": "1Gi"}}}), Rejected(".resources.memory.limit")),
    ]
}

fn pod_groups() -> Vec<Example> {
    let kind = "PodGroup";
    let sub = |sub_group: Value| json!({"subGroups": [sub_group]});
    vec![
        (kind, json!({"minMember": 0, "queue": "q", "preemptibility": "preemptible"}), Kept),
        (kind, sub(json!({"name": "a-1", "parent": "b", "minMember": 2})), Kept),
        (kind, json!({"minMember": -1}), Rejected(".minMember")),
        (kind, json!({"minMember": 2_147_483_648_i64}), Rejected(".minMember")),
        (kind, json!({"minSubGroup": -1}), Rejected(".minSubGroup")),
        (kind, json!({"schedulingBackoff": -2_147_483_649_i64}), Rejected(".schedulingBackoff")),
        (kind, json!({"preemptibility": "maybe"}), Rejected(".preemptibility")),
        (kind, json!({"preemptibility": ""}), Rejected(".preemptibility")),
        (kind, json!({"markUnschedulable": "true"}), Rejected(".markUnschedulable")),
        (kind, json!({"preemptionDelay": 5}), Rejected(".preemptionDelay")),
        (kind, sub(json!({"minMember": 1})), Rejected(".subGroups[0].name")),
        (kind, sub(json!({"name": ""})), Rejected(".subGroups[0].name")),
        (kind, sub(json!({"name": "Upper"})), Rejected(".subGroups[0].name")),
        (kind, sub(json!({"name": "a-"})), Rejected(".subGroups[0].name")),
        (kind, sub(json!({"name": "a", "parent": "x.y"})), Rejected(".subGroups[0].parent")),
        (kind, sub(json!({"name": "a", "minMember": -1})), Rejected(".subGroups[0].minMember")),
        (kind, sub(json!({"name": "a", "minSubGroup": -1})), Rejected(".subGroups[0].minSubGroup")),
    ]
}

fn bind_requests() -> Vec<Example> {
    let kind = "BindRequest";
    let result = |result: Value| json!({"resourceClaimAllocations": [{"name": "c", "allocation": {"devices": {"results": [result]}}}]});
    let device = |toleration: Value| {
        result(
            json!({"driver": "d", "pool": "p", "device": "g", "request": "r", "tolerations": [toleration]}),
        )
    };
    let config = |parameters: Value| {
        let opaque = json!({"driver": "d", "parameters": parameters});
        let devices = json!({"config": [{"source": "FromClaim", "opaque": opaque}]});
        json!({"resourceClaimAllocations": [{"name": "c", "allocation": {"devices": devices}}]})
    };
    let zone = |amount: Value| json!({"predictedNUMAZones": [{"zone": "node-0", "amount": amount}]});
    vec![
        (kind, json!({"podName": "p", "selectedNode": "n", "backoffLimit": 3}), Kept),
        (kind, device(json!({"key": "k"})), Stored(device(json!({"key": "k", "operator": "Equal"})))),
        (kind, config(json!({"apiVersion": "x/v1", "deep": {"er": [1, null]}})), Kept),
        (kind, zone(json!({"cpu": "1500m", "memory": "-1Ki"})), Kept),
        (kind, zone(json!({"cpu": 2})), Stored(zone(json!({"cpu": 2})))),
        (kind, zone(json!({"cpu": 1.5})), Rejected(".predictedNUMAZones[0].amount.cpu")),
        (kind, zone(json!({"cpu": "1 core"})), Rejected(".predictedNUMAZones[0].amount.cpu")),
        (kind, json!({"predictedNUMAZones": [{"zone": "z"}]}), Rejected(".predictedNUMAZones[0].amount")),
        (kind, json!({"receivedGPU": {"portion": 0.5}}), Rejected(".receivedGPU.portion")),
        (
            kind,
            result(json!({"driver": "d", "pool": "p", "device": "g"})),
            Rejected(".resourceClaimAllocations[0].allocation.devices.results[0].request"),
        ),
        (
            kind,
            config(json!("text")),
            Rejected(".resourceClaimAllocations[0].allocation.devices.config[0].opaque.parameters"),
        ),
        (
            kind,
            json!({"extendedResourceClaimAllocation": {"containerMappings": [
                {"containerName": "c", "resourceName": "r"}]}}),
            Rejected(".extendedResourceClaimAllocation.containerMappings[0].requestName"),
        ),
    ]
}

fn topologies() -> Vec<Example> {
    let kind = "Topology";
    let labels = |labels: &[String]| json!({"levels": labels.iter().map(|label| json!({"nodeLabel": label})).collect::<Vec<_>>()});
    let numbered =
        |count: usize| labels(&(0..count).map(|index| format!("level-{index}")).collect::<Vec<_>>());
    let named = |names: &[&str]| labels(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let level = |level: Value| json!({"levels": [level]});
    vec![
        (kind, named(&["example.com/block", "Rack_1", "kubernetes.io/hostname"]), Kept),
        (kind, level(json!({"nodeLabel": "a", "alias": "b"})), Kept),
        (kind, numbered(16), Kept),
        (kind, json!({}), Rejected(".levels")),
        (kind, numbered(0), Rejected(".levels")),
        (kind, numbered(17), Rejected(".levels")),
        (kind, named(&["a", "b", "a"]), Rejected(".levels")),
        (kind, named(&["kubernetes.io/hostname", "a"]), Rejected(".levels")),
        (kind, level(json!({"alias": "a"})), Rejected(".levels[0].nodeLabel")),
        (kind, named(&[""]), Rejected(".levels[0].nodeLabel")),
        (kind, named(&["-a"]), Rejected(".levels[0].nodeLabel")),
        (kind, named(&[&"a".repeat(316)]), Kept),
        (kind, named(&[&"a".repeat(317)]), Rejected(".levels[0].nodeLabel")),
        (kind, level(json!({"nodeLabel": "a", "alias": "b c"})), Rejected(".levels[0].alias")),
        (kind, level(json!({"nodeLabel": "a", "alias": ""})), Rejected(".levels[0].alias")),
    ]
}

fn shards() -> Vec<Example> {
    let kind = "SchedulingShard";
    let usage = |params: Value| json!({"usageDBConfig": {"clientType": "prometheus", "usageParams": params}});
    vec![
        (kind, json!({"goMemLimitRatio": 1.0, "goMemLimit": "2Gi", "kValue": 0.5}), Kept),
        (kind, json!({"plugins": {"any": {"enabled": false, "arguments": {"a": "b"}}}}), Kept),
        (kind, usage(json!({"windowSize": "1w2d"})), Kept),
        (kind, json!({"goMemLimitRatio": 0}), Rejected(".goMemLimitRatio")),
        (kind, json!({"goMemLimitRatio": 1.01}), Rejected(".goMemLimitRatio")),
        (kind, json!({"goMemLimit": "lots"}), Rejected(".goMemLimit")),
        (kind, json!({"queueDepthPerAction": {"allocate": "5"}}), Rejected(".queueDepthPerAction.allocate")),
        (kind, json!({"args": {"verbose": true}}), Rejected(".args.verbose")),
        (kind, json!({"usageDBConfig": {}}), Rejected(".usageDBConfig.clientType")),
        (kind, usage(json!({"windowSize": "2d1w"})), Rejected(".usageDBConfig.usageParams.windowSize")),
        (
            kind,
            usage(json!({"tumblingWindowStartTime": "noon"})),
            Rejected(".usageDBConfig.usageParams.tumblingWindowStartTime"),
        ),
    ]
}

fn configs() -> Vec<Example> {
    let kind = "Config";
    let vpa = |vpa: Value| json!({"global": {"vpa": vpa}});
    let claims = |claims: Value| json!({"binder": {"service": {"resources": {"claims": claims}}}});
    let eviction = |change: &str| {
        vpa(
            json!({"updatePolicy": {"evictionRequirements": [{"resources": ["cpu"], "changeRequirement": change}]}}),
        )
    };
    let container = |policy: Value| vpa(json!({"resourcePolicy": {"containerPolicies": [policy]}}));
    let first_eviction = ".global.vpa.updatePolicy.evictionRequirements[0].changeRequirement";
    vec![
        (kind, json!({"scheduler": {"GOGC": 400, "replicas": 2, "service": {"enabled": true}}}), Kept),
        (kind, vpa(json!({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}})), Kept),
        (kind, eviction("TargetLowerThanRequests"), Kept),
        (kind, claims(json!([{"name": "a"}, {"name": "b", "request": "r"}])), Kept),
        (kind, json!({"binder": {"nonsense": 1}}), Stored(json!({"binder": {}}))),
        (kind, claims(json!([{"name": "a"}, {"name": "a"}])), Rejected(".binder.service.resources.claims")),
        (
            kind,
            vpa(json!({"updatePolicy": {"updateMode": "Later"}})),
            Rejected(".global.vpa.updatePolicy.updateMode"),
        ),
        (kind, eviction("Never"), Rejected(first_eviction)),
        (
            kind,
            container(json!({"mode": "On"})),
            Rejected(".global.vpa.resourcePolicy.containerPolicies[0].mode"),
        ),
        (
            kind,
            container(json!({"controlledValues": "Limits"})),
            Rejected(".global.vpa.resourcePolicy.containerPolicies[0].controlledValues"),
        ),
        (kind, json!({"scheduler": {"replicas": 3_000_000_000_i64}}), Rejected(".scheduler.replicas")),
        (
            kind,
            json!({"global": {"securityContext": {"seccompProfile": {}}}}),
            Rejected(".global.securityContext.seccompProfile.type"),
        ),
        (kind, json!({"global": {"tolerations": {"key": "a"}}}), Rejected(".global.tolerations")),
    ]
}

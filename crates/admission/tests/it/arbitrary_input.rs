//! No input makes a webhook panic.

use kai_admission::queue::{self, QuotaValidation};
use kai_admission::review::{Operation, Request};
use kai_admission::{pod, podgroup, topology};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Text that rules read, besides arbitrary text.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "0.5",
            "-1",
            "NaN",
            "1e400",
            "kai-scheduler",
            "main",
            "",
            "é-ü",
            "-",
            "true",
            "2Gi",
            "9e999",
            "soon",
        ])
        .prop_map(str::to_owned),
        "[a-zé.-]{0,80}",
    ]
}

fn key() -> impl Strategy<Value = String> {
    let keys = [
        "metadata",
        "spec",
        "annotations",
        "name",
        "generateName",
        "containers",
        "initContainers",
        "volumes",
        "env",
        "envFrom",
        "resources",
        "limits",
        "requests",
        "nvidia.com/gpu",
        "gpu-fraction",
        "gpu-memory",
        "gpu-fraction-container-name",
        "runai/shared-gpu-configmap",
        "schedulerName",
        "ownerReferences",
        "subGroups",
        "minMember",
        "minSubGroup",
        "parent",
        "levels",
        "alias",
        "nodeLabel",
        "parentQueue",
        "quota",
        "cpu",
        "gpu",
        "preemptMinRuntime",
        "status",
        "requested",
    ];
    prop::sample::select(keys.to_vec()).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6).prop_map(|fields| json!(fields)),
        ]
    })
}

/// A pod of this scheduler that the API server could send, with unusual values where users may write.
fn unusual_pod() -> impl Strategy<Value = Value> {
    let annotations = prop::collection::btree_map(key(), text(), 0..6);
    (annotations, text(), text(), value(), value()).prop_map(|(annotations, name, owner, env, limits)| {
        json!({
            "metadata": {"name": name, "annotations": annotations, "ownerReferences": [{"name": owner}]},
            "spec": {
                "schedulerName": "kai-scheduler", "volumes": [{"name": name}],
                "containers": [{"name": "main", "env": env, "resources": {"limits": limits}}, {"name": owner}],
            },
        })
    })
}

fn review(object: &Value, old: &Value) {
    let options = pod::Options {
        gpu_sharing: true,
        hami_core: true,
        block_visible_devices: true,
        ..pod::Options::default()
    };
    for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect] {
        let request = Request {
            uid: "u".to_owned(),
            operation,
            namespace: "team-a".to_owned(),
            object: object.clone(),
            old_object: old.clone(),
        };
        let _ = pod::mutate(&request, &options);
        let _ = pod::validate(&request, &options);
        let _ = podgroup::validate(&request);
        let _ = topology::validate(&request);
        if let Ok(Some(change)) = queue::Change::of(&request) {
            let known: Vec<_> =
                queue::decode(object).into_iter().chain(queue::decode(old)).map(|queue| *queue).collect();
            let _ = queue::check(&change, QuotaValidation::Enabled, &known);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_json_never_panics(object in value(), old in value()) {
        review(&object, &old);
    }

    #[test]
    fn unusual_pods_never_panic(object in unusual_pod(), old in unusual_pod()) {
        review(&object, &old);
    }
}

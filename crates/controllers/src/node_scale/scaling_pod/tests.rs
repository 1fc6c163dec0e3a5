//! Fields, names and affinity of a scaling pod, compared with the pod that it stands for.

use super::*;
use crate::node_scale::observed::ScalingPod;
use kai_api::Pod;
use serde::Deserialize as _;

fn creation(namespace: &str, name: &str) -> Creation {
    Creation {
        source: Key::new(namespace, name),
        source_uid: "0a1b2c3d-4e5f-6789".to_owned(),
        gpus: 2,
        cpu_milli: 1_500,
        memory: 1 << 30,
        pods: 3,
    }
}

fn built(source: &Value) -> Value {
    let creation = creation(object::namespace(source), object::name(source));
    build(&Options::default(), &creation, source, "name", Some("account"))
}

#[test]
fn scaling_pod_requests_whole_gpus_where_its_pod_could_run() {
    let source = json!({
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {
            "schedulerName": "kai-scheduler", "priorityClassName": "train", "nodeSelector": {"zone": "b"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    });
    let pod = built(&source);
    let resources = json!({
        "requests": {"nvidia.com/gpu": "2", "cpu": "1500m", "memory": "1073741824"},
        "limits": {"nvidia.com/gpu": "2"},
    });
    assert_eq!(pod["spec"]["containers"][0]["resources"], resources);
    assert_eq!(pod["spec"]["nodeSelector"], json!({"zone": "b"}));
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "gpu");
    assert_eq!(pod["spec"]["schedulerName"], "kai-scaling-pod", "no scheduler places it");
    assert_eq!(pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "account");
    let read = ScalingPod::of(&Pod::deserialize(&pod).unwrap());
    assert_eq!(read.source, Some(Key::new("team", "p")));
    assert_eq!((read.gpus, read.cpu_milli, read.memory), (2, 1_500, 1 << 30));
}

#[test]
fn affinity_to_pods_keeps_its_namespace_and_drops_terms_that_only_the_source_satisfies() {
    let own = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
    let cache = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "cache"}}});
    let elsewhere = json!({"topologyKey": "zone", "namespaces": ["b"], "labelSelector": {}});
    let source = json!({
        "metadata": {"name": "p", "namespace": "team", "labels": {"app": "x"}},
        "spec": {"affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [own, cache],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": cache}],
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own, elsewhere]},
        }},
    });
    let affinity = &built(&source)["spec"]["affinity"];
    assert_eq!(affinity["nodeAffinity"], source["spec"]["affinity"]["nodeAffinity"]);
    let required = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required.as_array().map(Vec::len), Some(1), "{required}");
    assert_eq!(required[0]["namespaces"], json!(["team"]));
    let preferred = &affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(preferred["podAffinityTerm"]["namespaces"], json!(["team"]));
    let anti = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!((&anti[0]["namespaces"], &anti[1]["namespaces"]), (&json!(["team"]), &json!(["b"])));
}

#[test]
fn names_are_those_of_kai_and_stay_valid_and_distinct() {
    let (options, mut observed) = (Options::default(), Observed::default());
    assert_eq!(pod_name(&observed, &options, &creation("a", "b-c")), "a-b-c");
    let other = ScalingPod { source: Some(Key::new("a-b", "c")), ..ScalingPod::default() };
    observed.scaling.insert(Key::new("kai-scale-adjust", "a-b-c"), other);
    assert_eq!(pod_name(&observed, &options, &creation("a", "b-c")), "a-b-c-0a1b2c3d-4e5f");
    assert_eq!(pod_name(&observed, &options, &creation("a-b", "c")), "a-b-c");
    let long = creation("team", &"x".repeat(253));
    let made = pod_name(&observed, &options, &long);
    assert!(made.len() <= 253 && made.ends_with("-0a1b2c3d-4e5f"), "{made}");
    let source = json!({"metadata": {"name": "x".repeat(253), "namespace": "team"}});
    let pod = build(&options, &long, &source, &made, None);
    assert_eq!(pod["metadata"]["labels"].get(label::SCALING_FOR_NAME), None, "too long for a label");
    assert_eq!(ScalingPod::of(&Pod::deserialize(&pod).unwrap()).source, Some(long.source));
}

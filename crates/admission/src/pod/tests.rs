//! Mutation and validation of pods, as tables.

use super::*;
use kai_api::well_known::{annotation as key, env, resource};
use serde_json::json;

fn options() -> Options {
    Options { gpu_sharing: true, ..Options::default() }
}

fn pod(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "worker", "namespace": "team-a", "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}, {"name": "side"}]},
    })
}

fn request(operation: Operation, object: Value, old_object: Value) -> Request {
    Request { uid: "u-1".to_owned(), operation, namespace: "team-a".to_owned(), object, old_object }
}

/// The pod after mutation, or why it is refused.
fn mutated(object: &Value, options: &Options) -> Result<Value, String> {
    let mut pod = object.clone();
    prepare(&mut pod, &request(Operation::Create, object.clone(), Value::Null), options).map(|()| pod)
}

fn allowed_update(old: Value, new: Value, options: &Options) -> bool {
    validate(&request(Operation::Update, new, old), options).is_allowed()
}

#[test]
fn fraction_pod_gets_references_to_its_config_maps() {
    let pod = mutated(&pod(&json!({key::GPU_FRACTION: "0.5"})), &options()).unwrap();
    let prefix = fields::annotation(&pod, key::SHARED_GPU_CONFIG_MAP).unwrap();
    assert!(prefix.starts_with("worker-") && prefix.ends_with("-shared-gpu"), "{prefix}");
    let container = &pod["spec"]["containers"][0];
    let names: Vec<&str> =
        container["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, [env::NVIDIA_VISIBLE_DEVICES, env::RUNAI_NUM_OF_GPUS, env::GPU_PORTION]);
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], format!("{prefix}-0-evar"));
    assert_eq!(pod["spec"]["volumes"][0]["configMap"]["name"], format!("{prefix}-0"));
    assert_eq!(pod["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(pod["spec"]["containers"][1], json!({"name": "side"}));
    assert_eq!(mutated(&pod, &options()).unwrap(), pod, "a second call changes nothing");
}

#[test]
fn generated_prefix_begins_with_a_name_and_keeps_volumes_short() {
    let long = "a".repeat(63);
    for (metadata, base) in [
        (json!({"generateName": "job-"}), "job"),
        (json!({"generateName": "job-", "ownerReferences": [{"name": "web-5d8f"}]}), "web-5d8f"),
        (json!({"name": long}), &long[..33]),
        (json!({"name": format!("{}.bbbbbbbbbb", &long[..32])}), &long[..32]),
        (json!({}), "pod"),
    ] {
        let mut pod = pod(&json!({}));
        pod["metadata"] = metadata.clone();
        pod["metadata"]["annotations"] = json!({key::GPU_FRACTION: "0.5"});
        let pod = mutated(&pod, &options()).unwrap();
        let prefix = fields::annotation(&pod, key::SHARED_GPU_CONFIG_MAP).unwrap();
        assert_eq!(prefix.len() - base.len(), "-1234567-shared-gpu".len(), "{metadata} {prefix}");
        assert!(prefix.starts_with(base), "{metadata} {prefix}");
        assert!(pod["spec"]["volumes"][0]["name"].as_str().unwrap().len() <= 63);
    }
}

#[test]
fn given_prefix_is_checked_and_an_empty_one_replaced() {
    let of = |prefix: &str| {
        mutated(&pod(&json!({key::GPU_FRACTION: "0.5", key::SHARED_GPU_CONFIG_MAP: prefix})), &options())
    };
    assert_eq!(of("my-prefix").unwrap()["spec"]["volumes"][0]["name"], "my-prefix-0-vol");
    assert!(
        of("My_Prefix").unwrap_err().contains("hint: remove the annotation, or use at most 57 lower case")
    );
    // `-0-vol` follows in the name of the volume, which is a DNS label.
    let longest = of(&"a".repeat(57)).unwrap();
    assert_eq!(longest["spec"]["volumes"][0]["name"].as_str().unwrap().len(), 63);
    assert!(of(&"a".repeat(58)).unwrap_err().contains("at most 57"));
    let mut owned = pod(&json!({key::GPU_FRACTION: "0.5"}));
    owned["metadata"]["ownerReferences"] = json!([{"name": "My_Owner"}]);
    let of_owner = mutated(&owned, &options()).unwrap_err();
    assert!(!of_owner.contains("remove the annotation"), "the user wrote none: {of_owner}");
    assert!(
        of_owner.contains("would begin with `My_Owner-") && of_owner.contains("hint: set annotation"),
        "{of_owner}"
    );
    assert!(of("").unwrap()["spec"]["volumes"][0]["name"].as_str().unwrap().starts_with("worker-"));
    let mut taken = pod(&json!({key::GPU_FRACTION: "0.5", key::SHARED_GPU_CONFIG_MAP: "my-prefix"}));
    taken["spec"]["volumes"] = json!([{"name": "my-prefix-0-vol", "emptyDir": {}}]);
    assert!(mutated(&taken, &options()).unwrap_err().contains("rename the volume"));
}

#[test]
fn pod_is_left_unchanged_while_sharing_is_disabled() {
    let pod = pod(&json!({key::GPU_FRACTION: "0.5"}));
    assert_eq!(mutated(&pod, &Options { hami_core: true, ..Options::default() }).unwrap(), pod);
    assert!(check(&pod, &Options::default()).unwrap_err().contains("GPU sharing is disabled"));
}

#[test]
fn hami_core_adds_an_optional_reference_to_the_named_container() {
    let mut init = pod(&json!({key::GPU_MEMORY: "2000", key::GPU_FRACTION_CONTAINER: "i"}));
    init["spec"]["initContainers"] =
        json!([{"name": "i", "env": [{"name": env::CUDA_DEVICE_MEMORY_LIMIT, "value": "1g"}]}]);
    let pod = mutated(&init, &Options { hami_core: true, ..options() }).unwrap();
    let variables = pod["spec"]["initContainers"][0]["env"].as_array().unwrap();
    assert_eq!(variables.len(), 4);
    assert_eq!(variables[3]["valueFrom"]["configMapKeyRef"]["optional"], true);
    assert!(variables[3]["valueFrom"]["configMapKeyRef"]["name"].as_str().unwrap().ends_with("-i0"));
}

#[test]
fn devices_are_hidden_from_containers_without_gpus() {
    let options = Options { block_visible_devices: true, ..options() };
    let variable = |value: Value| json!([{"name": env::NVIDIA_VISIBLE_DEVICES, "valueFrom": value}]);
    let mut pod = pod(&json!({}));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {resource::NVIDIA_GPU: 1}});
    pod["spec"]["containers"][1]["env"] = variable(json!({"fieldRef": {"fieldPath": "metadata.name"}}));
    assert!(check(&pod, &options).unwrap_err().contains("container `side`"));
    let hidden = mutated(&pod, &options).unwrap();
    assert_eq!(hidden["spec"]["containers"][0], pod["spec"]["containers"][0]);
    assert_eq!(
        hidden["spec"]["containers"][1]["env"],
        json!([{"name": env::NVIDIA_VISIBLE_DEVICES, "value": "void"}])
    );
    assert_eq!(check(&hidden, &options), Ok(()));
    // A request precedes the limit beside it; only a missing one is the limit.
    for (resources, is_hidden) in [
        (json!({"requests": {resource::NVIDIA_GPU: "0"}, "limits": {resource::NVIDIA_GPU: "1"}}), true),
        (json!({"requests": {resource::NVIDIA_GPU: "1"}, "limits": {resource::NVIDIA_GPU: "0"}}), false),
        (json!({"requests": {"cpu": "1"}, "limits": {"nvidia.com/mig-1g.5gb": "1"}}), false),
    ] {
        pod["spec"]["containers"][0]["resources"] = resources.clone();
        let container = mutated(&pod, &options).unwrap()["spec"]["containers"][0].clone();
        assert_eq!(container.get("env").is_some(), is_hidden, "{resources}");
    }
}

#[test]
fn requests_for_parts_of_gpus_are_validated() {
    for (annotations, valid) in [
        (json!({key::GPU_FRACTION: "0.5"}), true),
        (json!({key::GPU_FRACTION: "1e-1"}), true),
        (json!({key::GPU_FRACTION: ".25"}), true),
        (json!({key::GPU_FRACTION: "+0.5"}), true),
        (json!({key::GPU_FRACTION: "5e-324"}), true),
        (json!({key::GPU_FRACTION: "0"}), false),
        (json!({key::GPU_FRACTION: "1.0"}), false),
        (json!({key::GPU_FRACTION: "500m"}), false),
        (json!({key::GPU_FRACTION: "NaN"}), false),
        (json!({key::GPU_FRACTION: "inf"}), false),
        (json!({key::GPU_FRACTION: " 0.5"}), false),
        (json!({key::GPU_FRACTION: "0.50"}), true),
        (json!({key::GPU_FRACTION: "5e-1"}), true),
        (json!({key::GPU_FRACTION: "1e0"}), false),
        (json!({key::GPU_FRACTION: "1e-400"}), false),
        (json!({key::GPU_FRACTION: "0x1p-2"}), false),
        (json!({key::GPU_FRACTION: "-0"}), false),
        (json!({key::GPU_FRACTION: "0.99999999999999999999"}), false),
        (json!({key::GPU_FRACTION: ""}), false),
        (json!({key::GPU_FRACTION: null}), false),
        (json!({key::GPU_MEMORY: "007"}), true),
        (json!({key::GPU_MEMORY: "+5"}), false),
        (json!({key::GPU_MEMORY: "2Gi"}), false),
        (json!({key::GPU_MEMORY: "0"}), false),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_MEMORY: "2000"}), false),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_NUM_DEVICES: "2"}), true),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_NUM_DEVICES: ""}), false),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_NUM_DEVICES: "+2"}), false),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_NUM_DEVICES: "2.0"}), false),
        (json!({key::GPU_MEMORY: "2000", key::GPU_FRACTION_NUM_DEVICES: "18446744073709551615"}), true),
        (json!({key::GPU_MEMORY: "2000", key::GPU_FRACTION_NUM_DEVICES: "18446744073709551616"}), false),
        (json!({key::GPU_FRACTION_NUM_DEVICES: "2"}), false),
        (json!({key::GPU_FRACTION: "0.5", key::MPS: "true"}), true),
        (json!({key::MPS: "true"}), false),
        (json!({key::MPS: "True"}), true),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_CONTAINER: "side"}), true),
        (json!({key::GPU_FRACTION: "0.5", key::GPU_FRACTION_CONTAINER: "nope"}), false),
    ] {
        let checked = check(&pod(&annotations), &options());
        assert_eq!(checked.is_ok(), valid, "{annotations}: {checked:?}");
        assert!(
            checked
                .err()
                .is_none_or(|problem| problem.contains("hint:") && problem.contains("team-a/worker"))
        );
    }
    for (resources, valid) in [
        (json!({"limits": {resource::NVIDIA_GPU: "0"}}), false),
        (json!({"requests": {resource::NVIDIA_GPU: "1"}}), false),
        (json!({"requests": {resource::NVIDIA_GPU: "0"}}), true),
    ] {
        let mut whole = pod(&json!({key::GPU_FRACTION: "0.5"}));
        whole["spec"]["containers"][1]["resources"] = resources.clone();
        assert_eq!(check(&whole, &options()).is_ok(), valid, "{resources}");
    }
}

#[test]
fn update_of_a_pod_with_a_problem_is_accepted_only_if_its_request_is_unchanged() {
    let fraction = |text: &str| pod(&json!({key::GPU_FRACTION: text}));
    assert!(!allowed_update(fraction("0.5"), fraction("2"), &options()));
    assert!(!allowed_update(pod(&json!({})), fraction("0.5"), &options()), "a fraction cannot be added");
    assert!(allowed_update(fraction("0.5"), pod(&json!({})), &options()));
    // Sharing was disabled later: the finalizers of the pod can still be removed.
    let mut finalized = fraction("0.5");
    finalized["metadata"]["finalizers"] = json!(["a"]);
    assert!(allowed_update(finalized, fraction("0.5"), &Options::default()));
    assert!(!allowed_update(pod(&json!({})), fraction("0.5"), &Options::default()));
    assert!(
        !allowed_update(fraction("0.5"), fraction("2"), &Options::default()),
        "the old problem comes first"
    );
    let mut whole = fraction("0.5");
    whole["spec"]["containers"][1]["resources"] = json!({"limits": {resource::NVIDIA_GPU: "1"}});
    assert!(!allowed_update(fraction("0.5"), whole, &Options::default()));
}

#[test]
fn pod_of_another_scheduler_is_untouched() {
    let mut other = pod(&json!({key::GPU_FRACTION: "7"}));
    other["spec"]["schedulerName"] = json!("default-scheduler");
    let answer = mutate(&request(Operation::Create, other.clone(), Value::Null), &options());
    assert!(answer.patch.is_none() && answer.verdict.is_allowed());
    assert_eq!(check(&other, &options()), Ok(()));
}

#[test]
fn undecodable_pod_has_code_400() {
    let mut map = pod(&json!({}));
    map["spec"]["containers"] = json!({"a": 1});
    let mut amount = pod(&json!({}));
    amount["spec"]["containers"][0]["resources"] = json!({"limits": {resource::NVIDIA_GPU: "x"}});
    for bad in [map, amount, Value::Null, json!([])] {
        let request = request(Operation::Create, bad, Value::Null);
        assert_eq!(validate(&request, &options()).cause.code(), 400);
        assert_eq!(mutate(&request, &options()).verdict.cause.code(), 400);
    }
}

#[test]
fn misspelt_keys_of_a_new_pod_are_warnings() {
    let mut misspelt = pod(&json!({"gpu-fractoin": "0.5"}));
    misspelt["metadata"]["labels"] = json!({"kai.scheduler/queu": "a"});
    let created = validate(&request(Operation::Create, misspelt.clone(), Value::Null), &options());
    assert!(created.is_allowed());
    assert_eq!(created.warnings.len(), 2, "{created:?}");
    assert!(created.warnings.iter().all(|text| text.len() < 256));
    let updated = validate(&request(Operation::Update, misspelt.clone(), misspelt.clone()), &options());
    assert!(updated.is_allowed() && updated.warnings.is_empty(), "{updated:?}");
    misspelt["spec"]["schedulerName"] = json!("default-scheduler");
    let of_others = validate(&request(Operation::Create, misspelt, Value::Null), &options());
    assert!(of_others.warnings.is_empty(), "{of_others:?}");
}

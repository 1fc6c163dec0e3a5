//! What a reservation pod looks like: it asks for one GPU, and so keeps a shared GPU from everybody else.

use crate::options::Options;
use kai_api::well_known::{annotation, env, label, label_value, resource};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// What the container of a reservation pod is called.
const CONTAINER: &str = "resource-reservation";

/// The name of the reservation pod of a group on a node. It follows from both, so that nobody makes a second one.
pub(crate) fn name(node: &str, group: &str) -> String {
    let hash = digest(&SHA256, format!("{node}/{group}").as_bytes());
    let mut name = "gpu-reservation-".to_owned();
    for byte in &hash.as_ref()[..8] {
        write!(name, "{byte:02x}").expect("text can be written to");
    }
    name
}

/// The reservation pod of a group on a node. It bears what the pod it is made for bears.
pub(crate) fn build(options: &Options, node: &str, group: &str, tolerations: Option<&Value>) -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut container = json!({
        "name": CONTAINER, "imagePullPolicy": "IfNotPresent", "image": options.reservation_image,
        "resources": resources(options.reservation_resources.as_ref()),
        "env": [
            {"name": env::POD_NAME, "valueFrom": field("metadata.name")},
            {"name": env::POD_NAMESPACE, "valueFrom": field("metadata.namespace")},
        ],
    });
    if options.fake_gpu_nodes {
        container["image"] = Value::from("ubuntu");
        container["args"] = json!(["sleep", "infinity"]);
    }
    if let Some(context) = &options.reservation_container_security_context {
        container["securityContext"] = context.clone();
    }
    let mut spec = json!({
        "nodeName": node, "serviceAccountName": options.reservation_service_account, "containers": [container],
    });
    if let Some(tolerations) = tolerations {
        spec["tolerations"] = tolerations.clone();
    }
    if let Some(context) = &options.reservation_pod_security_context {
        spec["securityContext"] = context.clone();
    }
    if !options.runtime_class_name.is_empty() {
        spec["runtimeClassName"] = Value::from(options.runtime_class_name.as_str());
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(node, group), "namespace": options.reservation_namespace,
            "labels": {label::APP: options.reservation_app_label, label::GPU_GROUP: group},
            "annotations": {annotation::KARPENTER_DO_NOT_DISRUPT: label_value::TRUE},
        },
        "spec": spec,
    })
}

/// Exactly one GPU, and what else was configured.
fn resources(configured: Option<&Value>) -> Value {
    let part = |name: &str| {
        let given = configured.and_then(|given| given.get(name)).and_then(Value::as_object);
        let mut amounts: Map<String, Value> = given.cloned().unwrap_or_default();
        amounts.insert(resource::NVIDIA_GPU.to_owned(), Value::from("1"));
        amounts
    };
    json!({"requests": part("requests"), "limits": part("limits")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_kai_calls_it() {
        // First eight bytes of the SHA-256 of `node-1/group-1`, by sha256sum.
        assert_eq!(name("node-1", "group-1"), "gpu-reservation-ca239632e9e20d1c");
        assert_ne!(name("node-1", "a"), name("node-2", "a"));
    }

    #[test]
    fn a_reservation_asks_for_one_gpu_whatever_is_configured() {
        let options = Options {
            reservation_resources: Some(json!({
                "requests": {"cpu": "50m", "nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"},
            })),
            ..Options::default()
        };
        let pod = build(&options, "n", "g", Some(&json!([{"operator": "Exists"}])));
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "50m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
        );
        assert_eq!(pod["spec"]["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "kai-resource-reservation", "runai-gpu-group": "g"})
        );
        assert_eq!(pod["metadata"]["annotations"], json!({"karpenter.sh/do-not-disrupt": "true"}));
        assert!(pod["spec"].get("runtimeClassName").is_none());
        assert!(pod["spec"].get("restartPolicy").is_none(), "kubelets start it again, as for any other pod");
    }

    #[test]
    fn pretended_gpus_are_held_by_sleeping() {
        let options =
            Options { fake_gpu_nodes: true, runtime_class_name: "nvidia".to_owned(), ..Options::default() };
        let pod = build(&options, "n", "g", None);
        assert_eq!(pod["spec"]["containers"][0]["image"], "ubuntu");
        assert_eq!(pod["spec"]["containers"][0]["args"], json!(["sleep", "infinity"]));
        assert_eq!(pod["spec"]["runtimeClassName"], "nvidia");
    }
}
